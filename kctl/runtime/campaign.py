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
from kctl.zookeeper.errors import ConnectionLoss, NoServers, SessionExpired
from kctl.zookeeper.link import State
from kctl.zookeeper.session import Session
from kctl.zookeeper.store import Registration, Store
from kctl.zookeeper.watches import Watches

log = structlog.get_logger("kctl.zookeeper")

RETRY_MIN_S = 0.1
RETRY_MAX_S = 10.0


class Campaign:
    def __init__(
        self, config: Config, node: Node, actor: Actor, chance: random.Random, *, register: bool
    ) -> None:
        self._config = config
        self._node = node
        self._actor = actor
        self._chance = chance
        self._register = register
        self._changed = asyncio.Event()
        self.session: Session | None = None
        self.sessions = 0

    async def run(self) -> None:
        """For ever; cancelled when the controller stops, after the actor has."""
        failures = 0
        while True:
            try:
                session = await self._open()
            except (NoServers, ConnectionLoss, SessionExpired, OSError) as error:
                failures += 1
                bound = min(RETRY_MAX_S, RETRY_MIN_S * 2**failures)
                log.warning("no ZooKeeper session", error=str(error), attempts=failures)
                await anyio.sleep(self._chance.uniform(bound / 2, bound))
                continue
            failures = 0
            try:
                await self._keep(session)
            finally:
                self.session = None
                with anyio.CancelScope(shield=True):
                    await session.close()

    async def _open(self) -> Session:
        config = self._config
        auth = []
        if config.zookeeper_auth:
            scheme, _, credentials = config.zookeeper_auth.partition(":")
            auth.append((scheme, credentials.encode()))
        return await Session.connect(
            config.zookeeper_connect,
            timeout_ms=config.zookeeper_session_timeout_ms,
            auth=auth,
        )

    async def _keep(self, session: Session) -> None:
        """Until the session is over."""
        self.session = session
        self.sessions += 1
        settings = self._node.settings
        watches = Watches(session, self._actor.mailbox.put, settings)
        store = Store(
            session,
            settings.controller_id,
            watches=watches,
            registration=Registration(settings.endpoints) if self._register else None,
            set_acl=self._config.zookeeper_set_acl,
        )
        session.on_event(watches.fired)
        states: list[State] = []

        def note(state: State) -> None:
            states.append(state)
            self._changed.set()

        session.on_state(note)
        log.info("ZooKeeper session", session=hex(session.session_id), timeout=session.timeout_ms)
        first = ev.Startup() if self.sessions == 1 else ev.RegisterBrokerAndReelect()
        self._actor.attach(store.perform, first)
        watches.follow_configs()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watches.run)
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
