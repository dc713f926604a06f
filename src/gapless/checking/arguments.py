"""Which of a kernel's arguments it only reads, by its C++ signature: ``scale(float*, float const*)``."""

from __future__ import annotations

from functools import lru_cache

_CLOSING = {")": "(", ">": "<", "]": "[", "}": "{"}


@lru_cache(maxsize=4096)
def read_only(name: str) -> frozenset[int]:
    """Give the positions of arguments that point to what the kernel may not write; empty where no signature is told."""
    return frozenset(at for at, parameter in enumerate(parameters(name)) if _points_to_const(parameter))


def parameters(name: str) -> list[str]:
    """Give the types of a function's parameters by its name with its signature; empty where it has none."""
    end = name.rfind(")")
    if end < 0:
        return []
    depth, start = 0, end
    while start >= 0:
        depth += (name[start] == ")") - (name[start] == "(")
        if not depth:
            break
        start -= 1
    found, depth, begun = list[str](), 0, start + 1
    for at in range(start + 1, end):
        letter = name[at]
        if letter in _CLOSING:
            depth -= 1
        elif letter in _CLOSING.values():
            depth += 1
        elif letter == "," and not depth:
            found.append(name[begun:at].strip())
            begun = at + 1
    last = name[begun:end].strip()
    return [*found, last] if last or found else []


def _points_to_const(parameter: str) -> bool:
    """Tell whether a type is a pointer to const: ``float const*``, ``const float *__restrict__``."""
    before, star, after = parameter.rpartition("*")
    words = before.replace("*", " * ").split()
    plain_after = not after.replace("const", "").replace("__restrict__", "").replace("__restrict", "").strip()
    return bool(star) and plain_after and "*" not in words and "const" in (words[:1] + words[-1:])
