"""Who may ask what of the controller.

There are no ACLs here. What is known is how Kafka would decide without any: brokers, and nobody
else, may do what they do to each other (CLUSTER_ACTION), and where an authorizer is configured only
super users may do what nobody was given a right to.

- ControlledShutdown, AlterPartition and AllocateProducerIds come from brokers: on a listener by
  which brokers speak to each other, if that is known; and from a super user, or under the name by
  which this controller itself logs in to brokers, if names are known there.
- Where there is an authorizer, everything that changes the cluster is for super users.
- So is what is relayed on a listener that knows its clients by their certificates: brokers would
  take it for ours.
"""

from collections.abc import Mapping

import attrs

from kctl.model.codes import KafkaError
from kctl.wire import admin, control_plane
from kctl.wire.schema import Struct

ANONYMOUS = "User:ANONYMOUS"

BROKER_CALLS = frozenset({7, 56, 67})
"""ControlledShutdown, AlterPartition, AllocateProducerIds."""

CLUSTER = KafkaError.CLUSTER_AUTHORIZATION_FAILED
TOPIC = KafkaError.TOPIC_AUTHORIZATION_FAILED


@attrs.frozen
class Rights:
    super_users: frozenset[str] = frozenset()
    """`super.users`."""
    own: str | None = None
    """Our own principal among the brokers, where there are principals."""
    broker_listeners: frozenset[str] = frozenset()
    """Those by which brokers speak to the controller; empty: not known."""
    authorizer: bool = False
    """Whether brokers have one: `authorizer.class.name`."""

    def may_call(self, key: int, principal: str | None, listener: str) -> bool:
        """One of the controller's own requests."""
        if key in BROKER_CALLS:
            return self._is_broker(principal, listener)
        return not self.authorizer or self._is_super(principal)

    def may_be_relayed_as_us(self, principal: str | None) -> bool:
        return not self.authorizer or self._is_super(principal)

    def _is_super(self, principal: str | None) -> bool:
        return principal is not None and principal in {*self.super_users, self.own}

    def _is_broker(self, principal: str | None, listener: str) -> bool:
        if self.broker_listeners and listener not in self.broker_listeners:
            return False
        if self.super_users or self.authorizer:
            return self._is_super(principal)
        # Without either, a name is a broker's if it is ours; where there are none all are alike.
        return self.own is None or principal in (self.own, ANONYMOUS)


def refusal(request: Struct) -> Struct:
    """The answer to somebody who may not ask for this, in the places where clients look."""
    match request:
        case control_plane.ControlledShutdownRequest():
            return control_plane.ControlledShutdownResponse(error_code=CLUSTER)
        case control_plane.AlterPartitionRequest():
            return control_plane.AlterPartitionResponse(error_code=CLUSTER)
        case control_plane.AllocateProducerIdsRequest():
            return control_plane.AllocateProducerIdsResponse(error_code=CLUSTER)
        case admin.CreateTopicsRequest(topics=topics):
            return admin.CreateTopicsResponse(
                topics=tuple(admin.CreatableTopicResult(t.name, error_code=TOPIC) for t in topics)
            )
        case admin.CreatePartitionsRequest(topics=grown):
            return admin.CreatePartitionsResponse(
                results=tuple(admin.CreatePartitionsTopicResult(t.name, TOPIC) for t in grown)
            )
        case admin.DeleteTopicsRequest(topics=doomed, topic_names=names):
            return admin.DeleteTopicsResponse(
                responses=(
                    *(admin.DeletableTopicResult(t.name, t.topic_id, TOPIC) for t in doomed),
                    *(admin.DeletableTopicResult(name, error_code=TOPIC) for name in names),
                )
            )
        case admin.ElectLeadersRequest(topic_partitions=named):
            return admin.ElectLeadersResponse(
                error_code=CLUSTER,
                replica_election_results=tuple(
                    admin.ReplicaElectionResult(
                        t.topic, tuple(admin.PartitionResult(p, CLUSTER) for p in t.partitions)
                    )
                    for t in named or ()
                ),
            )
        case admin.AlterPartitionReassignmentsRequest():
            return admin.AlterPartitionReassignmentsResponse(error_code=CLUSTER)
        case admin.ListPartitionReassignmentsRequest():
            return admin.ListPartitionReassignmentsResponse(error_code=CLUSTER)
        case admin.UpdateFeaturesRequest():
            return admin.UpdateFeaturesResponse(error_code=CLUSTER)
        case admin.AlterUserScramCredentialsRequest(deletions=deletions, upsertions=upsertions):
            users = dict.fromkeys([*(d.name for d in deletions), *(u.name for u in upsertions)])
            return admin.AlterUserScramCredentialsResponse(
                results=tuple(admin.AlterUserScramCredentialsResult(u, CLUSTER) for u in users)
            )
    raise TypeError(f"{type(request).__name__} cannot be refused")


# -- names in certificates -------------------------------------------------------------------

_ATTRIBUTES: Mapping[str, str] = {
    "commonName": "CN",
    "countryName": "C",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "domainComponent": "DC",
    "userId": "UID",
}


def principal_of(certificate: Mapping[str, object] | None) -> str | None:
    """`User:CN=...,O=...` as brokers call it without mapping rules; None if it has other parts."""
    if not certificate:
        return ANONYMOUS
    parts = []
    subject = certificate.get("subject", ())
    assert isinstance(subject, tuple)
    for group in reversed(subject):
        if any(name not in _ATTRIBUTES for name, _ in group):
            return None
        parts.append("+".join(f"{_ATTRIBUTES[name]}={_escaped(value)}" for name, value in group))
    return f"User:{','.join(parts)}"


def _escaped(value: str) -> str:
    """RFC 2253."""
    text = "".join(f"\\{c}" if c in ',+"\\<>;' else c for c in value)
    if text[:1] in (" ", "#"):
        text = f"\\{text}"
    return f"{text[:-1]}\\ " if len(text) > 1 and text.endswith(" ") else text
