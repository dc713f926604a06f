"""What the commands that explain timelines share: the options that choose, and the gates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapless.cli.output import blaming_itself, complain, progress_of
from gapless.cli.words import DONE, FAILED
from gapless.model.errors import GaplessError

if TYPE_CHECKING:
    from gapless.diagnosis.compare import Gate
    from gapless.diagnosis.report import Report
    from gapless.model.machine import Machine
    from gapless.timeline.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Asked:
    """What the options of explain and compare ask for."""

    window: Window
    device: int | None
    apply: Sequence[str]
    machine: Machine | None
    save: Path | None
    gates: Sequence[str]


def explained(path: Path, asked: Asked, *, quiet: bool = False) -> Report:
    """Read a timeline and explain it as the options ask; *quiet* shows no progress."""
    from gapless.diagnosis.explain import explain
    from gapless.timeline.sources import load

    with blaming_itself(path, "explain"), progress_of(path, quiet=quiet) as progress:
        timeline = load(path, progress=progress)
        chosen = {"apply": asked.apply, "machine": asked.machine}
        chosen = {name: value for name, value in chosen.items() if value}
        return explain(timeline, device=asked.device, **asked.window(timeline, asked.device), **chosen)


def read_gates(gates: Sequence[str], *, speedup: bool = False) -> Sequence[str]:
    """Refuse gates that cannot be read before any timeline is."""
    if gates:
        from gapless.diagnosis.compare import read_gate

        for gate in gates:
            read_gate(gate, speedup=speedup)
    return gates


def held(gates: Sequence[Gate], *, of: Path | None = None) -> int:
    """Say of each gate that fails what there is instead."""
    for gate in gates:
        if not gate.holds:
            complain((f"{of}: " if of else "") + gate.reason)
    return DONE if all(gate.holds for gate in gates) else FAILED


Window = Callable[["Timeline", "int | None"], dict[str, Any]]


def read_window(from_: str | None, to: str | None, steps: str | None) -> Window:
    """Read the options that choose a part of the run; what they mean in ns depends on the timeline."""
    if steps is not None and not (from_ is to is None):
        raise GaplessError(
            "--steps and --from or --to exclude each other: a window is some steps or a stretch of time."
        )
    if steps is not None:
        chosen = {"steps": _steps(steps)}
        return lambda timeline, device: chosen
    since, until = nanoseconds("--from", from_), nanoseconds("--to", to)
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


def nanoseconds(option: str, text: str | None, *, bare: str = "ms") -> int | None:
    """Read a time such as 1.5ms; a number without a unit is in *bare*."""
    if text is None:
        return None
    import re
    from decimal import Decimal

    units = {"ns": 1, "us": 1_000, "µs": 1_000, "μs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
    match = re.fullmatch(r"\s*([0-9]{1,15}(?:\.[0-9]*)?|\.[0-9]+)\s*([a-zµμ]*)\s*", text)
    if not match or (match[2] or bare) not in units:
        alone = {"s": "seconds", "ms": "milliseconds"}[bare]
        raise GaplessError(
            f"{option} {text} is no time, from 0 on. Write a number with s, ms, us or ns after it, such as 1.5ms; "
            f"a number alone is {alone}."
        )
    return round(Decimal(match[1]) * units[match[2] or bare])
