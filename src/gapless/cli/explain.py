"""``gapless explain``."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gapless.cli.lists import LIST, list_causes, list_gates, list_repairs
from gapless.cli.output import complain, drawn, json_of, to_console, write
from gapless.cli.tapes import read_machine
from gapless.cli.timelines import Asked, explained, held, read_gates, read_window
from gapless.cli.words import DONE, WRONG, Condition, Count, Profile, Repair, Slug, Span, Time
from gapless.model.errors import GaplessError

if TYPE_CHECKING:
    from rich.console import Console

    from gapless.diagnosis.compare import Gate
    from gapless.diagnosis.report import Report


def explain(
    *timelines: Path,
    json: bool = False,
    from_: Time | None = None,
    to: Time | None = None,
    steps: Span | None = None,
    device: Count | None = None,
    cause: Slug | None = None,
    apply: tuple[Repair, ...] = (),
    machine: Profile | None = None,
    save: Path | None = None,
    html: Path | None = None,
    gate: tuple[Condition, ...] = (),
) -> int:
    """Say which rule of CUDA made each engine of the GPU wait, where in the source, and what to do about it.

    Several timelines are summed up first, one line each, the worst first.

    Parameters
    ----------
    timelines
        Files of gapless record (.gapless), torch.profiler (.json, .json.gz), Nsight Systems (.sqlite, .nsys-rep).
    json
        Print one JSON object a timeline, one a line, in the order given.
    from_
        Explain from this time on, counted from the first work on the device: 1.5ms, 200us, 2s. A bare number is ms.
    to
        Explain up to this time, counted likewise.
    steps
        Explain the steps A to B - 1 that the program marks, as A:B. ProfilerStep#5 is 5.
    device
        Number of the GPU to explain. By default the one that worked most.
    cause
        Print the page about a cause instead: what it is, how it shows, what repairs it. --cause list shows all.
    apply
        Predict the program with this repair made, such as pin or streams=4. --apply list shows all. May be repeated.
    machine
        Take what the timeline has no sample of from this machine: a profile or a file. By default h200.
    save
        Write the predicted program as this tape, such as repaired.tape, and its machine beside it.
    html
        Write the explanation as this page too, such as report.html: one file that opens offline, lanes and all.
    gate
        Status 1 unless this holds: 'overlapped>=0.6', 'no pageable-copy'. --gate list shows all. May be repeated.
    """
    if LIST in (cause, *apply, *gate):
        return list_causes() if cause == LIST else list_repairs() if LIST in apply else list_gates(speedup=False)
    if cause is not None:
        if timelines:
            raise GaplessError(
                "--cause prints the page about a cause and takes no timelines. Leave one of the two out."
            )
        return _print_cause(cause)
    if not timelines:
        raise GaplessError("No timeline is named. Write: gapless explain TIMELINE...")
    if save is not None and (len(timelines) > 1 or not apply):
        raise GaplessError("--save writes the one program that --apply predicts. Name one timeline and a repair.")
    alone = html is not None and _check_page(html, timelines, json=json)
    if save is not None:
        _check_tape(save, html)
    asked = Asked(read_window(from_, to, steps), device, apply, read_machine(machine), save, read_gates(gate))
    if json:
        return _explain_as_json(timelines, asked, html)
    return _explain_as_text(timelines, asked, html, silent=alone)


def _explain_as_json(timelines: Sequence[Path], asked: Asked, html: Path | None) -> int:
    status = DONE
    for path in timelines:
        try:
            report = explained(path, asked, quiet=not sys.stdout.isatty())
            _save(report, asked)
            _write_page(report, html)
        except GaplessError as problem:
            complain(_of(path, problem, timelines))
            status = WRONG
            continue
        gates = _gates(report, asked)
        write(json_of(report.to_dict() | ({"gates": [gate.to_dict() for gate in gates]} if gates else {})))
        status = max(status, _has_work(report, path, asked))
        status = max(status, held(gates, of=path if len(timelines) > 1 else None))
    return status


def _explain_as_text(timelines: Sequence[Path], asked: Asked, html: Path | None, *, silent: bool) -> int:
    from gapless.views.terminal import draw, draw_summaries, summarise

    console = to_console()
    done, gates, status = [], [], DONE
    for path in timelines:
        try:
            report = explained(path, asked)
            saved = _save(report, asked) + _write_page(report, html)
        except GaplessError as problem:
            complain(_of(path, problem, timelines))
            status = WRONG
            continue
        status = max(status, _has_work(report, path, asked))
        gates.append((path, _gates(report, asked)))
        # Drawn at once and kept as text: the timelines of a long list would not all fit into memory.
        text = drawn(console, draw(report, console, console.options)) + _gates_as_text(gates[-1][1], console)
        done.append((summarise(report), text + saved))
    if not silent:
        done.sort(key=lambda entry: -entry[0].share)
        if len(timelines) > 1 and done:
            write(drawn(console, draw_summaries([summary for summary, _ in done], console)))
        for i, (_, text) in enumerate(done):
            write(("\n\n" if i or len(timelines) > 1 else "") + text)
        sys.stdout.flush()  # what complains of a gate comes after the report
    return max([status, *(held(gate, of=path if len(timelines) > 1 else None) for path, gate in gates)])


def _of(path: Path, problem: GaplessError, timelines: Sequence[Path]) -> str:
    """Give a message that says of which of several timelines it is."""
    message = str(problem)
    return message if len(timelines) == 1 or str(path) in message else f"{path}: {message}"


def _has_work(report: Report, path: Path, asked: Asked) -> int:
    """A timeline without any work of a GPU is no healthy one: the report says so, and so does the status.

    One of another device, or of another window, is a fact; a gate that is to be held against it cannot be judged.
    """
    from gapless.diagnosis.compare import has_work

    if (report.wall_ms or len(report.timeline.ops)) and (not asked.gates or has_work(report)):
        return DONE
    complain(f"{path}: {report.headline}")
    return WRONG


def _save(report: Report, asked: Asked) -> str:
    """Write the predicted program where that was asked for; give what to say of it."""
    if asked.save is None:
        return ""
    if report.repaired is None or report.prediction is None:
        raise GaplessError(f"{report.source}: nothing worked on this device, so there is no program to save.")
    from gapless.diagnosis.as_tape import about, save

    saved = save(report.repaired, asked.save, about=about(report))
    play = f"gapless simulate {shlex.quote(str(saved.tape))}"
    # A line each, and neither broken: what is copied from a terminal stays in one piece.
    return f"\n\nSaved as {saved.tape}, with its machine in {saved.machine.name}.\nPlay it: {play}"


def _write_page(report: Report, html: Path | None) -> str:
    """Write the page where that was asked for and there is anything to show; give what to say of it."""
    if html is None or not len(report.timeline.ops):
        return ""
    from gapless.timeline.sinks.files import is_open_ended
    from gapless.views.report_page import write as write_page

    write_page(report, html)
    return "" if is_open_ended(html) else f"\n\nThe page is {html}: open it in a browser."


def _check_page(html: Path, timelines: Sequence[Path], *, json: bool) -> bool:
    """Refuse what cannot be the page of one timeline; tell whether it takes the place of what is printed."""
    if len(timelines) > 1:
        raise GaplessError("--html writes the page of one timeline. Name one timeline.")
    from gapless.timeline.sinks.files import is_standard_output
    from gapless.views.report_page import check_name

    check_name(html, never=timelines)
    if json and is_standard_output(html):
        raise GaplessError(f"--html {html} and --json would both be printed. Give the page a file.")
    return is_standard_output(html)


def _gates(report: Report, asked: Asked) -> Sequence[Gate]:
    from gapless.diagnosis.compare import hold

    return hold(report, asked.gates) if asked.gates else ()


def _gates_as_text(gates: Sequence[Gate], console: Console) -> str:
    from gapless.views.comparison import draw_gates
    from gapless.views.page import Page

    return "\n\n" + drawn(console, draw_gates(gates, Page.on(console))) if gates else ""


def _check_tape(save: Path, html: Path | None) -> None:
    """Refuse what cannot be the saved tape, or is the page as well."""
    from gapless.diagnosis.as_tape import check_name
    from gapless.timeline.sinks.files import are_one

    saved = check_name(save)
    for path in (saved.tape, saved.machine):
        if html is not None and are_one(path, html):
            raise GaplessError(f"--save writes {path}, and --html {html} is the same file. Give each its own.")


def _print_cause(slug: str) -> int:
    from gapless.diagnosis.causes import CAUSES

    if slug not in CAUSES:
        import difflib

        near = difflib.get_close_matches(slug, CAUSES, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise GaplessError(f"There is no cause {slug!r}.{hint}\nThe causes are: {', '.join(CAUSES)}.")
    from gapless.views.terminal import draw_page

    console = to_console()
    write(drawn(console, draw_page(slug, CAUSES[slug].__doc__ or "", console)))
    return DONE
