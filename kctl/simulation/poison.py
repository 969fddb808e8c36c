"""Znodes that nobody can understand, one of each kind, put and later repaired (L10)."""

from kctl.model.names import TopicPartition
from kctl.simulation.administrators import Administrators
from kctl.simulation.surroundings import Surroundings
from kctl.zookeeper.multi import Create, Delete, SetData

GARBAGE = b"garbage"
BAD_TOPIC = b'{"version":1,"partitions":{"x":[1]}}'
BAD_STATE = b'{"version":1,"leader":"one","leader_epoch":0,"controller_epoch":1,"isr":[1]}'
NOTIFICATIONS = {
    "isr notification": "/isr_change_notification/isr_change_9999999999",
    "log dir notification": "/log_dir_event_notification/log_dir_event_9999999999",
}
LONE = {
    "broker": ("/brokers/ids/99", GARBAGE),
    "topic": ("/brokers/topics/bad", BAD_TOPIC),
    "reassignment": ("/admin/reassign_partitions", b"not json"),
    "election": ("/admin/preferred_replica_election", b"[1,2"),
}


def spread(world: Surroundings, admin: Administrators) -> None:
    """Put one malformed znode somewhere."""
    kinds = [*NOTIFICATIONS, *LONE, "state", "config", "known topic"]
    kind = world.chance.choice(kinds)
    if kind in NOTIFICATIONS:
        world.mishap("poison", kind)
        world.ensemble.try_commit(admin.session, Create(NOTIFICATIONS[kind], GARBAGE))
    elif kind in LONE:
        path, data = LONE[kind]
        if world.ensemble.try_commit(admin.session, Create(path, data)) is not None:
            world.mishap("poison", kind, path)
            world.poison[path] = None
    else:
        spoil(world, admin, kind)


def spoil(world: Surroundings, admin: Administrators, kind: str) -> None:
    """Overwrite something that was good."""
    tps = admin.some_partitions(1)
    if not tps:
        return
    tp: TopicPartition = tps[0]
    path, data = {
        "state": (f"/brokers/topics/{tp.topic}/partitions/{tp.partition}/state", BAD_STATE),
        "config": (f"/config/topics/{tp.topic}", GARBAGE),
        "known topic": (f"/brokers/topics/{tp.topic}", BAD_TOPIC),
    }[kind]
    good = world.ensemble.tree.data(path)
    if good is None or path in world.poison:
        return
    if world.ensemble.try_commit(admin.session, SetData(path, data)) is not None:
        world.mishap("poison", kind, path)
        world.poison[path] = good
        if kind == "state":
            world.edited[path] = None
            world.healed.pop(path, None)


def repair(world: Surroundings, admin: Administrators, path: str) -> None:
    """Back to what it was. What the controller has replaced or removed itself stays so."""
    good = world.poison.pop(path)
    now = world.ensemble.tree.data(path)
    if now in {GARBAGE, BAD_TOPIC, BAD_STATE, b"not json", b"[1,2"}:
        world.note("admin", f"repairs {path}", path)
        fix = Delete(path) if good is None else SetData(path, good)
        world.ensemble.try_commit(admin.session, fix)
