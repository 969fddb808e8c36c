"""How much memory a process, or one value with all that it holds, takes."""

import resource
import sys
from collections.abc import Mapping

import attrs


def resident_bytes() -> int:
    with open("/proc/self/statm") as statm:  # noqa: PTH123 a pseudo file
        return int(statm.read().split()[1]) * resource.getpagesize()


def deep_size(root: object) -> int:
    """Each object once, by sys.getsizeof, which counts the collector's header too."""
    seen: set[int] = set()
    total = 0
    stack: list[object] = [root]
    while stack:
        value = stack.pop()
        if id(value) in seen or isinstance(value, type):
            continue
        seen.add(id(value))
        total += sys.getsizeof(value)
        if isinstance(value, Mapping):
            stack += value.keys()
            stack += value.values()
        elif isinstance(value, tuple):
            stack += value
        elif hasattr(value, "__struct_fields__"):
            stack += (getattr(value, name) for name in value.__struct_fields__)
        elif attrs.has(kind := type(value)):
            stack += (getattr(value, f.name) for f in attrs.fields(kind))
    return total
