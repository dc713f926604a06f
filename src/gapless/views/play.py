"""A played tape as it happens: lanes that fill in, what each engine works on, and what it waits for, in a terminal."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator

import numpy as np
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from gapless.model.gaps import Gap, gaps
from gapless.model.kinds import Engine
from gapless.model.simulation import Simulation
from gapless.views import wording
from gapless.views.lanes import axis, cells
from gapless.views.page import COLORS, GUTTER, WIDEST_LANE, Page
from gapless.views.reasons import engine_label, op_name, why
from gapless.views.schedule import MOST_LANES, engine_lanes, operations, stream_lanes

SECONDS = 8.0  # that a run takes on the screen, however long it is
FRAMES = 25  # a second
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_WIDEST_LABEL = 12
_AROUND = 6  # lines beside lanes and engines: title, axis, two empty ones, how many lanes more, and one to spare


def play(
    shown: Simulation, console: Console, *, clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> None:  # fmt: skip
    """Animate a run where the console is a terminal that can move its cursor; elsewhere do nothing.

    Leaves nothing on the screen: the drawing of the whole run is what should follow.
    """
    run = shown.schedule
    if not console.is_terminal or console.is_dumb_terminal or not run.makespan:
        return
    film, width = Film(shown, Page.on(console), console.height), console.width
    began = clock()
    with Live(console=console, auto_refresh=False, transient=True, vertical_overflow="crop") as live:
        while (passed := clock() - began) < SECONDS:
            if console.width != width:  # the window was resized
                film, width = Film(shown, Page.on(console), console.height), console.width
            live.update(Group(*film.frame(int(run.makespan * passed / SECONDS))), refresh=True)
            sleep(1 / FRAMES)


class Film:
    """The whole run drawn once, of which each frame shows the part that has happened."""

    def __init__(self, shown: Simulation, page: Page, height: int) -> None:
        self._page, self._name, self._run = page, shown.name, shown.schedule
        run, lines = shown.schedule, shown.lines
        engines, others = engine_lanes(run), stream_lanes(run)
        shown_at_most = max(1, min(MOST_LANES, height - 2 * len(engines) - _AROUND))
        self._more = max(0, len(others) - shown_at_most)
        others = others[:shown_at_most]
        labels = [label for label, *_ in engines] + [lane.label for lane in others]
        self._gutter = max(GUTTER, min(_WIDEST_LABEL, max(map(len, labels))) + 1)
        self._room = max(8, min(WIDEST_LANE, page.width - self._gutter))
        self._engines = [(label, COLORS[engine], busy) for label, engine, busy, _ in engines]
        self._whole = [
            cells(busy, 0, run.makespan, self._room, ascii_only=page.ascii_only) for *_, busy in self._engines
        ]
        self._others = [
            (lane.label, operations(lane, run, self._room, ascii_only=page.ascii_only)) for lane in others
        ]  # fmt: skip
        unit, ticks = axis(0, max(1, run.makespan // 1000), 0, self._room, ascii_only=page.ascii_only)
        self._axis = page.row(
            unit if not page.ascii_only else wording.in_ascii(unit), "dim", ticks, gutter=self._gutter
        )
        several = len({info.device for info in run.program.streams}) > 1
        self._gaps: dict[str, list[Gap]] = {}
        for gap in gaps(run):
            self._gaps.setdefault(engine_label(run, gap.engine, gap.device, several), []).append(gap)
        self._why = lambda gap: why(run, gap, lines)
        self._working = _Working(shown, several)

    def frame(self, now: int) -> Iterator[Text]:
        """Draw the run as it is at *now*, in ps from its start."""
        run, page = self._run, self._page
        yield page.title(self._name, f"{wording.duration(now / 1e9)} of {wording.duration(run.makespan / 1e9)}")
        yield Text()
        eighths = now * self._room * 8 // run.makespan
        for (label, style, busy), drawn in zip(self._engines, self._whole, strict=True):
            yield page.row(label, style, self._until(busy, drawn, now, eighths), gutter=self._gutter)
        yield self._axis
        for label, drawn in self._others:
            shown = wording.shorten(wording.visible(label), self._gutter - 1)
            shown = wording.in_ascii(shown) if page.ascii_only else shown
            yield page.row(shown, "", drawn[: -(-eighths // 8)], gutter=self._gutter)
        if self._more:
            yield page.line(f"{'':{self._gutter}}and {self._more} more", "dim")
        yield Text()
        for label, style, _ in self._engines:
            doing = wording.shorten(self._doing(label, now), page.width - self._gutter, tail=0)
            yield page.line(f"{label:<{self._gutter}}", style, (doing, ""))

    def _until(self, busy: np.ndarray, drawn: str, now: int, eighths: int) -> str:
        """Cut an engine's lane at *now*; a cell that fills just now grows by eighths from its left edge."""
        whole, part = divmod(eighths, 8)
        if not part:
            return drawn[:whole]
        at = np.searchsorted(busy[:, 0], now, side="right") - 1
        working = at >= 0 and busy[at, 1] > now
        if not working:
            return (
                drawn[: whole + 1]
                if at >= 0 and busy[at, 1] * self._room > whole * self._run.makespan
                else drawn[:whole]
            )
        edge = _EIGHTHS[part] if not self._page.ascii_only else drawn[whole]
        return drawn[:whole] + edge

    def _doing(self, label: str, now: int) -> str:
        """Say what an engine works on, or what it waits for."""
        names = self._working.at(label, now)
        if names:
            return wording.visible(", ".join(names[:3])) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        waits = self._gaps.get(label, [])
        at = bisect_right(waits, now, key=lambda gap: gap.start) - 1
        if at >= 0 and now < waits[at].end:
            return f"idle: {self._why(waits[at])}"
        return "idle" if now < self._run.makespan else "done"


class _Working:
    """Which operations an engine works on at a time."""

    def __init__(self, shown: Simulation, several: bool) -> None:
        run = self._run = shown.schedule
        issued_by = np.concatenate([np.arange(len(run.program)), run.node_launch])
        devices = np.array([info.device for info in run.program.streams] or [0])
        device = devices[np.maximum(run.program.rows.stream[issued_by], 0)]
        ops = np.flatnonzero((run.start >= 0) & (run.end > run.start) & (run.engine >= 0))
        self._ops: dict[str, np.ndarray] = {}
        for number, engine in {(int(device[op]), int(run.engine[op])) for op in ops.tolist()}:
            mine = ops[(device[ops] == number) & (run.engine[ops] == engine)]
            self._ops[engine_label(run, Engine(engine), number, several)] = mine[
                np.argsort(run.start[mine], kind="stable")
            ]

    def at(self, label: str, now: int) -> list[str]:
        ops = self._ops.get(label)
        if ops is None:
            return []
        return [
            op_name(self._run, op) for op in ops[(self._run.start[ops] <= now) & (self._run.end[ops] > now)].tolist()
        ]
