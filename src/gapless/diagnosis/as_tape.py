"""A replayed run as a tape, with a machine file beside it: a program that can be played, changed and shared.

A tape has no words for what one call costs, for the shape of a kernel or for how its last blocks end, so the host's
time stands on lines of its own, and a kernel has the share of the GPU that its blocks need and the time that it took in
the replay. The rest is the replayed program call by call.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gapless.model.columns import ROW_DTYPES
from gapless.model.errors import GaplessError
from gapless.model.kinds import CallKind, MemoryKind, OpKind
from gapless.model.machine import Machine
from gapless.model.program import Program
from gapless.model.schedule import Schedule
from gapless.model.tape_writer import write
from gapless.model.things import Grid
from gapless.timeline.sinks import files

from .replay import LAST_RETURN, PS, Run
from .report import Report

_HEAD = f"# {files.MARK}, and replaced by it only as long as nothing is changed: "
_SHARES = 1000  # shares of the GPU are rounded up to so many parts
_FREE = {"launch_cost": "0us", "call_cost": "0us", "record_cost": "0us", "sync_return": "0us", "copy_overhead": "0us"}
_UNUSED = ("call_costs", "late_costs", "staging_curve", "launch_contention")


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedTape:
    """What ``save`` wrote."""

    tape: Path
    machine: Path

    def may_go(self, target: Path) -> bool:
        """Tell whether one of the two is empty, or both are as ``save`` wrote them."""
        if not target.stat().st_size:
            return True
        try:
            head, text = self.tape.read_text(encoding="utf-8").split("\n", 1)
            return head == _HEAD + _sum(text, self.machine.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return False


def check_name(path: str | Path) -> SavedTape:
    """Give where ``save`` would write. Raises GaplessError for a name that does not end in ``.tape``, and for what is
    there already and is not as ``save`` wrote it: a tape is there to be changed, and what was changed is the user's.
    """
    tape = Path(path)
    if tape.suffix != ".tape":
        raise GaplessError(f"{path} is no name for a tape. Its name ends in .tape, such as repaired.tape.")
    saved = SavedTape(tape=tape, machine=tape.with_suffix(".machine.json"))
    for target in (saved.tape, saved.machine):
        files.check(target, replace=saved.may_go)
    return saved


def save(run: Run, path: str | Path, *, about: Sequence[str] = ()) -> SavedTape:
    """Write a run as a tape, and its machine as ``NAME.machine.json`` beside it; *about* stands in the tape's head.

    Raises GaplessError as ``check_name`` does, and where the folder cannot be written to.
    """
    saved = check_name(path)
    program = _tape_program(run)
    text = "".join(f"# {line}\n" for line in (*about, *_LEFT_OUT)) + "\n" + write(program, f'"{saved.machine.name}"')
    machine = _tape_machine(run.schedule.machine).to_json() + "\n"
    text = f"{_HEAD}{_sum(text, machine)}\n{text}"
    files.write_all({saved.machine: [machine.encode()], saved.tape: [text.encode()]}, replace=saved.may_go)
    return saved


def _sum(text: str, machine: str) -> str:
    return f"{zlib.crc32((text + machine).encode()):08x}"


def about(report: Report) -> tuple[str, ...]:
    """Say what the tape of a report's predicted program is; for its head."""
    prediction, run = report.prediction, report.repaired
    if prediction is None or run is None:
        raise GaplessError("the report holds no predicted program; ask for one with repairs to apply")
    source = " ".join(Path(report.source).name.split())
    lines = [f"{source} with {', '.join(prediction.repairs)}, as gapless predicts it: {prediction.wall_ms:.6g} ms,",
             f"{prediction.speedup:.4g} times as fast ({prediction.low:.4g} to {prediction.high:.4g})."]  # fmt: skip
    own = run.host_wall / 1e6
    if abs(own / prediction.wall_ms - 1) > 0.001:
        is_part = all(replayed.window != report.window for replayed in report.replays)
        lines.append(
            f"The tape is a stretch from the middle of the run: {own:.6g} ms of it."
            if is_part
            else f"The tape holds the operations of the window, those that it cuts as wholes: {own:.6g} ms."
        )
    last = int(run.schedule.end[run.acts].max()) // PS + LAST_RETURN  # ns; the host may go on for longer
    held = last / 1e6 - own
    if held > 0.01 * own:
        lines.append(f"Before it, the device is busy for {held:.6g} ms with what was issued earlier.")
    return tuple(lines)


# The columns of a call that is about nothing.
_NOTHING: Mapping[str, int] = {
    "op": -1, "stream": -1, "object": -1, "bytes": -1, "cost": -1, "src": 0, "dst": 0, "grid": -1, "name": -1,
}  # fmt: skip
_LEFT_OUT = (
    "What a tape cannot say: which buffers the operations use (the timeline does not show them, so races cannot be",
    "checked); the shape of a kernel's end (a kernel takes here the time by which it kept the next one waiting); what",
    "each call costs the host (it stands before the call as host time).",
)


def _tape_machine(machine: Machine) -> Machine:
    """The same machine with calls that cost nothing: the tape says what the host spends."""
    free = machine.with_knobs(**_FREE)
    return free.with_knobs(**{name: [] if name.endswith("curve") or name == "launch_contention" else {}
                              for name in _UNUSED})  # fmt: skip


def _tape_program(run: Run) -> Program:
    """Write the program with the words that a tape has."""
    old = run.schedule.program
    new = Program(old.default_stream)
    new.threads, new.streams, new.events = list(old.threads), list(old.streams), list(old.events)
    new._default_streams = dict(old._default_streams)
    names = [_short(text) for text in old.strings]
    new.strings = names
    shares = {Fraction(1): 0}
    columns: dict[str, list[int]] = {name: getattr(old.rows, name).tolist() for name in ROW_DTYPES}
    grids = _shares(old, run.schedule.machine)
    times = _kernel_times(run.schedule, [float(share) for share in grids])
    ends = _last_work(old)
    out: dict[str, list[int]] = {name: [] for name in ROW_DTYPES}

    def put(row: int, **changed: int) -> None:
        for name, column in out.items():
            column.append(changed.get(name, columns[name][row]))

    def host(row: int, time: int) -> None:
        if time > 0:
            put(row, call=CallKind.HOST_WORK, duration=time, **_NOTHING)

    for row in range(len(old)):
        thread, op = columns["thread"][row], columns["op"][row]
        if row > ends.get(thread, -1):
            continue
        if columns["call"][row] == CallKind.HOST_WORK:
            host(row, columns["duration"][row])
            continue
        host(row, columns["cost"][row])
        if op == OpKind.KERNEL:
            share = grids[columns["grid"][row]]
            if share not in shares:
                shares[share] = len(new.grids)
                new.grids.append(Grid(1, share))
            put(row, cost=-1, duration=times.get(row, columns["duration"][row]), grid=shares[share], bytes=-1)
        elif columns["call"][row] == CallKind.COPY_SYNC and old.streams[columns["stream"][row]].created:
            put(row, call=CallKind.COPY_ASYNC, cost=-1, **_sides(op, columns, row))
            put(row, call=CallKind.SYNC_STREAM, **{**_NOTHING, "duration": -1, "stream": columns["stream"][row]})
        elif columns["call"][row] in (CallKind.MEMSET_SYNC, CallKind.MEMSET_ASYNC):
            plain = not old.streams[columns["stream"][row]].created and columns["call"][row] == CallKind.MEMSET_SYNC
            put(row, call=CallKind.MEMSET_SYNC if plain else CallKind.MEMSET_ASYNC, cost=-1, src=0,
                dst=MemoryKind.DEVICE)  # fmt: skip
        else:
            put(row, cost=-1, **_sides(op, columns, row))
    for _, end in sorted(ends.items()):
        put(end, call=CallKind.SYNC_DEVICE, duration=-1, **_NOTHING)
        host(end, LAST_RETURN * PS)
    new.extend(**out)
    return new


def _sides(op: int, columns: dict[str, list[int]], row: int) -> dict[str, int]:
    """Give both sides of a copy as a tape knows them: host memory that is neither pinned nor pageable is pinned."""
    known = (MemoryKind.PINNED, MemoryKind.PAGEABLE)
    if op == OpKind.H2D:
        src = columns["src"][row]
        return {"src": src if src in known else MemoryKind.PINNED, "dst": MemoryKind.DEVICE}
    if op == OpKind.D2H:
        dst = columns["dst"][row]
        return {"src": MemoryKind.DEVICE, "dst": dst if dst in known else MemoryKind.PINNED}
    if op == OpKind.H2H:
        return {"src": MemoryKind.PINNED, "dst": MemoryKind.PINNED}
    return {"second": 0} if op == OpKind.P2P else {}


def _last_work(program: Program) -> dict[int, int]:
    """The last row of each thread that puts work into a stream; what the host does after it is not on the tape."""
    rows = program.rows
    works = np.flatnonzero((rows.op >= 0) & ~np.isin(rows.op, (OpKind.RECORD, OpKind.WAIT)))
    return dict(zip(rows.thread[works].tolist(), works.tolist(), strict=True))


def _shares(program: Program, machine: Machine) -> list[Fraction]:
    """The share of the GPU that each grid of the program takes while it runs."""
    shares: list[Fraction] = []
    for grid in program.grids:
        if grid.block is not None or machine.sms is None:
            shares.append(Fraction(1))
            continue
        needs = ((1, machine.blocks_per_sm), (grid.threads, machine.threads_per_sm),
                 (grid.registers * grid.threads, machine.regs_per_sm), (grid.shared, machine.smem_per_sm))  # fmt: skip
        of_an_sm = min(1.0, max(need / has for need, has in needs if has))
        whole = grid.blocks * of_an_sm / machine.sms
        shares.append(Fraction(min(_SHARES, max(1, round(whole * _SHARES))), _SHARES))
    return shares


def _kernel_times(schedule: Schedule, shares: list[float]) -> dict[int, int]:
    """How long each kernel took (ps), counted from where the one before left it its SMs."""
    rows = schedule.program.rows
    kernels = np.flatnonzero((rows.op == OpKind.KERNEL) & (schedule.start[: len(schedule.program)] >= 0))
    kernels = kernels[np.argsort(schedule.end[kernels], kind="stable")]
    share = np.array(shares)[rows.grid[kernels]]
    start, end = schedule.start[kernels], schedule.end[kernels]
    before: NDArray[np.int64] = np.concatenate(([np.iinfo(np.int64).min], end[:-1]))
    crowded = np.concatenate(([False], share[1:] + share[:-1] > 1))
    time = np.where(crowded, end - np.maximum(start, before), end - start)
    return dict(zip(kernels.tolist(), np.maximum(time, 0).tolist(), strict=True))


def _short(name: str) -> str:
    """The bare name of a kernel: no return type, namespaces, template or arguments."""
    bare = re.split(r"[<(]", name.removeprefix("void "), maxsplit=1)[0]
    return bare.rsplit("::", 1)[-1].strip()[:60] or "kernel"


__all__ = ["SavedTape", "about", "save"]
