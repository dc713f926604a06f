"""The process that plays and explains for the page, so that nothing a page asks for can hold up or bring down the lab.

One job comes in on standard input, one answer goes out on standard output, each as its length and JSON; the process
ends when its input does. Its memory is bounded; how long a job may take is the business of whoever waits for it.
"""

from __future__ import annotations

import os
import signal
import struct
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

MOST_MEMORY = 4 << 30  # bytes of address space for playing a tape
LENGTH = struct.Struct(">I")


def main() -> None:
    """Answer jobs until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the lab's matter: it closes this process's input
    jobs, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever else prints does not print into an answer
    import gapless.lab.played  # noqa: F401  # loaded before the first job, whose time is counted

    answer = b"{}"  # ready
    while True:
        answers.write(LENGTH.pack(len(answer)) + answer)
        answers.flush()
        if not (body := _read(jobs)):
            return
        answer = _answer(body)


def _read(jobs: BinaryIO) -> bytes:
    head = jobs.read(LENGTH.size)
    return jobs.read(LENGTH.unpack(head)[0]) if len(head) == LENGTH.size else b""


def _answer(body: bytes) -> bytes:
    job = msgspec.json.decode(body)
    try:
        return msgspec.json.encode(_explain(**job["explain"]) if "explain" in job else _play(job["play"]))
    except MemoryError:
        said = "this takes more memory than the lab gives it"
    except Exception as fault:
        said = f"gapless itself failed ({type(fault).__name__}: {fault}). Please report it."
    return msgspec.json.encode({"error": {"said": said}})


def _play(asked: str) -> dict[str, Any]:
    from gapless.lab.asked import understand
    from gapless.lab.played import play
    from gapless.model.errors import GaplessError

    _bound_memory()
    try:
        return play(understand(asked.encode()))
    except GaplessError as problem:
        return {"error": {"said": str(problem)}}


def _explain(*, file: str, name: str, page: str, url: str) -> dict[str, Any]:
    """Explain the timeline in a file, and write its page, which is served under a URL."""
    from gapless.lab.explained import explain_to_page
    from gapless.model.errors import GaplessError

    try:
        return {"page": url, **explain_to_page(Path(file), name, Path(page))}
    except GaplessError as problem:
        said = str(problem).replace(file, name).replace(str(Path(file).with_suffix("")), Path(name).stem)
        return {"error": {"said": said}}


def _bound_memory() -> None:
    with suppress(ImportError, ValueError, OSError):  # not known everywhere
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        most = MOST_MEMORY if hard == resource.RLIM_INFINITY else min(MOST_MEMORY, hard)
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))


if __name__ == "__main__":
    main()
