"""Where calls were made: from Python frames, recorded stacks, operators and annotations, or from nothing at all."""

from __future__ import annotations

import numpy as np
import pytest

from gapless.diagnosis.places import Places
from gapless.diagnosis.report import Where
from gapless.timeline.timeline import RangeKind

US = 1_000


def places_of(gpu) -> list[tuple[str, int, str, int]]:
    timeline = gpu.timeline()
    where = Places(timeline).of_calls(np.arange(len(timeline.calls)))
    return [(w.file, w.line, w.function, w.count) for w in where]


@pytest.fixture
def gpu(made):
    return made.Gpu()


@pytest.fixture
def host(gpu):
    return gpu.host()


def test_the_users_frame_and_what_it_called(gpu, host):
    with (
        host.inside("train.py(10): main"),
        host.inside("train.py(31): step"),
        host.inside("torch/nn/modules/module.py(1783): _call_impl"),
        host.inside("<built-in function linear>"),
        host.inside("aten::linear", RangeKind.CPU_OP),
    ):
        host.kernel(0, US)
    assert places_of(gpu) == [("train.py", 31, "step → linear", 1)]


def test_a_method_of_a_tensor_is_named_so(gpu, host):
    with host.inside("train.py(31): step"), host.inside("<built-in method item of Tensor object at 0x7f8d3b1e7680>"):
        host.kernel(0, US)
    assert places_of(gpu) == [("train.py", 31, "step → Tensor.item", 1)]


def test_a_closed_frame_is_not_where_a_later_call_was_made(gpu, host):
    with host.inside("train.py(10): main"):
        with host.inside("data.py(5): load"):
            host.work(US)
        with host.inside("train.py(20): step"), host.inside("aten::mm", RangeKind.CPU_OP):
            host.work(US)
        host.kernel(0, US)
    assert places_of(gpu) == [("train.py", 10, "main → cudaLaunchKernel", 1)]


def test_library_frames_alone_are_no_place(gpu, host):
    with host.inside("/opt/venv/lib/python3.12/site-packages/torch/optim/sgd.py(70): step"):
        host.kernel(0, US)
    assert places_of(gpu) == [("", 0, "cudaLaunchKernel", 1)]


def test_recorded_stacks_of_operators(gpu, host):
    stack = "torch/nn/functional.py(2114): linear;model.py(18): forward;train.py(44): <module>"
    with host.inside("aten::linear", RangeKind.CPU_OP, stack):
        host.kernel(0, US)
    assert places_of(gpu) == [("model.py", 18, "forward → aten::linear", 1)]


def test_the_same_operator_with_other_stacks_is_another_place(gpu, host):
    for line in (18, 18, 25):
        with host.inside("aten::linear", RangeKind.CPU_OP, f"model.py({line}): forward"):
            host.kernel(0, US)
    assert places_of(gpu) == [
        ("model.py", 18, "forward → aten::linear", 2),
        ("model.py", 25, "forward → aten::linear", 1),
    ]


def test_the_calls_own_stack_is_the_place(gpu, host):
    stack = "cudaLaunchKernel;/opt/venv/lib/python3.12/site-packages/cupy/core.py(7): launch;train.py(44): step"
    with host.inside("epoch", RangeKind.NVTX), host.called_from(stack):
        host.kernel(0, US)
    assert places_of(gpu) == [("train.py", 44, "step → cudaLaunchKernel", 1)]


@pytest.mark.parametrize(
    ("stack", "place"),
    [
        ("cuMemcpyHtoD_v2;cudaMemcpy;upload(float*);main;__libc_start_main;_start", "upload(float*)"),
        ("0x7f0012345678;libcudart.so.13+0x1f2;solver+0x4a10;libc.so.6+0x29d90", "solver+0x4a10"),
        ("cudaStreamSynchronize;solver.cu(91): advance;main.cpp(12): main", ("solver.cu", 91, "advance")),
        ("cudaMalloc;/usr/local/cuda-13.0/include/cuda_runtime.h(879): grow;main;_start", "grow"),
        ("void at::native::copy_kernel<float>(at::Tensor&);torch::autograd::run();_PyEval_EvalFrameDefault", None),
    ],
)
def test_native_stacks_name_the_users_innermost_frame(gpu, host, stack, place):
    with host.called_from(stack):
        host.kernel(0, US)
    file, line, function = ("", 0, place) if isinstance(place, str) else place or ("", 0, "")
    assert places_of(gpu) == [(file, line, f"{function} → cudaLaunchKernel" if function else "cudaLaunchKernel", 1)]


def test_a_host_that_comes_late_is_placed_by_the_call_it_got_to(gpu, host):
    with host.called_from("train.py(12): step"):
        for _ in range(20):
            host.kernel(0, 20 * US)
            host.sync()
            host.work(500 * US)
    finding = next(f for f in gpu.explain().findings if f.cause == "host-bound")
    assert [(w.file, w.line, w.function) for w in finding.where] == [("train.py", 12, "before step → cudaLaunchKernel")]


@pytest.mark.parametrize("kind", [RangeKind.ANNOTATION, RangeKind.NVTX])
def test_annotations_where_there_are_no_frames(gpu, host, kind):
    with host.inside("epoch", kind), host.inside("forward", kind):
        host.kernel(0, US)
    assert places_of(gpu) == [("", 0, "forward → cudaLaunchKernel", 1)]


def test_operators_alone(gpu, host):
    with host.inside("aten::addmm", RangeKind.CPU_OP):
        host.kernel(0, US)
    assert places_of(gpu) == [("", 0, "aten::addmm", 1)]


def test_no_ranges_at_all(gpu, host):
    host.kernel(0, US)
    host.sync()
    assert sorted(places_of(gpu)) == [("", 0, "cudaDeviceSynchronize", 1), ("", 0, "cudaLaunchKernel", 1)]


def test_the_most_frequent_place_first_and_five_at_most(gpu, host):
    for line in range(8):
        with host.inside(f"train.py({line + 1}): step"):
            for _ in range(line + 1):
                host.kernel(0, US)
    assert [(line, count) for _, line, _, count in places_of(gpu)] == [(8, 8), (7, 7), (6, 6), (5, 5), (4, 4)]


def test_frames_of_one_thread_say_nothing_of_another(gpu):
    one, other = gpu.host(), gpu.host()
    with one.inside("train.py(10): main"):
        one.work(50 * US)
        other.kernel(0, US)
    assert places_of(gpu) == [("", 0, "cudaLaunchKernel", 1)]


def test_unknown_calls_have_no_place(gpu, host):
    host.kernel(0, US)
    assert Places(gpu.timeline()).of_calls(np.array([-1, -1])) == ()


def test_a_moment_between_calls(gpu, host):
    with host.inside("train.py(10): main"), host.inside("data.py(5): load"):
        host.work(100 * US)
        host.kernel(0, US)
    where = Places(gpu.timeline()).at_moments(np.array([0]), np.array([50 * US]))
    assert where == (Where(file="data.py", line=5, function="load", count=1),)


def test_what_filled_a_stretch(gpu, host):
    with host.inside("train.py(10): main"):
        with host.inside("data.py(5): load"):
            host.work(100 * US)
        with host.inside("<built-in method acquire of _thread.lock object at 0x7fc038477640>"):
            host.work(300 * US)
    places = Places(gpu.timeline())
    assert places.busiest(0, 0, 90 * US) == "data.py(5): load"
    assert places.busiest(0, 0, 400 * US) == "the built-in acquire"
    assert places.busiest(0, 60 * US, 140 * US) == "train.py(10): main"
    assert places.busiest(1, 0, 400 * US) == ""


def test_deep_and_many_ranges_find_the_innermost(gpu, host):
    for _ in range(50):
        with host.inside("train.py(1): a"):
            for line in range(2, 20):
                with host.inside(f"train.py({line}): f"), host.inside("aten::mm", RangeKind.CPU_OP):
                    host.work(US)
            host.kernel(0, US)
    assert places_of(gpu) == [("train.py", 1, "a → cudaLaunchKernel", 50)]
