"""Each thing that a missing wait can do, found without a GPU; its repaired twin stays silent."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")

import gapless.torch as gt  # noqa: E402
import stream_programs as programs  # noqa: E402
from gapless.torch.dry import DryDevice  # noqa: E402

N, RACES, SILENT, WARNINGS, filled = programs.N, programs.RACES, programs.SILENT, programs.WARNINGS, programs.filled
Program = Callable[[], object]


def check(program: Program) -> gt.Checked:
    with gt.check(dry=True) as checking:
        program()
    return checking.result


def causes(program: Program) -> list[tuple[str, str]]:
    """The slug and class of all findings."""
    return [(finding.cause.slug, "error" if finding.error else "warning") for finding in check(program).findings]


@pytest.mark.parametrize(("program", "cause"), RACES, ids=lambda value: getattr(value, "__name__", ""))
def test_finds(program: Program, cause: str) -> None:
    assert set(causes(program)) == {(cause, "error")}


@pytest.mark.parametrize("program", SILENT, ids=lambda value: value.__name__)
def test_stays_silent(program: Program) -> None:
    assert causes(program) == []


@pytest.mark.parametrize(("program", "cause"), WARNINGS, ids=lambda value: getattr(value, "__name__", ""))
def test_warns_where_todays_drivers_hide_it(program: Program, cause: str) -> None:
    assert set(causes(program)) == {(cause, "warning")}
    assert check(program).ok


SPARSE_PRODUCTS: dict[str, Callable[[Any, Any], Any]] = {
    "mm": torch.mm,
    "spmm": torch.spmm,
    "sparse.mm": torch.sparse.mm,
    "@": lambda graph, x: graph @ x,
    "dense @ sparse": lambda graph, x: x.t() @ graph,
    "sparse.addmm": lambda graph, x: torch.sparse.addmm(torch.ones_like(x), graph, x),
    "mv": lambda graph, x: graph.mv(x[:, 0]),
}


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support:UserWarning")
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
@pytest.mark.parametrize("product", SPARSE_PRODUCTS.values(), ids=SPARSE_PRODUCTS)
def test_a_product_of_a_sparse_tensor_is_dense_and_reads_both(product: Any, layout: Any) -> None:
    """The meta device has no rule for it."""
    wanted = product(torch.eye(4).to_sparse(layout=layout), torch.ones(4, 3)).shape

    def program(*, waits: bool) -> None:
        graph, side = torch.eye(4).to_sparse(layout=layout).cuda(), torch.cuda.Stream()
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            x = torch.ones(4, 3, device="cuda")
        if waits:
            torch.cuda.current_stream().wait_stream(side)
        y = product(graph, x)
        x.record_stream(torch.cuda.current_stream())
        assert y.shape == wanted
        assert y.layout is torch.strided
        assert y.device.type == "cuda"

    assert [cause for cause, _ in causes(lambda: program(waits=False))] == ["missing-wait"]
    assert causes(lambda: program(waits=True)) == []


def test_a_gradient_goes_through_a_product_of_a_sparse_tensor() -> None:
    def program() -> None:
        weight = torch.ones(4, 3, device="cuda", requires_grad=True)
        torch.mm(torch.eye(4).to_sparse().cuda(), weight).sum().backward()
        assert weight.grad is not None
        assert weight.grad.shape == weight.shape

    assert causes(program) == []


def test_a_missing_wait_in_a_loop_is_one_finding() -> None:
    def loop(*, waits: bool) -> None:
        side, kept = torch.cuda.Stream(), torch.ones(N, device="cuda")
        for _ in range(4):
            host = torch.ones(N).pin_memory()
            with torch.cuda.stream(side):
                x = host.to("cuda", non_blocking=True)
            if waits:
                torch.cuda.current_stream().wait_stream(side)
            kept = x + kept

    assert [slug for slug, _ in causes(lambda: loop(waits=False))] == ["missing-wait", "reused-block"]
    # The wait mends all that the other finding does not: with it, no block is unready.
    assert {slug for slug, _ in causes(lambda: loop(waits=True))} == {"reused-block"}


def test_a_block_unready_for_another_access_stays_a_finding() -> None:
    assert ("unready-block", "error") in causes(programs.block_still_in_use_by_its_own_stream)


def test_says_both_accesses_the_memory_and_the_line_to_add() -> None:
    found = check(programs.missing_wait)
    (finding,) = found.findings
    assert finding.buffer == f"float32[{N}]"
    assert [finding.first.name, finding.second.name] == ["full", "mul"]
    assert [finding.first.stream, finding.second.stream] == ["torch.cuda.default_stream()", "side"]
    assert [finding.first.does, finding.second.does] == ["writes", "reads"]
    assert finding.first.place is not None
    assert finding.second.place is not None
    assert finding.first.place.text.startswith("return torch.full")
    assert [place.function for place in finding.first.stack[:2]] == ["filled", "missing_wait"]
    assert finding.second.place.text == "x * 2"
    assert finding.advice.line == "side.wait_stream(torch.cuda.default_stream())"
    assert finding.advice.where == finding.second.place
    assert gt.Checked.from_dict(found.to_dict()).to_dict() == found.to_dict()
    assert "missing-wait" in str(found)


@pytest.mark.parametrize(
    ("program", "line"),
    [
        (programs.block_handed_out_again, "x.record_stream(side)"),
        (programs.block_still_in_use_by_its_own_stream, "side.wait_stream(torch.cuda.default_stream())"),
        (programs.source_overwritten, "torch.cuda.default_stream().synchronize()"),
        (programs.read_after_an_event_of_another_stream, "torch.cuda.default_stream().synchronize()"),
    ],
)
def test_names_the_line(program: Program, line: str) -> None:
    assert check(program).findings[0].advice.line == line


def test_draws_the_finding() -> None:
    from gapless.views.page import plain
    from gapless.views.torch_check import draw

    found = check(programs.missing_wait)
    drawn = plain(lambda console, options: draw(found, "train.py", console, options), width=200).splitlines()
    assert drawn[0] == "train.py  1 race in 2 operations, 2 streams, dry"
    assert drawn[2].startswith(f"1   missing-wait: float32[{N}] is used on two streams, and the second does not wait")
    assert any(line.startswith("    first     full on torch.cuda.default_stream() writes it") for line in drawn)
    assert any(line.startswith("    then      mul on side reads it") for line in drawn)
    add = next(line for line in drawn if line.startswith("    add "))
    assert add.split()[1:3] == ["side.wait_stream(torch.cuda.default_stream())", "before"]
    silent = check(programs.waits_for_the_stream)
    drawn = plain(lambda console, options: draw(silent, "train.py", console, options), width=100).splitlines()
    assert drawn[2] == "Nothing races in what was looked at."


def test_lists_what_it_cannot_see() -> None:
    def program() -> None:
        staged = torch.empty(N, pin_memory=True)
        staged.numpy()[:] = 1
        staged.to("cuda", non_blocking=True)

    found = check(program)
    assert found.findings == []
    assert any("NumPy" in note for note in found.notes)


def test_says_what_is_made_up() -> None:
    def program() -> None:
        x = filled()
        assert x.sum().item() == 0
        x[x > 0]
        print(x)
        torch.cuda.Event().elapsed_time(torch.cuda.Event())

    notes = " ".join(check(program).notes)
    assert "made up (zeros)" in notes
    assert "sizes that depend on values" in notes
    assert "times between events" in notes


def test_what_comes_back_to_the_host_is_zeros() -> None:
    def program() -> None:
        x, sevens = torch.full((2, 3), 7.0, device="cuda"), torch.full((2, 3), 7.0)
        parts = torch.full((4, 6), 7.0)
        sevens.copy_(x, non_blocking=True)
        parts[::2, ::2].copy_(x)
        torch.cuda.synchronize()
        assert sevens.eq(0).all()
        assert parts.sum() == 7 * (24 - 6)
        assert x.cpu().eq(0).all()
        assert [result.sum() for result in gt.to_host([x, x + 1, x.t()])] == [0, 0, 0]
        assert x.tolist() == [[0, 0, 0], [0, 0, 0]]
        weight = torch.nn.Parameter(torch.ones(2, 3))
        with torch.no_grad():
            weight.copy_(x)
        assert weight.eq(0).all()

    assert check(program).findings == []


def test_sees_into_what_was_compiled_before() -> None:
    double = torch.compile(lambda x: x * 2, backend="eager")

    def program() -> None:
        side, x = torch.cuda.Stream(), filled()
        with torch.cuda.stream(side):
            double(x)

    assert causes(program) == [("missing-wait", "error")]


def double_on(side: Any, x: Any) -> None:
    """What a further thread does, whose current stream is the default one."""
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    with torch.cuda.stream(side):
        x.mul_(2)


def test_watches_threads() -> None:
    def program() -> None:
        side, x = torch.cuda.Stream(), filled()
        thread = threading.Thread(target=double_on, args=(side, x))
        thread.start()
        thread.join()

    assert causes(program) == [("missing-wait", "error")]


def test_watches_what_a_pool_is_given_that_began_before() -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()

        def program() -> None:
            side, x = torch.cuda.Stream(), filled()
            pool.submit(double_on, side, x).result()
            ThreadPoolExecutor(1).submit(double_on, side, x).result()

        found = check(program)
        assert [finding.cause.slug for finding in found.findings] == ["missing-wait"]
        assert not any("threads" in note for note in found.notes)
        pool.submit(int).result()  # as before


def test_a_thread_that_outlives_the_check_is_left_alone() -> None:
    def work() -> torch.device:
        return (torch.ones(3, device=torch.tensor(0.0).device) * 2).device

    with ThreadPoolExecutor(1) as pool:
        with gt.check(dry=True) as checking:
            assert pool.submit(lambda: torch.ones(3, device="cuda").device.type).result() == "cuda"
        before = checking.result.operations
        assert pool.submit(work).result().type == "cpu"
        if not torch.cuda.is_available():
            with pytest.raises((AssertionError, RuntimeError), match=r"CUDA|NVIDIA"):
                pool.submit(lambda: torch.ones(3, device="cuda")).result()
        with gt.check(dry=True) as again:
            assert pool.submit(lambda: torch.ones(3, device="cuda").device.type).result() == "cuda"
    assert checking.log.operations == before
    assert again.result.operations == 1


def test_a_thread_of_the_program_that_began_before_is_noted() -> None:
    end, begun = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        end.wait()

    thread = threading.Thread(target=wait)
    thread.start()
    begun.wait()
    try:
        found = check(filled)
    finally:
        end.set()
        thread.join()
    ((note, places),) = found.notes.items()
    assert "threads" in note
    assert places[0].startswith(__file__)


def test_casts_that_are_not_made_are_noted() -> None:
    def program() -> None:
        with torch.autocast("cuda"):
            filled().mul(2).mul(2)

    ((note, places),) = check(program).notes.items()
    assert "torch.autocast" in note
    assert len(places) == 1


def test_pretends_a_gpu_and_puts_all_back() -> None:
    before = torch.cuda.is_available(), torch.cuda.Stream, torch.Tensor.device, torch.cuda.current_stream
    with gt.check(dry=True) as checking:
        assert torch.cuda.is_available()
        x = torch.ones(3).cuda()
        assert x.device == torch.device("cuda", 0)
        assert x.is_cuda
        assert not x.is_meta
        assert (x + 1).to("cuda") is not x
        assert x.to("cuda") is x
        assert torch.zeros_like(x).device.type == "cuda"
        assert x.cpu().device.type == "cpu"
        with pytest.raises(TypeError, match="numpy"):
            x.numpy()
        with pytest.raises(gt.GaplessError, match="still runs"):
            _ = checking.result
        with pytest.raises(gt.GaplessError, match="one with block"), gt.check(dry=True):
            pass
    assert (torch.cuda.is_available(), torch.cuda.Stream, torch.Tensor.device, torch.cuda.current_stream) == before


def test_a_check_without_a_gpu_says_what_to_do() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    with pytest.raises(gt.GaplessError, match="--dry"), gt.check():
        pass


@pytest.mark.parametrize("program", [programs.loads_in_a_worker, programs.loads_in_a_worker_of_a_thread])
def test_workers_do_not_ask_the_gpu(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """A forked process cannot: CUDA fails there."""
    real, here = DryDevice.pinned, os.getpid()

    def pinned(self: DryDevice, tensor: object) -> bool:
        assert os.getpid() == here
        return real(self, tensor)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(DryDevice, "pinned", pinned)
    assert check(program).findings == []


@pytest.mark.parametrize(
    "program",
    [lambda: torch.ones(3, device="cuda:1"), lambda: torch.ones(3, device=1), lambda: torch.ones(3).to(1),
     lambda: torch.nn.Linear(2, 2).to(1)],
)  # fmt: skip
def test_another_gpu_is_not_pretended(program: Program) -> None:
    with pytest.raises(gt.GaplessError, match="one GPU"), gt.check(dry=True):
        program()


def test_a_long_loop_stays_small() -> None:
    with gt.check(dry=True) as checking:
        x = filled()
        for _ in range(500):
            y = x * 2
            x.add_(y)
        kept = len(checking.log.alive), sum(len(memory.accesses) for memory in checking.log.alive.values())
    assert kept[0] <= 3
    assert kept[1] <= 12
    assert checking.result.operations > 900


def test_backwards_of_two_threads_at_once_do_not_mix() -> None:
    meet, streams = threading.Barrier(2), list[tuple[Any, Any]]()

    class Meets(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            meet.wait(10)
            return gradients[0] * 2

    def train() -> None:
        forward, caller = torch.cuda.Stream(), torch.cuda.Stream()
        with torch.cuda.stream(forward):
            weight = torch.ones(N, device="cuda", requires_grad=True)
            loss = Meets.apply(weight * 3).sum()
        with torch.cuda.stream(caller):
            loss.backward()
            weight.grad.add_(1)
            streams.append((torch.cuda.current_stream(), caller))

    def program() -> None:
        threads = [threading.Thread(target=train) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert causes(program) == []
    assert len(streams) == 2
    assert all(current == caller for current, caller in streams)


class OnASideStream(torch.autograd.Function):
    """A function of the program that goes back on a stream of its own."""

    @staticmethod
    def forward(ctx: Any, x: Any, side: Any, waits: bool) -> Any:
        ctx.side, ctx.waits = side, waits
        return x * 2

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (gradient,) = gradients
        assert gradient.to("cuda") is gradient
        here = torch.cuda.current_stream()
        if ctx.waits:
            ctx.side.wait_stream(here)
        with torch.cuda.stream(ctx.side):
            result = gradient * 2
            gradient.record_stream(ctx.side)
        here.wait_stream(ctx.side)
        result.record_stream(here)
        return result, None, None


def goes_back_on_a_side_stream(*, waits: bool) -> None:
    x = torch.ones(N, device="cuda", requires_grad=True)
    for _ in range(3):
        (OnASideStream.apply(x * 3, torch.cuda.Stream(), waits) + 1).square().sum().backward()
    torch.cuda.synchronize()


def test_a_function_of_the_program_may_go_back_on_a_stream_of_its_own() -> None:
    assert causes(lambda: goes_back_on_a_side_stream(waits=True)) == []


def test_and_has_to_wait_for_what_it_is_given() -> None:
    assert ("missing-wait", "error") in causes(lambda: goes_back_on_a_side_stream(waits=False))


def test_what_a_checkpoint_does_again_is_on_the_pretended_gpu() -> None:
    def again(x: Any) -> Any:
        assert x.to(0) is x
        return (x * torch.ones(N, device="cuda")).relu()

    def program() -> None:
        x = torch.ones(N, device="cuda", requires_grad=True)
        torch.utils.checkpoint.checkpoint(again, x, use_reentrant=False).sum().backward()
        torch.utils.checkpoint.checkpoint(again, x, use_reentrant=True).sum().backward()
        assert x.grad.is_cuda

    assert causes(program) == []


def keeps_what_it_saves_on_the_host(model: Any, x: Any) -> None:
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        loss = model(x).square().mean()
    loss.backward()


def runs_as_graphs(model: Any, x: Any) -> None:
    graphed = torch.cuda.make_graphed_callables(model, (x.clone(),))
    for _ in range(2):
        graphed(x).square().mean().backward()


def is_captured_whole(model: Any, x: Any) -> None:
    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        model(x).square().mean().backward()
    torch.cuda.current_stream().wait_stream(side)
    model.zero_grad()
    with torch.cuda.graph(graph):
        model(x).square().mean().backward()
    for _ in range(2):
        x.copy_(torch.ones_like(x))
        graph.replay()


@pytest.mark.parametrize("way", [keeps_what_it_saves_on_the_host, runs_as_graphs, is_captured_whole])
@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")
def test_ways_to_train_that_pytorch_has(way: Callable[[Any, Any], None]) -> None:
    def program() -> None:
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8)).cuda()
        way(model, torch.ones(4, 8, device="cuda"))
        assert all(parameter.grad.is_cuda for parameter in model.parameters())

    assert causes(program) == []
