"""Batches against a tree in memory: many rows in one multi end as if each had been sent alone.

Driven by hand, without an event loop: with one request at a time the store needs none.
"""

from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.messages.term import ControllerMoved
from kctl.model.codes import Code
from kctl.zookeeper import paths
from kctl.zookeeper.batches import Batches, Fence
from kctl.zookeeper.calls import code_for
from kctl.zookeeper.client import Client
from kctl.zookeeper.errors import ConnectionLoss, ErrorCode, MultiError, RequestTooLarge
from kctl.zookeeper.forecast import Discard, Ensure, Forecast, Put, Unit, unit_bytes
from kctl.zookeeper.multi import Check, Create, Delete, Operation, Read, SetData, multi
from kctl.zookeeper.wire import ANY_VERSION, Stat

T = TypeVar("T")
Tree = dict[str, tuple[int, bytes | None]]
"""By path: version and data."""

ROOTS: Tree = {"/": (0, b""), paths.CONTROLLER_EPOCH: (5, b"5"), "/a": (0, b""), "/b": (0, b"")}
PATHS = ("/a/x", "/a/y", "/a/x/1", "/a/x/2", "/b/x", "/c/x")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """To its end; it must not wait for anything."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return cast(T, stop.value)
    raise AssertionError("it waits for something")


def apply(tree: Tree, operation: Operation) -> ErrorCode:
    path = operation.path
    node = tree.get(path)
    if isinstance(operation, Create):
        if node is not None:
            return ErrorCode.NODE_EXISTS
        if (path.rpartition("/")[0] or "/") not in tree:
            return ErrorCode.NO_NODE
        tree[path] = (0, operation.data)
        return ErrorCode.OK
    if node is None:
        return ErrorCode.NO_NODE
    if operation.version not in {ANY_VERSION, node[0]}:
        return ErrorCode.BAD_VERSION
    if isinstance(operation, Delete):
        if any(other.startswith(path + "/") for other in tree):
            return ErrorCode.NOT_EMPTY
        del tree[path]
    elif isinstance(operation, SetData):
        tree[path] = (node[0] + 1, operation.data)
    return ErrorCode.OK


class TreeClient:
    """The two requests that batches make, on a tree; refuses as a server does."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.multis: list[Sequence[Operation]] = []
        self.forbidden: set[str] = set()
        self.too_large = 10_000
        self.lose: set[int] = set()

    async def multi(self, operations: Sequence[Operation]) -> list[None]:
        self.multis.append(operations)
        if len(operations) > self.too_large:
            raise RequestTooLarge
        scratch = dict(self.tree)
        for index, operation in enumerate(operations):
            code = apply(scratch, operation)
            if code is ErrorCode.OK and operation.path in self.forbidden:
                code = ErrorCode.NO_AUTH
            if code is not ErrorCode.OK:
                not_tried = [ErrorCode.RUNTIME_INCONSISTENCY] * (len(operations) - index - 1)
                raise MultiError([ErrorCode.OK] * index + [code] + not_tried)
        self.tree = scratch
        if len(self.multis) in self.lose:
            raise ConnectionLoss
        return []

    async def read_many(self, wanted: Sequence[str]) -> list[Read]:
        found: list[Read] = []
        for path in wanted:
            node = self.tree.get(path)
            prefix = path.rstrip("/") + "/"
            children = sum(
                other.startswith(prefix) and "/" not in other[len(prefix) :] and other != path
                for other in self.tree
            )
            stat = Stat(1, 1, 0, 0, 0 if node is None else node[0], 0, 0, 0, 0, children, 1)
            found.append(ErrorCode.NO_NODE if node is None else (node[1] or b"", stat))
        return found


def batches(client: TreeClient) -> Batches[int]:
    fence = Fence()
    fence.version = 5
    return Batches(cast(Client, client), fence, in_flight_max=1)


def one_by_one(tree: Tree, units: Sequence[Unit]) -> dict[int, Code]:
    """What the batch must come to: each unit all or nothing, in order."""
    codes = {}
    for number, unit in enumerate(units):
        scratch = dict(tree)
        code = ErrorCode.OK
        for step in unit:
            match step:
                case Ensure(create=create):
                    operation: Operation | None = None if create.path in scratch else create
                case Put(create=create) if create.path in scratch:
                    operation = SetData(create.path, create.data)
                case Put(create=create):
                    operation = create
                case Discard(path=path):
                    operation = Delete(path) if path in scratch else None
                case _:
                    operation = step
            code = ErrorCode.OK if operation is None else apply(scratch, operation)
            if code is not ErrorCode.OK:
                break
        codes[number] = code_for(code)
        if code is ErrorCode.OK:
            tree.clear()
            tree.update(scratch)
    return codes


versions = st.sampled_from([ANY_VERSION, 0, 1])
any_path = st.sampled_from(PATHS)
creates = st.builds(Create, any_path, st.sampled_from([b"", b"new"]))
flexible_steps = st.builds(Ensure, creates) | st.builds(Put, creates) | st.builds(Discard, any_path)
with_parent = st.builds(
    lambda child, expected: (
        Ensure(Create("/a/x"), expected),
        Create(f"/a/x/{child}", b"new"),
    ),
    st.sampled_from("123"),
    st.booleans(),
)
rigid_steps = (
    creates
    | st.builds(SetData, any_path, st.just(b"set"), versions)
    | st.builds(Delete, any_path, versions)
    | st.builds(Check, any_path, st.sampled_from([0, 1]))
)
units_of_one_write = st.lists(
    st.lists(rigid_steps, min_size=1, max_size=3).map(tuple), min_size=1, max_size=6
) | st.lists(
    st.tuples(flexible_steps, rigid_steps | flexible_steps)
    | st.tuples(flexible_steps)
    | with_parent,
    min_size=1,
    max_size=6,
)


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    tree = dict(ROOTS)
    for path in PATHS:
        if path.rpartition("/")[0] in tree and draw(st.booleans()):
            tree[path] = (draw(st.integers(0, 1)), b"old")
    return tree


@given(trees(), units_of_one_write)
def test_a_batch_ends_as_if_each_row_had_been_sent_alone(tree: Tree, units: list[Unit]) -> None:
    client = TreeClient(dict(tree))
    codes = run(batches(client).write(enumerate(units)))
    expected = dict(tree)
    assert codes == one_by_one(expected, units)
    assert client.tree == expected
    assert list(codes) == list(range(len(units)))


@given(trees(), units_of_one_write, st.integers(2, 4))
def test_also_if_the_multi_was_too_large_after_all(
    tree: Tree, units: list[Unit], too_large: int
) -> None:
    client = TreeClient(dict(tree))
    client.too_large = too_large
    codes = run(batches(client).write(enumerate(units)))
    if Code.TOO_LARGE not in codes.values():
        expected = dict(tree)
        assert codes == one_by_one(expected, units)
        assert client.tree == expected


def test_a_row_without_rights_fails_alone() -> None:
    tree = ROOTS | {f"/a/{n}": (0, b"") for n in range(50)}
    client = TreeClient(tree)
    client.forbidden = {"/a/7", "/a/8"}
    codes = run(batches(client).write((n, (SetData(f"/a/{n}", b"new", 0),)) for n in range(50)))
    assert {n for n, code in codes.items() if code is Code.NO_AUTH} == {7, 8}
    assert {n for n, code in codes.items() if code is Code.OK} == set(range(50)) - {7, 8}


@pytest.mark.parametrize(
    "unit,code",
    [
        ((Delete("/a/x"),), Code.NOT_EMPTY),
        ((Discard("/a/x/1"), Discard("/a/x")), Code.NOT_EMPTY),
        ((SetData("/a/x", b"", 7),), Code.BAD_VERSION),
        ((Delete("/a/x/2", 7),), Code.BAD_VERSION),
        ((SetData("/a/none", b""),), Code.NO_NODE),
        ((Create("/none/x"),), Code.NO_NODE),
        ((Create("/a/x"),), Code.NODE_EXISTS),
    ],
)
def test_what_must_fail_is_known_after_one_refusal(unit: Unit, code: Code) -> None:
    made = dict.fromkeys(("/a/x", "/a/x/1", "/a/x/2", "/b/1"), (0, b""))
    client = TreeClient(ROOTS | made)
    rows: list[tuple[int, Unit]] = [(0, unit), (1, (Discard("/b/1"),)), (2, unit)]
    assert run(batches(client).write(rows)) == {0: code, 1: Code.OK, 2: code}
    assert len(client.multis) == 2


def test_only_the_rows_of_a_lost_multi_are_unknown() -> None:
    tree = ROOTS | {f"/a/{n}": (0, b"") for n in range(500)}
    client = TreeClient(tree)
    client.lose = {2}
    codes = run(batches(client).write((n, (SetData(f"/a/{n}", b"new", 0),)) for n in range(500)))
    unknown = [n for n, code in codes.items() if code is Code.UNKNOWN]
    assert unknown == list(range(200, 400))
    assert len(client.multis) == 3


def test_a_fenced_write_changes_nothing() -> None:
    client = TreeClient(dict(ROOTS))
    client.tree[paths.CONTROLLER_EPOCH] = (6, b"6")
    before = dict(client.tree)
    with pytest.raises(ControllerMoved):
        run(batches(client).write((n, (Create(f"/a/{n}"),)) for n in range(500)))
    assert client.tree == before
    assert len(client.multis) == 1, "nothing more is sent"


def test_batches_stay_within_bounds() -> None:
    client = TreeClient(dict(ROOTS))
    rows = [(n, (Create(f"/a/{n}", b"x" * 40_000),)) for n in range(60)]
    assert set(run(batches(client).write(rows)).values()) == {Code.OK}
    assert len(client.multis) > 1
    assert max(len(multi(operations).body) for operations in client.multis) < 600_000


@given(st.lists(rigid_steps | flexible_steps, min_size=1, max_size=4).map(tuple))
def test_a_unit_is_never_larger_than_predicted(unit: Unit) -> None:
    planned = Forecast({}).plan(unit)
    operations = [] if isinstance(planned, Code) else planned
    empty = len(multi([]).body)
    assert len(multi(operations).body) - empty <= unit_bytes(unit)
