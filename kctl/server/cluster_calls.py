"""UpdateFeatures and AlterUserScramCredentials."""

from collections.abc import Mapping

from kctl.messages.answers import FeatureErrors, Refused
from kctl.messages.events import FeatureUpdate, UpdateFeatures
from kctl.model.codes import KafkaError
from kctl.server.access import ControllerAccess, ScramChange, ScramOutcome
from kctl.server.codes import CredentialError
from kctl.wire.admin import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
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
ITERATIONS_MIN = 4_096
ITERATIONS_MAX = 16_384


async def alter_user_scram_credentials(
    access: ControllerAccess, request: AlterUserScramCredentialsRequest, _version: int
) -> AlterUserScramCredentialsResponse:
    """One outcome a user; a user with a fault anywhere is left alone."""
    users = dict.fromkeys(
        [*(u.name for u in request.deletions), *(u.name for u in request.upsertions)]
    )
    if access.view() is None:
        return _scram_results(dict.fromkeys(users, ScramOutcome(KafkaError.NOT_CONTROLLER)))
    if access.alter_scram is None:
        error = ScramOutcome(KafkaError.UNSUPPORTED_VERSION, "this controller does not store users")
        return _scram_results(dict.fromkeys(users, error))
    wrong = _scram_faults(request)
    changes = [
        ScramChange(d.name, MECHANISMS[d.mechanism])
        for d in request.deletions
        if d.name not in wrong
    ] + [
        ScramChange(u.name, MECHANISMS[u.mechanism], u.iterations, u.salt, u.salted_password)
        for u in request.upsertions
        if u.name not in wrong
    ]
    done = await access.alter_scram(changes) if changes else {}
    return _scram_results({user: wrong.get(user) or done[user] for user in users})


def _scram_faults(request: AlterUserScramCredentialsRequest) -> dict[str, ScramOutcome]:
    wrong: dict[str, ScramOutcome] = {}
    seen: dict[tuple[str, int], None] = {}

    def unacceptable(user: str, why: str) -> None:
        wrong.setdefault(user, ScramOutcome(CredentialError.UNACCEPTABLE_CREDENTIAL, why))

    named = [(d.name, d.mechanism) for d in request.deletions]
    named += [(u.name, u.mechanism) for u in request.upsertions]
    for user, mechanism in named:
        if not user:
            unacceptable(user, "a user must have a name")
        if mechanism not in MECHANISMS:
            error = ScramOutcome(
                CredentialError.UNSUPPORTED_SASL_MECHANISM, "unknown SCRAM mechanism"
            )
            wrong.setdefault(user, error)
        if (user, mechanism) in seen:
            error = ScramOutcome(CredentialError.DUPLICATE_RESOURCE, "changed twice in one request")
            wrong.setdefault(user, error)
        seen[user, mechanism] = None
    for upsertion in request.upsertions:
        if not ITERATIONS_MIN <= upsertion.iterations <= ITERATIONS_MAX:
            unacceptable(upsertion.name, f"iterations: {ITERATIONS_MIN} to {ITERATIONS_MAX}")
        if not upsertion.salt or not upsertion.salted_password:
            unacceptable(upsertion.name, "salt and salted password must not be empty")
    return wrong


def _scram_results(errors: Mapping[str, ScramOutcome]) -> AlterUserScramCredentialsResponse:
    return AlterUserScramCredentialsResponse(
        results=tuple(
            AlterUserScramCredentialsResult(user, error.code, error.message)
            for user, error in errors.items()
        )
    )
