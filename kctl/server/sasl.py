"""SASL towards those who connect: a broker of the same listener decides who they are.

The handshake and the tokens are relayed like any other request. So whatever users and passwords the
brokers know are good here too, no secret of a user is kept or looked up here, and what is relayed
afterwards is asked in that user's own name. The name is read from the tokens themselves, for the
requests that are answered here: PLAIN and SCRAM carry it in the clear.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection

import structlog

from kctl.model.codes import KafkaError
from kctl.server.frames import Unacceptable, read_request
from kctl.server.relay import Pin
from kctl.wire.apis import (
    API_VERSIONS,
    RequestHeader,
    decode_request_header,
    decode_response,
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

ROUNDS = {"PLAIN": 1, "SCRAM-SHA-256": 2, "SCRAM-SHA-512": 2}
"""Tokens of a client until it is known. Of other mechanisms it cannot be said from outside when
they have come to an end, nor who it is then."""

_SCRAM_FIRST = re.compile(
    r"n,(?:a=(?P<authzid>[^,]+))?,(?:m=[^,]*,)?n=(?P<user>[^,]+),r=[^,]+(?P<extensions>(?:,.*)?)"
)
_ESCAPED = {"=2C": ",", "=3D": "="}

ApiVersions = Callable[[bytes], Awaitable[bytes]]
"""Answers this one request for everybody: takes a frame and gives one."""


class Introduction:
    """One connection that has to say who it is, for the first time or again."""

    def __init__(self, pin: Pin, mechanisms: Collection[str] = tuple(ROUNDS)) -> None:
        self._pin = pin
        self._mechanisms = tuple(mechanisms)
        self._mechanism = ""
        self._rounds = 0
        self._name: str | None = None
        self._ends_at: float | None = None
        self.principal: str | None = None
        """`User:<name>`; None if the broker knows a name that we cannot know, as with tokens."""
        self.done = False
        self.failed = False
        """The answer that says so is the last one."""

    @property
    def over(self) -> bool:
        """Brokers may ask for a new introduction after a while (`connections.max.reauth.ms`)."""
        return self._ends_at is not None and asyncio.get_running_loop().time() > self._ends_at

    async def answer(self, frame: bytes, api_versions: ApiVersions) -> bytes:
        """To anything that comes before the introduction is over."""
        if int.from_bytes(frame[:2], "big") == API_VERSIONS:
            return await api_versions(frame)
        return await self.go_on(frame)

    async def go_on(self, frame: bytes) -> bytes:
        try:
            header, body = decode_request_header(frame)
            key, version = header.api_key, header.api_version
            if key == SASL_HANDSHAKE and version in SASL_HANDSHAKE_VERSIONS:
                return await self._handshake(header, frame, body)
            if key == SASL_AUTHENTICATE and self._mechanism:
                return await self._authenticate(header, frame, body)
        except WireError as problem:
            raise Unacceptable(str(problem)) from None
        raise Unacceptable(f"API key {key}, version {version} before authentication")

    async def _handshake(self, header: RequestHeader, frame: bytes, body: int) -> bytes:
        mechanism = read_request(SaslHandshakeRequest, header.api_version, frame, body).mechanism
        if mechanism not in self._mechanisms:
            self.failed = True
            refused = SaslHandshakeResponse(
                error_code=KafkaError.UNSUPPORTED_SASL_MECHANISM, mechanisms=self._mechanisms
            )
            return encode_response(refused, header.api_version, header.correlation_id)
        self._pin.stay()
        answer = await self._asked(header, frame, body)
        _, response = decode_response(SaslHandshakeResponse, header.api_version, answer)
        self.failed = response.error_code != KafkaError.NONE
        self._mechanism, self._rounds, self._name = mechanism, 0, None
        return answer

    async def _authenticate(self, header: RequestHeader, frame: bytes, body: int) -> bytes:
        version = header.api_version
        token = read_request(SaslAuthenticateRequest, version, frame, body).auth_bytes
        self._rounds += 1
        if self._rounds == 1:
            self._name = name_in(self._mechanism, token)
        answer = await self._asked(header, frame, body)
        _, response = decode_response(SaslAuthenticateResponse, version, answer)
        if response.error_code != KafkaError.NONE:
            log.warning("authentication failed", mechanism=self._mechanism)
            self.failed = True
        elif self._rounds == ROUNDS[self._mechanism]:
            self._known(response.session_lifetime_ms)
        return answer

    def _known(self, session_lifetime_ms: int) -> None:
        # Who introduces himself again must be the same; the broker sees to that.
        if not self.done:
            self.principal = None if self._name is None else f"User:{self._name}"
        self.done = True
        self._mechanism = ""
        self._ends_at = None
        if session_lifetime_ms > 0:
            self._ends_at = asyncio.get_running_loop().time() + session_lifetime_ms / 1000

    async def _asked(self, header: RequestHeader, frame: bytes, body: int) -> bytes:
        answer = await self._pin.relay(header, frame, body)
        assert answer is not None
        return answer


def name_in(mechanism: str, token: bytes) -> str | None:
    """Of the client's first token. What is not understood names nobody; a broker will judge it."""
    try:
        text = token.decode()
    except UnicodeDecodeError:
        return None
    if mechanism == "PLAIN":
        parts = text.split("\0")
        return parts[1] if len(parts) == 3 and parts[0] in ("", parts[1]) else None
    found = _SCRAM_FIRST.fullmatch(text)
    # With a delegation token the name is that of the token, not of its owner.
    if found is None or "tokenauth" in found["extensions"]:
        return None
    user = _unescaped(found["user"])
    return user if found["authzid"] is None or _unescaped(found["authzid"]) == user else None


def _unescaped(name: str) -> str:
    return re.sub("=2C|=3D", lambda match: _ESCAPED[match[0]], name)
