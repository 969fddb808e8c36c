"""The sans-I/O driver: run a handler until it wants something, feed it the reply.

A handler is an `async def` without an event loop behind it. Live, simulated and replayed runs all
advance it with `step`.
"""

from collections.abc import Coroutine

import attrs

from kctl.messages.effects import Effect


@attrs.frozen
class Finished:
    """The handler returned this."""

    value: object


class NotAnEffect(TypeError):
    """A handler awaited something else: that would tie the core to an event loop."""


Procedure = Coroutine[object, object, object]
"""A handler under way."""


def step(procedure: Procedure, reply: object = None) -> Effect[object] | Finished:
    """Resume with the reply to the last effect (None to begin); the next effect or the result."""
    try:
        wanted = procedure.send(reply)
    except StopIteration as stop:
        return Finished(stop.value)
    if not isinstance(wanted, Effect):
        procedure.close()
        raise NotAnEffect(f"a handler awaited {wanted!r}; the core may only await effects")
    return wanted
