"""Lanes as an SVG picture for documents: engines and their use, streams, host threads, a time axis, what was found.

The picture stands alone: plain shapes and words, no styles, scripts or fonts of its own, a title and a description for
who cannot see it. Its classes (``paper``, ``ink``, ``faint``) let a page recolour it where it is put into one.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape, quoteattr

import numpy as np
from numpy.typing import NDArray

from gapless.model.errors import GaplessError
from gapless.model.extras import install_line
from gapless.timeline.events import waits_for_records
from gapless.timeline.measure import clip, density, time_at_depth, union
from gapless.timeline.sinks import Note
from gapless.timeline.sinks.files import MARK
from gapless.timeline.timeline import MarkKind, Timeline
from gapless.views import wording
from gapless.views.lanes import scales, tick_step
from gapless.views.palette import EVENT, FAINT, FINDING, INK, PAPER, WORDS
from gapless.views.picture_lanes import Lane, clean, engine_lanes, stream_lanes, thread_lanes
from gapless.views.tracks import packed

MOST_NOTES = 3
WIDTH = 960

_LEFT, _RIGHT, _TOP = 104, 68, 34  # px beside and above the lanes
_LANE, _GAP, _BLOCK_GAP = 22, 4, 12
_FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
_CHARACTER = 6.4  # px that a character of a label takes at most, at 11 px
_SMALL = 1.5  # px: narrower operations are drawn by how full a pixel is
_MOST_MARKS = 60  # records and arrows
_MOST_TRACKS, _TRACK = 4, 13  # operations of a lane at one time, under each other, and the px that each takes
_TOLD = 400  # operations a picture tells apart by name when a pointer rests on them


def svg(timeline: Timeline, *, window: tuple[int, int] | None = None, notes: Sequence[Note] = ()) -> str:
    """Draw a timeline as SVG, from ``window[0]`` to ``window[1]`` ns on its clock, by default all work on devices.

    *notes* (findings) are marked under the engines and told below. Raises ``GaplessError`` where there is nothing to
    draw.
    """
    start, end = window or _whole(timeline)
    if end <= start or not len(timeline.ops):
        raise GaplessError(f"{timeline.source or 'The timeline'}: nothing worked on a device, so there is no picture.")
    return _Picture(timeline, start, end, notes).text()


def png(picture: str) -> bytes:
    """Give an SVG picture as PNG, two pixels for one. Raises ``GaplessError`` where the extra or all fonts are missing.

    The ink is drawn by resvg, of the extra ``png``.
    """
    try:
        from resvg_py import svg_to_bytes
    except ImportError:
        raise GaplessError(
            f"Drawing PNG takes the extra png. Install it: {install_line('png')}\nOr write SVG."
        ) from None
    words, nothing = (f'<svg xmlns="http://www.w3.org/2000/svg" width="20" height="20">{inner}</svg>'
                      for inner in (f'<text y="15" font-family={quoteattr(_FONT)}>M</text>', ""))  # fmt: skip
    if bytes(svg_to_bytes(svg_string=words)) == bytes(svg_to_bytes(svg_string=nothing)):
        raise GaplessError(
            "No font was found on this machine: the picture would have no words. Install one (Debian: apt install "
            "fonts-dejavu-core), or write SVG."
        )
    drawn = bytes(svg_to_bytes(svg_string=picture, zoom=2))
    about = b"tEXt" + b"Software\0" + MARK.encode("latin-1")
    chunk = (len(about) - 4).to_bytes(4, "big") + about + zlib.crc32(about).to_bytes(4, "big")
    return drawn[:33] + chunk + drawn[33:]  # behind the signature and the first chunk, IHDR


def _whole(timeline: Timeline) -> tuple[int, int]:
    """Give the stretch that is worth a picture: all device work, and in a played tape the host's part of it."""
    start, end = timeline.window()
    if timeline.format == "simulated" and len(timeline.calls):
        return 0, max(end, int(timeline.calls.end.max()))
    return start, end


class _Picture:
    """One picture in the making."""

    def __init__(self, timeline: Timeline, start: int, end: int, notes: Sequence[Note]) -> None:
        self._timeline, self._start, self._end = timeline, start, end
        self._origin = 0 if timeline.format == "simulated" else timeline.window()[0]
        self._room = WIDTH - _LEFT - _RIGHT
        self._notes = [note for note in notes if len(note.spans)][:MOST_NOTES]
        self._name = clean(timeline.source.rpartition("/")[2])
        self._parts: list[str] = []
        self._y = _TOP
        self._few = len(timeline.ops) <= _TOLD

    def text(self) -> str:
        """Draw everything."""
        engines = list(engine_lanes(self._timeline, self._start, self._end))
        self._words(_LEFT + self._room + 8, self._y - 8, "busy", "faint")
        for lane in engines:
            self._lane(lane)
        for number, note in enumerate(self._notes, 1):
            self._marks(number, note)
        self._axis(self._y)
        self._y += 22
        streams, more = stream_lanes(self._timeline)
        middles: dict[int, float] = {}  # of each stream's lane, in px
        for number, lane in streams.items():
            middles[number] = self._y + _LANE / 2
            self._lane(lane)
        self._events(middles)
        if more:
            self._words(_LEFT, self._y + 12, f"and {more} more streams", "faint")
            self._y += 18
        threads = list(thread_lanes(self._timeline, self._start, self._end))
        self._y += _BLOCK_GAP if threads else 0
        for lane in threads:
            self._lane(lane, thin=True)
        for number, note in enumerate(self._notes, 1):
            self._words(8, self._y + 16, str(number), "ink", bold=True)
            self._words(_LEFT, self._y + 16, wording.shorten(clean(note.name), 120), "ink")
            self._y += 18
        return self._framed(self._about(engines))

    def _about(self, engines: Sequence[Lane]) -> str:
        busy = ", ".join(f"{lane.label} {lane.figure}" for lane in engines)
        timeline, window = self._timeline, (self._start, self._end)
        sets = [union(lane.starts, lane.ends) for lane in engines]
        depths = time_at_depth(*sets, start=window[0], end=window[1])
        overlapped = sum(depths[2:]) / (window[1] - window[0])
        seen = wording.plural(len(timeline.ops), "operation")
        used = wording.plural(len({*timeline.ops.stream.tolist()}), "stream")
        found = "".join(f" Found: {note.name}." for note in self._notes)
        return (
            f"{_time(window[1] - window[0])} of {seen} in {used}. "
            f"Busy: {busy}; at least two at once {wording.percent(overlapped)}.{found}"
        )

    def _framed(self, about: str) -> str:
        height = self._y + 10
        title = f"Timeline of {self._name or 'a run'}"
        inner = "\n".join(self._parts)
        own = f"{zlib.crc32(inner.encode()):08x}"  # so that several pictures can stand in one page
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
            f'role="img" aria-labelledby="t{own} d{own}" font-family={quoteattr(_FONT)} font-size="11">\n'
            f'<title id="t{own}">{escape(title)}</title>\n<desc id="d{own}">{escape(clean(about))}</desc>\n'
            f"<!-- {MARK} -->\n"
            f'<rect class="paper" width="{WIDTH}" height="{height}" fill="{PAPER}"/>\n'
            f'<text class="ink" x="8" y="18" font-size="13" font-weight="600" fill="{INK}">'
            f"{escape(self._heading())}</text>\n{inner}\n</svg>\n"
        )

    def _heading(self) -> str:
        devices = [device.name for device in self._timeline.devices if device.name]
        facts = [wording.shorten(self._name, 70, tail=50), *dict.fromkeys(devices), _time(self._end - self._start)]
        return " · ".join(clean(fact) for fact in facts if fact)

    # Pieces

    def _words(self, x: float, y: float, words: str, look: str, *, size: int = 11, bold: bool = False) -> None:
        color = {"ink": INK, "faint": FAINT}[look]
        more = ' font-weight="600"' * bold + (f' font-size="{size}"' if size != 11 else "")
        self._parts.append(
            f'<text class="{look}" x="{x:.4g}" y="{y:.4g}" fill="{color}"{more}>{escape(words)}</text>'
        )  # fmt: skip

    def _x(self, ns: int | NDArray[np.int64]) -> NDArray[np.float64]:
        return _LEFT + np.clip((np.asarray(ns) - self._start) / (self._end - self._start), 0, 1) * self._room

    def _lane(self, lane: Lane, *, thin: bool = False) -> None:
        """Draw one lane: what can be seen one by one as bars, the rest by how full each pixel is."""
        inside = (lane.ends > self._start) & (lane.starts < self._end)
        left, right = self._x(lane.starts), self._x(lane.ends)
        wide = inside & (right - left >= _SMALL)
        track = np.zeros(len(wide), np.int64)
        track[wide] = packed(lane.starts[wide], lane.ends[wide], _MOST_TRACKS)
        tracks = 1 + int(track.max(initial=0))
        height = _LANE - 6 * thin if tracks == 1 else _TRACK * tracks
        self._words(8, self._y + height / 2 + 4, wording.shorten(lane.label, 15), "ink", bold=not thin)
        self._parts.append(
            f'<rect class="faint" x="{_LEFT}" y="{self._y + height}" width="{self._room}" height="1" fill="{FAINT}" '
            f'fill-opacity=".25"/>'
        )
        small = np.flatnonzero(inside & ~wide)
        if len(small):
            self._crowd(lane, small, height)
        for i in np.flatnonzero(wide).tolist():
            top, high = self._y + int(track[i]) * height // tracks, height // tracks - (tracks > 1)
            self._bar(lane, i, float(left[i]), float(right[i]), top, high)
        if lane.figure:
            self._words(_LEFT + self._room + 8, self._y + height / 2 + 4, lane.figure, "ink")
        self._y += height + _GAP

    def _bar(self, lane: Lane, i: int, left: float, right: float, top: int, height: int) -> None:
        width = right - left - (0.75 if right - left > 4 else 0.25)
        told = f"<title>{escape(clean(lane.names[i][0]))}</title>" if self._few else ""
        shape = f'<rect x="{left:.6g}" y="{top}" width="{width:.4g}" height="{height}" fill="{lane.colors[i]}"'
        self._parts.append(f"{shape}>{told}</rect>" if told else f"{shape}/>")
        fitting = next((name for name in lane.names[i] if len(name) * _CHARACTER + 6 <= width), "")
        if fitting:
            self._parts.append(
                f'<text x="{left + width / 2:.6g}" y="{top + height / 2 + 4:.4g}" fill="{WORDS}" '
                f'text-anchor="middle" pointer-events="none">{escape(clean(fitting))}</text>'
            )

    def _crowd(self, lane: Lane, rows: NDArray[np.int64], height: int) -> None:
        """Draw what is too small to be told apart: pixels that are as dark as they are full, in one path a shade."""
        for color in dict.fromkeys(lane.colors[i] for i in rows.tolist()):
            mine = np.array([i for i in rows.tolist() if lane.colors[i] == color])
            busy = union(lane.starts[mine], np.maximum(lane.ends[mine], lane.starts[mine] + 1))
            full = density(busy, self._start, self._end, self._room)
            shades = np.where(full > 0, np.clip(np.ceil(full * 8), 3, 8), 0).astype(int)  # what is there shows
            edges = np.flatnonzero(np.diff(shades, prepend=0, append=0))
            paths: dict[int, list[str]] = {}
            for first, after in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
                if shade := int(shades[first]):
                    drawn = f"M{_LEFT + first} {self._y}h{after - first}v{height}h{first - after}z"
                    paths.setdefault(shade, []).append(drawn)
            for shade, parts in sorted(paths.items()):
                opacity = f' fill-opacity="{shade / 8:.3g}"' if shade < 8 else ""
                self._parts.append(f'<path d="{"".join(parts)}" fill="{color}"{opacity}/>')

    def _events(self, middles: Mapping[int, float]) -> None:
        """Draw records of events as dots, and an arrow from each to where another stream waits for it."""
        marks = self._timeline.marks
        within = (marks.end >= self._start) & (marks.start <= self._end) & np.isin(marks.stream, list(middles))
        records = np.flatnonzero(within & (marks.kind == MarkKind.RECORD)).tolist()
        waits = {wait: record for wait, record in waits_for_records(self._timeline).items()
                 if within[wait] and within[record] and marks.stream[wait] != marks.stream[record]}  # fmt: skip
        x = self._x(marks.end)
        apart = {(int(marks.stream[record]), x[record] // 7) for record in records}
        if len(records) + len(waits) > _MOST_MARKS or 2 * len(apart) < len(records):  # they would hide the lanes
            return
        for record in records:
            told = f"<title>{escape(f'record event {marks.event[record]}')}</title>" if marks.event[record] >= 0 else ""
            dot = f'<circle cx="{x[record]:.6g}" cy="{middles[int(marks.stream[record])]:.6g}" r="3.5" fill="{EVENT}"'
            self._parts.append(f"{dot}>{told}</circle>" if told else f"{dot}/>")
        for wait, record in waits.items():
            x1, y1 = float(x[record]), middles[int(marks.stream[record])]
            x2, y2 = float(x[wait]), middles[int(marks.stream[wait])]
            bend, tip = max(10.0, (x2 - x1) / 2), 5 if y2 > y1 else -5
            self._parts.append(
                f'<path d="M{x1:.6g} {y1:.6g}C{x1 + bend:.6g} {y1:.6g} {x2:.6g} {y2 - 5 * tip:.6g} {x2:.6g} '
                f'{y2 - tip:.6g}" fill="none" stroke="{EVENT}" stroke-width="1.5"/>'
                f'<path d="M{x2:.6g} {y2:.6g}l-4 {-1.6 * tip:.3g}h8z" fill="{EVENT}"/>'
            )

    def _marks(self, number: int, note: Note) -> None:
        spans = clip(union(note.spans[:, 0], note.spans[:, 1]), self._start, self._end)
        self._words(8, self._y + 8, str(number), "ink", bold=True)
        # In quarters of a pixel: what is closer together is drawn as one.
        left, right = (np.rint(4 * self._x(edge)).astype(np.int64) for edge in (spans[:, 0], spans[:, 1]))
        drawn = union(left, np.maximum(right, left + 4)) / 4
        shape = "".join(f"M{a:.6g} {self._y + 3}h{b - a:.6g}v4h{a - b:.6g}z" for a, b in drawn.tolist())
        self._parts.append(f'<path d="{shape}" fill="{FINDING}"/>')
        self._y += 12

    def _axis(self, y: int) -> None:
        """Draw ticks at round times since the first work."""
        step = tick_step(max(1, (self._end - self._start) * 90 // self._room))
        furthest = max(abs(self._start - self._origin), abs(self._end - self._origin))
        unit, ns, digits = next(scale for scale in scales(step) if furthest >= scale[1] and scale[2] <= 3)
        self._words(8, y + 14, unit, "faint")
        first = -(-(self._start - self._origin) // step) * step
        for at in range(first, self._end - self._origin + 1, step):
            x = float(self._x(at + self._origin))
            self._parts.append(
                f'<rect class="faint" x="{x:.6g}" y="{y}" width="1" height="5" fill="{FAINT}"/>'
                f'<text class="faint" x="{x + 3:.6g}" y="{y + 14}" fill="{FAINT}">{at / ns:.{digits}f}</text>'
            )


def _time(ns: int) -> str:
    return wording.duration(ns / 1e6)
