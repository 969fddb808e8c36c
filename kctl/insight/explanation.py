"""What an explanation is made of, and the words that all of them share."""

import datetime as dt
from collections.abc import Iterable, Sequence

import attrs

from kctl.insight.snapshot import UNREADABLE, Snapshot
from kctl.logic.partitions import UNCLEAN_CONFIG
from kctl.model.cluster import ClusterState
from kctl.model.codes import Malformed
from kctl.model.names import NO_LEADER, BrokerId, TopicPartition
from kctl.zookeeper import paths

LISTED_MAX = 10
NO_RISK = "none"


class Unknown(Exception):
    """There is no such partition, topic or broker; the message says what there is."""


@attrs.frozen
class Advice:
    do: str
    risk: str = NO_RISK

    def __str__(self) -> str:
        return self.do if self.risk == NO_RISK else f"{self.do} (risk: {self.risk})"


@attrs.frozen
class Explanation:
    subject: str
    verdict: str
    """One line: how it stands."""
    because: tuple[str, ...] = ()
    """The trace of rules that leads there."""
    until: tuple[str, ...] = ()
    """What would change it by itself."""
    advice: tuple[Advice, ...] = ()
    """What can be done, and at what risk."""
    healthy: bool = True

    def lines(self) -> list[str]:
        lines = [f"because {line}" for line in self.because]
        lines += [f"until   {line}" for line in self.until]
        words = ["do     "] + ["or     "] * len(self.advice)
        lines += [f"{word} {one}" for word, one in zip(words, self.advice, strict=False)]
        return lines

    def __str__(self) -> str:
        return "\n".join([f"{self.subject}: {self.verdict}", *(f"  {x}" for x in self.lines())])


@attrs.define
class Draft:
    """An explanation while it is made."""

    subject: str
    because: list[str] = attrs.field(factory=list)
    until: list[str] = attrs.field(factory=list)
    advice: list[Advice] = attrs.field(factory=list)

    def advise(self, do: str, risk: str = NO_RISK) -> None:
        self.advice.append(Advice(do, risk))

    def sum_up(self, verdict: str, *, healthy: bool = False) -> Explanation:
        return Explanation(
            self.subject,
            verdict,
            tuple(dict.fromkeys(self.because)),
            tuple(dict.fromkeys(self.until)),
            tuple(dict.fromkeys(self.advice)),
            healthy,
        )


@attrs.frozen
class Scene:
    """A snapshot, and what a controller makes of it."""

    snapshot: Snapshot
    cluster: ClusterState

    @classmethod
    def of(cls, snapshot: Snapshot) -> "Scene":
        return cls(snapshot, snapshot.cluster())

    def is_registered(self, broker: BrokerId) -> bool:
        return broker in self.cluster.brokers

    def when(self, at_ms: int) -> str:
        """`since 2026-11-18 10:22:03 UTC (4 minutes)`, without the first word."""
        at = dt.datetime.fromtimestamp(at_ms / 1000, dt.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        return f"{at} ({_duration(self.snapshot.times.taken - at_ms)})"

    def gone_since_ms(self, broker: BrokerId) -> int | None:
        """When the oldest of its states was written that stands without it: gone by then."""
        times = self.snapshot.times.states
        left = [
            times[tp]
            for tp in self.cluster.partitions_on(broker)
            if tp in times
            and (leadership := self.cluster.rows[tp].leadership) is not None
            # At leader epoch 0 it may never have been there.
            and leadership.leader_epoch > 0
            and (leadership.leader == NO_LEADER or broker not in leadership.isr)
        ]
        return min(left, default=None)

    def absent(self, broker: BrokerId) -> str:
        """`broker 4 is not registered, since ... at the latest`."""
        path = paths.broker(broker)
        if path in self.cluster.quarantine:
            return f"broker {broker} has a registration that cannot be understood ({path})"
        since = self.gone_since_ms(broker)
        when = "" if since is None else f", since {self.when(since)} at the latest"
        return f"broker {broker} is not registered{when}"

    def controller_trouble(self) -> str | None:
        """Why nobody acts, if that is so."""
        holder = self.snapshot.controller_id
        if holder is None:
            return f"there is no controller: {paths.CONTROLLER} does not exist"
        if holder == UNREADABLE:
            return f"{paths.CONTROLLER} cannot be understood"
        return None

    def advise_on_controller(self, draft: Draft) -> None:
        """What to do where `controller_trouble` says that nobody acts."""
        if self.snapshot.controller_id == UNREADABLE:
            draft.advise(f"delete {paths.CONTROLLER}: then a broker or kctl stands for election")
        else:
            draft.advise("start a broker or kctl: whoever comes first becomes controller")

    @property
    def known_epoch(self) -> int | None:
        """None if it cannot be understood."""
        unreadable = paths.CONTROLLER_EPOCH in self.cluster.quarantine
        return None if unreadable else self.snapshot.zookeeper.epoch

    def unclean_setting(self, topic: str) -> tuple[bool, str]:
        """Whether an unclean election is allowed, and a sentence on why."""
        config = self.snapshot.zookeeper.configs.get(topic)
        if isinstance(config, Malformed):
            return False, (
                "unclean election is off while the topic config cannot be understood "
                f"({config.path}: {config.reason})"
            )
        default = self.snapshot.default_config
        for source, where in ((config or {}, "topic config"), (default, "the brokers' default")):
            if (value := source.get(UNCLEAN_CONFIG)) is not None:
                allowed = value.strip().lower() == "true"
                return allowed, f"unclean election is {'on' if allowed else 'off'} by {where}"
        files = "the brokers' own files may say otherwise"
        return False, f"unclean election is off by Kafka's default ({files})"


def _duration(ms: int) -> str:
    seconds = max(ms, 0) // 1000
    for size, name in ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second")):
        if seconds >= size:
            return f"{counted(seconds // size, name)} ago"
    return "just now"


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def ids(brokers: Iterable[BrokerId]) -> str:
    return f"[{', '.join(map(str, brokers))}]"


def some(items: Sequence[TopicPartition | str], limit: int = LISTED_MAX) -> str:
    more = f" and {len(items) - limit} more" if len(items) > limit else ""
    return ", ".join(map(str, items[:limit])) + more
