"""A controller inside your own program: watch it work, ask it, look at its state.

    python -m examples.embedded_controller 127.0.0.1:2181/kafka

Without channels to brokers (`listeners` is not set) it keeps what it would have sent; on a cluster
of brokers that nobody else controls, give it listeners that they can reach.
"""

import asyncio
import sys

import kctl
from kctl.messages.events import CreateTopics, NewTopic
from kctl.messages.outbox import Story


def say(story: Story) -> None:
    sys.stdout.write(f"{story.what} {story.key or ''}: {story.why}\n")


async def main(zookeeper: str) -> None:
    config = kctl.Config(zookeeper_connect=zookeeper, broker_id=1000)
    async with kctl.Controller(config) as controller:
        controller.on_story(say)
        await controller.until(lambda c: c.is_active)
        answer = await controller.ask(
            lambda caller: CreateTopics(caller, (NewTopic("greetings", assignments={0: (1,)}),))
        )
        sys.stdout.write(f"asked for a topic: {answer}\n")
        assert controller.state is not None
        for tp, row in controller.state.rows.items():
            sys.stdout.write(f"{tp}: leader {row.leader}, in sync {list(row.isr)}\n")
    # Left: the controllership was handed over, and nothing of it runs any more.


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
