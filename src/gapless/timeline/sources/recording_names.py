"""Names that CUPTI leaves raw: kernels as the compiler mangled them, the profiler's own work as numbers."""

from __future__ import annotations

import re

_LENGTH = re.compile(r"\d+")

# What CUPTI itself does. Its other overheads (loading of modules, full command buffers) cost a program without it too.
OVERHEADS = {
    1 << 16: "CUPTI: flushing buffers",
    2 << 16: "CUPTI: instrumentation",
    3 << 16: "CUPTI: its resources",
    7 << 16: "CUPTI: asking for a buffer",
    8 << 16: "CUPTI: starting to watch managed memory",
}


def plain(mangled: str) -> str:
    """Give the name in a mangled one, without arguments: ``_Z5scalePf`` is ``scale``, ``_ZN2at3addIfEEvv`` ``at::add``.

    What is not mangled, or not so simple, stays as it is.
    """
    if not mangled.startswith("_Z"):
        return mangled
    at, nested, parts = 2, False, list[str]()
    if mangled.startswith("N", at):
        at, nested = at + 1, True
    while at < len(mangled):
        if mangled.startswith("St", at):
            parts.append("std")
            at += 2
        elif mangled[at] in "LKVr" and not parts:  # of a nested name: const and the like; of the name: internal linkage
            at += 1
        elif found := _LENGTH.match(mangled, at):
            length, at = int(found[0][:6]), found.end()
            part = mangled[at : at + length]
            if len(part) < length or not part.isidentifier():
                return mangled
            parts.append("(anonymous namespace)" if part.startswith("_GLOBAL__N") else part)
            at += length
            if not nested:
                break
        else:
            break
    return "::".join(parts) or mangled
