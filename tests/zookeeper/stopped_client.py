"""A program for `test_stopped_process`: writes all the time and says what it sees, line by line."""

import asyncio
import sys

from kctl.zookeeper.errors import ConnectionLoss, SessionExpired
from kctl.zookeeper.session import Session


def say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - the test reads it


async def main(connect_string: str, timeout_ms: int) -> None:
    async with Session.open(connect_string, timeout_ms=timeout_ms) as zk:
        zk.on_state(lambda state: say(f"state {state.value}"))
        await zk.create("/written")
        say(f"session {zk.session_id}")
        while True:
            try:
                stat = await zk.set("/written", b"")
            except ConnectionLoss:
                say("lost")
            except SessionExpired:
                say("ended")
                return
            else:
                say(f"wrote {stat.version}")
            await asyncio.sleep(0.02)


asyncio.run(main(sys.argv[1], int(sys.argv[2])))
