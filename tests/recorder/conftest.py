"""A recorder compiled here and a CUDA that is none: the whole path from injection to file, without a GPU."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

import pytest

import readback
import written as writer
from gapless.cli import main
from gapless.recorder import library
from gapless.recorder.layouts import layout_source

HERE = Path(__file__).parent
NATIVE = HERE.parents[1] / "src" / "gapless" / "recorder" / "native"


@pytest.fixture(scope="session")
def headers() -> Path:
    """Give CUPTI's headers; skip where there is no compiler for them."""
    if not shutil.which("cc"):
        pytest.skip("there is no C compiler")
    found = next((cupti.headers for cupti in library.cuptis() if cupti.headers), None)
    assert found, "the group test brings nvidia-cuda-cupti"
    return found


@pytest.fixture(scope="session")
def shared_build(tmp_path_factory: pytest.TempPathFactory, worker: str) -> Path:
    """Give a folder that all workers of this run share."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if worker != "master" else base) / "recorder"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def worker(request: pytest.FixtureRequest) -> str:
    return getattr(request.config, "workerinput", {}).get("workerid", "master")


@dataclass(frozen=True)
class Recorded:
    """What came of it: the exit status, what the command said."""

    returncode: int
    stderr: str


@dataclass(frozen=True)
class Fake:
    """The fake CUDA, a program that uses it, and how to record with it."""

    library: Path
    program: Path
    environment: dict[str, str]

    def record(self, path: Path, *options: str, command: Sequence[str | Path]) -> Recorded:
        """Run the command in this process; only the program is one of its own."""
        said = io.StringIO()
        with patch.dict(os.environ, self.environment), redirect_stderr(said):
            status = main(["record", "-o", str(path), *options, "--", *map(str, command)])
        return Recorded(status, said.getvalue())


@pytest.fixture(scope="session")
def fake(headers: Path, shared_build: Path) -> Fake:
    table = layout_source((headers / "cupti_activity.h").read_text())
    kernel = re.search(r"KIND\(10, .*, (\w+)\)", table)
    assert kernel
    cuda, program = shared_build / "libfakecuda.so", shared_build / "program"
    includes = ["-I", str(NATIVE / "shim"), "-isystem", str(headers), f"-DKERNEL={kernel[1]}"]
    if not cuda.exists():
        build(cuda, ["-shared", "-fPIC", *includes, str(HERE / "fake" / "cuda.c"), "-ldl", "-lpthread"])
    driver = shared_build / "driver" / "libcuda.so.1"  # what shows that there is one
    driver.parent.mkdir(exist_ok=True)
    if not driver.exists():
        build(driver, ["-shared", "-fPIC", str(HERE / "fake" / "driver.c")])
    if not program.exists():
        build(program, ["-g", str(HERE / "fake" / "program.c"), f"-L{shared_build}", "-lfakecuda",
                        f"-Wl,-rpath,{shared_build}", "-lpthread"])  # fmt: skip
    environment = {
        **os.environ, "GAPLESS_CUPTI": str(cuda), "XDG_CACHE_HOME": str(shared_build / "cache"), "FAKE": str(cuda),
        "LD_LIBRARY_PATH": str(driver.parent),
    }  # fmt: skip
    environment.pop("CUDA_INJECTION64_PATH", None)
    with patch.dict(os.environ, environment):
        library.find_library()  # the fake brings no headers: compiled with those of the wheel
    return Fake(cuda, program, environment)


def build(target: Path, arguments: list[str]) -> None:
    """Compile into place in one step, so that workers that do the same do not meet."""
    mine = target.with_name(f"{target.name}.{os.getpid()}")
    subprocess.run(["cc", "-O1", *arguments, "-o", str(mine)], check=True)
    mine.replace(target)


@pytest.fixture(scope="session")
def written() -> ModuleType:
    """Give the writer of test recordings."""
    return writer


@pytest.fixture(scope="session")
def content() -> Callable[[Path], dict[str, object]]:
    """Give what reads a recording back, from the format's description alone."""
    return readback.read
