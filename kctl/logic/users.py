"""SCRAM credentials: the controller alone may change them, and brokers log users in by them.

They concern no partition. What they are is not looked at here: they are handed on.
"""

from collections.abc import Mapping

from kctl.messages.answers import OK, ApiError, UserErrors
from kctl.messages.effects import AlterUsers
from kctl.messages.events import AlterUserScramCredentials
from kctl.messages.outbox import Outbox
from kctl.model.cluster import ClusterState
from kctl.model.codes import Code, KafkaError, Malformed

ATTEMPTS_MAX = 5
CHANGED_MEANWHILE = (Code.BAD_VERSION, Code.NODE_EXISTS, Code.UNKNOWN)
"""Brokers write quotas into the same znodes. An unknown outcome may be written once more."""


async def on_alter_user_scram_credentials(
    _cluster: ClusterState, event: AlterUserScramCredentials, outbox: Outbox
) -> None:
    left = dict(event.users)
    outcomes: dict[str, Code | Malformed] = {}
    doubtful: dict[str, None] = {}
    for _ in range(ATTEMPTS_MAX):
        if not left:
            break
        replies = await AlterUsers(left)
        outcomes |= replies
        for user, reply in replies.items():
            if reply is Code.NO_NODE and user in doubtful:
                outcomes[user] = Code.OK  # it was we who removed it
            if reply is Code.UNKNOWN:
                doubtful[user] = None
        left = {user: left[user] for user in left if replies[user] in CHANGED_MEANWHILE}
    changed = [user for user in event.users if outcomes[user] is Code.OK]
    if changed:
        outbox.tell("credentials changed", f"{len(changed)} users by request")
    outbox.answer(event.caller, UserErrors({u: _error(outcomes, u) for u in event.users}))


def _error(outcomes: Mapping[str, Code | Malformed], user: str) -> ApiError:
    match outcomes[user]:
        case Code.OK:
            return OK
        case Code.NO_NODE:
            return ApiError(KafkaError.RESOURCE_NOT_FOUND, "there is no such credential")
        case Malformed(path=path, reason=reason):
            return ApiError(KafkaError.UNKNOWN_SERVER_ERROR, f"{path}: {reason}")
        case code:
            return ApiError(KafkaError.UNKNOWN_SERVER_ERROR, f"not written: {code.value}")
