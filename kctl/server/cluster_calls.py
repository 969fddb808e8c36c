"""UpdateFeatures and AlterUserScramCredentials."""

import base64
import hashlib
import hmac
from collections.abc import Mapping

from kctl.messages.answers import OK, ApiError, FeatureErrors, Refused, UserErrors
from kctl.messages.events import AlterUserScramCredentials, FeatureUpdate, UpdateFeatures
from kctl.model.codes import KafkaError
from kctl.model.secrets import Secret
from kctl.server.access import ControllerAccess
from kctl.wire.admin import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialUpsertion,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

UPGRADE, SAFE_DOWNGRADE = 1, 2


async def update_features(
    access: ControllerAccess, request: UpdateFeaturesRequest, version: int
) -> UpdateFeaturesResponse:
    updates = tuple(
        FeatureUpdate(
            key.feature,
            key.max_version_level,
            key.upgrade_type
            if version > 0
            else (SAFE_DOWNGRADE if key.allow_downgrade else UPGRADE),
        )
        for key in request.feature_updates
    )
    answer = await access.answer_to(
        lambda caller: UpdateFeatures(caller, updates), request.timeout_ms
    )
    match answer:
        case FeatureErrors(errors=errors):
            return UpdateFeaturesResponse(
                results=tuple(
                    UpdatableFeatureResult(feature, error.code, error.message)
                    for feature, error in errors.items()
                )
            )
        case Refused(error=error):
            return UpdateFeaturesResponse(error_code=error.code, error_message=error.message)
    raise TypeError(f"UpdateFeatures was answered with {answer!r}")


# -- AlterUserScramCredentials ---------------------------------------------------------------

MECHANISMS: Mapping[int, str] = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
HASHES: Mapping[str, str] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ITERATIONS_MIN = 4_096
ITERATIONS_MAX = 16_384


async def alter_user_scram_credentials(
    access: ControllerAccess, request: AlterUserScramCredentialsRequest, _version: int
) -> AlterUserScramCredentialsResponse:
    """One outcome a user; a user with a fault anywhere is left alone."""
    outcomes = dict.fromkeys(
        [*(u.name for u in request.deletions), *(u.name for u in request.upsertions)], OK
    )
    wrong = _scram_faults(request)
    changes: dict[str, dict[str, Secret | None]] = {}
    for deletion in request.deletions:
        if deletion.name not in wrong:
            changes.setdefault(deletion.name, {})[MECHANISMS[deletion.mechanism]] = None
    for upsertion in request.upsertions:
        if upsertion.name not in wrong:
            mechanism = MECHANISMS[upsertion.mechanism]
            changes.setdefault(upsertion.name, {})[mechanism] = _credential(mechanism, upsertion)
    if changes:
        answer = await access.answer_to(lambda caller: AlterUserScramCredentials(caller, changes))
        match answer:
            case UserErrors(errors=errors):
                outcomes |= errors
            case Refused(error=error):
                outcomes |= dict.fromkeys(changes, error)
            case _:
                raise TypeError(f"AlterUserScramCredentials was answered with {answer!r}")
    elif access.view() is None:
        wrong = dict.fromkeys(outcomes, ApiError(KafkaError.NOT_CONTROLLER))
    return AlterUserScramCredentialsResponse(
        results=tuple(
            AlterUserScramCredentialsResult(user, error.code, error.message)
            for user, error in {**outcomes, **wrong}.items()
        )
    )


def _credential(mechanism: str, upsertion: ScramCredentialUpsertion) -> Secret:
    """As brokers read it: keys by which a password can be checked and not be found (RFC 5802)."""
    name = HASHES[mechanism]
    client_key = hmac.digest(upsertion.salted_password, b"Client Key", name)
    stored_key = hashlib.new(name, client_key).digest()
    server_key = hmac.digest(upsertion.salted_password, b"Server Key", name)
    salt, stored, server = (
        base64.b64encode(part).decode() for part in (upsertion.salt, stored_key, server_key)
    )
    return Secret(
        f"salt={salt},stored_key={stored},server_key={server},iterations={upsertion.iterations}"
    )


def _scram_faults(request: AlterUserScramCredentialsRequest) -> dict[str, ApiError]:
    wrong: dict[str, ApiError] = {}
    seen: dict[tuple[str, int], None] = {}

    def fault(user: str, code: KafkaError, why: str) -> None:
        wrong.setdefault(user, ApiError(code, why))

    named = [(d.name, d.mechanism) for d in request.deletions]
    named += [(u.name, u.mechanism) for u in request.upsertions]
    for user, mechanism in named:
        if not user:
            fault(user, KafkaError.UNACCEPTABLE_CREDENTIAL, "a user must have a name")
        if mechanism not in MECHANISMS:
            fault(user, KafkaError.UNSUPPORTED_SASL_MECHANISM, "unknown SCRAM mechanism")
        if (user, mechanism) in seen:
            fault(user, KafkaError.DUPLICATE_RESOURCE, "changed twice in one request")
        seen[user, mechanism] = None
    for upsertion in request.upsertions:
        unacceptable = KafkaError.UNACCEPTABLE_CREDENTIAL
        if not ITERATIONS_MIN <= upsertion.iterations <= ITERATIONS_MAX:
            fault(upsertion.name, unacceptable, f"iterations: {ITERATIONS_MIN} to {ITERATIONS_MAX}")
        if not upsertion.salt or not upsertion.salted_password:
            fault(upsertion.name, unacceptable, "salt and salted password must not be empty")
    return wrong
