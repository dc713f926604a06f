"""What options take: lists of causes, of repairs and of what a gate may name."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from gapless.cli.output import drawn, to_console, write
from gapless.cli.words import DONE

LIST = "list"  # what stands for a name to see them all


def list_causes() -> int:
    """Print the causes, a line each."""
    from gapless.diagnosis.causes import CAUSES

    rows = [(name, _first_line(module)) for name, module in CAUSES.items()]
    return _print(rows, ["The page about one: gapless explain --cause NAME"])


def list_repairs() -> int:
    """Print the repairs, what each does, and what a number behind it means."""
    from gapless.diagnosis.repairs import DEFAULTS, REPAIRS

    rows = [(f"{name}=K" if name in DEFAULTS else name, _first_line(module)) for name, module in REPAIRS.items()]
    usual = ", ".join(f"{name}={value}" for name, value in DEFAULTS.items())
    return _print(rows, [
        f"K is a number; without one it is {usual}.",
        "Several are made one after the other: gapless explain run.json --apply pin --apply streams=4",
    ])  # fmt: skip


def list_gates(*, speedup: bool) -> int:
    """Print what a gate may name; *speedup* says that two timelines are compared."""
    from gapless.diagnosis.compare import gate_names

    return _print(gate_names(speedup=speedup), [
        "Write NAME>=NUMBER, NAME<=NUMBER, NAME>NUMBER or NAME<NUMBER; 60% is 0.6. CAUSE is a name that --cause list "
        "shows."
    ])  # fmt: skip


def _print(rows: Sequence[tuple[str, str]], closing: Sequence[str]) -> int:
    from gapless.views.terminal import draw_list

    console = to_console()
    write(drawn(console, draw_list(rows, closing, console)))
    return DONE


def _first_line(module: ModuleType | Any) -> str:
    return inspect.cleandoc(module.__doc__ or "").partition("\n\n")[0].replace("\n", " ")
