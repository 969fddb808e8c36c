"""Which versions a broker is spoken to in, and which release it must be.

Kafka's own controller goes by `inter.broker.protocol.version` alone. Here each broker is asked, and
the setting, if there is one, is the limit.
"""

from collections.abc import Mapping

import attrs

from kctl.model.settings import Release
from kctl.wire.apis import APIS

LEADER_AND_ISR = 4
STOP_REPLICA = 5
UPDATE_METADATA = 6
ALTER_PARTITION = 56
ALLOCATE_PRODUCER_IDS = 67

Told = Mapping[int, tuple[int, int]]
"""Lowest and highest version by API key, as a broker answers to ApiVersions."""


class NoCommonVersion(Exception):
    """The broker does not speak any version of this API that we may use."""


@attrs.frozen
class Versions:
    leader_and_isr: int
    update_metadata: int
    stop_replica: int


BY_PROTOCOL: Mapping[Release, Versions] = {
    (0, 0): Versions(0, 0, 0),
    (0, 9): Versions(0, 1, 0),
    (0, 10): Versions(0, 2, 0),
    (0, 11): Versions(0, 3, 0),
    (1, 0): Versions(1, 4, 0),
    (2, 2): Versions(2, 5, 1),
    (2, 4): Versions(4, 6, 2),
    (2, 6): Versions(4, 6, 3),
    (2, 8): Versions(5, 7, 3),
    (3, 2): Versions(6, 7, 3),
    (3, 4): Versions(7, 8, 4),
}
"""Highest versions by `inter.broker.protocol.version`, from each release on."""

OURS = Versions(*(APIS[key].last for key in (LEADER_AND_ISR, UPDATE_METADATA, STOP_REPLICA)))


def negotiate(told: Told, protocol: Release | None) -> Versions:
    limit = OURS
    if protocol is not None:
        limit = [v for since, v in BY_PROTOCOL.items() if since <= protocol][-1]
    return Versions(
        _highest(told, LEADER_AND_ISR, limit.leader_and_isr),
        _highest(told, UPDATE_METADATA, limit.update_metadata),
        _highest(told, STOP_REPLICA, limit.stop_replica),
    )


def _highest(told: Told, key: int, limit: int) -> int:
    if key not in told:
        raise NoCommonVersion(f"{APIS[key].name} is not served")
    lowest, highest = told[key]
    version = min(highest, limit)
    if version < lowest:
        raise NoCommonVersion(f"{APIS[key].name} {lowest}-{highest}, up to {limit} wanted")
    return version


def release_of(told: Told) -> Release:
    """The oldest release that answers like this. From 3.5 on the controller sees no difference."""

    def highest(key: int) -> int:
        return told.get(key, (0, -1))[1]

    altering = highest(ALTER_PARTITION)
    match highest(LEADER_AND_ISR):
        case version if version >= 7:
            return (3, 5) if altering >= 3 else (3, 4)
        case 6:
            return (3, 3) if altering >= 2 else (3, 2)
        case 5:
            return (3, 0) if highest(ALLOCATE_PRODUCER_IDS) >= 0 else (2, 8)
        case 3 | 4:
            if altering >= 0:
                return (2, 7)
            return (2, 6) if highest(STOP_REPLICA) >= 3 else (2, 4)
        case 2:
            return (2, 2)
        case 1:
            return (1, 0)
        case _:
            return (0, 11)
