"""``gapless convert``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gapless.cli.output import blaming_itself, progress_of, say_written
from gapless.cli.words import DONE, Format
from gapless.model.errors import GaplessError

if TYPE_CHECKING:
    from gapless.diagnosis.report import Report
    from gapless.timeline.sinks import Note
    from gapless.timeline.timeline import Timeline

# What each format's files end in; the first is the name to suggest.
FORMATS = {
    "perfetto": (".pftrace", ".perfetto-trace", ".perfetto"),
    "chrome": (".json", ".json.gz"),
    "svg": (".svg",),
    "png": (".png",),
}


def convert(source: Path, output: Path, /, *, to: Format | None = None) -> int:
    """Write a timeline or a played tape for other tools: Perfetto, Chrome traces, pictures of lanes.

    A file that is there already is replaced only where gapless wrote it.

    OUTPUT may be a pipe or /dev/stdout too; then --to says the format.

    Parameters
    ----------
    source
        A timeline that "gapless explain" reads, or a tape.
    output
        The file to write: .pftrace (ui.perfetto.dev), .json or .json.gz (Chrome trace), .svg or .png (lanes).
    to
        Format of the output where its name does not tell: perfetto, chrome, svg or png.
    """
    from gapless.timeline.sinks import files

    chosen = _format(output, to)
    files.check(output, never=[source])
    timeline, notes = _load(source, explained=chosen != "chrome", pictured=chosen in ("svg", "png"))
    from gapless.timeline.sinks import SINKS, gzipped

    left_out: Sequence[str] = ()
    pieces: Iterable[bytes]
    if chosen in SINKS:
        pieces, left_out = SINKS[chosen].pieces(timeline, notes), SINKS[chosen].left_out(timeline)
    else:
        from gapless.views.picture import png, svg

        picture = svg(timeline, notes=notes)
        pieces = [png(picture) if chosen == "png" else picture.encode()]
    files.write(output, gzipped(pieces) if output.name.lower().endswith(".gz") else pieces, never=[source])
    opened = " Open it in ui.perfetto.dev." if chosen == "perfetto" else ""
    say_written(" ".join((f"Wrote {output}.{opened}", *left_out)), output)
    return DONE


def _format(output: Path, to: str | None) -> str:
    """Give the format that is asked for, else the one that the name tells."""
    if to is not None:
        if to not in FORMATS:
            raise GaplessError(f"--to {to}: there is no such format. The formats are {', '.join(FORMATS)}.")
        return to
    name = output.name.lower()
    for known, suffixes in FORMATS.items():
        if name.endswith(suffixes):
            return known
    endings = ", ".join(suffix for suffixes in FORMATS.values() for suffix in suffixes)
    raise GaplessError(f"{output}: the name does not tell the format. End it in one of {endings}, or say --to FORMAT.")


def _load(path: Path, *, explained: bool, pictured: bool) -> tuple[Timeline, Sequence[Note]]:
    """Read the input, and say what was found in a timeline where the format has a place for it."""
    if path.suffix == ".tape":
        from gapless.model.simulation import simulate
        from gapless.timeline.simulated import from_schedule

        with blaming_itself(path, "simulate"):
            played = simulate(path)
            return from_schedule(played.schedule, source=path.name, lines=() if pictured else played.lines), ()
    from gapless.diagnosis.explain import explain
    from gapless.timeline.sources import load

    with blaming_itself(path, "explain"), progress_of(path, quiet=False) as progress:
        timeline = load(path, progress=progress)
        if not explained or not len(timeline.ops):
            return timeline, ()
        return timeline, _notes(explain(timeline))


def _notes(report: Report) -> list[Note]:
    """Give the findings of a report as what a file for another tool can say of them."""
    from gapless.timeline.sinks import Note

    notes: list[Note] = []
    for finding in report.findings:
        facts: dict[str, str | int | float] = {"cause": finding.cause, "evidence": finding.evidence}
        facts["cost ms"] = finding.cost_ms
        if finding.where:
            facts["where"] = "; ".join(map(str, finding.where))
        if finding.repair:
            facts |= {"repair": finding.repair.name, "grade": finding.repair.grade}
            facts["precondition"] = finding.repair.precondition
        if finding.advice:
            facts["advice"] = finding.advice
        if finding.speedup is not None:
            facts["predicted speed-up"] = finding.speedup
        notes.append(Note(name=finding.title, spans=finding.spans, facts=facts))
    return notes
