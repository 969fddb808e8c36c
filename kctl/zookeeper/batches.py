"""Fenced writes in batches: many rows in one multi, yet to the caller each row stands alone.

A multi is all or nothing and names only its first failure. So after a refusal the whole batch is read
back, every row that must fail gets its code at once, and the rest is sent again. A row whose request
was lost with the connection is UNKNOWN and never sent again from here.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final, Generic, TypeVar, cast

from kctl.messages.term import ControllerMoved, SessionLost
from kctl.model.codes import Code
from kctl.zookeeper import paths
from kctl.zookeeper.calls import code_for, read_many
from kctl.zookeeper.client import Client
from kctl.zookeeper.errors import (
    ErrorCode,
    MultiError,
    RequestTooLarge,
    SessionExpired,
    ZooKeeperError,
)
from kctl.zookeeper.forecast import Ensure, Forecast, Guess, Unit, is_rigid, paths_of, unit_bytes
from kctl.zookeeper.multi import Check, Operation
from kctl.zookeeper.parallel import in_parallel

K = TypeVar("K")

UNITS_MAX: Final = 200
BATCH_MAX_BYTES: Final = 512 << 10
"""Half of what a server takes by default (jute.maxbuffer), for the chroot and for ACLs."""
UNIT_MAX_BYTES: Final = 1_000_000
"""A row beyond this fits in no request."""
IN_FLIGHT_MAX: Final = 8
ROUNDS_MAX: Final = 4
"""Sending a batch again settles nearly all that can happen; what is left goes one by one."""

_READABLE: Final = (
    ErrorCode.NO_NODE,
    ErrorCode.NODE_EXISTS,
    ErrorCode.BAD_VERSION,
    ErrorCode.NOT_EMPTY,
)
"""Refusals that reading the znodes explains."""


class Fence:
    """The version of `/controller_epoch` that our term's writes stand on."""

    def __init__(self) -> None:
        self.version: int | None = None

    def check(self) -> Check:
        if self.version is None:
            raise ControllerMoved("this session holds no controllership")
        return Check(paths.CONTROLLER_EPOCH, self.version)


class Batches(Generic[K]):
    """One write: rows as units, under the fence. `codes` fills up with what became of each."""

    def __init__(self, client: Client, fence: Fence, in_flight_max: int = IN_FLIGHT_MAX) -> None:
        self._client = client
        self._fence = fence.check()
        self._in_flight_max = in_flight_max
        self._ensured: dict[str, None] = {}
        self.codes: dict[K, Code] = {}

    async def write(self, units: Iterable[tuple[K, Unit]]) -> dict[K, Code]:
        """Units are taken as they are needed, so that a long write is prepared piece by piece."""
        batches = self._batches(units)
        await in_parallel((self._settle(batch) for batch in batches), self._in_flight_max)
        return self.codes

    def _batches(self, units: Iterable[tuple[K, Unit]]) -> Iterator[Sequence[tuple[K, Unit]]]:
        batch: list[tuple[K, Unit]] = []
        batch_bytes = 0
        for key, unit in units:
            size = unit_bytes(unit)
            if size > UNIT_MAX_BYTES:
                self.codes[key] = Code.TOO_LARGE
                continue
            # Codes are in the order of the rows, whichever multi is answered first.
            self.codes[key] = Code.UNKNOWN
            if batch and (len(batch) == UNITS_MAX or batch_bytes + size > BATCH_MAX_BYTES):
                yield batch
                batch, batch_bytes = [], 0
            batch.append((key, unit))
            batch_bytes += size
        if batch:
            yield batch

    async def _settle(self, batch: Sequence[tuple[K, Unit]], again: bool = False) -> None:
        outlook: Guess | Forecast = Guess() if again else self._guess(batch)
        for _ in range(ROUNDS_MAX):
            batch, operations = self._plan(batch, outlook)
            if not batch:
                return
            try:
                await self._client.multi(operations)
            except MultiError as refusal:
                if refusal.index == 0:
                    raise ControllerMoved(
                        f"{paths.CONTROLLER_EPOCH}: {refusal.code.name}"
                    ) from None
                if len(batch) == 1 and is_rigid(batch[0][1]):
                    self._all(batch, code_for(refusal.code))
                    return
                last = refusal.code
                if last not in _READABLE:
                    break
            except RequestTooLarge:
                last = ErrorCode.QUOTA_EXCEEDED
                break
            except SessionExpired:
                raise SessionLost("the session expired") from None
            except ZooKeeperError:
                self._all(batch, Code.UNKNOWN)
                return
            else:
                self._all(batch, Code.OK)
                return
            outlook = await self._read(batch)
        if len(batch) == 1:
            self._all(batch, code_for(last))
        else:
            alone = (self._settle((row,), again=True) for row in batch)
            await in_parallel(alone, self._in_flight_max)

    def _guess(self, batch: Sequence[tuple[K, Unit]]) -> Guess:
        """What an earlier batch makes is there: multis of one connection stay in order."""
        if is_rigid(batch[0][1]):  # and so are they all: the units of one write are alike
            return Guess()
        ensured = {
            step.path: None for _, unit in batch for step in unit if isinstance(step, Ensure)
        }
        guess = Guess(path for path in ensured if path in self._ensured)
        self._ensured.update(ensured)
        return guess

    def _plan(
        self, batch: Sequence[tuple[K, Unit]], outlook: Guess | Forecast
    ) -> tuple[list[tuple[K, Unit]], list[Operation]]:
        """Those that can succeed, and their operations; the others get their codes."""
        if isinstance(outlook, Guess) and is_rigid(batch[0][1]):
            # So are they all, and there is nothing to guess.
            fixed = chain.from_iterable(unit for _, unit in batch)
            return list(batch), [self._fence, *cast("Iterator[Operation]", fixed)]
        kept: list[tuple[K, Unit]] = []
        operations: list[Operation] = [self._fence]
        for row in batch:
            planned = outlook.plan(row[1])
            if isinstance(planned, Code):
                self.codes[row[0]] = planned
            else:
                kept.append(row)
                operations += planned
        return kept, operations

    async def _read(self, batch: Sequence[tuple[K, Unit]]) -> Forecast:
        wanted = list(dict.fromkeys(path for _, unit in batch for path in paths_of(unit)))
        reads = await read_many(self._client, wanted)
        return Forecast(dict(zip(wanted, reads, strict=True)))

    def _all(self, batch: Sequence[tuple[K, Unit]], code: Code) -> None:
        for key, _ in batch:
            self.codes[key] = code
