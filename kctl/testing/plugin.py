"""The pytest plugin: the fixture `kctl_cluster`, the marker `kctl`, two options.

pytest imports this module in every run, so it imports nothing of kctl before a cluster is wanted.
The fixture is a plain function that hands back a factory. So it does not matter which plugin runs
the test's coroutine: pytest-asyncio in strict or auto mode, or anyio's. ::

    @pytest.mark.asyncio                    # or @pytest.mark.anyio, or nothing in auto mode
    @pytest.mark.kctl(brokers=5)            # optional: defaults for this test
    async def test_failover(kctl_cluster):
        async with kctl_cluster(topics={"orders": 6}) as c:
            await c.kill(2)
            await c.until(lambda: c.partition("orders", 0).leader not in (None, 2))
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from kctl.testing.cluster import Cluster

MARKER = "kctl(**defaults): arguments for each cluster that kctl_cluster makes in this test"
ZOOKEEPERS = "memory (no Java), embedded (a real server for the whole run) or HOST:PORT"


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    _leave_asserts_alone(pluginmanager)
    group = parser.getgroup("kctl", "kctl: test clusters")
    group.addoption(
        "--kctl-seed",
        type=int,
        default=0,
        metavar="N",
        help="seed of clusters that say none themselves (default: 0)",
    )
    group.addoption(
        "--kctl-zookeeper",
        default="memory",
        metavar="KIND",
        help=f"what clusters stand on: {ZOOKEEPERS} (default: memory)",
    )


def _leave_asserts_alone(pluginmanager: pytest.PytestPluginManager) -> None:
    """pytest rewrites the asserts of the whole package that a plugin is part of.

    Here that would be a controller and its adapters, whose asserts no test looks at; it would cost
    seconds in every run where no byte code is kept. If pytest changes inside, they are rewritten.
    """
    hook = pluginmanager.rewrite_hook
    for name in ("_must_rewrite", "_marked_for_rewrite_cache"):
        marked = getattr(hook, name, None)
        if isinstance(marked, set):
            marked.discard("kctl")
        elif isinstance(marked, dict):
            marked.clear()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)


@pytest.fixture(scope="session")
def kctl_zookeeper(request: pytest.FixtureRequest) -> Iterator[str]:
    """What `--kctl-zookeeper` asks for: "memory", or the address of a server that is running."""
    kind: str = request.config.getoption("--kctl-zookeeper")
    if kind != "embedded":
        yield kind
        return
    from kctl.zookeeper.embedded import EmbeddedZooKeeper  # noqa: PLC0415 see above

    with EmbeddedZooKeeper() as server:
        yield server.connect_string


@pytest.fixture
def kctl_cluster(request: pytest.FixtureRequest, kctl_zookeeper: str) -> "Callable[..., Cluster]":
    """Makes clusters: ``async with kctl_cluster(brokers=3, topics={"orders": 6}) as c``.

    Arguments are those of `kctl.testing.Cluster`. They win over those of ``@pytest.mark.kctl``, on
    the test, its class or its module; and those win over the command line.
    """
    defaults: dict[str, Any] = {
        "seed": request.config.getoption("--kctl-seed"),
        "zookeeper": kctl_zookeeper,
    }
    # The closest one comes first, and has the last word.
    for marker in reversed(list(request.node.iter_markers("kctl"))):
        if marker.args:
            raise pytest.UsageError(
                f"{request.node.nodeid}: pytest.mark.kctl takes names, as kctl(brokers=5)"
            )
        defaults |= marker.kwargs

    def make(*args: Any, **kwargs: Any) -> "Cluster":
        from kctl.testing.cluster import Cluster  # noqa: PLC0415 see above

        # `kctl_cluster(5)` is Cluster(5): the first two have places.
        placed = dict(zip(("brokers", "topics"), args, strict=False))
        if len(args) > len(placed) or placed.keys() & kwargs.keys():
            return Cluster(*args, **kwargs)  # says what is wrong
        return Cluster(**{**defaults, **placed, **kwargs})

    return make
