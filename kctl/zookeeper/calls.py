"""Calls to the client as the store makes them: what ends the term is raised as such, and what is only
read is read again after the connection broke."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from kctl.messages.term import SessionLost
from kctl.model.codes import Code
from kctl.zookeeper.client import Reader
from kctl.zookeeper.errors import (
    ConnectionLoss,
    ErrorCode,
    RequestTooLarge,
    SessionExpired,
    ZooKeeperError,
    code_of,
)
from kctl.zookeeper.multi import Read

T = TypeVar("T")

READ_ATTEMPTS_MAX: Final = 10
"""The client waits for its next connection, so each attempt is a connection that broke. A client
that can no longer trust its session fails at once, and ends the term this way."""

CODES: Final = {
    ErrorCode.OK: Code.OK,
    ErrorCode.NO_NODE: Code.NO_NODE,
    ErrorCode.NODE_EXISTS: Code.NODE_EXISTS,
    ErrorCode.BAD_VERSION: Code.BAD_VERSION,
    ErrorCode.NOT_EMPTY: Code.NOT_EMPTY,
    ErrorCode.NO_AUTH: Code.NO_AUTH,
    ErrorCode.BAD_ARGUMENTS: Code.NO_NODE,
    ErrorCode.QUOTA_EXCEEDED: Code.TOO_LARGE,
    ErrorCode.CONNECTION_LOSS: Code.UNKNOWN,
    ErrorCode.OPERATION_TIMEOUT: Code.UNKNOWN,
    ErrorCode.REQUEST_TIMEOUT: Code.UNKNOWN,
    ErrorCode.SESSION_MOVED: Code.UNKNOWN,
    ErrorCode.SYSTEM_ERROR: Code.UNKNOWN,
    ErrorCode.THROTTLED_OP: Code.UNKNOWN,
}


def code_for(error: ErrorCode) -> Code:
    """The row's code. What is left over is the server refusing to let us write that znode."""
    return CODES.get(error, Code.NO_AUTH)


async def reading(call: Callable[[], Awaitable[T]]) -> T:
    """The result, over as many connections as it takes."""
    for _ in range(READ_ATTEMPTS_MAX):
        try:
            return await call()
        except ConnectionLoss:
            continue
        except SessionExpired:
            raise SessionLost("the session expired") from None
    raise SessionLost(f"reading was cut off {READ_ATTEMPTS_MAX} times")


async def read_many(client: Reader, paths: Sequence[str]) -> list[Read]:
    """Each path, or its code."""
    return await reading(lambda: client.read_many(paths))


async def outcome(call: Callable[[], Awaitable[object]]) -> Code:
    """What became of a single write. It is made once: a lost one is UNKNOWN."""
    try:
        _ = await call()
    except SessionExpired:
        raise SessionLost("the session expired") from None
    except RequestTooLarge:
        return Code.TOO_LARGE
    except ZooKeeperError as error:
        return code_for(code_of(getattr(error, "error_code", ErrorCode.SYSTEM_ERROR)))
    return Code.OK
