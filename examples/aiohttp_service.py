"""A controller inside an aiohttp service, from start-up to shutdown, by `cleanup_ctx`.

    python aiohttp_service.py --zookeeper 127.0.0.1:2181/kafka
    python aiohttp_service.py                                   on an empty ZooKeeper in memory
    curl 127.0.0.1:8090/partitions

When the service stops, the controllership is handed over.
"""

import argparse
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

from aiohttp import web

import kctl
from kctl.messages.events import CreateTopics, NewTopic
from kctl.testing.memory_server import MemoryServer

CONTROLLER = web.AppKey("controller", kctl.Controller)


async def controller(app: web.Application, zookeeper: str | None) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        if zookeeper is None:
            zookeeper = (await stack.enter_async_context(MemoryServer())).connect_string
        config = kctl.Config(zookeeper_connect=zookeeper, broker_id=1000)
        app[CONTROLLER] = await stack.enter_async_context(kctl.Controller(config))
        yield


async def partitions(request: web.Request) -> web.Response:
    state = request.app[CONTROLLER].state
    if state is None:
        raise web.HTTPServiceUnavailable(text="not the active controller\n")
    return web.json_response(
        {str(tp): {"leader": row.leader, "isr": row.isr} for tp, row in state.rows.items()}
    )


async def create_topic(request: web.Request) -> web.Response:
    """`curl -X PUT 127.0.0.1:8090/topics/orders?partitions=6`"""
    wanted = NewTopic(request.match_info["name"], int(request.query.get("partitions", "1")), 1)
    answer = await request.app[CONTROLLER].ask(lambda caller: CreateTopics(caller, (wanted,)))
    return web.json_response({"answer": str(answer)})


def make_app(zookeeper: str | None = None) -> web.Application:
    app = web.Application()
    app.cleanup_ctx.append(lambda app: controller(app, zookeeper))
    app.router.add_get("/partitions", partitions)
    app.router.add_put("/topics/{name}", create_topic)
    return app


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--zookeeper")
    parser.add_argument("--port", type=int, default=8090)
    asked = parser.parse_args()
    web.run_app(make_app(asked.zookeeper), host="127.0.0.1", port=asked.port)
