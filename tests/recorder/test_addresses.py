"""Which memory calls touch: their parameters read as CUDA lays them out; names of kernels as C++ has them."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from gapless.recorder import names
from gapless.timeline.sources import load
from gapless.timeline.sources.recording_format import Space

HERE = Path(__file__).parent
NATIVE = HERE.parents[1] / "src" / "gapless" / "recorder" / "native"


@pytest.fixture(scope="session")
def accesses(headers: Path, shared_build: Path, worker: str) -> Path:
    """Give the program that hands made parameters to accesses.c and prints the rows."""
    program = shared_build / f"accesses-{worker}"
    includes = ["-I", str(NATIVE), "-I", str(NATIVE / "shim"), "-isystem", str(headers)]
    sources = [str(HERE / "fake" / "accesses.c"), str(NATIVE / "accesses.c"), str(NATIVE / "calls.c")]
    command = ["cc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", *includes, *sources, "-o", str(program), "-lpthread"]
    subprocess.run(command, check=True)
    return program


def rows(program: Path, *words: str) -> tuple[list[str], list[list[int]]]:
    """Give what was watched or noted, and the rows: correlation, how, address, bytes, index, pitch."""
    said = subprocess.run([program, *words], capture_output=True, text=True, check=True).stdout.splitlines()
    told = [line for line in said if not line[0].isdigit()]
    numbers = [line.split() for line in said if line[0].isdigit()]
    return told, [[int(c), int(how), int(at, 16), *map(int, rest)] for c, how, at, *rest in numbers]


def test_parameters_are_read_where_cuda_puts_them(accesses: Path) -> None:
    told, found = rows(accesses)
    assert found == [
        [1, 1, 0x20000, 256, 0, 0], [1, 2, 0x10000, 256, 0, 0],
        [2, 1, 0x40000, 3 * 128 + 64, 0, 128], [2, 2, 0x30000, 256, 0, 0],  # rows apart, and rows side by side
        [3, 2, 0x50000, 100, 0, 0],
        [4, 1, 0x70000, 32, 0, 0], [4, 2, 0x60000, 32, 0, 0],
        [6, 2, 0x80000, 40, 0, 0],
        [7, 3, 0x7F0000000000, 0, 0, 0], [7, 3, 0x7F0000000100, 0, 2, 0], [7, 3, 0x7F0000000200, 0, 2, 0],
        [8, 3, 0x7F0000000300, 0, 0, 0], [8, 3, 0x7F0000000400, 0, 3, 0],
        [9, 3, 0x7F0000000000, 0, 0, 0], [9, 3, 0x7F0000000100, 0, 2, 0], [9, 3, 0x7F0000000200, 0, 2, 0],
        [10, 1, 0xA0000, 8, 0, 0], [10, 2, 0x90000, 8, 0, 0],
        [11, 2, 0xB0000, 64 + 16, 0, 64],
    ]  # fmt: skip
    assert "watch cudaMemcpy2D_ptds_v7000" in told
    assert "watch cuLaunchKernel" in told
    assert not any("cudaLaunchKernel" in line or "3D" in line for line in told)


def test_a_driver_that_does_not_tell_the_sizes_of_arguments(accesses: Path) -> None:
    told, found = rows(accesses, "old")
    assert told[0].startswith("note no-kernel-arguments This driver does not tell")
    assert {row[0] for row in found} == {1, 2, 3, 4, 6, 10, 11}


def test_names_are_added_as_cpp_has_them(tmp_path: Path, written: ModuleType) -> None:
    made = written.Recording().start()
    made.strings(Space.POINTER, {0x1000: "_Z5scalePfPKf", 0x2000: "plain", 0x3000: "_Zbroken"})
    path = made.records([(10, {"start": 10**18, "end": 10**18 + 5, "name": 0x1000})]).end().save(tmp_path / "a.gapless")
    names.demangle(path)
    timeline = load(path)
    assert [timeline.name_of(row) for row in timeline.ops.name.tolist()] == ["scale(float*, float const*)"]
    assert timeline.lost == ()


def test_a_recorded_program_has_its_kernels_names(fake: Any, content: Callable[[Path], Any], tmp_path: Path) -> None:
    path = tmp_path / "my run.gapless"
    done = fake.record(path, "--addresses", command=[fake.program, "3", "0", "exit"])
    assert done.returncode == 5, done.stderr
    assert done.stderr.endswith(f"Next: gapless check '{path}'\n")
    assert {note["what"] for note in content(path).notes} == {"kind-refused", "no-kernel-arguments"}
    timeline = load(path)
    assert {timeline.name_of(row) for row in timeline.ops.name.tolist()} == {"work(float*, unsigned long, int)"}
