"""Directives that draw: ``{tape} NAME`` and ``{loop}`` play a program, ``{timeline} NAME`` explains a recorded one.

Pictures stand in the page itself, so that its colours can follow the reader's theme.
"""

from __future__ import annotations

import html
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import gapless
from gapless.model.chunk_loop import ChunkLoop
from gapless.model.simulation import Simulation
from gapless.model.units import parse_time
from gapless.timeline.simulated import from_schedule
from gapless.timeline.sinks import Note
from gapless.views.picture import svg

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


class Picture(SphinxDirective):
    """A figure; the body is its caption."""

    has_content = True
    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Draw the picture; a fault in it is a warning, which the build takes for an error."""
        try:
            drawn, below = self.draw()
        except gapless.GaplessError as problem:
            raise self.error(str(problem)) from None
        caption = nodes.paragraph()
        self.state.nested_parse(self.content, self.content_offset, caption)
        return [
            nodes.raw("", f'<figure class="lanes">\n<div class="lanes-scroll">{drawn}</div>', format="html"),
            nodes.raw("", "<figcaption>", format="html"), *caption.children, nodes.raw("", below, format="html"),
            nodes.raw("", "</figcaption></figure>", format="html"),
        ]  # fmt: skip

    def draw(self) -> tuple[str, str]:
        """Give the picture, and HTML to stand below its caption."""
        raise NotImplementedError


def _played(run: Simulation, name: str) -> str:
    return svg(from_schedule(run.schedule, source=name))


def _folded(words: str, text: str) -> str:
    return f"<details><summary>{words}</summary><pre>{html.escape(text.strip())}</pre></details>"


class TapePicture(Picture):
    """``{tape} 20-accident-default-stream``: a bundled tape, played; its text can be unfolded."""

    def draw(self) -> tuple[str, str]:
        """Play the tape."""
        path = EXAMPLES / "tapes" / f"{self.arguments[0]}.tape"
        self.env.note_dependency(str(path))
        run = gapless.simulate(path)
        if not run.ok:
            raise self.error(f"{path.name}: an expectation fails")
        command = f"The tape: gapless simulate examples/tapes/{path.name}"
        return _played(run, path.name), _folded(command, path.read_text())


class LoopPicture(Picture):
    """``{loop}`` with the options of ``gapless simulate``: the chunk loop, played."""

    option_spec: ClassVar = {
        "chunks": int, "streams": int, "h2d": directives.unchanged, "kernel": directives.unchanged,
        "d2h": directives.unchanged, "pageable": directives.flag, "default-stream": directives.unchanged,
        "nonblocking": directives.flag, "per-thread": directives.flag, "wait": directives.unchanged,
        "allocation": directives.unchanged, "copy-engines": int, "machine": directives.unchanged,
    }  # fmt: skip

    def draw(self) -> tuple[str, str]:
        """Play the loop."""
        asked = {name.replace("-", "_"): True if value is None else value for name, value in self.options.items()}
        loop = ChunkLoop(**asked)
        run = gapless.simulate(gapless.read_tape(loop.tape()))
        name = f"{loop.chunks} chunks, {loop.streams} stream{'s' * (loop.streams != 1)}"
        return _played(run, name), _folded("The loop as a tape", loop.tape())


class TimelinePicture(Picture):
    """``{timeline} one-stream``: a bundled recording with what was found in it."""

    option_spec: ClassVar = {"from": parse_time, "to": parse_time}

    def draw(self) -> tuple[str, str]:
        """Explain the timeline and draw it."""
        path = EXAMPLES / "timelines" / f"{self.arguments[0]}.json.gz"
        report = gapless.explain(path)
        start, end = report.timeline.window()
        since, until = (self.options.get(name) for name in ("from", "to"))  # ps after the first work
        window = (start + since // 1000 if since else start, start + until // 1000 if until else end)
        notes = [Note(name=finding.title, spans=finding.spans) for finding in report.findings]
        return svg(replace(report.timeline, source=path.name), window=window, notes=notes[:1]), ""


def setup(app: Sphinx) -> dict[str, bool]:
    """Tell Sphinx of the directives."""
    app.add_directive("tape", TapePicture)
    app.add_directive("loop", LoopPicture)
    app.add_directive("timeline", TimelinePicture)
    return {"parallel_read_safe": True}
