"""What ZooKeeper and the session answer instead of a result.

The exception classes are aiozk's, so that code written for either client reads the same; the codes
are ours, because a code in place of a row (multi, multiRead) is data, not an exception.
"""

import enum
from collections.abc import Sequence
from typing import Final

from aiozk import exc


class ErrorCode(enum.IntEnum):
    """ZooKeeper's error codes, as they stand in a reply."""

    OK = 0
    SYSTEM_ERROR = -1
    RUNTIME_INCONSISTENCY = -2
    DATA_INCONSISTENCY = -3
    CONNECTION_LOSS = -4
    MARSHALLING_ERROR = -5
    UNIMPLEMENTED = -6
    OPERATION_TIMEOUT = -7
    BAD_ARGUMENTS = -8
    NEW_CONFIG_NO_QUORUM = -13
    RECONFIG_IN_PROGRESS = -14
    API_ERROR = -100
    NO_NODE = -101
    NO_AUTH = -102
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    SESSION_EXPIRED = -112
    INVALID_CALLBACK = -113
    INVALID_ACL = -114
    AUTH_FAILED = -115
    SESSION_MOVED = -118
    NOT_READONLY = -119
    EPHEMERAL_ON_LOCAL_SESSION = -120
    NO_WATCHER = -121
    REQUEST_TIMEOUT = -122
    RECONFIG_DISABLED = -123
    SESSION_CLOSED_REQUIRE_SASL_AUTH = -124
    QUOTA_EXCEEDED = -125
    THROTTLED_OP = -127


_KNOWN: Final = {int(code): code for code in ErrorCode}


def code_of(err: int) -> ErrorCode:
    """The code by its number; one that a newer server invented reads as SYSTEM_ERROR."""
    return _KNOWN.get(err, ErrorCode.SYSTEM_ERROR)


def error_of(err: int) -> Exception:
    """The exception for a reply's error number."""
    known = exc.response_error_xref.get(err)
    error: Exception = known() if known is not None else UnknownCode(err)
    return error


class UnknownCode(exc.ZKError):  # type: ignore[misc]  # aiozk ships no types
    """The server answered with a number that this client does not know."""

    def __init__(self, err: int) -> None:
        super().__init__(f"ZooKeeper error {err}")
        self.error_code = err


class ProtocolError(exc.ZKError):  # type: ignore[misc]
    """The peer does not speak ZooKeeper's protocol as it must; the connection is dropped."""


class RequestTooLarge(exc.ZKError):  # type: ignore[misc]
    """The server would drop the connection over a request of this size (jute.maxbuffer)."""


class ReplyTooLarge(exc.ZKError):  # type: ignore[misc]
    """A reply was skipped because it would not fit into memory; the connection goes on."""


class MultiError(exc.TransactionFailed):  # type: ignore[misc]
    """A multi was refused as a whole.

    ``codes`` has one entry for each operation. The first failure has its cause; operations before it
    are OK (rolled back), those after it RUNTIME_INCONSISTENCY (not tried).
    """

    def __init__(self, codes: Sequence[ErrorCode]) -> None:
        self.codes = tuple(codes)
        self.index = next(i for i, code in enumerate(self.codes) if code is not ErrorCode.OK)
        self.code = self.codes[self.index]
        super().__init__(f"operation {self.index} of {len(self.codes)}: {self.code.name}")


AuthFailed = exc.AuthFailed
BadVersion = exc.BadVersion
ConnectionLoss = exc.ConnectionLoss
NoAuth = exc.NoAuth
NoNode = exc.NoNode
NodeExists = exc.NodeExists
NoServers = exc.NoServersError
NotEmpty = exc.NotEmpty
SessionExpired = exc.SessionExpired
Unimplemented = exc.Unimplemented
ZooKeeperError = exc.ZKError
