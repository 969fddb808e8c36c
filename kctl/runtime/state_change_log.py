"""Kafka's state-change log: what changed and why, under the name that people's tools know."""

import logging
from itertools import islice

import structlog

from kctl.messages.outbox import NOTIFICATION_DROPPED, Story
from kctl.model.cluster import Node
from kctl.model.names import TopicPartition
from kctl.model.rows import Row

log = structlog.get_logger("state.change.logger")

SAID_ELSEWHERE = ("quarantined", "healed", NOTIFICATION_DROPPED)
CHANGES_MAX = 20
"""Of one story; the rest is counted, a large failover must not flood the disk."""


def log_story(node: Node, story: Story) -> None:
    if not logging.getLogger("state.change.logger").isEnabledFor(logging.INFO):
        return
    if story.what in SAID_ELSEWHERE:
        return
    epoch = node.cluster.epoch if node.cluster is not None else None
    about = log.bind(controller=node.settings.controller_id, epoch=epoch)
    if not story.changes:
        about.info(story.what, key=story.key, why=story.why)
        return
    some = islice(story.changes.items(), CHANGES_MAX)
    changes = [describe(tp, before, after) for tp, (before, after) in some]
    more = len(story.changes) - len(changes)
    about.info(story.what, why=story.why, changes=changes, **({"more": more} if more else {}))


def describe(tp: TopicPartition, before: Row | None, after: Row | None) -> str:
    """`orders-0: leader 1 -> 2, isr 1,2,3 -> 2,3, epoch 4 -> 5`: only what is different."""
    parts = []
    for name, of in (
        ("state", lambda row: row.state.name),
        ("leader", lambda row: str(row.leader)),
        ("isr", lambda row: ",".join(map(str, row.isr))),
        ("replicas", lambda row: ",".join(map(str, row.replicas))),
        ("epoch", lambda row: str(row.leadership.leader_epoch if row.leadership else "none")),
    ):
        old = of(before) if before is not None else "none"
        new = of(after) if after is not None else "none"
        if old != new:
            parts.append(f"{name} {old} -> {new}")
    return f"{tp}: {', '.join(parts) or 'unchanged'}"
