"""A journal as history: states, differences, stories, and files that are no journal."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from kctl.cli import app
from kctl.insight.history import differences, state_at, story_of
from kctl.insight.replay import Replay, ReplayError, read_journal
from kctl.logic.dispatch import handle
from kctl.messages import effects as ef
from kctl.messages import events as ev
from kctl.messages.driver import Finished, step
from kctl.messages.outbox import Outbox
from kctl.model.cluster import Node
from kctl.model.digest import digest
from kctl.model.names import TopicPartition
from kctl.model.settings import Settings
from kctl.runtime.journal import Journal
from tests.insight.random_clusters import RandomCluster

VICTIM = 2


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Startup, broker 2 goes, broker 2 comes, a topic is deleted: recorded as it is recorded live."""
    cluster = RandomCluster(3)
    zookeeper = cluster.controller.zookeeper
    zookeeper.controller = None
    node = Node(Settings(1000, auto_leader_rebalance=False))
    path = tmp_path / "journal"
    record = Journal(node, str(path))

    def run(event: ev.Event) -> None:
        outbox = Outbox()
        record.event((event,))
        procedure = handle(node, (event,), outbox)
        wanted = step(procedure)
        while not isinstance(wanted, Finished):
            reply = None if isinstance(wanted, ef.Flush) else zookeeper.perform(wanted)
            record.reply(wanted, reply)
            for left in (outbox.dispatches, outbox.stories, outbox.answers, outbox.timers):
                left.clear()
            wanted = step(procedure, reply)

    for broker in cluster.dead:
        zookeeper.brokers[broker] = cluster.registration(broker)
    run(ev.Startup())
    gone = zookeeper.brokers.pop(VICTIM)
    run(ev.BrokerChange())
    zookeeper.brokers[VICTIM] = cluster.registration(VICTIM)
    run(ev.BrokerChange())
    zookeeper.deletions["t0"] = None
    run(ev.TopicDeletion())
    record.close()
    assert gone is not None
    (tmp_path / "hash").write_text(digest(node.cluster))
    return path


def kctl(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["replay", *arguments])


def led_by(journal: Path, point: int, broker: int) -> list[TopicPartition]:
    node = state_at(read_journal(journal), point).node
    assert node is not None
    assert node.cluster is not None
    return [tp for tp, row in node.cluster.rows.items() if row.leader == broker]


def test_it_ends_in_the_same_hash(journal: Path) -> None:
    found = json.loads(kctl(str(journal), "--json").output)
    assert found["state_hash"] == (journal.parent / "hash").read_text()
    assert found["events"] == 4


def test_the_state_at_any_point(journal: Path) -> None:
    assert led_by(journal, 1, VICTIM)
    assert led_by(journal, 2, VICTIM) == []
    found = json.loads(kctl(str(journal), "--at", "2", "--json").output)
    assert found["events"] == 2
    assert len(found["state"]) == found["partitions"]
    told = kctl(str(journal), "--at", "1")
    (first, *_) = led_by(journal, 1, VICTIM)
    assert f"  {first}: leader {VICTIM}, ISR" in told.output
    beyond = kctl(str(journal), "--at", "9")
    assert (beyond.exit_code, "only 4 events, not 9" in beyond.stderr) == (1, True)


def test_what_lies_between_two_points(journal: Path) -> None:
    lines = kctl(str(journal), "--diff", "1", "2").output.splitlines()
    assert lines[0] == f"broker {VICTIM} went"
    for tp in led_by(journal, 1, VICTIM):
        assert any(line.startswith(f"{tp}: leader {VICTIM}, ") for line in lines)
    back = json.loads(kctl(str(journal), "--diff", "2", "3", "--json").output)
    assert back["differences"][0] == f"broker {VICTIM} came"
    marked = kctl(str(journal), "--diff", "3", "4").output
    assert "topic t0 is marked for deletion" in marked
    same = kctl(str(journal), "--diff", "2", "2").output
    assert same.startswith("nothing changed")
    assert list(differences(None, None)) == []


def test_the_story_of_one_partition(journal: Path) -> None:
    (tp, *_) = led_by(journal, 1, VICTIM)
    chapters = list(story_of(read_journal(journal), str(tp)))
    assert [c.event for c in chapters] == sorted(c.event for c in chapters)
    lost = next(c for c in chapters if c.event == 2)
    assert lost.name == "BrokerChange"
    assert f"leader {VICTIM}" in lost.change
    assert f"broker {VICTIM} is gone" in lost.why
    told = kctl(str(journal), "--story", str(tp))
    assert len(told.output.splitlines()) == len(chapters)
    assert "#2 BrokerChange: " in told.output
    assert list(story_of(read_journal(journal), str(VICTIM)))
    nothing = kctl(str(journal), "--story", "nobody-7")
    assert (nothing.exit_code, "nothing in this journal" in nothing.stderr) == (1, True)


def test_one_question_at_a_time(journal: Path) -> None:
    asked = kctl(str(journal), "--at", "1", "--story", "t0-0")
    assert (asked.exit_code, "ask one" in asked.stderr) == (2, True)


@pytest.mark.parametrize(
    "content, message",
    [
        (b"", "is empty"),
        (b"hello\n", "is not a journal of kctl"),
        (b"\x00\x01\x02", "is not a journal of kctl"),
        (b'{"some": "json"}\n', "is not a journal of kctl"),
        (b'{"kind":"settings","at":1,"format":"9","value":null}\n', "another version of kctl"),
        (b'{"kind":"settings","at":1,"value":{"c":"Unheard","f":[]}}\n', "does not know"),
        (b'{"kind":"settings","at":1,"value":null}\nrubbish\n', ":2: not a record"),
    ],
)
def test_files_that_are_no_journal(content: bytes, message: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    with pytest.raises(ReplayError, match=message):
        Replay().run(read_journal(file))
    asked = kctl(str(file))
    assert asked.exit_code == 1
    assert len(asked.stderr.strip().splitlines()) == 1
    assert message in asked.stderr


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    asked = kctl(str(tmp_path / "journal"))
    assert asked.exit_code == 5
    assert "there is no journal" in asked.stderr


def test_one_that_was_cut_off_is_replayed_as_far_as_it_goes(journal: Path) -> None:
    file = journal.with_name("journal.000001")
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) - 7])
    found = json.loads(kctl(str(journal), "--json").output)
    assert found["events"] == 4
    assert found["unfinished_event"] == "TopicDeletion"
