"""Sessions, one after the other: each is attached to the actor, and taken from it when it is lost.

A session that cannot be trusted any longer is as good as lost: the actor forgets its term at once.
If a server then says that the session lives after all, the same session stands for election again.
"""

import asyncio
import random

import anyio
import structlog

from kctl.messages import events as ev
from kctl.model.cluster import Node
from kctl.runtime.actor import Actor
from kctl.runtime.config import Config
from kctl.runtime.security import towards_zookeeper
from kctl.zookeeper.errors import (
    ConnectionLoss,
    NodeExists,
    NoServers,
    SessionExpired,
    ZooKeeperError,
)
from kctl.zookeeper.link import State
from kctl.zookeeper.session import Session
from kctl.zookeeper.store import Store
from kctl.zookeeper.watches import Watches

log = structlog.get_logger("kctl.zookeeper")

RETRY_MIN_S = 0.1
RETRY_MAX_S = 10.0


class Campaign:
    def __init__(self, config: Config, node: Node, actor: Actor, chance: random.Random) -> None:
        self._config = config
        self._node = node
        self._actor = actor
        self._chance = chance
        self._tls = towards_zookeeper(config)
        self._changed = asyncio.Event()
        self.session: Session | None = None
        self.sessions = 0
        self.connected = asyncio.Event()
        """Set while there is a session."""
        self.attempted = asyncio.Event()
        """Set when the first attempt at a session has succeeded or failed."""
        self.last_error: str | None = None

    async def run(self) -> None:
        """For ever; cancelled when the controller stops, after the actor has."""
        failures = 0
        while True:
            try:
                session = await self._open()
            except (NoServers, ConnectionLoss, SessionExpired, OSError) as error:
                failures += 1
                self.last_error = str(error)
                self.attempted.set()
                bound = min(RETRY_MAX_S, RETRY_MIN_S * 2**failures)
                log.warning("no ZooKeeper session", error=str(error), attempts=failures)
                await anyio.sleep(self._chance.uniform(bound / 2, bound))
                continue
            failures = 0
            try:
                await self._keep(session)
            finally:
                self.session = None
                self.connected.clear()
                with anyio.CancelScope(shield=True):
                    await session.close()

    async def _open(self) -> Session:
        config = self._config
        auth = []
        if config.zookeeper_auth:
            scheme, _, credentials = config.zookeeper_auth.partition(":")
            auth.append((scheme, credentials.encode()))
        session = await Session.connect(
            config.zookeeper_connect,
            traffic=self._actor.traffic,
            timeout_ms=config.zookeeper_session_timeout_ms,
            connect_timeout_ms=config.zookeeper_connection_timeout_ms,
            auth=auth,
            ssl=self._tls,
        )
        try:
            if await session.exists("/") is None:
                await self._create_chroot(auth)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await session.close()
            raise
        return session

    async def _create_chroot(self, auth: list[tuple[str, bytes]]) -> None:
        """As brokers do: the first one to come makes it."""
        servers, slash, chroot = self._config.zookeeper_connect.partition("/")
        names = chroot.split("/")
        timeout_ms = self._config.zookeeper_session_timeout_ms
        async with Session.open(servers, timeout_ms=timeout_ms, auth=auth, ssl=self._tls) as root:
            for depth in range(len(names)):
                try:
                    await root.create(slash + "/".join(names[: depth + 1]))
                except NodeExists:
                    continue
        log.info("created the chroot", path=slash + chroot)

    async def _watch(self, session: Session, watches: Watches) -> None:
        """Keep the watches at work. They rest when the session seems lost, which may prove wrong."""
        while True:
            try:
                await watches.run()
                await session.wait_connected()
            except (SessionExpired, ConnectionLoss):
                return  # the session has ended
            except ZooKeeperError as error:
                log.warning("a watched znode cannot be read", error=repr(error))
                await anyio.sleep(RETRY_MAX_S)
            except Exception as error:  # noqa: BLE001 changes would be missed: the term must end
                self._actor.report(error)
                await anyio.sleep(RETRY_MAX_S)
            watches.reconnected()

    def _count(self, state: State) -> None:
        meters = self._actor.meters
        meters.session_connects += state is State.CONNECTED
        meters.session_disconnects += state is State.SUSPENDED
        meters.session_expiries += state is State.EXPIRED

    async def _keep(self, session: Session) -> None:
        """Until the session is over."""
        self.session = session
        self.sessions += 1
        self.connected.set()
        self.attempted.set()
        self.last_error = None
        # Dynamic configuration is read anew in each session: what was taken back meanwhile is gone.
        settings = self._node.settings = self._config.settings
        watches = Watches(
            session, self._actor.mailbox.put, settings, unusable=self._actor.unusable_config
        )
        store = Store(
            session,
            settings.controller_id,
            watches=watches,
            set_acl=self._config.zookeeper_set_acl,
        )
        session.on_event(watches.fired)
        states: list[State] = []

        self._count(State.CONNECTED)

        def note(state: State) -> None:
            self._count(state)
            states.append(state)
            self._changed.set()

        session.on_state(note)
        log.info("ZooKeeper session", session=hex(session.session_id), timeout=session.timeout_ms)
        first = ev.Startup() if self.sessions == 1 else ev.RegisterBrokerAndReelect()
        self._actor.attach(store.perform, first)
        watches.follow_configs()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch, session, watches)
            trusted = True
            while True:
                await self._changed.wait()
                self._changed.clear()
                taken, states[:] = list(states), []
                for state in taken:
                    if state in (State.FENCED, State.EXPIRED, State.CLOSED) and trusted:
                        log.warning("session lost", state=state.value)
                        trusted = False
                        watches.rest()
                        self._actor.lose_session()
                        await self._actor.expired.wait()
                    elif state is State.CONNECTED and not trusted:
                        log.info("session lives after all")
                        trusted = True
                        self._actor.attach(store.perform, ev.RegisterBrokerAndReelect())
                        watches.reconnected()
                    elif state is State.CONNECTED:
                        watches.reconnected()
                    else:
                        log.info("session state", state=state.value)
                if session.state in (State.EXPIRED, State.CLOSED):
                    tasks.cancel_scope.cancel()
                    return
