"""Taking, finding and giving up the controllership: `/controller` and `/controller_epoch`."""

from collections.abc import Callable

from kctl.messages import effects as ef
from kctl.messages.term import ControllerMoved, SessionLost
from kctl.model.codes import Code, Malformed
from kctl.model.names import BrokerId
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.batches import Fence
from kctl.zookeeper.calls import code_for, read_many, reading
from kctl.zookeeper.client import Client
from kctl.zookeeper.errors import MultiError, SessionExpired, ZooKeeperError
from kctl.zookeeper.multi import Check, Create, Delete, Operation, SetData
from kctl.zookeeper.registrations import encode_registration, is_kctl_registration
from kctl.zookeeper.wire import CreateMode, Stat


class Unusable(Exception):
    """A znode that nothing works without cannot be used; somebody must look at it."""


class Controllership:
    def __init__(
        self,
        client: Client,
        controller_id: BrokerId,
        fence: Fence,
        *,
        watch: bool,
        secure: bool,
        now_ms: Callable[[], int],
    ) -> None:
        self._client = client
        self._controller_id = controller_id
        self._fence = fence
        self._watch = watch
        self._secure = secure
        self._now_ms = now_ms
        self._claimed: int | None = None
        """The version that `/controller_epoch` has if our last claim went through."""

    async def read(self, _: ef.ReadControllership) -> ef.Controllership:
        client = self._client
        # A claim of ours whose reply was lost may have reached another server only.
        await reading(client.sync)
        if self._watch:
            await reading(lambda: client.exists(paths.CONTROLLER, watch=True))
        found, epoch = await read_many(client, (paths.CONTROLLER, paths.CONTROLLER_EPOCH))
        controller = self._controller(*found) if isinstance(found, tuple) else None
        if not isinstance(found, tuple) and code_for(found) is not Code.NO_NODE:
            raise Unusable(f"{paths.CONTROLLER}: {found.name}")
        if not isinstance(epoch, tuple):
            if code_for(epoch) is not Code.NO_NODE:
                raise Unusable(f"{paths.CONTROLLER_EPOCH}: {epoch.name}")
            return ef.Controllership(controller, None)
        value = znodes.decode_controller_epoch(paths.CONTROLLER_EPOCH, epoch[0])
        if isinstance(value, Malformed):
            # To guess an epoch would be to undercut one that brokers have seen.
            raise Unusable(f"{value.path}: {value.reason}")
        if controller is not None and controller.ours and self._claimed == epoch[1].version:
            self._fence.version = self._claimed
        return ef.Controllership(controller, value, epoch[1].version)

    async def claim(self, effect: ef.ClaimControllership) -> Code:
        now_ms = self._now_ms()
        operations: list[Operation] = [
            SetData(
                paths.CONTROLLER_EPOCH,
                znodes.encode_controller_epoch(effect.epoch),
                effect.epoch_zk_version,
            )
        ]
        if effect.replaces is not None:
            operations.append(Delete(paths.CONTROLLER, effect.replaces.zk_version))
        operations += await self._outdated_registrations(effect.replaces)
        operations.append(
            self._ephemeral(paths.CONTROLLER, znodes.encode_controller(self._controller_id, now_ms))
        )
        self._fence.version = None
        self._claimed = effect.epoch_zk_version + 1
        code = await self._all_or_none(operations)
        if code is Code.OK:
            self._fence.version = self._claimed
        return code

    async def register(self, effect: ef.RegisterController) -> Code:
        """Under the fence; what our id has left there from another session goes."""
        path = paths.broker(self._controller_id)
        operations = self._fenced()
        if await self._is_kctl(path):
            operations.append(Delete(path))
        elif await reading(lambda: self._client.exists(path)) is not None:
            raise Unusable(f"{path}: a broker has the id of this controller")
        data = encode_registration(effect.endpoints, effect.rack, self._now_ms())
        operations.append(self._ephemeral(path, data))
        code = await self._all_or_none(operations)
        if code is Code.BAD_VERSION:  # only the fence names a version
            raise ControllerMoved("the controller epoch has moved on")
        return code

    async def unregister(self, _: ef.UnregisterController) -> Code:
        path = paths.broker(self._controller_id)
        stat = await reading(lambda: self._client.exists(path))
        if stat is None or stat.ephemeral_owner != self._client.session_id:
            return Code.NO_NODE
        return await self._all_or_none([Delete(path, stat.version)])

    def _fenced(self) -> list[Operation]:
        if self._fence.version is None:
            raise ControllerMoved("no controllership was claimed")
        return [Check(paths.CONTROLLER_EPOCH, self._fence.version)]

    async def release(self, effect: ef.ReleaseControllership) -> Code:
        """A code even when fenced: the term is over anyway, and whoever rules now is not touched."""
        operations: list[Operation] = [
            Check(paths.CONTROLLER_EPOCH, effect.epoch_zk_version),
            Delete(paths.CONTROLLER),
        ]
        self._fence.version = self._claimed = None
        return await self._all_or_none(operations)

    def _controller(self, data: bytes, stat: Stat) -> ef.ControllerNode:
        claim = znodes.decode_controller(paths.CONTROLLER, data)
        ours = stat.ephemeral_owner == self._client.session_id
        if isinstance(claim, Malformed):
            return ef.ControllerNode(-1, ours, kctl=False, zk_version=stat.version)
        return ef.ControllerNode(claim.broker_id, ours, claim.kctl, stat.version)

    async def _outdated_registrations(self, replaces: ef.ControllerNode | None) -> list[Operation]:
        """That of the kctl which is replaced."""
        if replaces is not None and replaces.kctl:
            path = paths.broker(replaces.broker_id)
            if await self._is_kctl(path):
                return [Delete(path)]
        return []

    async def _is_kctl(self, path: str) -> bool:
        (read,) = await read_many(self._client, (path,))
        return isinstance(read, tuple) and is_kctl_registration(read[0])

    def _ephemeral(self, path: str, data: bytes) -> Create:
        return Create(path, data, CreateMode.EPHEMERAL, paths.acl_for(path, self._secure))

    async def _all_or_none(self, operations: list[Operation]) -> Code:
        try:
            _ = await self._client.multi(operations)
        except MultiError as refusal:
            return code_for(refusal.code)
        except SessionExpired:
            raise SessionLost("the session expired") from None
        except ZooKeeperError:
            return Code.UNKNOWN
        return Code.OK
