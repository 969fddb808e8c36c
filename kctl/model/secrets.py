"""Values that are handed on and never shown."""

import attrs


@attrs.frozen
class Secret:
    """Stays out of logs, stories and journals: none of them shows what it holds."""

    text: str = attrs.field(default="", repr=False)
