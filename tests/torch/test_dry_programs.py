"""What programs do with PyTorch besides streams: a dry run goes through it as a GPU does."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")

import gapless.torch as gt  # noqa: E402

Program = Callable[[], object]


def check(program: Program) -> gt.Checked:
    with gt.check(dry=True) as checking:
        program()
    return checking.result


# --------------------------------------------------------------------------------------------------- torch.cuda


def contexts_are_entered_again() -> None:
    side, x = torch.cuda.Stream(), torch.ones(8, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    on_side, device = torch.cuda.stream(side), torch.cuda.device(0)
    for _ in range(2):
        with on_side, on_side, device:
            assert torch.cuda.current_stream() == side
            x.mul_(2)
        assert torch.cuda.current_stream() == torch.cuda.default_stream()
    with torch.cuda.stream(None), torch.cuda.StreamContext(side):
        x.mul_(2)


def classes_are_classes() -> None:
    def annotated(a: torch.Generator | None, b: torch.cuda.graph | None, c: torch.cuda.device | None) -> None: ...

    class Own(torch.cuda.graph): ...

    assert issubclass(Own, torch.cuda.graph)
    generator = torch.Generator(device="cuda").manual_seed(3)
    assert generator.device.type == "cuda"
    assert isinstance(generator, torch.Generator)
    assert isinstance(torch.default_generator, torch.Generator)
    assert torch.randn(3, device="cuda", generator=generator).is_cuda
    assert torch.rand(3, generator=torch.Generator().manual_seed(1)).sum() > 0
    torch.utils.data.random_split(range(8), [4, 4], generator=torch.Generator().manual_seed(42))


def memory_and_clocks_are_asked() -> None:
    assert torch.cuda.Stream.priority_range() == (0, -3)
    torch.cuda._sleep(1000)
    torch.cuda.memory.empty_cache()
    torch.cuda.reset_accumulated_memory_stats()
    torch.cuda.set_per_process_memory_fraction(0.5)
    assert torch.cuda.memory_stats()["allocated_bytes.all.peak"] == 0
    assert torch.cuda.memory_snapshot() == []
    torch.cuda.set_sync_debug_mode("warn")
    assert torch.cuda.temperature() == 0
    with torch.autograd.profiler.emit_nvtx(), torch.cuda.profiler.profile(), torch.accelerator.device_index(0):
        pass
    event = torch.cuda.Event()
    assert event.cuda_event != torch.cuda.Event().cuda_event


def a_default_device_is_the_gpu() -> None:
    torch.set_default_device("cuda")
    try:
        assert torch.ones(3).is_cuda
        assert torch.tensor([1, 2]).is_cuda
        assert torch.get_default_device().type == "cuda"
        with torch.device("cpu"):
            assert not torch.ones(3).is_cuda
    finally:
        torch.set_default_device(None)
    with torch.device("cuda:0"):
        assert torch.nn.Linear(3, 3).weight.is_cuda
    assert torch.device(0) == torch.device("cuda:0")


# ----------------------------------------------------------------------------------------------------- tensors


def masks_choose() -> None:
    x, on_host = torch.randn(4, 5, device="cuda"), torch.tensor([True, False, True, False])
    rows = torch.ones(4, dtype=torch.bool, device="cuda")
    assert x[x > 0].shape == (20,)
    assert x[rows].shape == (4, 5)
    assert x[on_host].shape == (2, 5)
    x[x > 0] = 0
    x[x > 0] = x[x > 0] * 2
    x[x > 0] = torch.zeros(3, device="cuda")  # that many there are
    x[rows] = torch.zeros(3, 5, device="cuda")
    x[rows, 1] = torch.zeros(3, device="cuda")
    x[rows, 1:3] = torch.zeros(3, 2, device="cuda")
    x[on_host] = torch.zeros(2, 5, device="cuda")


def sizes_depend_on_values() -> None:
    x, counts = torch.randn(4, 5, device="cuda"), torch.tensor([1, 2, 1, 1], device="cuda")
    assert x.repeat_interleave(counts, 0, output_size=5).shape == (5, 5)
    assert x.repeat_interleave(counts, 0).shape == (4, 5)
    assert torch.bincount(counts, minlength=3).dtype == torch.int64
    assert torch.bincount(counts, torch.ones(4, device="cuda")).dtype == torch.float32
    x.unique(return_counts=True), x.unique(dim=0), x.unique_consecutive(), x.unique_consecutive(dim=1)


def numbers_become_tensors() -> None:
    x = torch.ones(3, device="cuda")
    assert torch.tensor([x.sum(), x.mean()]).tolist() == [0, 0]
    assert torch.tensor([[x[0], 1.0], [2.0, x[1]]], device="cuda").is_cuda
    assert torch.tensor([1.0, 2.0], device="cuda", requires_grad=True).is_leaf
    assert x.new_tensor([1.0, 2.0]).is_cuda
    assert torch.as_tensor(x, device="cuda") is x
    assert torch.as_tensor([1, 2], device="cuda").is_cuda


def numpy_is_given_a_copy() -> None:
    weight = torch.nn.Parameter(torch.ones(3, device="cuda"))
    assert weight.numpy(force=True).tolist() == [0, 0, 0]


def functions_are_transformed() -> None:
    weight = torch.ones(3, device="cuda")

    def loss(x: torch.Tensor) -> torch.Tensor:
        assert x.is_cuda
        assert x.device == torch.device("cuda", 0)
        return (x * weight + torch.ones(3, device=x.device)).sum()

    torch.func.vmap(torch.func.grad(loss))(torch.ones(4, 3, device="cuda"))
    torch.func.jacrev(lambda x: x * weight)(weight)


def tensors_wrap_others() -> None:
    parts = [torch.randn(2, 3), torch.randn(4, 3)]
    nested = torch.nested.nested_tensor(parts, layout=torch.jagged).cuda()
    assert torch.nn.Linear(3, 3).cuda()(nested).is_cuda


def lengths_stay_on_the_host() -> None:
    x = torch.randn(5, 3, 8, device="cuda")
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, torch.tensor([5, 4, 3]))
    torch.nn.LSTM(8, 8).cuda()(packed)


def norms_are_clipped() -> None:
    weights = [torch.nn.Parameter(torch.ones(3, device="cuda")) for _ in range(2)]
    sum((weight**2).sum() for weight in weights).backward()
    torch.nn.utils.clip_grad_norm_(weights, 1.0, foreach=True)


def saved_and_loaded_in_memory() -> None:
    model, numbers = torch.nn.Linear(3, 3).cuda(), torch.arange(4.0)
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    model.load_state_dict(torch.load(io.BytesIO(buffer.getvalue()), map_location="cuda"))
    assert not torch.load(io.BytesIO(buffer.getvalue()), map_location="cpu")["weight"].is_cuda
    assert pickle.loads(pickle.dumps(numbers)).tolist() == [0, 1, 2, 3]
    assert pickle.loads(pickle.dumps(numbers.cuda())).is_cuda
    assert copy.deepcopy(model).weight.is_cuda


def old_names_of_types() -> None:
    kind = torch.cuda.FloatTensor if torch.cuda.is_available() else torch.FloatTensor
    valid = kind(6, 1).fill_(1.0)
    images = torch.ones(6, 4).type(kind)
    assert valid.shape == (6, 1)
    assert isinstance(images, torch.cuda.FloatTensor)
    assert not isinstance(images, torch.cuda.HalfTensor)
    assert not isinstance(torch.ones(3), kind)
    assert torch.cuda.LongTensor([1, 2]).dtype == torch.int64
    assert images.type() == "torch.cuda.FloatTensor"
    assert torch.ones(3).type() == "torch.FloatTensor"
    assert images.type("torch.cuda.HalfTensor").dtype == torch.float16
    assert not images.type(torch.FloatTensor).is_cuda
    assert torch.ones(3).type(torch.LongTensor).dtype == torch.int64
    assert images.type(torch.int64).is_cuda
    assert images.new(2, 3).is_cuda


GOES_THROUGH: list[Program] = [
    contexts_are_entered_again, classes_are_classes, memory_and_clocks_are_asked, a_default_device_is_the_gpu,
    masks_choose, sizes_depend_on_values, numbers_become_tensors, numpy_is_given_a_copy, functions_are_transformed,
    tensors_wrap_others, lengths_stay_on_the_host, norms_are_clipped, saved_and_loaded_in_memory,
    old_names_of_types,
]  # fmt: skip


@pytest.mark.parametrize("program", GOES_THROUGH, ids=lambda program: program.__name__)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested", "ignore:Synchronization debug mode")
def test_goes_through(program: Program) -> None:
    assert check(program).findings == []


def test_files_are_told_apart_by_their_whole_path(tmp_path: Path) -> None:
    def program() -> None:
        for number, folder in enumerate(("a", "b")):
            (tmp_path / folder).mkdir()
            torch.save({"number": number}, tmp_path / folder / "state.pt")
        assert [torch.load(tmp_path / folder / "state.pt")["number"] for folder in ("a", "b")] == [0, 1]
        assert torch.load(str(tmp_path / "a" / "state.pt"))["number"] == 0
        assert not (tmp_path / "a" / "state.pt").exists()

    assert any("torch.save" in note for note in check(program).notes)


def test_what_moves_stays_the_object_that_others_hold() -> None:
    """So an optimizer may be made before its model moves, and layers may come and go."""

    def program() -> None:
        model, called = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.LazyLinear(2)), list[object]()
        before = [*model.parameters()]
        for parameter in model[0].parameters():
            parameter.register_post_accumulate_grad_hook(called.append)
            parameter.register_hook(called.append)
        model.cuda()
        assert all(one is other for one, other in zip(before, model.parameters(), strict=True))
        model(torch.ones(4, 3, device="cuda")).sum().backward()
        assert len(called) == 4
        model.cpu()
        assert not any(parameter.is_cuda or parameter.grad.is_cuda for parameter in before)
        model.cuda().half()
        assert all(parameter.is_cuda and parameter.grad.is_cuda for parameter in before)

    assert check(program).findings == []


@pytest.mark.parametrize("waits", [True, False])
def test_an_optimizer_made_before_its_model_moved(waits: bool) -> None:
    def program() -> None:
        model, side = torch.nn.Linear(3, 3), torch.cuda.Stream()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        model.cuda()
        model(torch.ones(4, 3, device="cuda")).sum().backward()
        if waits:
            side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            optimizer.step()
        torch.cuda.synchronize()

    assert {finding.cause.slug for finding in check(program).findings} == (set() if waits else {"missing-wait"})


@pytest.mark.parametrize("waits", [True, False])
def test_layers_that_come_when_they_are_needed(waits: bool) -> None:
    def program() -> None:
        layers, copies = [torch.nn.Linear(8, 8) for _ in range(3)], torch.cuda.Stream()
        x = torch.ones(2, 8, device="cuda")
        for layer in layers:
            with torch.cuda.stream(copies):
                for parameter in layer.parameters():
                    parameter.data = parameter.data.pin_memory().to("cuda", non_blocking=True)
            if waits:
                torch.cuda.current_stream().wait_stream(copies)
            x = layer(x)
        torch.cuda.synchronize()

    assert {finding.cause.slug for finding in check(program).findings} == (set() if waits else {"missing-wait"})


def test_memory_of_an_array_is_noted() -> None:
    def program() -> None:
        array = torch.ones(8).numpy()
        torch.from_numpy(array.copy()).to("cuda", non_blocking=True)
        torch.ones(8).to("cuda", non_blocking=True)

    (note,) = (what for what in check(program).notes if "NumPy" in what)
    assert len(check(program).notes[note]) == 1


@torch.library.custom_op("gapless_tests::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def test_an_operator_of_the_program_without_a_rule_for_shapes_is_said() -> None:
    with pytest.raises(gt.GaplessError, match=r"cannot follow gapless_tests.twice.*no fake impl"), gt.check(dry=True):
        twice(torch.ones(3, device="cuda"))


def test_a_loop_that_waits_for_a_yes_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gapless.torch.dry._MOST_QUESTIONS", 20)

    def program() -> None:
        x = torch.ones(3, device="cuda")
        for _ in range(30):
            x.sum().item()  # a number is no question
        while not (x > 3).all():
            x.add_(1)

    with pytest.raises(gt.GaplessError, match=r"asked the device 20 times.*no each time"):
        check(program)


@pytest.mark.parametrize(
    "program",
    [
        lambda: torch.ones(3).cuda(1),
        lambda: torch.nn.Linear(2, 2).cuda(1),
        lambda: torch.cuda.set_device(1),
        lambda: torch.from_dlpack(torch.ones(3, device="cuda")),
        lambda: torch.distributed.init_process_group("nccl", rank=0, world_size=1),
    ],
)
def test_what_is_not_there_is_said(program: Program) -> None:
    with pytest.raises(gt.GaplessError, match=r"pretends one GPU|is one process|has no memory"), gt.check(dry=True):
        program()
