"""Frames of recorded stacks: which is the user's own, and which only says how a library got there."""

from __future__ import annotations

import re
from collections.abc import Sequence

# A frame as profilers write it: "train.py(12): step". The line is where the function begins.
FRAME = re.compile(r"^(?P<file>[^()]+\.\w+|<[^>]+>)\((?P<line>\d+)\): (?P<function>.*)$")
# Frames of libraries say how, not where: the user's own frames are what remains.
LIBRARY = re.compile(
    r"(^|/)(torch|numpy|cupy|numba|triton|jax|tensorflow|transformers|accelerate|lightning|pytorch_lightning|"
    r"site-packages|dist-packages|lib/python3)(/|\.py)|^/usr/(local/cuda|include|lib)|: _*device_stub_|^<|"
    r"^nn\.Module|^(typing|enum|contextlib|threading|functools|logging/"
    r"__init__|abc|inspect|runpy|collections/__init__|asyncio/.*|concurrent/.*|multiprocessing/.*|queue|weakref|copy|os|"
    r"random|json/.*|re/.*|subprocess|selectors|socket|pickle|tempfile|pathlib|warnings|types|dataclasses|importlib/.*)"
    r"\.py\("
)

# Frames of native stacks that are no place of the user's: CUDA, the interpreter, the frameworks, the start of a thread.
_NATIVE = re.compile(
    r"^_*(cuda|cu|cupti|cublas|cublasLt|cudnn|cufft|nccl|nvrtc)[A-Z_]|^_?_?(Py|libc_|start|clone|pthread)|^_start$|^0x"
    r"|^(void )?(at|c10|c10d|torch|pybind11|std|__gnu_cxx|thrust|cub|cutlass)::|^\[|^\?+$"
    r"|^(lib(cuda|cudart|cupti|nv|c|pthread|python|torch|c10|stdc\+\+|gomp|ffi)[-\w.]*\.so|python3?|ld-)"
    r"|^(_?PyEval|_?PyObject|_?PyFunction|method_|cfunction_|slot_tp_|type_call)"
)


def frames(stack: str) -> list[str]:
    """Give the frames of a recorded stack, innermost first."""
    return [text.strip() for text in stack.split(";")] if stack else []


def user_place(stack: str) -> tuple[str, int, str]:
    """Give file, line and function of the user's innermost frame; ``("", 0, function)`` where no line is known."""
    texts = frames(stack)
    for text in texts:
        match = FRAME.match(text)
        if match and not LIBRARY.search(text):
            return match["file"], int(match["line"]), match["function"]
    return "", 0, user_function(texts)


def user_function(texts: Sequence[str]) -> str:
    """Give the innermost function of native frames that is the user's; empty where none is."""
    return next((name for name in map(_native, texts) if name and not _NATIVE.match(name)), "")


def without_arguments(name: str) -> str:
    """Give a C++ function's name alone; what has a space before its parenthesis, or none, stays as it is."""
    end = name.removesuffix(" const")
    if not end.endswith(")"):
        return name
    depth = 0
    for at in range(len(end) - 1, -1, -1):
        depth += (end[at] == ")") - (end[at] == "(")
        if not depth:
            return end[:at] if at and not end[at - 1].isspace() else name
    return name


def _native(frame: str) -> str:
    """Give the function of a native frame without a line, or with one in a library's header; empty for Python's."""
    match = FRAME.match(frame)
    if match is None:
        return frame
    return "" if match["file"].endswith((".py", ">")) or "device_stub_" in frame else match["function"]
