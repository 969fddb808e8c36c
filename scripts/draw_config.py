"""Draw docs/configuration.md from the settings that there are.

    .venv/bin/python -m scripts.draw_config

The page is committed; a test compares it with what this prints.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs

from kctl.model.settings import Release
from kctl.runtime.config import ON_A_LISTENER, Config, variable_of

PAGE = Path(__file__).parent.parent / "docs" / "configuration.md"

INTRODUCTION = """\
# Configuration

Drawn from the code by `python -m scripts.draw_config`.

Names are Kafka's own where Kafka has one; those that begin with `kctl.` are kctl's. They come from a
`server.properties` as brokers have it (`kctl run --config FILE`; what only concerns brokers is ignored
there), overridden by variables (`KCTL_BROKER_ID` is `broker.id`, `KCTL_HTTP` is `kctl.http`), overridden
by `-o name=value` and by the options of `kctl run`. A value that makes no sense ends `kctl run` with code
2 and a line that says which one. In Python they are the fields of `kctl.Config`, with underscores.

Settings marked *secret* are never logged nor shown; give them in a file or a variable, because others see
the arguments of a process.

| setting | default | meaning |
|---|---|---|
"""

LISTENERS = """
## What may differ from listener to listener

As in Kafka, `listener.name.<listener>.<setting>` (the listener in lower case) goes before `<setting>`,
for these:

"""

VARIABLES = """
Their variables name the listener, too: `listener.name.inner.ssl.key.password` is
`{variable}`; that works for listeners that are among `listeners` or between
brokers.
"""


def page() -> str:
    listed = "\n".join(f"- `{name}`" for name in ON_A_LISTENER)
    variable = variable_of("listener.name.inner.ssl.key.password")
    rows = "\n".join(row(name, field) for name, field in Config.options().items())
    return f"{INTRODUCTION}{rows}\n{LISTENERS}{listed}\n{VARIABLES.format(variable=variable)}"


def row(name: str, field: "attrs.Attribute[Any]") -> str:
    secret = "" if field.repr else " *Secret.*"
    return f"| `{name}` | {shown(field.default)} | {field.metadata['doc']}{secret} |"


def shown(default: object) -> str:
    if isinstance(default, attrs.Factory):  # type: ignore[arg-type]
        return "empty"
    return "`" + " ".join(words(default)) + "`" if default not in (None, "", ()) else "empty"


def words(value: object | Release) -> Iterator[str]:
    if isinstance(value, bool):
        yield str(value).lower()
    elif isinstance(value, tuple):
        for part in value:
            yield from words(part)
    else:
        yield str(value)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
