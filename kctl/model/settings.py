"""What the core must know of its configuration, under Kafka's names where Kafka has one."""

import attrs

from kctl.model.brokers import Endpoint
from kctl.model.names import BrokerId

Release = tuple[int, int]
"""A Kafka release as (major, minor); rules change with the oldest live broker's."""

TOPIC_IDS_SINCE: Release = (2, 8)
RECOVERY_STATE_SINCE: Release = (3, 2)
ALTER_PARTITION_SINCE: Release = (2, 7)
FEATURES_SINCE: Release = (2, 7)
FOUND_BY_METADATA_SINCE: Release = (3, 0)
"""Older brokers look for the controller in `/brokers/ids` when they shut down."""

OLDEST_RELEASE: Release = (2, 4)
LATEST_RELEASE: Release = (3, 9)


@attrs.frozen
class Settings:
    controller_id: BrokerId
    """`broker.id`: never the id of a broker."""
    takeover: bool = False
    """Take the controllership from a Kafka broker that holds it, and stay a standby of a kctl."""
    force_takeover: bool = False
    """Take it from another kctl too."""
    endpoints: tuple[Endpoint, ...] = ()
    """Where brokers and clients reach this controller; listed among the live brokers."""
    inter_broker_protocol: Release | None = None
    """`inter.broker.protocol.version`; None: found out from the live brokers."""
    unclean_leader_election: bool = False
    delete_topic_enable: bool = True
    auto_leader_rebalance: bool = True
    leader_imbalance_per_broker_percentage: int = 10
    leader_imbalance_check_interval_ms: int = 300_000
    num_partitions: int = 1
    default_replication_factor: int = 1
    quarantine_check_interval_ms: int = 5_000
    resync_backoff_ms: int = 1_000
    controller_ids: tuple[BrokerId, ...] = ()
    """Of other controllers of this kind, that are no brokers either."""
