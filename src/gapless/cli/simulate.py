"""``gapless simulate``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from gapless.cli.output import blaming_itself, drawn, json_of, say_written, to_console, write
from gapless.cli.tapes import as_on_a_tape, each, play_as_json, read_machine, tape_in
from gapless.cli.words import DONE, Count, Profile, Run, Time
from gapless.model.errors import DeadlockError, GaplessError

if TYPE_CHECKING:
    from gapless.model.simulation import Simulation


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
    wait: Literal["device", "stream", "event", "query"] | None = None,
    allocation: Literal["malloc", "pool"] | None = None,
    malloc: bool = False,
    device_sync: bool = False,
    urgent: Literal["same", "high"] | None = None,
    copy_engines: Literal[1, 2] | None = None,
    tape: bool = False,
    svg: Path | None = None,
    play: bool = False,
) -> int:
    """Play stream programs: when each engine works, why it waits, and whether what the tape expects holds.

    Instead of tapes it plays a loop over chunks of work, as in:

    gapless simulate --chunks 4 --streams 3

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
    wait
        Loop: how the host makes sure after each chunk that it may refill the source: what it waits for, or asks.
    allocation
        Loop: scratch memory of each chunk, from cudaMalloc or from the stream's pool.
    malloc
        Loop: cudaMalloc and cudaFree around each chunk. Short for --allocation malloc.
    device_sync
        Loop: cudaDeviceSynchronize after each chunk. Short for --wait device.
    urgent
        Loop: a short request of another thread beside the loop, with the same priority or a high one.
    copy_engines
        Loop: one engine for copies in both directions, or two.
    tape
        Loop: print it as a tape, to be saved and changed.
    svg
        Draw the run as this picture instead, such as loop.svg.
    play
        Let the run happen before your eyes first, in eight seconds. Ctrl-C ends it.
    """
    wait = _short("--device-sync", device_sync, "device", "--wait", wait)
    allocation = _short("--malloc", malloc, "malloc", "--allocation", allocation)
    asked = {
        name: value
        for name, value in {
            "chunks": chunks, "streams": streams, "h2d": h2d, "kernel": kernel, "d2h": d2h, "pageable": pageable,
            "default_stream": default_stream, "nonblocking": nonblocking, "per_thread": per_thread, "wait": wait,
            "allocation": allocation, "urgent": urgent, "copy_engines": copy_engines,
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
    if svg is not None and (json or tape or len(tapes) > 1):
        raise GaplessError("--svg draws one run as a picture. Leave out --json, --tape and further tapes.")
    if svg is not None:
        _check_picture(svg, tapes)
    if play and (json or tape or svg is not None or len(tapes) > 1):
        raise GaplessError("--play shows one run. Leave out --json, --tape, --svg and further tapes.")
    if asked or tape or (play and not tapes):
        return _simulate_loop(asked, machine, json=json, tape=tape, svg=svg, play=play)
    if not tapes:
        raise GaplessError(
            "No tape is named. Write: gapless simulate TAPE...\n"
            "Or play a loop over chunks: gapless simulate --chunks 4 --streams 3"
        )
    if svg is not None:
        return _draw(tapes, playing(machine, replay), svg)
    if json:
        return play_as_json(tapes, playing(machine, replay))
    return _simulate_as_text(tapes, playing(machine, replay), machine, animated=play)


Choice = TypeVar("Choice", bound=str)


def _short(short: str, given: bool, means: Choice, option: str, value: Choice | None) -> Choice | None:
    """Give what an option and its short form say together. Raises GaplessError where they contradict each other."""
    if not given:
        return value
    if value not in (None, means):
        raise GaplessError(
            f"{short} means {option} {means}, and {option} {value} stands there too. Leave one of them out."
        )
    return means


def playing(profile: str | None, replay: str | None) -> Callable[[Path], Simulation]:
    """Give what plays one tape as the options ask."""
    from gapless.model.simulation import simulate

    machine = read_machine(profile)

    def play(path: Path) -> Simulation:
        with blaming_itself(path, "simulate"):
            tape = tape_in(path)
            if not len(tape.program):
                raise GaplessError(f"{path} asks for no operation and makes no call: there is nothing to play.")
            played = simulate(tape, machine=machine, replay="plain" if replay is None else replay)
            _ = played.races, played.outcomes  # worked out here, so that a fault in them is told as one
            return played

    return play


def _simulate_as_text(
    tapes: Sequence[Path], play: Callable[[Path], Simulation], profile: str | None, *, animated: bool = False
) -> int:
    from gapless.views.schedule import draw, draw_summaries, summarise

    console, worst = to_console(), DONE
    done = []
    for status, played in each(tapes, play):
        worst = max(worst, status)
        if played is not None and not isinstance(played, DeadlockError):
            if animated:
                _animate(played)
            # Drawn at once and kept as text: the schedules of a long list would not all fit into memory.
            done.append((summarise(played), drawn(console, draw(played, console, console.options, machine=profile))))
    if len(tapes) > 1 and done:
        write(drawn(console, draw_summaries([summary for summary, _ in done], console)))
    for i, (_, text) in enumerate(done):
        write(("\n\n" if i or len(tapes) > 1 else "") + text)
    return worst


def _draw(tapes: Sequence[Path], play: Callable[[Path], Simulation], path: Path) -> int:
    """Draw the run of the one tape as a picture; the status is that of playing it."""
    worst = DONE
    for status, played in each(tapes, play):
        worst = max(worst, status)
        if played is not None and not isinstance(played, DeadlockError):
            _write_picture(played, path, tapes)
    return worst


def _animate(played: Simulation) -> None:
    """Show a run as it happens, where there is a terminal that can; elsewhere the drawing that follows is all."""
    from gapless.views.play import play

    play(played, to_console())


def _check_picture(path: Path, tapes: Sequence[Path]) -> None:
    from gapless.timeline.sinks import files

    if path.suffix.lower() != ".svg" and not files.is_open_ended(path):
        raise GaplessError(f"--svg {path}: the name of the picture ends in .svg. gapless convert writes other formats.")
    files.check(path, never=tapes)


def _write_picture(played: Simulation, path: Path, tapes: Sequence[Path] = ()) -> None:
    from gapless.timeline.simulated import from_schedule
    from gapless.timeline.sinks import files
    from gapless.views.picture import svg

    timeline = from_schedule(played.schedule, source=Path(played.name).name)
    files.write(path, [svg(timeline).encode()], never=tapes)
    say_written(f"Wrote {path}.", path)


def _simulate_loop(
    asked: dict[str, Any], profile: str | None, *, json: bool, tape: bool, svg: Path | None = None,
    play: bool = False,
) -> int:  # fmt: skip
    from gapless.model.chunk_loop import ChunkLoop
    from gapless.model.simulation import simulate
    from gapless.model.tape import read

    read_machine(profile)
    loop = ChunkLoop(**asked, machine=as_on_a_tape(profile or ""))
    if tape:
        write(loop.tape().rstrip("\n"))
        return DONE
    played = simulate(read(loop.tape(), name="loop"))
    if json:
        write(json_of(played.to_dict()))
        return DONE
    if svg is not None:
        _write_picture(played, svg)
        return DONE
    from gapless.views.schedule import draw_loop

    if play:
        _animate(played)
    console = to_console()
    write(drawn(console, draw_loop(loop, played, console, console.options)))
    return DONE
