"""The format of a scenario file: prose, then commands and what they bring about.

    # Prose, at the top or between blocks.

    kill 1
    ----
    read /brokers/ids
    -> 2 LeaderAndIsr orders-0 leader=2 isr=2,3 epoch=1

Blocks are separated by blank lines. A block is one or more commands, `----`, and their output;
without output the `----` is left out.
"""

from collections.abc import Callable, Iterator

import attrs

RULE = "----"


@attrs.frozen
class Prose:
    lines: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(self.lines)


@attrs.frozen
class Block:
    commands: tuple[str, ...]
    output: tuple[str, ...]

    def __str__(self) -> str:
        shown = (RULE, *self.output) if self.output else ()
        return "\n".join((*self.commands, *shown))


def parse(text: str) -> Iterator[Prose | Block]:
    for part in text.split("\n\n"):
        lines = tuple(line for line in part.splitlines() if line.strip())
        if not lines:
            continue
        if all(line.startswith("#") for line in lines):
            yield Prose(lines)
        elif RULE in lines:
            rule = lines.index(RULE)
            yield Block(lines[:rule], lines[rule + 1 :])
        else:
            yield Block(lines, ())


def replay(text: str, run: Callable[[str], list[str]]) -> str:
    """The same file with the output that its commands have now."""
    parts = []
    for part in parse(text):
        if isinstance(part, Block):
            output = tuple(line for command in part.commands for line in run(command))
            parts.append(str(Block(part.commands, output)))
        else:
            parts.append(str(part))
    return "\n\n".join(parts) + "\n"
