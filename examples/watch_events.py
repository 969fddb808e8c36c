"""Watch a controller at work: every event that it handles, and what it decides.

    python watch_events.py

The cluster is a simulated one in memory; with a real one, `kctl.Controller` has the same two ways
to listen: `events()`, what was handled and how long it took, and `on_story`, what was done and why.
"""

import asyncio

from kctl import Controller
from kctl.messages.outbox import Story
from kctl.testing import Cluster


async def watch(controller: Controller) -> None:
    async for done in controller.events():
        print(
            f"{done.took_s * 1000:7.2f} ms  {done.effects:2} effects  {type(done.event).__name__}"
        )


def tell(story: Story) -> None:
    print(f"            {story.what} {story.key or ''}: {story.why}")


async def main() -> None:
    async with Cluster(brokers=3, topics={"orders": 2}) as c, asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(watch(c.controller))
        c.controller.on_story(tell)
        await asyncio.sleep(0)  # the watcher begins

        print("-- broker 2 dies")
        await c.kill(2)
        await c.settle()
        print("-- broker 2 returns, and its replicas catch up")
        await c.restart(2)
        await c.settle()

        watching.cancel()
        for partition in c.topics["orders"]:
            print(partition)


if __name__ == "__main__":
    asyncio.run(main())
