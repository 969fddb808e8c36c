"""Where things are in ZooKeeper: every path that Kafka gives a meaning to, relative to the chroot."""

import re
import urllib.parse
from collections.abc import Sequence
from typing import Final

from aiozk import ACL

from kctl.model.names import BrokerId, TopicPartition
from kctl.zookeeper.wire import CREATOR_ALL_ACL, OPEN_ACL, READ_ACL

CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
CLUSTER_ID: Final = "/cluster/id"
BROKER_IDS: Final = "/brokers/ids"
TOPICS: Final = "/brokers/topics"
DELETE_TOPICS: Final = "/admin/delete_topics"
REASSIGN_PARTITIONS: Final = "/admin/reassign_partitions"
PREFERRED_REPLICA_ELECTION: Final = "/admin/preferred_replica_election"
ISR_CHANGES: Final = "/isr_change_notification"
LOG_DIR_EVENTS: Final = "/log_dir_event_notification"
CONFIG_CHANGES: Final = "/config/changes"
TOPIC_CONFIGS: Final = "/config/topics"
USER_CONFIGS: Final = "/config/users"
BROKERS_DEFAULT_CONFIG: Final = "/config/brokers/<default>"
FEATURE: Final = "/feature"
PRODUCER_IDS: Final = "/latest_producer_id_block"

PERSISTENT: Final = (
    "/consumers",
    "/brokers",
    BROKER_IDS,
    TOPICS,
    "/config",
    CONFIG_CHANGES,
    "/admin",
    DELETE_TOPICS,
    "/brokers/seqid",
    ISR_CHANGES,
    PRODUCER_IDS,
    LOG_DIR_EVENTS,
    TOPIC_CONFIGS,
    "/config/clients",
    USER_CONFIGS,
    "/config/brokers",
    "/config/ips",
)
"""What every broker creates at start where it is missing, parents first."""

_OPEN: Final = ("/consumers",)
_SECRET: Final = (USER_CONFIGS, "/config/brokers", "/delegation_token/tokens")
_CREATOR_ALL_WORLD_READ: Final = (*CREATOR_ALL_ACL, *READ_ACL)


def acl_for(path: str, secure: bool) -> Sequence[ACL]:
    """As brokers set it: open, or (`zookeeper.set.acl`) only its creator may write."""
    if not secure or _is_within(path, _OPEN):
        return OPEN_ACL
    return CREATOR_ALL_ACL if _is_within(path, _SECRET) else _CREATOR_ALL_WORLD_READ


def _is_within(path: str, roots: Sequence[str]) -> bool:
    return any(path == root or path.startswith(root + "/") for root in roots)


def broker(broker_id: BrokerId) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def topic(name: str) -> str:
    return f"{TOPICS}/{name}"


def partitions(topic_name: str) -> str:
    return f"{TOPICS}/{topic_name}/partitions"


def partition(tp: TopicPartition) -> str:
    return f"{TOPICS}/{tp[0]}/partitions/{tp[1]}"


def partition_state(tp: TopicPartition) -> str:
    return f"{TOPICS}/{tp[0]}/partitions/{tp[1]}/state"


def deletion(topic_name: str) -> str:
    return f"{DELETE_TOPICS}/{topic_name}"


def topic_config(name: str) -> str:
    return f"{TOPIC_CONFIGS}/{name}"


def user_config(user: str) -> str:
    """Any name fits: what could mean something to ZooKeeper is escaped, as brokers do it."""
    return f"{USER_CONFIGS}/{escaped(user)}"


def escaped(user: str) -> str:
    return urllib.parse.quote(user, safe="").replace("~", "%7E")


def child_number(name: str) -> int | None:
    """The number at the end of a sequential znode's name."""
    digits = name[-10:]
    return int(digits) if len(digits) == 10 and digits.isascii() and digits.isdecimal() else None


_NOT_IN_A_NAME: Final = re.compile(r"[/\x00-\x1f]")


def is_name(text: str) -> bool:
    """Whether this can be one component of a path; anything else names nothing that exists."""
    return bool(text) and text not in {".", ".."} and not _NOT_IN_A_NAME.search(text)
