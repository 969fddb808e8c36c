"""SASL towards those who connect: PLAIN and SCRAM, before anything else is answered.

Who somebody is does not change what is allowed: there are no ACLs here. It keeps out strangers.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Awaitable, Callable, Mapping

import attrs
import structlog

from kctl.model.codes import KafkaError
from kctl.server.codes import CredentialError
from kctl.server.frames import Unacceptable, read_request
from kctl.wire.apis import (
    API_VERSIONS,
    RequestHeader,
    decode_request_header,
    encode_response,
)
from kctl.wire.client import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from kctl.wire.primitives import WireError

log = structlog.get_logger("kctl.server")

SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
SASL_HANDSHAKE_VERSIONS = (1, 1)
"""In version 0 tokens follow without a header; no client of the supported releases does that."""

HASHES: Mapping[str, str] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


@attrs.frozen(repr=False)
class ScramCredential:
    """As a user's znode holds it."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


@attrs.frozen(repr=False)
class Credentials:
    plain: Mapping[str, str] | None = None
    """Passwords by user; use it together with TLS only."""
    scram: Callable[[str, str], Awaitable[ScramCredential | None]] | None = None
    """The credential of a user for a mechanism."""
    scram_mechanisms: tuple[str, ...] = ("SCRAM-SHA-256", "SCRAM-SHA-512")

    @property
    def mechanisms(self) -> tuple[str, ...]:
        return (
            *(("PLAIN",) if self.plain is not None else ()),
            *(self.scram_mechanisms if self.scram is not None else ()),
        )


class Failed(Exception):
    """The credentials are wrong; which part of them is not told."""


ApiVersions = Callable[[bytes], Awaitable[bytes]]
"""Answers this one request for everybody: takes a frame and gives one."""


class Authentication:
    """The state of one connection that has not said yet who it is."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._exchange: Plain | Scram | None = None
        self.done = False
        self.failed = False
        """The answer that says so is the last one."""

    async def answer(self, frame: bytes, api_versions: ApiVersions) -> bytes:
        try:
            header, body = decode_request_header(frame)
            key = header.api_key
            if key == API_VERSIONS:
                return await api_versions(frame)
            if key == SASL_HANDSHAKE and header.api_version in SASL_HANDSHAKE_VERSIONS:
                return self._handshake(header, frame, body)
            if key == SASL_AUTHENTICATE and self._exchange is not None:
                return await self._authenticate(header, frame, body)
        except WireError as problem:
            raise Unacceptable(str(problem)) from None
        raise Unacceptable(f"API key {header.api_key} before authentication")

    def _handshake(self, header: RequestHeader, frame: bytes, body: int) -> bytes:
        request = read_request(SaslHandshakeRequest, header.api_version, frame, body)
        offered = self._credentials.mechanisms
        error: int = KafkaError.NONE
        if request.mechanism not in offered:
            error, self.failed = CredentialError.UNSUPPORTED_SASL_MECHANISM, True
        elif request.mechanism == "PLAIN":
            self._exchange = Plain(self._credentials.plain or {})
        else:
            assert self._credentials.scram is not None
            self._exchange = Scram(request.mechanism, self._credentials.scram)
        answer = SaslHandshakeResponse(error_code=error, mechanisms=offered)
        return encode_response(answer, header.api_version, header.correlation_id)

    async def _authenticate(self, header: RequestHeader, frame: bytes, body: int) -> bytes:
        request = read_request(SaslAuthenticateRequest, header.api_version, frame, body)
        assert self._exchange is not None
        try:
            token = await self._exchange.next(request.auth_bytes)
            self.done = self._exchange.done
            answer = SaslAuthenticateResponse(auth_bytes=token)
        except (Failed, ValueError):
            log.warning("authentication failed", mechanism=type(self._exchange).__name__)
            self.failed = True
            answer = SaslAuthenticateResponse(
                error_code=CredentialError.SASL_AUTHENTICATION_FAILED,
                error_message="Authentication failed: invalid credentials",
            )
        return encode_response(answer, header.api_version, header.correlation_id)


class Plain:
    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords
        self.done = False

    async def next(self, token: bytes) -> bytes:
        authorization_id, user, password = token.decode().split("\0")
        known = self._passwords.get(user)
        same = hmac.compare_digest(password.encode(), (known or "").encode())
        if known is None or not known or not same or authorization_id not in ("", user):
            raise Failed
        self.done = True
        return b""


class Scram:
    """RFC 5802 from the server's side, without channel binding."""

    def __init__(
        self, mechanism: str, look_up: Callable[[str, str], Awaitable[ScramCredential | None]]
    ) -> None:
        self._mechanism = mechanism
        self._hash = HASHES[mechanism]
        self._look_up = look_up
        self._credential: ScramCredential | None = None
        self._nonce = ""
        self._signed = ""
        self.done = False

    async def next(self, token: bytes) -> bytes:
        return await self._first(token.decode()) if not self._nonce else self._final(token.decode())

    async def _first(self, message: str) -> bytes:
        binding, _authorization_id, bare = message.split(",", 2)
        if binding != "n":
            raise Failed
        fields = _fields(bare, "n", "r")
        user = fields["n"].replace("=2C", ",").replace("=3D", "=")
        self._credential = await self._look_up(user, self._mechanism)
        if self._credential is None or not fields["r"]:
            raise Failed
        self._nonce = fields["r"] + secrets.token_urlsafe(24)
        salt = base64.b64encode(self._credential.salt).decode()
        first = f"r={self._nonce},s={salt},i={self._credential.iterations}"
        self._signed = f"{bare},{first}"
        return first.encode()

    def _final(self, message: str) -> bytes:
        without_proof, _, proof_text = message.rpartition(",p=")
        fields = _fields(without_proof, "c", "r")
        if fields["r"] != self._nonce or fields["c"] != "biws":
            raise Failed
        assert self._credential is not None
        signed = f"{self._signed},{without_proof}".encode()
        signature = hmac.digest(self._credential.stored_key, signed, self._hash)
        try:
            proof = base64.b64decode(proof_text, validate=True)
        except binascii.Error:
            raise Failed from None
        if len(proof) != len(signature):
            raise Failed
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        stored = hashlib.new(self._hash, client_key).digest()
        if not hmac.compare_digest(stored, self._credential.stored_key):
            raise Failed
        self.done = True
        verifier = hmac.digest(self._credential.server_key, signed, self._hash)
        return b"v=" + base64.b64encode(verifier)


def _fields(text: str, *needed: str) -> dict[str, str]:
    fields = dict(part.partition("=")[::2] for part in text.split(","))
    if not fields.keys() >= {*needed}:
        raise Failed
    return fields
