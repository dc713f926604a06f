"""A played tape in a terminal: engines and streams drawn to time, why each engine waits, and what was expected."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from rich.console import Console, ConsoleOptions
from rich.text import Text

from gapless.model.chunk_loop import ChunkLoop
from gapless.model.gaps import Gaps, alike, gaps, held_up
from gapless.model.kinds import CudaError, Engine, OpKind
from gapless.model.schedule import Schedule
from gapless.model.simulation import Simulation
from gapless.timeline.measure import union
from gapless.views import wording
from gapless.views.lanes import LABELS, axis, cells, named
from gapless.views.outcome import draw_expectations, expectations_held, races_found, to_check
from gapless.views.page import COLORS, FAULT, GUTTER, NARROWEST_LANE, WIDEST_LANE, Page, plain
from gapless.views.reasons import call_text, engine_label, longest_chain, op_name, why

MOST_LANES = 16  # streams and threads that are drawn; more are counted
MOST_CAUSES = 4  # of waiting that are told for an engine
_WIDEST_LABEL = 12
_OVERLAP = "overlap"
_ALWAYS = (Engine.H2D, Engine.SM, Engine.D2H)


def to_text(shown: Simulation | Schedule, *, width: int) -> str:
    """Give a played tape or a schedule as plain text, *width* columns wide."""
    return plain(lambda console, options: draw(shown, console, options), width=width)


def draw(
    shown: Simulation | Schedule, console: Console, options: ConsoleOptions, *, machine: str | None = None
) -> Iterator[Text]:
    """Draw one played tape, or a schedule alone, line by line. *machine*: what was asked for instead of the tape's."""
    page = _Page.on(console, options)
    run = shown.schedule if isinstance(shown, Simulation) else shown
    name = shown.name if isinstance(shown, Simulation) else "schedule"
    yield page.title(name, f"machine {run.machine.name}, {_time(run.makespan)}")
    yield from page.whole(shown, machine)


def draw_loop(loop: ChunkLoop, played: Simulation, console: Console, options: ConsoleOptions) -> Iterator[Text]:
    """Draw a chunk loop: what it takes beside the closed forms, then as a tape."""
    page = _Page.on(console, options)
    yield from page.prose(page.text(f"{loop.title()}.", "bold"), indent=0)
    yield Text()
    yield from page.forms(loop, played.schedule)
    yield from page.whole(played)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One line about one of several tapes."""

    name: str
    makespan: int  # ps
    verdict: str
    fails: bool


def summarise(played: Simulation) -> Summary:
    """Say in short how a tape went."""
    return Summary(
        name=played.name,
        makespan=played.schedule.makespan,
        verdict=expectations_held(played),
        fails=not played.ok,
    )


def draw_summaries(summaries: Sequence[Summary], console: Console) -> Iterator[Text]:
    """Draw one line for each tape."""
    page = _Page.on(console)
    verdict = max(len(summary.verdict) for summary in summaries)
    room = max(8, min(page.width - 12 - verdict, max(len(wording.visible(summary.name)) for summary in summaries)))
    for summary in summaries:
        name = wording.shorten(wording.visible(summary.name), room, tail=room * 3 // 4)
        look = FAULT if summary.fails else "dim"
        yield page.line(f"{name:<{room}}  {_time(summary.makespan):>8}  ", "", (summary.verdict, look))


class _Page(Page):
    """Where a played tape is drawn."""

    def whole(self, shown: Simulation | Schedule, machine: str | None = None) -> Iterator[Text]:
        """Draw everything but the title."""
        run, lines = (shown.schedule, shown.lines) if isinstance(shown, Simulation) else (shown, _NO_LINES)
        if run.makespan:
            yield Text()
            yield from self.lanes(run)
            yield Text()
            yield from self.chain(run)
            yield from self.waits(run, lines)
            yield from self.held_up(run, lines)
        yield from self.errors(run, lines)
        if isinstance(shown, Simulation):
            yield from self.races(shown, machine)
            yield from draw_expectations(self, shown)

    def forms(self, loop: ChunkLoop, run: Schedule) -> Iterator[Text]:
        """Say what a chunk loop takes beside what it would take one after another and with all engines busy."""
        serial, pipelined, this = loop.forms()
        rows = [
            ("serial", serial.reads, _time(serial.value or 0), "one stage after another"),
            ("pipelined", pipelined.reads, _time(pipelined.value or 0), "all three engines busy at once"),
            ("this loop", this.reads, _time(run.makespan), this.about),
        ]
        if this.value is not None and abs(run.makespan - this.value) > 1000:  # a machine with costs of its own
            rows[-1:] = [
                ("closed form", this.reads, _time(this.value), this.about),
                ("this loop", "", _time(run.makespan), f"on machine {run.machine.name}"),
            ]
        reads, times = (max(len(row[column]) for row in rows) for column in (1, 2))
        for name, form, time, about in rows:
            yield self.line(f"{name:<11}", "bold", (f"  {form:>{reads}}  {time:>{times}}", ""), (f"  {about}", "dim"))

    def lanes(self, run: Schedule) -> Iterator[Text]:
        """Draw the engines with their use, a time axis, the streams and the host threads."""
        engines, others = engine_lanes(run), stream_lanes(run)
        labels = [label for label, *_ in engines] + [lane.label for lane in others[:MOST_LANES]]
        gutter = max(GUTTER, min(_WIDEST_LABEL, max(map(len, labels))) + 1)
        wide = max(len(_OVERLAP), *(len(figure) for *_, figures in engines for figure in figures))
        figures_wide = 2 * (wide + 2)
        if self.width - gutter - figures_wide < NARROWEST_LANE:
            figures_wide = 0
        room = max(8, min(WIDEST_LANE, self.width - gutter - figures_wide))

        def beside(figures: Sequence[str]) -> str:
            return "".join(f"  {figure:>{wide}}" for figure in figures) if figures_wide else ""

        if figures_wide:
            yield self.line(" " * (gutter + room) + beside(("busy", "")), "dim")
        for label, engine, busy, figures in engines:
            drawn = cells(busy, 0, run.makespan, room, ascii_only=self.ascii_only)
            yield self.row(label, COLORS[engine], drawn, beside(figures), gutter=gutter)
        unit, ticks = axis(0, max(1, run.makespan // 1000), 0, room, ascii_only=self.ascii_only)
        unit = wording.in_ascii(unit) if self.ascii_only else unit
        overlapped = beside((_OVERLAP, wording.percent(run.overlapped() / run.makespan)))
        yield self.row(unit, "dim", Text(f"{ticks:<{room}}", "dim"), overlapped, gutter=gutter)
        for lane in others[:MOST_LANES]:
            label = wording.shorten(wording.visible(lane.label), gutter - 1)
            label = wording.in_ascii(label) if self.ascii_only else label
            yield self.row(label, "", operations(lane, run, room, ascii_only=self.ascii_only), gutter=gutter)
        if len(others) > MOST_LANES:
            yield self.line(f"{'':{gutter}}and {len(others) - MOST_LANES} more", "dim")

    def chain(self, run: Schedule) -> Iterator[Text]:
        """Say what makes the run as long as it is."""
        yield from self.prose(self.foreign(longest_chain(run)), indent=0)

    def waits(self, run: Schedule, lines: NDArray[np.int32]) -> Iterator[Text]:
        """Say for each engine how long it waits, and for what."""
        several = len({info.device for info in run.program.streams}) > 1
        found = list(gaps(run))

        def by_engine(lines: Sequence[int] | NDArray[np.int32]) -> dict[str, list[Gaps]]:
            groups: dict[str, list[Gaps]] = {}
            for group in alike(found, run, lines):
                label = engine_label(run, group.first.engine, group.first.device, several)
                groups.setdefault(label, []).append(group)
            return groups

        told, by_kind = by_engine(lines), by_engine(())
        for label, groups in told.items():
            times = [group.time for group in groups]
            if sum(times[:MOST_CAUSES]) < sum(times) / 2:  # as in a tape with a line for each operation
                told[label] = by_kind[label]
        if not told:
            return
        yield Text()
        yield self.line("Why engines wait", "bold")
        gutter = max(GUTTER, *(len(label) + 1 for label in told))
        counts = max(len(f"×{group.number:,}") for groups in told.values() for group in groups)
        for label, groups in told.items():
            for i, group in enumerate(groups[:MOST_CAUSES]):
                count = f"×{group.number:,}" if group.number > 1 else ""
                shown = f"{label if i == 0 else '':<{gutter}}{_time(group.time):>8}  {count:<{counts}}  "
                yield from self.prose(
                    self.foreign(why(run, group.first, lines)),
                    label=wording.in_ascii(shown) if self.ascii_only else shown,
                    style="",
                    indent=len(shown),
                )
            if rest := groups[MOST_CAUSES:]:
                time = _time(sum(group.time for group in rest))
                yield self.line(f"{'':{gutter}}{time:>8}  for other reasons", "dim")

    def held_up(self, run: Schedule, lines: NDArray[np.int32]) -> Iterator[Text]:
        """Say what a fence or a limit holds up although no engine waits."""
        groups = alike(held_up(run), run, lines)
        if not groups:
            return
        yield Text()
        yield self.line("Held up while the engine works", "bold")
        counts = max(len(f"×{group.number:,}") for group in groups)
        for group in groups[: 2 * MOST_CAUSES]:
            count = f"×{group.number:,}" if group.number > 1 else ""
            shown = f"{'':{GUTTER}}{count:<{counts}}  "
            label = wording.in_ascii(shown) if self.ascii_only else shown
            yield from self.prose(self.foreign(why(run, group.first, lines)), label=label, style="", indent=len(shown))
        if len(groups) > 2 * MOST_CAUSES:
            yield self.line(f"{'':{GUTTER}}and {len(groups) - 2 * MOST_CAUSES:,} more kinds of waits", "dim")

    def errors(self, run: Schedule, lines: NDArray[np.int32]) -> Iterator[Text]:
        """Say which calls failed."""
        failed = np.flatnonzero((run.error != 0) & (run.error != CudaError.NOT_READY)).tolist()
        if not failed:
            return
        yield Text()
        yield self.line("Calls that fail", "bold")
        for row in failed[:MOST_LANES]:
            error = int(run.error[row])
            known = {e.value: e.cuda_name for e in CudaError}
            place = f"line {lines[row]}: " if len(lines) else ""
            said = f"{place}{call_text(run, row)} returns {known.get(error, 'error')} ({error})"
            yield from self.prose(self.foreign(said), indent=GUTTER)
        if len(failed) > MOST_LANES:
            yield self.line(f"{'':{GUTTER}}and {len(failed) - MOST_LANES:,} more", "dim")

    def races(self, played: Simulation, machine: str | None) -> Iterator[Text]:
        """Say that there are races; what they are is the check's matter, of this run on this machine."""
        if played.races.errors:
            yield Text()
            words = self.text(f"{races_found(played)}. ", FAULT)
            words.append_text(self.foreign(f"More: {to_check(played.name, machine, played.replay)}", "dim"))
            yield from self.prose(words, indent=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """What one stream or host thread does: intervals in ps, and for each its name and look."""

    label: str
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    names: Sequence[Sequence[str]]  # of each operation all that it may be called, longest first
    styles: Sequence[str]


def operations(lane: Lane, run: Schedule, room: int, *, ascii_only: bool) -> Text:
    """Draw what a stream or thread does in *room* columns: with names, or where that is too much, how busy it is."""
    drawn = None
    if len(lane.starts) <= room // 2:
        drawn = named(lane.starts, lane.ends, lane.names, 0, run.makespan, room, ascii_only=ascii_only)
    if drawn is None:
        busy = union(lane.starts, lane.ends)
        return Text(cells(busy, 0, run.makespan, room, ascii_only=ascii_only), lane.styles[0])
    line = Text()
    for column, words, op in drawn:
        words = wording.in_ascii(words) if ascii_only else words
        line.append(" " * (column - len(line))).append(words, lane.styles[op])
    return line


_Figures = tuple[str, str]
_T = TypeVar("_T", covariant=True)
_NO_LINES = np.empty(0, np.int32)


def engine_lanes(run: Schedule) -> list[tuple[str, Engine, NDArray[np.int64], _Figures]]:
    """Give for each engine its label, its busy time as intervals, and its figures."""
    issued_by = np.concatenate([np.arange(len(run.program)), run.node_launch])
    devices = np.array([info.device for info in run.program.streams] or [0])
    device_of = devices[np.maximum(run.program.rows.stream[issued_by], 0)]
    used = sorted(set(device_of[run.start >= 0].tolist())) or [0]
    lanes: list[tuple[str, Engine, NDArray[np.int64], _Figures]] = []
    for device in used:
        for engine in LABELS:
            mine = (run.engine == engine) & (device_of == device)
            always = engine in _ALWAYS and not (engine == Engine.D2H and run.machine.shared_copy_engine)
            if mine.any() or always:
                busy = union(run.start[mine], run.end[mine])
                time = int((busy[:, 1] - busy[:, 0]).sum())
                figures = _time(time), wording.percent(time / run.makespan)
                lanes.append((engine_label(run, engine, device, len(used) > 1), engine, busy, figures))
    return lanes


def stream_lanes(run: Schedule) -> list[Lane]:
    """Give what streams and host threads do, in the order of the program; those that do nothing are left out."""
    program, rows = run.program, run.program.rows
    ops = np.flatnonzero((run.end > run.start) & (run.start >= 0))
    ops = ops[(ops >= len(program)) | (rows.op[np.minimum(ops, len(program) - 1)] != OpKind.GRAPH)]
    stream = rows.stream[np.concatenate([np.arange(len(program)), run.node_launch])[ops]]
    lanes = [
        Lane(
            label=info.name,
            starts=run.start[mine],
            ends=run.end[mine],
            names=_Lazy(mine, lambda op: (op_name(run, op),)),
            styles=_Lazy(mine, lambda op: COLORS.get(Engine(int(run.engine[op])), "")),
        )
        for number, info in enumerate(program.streams)
        if len(mine := ops[stream == number])
    ]
    for number, name in enumerate(program.threads):
        mine = np.flatnonzero((rows.thread == number) & (run.returned > run.begin))
        if len(mine):
            lanes.append(
                Lane(
                    label="host" if len(program.threads) == 1 else name,
                    starts=run.begin[mine],
                    ends=run.returned[mine],
                    names=_Lazy(mine, lambda row: _shorter(call_text(run, row))),
                    styles=_Lazy(mine, lambda row: "dim"),
                )
            )
    return lanes


class _Lazy(Sequence[_T]):
    """What is said about numbers, made when asked for: of a million operations few are drawn."""

    def __init__(self, numbers: NDArray[Any], say: Callable[[int], _T]) -> None:
        self._numbers, self._say = numbers, say

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, at: Any) -> Any:
        return self._say(int(self._numbers[at]))


def _shorter(words: str) -> list[str]:
    """Give a text, its first two words and its first."""
    parts = words.split()
    return list(dict.fromkeys((words, " ".join(parts[:2]), parts[0])))


def _time(ps: int) -> str:
    return wording.duration(ps / 1e9)
