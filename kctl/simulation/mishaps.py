"""What goes wrong: controllers, their sessions, brokers, the ensemble and people's hands."""

from collections.abc import Callable

from kctl.messages import events as ev
from kctl.messages.answers import AnswerValue, ControlledShutdownDone
from kctl.simulation import poison, rogues
from kctl.simulation.administrators import Administrators
from kctl.simulation.brokers_model import ModelBroker
from kctl.simulation.controllers import ControllerHost, ControllerProcess
from kctl.simulation.surroundings import Surroundings
from kctl.zookeeper.multi import Delete

SHUTDOWN_ATTEMPTS = 3


class Mishaps:
    def __init__(self, world: Surroundings, admin: Administrators) -> None:
        self.world = world
        self.chance = world.chance
        self.admin = admin
        self._kinds: list[tuple[int, Callable[[], None]]] = [
            (4, self.crash_controller),
            (3, self.pause_controller),
            (2, self.stop_controller),
            (5, self.disconnect),
            (3, self.stall),
            (3, self.expire_session),
            (2, self.delete_controller_znode),
            (2, self.depose),
            (2, self.follower_lags),
            (4, self.kill_broker),
            (4, self.bounce_broker),
            (1, self.bounce_broker_wiped),
            (3, self.broker_loses_session),
            (2, self.log_dir_fails),
            (4, self.shut_down_broker),
            (3, self.cut_off_broker),
            (1, self.spread_poison),
            (2, self.rogue_proposals),
        ]
        self._rare: list[Callable[[], None]] = [self.broker_dies_for_good, admin.remove_by_hand]

    def strike(self) -> None:
        if self.chance.random() < 0.015:
            self.chance.choice(self._rare)()
            return
        weights = [weight for weight, _ in self._kinds]
        self.chance.choices(self._kinds, weights)[0][1]()

    # -- controllers ----------------------------------------------------------------------------

    def some_host(self) -> ControllerHost:
        hosts = list(self.world.controllers.values())
        active = [host for host in hosts if host.active]
        return self.chance.choice(active if active and self.chance.random() < 0.8 else hosts)

    def some_process(self) -> ControllerProcess | None:
        return self.some_host().process

    def crash_controller(self) -> None:
        host = self.some_host()
        if host.process is not None:
            doing = type(host.process.effect).__name__ if host.process.handling else "idle"
            self.world.mishap("controller crash", f"{host.name} at {doing}")
            host.crash()
            self.world.scheduler.after(self.chance.randint(100, 8_000), host.start)

    def pause_controller(self) -> None:
        process = self.some_process()
        if process is not None and not process.paused:
            duration = self.chance.choice((50, 500, 3_000, 9_000, 14_000))
            self.world.mishap("controller pause", f"{process.name} for {duration} ms")
            process.pause()
            self.world.scheduler.after(duration, process.resume)

    def stop_controller(self) -> None:
        host = self.some_host()
        if host.process is not None and not host.process.paused:
            self.world.mishap("controller stop", host.name)
            host.process.stop()
            self.world.scheduler.after(self.chance.randint(1_000, 8_000), host.start)

    def disconnect(self) -> None:
        process = self.some_process()
        if process is not None:
            duration = self.chance.choice((1, 10, 200, 2_000, 7_000))
            self.world.mishap("connection lost", f"{process.name} for {duration} ms")
            process.client.lose_connection(duration)

    def stall(self) -> None:
        process = self.some_process()
        if process is not None:
            duration = self.chance.randint(20, 4_000)
            self.world.mishap("slow ZooKeeper", f"{process.name} for {duration} ms")
            process.client.stalls_until = self.world.now + duration

    def expire_session(self) -> None:
        process = self.some_process()
        if process is not None:
            linger = self.chance.choice((0, 0, 0, 300, 4_000))
            self.world.mishap("session expiry", f"{process.name}, ephemerals linger {linger} ms")
            process.client.expired_by_server(linger)

    def delete_controller_znode(self) -> None:
        self.world.mishap("/controller deleted", "by an operator")
        self.world.ensemble.try_commit(self.admin.session, Delete("/controller"))

    def depose(self) -> None:
        """It does not hear that it is replaced, and rules on while brokers obey the next one."""
        active = [host for host in self.world.controllers.values() if host.active]
        process = active[0].process if active else None
        if process is not None:
            duration = self.chance.randint(2_000, 4_000)
            self.world.mishap("deaf controller deposed", f"{process.name} for {duration} ms")
            process.client.stalls_until = self.world.now + duration
            self.world.ensemble.try_commit(self.admin.session, Delete("/controller"))
            self.world.scheduler.after(self.chance.randint(100, 1_000), self.bounce_broker)

    def follower_lags(self) -> None:
        duration = self.chance.randint(100, 4_000)
        self.world.mishap("lagging server", f"for {duration} ms")
        self.world.ensemble.follower_stalls_until = self.world.now + duration

    # -- brokers --------------------------------------------------------------------------------

    def some_broker(self) -> ModelBroker | None:
        up = [broker for broker in self.world.brokers.values() if broker.up]
        return self.chance.choice(up) if up else None

    def kill_broker(self) -> None:
        broker = self.some_broker()
        if broker is not None:
            self.world.mishap("broker killed", broker.name, broker.name)
            expiry = self.chance.choice((0, 300, 3_000))
            broker.stop(expire_after=expiry)
            self.world.scheduler.after(expiry + self.chance.randint(0, 9_000), broker.start)

    def bounce_broker(self) -> None:
        """Gone and back before anybody looks."""
        broker = self.some_broker()
        if broker is not None:
            self.world.mishap("broker bounce", broker.name, broker.name)
            broker.stop(expire_after=0)
            broker.start()

    def bounce_broker_wiped(self) -> None:
        broker = self.some_broker()
        if broker is not None:
            self.world.mishap("broker wiped", broker.name, broker.name)
            broker.stop(expire_after=0, wiped=True)
            self.world.scheduler.after(self.chance.choice((0, 1, 3_000)), broker.start)

    def broker_loses_session(self) -> None:
        broker = self.some_broker()
        if broker is not None:
            self.world.mishap("broker session expiry", broker.name, broker.name)
            broker.lose_session()

    def log_dir_fails(self) -> None:
        broker = self.some_broker()
        if broker is not None:
            self.world.mishap("log dir failure", broker.name, broker.name)
            broker.fail_log_dir(lost=self.chance.random() < 0.3)

    def cut_off_broker(self) -> None:
        broker = self.some_broker()
        if broker is not None:
            duration = self.chance.randint(200, 8_000)
            self.world.mishap("broker cut off", f"{broker.name} for {duration} ms", broker.name)
            broker.reachable_after = self.world.now + duration

    def broker_dies_for_good(self) -> None:
        """At most one: the others must still be able to hold every topic."""
        dead = any(broker.dead_for_good for broker in self.world.brokers.values())
        broker = self.some_broker()
        if broker is not None and not dead and len(self.world.brokers) > 3:
            self.world.mishap("broker dead for good", broker.name, broker.name)
            broker.stop(expire_after=1_000)
            broker.dead_for_good = True

    def shut_down_broker(self) -> None:
        broker = self.some_broker()
        if broker is not None and not broker.shutting_down:
            self.world.mishap("controlled shutdown", broker.name, broker.name)
            shut_down(self.world, broker, SHUTDOWN_ATTEMPTS)

    def rogue_proposals(self) -> None:
        hosts = [host for host in self.world.controllers.values() if host.active]
        if hosts:
            rogues.propose(self.world, self.chance.choice(hosts))

    def spread_poison(self) -> None:
        poison.spread(self.world, self.admin)
        delay = self.chance.randint(2_000, 20_000)
        for path in list(self.world.poison):
            if self.chance.random() < 0.5:
                self.world.scheduler.after(delay, self._repair, path)

    def _repair(self, path: str) -> None:
        if path in self.world.poison:
            poison.repair(self.world, self.admin, path)


def shut_down(world: Surroundings, broker: ModelBroker, attempts: int) -> None:
    """Ask the controller for leave; go when it is granted or asking does not help."""
    broker.shutting_down = True
    incarnation = broker.incarnation

    def leave() -> None:
        if broker.up and broker.incarnation == incarnation:
            broker.stop(expire_after=0)
            world.scheduler.after(world.chance.randint(100, 6_000), broker.start)

    def answered(value: AnswerValue | None) -> None:
        if not broker.up or broker.incarnation != incarnation:
            return
        granted = isinstance(value, ControlledShutdownDone) and not value.remaining
        if granted or attempts <= 1:
            leave()
        else:
            world.scheduler.after(1_000, again)

    def again() -> None:
        if broker.up and broker.incarnation == incarnation:
            shut_down(world, broker, attempts - 1)

    known = None if broker.controller is None else world.controllers.get(broker.controller)
    if known is None:
        answered(None)
        return
    epoch = broker.epoch
    world.callers.ask(
        known,
        lambda caller: ev.ControlledShutdown(caller, broker.id, epoch),
        answered,
        world.chance.randint(0, 5),
        8_000,
    )
