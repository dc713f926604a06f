"""The pipeline's face, on the host and on a simulated GPU."""

from __future__ import annotations

import gc
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gapless
from gapless.model.errors import GaplessError
from gapless.runtime.devices import Copies
from gapless.runtime.devices.host import Host
from gapless.runtime.devices.simulated import HOST_COPY_NS, Simulated
from gapless.runtime.kernels import cuda_kernel
from gapless.runtime.pipeline import Pipeline
from gapless.runtime.resume import Journal
from gapless.timeline.sinks import SINKS

X = np.random.default_rng(0).random((4001, 3), dtype=np.float32)


def affine(a: Any) -> Any:
    return 2 * a + 1


@pytest.fixture(params=["host", "simulated"])
def device(request: pytest.FixtureRequest) -> Any:
    return Host() if request.param == "host" else Simulated()


def test_out_is_filled_and_given_back(device: Any) -> None:
    out = np.zeros_like(X)
    with Pipeline(affine, device=device, chunk=5000) as pipe:
        assert pipe(X, out=out) is out
    assert np.array_equal(out, affine(X))


def test_out_may_be_the_input(device: Any) -> None:
    x = X.copy()
    with Pipeline(affine, device=device, chunk=5000) as pipe:
        pipe(x, out=x)
    assert np.array_equal(x, affine(X))


def test_out_that_overlaps_the_input_in_part_is_refused(device: Any) -> None:
    x = np.zeros(100)
    with Pipeline(affine, device=device) as pipe, pytest.raises(GaplessError, match="overlaps an input in part"):
        pipe(x[:-1], out=x[1:])


def test_out_of_another_shape_or_type_is_refused_at_its_chunk(device: Any) -> None:
    with Pipeline(affine, device=device) as pipe:
        with pytest.raises(GaplessError, match=r"out= is an array of shape \(4001, 3\) and dtype float64"):
            pipe(X, out=np.zeros(X.shape))
        frozen = np.zeros_like(X)
        frozen.flags.writeable = False
        with pytest.raises(GaplessError, match="read-only"):
            pipe(X, out=frozen)


def test_strided_input_and_memmap(device: Any, tmp_path: Any) -> None:
    source = np.memmap(tmp_path / "x", np.float32, "w+", shape=X.shape)
    source[:] = X
    target = np.memmap(tmp_path / "y", np.float32, "w+", shape=X.shape)
    with Pipeline(affine, device=device, chunk=4096) as pipe:
        pipe(source, out=target)
        assert np.array_equal(target, affine(X))
        assert np.array_equal(pipe(X[::2, ::-1]), affine(X[::2, ::-1]))
        assert np.array_equal(pipe(np.asfortranarray(X)), affine(X))


def test_dtype_and_row_shape_may_change(device: Any) -> None:
    with Pipeline(lambda a: a[:, :2].astype(np.int16), device=device, chunk=3000) as pipe:
        y = pipe(X * 100)
    assert y.dtype == np.int16
    assert np.array_equal(y, (X * 100)[:, :2].astype(np.int16))


def test_reductions_one_after_another_or_folded(device: Any) -> None:
    x = np.arange(10_000)
    with Pipeline(lambda a: a.sum(), device=device, chunk=8000) as pipe:
        assert pipe(x).tolist() == [chunk.sum() for chunk in np.split(x, range(1000, 10_000, 1000))]
    with Pipeline(lambda a: a.sum(), device=device, chunk=8000, reduce=np.add) as pipe:
        assert pipe(x) == x.sum()
    with Pipeline(lambda a: a[:3], device=device, chunk=8000) as pipe:
        assert pipe(x).tolist() == [1000 * i + j for i in range(10) for j in range(3)]


def test_no_outputs_and_no_inputs(device: Any) -> None:
    seen: list[float] = []
    with Pipeline(lambda a: seen.append(float(a.sum())), device=device, chunk=8000) as pipe:
        assert pipe(np.ones(5000)) is None
    assert sum(seen) == 5000
    with Pipeline(lambda first, rows: np.arange(first, first + rows), device=device, chunk=512) as pipe:
        assert np.array_equal(pipe(rows=1000), np.arange(1000))
        with pytest.raises(GaplessError, match="needs rows="):
            pipe()


def test_lists_are_packed_into_one_copy(device: Any) -> None:
    items = [X[i : i + 1 + i % 3] for i in range(50)]
    calls: list[int] = []

    def kernel(a: Any) -> Any:
        calls.append(len(a))
        return affine(a)

    with Pipeline(kernel, device=device) as pipe:
        (results,) = pipe.stream([items])
        assert calls == [sum(map(len, items))]
        assert all(np.array_equal(y, affine(x)) for y, x in zip(results, items, strict=True))
        pairs = [(item, item.astype(np.float64)) for item in items]
        with Pipeline(lambda a, b: (a + a, b + b), device=device) as two:
            (results,) = two.stream([pairs])
            assert all(np.array_equal(b, 2 * x[1]) for (_, b), x in zip(results, pairs, strict=True))


def test_single_items_are_packed_on_request(device: Any) -> None:
    items = [X[i : i + 1] for i in range(1000)]
    with Pipeline(affine, device=device) as pipe:
        results = list(pipe.stream(iter(items), pack=1200))
        assert pipe.report().chunks == 10
    assert all(np.array_equal(y, affine(x)) for y, x in zip(results, items, strict=True))


@pytest.mark.parametrize(
    ("options", "most"),
    [({"chunk": "300 KiB"}, 300 << 10), ({"priority": "low"}, 4 << 20), ({"memory": "18 MiB"}, 1 << 20)],
    ids=["chunk", "priority", "memory"],
)
def test_packs_are_of_the_size_that_is_fixed_for_chunks(options: dict[str, Any], most: int) -> None:
    """Of all sizes of packs that the plan may choose, those would be many times too large."""
    x, sizes = np.zeros((3 << 20, 4), np.float32), list[int]()
    with Pipeline(lambda a: sizes.append(a.nbytes), device=Simulated(), **options) as pipe:
        assert sum(1 for _ in pipe.stream((x[first : first + 256] for first in range(0, len(x), 256)), pack=True))
    assert sum(sizes) == x.nbytes
    assert max(sizes) <= most


def test_rows_of_an_array_are_packed_without_a_look_at_each(device: Any) -> None:
    x = np.random.default_rng(2).random((50, 7, 3), dtype=np.float32)
    with Pipeline(affine, device=device) as pipe:
        for source in (x, x[::2], x.transpose(1, 0, 2)):
            results = list(pipe.stream(source, pack=800))
            assert len(results) == len(source)
            assert all(np.array_equal(y, affine(item)) for y, item in zip(results, source, strict=True))


def test_items_of_different_kinds_do_not_share_a_pack(device: Any) -> None:
    items = [np.zeros(4, np.float32), np.zeros(4, np.float64), np.zeros(4, np.float64), np.zeros((4, 2))]
    with Pipeline(affine, device=device) as pipe:
        results = list(pipe.stream(items, pack=True))
        assert [y.shape for y in results] == [x.shape for x in items]
        assert pipe.report().chunks == 3


def test_packing_needs_a_row_for_a_row(device: Any) -> None:
    with Pipeline(lambda a: a.sum(), device=device) as pipe, pytest.raises(GaplessError, match="a row for a row"):
        list(pipe.stream([[X, X]]))


def test_results_that_are_let_go_of_are_used_again() -> None:
    addresses: set[int] = set()
    with Pipeline(affine, device="host", slots=2) as pipe:
        for y in pipe.stream(X for _ in range(50)):
            addresses.add(y.__array_interface__["data"][0])
            del y
    assert len(addresses) <= 2 + 4  # two slots before the size is known, then two blocks a slot


def test_input_that_cannot_be_cut_or_copied(device: Any) -> None:
    with Pipeline(affine, device=device) as pipe:
        with pytest.raises(GaplessError, match="differ in their first dimension"):
            pipe(np.zeros(3), np.zeros(4))
        with pytest.raises(GaplessError, match="no rows to cut"):
            pipe(np.float32(3))
        with pytest.raises(GaplessError, match="Python objects"):
            pipe(np.array([object()]))


@pytest.mark.parametrize(("what", "named"), [(5, "of type int"), (None, "None"), ("x * 2", "of type str")])
def test_what_is_no_kernel_is_not_taken_for_one_of_a_gpu(device: Any, what: Any, named: str) -> None:
    with pytest.raises(GaplessError, match=rf"is a function of NumPy arrays .* This is {named}\.$"):
        Pipeline(what, device=device)
    with pytest.raises(GaplessError, match="A CudaSource runs on a GPU, not on"):
        Pipeline(cuda_kernel("__global__ void f() {}", "f"), device=device)


def test_wrong_arguments() -> None:
    for how, text in (
        ({"device": "tpu"}, "no device 'tpu'"),
        ({"priority": "urgent"}, "low, normal or high"),
        ({"slots": 0}, "at least 1"),
        ({"chunk": "many"}, "not a size"),
        ({"outputs": ["nonsense"]}, "outputs= has 'nonsense'"),
    ):
        with pytest.raises(GaplessError, match=text):
            Pipeline(affine, **{"device": "host", **how})
    with pytest.raises(GaplessError, match="runs on a GPU"):
        Pipeline(cuda_kernel("__global__ void f() {}", "f"), device="host")
    with pytest.raises(GaplessError, match="no kernel 'g'"):
        cuda_kernel("__global__ void f() {}", "g")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"slots": "3"}, "slots= takes a whole number"), ({"slots": 1.5}, "slots= takes a whole number"),
        ({"chunk": float("nan")}, "chunk= takes a whole number"), ({"priority": []}, "priority is low, normal or high"),
        ({"arrays": "pytorch"}, "arrays is cupy, torch, numba or cuda"), ({"arrays": 3}, "arrays is cupy"),
        ({"device": 5}, "There is no device 5"), ({"launch": 3}, "launch= is a function"),
    ],
)  # fmt: skip
def test_options_of_a_wrong_type(options: dict[str, Any], says: str) -> None:
    with pytest.raises(GaplessError, match=says):
        Pipeline(affine, **{"device": "host", **options})


def test_rows_and_packs_of_a_wrong_type() -> None:
    with Pipeline(lambda first, rows: np.arange(first, first + rows), device="host") as pipe:
        for rows in ("3", 1.5):
            with pytest.raises(GaplessError, match="rows= takes a whole number"):
                pipe(rows=rows)  # type: ignore[arg-type]
        assert pipe(rows=np.int8(100)).tolist() == list(range(100))
        with pytest.raises(GaplessError, match="pack= takes a whole number"):
            pipe.stream([X], pack=float("inf"))  # type: ignore[arg-type]
        with pytest.raises(GaplessError, match="whose elements have no bytes"):
            pipe(np.zeros(3, "V0"))


def test_places_of_results_that_overlap_are_refused() -> None:
    x = X[:, 0]
    one, wide = np.empty_like(x), np.empty(2 * len(x), x.dtype)
    windows = np.lib.stride_tricks.sliding_window_view(np.zeros(100), 4, writeable=True)
    still = np.lib.stride_tricks.as_strided(np.zeros(1), (len(X),), (0,))
    with Pipeline(lambda a: (a, a + 1), device="host") as pipe:
        for out in ((one, one), (wide[: len(x)], wide[1 : len(x) + 1])):
            with pytest.raises(GaplessError, match="overlap each other"):
                pipe(x, out=out)
        pipe(x, out=(wide[::2], wide[1::2]))  # side by side, and apart
        assert np.array_equal(wide, np.stack([x, x + 1], axis=1).reshape(-1))
    with Pipeline(affine, device="host") as pipe:
        for out in (windows, still):
            with pytest.raises(GaplessError, match="overlap each other"):
                pipe(out, out=out)
        table = np.zeros((6, 5))
        assert np.array_equal(pipe(table[:, ::2], out=table[:, ::2]), np.ones((6, 3)))


def test_stop_iteration_of_a_kernel_is_an_error() -> None:
    def kernel(a: Any) -> Any:
        raise StopIteration

    with Pipeline(kernel, device="host") as pipe, pytest.raises(RuntimeError, match="raised StopIteration") as caught:
        pipe(X)
    assert "chunk 0" in caught.value.__notes__[0]


def test_closing_from_within_says_where_to_close() -> None:
    with Pipeline(affine, device="host") as pipe:

        def source() -> Any:
            yield X
            pipe.close()

        with pytest.raises(GaplessError, match="is at work"):
            list(pipe.stream(source()))


def test_a_journal_is_a_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    x, out = X, np.memmap(tmp_path / "y", X.dtype, "w+", shape=X.shape)
    with Pipeline(affine, device="host") as pipe:
        for path in (tmp_path / "pipe", "/dev/zero"):
            with pytest.raises(GaplessError, match="is no file"):
                pipe(x, out=out, resume=path)


def test_kernels_differing_in_results(device: Any) -> None:
    pipe = Pipeline(lambda a: a if len(a) > 400 else (a, a), device=device, chunk=5000)
    with pipe, pytest.raises(GaplessError, match="2 results"):
        pipe(X)


def test_the_memory_bound_is_kept() -> None:
    with Pipeline(affine, device=Simulated(), memory="64 KiB") as pipe:
        assert np.array_equal(pipe(X), affine(X))
        assert pipe.plan().memory <= 65536
        assert "memory: bound to 64 KiB by hand" in str(pipe.plan())
    with Pipeline(affine, device=Simulated(), memory=40) as pipe, pytest.raises(GaplessError, match="one row alone"):
        pipe(X)


def test_the_memory_bound_of_a_stream_counts_the_blocks_of_its_results() -> None:
    device, taken = Simulated(), []
    pinned, memory = device.pinned, device.memory
    device.pinned = lambda nbytes: taken.append(nbytes) or pinned(nbytes)  # type: ignore[method-assign]
    device.memory = lambda nbytes: taken.append(nbytes) or memory(nbytes)  # type: ignore[method-assign]
    batch = np.zeros(4096, np.uint8)
    with Pipeline(affine, device=device, memory=8 * 6 * 4096) as pipe:
        pipe.plan(batch)
        taken.clear()
        kept = list(pipe.stream([batch] * 40))
    assert len(kept) == 40
    assert sum(taken) <= 8 * 6 * 4096


def test_a_plan_of_a_stream_says_what_becomes_of_its_items() -> None:
    items = [np.zeros(100) for _ in range(50)]
    with Pipeline(lambda a: a, device="host") as pipe:
        list(pipe.stream(items))
        assert "chunk: each batch as it comes" in str(pipe.plan())
        list(pipe.stream(items, pack=8000))
        assert str(pipe.plan()).startswith("batches like the first of 7.81 KiB (1,000 rows), ")
        assert "chunk: items are gathered, 10 in the first" in str(pipe.plan())
        pipe(np.zeros(1))
        assert str(pipe.plan()).startswith("1 chunk of 8 B (1 row), ")
        assert str(pipe.report()).startswith("1 row in 1 chunk through ")


def test_the_first_run_loads_no_module() -> None:
    """It would be timed as the kernel's."""
    code = (
        "import sys, numpy as np\n"
        "from gapless.runtime.pipeline import Pipeline\n"
        "assert 'numpy.ma' not in sys.modules\n"
        "with Pipeline(lambda a: a + 1, device='host') as pipe:\n"
        "    pipe(np.zeros(100))\n"
        "    list(pipe.stream([([1.0, 2.0],)] * 3))\n"
        "assert 'numpy.ma' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_choices_by_hand_are_kept() -> None:
    with Pipeline(affine, device=Simulated(), chunk="24 KiB", slots=5) as pipe:
        pipe(np.tile(X, (100, 1)))
        plan = pipe.plan()
    assert (plan.slots, plan.chunk_bytes) == (5, 24 * 1024)
    assert "by hand" in str(plan)


def test_low_priority_keeps_few_small_copies_in_flight() -> None:
    with Pipeline(affine, device=Simulated(), priority="low") as pipe:
        plan = pipe.plan(np.zeros(10_000_000, np.float32))
    assert plan.ahead == 2
    assert plan.chunk_bytes <= 4 << 20


class Tight(Host):
    """A host with little memory for devices."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def memory(self, nbytes: int) -> Any:
        if nbytes > self.most:
            raise MemoryError(f"{nbytes} bytes")
        return super().memory(nbytes)


def test_out_of_memory_shrinks_the_ring_once_and_says_so() -> None:
    with Pipeline(affine, device=Tight(6000), chunk=9600) as pipe:
        with pytest.warns(RuntimeWarning, match="Memory ran out"):
            assert np.array_equal(pipe(X), affine(X))
        assert "Memory ran out" in str(pipe.report())
    pipe = Pipeline(affine, device=Tight(3000), chunk=9600)
    with pipe, pytest.warns(RuntimeWarning), pytest.raises(GaplessError, match="a second time"):
        pipe(X)


def test_a_report_is_a_timeline_like_any_other() -> None:
    import gapless
    from gapless.model.kinds import OpKind

    with Pipeline(affine, device=Simulated(), chunk=1 << 19) as pipe:
        with pytest.raises(GaplessError, match="nothing to report yet"):
            pipe.report()
        pipe(np.zeros(4 << 20, np.float32))
        report = pipe.report()
    ops = report.timeline.ops
    assert report.chunks == 32
    assert {int(kind): int((ops.kind == kind).sum()) for kind in np.unique(ops.kind)} == {
        OpKind.H2D: 32,
        OpKind.KERNEL: 32,
        OpKind.D2H: 32,
    }
    assert (ops.end >= ops.start).all()
    for kind in (OpKind.H2D, OpKind.D2H):  # one copy a direction at a time
        mine = ops.take(ops.kind == kind)
        assert (mine.start[1:] >= mine.end[:-1]).all()
    assert report.percent is not None
    assert 0 < report.percent <= 100
    text = str(report)
    assert "% of the two-way link limit" in text
    assert "Staging binds" in text
    explained = gapless.explain(report.timeline)
    assert explained.wall_ms > 0


def test_progress_counts_rows(capsys: pytest.CaptureFixture[str], device: Any) -> None:
    seen: list[tuple[int, int]] = []
    with Pipeline(affine, device=device, chunk=12_000) as pipe:
        pipe(X, progress=lambda done, rows: seen.append((done, rows)))
        pipe(X, progress=True)
    assert seen[-1] == (4001, 4001)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert "100%" in capsys.readouterr().err


def test_resume_does_not_redo_finished_chunks(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gapless.runtime.resume.EVERY", 0.0)
    out = np.memmap(tmp_path / "y", np.float32, "w+", shape=X.shape)
    journal = tmp_path / "journal"
    calls: list[int] = []
    limit = 5

    def kernel(a: Any) -> Any:
        calls.append(len(a))
        if len(calls) > limit:
            raise RuntimeError("power cut")
        return affine(a)

    with Pipeline(kernel, device="host", chunk=4800, slots=1) as pipe:
        with pytest.raises(RuntimeError, match="power cut"):
            pipe(X, out=out, resume=journal)
        done = len(calls) - 1
        assert journal.exists()
        with journal.open("a") as file:
            file.write("[12")  # a crash cut this line off
        limit = 1000
        calls.clear()
        pipe(X, out=out, resume=journal)
    assert len(calls) == -(-4001 // 400) - done
    assert np.array_equal(out, affine(X))
    assert not journal.exists()


def test_a_journal_of_another_run_is_refused_and_kept(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gapless.runtime.resume.EVERY", 0.0)
    out = np.memmap(tmp_path / "y", np.float32, "w+", shape=X.shape)
    journal = tmp_path / "journal"

    def kernel(a: Any) -> Any:
        if a[0, 0] == X[2000, 0]:
            raise RuntimeError("stop")
        return affine(a)

    with Pipeline(kernel, device="host", chunk=4800, slots=1) as pipe:
        with pytest.raises(RuntimeError, match="stop"):
            pipe(X, out=out, resume=journal)
        before = journal.read_text()
        with pytest.raises(GaplessError, match="differs in inputs"):
            pipe(X + 1, out=out, resume=journal)
        assert journal.read_text() == before
        with pytest.raises(GaplessError, match=r"np\.memmap"):
            pipe(X, out=np.zeros_like(X), resume=journal)
        other = tmp_path / "notes.txt"
        other.write_text("mine\n")
        with pytest.raises(GaplessError, match="no journal"):
            pipe(X, out=out, resume=other)
        assert other.read_text() == "mine\n"


def a_memmap(path: Path) -> Any:
    return np.memmap(path, np.float32, "w+", shape=X.shape)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "no journal"),
        (b'{"gapless resume": 1, "ker', "no journal"),  # a journal has its first line from the begin
        (b"\xff\xfe\n\n", "no journal"),
        (b"[1, 2]\n", "no journal"),
        (b"[" * 100_000 + b"\n", "no journal"),
    ],
)
def test_a_file_that_is_no_journal_is_left_as_it_is(tmp_path: Path, content: bytes, says: str) -> None:
    journal = tmp_path / "journal"
    journal.write_bytes(content)
    with Pipeline(affine, device="host", chunk=4800) as pipe, pytest.raises(GaplessError, match=says):
        pipe(X, out=a_memmap(tmp_path / "y"), resume=journal)
    assert journal.read_bytes() == content


@pytest.mark.parametrize("where", ["missing/journal", "file/journal", "folder"])
def test_a_journal_that_cannot_be_written_is_told_before_any_work(tmp_path: Path, where: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    calls: list[int] = []
    with Pipeline(calls.append, device="host") as pipe, pytest.raises(GaplessError, match=r"resume=.*directory"):
        pipe(X, out=a_memmap(tmp_path / "y"), resume=tmp_path / where)
    assert not calls


def test_a_run_that_failed_before_any_rows_were_done_leaves_no_journal(tmp_path: Path) -> None:
    def kernel(a: Any) -> Any:
        assert [path.name for path in tmp_path.glob("jour*")] == ["journal"]
        raise RuntimeError("at once")

    with Pipeline(kernel, device="host", chunk=4800, slots=1) as pipe, pytest.raises(RuntimeError, match="at once"):
        pipe(X, out=a_memmap(tmp_path / "y"), resume=tmp_path / "journal")
    assert [path.name for path in tmp_path.iterdir()] == ["y"]


def test_what_ends_a_run_is_told_also_where_its_journal_cannot_be_written(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()

    def kernel(a: Any) -> Any:
        if not folder.exists():
            raise LookupError("on purpose")
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
        return affine(a)

    with Pipeline(kernel, device="host", chunk=4800, slots=1) as pipe, pytest.raises(LookupError) as caught:
        pipe(X, out=a_memmap(tmp_path / "y"), resume=folder / "journal")
    assert any("done again" in note and "No such file" in note for note in caught.value.__notes__)


def test_a_crash_before_any_rows_were_done_leaves_a_journal_that_is_taken_up(tmp_path: Path) -> None:
    out = a_memmap(tmp_path / "y")
    Journal(tmp_path / "journal", [X], [out], len(X), "affine")
    assert (tmp_path / "journal").read_bytes().endswith(b"}\n")
    with Pipeline(affine, device="host", chunk=4800) as pipe:
        pipe(X, out=out, resume=tmp_path / "journal")
    assert np.array_equal(out, affine(X))
    assert [path.name for path in tmp_path.iterdir()] == ["y"]


@pytest.mark.parametrize("lost", [bytes(12), b"[" * 100_000], ids=["nothing", "brackets"])
def test_lines_that_the_disk_lost_are_done_again(tmp_path: Path, lost: bytes) -> None:
    out = a_memmap(tmp_path / "y")
    out[:] = 7
    path = tmp_path / "journal"
    Journal(path, [X], [out], len(X), "affine")
    with path.open("ab") as file:
        file.write(b"[0, 1000]\n" + lost + b"\n[2000, 4001]\n")
    with Pipeline(affine, device="host", chunk=4800) as pipe:
        pipe(X, out=out, resume=path)
    assert np.all(out[:1000] == 7)
    assert np.array_equal(out[1000:], affine(X)[1000:])


def test_resume_needs_an_input_that_outlives_the_results(tmp_path: Path) -> None:
    out = a_memmap(tmp_path / "y")
    with Pipeline(affine, device="host") as pipe, pytest.raises(GaplessError, match="apart from the input"):
        pipe(out, out=out, resume=tmp_path / "journal")


@pytest.mark.parametrize(
    ("gives", "said"),
    [
        (lambda a: "nonsense", "gave a result of type str"),
        (lambda a: b"nonsense", "gave a result of type bytes"),
        (lambda a: {"y": a}, "gave a result of type dict"),
        (lambda a: (a, object()), "gave a result of type object"),
        (lambda a: (row for row in a), "gave a result of type generator"),
        (lambda a: a.astype(object), "gave an array of Python objects"),
    ],
)  # fmt: skip
def test_a_kernel_that_gives_no_arrays_is_told_so_at_its_chunk(device: Any, gives: Any, said: str) -> None:
    def kernel(a: Any) -> Any:
        return gives(a) if a[0, 0] == X[1200, 0] else (affine(a), a) if said.endswith("object") else affine(a)

    with Pipeline(kernel, device=device, chunk=4800) as pipe, pytest.raises(GaplessError, match=said) as caught:
        pipe(X)
    assert caught.value.__notes__ == ["gapless: this happened in chunk 3 (rows 1200 to 1600)"]


def test_its_timeline_is_one_like_any_other() -> None:
    """It can be explained and shown elsewhere."""
    with Pipeline(affine, device=Simulated(), chunk=4800) as pipe:
        pipe(X)
        timeline = pipe.report().timeline
    assert gapless.explain(timeline).to_dict()["engines"]["h2d"]["bytes"] == X.nbytes
    for name, sink in SINKS.items():
        written = b"".join(sink.pieces(timeline, ()))
        assert b"kernel" in written, f"{name} lost the kernels"


def test_a_run_on_the_host_is_explained_in_words_that_are_true_of_it(tmp_path: Path) -> None:
    with Pipeline(affine, device="host", chunk=4800) as pipe:
        pipe(X)
        timeline = pipe.report().timeline
    (tmp_path / "run.json").write_bytes(b"".join(SINKS["chrome"].pieces(timeline, ())))
    for known in (timeline, gapless.load(tmp_path / "run.json")):
        report = gapless.explain(known)
        assert report.findings == ()
        assert report.replay is None
        assert report.headline.startswith("This pipeline ran on threads of the host.")
        assert "pipe.report()" in report.headline
        assert report.wall_ms > 0
        assert report.engines["h2d"].bytes == X.nbytes
        text = str(report)
        assert not re.search("cuda[A-Z]|the link is|device waits|H2D", text)
        assert text.count("host (") == 1
        with pytest.raises(GaplessError, match="nothing to repair with pin: this pipeline ran on threads of the host"):
            gapless.explain(known, apply=["pin"])
    assert not any("cuda" in name for name in timeline.strings)
    with pytest.raises(GaplessError, match="nothing to compare"):  # no GPU was at work
        gapless.compare(timeline, timeline)


class SlowCaller(Simulated):
    """A caller that copies no quicker than the threads of a crew do."""

    def copy(self, target: Any, source: Any) -> None:
        super().copy(target, source)
        if self._entry is None:  # not the device's
            self.advance(round(HOST_COPY_NS * target.nbytes))


@pytest.mark.parametrize(
    ("made", "options"),
    [
        (Simulated, {"threads": 2, "slots": 2}),
        (lambda: Simulated(pools=True), {"threads": 2, "slots": 2}),
        (Simulated, {"threads": 1, "slots": 1, "chunk": "1 MiB"}),
        (SlowCaller, {"threads": 0, "slots": 4}),
    ],
)  # fmt: skip
def test_explaining_its_timeline_says_that_staging_binds(made: Any, options: dict[str, Any], tmp_path: Path) -> None:
    """Chunks so short that the pauses between them would pass for those of a busy host."""
    with Pipeline(affine, device=made(), **{"chunk": "128 KiB", **options}) as pipe:
        pipe(np.zeros((1 << 18, 4), np.float32))
        timeline = pipe.report().timeline
    (tmp_path / "run.json").write_bytes(b"".join(SINKS["chrome"].pieces(timeline, ())))
    for known in (timeline, gapless.load(tmp_path / "run.json")):
        first, *rest = gapless.explain(known).findings
        assert first.cause == "host-bound"
        assert "pageable and pinned memory" in first.evidence
        assert first.cost_ms > 10 * sum(finding.cost_ms for finding in rest if finding.cause == "launch-bound")


def test_explaining_its_timeline_tells_slow_commands_from_slow_staging(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gapless.runtime.devices.simulated.CALL_NS", 40_000)
    with Pipeline(affine, device=Simulated(), chunk="128 KiB", threads=8, slots=8) as pipe:
        pipe(np.zeros((1 << 18, 4), np.float32))
        first, *rest = gapless.explain(pipe.report().timeline).findings
    assert first.cause == "launch-bound"
    assert sum(finding.cost_ms for finding in rest if "pageable and pinned memory" in finding.evidence) < 0.1


def test_several_pipelines_and_nested_use(device: Any) -> None:
    with Pipeline(affine, device=device, slots=2) as one, Pipeline(lambda a: a - 1, device=device, slots=2) as two:
        for y in two.stream(one.stream(X[i : i + 10] for i in range(0, 100, 10))):
            assert len(y) == 10
        flow = one.stream(X[i : i + 10] for i in range(0, 100, 10))
        first = next(flow)
        assert np.array_equal(one(X), affine(X))
        assert np.array_equal(first, affine(X[:10]))
        assert len(list(flow)) == 9


def test_a_closed_pipeline_says_so() -> None:
    pipe = Pipeline(affine, device="host")
    pipe.close()
    with pytest.raises(GaplessError, match="closed"):
        pipe(X)


def test_an_abandoned_iterator_leaves_no_thread() -> None:
    before = threading.active_count()
    pipe = Pipeline(affine, device=Simulated(), slots=3)
    flow = pipe.stream(X for _ in range(9))
    next(flow)
    del flow
    gc.collect()
    assert threading.active_count() == before


def expect_of_program(script: str, said: str) -> None:
    """Run a program of its own, and see that it writes just that."""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == said, done.stdout + done.stderr


def test_ctrl_c_stops_within_a_chunk_and_leaves_no_thread() -> None:
    """In a process of its own, which sends itself the signal while chunk 3 is computed."""
    script = (
        "import os, signal, threading\n"
        "import numpy as np\n"
        "from gapless.runtime.pipeline import Pipeline\n"
        "calls = []\n"
        "def kernel(a):\n"
        "    calls.append(1)\n"
        "    if len(calls) == 4: os.kill(os.getpid(), signal.SIGINT)\n"
        "    return a + 1\n"
        "pipe = Pipeline(kernel, device='host', slots=2)\n"
        "try:\n"
        "    for y in pipe.stream(np.zeros(1000) for _ in range(100000)): pass\n"
        "except KeyboardInterrupt:\n"
        "    pipe.close()\n"
        "    for thread in threading.enumerate():\n"
        "        if thread is not threading.main_thread():\n"
        "            thread._started.wait(20)  # the signal may have come while it was being started\n"
        "            thread.join(20)\n"
        "    print('stopped', len(calls) <= 4 + 2 * 2, threading.active_count())\n"
    )
    expect_of_program(script, "stopped True 1\n")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_does_not_wait_for_threads_that_its_parent_has() -> None:
    """A stream's thread, here made to end late, is still there when the run is over, and the ring is used again."""
    script = (
        "import os, signal, time, warnings\n"
        "import numpy as np\n"
        "from gapless.runtime.devices import host\n"
        "from gapless.runtime.pipeline import Pipeline\n"
        "warnings.simplefilter('ignore')\n"
        "end = host._Work.end\n"
        "host._Work.end = lambda work: (end(work), time.sleep(0.2))\n"
        "pipe = Pipeline(lambda a: a + 1, device='host', slots=2)\n"
        "pipe(np.zeros(1000))\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    signal.alarm(10)\n"
        "    os._exit(not (pipe(np.zeros(1000)) == 1).all())\n"
        "print(os.waitpid(child, 0)[1])\n"
    )
    expect_of_program(script, "0\n")


def test_source_is_not_asked_after_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal that arrives while the input is computed comes out at once; nothing more is asked for."""
    asked: list[int] = []

    def source() -> Iterator[np.ndarray]:
        for number in range(100):
            asked.append(number)
            if number == 7:
                os.kill(os.getpid(), signal.SIGINT)
            yield X

    with Pipeline(affine, device="host", slots=2) as pipe, pytest.raises(KeyboardInterrupt):
        for _ in pipe.stream(source()):
            pass
    assert len(asked) == 8


def test_copies_that_need_no_wait_have_none() -> None:
    """A crew's lane copies at once where no event is named."""
    crew = Host().crew(1, 1)
    target = np.zeros(3)
    crew.submit(0, "token", Copies([(target, np.ones(3))]))
    assert crew.next().token == "token"
    crew.close()
    assert target.all()
