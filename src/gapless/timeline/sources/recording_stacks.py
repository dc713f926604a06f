"""From which lines of the program calls came, as a recording tells: stacks by number, and which call has which."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gapless.timeline.sources.columns import Numbering
from gapless.timeline.sources.cupti import NONE, own
from gapless.timeline.sources.recording_format import Block as Type
from gapless.timeline.sources.recording_format import Space
from gapless.timeline.sources.recording_process import Process

Int64: TypeAlias = NDArray[np.int64]

_DEEPEST = 100  # frames kept of a stack, the innermost
_LONGEST = 300  # characters kept of a frame
_NATIVE, _WAITING = 1, 2


def stacks(processes: Sequence[Process], correlation: Int64, strings: Numbering) -> NDArray[np.int32]:
    """Give the stack of each call by its correlation, as rows of ``strings``: innermost first, separated by ";"."""
    ids: list[Int64] = []
    rows: list[Int64] = []
    for process in processes:
        sites = process.rows(Type.CALLSITES)
        if not len(sites):
            continue
        used, row = np.unique(sites["stack"], return_inverse=True)
        texts = _texts(process, used)
        numbers = np.array([strings.of([text])[0] if text else NONE for text in texts], np.int64)
        ids.append(own(np.full(len(sites), process.number, np.int64), sites["correlation"].astype(np.int64)))
        rows.append(numbers[row])
    found = np.full(len(correlation), NONE, np.int32)
    if not ids:
        return found
    known, number = np.concatenate(ids), np.concatenate(rows)
    order = np.argsort(known, kind="stable")  # of several entries for one call the last counts
    known, number = known[order], number[order]
    at = np.searchsorted(known, correlation, side="right") - 1
    told = (at >= 0) & (known[at] == correlation) & (correlation > 0)
    found[told] = number[at[told]]
    return found


def _texts(process: Process, wanted: NDArray[Any]) -> list[str]:
    """Give the text of each stack; later rows of the same stack and depth replace earlier ones."""
    rows = process.rows(Type.STACKS)
    rows = rows[np.isin(rows["stack"], wanted) & (rows["depth"] < _DEEPEST)]
    rows = rows[np.argsort(rows["stack"].astype(np.int64) * _DEEPEST + rows["depth"], kind="stable")]
    frames: dict[int, dict[int, str]] = {}
    for stack, depth, file, function, line, what, address in rows.tolist():
        name = process.text(Space.SOURCE, function)
        if what == _WAITING:
            name = f"{name or '?'} (autograd)"  # which works for this line, while it waits
        frame = _frame(process.text(Space.SOURCE, file), name, line, address, native=what == _NATIVE)
        frames.setdefault(stack, {})[depth] = frame
    return [";".join(frame for _, frame in sorted(frames.get(stack, {}).items()) if frame) for stack in wanted.tolist()]


def _frame(file: str, function: str, line: int, address: int, *, native: bool) -> str:
    """Write one frame: ``train.py(12): step``, ``solver.cu(91): advance``, ``advance``, ``libsolver.so+0x1f2``."""
    if file and line >= 0:
        text = f"{file}({line}): {function or '?'}"
    elif function:
        text = function
    else:
        text = f"{file.rpartition('/')[2]}+{address:#x}" if native and file else ""
    return text[:_LONGEST].replace(";", ",").replace("\n", " ")
