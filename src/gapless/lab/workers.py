"""Workers: processes that do one job at a time, and are ended where it takes too long or nobody waits for it."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from gapless.lab.worker import LENGTH

AT_ONCE = 2  # jobs; more wait for their turn
_ENDED = "the process that worked on this has ended before it was done"


class TooLongError(Exception):
    """A job took longer than it may."""


class Workers:
    """A few workers, started when there is work for them and kept for more. What they write goes into a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._idle: list[Process] = []
        self._all: set[Process] = set()
        self._turn = asyncio.Semaphore(AT_ONCE)

    async def do(self, job: dict[str, Any], *, within: float, keep: bool = True) -> bytes:
        """Give the answer to a job as JSON. Raises ``TooLongError`` after so many seconds.

        Where the caller is cancelled its worker ends too; without *keep* it ends in any case, and gives back the memory
        that it took.
        """
        async with self._turn:
            worker = await self._started()
            try:
                async with asyncio.timeout(within):
                    answer = await _answer(worker, msgspec.json.encode(job))
            except TimeoutError:
                raise TooLongError from None
            except (asyncio.IncompleteReadError, ConnectionError):  # the system ended it, most likely for its memory
                return msgspec.json.encode({"error": {"said": _ENDED}})
            else:
                if keep:
                    self._idle.append(worker)
                    worker = None
                return answer
            finally:
                if worker is not None:
                    await self._end(worker)

    async def warm(self) -> None:
        """Start one worker before there is work for it."""
        self._idle.append(await self._started())

    async def close(self) -> None:
        """End all workers."""
        for worker in tuple(self._all):
            await self._end(worker)

    async def _started(self) -> Process:
        while self._idle:
            worker = self._idle.pop()
            if worker.returncode is None:
                return worker
            await self._end(worker)
        worker = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "gapless.lab.worker", stdin=PIPE, stdout=PIPE,
            env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "TMPDIR": str(self._folder)},
        )  # fmt: skip
        self._all.add(worker)
        try:
            await _read(worker)  # it has loaded what it needs; the time for a job begins now
        except asyncio.IncompleteReadError:
            pass  # whoever gives it a job will see that it has ended
        except asyncio.CancelledError:
            await self._end(worker)
            raise
        return worker

    async def _end(self, worker: Process) -> None:
        with suppress(ProcessLookupError):
            worker.kill()
        if worker.stdin is not None:
            worker.stdin.close()
        await asyncio.shield(worker.wait())
        self._all.discard(worker)


async def _answer(worker: Process, job: bytes) -> bytes:
    assert worker.stdin is not None
    worker.stdin.write(LENGTH.pack(len(job)) + job)
    await worker.stdin.drain()
    return await _read(worker)


async def _read(worker: Process) -> bytes:
    assert worker.stdout is not None
    head = await worker.stdout.readexactly(LENGTH.size)
    return await worker.stdout.readexactly(LENGTH.unpack(head)[0])
