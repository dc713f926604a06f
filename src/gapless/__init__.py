"""gapless keeps a GPU's engines busy: see a timeline, explain the waits, predict the repairs.

The public names live here and nowhere else; each is loaded when first used, so that ``import gapless`` is cheap.
"""

from __future__ import annotations

from importlib import import_module
from os import PathLike

TYPE_CHECKING = False  # typing itself is not needed before there are types to be checked

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, overload

    from gapless.checking.recordings import RecordingCheck
    from gapless.diagnosis.compare import Comparison
    from gapless.diagnosis.report import Report
    from gapless.model.errors import GaplessError
    from gapless.model.machine import Machine
    from gapless.model.program import Program
    from gapless.model.schedule import Schedule
    from gapless.model.simulation import Check, Simulation
    from gapless.model.tape import Tape
    from gapless.model.tape import read as read_tape
    from gapless.recorder.recording import Recording
    from gapless.runtime.kernels import cuda_kernel
    from gapless.runtime.pipeline import Pipeline
    from gapless.timeline.sources import load
    from gapless.timeline.timeline import Timeline

__version__ = "0.1.0"

__all__ = [
    "Check", "Comparison", "GaplessError", "Machine", "Pipeline", "Program", "RecordingCheck", "Report", "Schedule",
    "Simulation", "Tape", "Timeline", "__version__", "check", "compare", "cuda_kernel", "explain", "load", "read_tape",
    "record", "simulate",
]  # fmt: skip

# Where each name lives that is not written below: its module, and what it is called there.
_HOMES = {
    "Check": "gapless.model.simulation.Check",
    "Comparison": "gapless.diagnosis.compare.Comparison",
    "GaplessError": "gapless.model.errors.GaplessError",
    "Machine": "gapless.model.machine.Machine",
    "Pipeline": "gapless.runtime.pipeline.Pipeline",
    "Program": "gapless.model.program.Program",
    "RecordingCheck": "gapless.checking.recordings.RecordingCheck",
    "Report": "gapless.diagnosis.report.Report",
    "Schedule": "gapless.model.schedule.Schedule",
    "Simulation": "gapless.model.simulation.Simulation",
    "Tape": "gapless.model.tape.Tape",
    "Timeline": "gapless.timeline.timeline.Timeline",
    "cuda_kernel": "gapless.runtime.kernels.cuda_kernel",
    "load": "gapless.timeline.sources.load",
    "read_tape": "gapless.model.tape.read",
}


def explain(
    source: str | PathLike[str] | Timeline,
    *,
    start_ns: int | None = None,
    end_ns: int | None = None,
    steps: tuple[int, int] | None = None,
    device: int | None = None,
    apply: Sequence[str] = (),
    machine: Machine | str | None = None,
) -> Report:
    """Explain what each engine of a device waited for, from a timeline or the file that holds one.

    *start_ns* and *end_ns* (on the timeline's clock) or *steps* ``(a, b)`` (the steps a to b - 1 that the program
    marks) choose a part of the run; *device* is the GPU's number, by default the one that worked most. *apply* names
    repairs (``"pin"``, ``"streams=4"``) to predict together; *machine* (a Machine, or the name of a profile) gives what
    the timeline has no sample of. The report prints itself, also in a notebook, and gives its facts as
    ``report.to_dict()``. Raises GaplessError where the file is no timeline, the part asked for is not in it, or there
    is no such repair.
    """
    from gapless.diagnosis.explain import explain as explain_timeline
    from gapless.timeline.sources import load
    from gapless.timeline.timeline import Timeline

    _show_reports()
    timeline = source if isinstance(source, Timeline) else load(source)
    if isinstance(machine, str):
        from gapless.model.machine import Machine

        machine = Machine.named(machine)
    return explain_timeline(
        timeline, start_ns=start_ns, end_ns=end_ns, steps=steps, device=device, apply=apply, machine=machine
    )


def compare(
    before: str | PathLike[str] | Timeline | Report, after: str | PathLike[str] | Timeline | Report, *,
    gates: Sequence[str] = (),
) -> Comparison:  # fmt: skip
    """Compare two timelines of a program (or the files or reports of them): what changed, which causes went or came.

    *gates* are conditions that *after* must hold: ``"overlapped>=0.6"``, ``"no pageable-copy"``, ``"speedup>=1.1"``;
    ``ok`` says whether all do. The comparison prints itself and gives its facts as ``to_dict()``. Raises GaplessError
    for a file that is no timeline, one without any work of a GPU, and a gate that cannot be read.
    """
    from gapless.diagnosis.compare import compare as compare_reports
    from gapless.diagnosis.compare import read_gate
    from gapless.diagnosis.report import Report

    for gate in gates:
        read_gate(gate, speedup=True)
    old, new = (known if isinstance(known, Report) else explain(known) for known in (before, after))
    _show_reports()
    return compare_reports(old, new, gates)


def simulate(
    source: str | PathLike[str] | Tape | Program, *, machine: Machine | str | None = None, replay: str = "plain"
) -> Simulation:
    """Play a stream program: the file of a tape, a tape that ``read_tape`` gave, or a Program.

    *machine* (a Machine, or the name of a profile) stands in for the tape's own; *replay* is a run that exploring told
    of, such as ``h17``. The simulation prints itself: engines and streams drawn to time, and why each engine waits.
    ``schedule`` holds start, end and binding constraint of all operations, ``races`` what the race check found,
    ``outcomes`` whether each expectation holds; ``to_dict()`` gives the form of the JSON. Raises GaplessError for a
    tape that cannot be read and for a program that deadlocks.
    """
    from gapless.model.simulation import simulate as play

    _show_tapes()
    return play(source, machine=machine, replay=replay)


if TYPE_CHECKING:

    @overload
    def check(source: Timeline) -> RecordingCheck: ...
    @overload
    def check(
        source: Tape | Program, *, machine: Machine | str | None = None, replay: str = "plain", explore: int = 0
    ) -> Check: ...
    @overload
    def check(
        source: str | PathLike[str], *, machine: Machine | str | None = None, replay: str = "plain", explore: int = 0
    ) -> Check | RecordingCheck: ...


def check(
    source: str | PathLike[str] | Tape | Program | Timeline, *, machine: Machine | str | None = None,
    replay: str = "plain", explore: int = 0,
) -> Check | RecordingCheck:  # fmt: skip
    """Check a stream program or a recording for races: accesses to memory that no documented rule puts in order.

    Of a program it takes and raises what ``simulate`` does; with *explore* it looks at so many runs, in which host
    threads, durations and whatever no rule fixes vary. ``ok`` says whether the expectations hold or, where there are
    none, that there is no error; ``races`` holds what was found.

    Of a recording with addresses (``gapless record --addresses``; its file, or as loaded) ``findings`` holds what was
    found: exact between copies, memsets, allocations and frees, possible where a kernel's argument points. ``ok`` says
    that none is exact and nothing is missing from the recording; ``missing`` says what is. Raises GaplessError for a
    timeline that holds no addresses.

    Either check prints itself: both accesses of each race, why nothing orders them, and the shortest repair.
    """
    from gapless.timeline.timeline import Timeline

    if isinstance(source, Timeline) or (isinstance(source, (str, PathLike)) and _is_recording(source)):
        from gapless.checking.recordings import check as check_recording
        from gapless.views import register

        register("recordings")
        return check_recording(source)
    from gapless.model.simulation import check as check_tape

    _show_tapes()
    return check_tape(source, machine=machine, replay=replay, explore=explore)


def _is_recording(path: str | PathLike[str]) -> bool:
    from gapless.timeline.sources.recording import is_recording

    return is_recording(path)


def record(
    path: str | PathLike[str] | None = None,
    *,
    max_size: int = 0,
    lines: bool = True,
    addresses: bool = False,
    force: bool = False,
) -> Recording:
    """Record what this program does with CUDA inside a ``with`` block.

    ``with gapless.record() as recording: ...``, then ``recording.explain()``. *path* is the file (by default a
    temporary one), which is overwritten only with *force*; *max_size* is its limit in bytes (0: none); *lines* asks for
    source lines, *addresses* for which memory calls touch (for ``gapless check``; launches then cost more). Entering
    raises GaplessError where there is no CUPTI, or another profiler holds it.
    """
    from gapless.recorder.recording import Recording

    Recording.explained_by = staticmethod(explain)
    return Recording(path, max_size=max_size, lines=lines, addresses=addresses, force=force)


def _show_reports() -> None:
    """Teach reports to print themselves: what computes one does not know who draws it."""
    from gapless.views import register

    register()
    register("timelines")  # of which each report holds one


def _show_tapes() -> None:
    from gapless.views import register

    register("tapes")


def _show_timelines() -> None:
    from gapless.views import register

    register("timelines")


def _show_pipelines() -> None:
    from gapless.views import register

    register("pipelines")
    register("timelines")


# What is taught to show itself when a name is first used.
_SHOWS = {
    "Comparison": _show_reports, "Report": _show_reports, "Check": _show_tapes, "Program": _show_tapes,
    "Schedule": _show_tapes, "Simulation": _show_tapes, "Timeline": _show_timelines, "load": _show_timelines,
    "Pipeline": _show_pipelines,
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'gapless' has no attribute {name!r}")
    if name in _SHOWS:
        _SHOWS[name]()
    module, _, there = _HOMES[name].rpartition(".")
    value = getattr(import_module(module), there)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
