"""What it costs to carry out a plan: requests and bytes for each broker, and about how long."""

from collections.abc import Iterable

import attrs

from kctl.insight.fork import PLANNER_ID
from kctl.messages.requests import (
    LeaderAndIsrRequest,
    Request,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from kctl.model.names import BrokerId
from kctl.simulation.memory import Recorded
from kctl.wire import requests as wire
from kctl.wire.primitives import WireError

LEADER_AND_ISR_VERSION, UPDATE_METADATA_VERSION, STOP_REPLICA_VERSION = 7, 8, 4
"""As brokers of 3.9 take them; older ones differ by a few bytes a partition."""

KCTL_ROW_S = 25e-6
"""A partition decided, written and told; `docs/performance.md` has the measurements behind it."""
KAFKA_ROW_S = 250e-6
"""The same of Kafka 3.9's own controller on the same machine."""
EVENT_S = 0.005
BYTES_PER_S = 100e6
"""A broker's network, cautiously."""


@attrs.frozen
class Traffic:
    requests: dict[BrokerId, int] = attrs.field(factory=dict)
    bytes: dict[BrokerId, int] = attrs.field(factory=dict)

    @classmethod
    def of(cls, recorded: Iterable[Recorded]) -> "Traffic":
        traffic = cls()
        for one in recorded:
            for dispatch in one.dispatches:
                if isinstance(
                    dispatch, LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest
                ):
                    traffic._add(dispatch)
        return traffic

    def _add(self, request: Request) -> None:
        if isinstance(request, UpdateMetadataRequest):
            recipients = tuple(request.recipients)
        else:
            recipients = (request.broker,)
        size = request_bytes(request)
        for broker in recipients:
            self.requests[broker] = self.requests.get(broker, 0) + 1
            self.bytes[broker] = self.bytes.get(broker, 0) + size


def request_bytes(request: Request) -> int:
    """The body; 0 where a broker has no endpoint that could be written into it."""
    try:
        match request:
            case LeaderAndIsrRequest():
                steps = wire.leader_and_isr(request, PLANNER_ID, LEADER_AND_ISR_VERSION)
                return len(wire.finish(steps))
            case UpdateMetadataRequest():
                return len(wire.finish(wire.update_metadata_body(request, UPDATE_METADATA_VERSION)))
            case StopReplicaRequest():
                bodies = wire.stop_replica(request, PLANNER_ID, STOP_REPLICA_VERSION)
                return sum(len(one.body) for one in bodies)
    except WireError:
        return 0


def forecast_s(writes: int, traffic: Traffic, *, by_kctl: bool) -> float:
    """From the moment when the controller notices until the last broker knows. An estimate."""
    row_s = KCTL_ROW_S if by_kctl else KAFKA_ROW_S
    slowest = max(traffic.bytes.values(), default=0)
    return EVENT_S + writes * row_s + slowest / BYTES_PER_S
