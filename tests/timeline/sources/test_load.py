"""Reading a file: its name, its progress, what the process is left with."""

from __future__ import annotations

import gc
import gzip
import random
import threading
from types import SimpleNamespace

import pytest

import gapless
from gapless.model.errors import GaplessError
from gapless.timeline.sources import feed, load


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("layout", ["kineto", "one line"])
def test_progress_counts_the_bytes_of_the_file(
    kineto: SimpleNamespace, layout: str, packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "PIECE", 4 << 10)
    data = kineto.text([kineto.kernel("k", n, 0.5, n) for n in range(1, 1_000)], layout)
    data = gzip.compress(data, 1) if packed else data
    seen: list[tuple[int, int]] = []
    load(kineto.save(data), progress=lambda done, total: seen.append((done, total)))
    assert len(seen) > 3
    assert seen[-1] == (len(data), len(data))
    assert {total for _, total in seen} == {len(data)}
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})


def test_the_name_of_a_file_says_nothing(kineto: SimpleNamespace) -> None:
    data = kineto.text([kineto.kernel("k", 1, 2, 5)])
    for name in ("trace.txt", "trace", "trace.gz", "trace.sqlite"):
        assert len(load(kineto.save(data, name)).ops) == 1
    assert len(load(kineto.save(gzip.compress(data), "packed.json")).ops) == 1


def test_a_path_may_be_text(kineto: SimpleNamespace) -> None:
    path = kineto.save(kineto.text([kineto.kernel("k", 1, 2, 5)]))
    assert load(str(path)).source == str(path)
    assert len(gapless.load(str(path)).ops) == 1


@pytest.mark.parametrize("enabled", [True, False])
def test_the_garbage_collector_is_left_as_it_was(kineto: SimpleNamespace, enabled: bool) -> None:
    path = kineto.save(kineto.text([kineto.kernel("k", 1, 2, 5)]))
    was = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        load(path)
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if was else gc.disable)()


def test_a_file_that_is_given_up_leaves_no_thread_behind(kineto: SimpleNamespace) -> None:
    noise = random.Random(7).randbytes(2 << 20).hex().encode()
    rows = b",".join(noise[at : at + 40] for at in range(0, len(noise), 40))
    path = kineto.save(gzip.compress(b'{"traceEvents": [\n  {\n' + rows.replace(b",", b"\n  },\n  {\n"), 1))
    assert path.stat().st_size > 1 << 20
    with pytest.raises(GaplessError, match="not one event") as problem:
        load(path)
    assert "gapless-unpack" not in {thread.name for thread in threading.enumerate()}
    assert problem.value.__traceback__ is not None


def test_columns_are_of_their_types(kineto: SimpleNamespace) -> None:
    timeline = kineto.read([kineto.kernel("k", 1, 2, 5), kineto.call("cudaLaunchKernel", 0, 1, 5)])
    ops = timeline.ops
    told = {name: str(ops.column(name).dtype) for name in ("kind", "device", "stream", "start", "occupancy", "call")}
    assert told == {
        "kind": "int8", "device": "int16", "stream": "int32", "start": "int64", "occupancy": "float32", "call": "int32",
    }  # fmt: skip
