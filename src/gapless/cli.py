"""The command line: one function a command. Its signature gives the options, its docstring the help.

A new command is a function that returns an exit status, and its name in ``COMMANDS``; each option's help stays on one
line. Statuses: 0 done, 1 an expectation failed, 2 the input or the call is wrong. Nothing heavy is imported before it
is needed, so that ``gapless --help`` is quick.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from gapless import __version__
from gapless.model.errors import DeadlockError, GaplessError

if TYPE_CHECKING:
    from rich.console import Console

    from gapless.diagnosis.compare import Gate
    from gapless.diagnosis.report import Report
    from gapless.model.machine import Machine
    from gapless.model.simulation import Check, Simulation
    from gapless.timeline.timeline import Timeline

DONE, FAILED, WRONG, INTERRUPTED, PIPE_CLOSED = 0, 1, 2, 130, 141  # the last two as shells report signals
NARROWEST = 40  # columns; below, figures would be cut. A terminal that does not know its width says 0.


Played = TypeVar("Played", "Simulation", "Check")

# Words of which the help says what they are: TIME, not STR.


class Time(str):
    """A time."""


class Span(str):
    """Steps from a to b."""


class Slug(str):
    """The name of a cause."""


class Run(str):
    """One of the runs that exploring tells of."""


class Profile(str):
    """A machine: a profile or a file, and knobs."""


class Count(int):
    """A whole number; 4.5 is none."""


class Repair(str):
    """A repair, and its value where it takes one."""


class Condition(str):
    """What a report must hold."""


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
    gate: tuple[Condition, ...] = (),
) -> int:
    """Say which rule of CUDA made each engine of the GPU wait, where in the source, and what to do about it.

    Several timelines are summed up first, one line each, the worst first.

    Parameters
    ----------
    timelines
        Files written by torch.profiler (.json, .json.gz) or exported from Nsight Systems (.sqlite).
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
        Print the page about a cause instead: what it is, how it shows, what repairs it. "list" lists the causes.
    apply
        Predict the program with this repair made, such as pin or streams=4. May stand several times.
    machine
        Take what the timeline has no sample of from this machine: a profile or a file. By default h200.
    save
        Write the predicted program as this tape, such as repaired.tape, and its machine beside it.
    gate
        Exit with status 1 unless the report holds this: 'overlapped>=0.6', 'no pageable-copy', 'wall_ms<=30'.
    """
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
    asked = _Asked(_window(from_, to, steps), device, apply, _machine(machine), save, _gates(gate))
    return (_explain_as_json if json else _explain_as_text)(timelines, asked)


def compare(
    before: Path,
    after: Path,
    /,
    *,
    json: bool = False,
    device: Count | None = None,
    machine: Profile | None = None,
    gate: tuple[Condition, ...] = (),
) -> int:
    """Say what changed between two timelines of a program, and whether the prediction came true.

    Exit status 1 where a gate fails.

    Parameters
    ----------
    before
        Timeline of the program as it was.
    after
        Timeline of the program as it is now.
    json
        Print one JSON object.
    device
        Number of the GPU to compare. By default the one that worked most, in each.
    machine
        Take what the timelines have no sample of from this machine: a profile or a file. By default h200.
    gate
        What AFTER must hold: 'overlapped>=0.6', 'no pageable-copy', 'busy.sm>=80%', 'speedup>=1.1'. May be repeated.
    """
    from gapless.diagnosis.compare import compare as compare_reports

    gates = _gates(gate, speedup=True)
    asked = _Asked(_window(None, None, None), device, (), _machine(machine), None, ())
    old, new = (_explained(path, asked, quiet=json and not sys.stdout.isatty()) for path in (before, after))
    compared = compare_reports(old, new, gates)
    if json:
        _print(_json_of(compared.to_dict()))
    else:
        from gapless.views.comparison import draw

        console = _console()
        _print(_drawn(console, draw(compared, console, console.options)))
    return _held(compared.gates)


def simulate(
    *tapes: Path,
    json: bool = False,
    machine: Profile | None = None,
    replay: Run | None = None,
    chunks: Count | None = None,
    streams: Count | None = None,
    h2d: Time | None = None,
    kernel: Time | None = None,
    d2h: Time | None = None,
    pageable: bool = False,
    default_stream: Literal["copy", "kernel"] | None = None,
    nonblocking: bool = False,
    per_thread: bool = False,
    malloc: bool = False,
    device_sync: bool = False,
    copy_engines: Literal[1, 2] | None = None,
    tape: bool = False,
) -> int:
    """Play stream programs: when each engine works, why it waits, and whether what the tape expects holds.

    Without tapes it plays a loop over chunks of work, as in: gapless simulate --chunks 4 --streams 3

    Beside the loop stands what it takes one stage after another (3N) and with all engines busy (N + 2).

    Parameters
    ----------
    tapes
        Tapes (.tape): stream programs as text. Exit status 1 where an expectation fails or the program deadlocks.
    json
        Print one JSON object a tape, one a line, in the order given.
    machine
        Play on this machine instead of the tape's: a profile (teaching, h200, one-copy-engine, fermi) or a file.
    replay
        Play the run that "gapless check --explore" told of, such as h17.
    chunks
        Loop: number of chunks. By default 4.
    streams
        Loop: number of streams. By default 3.
    h2d
        Loop: time to copy one chunk to the device: 1.5ms, 200us. A bare number is ms. By default 1.
    kernel
        Loop: time of the kernel of one chunk. By default 1.
    d2h
        Loop: time to copy one chunk back. By default 1.
    pageable
        Loop: the host's memory is not pinned.
    default_stream
        Loop: the copy back of each chunk, or its kernel, goes to the default stream.
    nonblocking
        Loop: the streams are non-blocking; the default stream does not fence them.
    per_thread
        Loop: built with per-thread default streams.
    malloc
        Loop: cudaMalloc and cudaFree around each chunk.
    device_sync
        Loop: cudaDeviceSynchronize after each chunk.
    copy_engines
        Loop: one engine for copies in both directions, or two.
    tape
        Loop: print it as a tape, to be saved and changed.
    """
    asked = {
        name: value
        for name, value in {
            "chunks": chunks, "streams": streams, "h2d": h2d, "kernel": kernel, "d2h": d2h, "pageable": pageable,
            "default_stream": default_stream, "nonblocking": nonblocking, "per_thread": per_thread, "malloc": malloc,
            "device_sync": device_sync, "copy_engines": copy_engines,
        }.items()
        if value is not None and value is not False
    }  # fmt: skip
    if tapes and (asked or tape):
        option = next(iter(asked), "tape").replace("_", "-")
        raise GaplessError(f"--{option} makes a loop over chunks and takes no tapes. Leave one of the two out.")
    if replay is not None and not tapes:
        raise GaplessError("--replay plays a run of a tape. Write: gapless simulate TAPE --replay RUN")
    if tape and json:
        raise GaplessError("--tape prints the loop, --json what it does. Leave one of the two out.")
    if asked or tape:
        return _simulate_loop(asked, machine, json=json, tape=tape)
    if not tapes:
        raise GaplessError(
            "No tape is named. Write: gapless simulate TAPE...\n"
            "Or play a loop over chunks: gapless simulate --chunks 4 --streams 3"
        )
    return (_play_as_json if json else _simulate_as_text)(tapes, _playing(machine, replay))


def check(
    *tapes: Path,
    json: bool = False,
    machine: Profile | None = None,
    explore: Count = Count(0),  # noqa: B008
    replay: Run | None = None,
) -> int:
    """Find races: accesses to the same memory that no documented rule puts in order, and the shortest repair.

    Exit status 1 where an expectation of a tape fails; for a tape that expects nothing, where there is a race.

    Parameters
    ----------
    tapes
        Tapes (.tape): stream programs as text.
    json
        Print one JSON object a tape, one a line, in the order given.
    machine
        Check on this machine instead of the tape's: a profile (teaching, h200, one-copy-engine, fermi) or a file.
    explore
        Look at so many runs, in which host threads, durations and whatever no rule fixes vary.
    replay
        Check the run that exploring told of, such as h17.
    """
    if not tapes:
        raise GaplessError("No tape is named. Write: gapless check TAPE...")
    if explore < 0:
        raise GaplessError(f"--explore {explore} is no number of runs.")
    if explore and replay is not None:
        raise GaplessError("--explore looks at many runs, --replay at one. Leave one of the two out.")
    return (_play_as_json if json else _check_as_text)(tapes, _checking(machine, explore, replay))


def bench(
    what: Literal["machine", "pipeline"] = "machine",
    /,
    *,
    json: bool = False,
    device: str | None = None,
    size: str = "2GiB",
    runs: Count = Count(5),  # noqa: B008
) -> int:
    """Measure this machine as a profile for the model, or run the pipeline beside what people use today.

    Parameters
    ----------
    what
        "machine": copies, staging and calls. "pipeline": gapless beside CuPy, PyTorch, JAX and loops by hand.
    json
        Print the machine as a profile that --machine takes, or each comparison as one JSON object a line.
    device
        The GPU: cuda, or cuda:1 for the second. By default the first.
    size
        Bytes each way of the large array of "pipeline", such as 512MiB.
    runs
        Runs of each contender of "pipeline", after one to warm up.
    """
    from gapless.model.units import parse_size
    from gapless.runtime import bench as benches

    if what == "machine":
        measured = benches.bench(device)
        _print(measured.to_json() if json else str(measured))
        return DONE
    if runs < 1:
        raise GaplessError(f"--runs {runs} is no number of runs.")
    for case in benches.bench_pipeline(device, size=parse_size(size), runs=runs):
        _print(_json_of({"version": 1, **case.to_dict()}) if json else str(case))
        sys.stdout.flush()
    return DONE


COMMANDS: tuple[Callable[..., int], ...] = (explain, compare, simulate, check, bench)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and give its exit status. *arguments* are those of the process where none are given."""
    try:
        if sys.stdout is None:
            raise GaplessError("Standard output is closed: there is nowhere to print to.")
        status = _run(sys.argv[1:] if arguments is None else list(arguments))
        sys.stdout.flush()
    except GaplessError as problem:
        _complain(str(problem))
        return WRONG
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _abandon_output()
        return PIPE_CLOSED
    except OSError as problem:
        _complain(f"{problem.filename or 'the output'}: {problem.strerror or problem}")
        _abandon_output()
        return WRONG
    except MemoryError:
        _complain("This takes more memory than there is.")
        return WRONG
    except Exception as fault:
        if sys.flags.dev_mode:
            raise
        _complain(
            f"gapless itself failed ({type(fault).__name__}: {fault}).\nPlease report it with what this shows: "
            f"python -X dev -m gapless {join(sys.argv[1:] if arguments is None else arguments)}"
        )
        return WRONG
    return status


def _run(arguments: list[str]) -> int:
    from cyclopts import App, CycloptsError, Parameter

    app = App(
        name="gapless",
        help="Keep a GPU's engines busy: see a CUDA timeline, learn what each engine waited for, play stream programs.",
        version=__version__,
        help_format="plaintext",
        default_parameter=Parameter(negative=(), show_default=False),
        suppress_keyboard_interrupt=False,
    )
    for command in COMMANDS:
        app.command(command)
    try:
        status = app(arguments, exit_on_error=False, print_error=False, verbose=False, result_action="return_value")
    except CycloptsError as problem:
        verb = next((f" {c.__name__}" for c in COMMANDS if arguments[:1] == [c.__name__]), "")
        raise GaplessError(f"{str(problem).strip()}\nSee: gapless{verb} --help") from None
    return status if isinstance(status, int) else DONE


# Explanations


@dataclass(frozen=True, slots=True)
class _Asked:
    """What the options of explain and compare ask for."""

    window: _Window
    device: int | None
    apply: Sequence[str]
    machine: Machine | None
    save: Path | None
    gates: Sequence[str]


def _explain_as_json(timelines: Sequence[Path], asked: _Asked) -> int:
    status = DONE
    for path in timelines:
        try:
            report = _explained(path, asked, quiet=not sys.stdout.isatty())
            _save(report, asked)
        except GaplessError as problem:
            _complain(str(problem))
            status = WRONG
            continue
        _print(_json_of(report.to_dict()))
        status = max(status, _has_work(report, path))
        status = max(status, _hold(report, asked, of=path if len(timelines) > 1 else None))
    return status


def _explain_as_text(timelines: Sequence[Path], asked: _Asked) -> int:
    from gapless.views.terminal import draw, draw_summaries, summarise

    console = _console()
    done, status = [], DONE
    for path in timelines:
        try:
            report = _explained(path, asked)
            saved = _save(report, asked)
        except GaplessError as problem:
            _complain(str(problem))
            status = WRONG
            continue
        status = max(status, _has_work(report, path))
        status = max(status, _hold(report, asked, of=path if len(timelines) > 1 else None))
        # Drawn at once and kept as text: the timelines of a long list would not all fit into memory.
        done.append((summarise(report), _drawn(console, draw(report, console, console.options)) + saved))
    done.sort(key=lambda entry: -entry[0].share)
    if len(timelines) > 1 and done:
        _print(_drawn(console, draw_summaries([summary for summary, _ in done], console)))
    for i, (_, text) in enumerate(done):
        _print(("\n\n" if i or len(timelines) > 1 else "") + text)
    return status


def _has_work(report: Report, path: Path) -> int:
    """A timeline without any work of a GPU is no healthy one: the report says so, and so does the status."""
    if report.wall_ms or len(report.timeline.ops):
        return DONE
    _complain(f"{path}: {report.headline}")
    return WRONG


def _explained(path: Path, asked: _Asked, *, quiet: bool = False) -> Report:
    from gapless.diagnosis.explain import explain
    from gapless.timeline.sources import load

    with _blaming_itself(path, "explain"), _progress(path, quiet=quiet) as progress:
        timeline = load(path, progress=progress)
        chosen = {"apply": asked.apply, "machine": asked.machine}
        chosen = {name: value for name, value in chosen.items() if value}
        return explain(timeline, device=asked.device, **asked.window(timeline, asked.device), **chosen)


def _save(report: Report, asked: _Asked) -> str:
    """Write the predicted program where that was asked for; give what to say of it."""
    if asked.save is None:
        return ""
    if report.repaired is None or report.prediction is None:
        raise GaplessError(f"{report.source}: nothing worked on this device, so there is no program to save.")
    from gapless.diagnosis.as_tape import about, save

    saved = save(report.repaired, asked.save, about=about(report))
    return (
        f"\n\nSaved as {saved.tape}, with its machine in {saved.machine.name}. Play it: gapless simulate {saved.tape}"
    )


def _gates(gates: Sequence[str], *, speedup: bool = False) -> Sequence[str]:
    """Refuse gates that cannot be read before any timeline is."""
    if gates:
        from gapless.diagnosis.compare import read_gate

        for gate in gates:
            read_gate(gate, speedup=speedup)
    return gates


def _hold(report: Report, asked: _Asked, *, of: Path | None) -> int:
    from gapless.diagnosis.compare import hold

    return _held(hold(report, asked.gates), of=of) if asked.gates else DONE


def _held(gates: Sequence[Gate], *, of: Path | None = None) -> int:
    """Say of each gate that fails what there is instead."""
    for gate in gates:
        if not gate.holds:
            _complain((f"{of}: " if of else "") + gate.reason)
    return DONE if all(gate.holds for gate in gates) else FAILED


_Window = Callable[["Timeline", "int | None"], dict[str, Any]]


def _window(from_: str | None, to: str | None, steps: str | None) -> _Window:
    """Read the options that choose a part of the run; what they mean in ns depends on the timeline."""
    if steps is not None and not (from_ is to is None):
        raise GaplessError(
            "--steps and --from or --to exclude each other: a window is some steps or a stretch of time."
        )
    if steps is not None:
        chosen = {"steps": _steps(steps)}
        return lambda timeline, device: chosen
    since, until = _nanoseconds("--from", from_), _nanoseconds("--to", to)
    if since is not None and until is not None and until <= since:
        raise GaplessError(f"The window is empty: --to {to} is not after --from {from_}.")
    return lambda timeline, device: _on_clock(timeline, device, since, until)


def _on_clock(timeline: Timeline, device: int | None, since: int | None, until: int | None) -> dict[str, Any]:
    if since is None and until is None:
        return {}
    from gapless.timeline.measure import busiest_device, device_window

    rows = {known.id: row for row, known in enumerate(timeline.devices)}
    first, _ = device_window(timeline, busiest_device(timeline) if device is None else rows.get(device, -1))
    return {
        "start_ns": None if since is None else first + since,
        "end_ns": None if until is None else first + until,
    }


def _steps(text: str) -> tuple[int, int]:
    first, colon, after = text.partition(":")
    if not (colon and first.strip().isdecimal() and after.strip().isdecimal()):
        raise GaplessError(f"--steps {text} is not of the form A:B. Write --steps 5:10 for the steps 5 to 9.")
    return int(first), int(after)


def _nanoseconds(option: str, text: str | None) -> int | None:
    """Read a time such as 1.5ms; a bare number is in ms."""
    if text is None:
        return None
    import re
    from decimal import Decimal

    units = {"ns": 1, "us": 1_000, "µs": 1_000, "μs": 1_000, "ms": 1_000_000, "s": 1_000_000_000, "": 1_000_000}
    match = re.fullmatch(r"\s*([0-9]{1,15}(?:\.[0-9]*)?|\.[0-9]+)\s*([a-zµμ]*)\s*", text)
    if not match or match[2] not in units:
        raise GaplessError(f"{option} {text} is no time. Write a number with s, ms, us or ns after it, such as 1.5ms.")
    return round(Decimal(match[1]) * units[match[2]])


def _print_cause(slug: str) -> int:
    import inspect

    from gapless.diagnosis.causes import CAUSES

    if slug == "list":
        wide = max(map(len, CAUSES), default=0)
        for name, module in CAUSES.items():
            _print(f"{name:<{wide}}  {inspect.cleandoc(module.__doc__ or '').partition(chr(10))[0]}")
        return DONE
    if slug not in CAUSES:
        import difflib

        near = difflib.get_close_matches(slug, CAUSES, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise GaplessError(f"There is no cause {slug!r}.{hint}\nThe causes are: {', '.join(CAUSES)}.")
    from gapless.views.terminal import draw_page

    console = _console()
    _print(_drawn(console, draw_page(slug, CAUSES[slug].__doc__ or "", console)))
    return DONE


# Tapes


def _playing(profile: str | None, replay: str | None) -> Callable[[Path], Simulation]:
    from gapless.model.simulation import simulate

    machine = _machine(profile)

    def play(path: Path) -> Simulation:
        with _blaming_itself(path, "simulate"):
            played = simulate(path, machine=machine, replay="plain" if replay is None else replay)
            _ = played.races, played.outcomes  # worked out here, so that a fault in them is told as one
            return played

    return play


def _checking(profile: str | None, explore: int, replay: str | None) -> Callable[[Path], Check]:
    from gapless.model.simulation import check

    machine = _machine(profile)

    def play(path: Path) -> Check:
        with _blaming_itself(path, "check"):
            checked = check(path, machine=machine, replay="plain" if replay is None else replay, explore=explore)
            _ = checked.races, checked.ok
            return checked

    return play


def _each(tapes: Sequence[Path], play: Callable[[Path], Played]) -> Iterator[tuple[int, Played | DeadlockError | None]]:
    """Play or check each tape: give its status and what came of it; None where it cannot be read, which is said."""
    for path in tapes:
        try:
            played = play(path)
            yield DONE if played.ok else FAILED, played
        except DeadlockError as problem:
            _complain(f"{path}: {problem}")
            yield FAILED, problem
        except GaplessError as problem:
            _complain(str(problem))
            yield WRONG, None


def _play_as_json(tapes: Sequence[Path], play: Callable[[Path], Played]) -> int:
    worst = DONE
    for status, played in _each(tapes, play):
        worst = max(worst, status)
        if isinstance(played, DeadlockError):
            _print(_json_of({"version": 1, "makespan_ns": None, "deadlock": played.calls}))
        elif played is not None:
            _print(_json_of(played.to_dict()))
    return worst


def _simulate_as_text(tapes: Sequence[Path], play: Callable[[Path], Simulation]) -> int:
    from gapless.views.schedule import draw, draw_summaries, summarise

    console, worst = _console(), DONE
    done = []
    for status, played in _each(tapes, play):
        worst = max(worst, status)
        if played is not None and not isinstance(played, DeadlockError):
            # Drawn at once and kept as text: the schedules of a long list would not all fit into memory.
            done.append((summarise(played), _drawn(console, draw(played, console, console.options))))
    if len(tapes) > 1 and done:
        _print(_drawn(console, draw_summaries([summary for summary, _ in done], console)))
    for i, (_, text) in enumerate(done):
        _print(("\n\n" if i or len(tapes) > 1 else "") + text)
    return worst


def _check_as_text(tapes: Sequence[Path], play: Callable[[Path], Check]) -> int:
    from gapless.views.races import draw

    console, worst, gap = _console(), DONE, ""
    for status, checked in _each(tapes, play):
        worst = max(worst, status)
        if checked is not None and not isinstance(checked, DeadlockError):
            _print(gap + _drawn(console, draw(checked, console, console.options)))
            gap = "\n"
    return worst


def _simulate_loop(asked: dict[str, Any], profile: str | None, *, json: bool, tape: bool) -> int:
    from gapless.model.chunk_loop import ChunkLoop
    from gapless.model.simulation import simulate
    from gapless.model.tape import read

    _machine(profile)
    loop = ChunkLoop(**asked, machine=_as_on_a_tape(profile or ""))
    if tape:
        _print(loop.tape().rstrip("\n"))
        return DONE
    played = simulate(read(loop.tape(), name="loop"))
    if json:
        _print(_json_of(played.to_dict()))
        return DONE
    from gapless.views.schedule import draw_loop

    console = _console()
    _print(_drawn(console, draw_loop(loop, played, console, console.options)))
    return DONE


def _machine(profile: str | None) -> Machine | None:
    """Read a machine as a tape does: a profile or a file, and knobs after it."""
    if profile is None:
        return None
    from gapless.model.tape import read

    return read(f"machine {_as_on_a_tape(profile)}", name="--machine").machine


def _as_on_a_tape(profile: str) -> str:
    """Put a file's name in quotes, as on a tape."""
    import re

    knobs = "".join(re.findall(r"(?:\s+\w+=\S*)+\s*$", profile))
    name = profile[: len(profile) - len(knobs)].strip()
    is_file = name.endswith(".json") or "/" in name
    return " ".join([f'"{Path(name).absolute()}"' if is_file else " ".join(name.split()), *knobs.split()])


# Input and output


@contextmanager
def _blaming_itself(path: Path, verb: str) -> Iterator[None]:
    """Say of a fault that it is gapless's own, and how to report it."""
    try:
        yield
    except GaplessError:
        raise
    except OSError as problem:
        raise GaplessError(f"{path} cannot be read: {problem.strerror or problem}") from None
    except MemoryError:
        raise GaplessError(f"{path} takes more memory than there is.") from None
    except Exception as fault:
        if sys.flags.dev_mode:
            raise
        what = "timeline" if verb == "explain" else "tape"
        raise GaplessError(
            f"{path}: gapless itself failed on this {what} ({type(fault).__name__}: {fault}).\nPlease report it with "
            f"what this shows: python -X dev -m gapless {verb} {path}"
        ) from fault


@contextmanager
def _progress(path: Path, *, quiet: bool) -> Iterator[Callable[[int, int], None] | None]:
    """Give what shows a long read on standard error, where that is a terminal, and leaves nothing behind."""
    if quiet or sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    from time import monotonic

    began, bar = monotonic(), None

    def advance(done: int, whole: int) -> None:
        nonlocal bar
        if bar is None and monotonic() - began > 0.3 and done < whole // 2:
            bar = _bar(path.name, whole)
            bar.start()
        if bar is not None:
            bar.update(bar.task_ids[0], completed=done)

    try:
        yield advance
    finally:
        if bar is not None:
            bar.stop()


def _bar(name: str, whole: int) -> Any:
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    from gapless.views.wording import shorten, visible

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    bar.add_task(escape(shorten(visible(name), 40)), total=whole)
    return bar


def _console() -> Console:
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    console.width = max(console.width, NARROWEST)
    return console


def _drawn(console: Console, lines: Iterator[Any]) -> str:
    """Give lines as text with the escapes that this output understands."""
    with console.capture() as capture:
        for line in lines:
            console.print(line, soft_wrap=True)
    return capture.get().rstrip("\n")


def _print(text: str) -> None:
    from gapless.views.wording import in_ascii

    utf8 = (sys.stdout.encoding or "utf-8").lower().replace("-", "").startswith("utf")
    sys.stdout.write((text if utf8 else in_ascii(text)) + "\n")


def _complain(message: str) -> None:
    """Print a message of the user's concern on standard error; whatever it quotes shows as what it is."""
    from gapless.views.wording import visible

    lines = [visible(line) for line in message.split("\n")]
    if sys.stderr is None:
        return
    try:
        print("gapless: " + "\n         ".join(lines), file=sys.stderr)
    except (OSError, ValueError):  # nowhere to say it; the exit status still does
        return


def _abandon_output() -> None:
    """Drop what is still to be written, so that the interpreter does not fail on it again when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _json_of(values: dict[str, Any]) -> str:
    import json

    return json.dumps(_finite(values), allow_nan=False, default=_plain)


def _finite(value: Any) -> Any:
    """Give plain values in which null stands for every number that JSON cannot hold."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and (value != value or abs(value) == float("inf")) else value


def _plain(value: Any) -> Any:
    """Give NumPy's numbers as Python's."""
    return value.item()
