"""The world of one seed: who is in it, a time of mishaps, and a time of healing."""

from kctl.model.brokers import Endpoint
from kctl.model.settings import LATEST_RELEASE, Release, Settings
from kctl.simulation import liveness, poison
from kctl.simulation.administrators import Administrators
from kctl.simulation.brokers_model import ModelBroker
from kctl.simulation.callers import Callers
from kctl.simulation.controllers import ControllerHost
from kctl.simulation.mishaps import Mishaps
from kctl.simulation.safety import ROOTS, Safety
from kctl.simulation.scheduler import SECOND, Restless
from kctl.simulation.surroundings import Surroundings
from kctl.zookeeper.multi import Create

CONTROLLER_IDS = (1001, 1002, 1003)
CALM_MS = 2 * SECOND
"""Before the first mishap: a controller is there, and the first topics."""
HEAL_SLICE_MS = 3 * SECOND
HEAL_MAX_MS = 90 * SECOND
TICK_MS = 350
RELEASES: tuple[tuple[Release, ...], ...] = (
    (LATEST_RELEASE,),
    (LATEST_RELEASE,),
    (LATEST_RELEASE,),
    ((2, 8), LATEST_RELEASE),
    ((2, 4),),
    ((2, 4), LATEST_RELEASE),
)


class World(Surroundings):
    def __init__(self, seed: int, *, storm_ms: int = 40 * SECOND) -> None:
        super().__init__(seed)
        self.storm_ms = storm_ms
        self.safety = Safety(self)
        self.callers = Callers(self)
        self.ensemble.listeners.append(self.safety.committed)
        self.admin = Administrators(self)
        self.trouble = Mishaps(self, self.admin)
        self._lay_out()
        self._cast()

    def _lay_out(self) -> None:
        """What the brokers of an older life have left."""
        for path in (*sorted(ROOTS), "/latest_producer_id_block"):
            self.ensemble.try_commit(self.admin.session, Create(path))

    def _cast(self) -> None:
        chance = self.chance
        releases = chance.choice(RELEASES)
        for broker in range(1, chance.randint(3, 5) + 1):
            self.brokers[broker] = ModelBroker(self, broker, chance.choice(releases))
        bound = chance.choice((30, 1_000))
        for controller in CONTROLLER_IDS[: chance.choice((2, 2, 3))]:
            settings = Settings(
                controller,
                endpoints=(Endpoint("PLAINTEXT", f"c{controller}", 9092),),
                leader_imbalance_check_interval_ms=7 * SECOND,
                quarantine_check_interval_ms=2 * SECOND,
            )
            host = self.controllers[controller] = ControllerHost(self, controller, settings)
            host.channel_bound = bound

    # -- the two phases -------------------------------------------------------------------------

    def run(self) -> None:
        try:
            self._open()
            self.scheduler.run_until(CALM_MS + self.storm_ms)
            self._heal()
        except Restless as restless:
            self.safety.fail("livelock", str(restless))

    def _open(self) -> None:
        chance, scheduler = self.chance, self.scheduler
        for broker in self.brokers.values():
            scheduler.at(chance.randint(0, 300), broker.start)
            scheduler.after(chance.randint(0, TICK_MS), self._tick, broker)
        for host in self.controllers.values():
            scheduler.at(chance.randint(0, 500), host.start)
        for at in (700, 900, 1_100):
            scheduler.at(
                at, chance.choice((self.admin.create_by_request, self.admin.create_by_znode))
            )
        end = CALM_MS + self.storm_ms
        for _ in range(chance.randint(20, 45)):
            scheduler.at(chance.randint(CALM_MS, end - 500), self._strike)
        for _ in range(chance.randint(15, 35)):
            scheduler.at(chance.randint(CALM_MS // 2, end - 500), self.admin.act)

    def _tick(self, broker: ModelBroker) -> None:
        if broker.up:
            broker.tick()
        jitter = self.chance.randint(0, 100)
        self.scheduler.after(TICK_MS + jitter, self._tick, broker)

    def _strike(self) -> None:
        if self.faulty:
            self.trouble.strike()

    # -- healing --------------------------------------------------------------------------------

    def _heal(self) -> None:
        self.note("world", "heals", "*")
        self.faulty = False
        self.ensemble.follower_stalls_until = 0
        for host in self.controllers.values():
            if host.process is None:
                host.start()
            else:
                host.process.resume()
        for broker in self.brokers.values():
            broker.reachable_after = 0
            if self._remove_strays(broker) or broker.offline:
                broker.stop(expire_after=0)
            if not broker.up:
                broker.start()
        self.admin.set_default_unclean(on=False)
        if self.poison:
            self._settle("with malformed znodes left")
            for path in list(self.poison):
                poison.repair(self, self.admin, path)
        self._settle("after healing")
        self.safety.durability.check_all()

    def _remove_strays(self, broker: ModelBroker) -> bool:
        """Logs of replicas that were removed while nobody could tell the broker, as people do.

        Where a topic of that name was created again they are in the way: with ids the broker refuses
        to mix them up, without it holds on to the leader epochs of the old one. So do Kafka's.
        """
        topics = self.safety.ledger.topics
        strays = [
            tp
            for tp, log in broker.logs.items()
            if tp.topic in topics
            and (
                topics[tp.topic].born != log.born
                or (log.topic_id and topics[tp.topic].id not in {None, log.topic_id})
            )
        ]
        for tp in strays:
            self.note("admin", f"removes a stray log of {broker.name}", str(tp))
        broker.lose_logs(strays)
        return bool(strays)

    def _settle(self, when: str) -> None:
        """Until everything holds, twice in a row; or it is a violation that it does not."""
        deadline = self.now + HEAL_MAX_MS
        good = 0
        while good < 2:
            self.scheduler.run_until(self.now + HEAL_SLICE_MS)
            problem = liveness.first_problem(self)
            good = good + 1 if problem is None else 0
            if problem is not None and self.now >= deadline:
                self.note("world", f"gives up {when}", "*")
                self.safety.fail(problem.invariant, f"{problem.message} ({when})", *problem.about)
