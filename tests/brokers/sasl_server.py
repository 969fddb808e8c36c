"""A simulated broker behind TLS and SASL: the server's side of PLAIN and SCRAM."""

import asyncio
import base64
import hashlib
import hmac
import ssl
import struct
from typing import Self

from kctl.brokers.simulated import Frame, SimulatedBroker
from kctl.wire import apis, client

HANDSHAKE, AUTHENTICATE = 17, 36
AUTHENTICATION_FAILED, UNSUPPORTED_MECHANISM = 58, 33


class SecuredBroker:
    """Passes frames on to the broker once the client is who it says."""

    def __init__(
        self,
        broker: SimulatedBroker,
        *,
        ssl_context: ssl.SSLContext | None = None,
        users: dict[str, str] | None = None,
        mechanisms: tuple[str, ...] = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
    ) -> None:
        self.broker = broker
        self.users = users
        self.mechanisms = mechanisms
        self.port = 0
        self.authenticated: list[str] = []
        self._ssl = ssl_context
        self._writers: list[asyncio.StreamWriter] = []
        if users is not None:
            broker.versions |= {HANDSHAKE: (0, 1), AUTHENTICATE: (0, 1)}

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._ssl)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_problem: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    def hang_up(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        session = _Session(self)
        self._writers.append(writer)
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                answer = session.answer(await reader.readexactly(size))
                if answer is None:
                    break
                writer.write(apis.framed(answer))
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.transport.abort()


class _Session:
    def __init__(self, server: SecuredBroker) -> None:
        self._server = server
        self._user: str | None = None
        self._mechanism = ""
        self._scram: _Scram | None = None

    def answer(self, data: bytes) -> bytes | None:
        header, body_at = apis.decode_request_header(data)
        key, version, correlation_id = header.api_key, header.api_version, header.correlation_id
        if key == HANDSHAKE:
            wanted = apis.decode(client.SaslHandshakeRequest, version, data, body_at)
            self._mechanism = wanted.mechanism
            known = wanted.mechanism in self._server.mechanisms
            response = client.SaslHandshakeResponse(
                0 if known else UNSUPPORTED_MECHANISM, self._server.mechanisms
            )
            return apis.encode_response(response, version, correlation_id)
        if key == AUTHENTICATE:
            token = apis.decode(client.SaslAuthenticateRequest, version, data, body_at)
            reply = self._authenticate(token.auth_bytes)
            response_to_token = (
                client.SaslAuthenticateResponse(AUTHENTICATION_FAILED, "who are you?")
                if reply is None
                else client.SaslAuthenticateResponse(auth_bytes=reply)
            )
            return apis.encode_response(response_to_token, version, correlation_id)
        if key != apis.API_VERSIONS and self._server.users is not None and self._user is None:
            return None
        return self._server.broker.answer(Frame(0.0, header, data, body_at))

    def _authenticate(self, token: bytes) -> bytes | None:
        users = self._server.users or {}
        if self._mechanism == "PLAIN":
            _authorize, user, password = token.decode().split("\0")
            return self._accept(user, b"") if users.get(user) == password else None
        if self._scram is None:
            quoted = dict(p.split("=", 1) for p in token.decode().split(",")[2:])["n"]
            user = quoted.replace("=2C", ",").replace("=3D", "=")
            if user not in users:
                return None
            self._scram = _Scram(self._mechanism, user, users[user])
            return self._scram.first(token.decode())
        final = self._scram.final(token.decode())
        return None if final is None else self._accept(self._scram.user, final)

    def _accept(self, user: str, reply: bytes) -> bytes:
        self._user = user
        self._server.authenticated.append(f"{self._mechanism} {user}")
        return reply


class _Scram:
    def __init__(self, mechanism: str, user: str, password: str) -> None:
        self.user = user
        self._hash = mechanism.removeprefix("SCRAM-").replace("-", "").lower()
        self._salted = hashlib.pbkdf2_hmac(self._hash, password.encode(), b"salt", 4096)

    def first(self, message: str) -> bytes:
        bare = message.removeprefix("n,,")
        nonce = bare.rpartition("r=")[2] + "server"
        reply = f"r={nonce},s={base64.b64encode(b'salt').decode()},i=4096"
        self._messages = f"{bare},{reply},c=biws,r={nonce}".encode()
        return reply.encode()

    def final(self, message: str) -> bytes | None:
        proof = base64.b64decode(message.rpartition("p=")[2])
        client_key = self._hmac(self._salted, b"Client Key")
        stored = hashlib.new(self._hash, client_key).digest()
        signature = self._hmac(stored, self._messages)
        if bytes(a ^ b for a, b in zip(client_key, signature, strict=True)) != proof:
            return None
        server_key = self._hmac(self._salted, b"Server Key")
        return b"v=" + base64.b64encode(self._hmac(server_key, self._messages))

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.new(key, message, self._hash).digest()
