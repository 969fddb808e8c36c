"""Brokers as their registration in `/brokers/ids/<id>` describes them."""

from collections.abc import Mapping

import attrs

from kctl.model.names import BrokerId


@attrs.frozen
class Endpoint:
    listener: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"


@attrs.frozen
class Broker:
    """A registered broker. Its epoch is the czxid of its znode: a restart gives a larger one."""

    id: BrokerId
    epoch: int
    endpoints: tuple[Endpoint, ...] = ()
    rack: str | None = None
    features: Mapping[str, tuple[int, int]] = attrs.field(factory=dict, hash=False)
    registration_version: int = 5
    """`version` of the registration's JSON; below 5 the broker follows Kafka 2.4's rules."""
