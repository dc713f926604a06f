"""What ``torch.cuda`` and tensors say and do in a dry run: stand-ins that are put in place and taken out again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode  # pyright: ignore[reportMissingImports]
from torch.utils._pytree import tree_map_only  # pyright: ignore[reportMissingImports]

from . import pretend
from .currents import forget
from .dry import STREAM, DryDevice, metadata_of
from .meta import as_meta, is_meta, pretends
from .patches import Patches
from .pretend import DEVICE, Stream, where

_real_device = torch._C.TensorBase.device.__get__  # pyright: ignore[reportAttributeAccessIssue]
_generator = torch.Generator


_parse_to = torch._C._nn._parse_to  # pyright: ignore[reportAttributeAccessIssue] - of modules
_BY_NUMBER: dict[Any, int] = {torch.Tensor.to: 1, _parse_to: 0}


class PretendMode(TorchFunctionMode):
    """Send what names the GPU to the meta device, and let nodes of the autograd graph keep their stream."""

    def __init__(self, device: DryDevice) -> None:
        super().__init__()
        self._device = device

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function of PyTorch."""
        kwargs = kwargs or {}
        if func is torch.device:
            return func(*args, **kwargs)
        args = tuple(as_meta(value) for value in args)
        pin = bool(kwargs) and kwargs.get("pin_memory") is True
        if kwargs:
            kwargs = {key: as_meta(value) for key, value in kwargs.items() if not (pin and key == "pin_memory")}
            if type(kwargs.get("device")) is int:
                kwargs["device"] = as_meta(f"cuda:{kwargs['device']}")
        at = _BY_NUMBER.get(func)  # which argument may be a GPU's number
        if at is not None and len(args) > at and type(args[at]) is int:
            args = (*args[:at], as_meta(f"cuda:{args[at]}"), *args[at + 1 :])
        result = func(*args, **kwargs)
        if pin:
            self._device.pin(result)
        current = self._device.gpu.current
        if current is not self._device.gpu.default:
            _label(result, current)
        return result


def _label(result: Any, stream: Stream) -> None:
    """Let the nodes behind a result that have no stream yet keep this one."""
    for tensor in result if isinstance(result, list | tuple) else (result,):
        nodes = [tensor.grad_fn] if isinstance(tensor, torch.Tensor) and tensor.grad_fn is not None else []
        while nodes:
            node = nodes.pop()
            if node is not None and STREAM not in metadata_of(node):
                metadata_of(node)[STREAM] = stream
                nodes += [following for following, _ in node.next_functions]


@contextmanager
def dry_run(device: DryDevice, watch: Any) -> Iterator[None]:
    """Pretend a GPU: everything that ``torch.cuda`` says and does here, it says and does of the pretended one."""
    import torch._dynamo  # noqa: F401 # pyright: ignore[reportMissingImports] - optimizers load it; it would keep the stand-ins if it were loaded below

    patches = Patches()
    device.gpu.watch = watch
    Stream.gpu = device.gpu
    forget()
    _patch_cuda(patches, device)
    _patch_tensors(patches, device)
    try:
        with ExitStack() as modes:
            modes.enter_context(PretendMode(device))
            modes.enter_context(watch)
            yield
    finally:
        patches.undo()
        forget()


def modes_of_thread(device: DryDevice, watch: Any) -> ExitStack:
    """Give what a new thread has to enter."""
    modes = ExitStack()
    modes.enter_context(PretendMode(device))
    modes.enter_context(watch.in_thread())
    return modes


def _patch_cuda(patches: Patches, device: DryDevice) -> None:
    cuda, gpu = torch.cuda, device.gpu

    def set_stream(stream: Stream) -> None:
        gpu.current = stream

    set_stream.real = gpu.set_quietly  # pyright: ignore[reportFunctionMemberAccess]

    def synchronize(device: Any = None) -> None:
        if not gpu.capturing:
            gpu.log.sync_device()

    properties = SimpleNamespace(
        name="pretended GPU", major=9, minor=0, total_memory=80 << 30, multi_processor_count=132, warp_size=32,
        max_threads_per_multi_processor=2048, shared_memory_per_block=48 << 10, gcnArchName="",
    )  # fmt: skip
    functions = {
        "is_available": lambda: True, "is_initialized": lambda: True, "init": lambda: None, "_lazy_init": lambda: None,
        "device_count": lambda: 1, "current_device": lambda: 0, "set_device": lambda device: None,
        "get_device_name": lambda device=None: properties.name, "get_device_properties": lambda device=None: properties,
        "get_device_capability": lambda device=None: (9, 0), "get_arch_list": lambda: ["sm_90"],
        "is_bf16_supported": lambda including_emulation=True: True, "is_tf32_supported": lambda: True,
        "mem_get_info": lambda device=None: (80 << 30, 80 << 30), "synchronize": synchronize,
        "current_stream": lambda device=None: gpu.current, "default_stream": lambda device=None: gpu.default,
        "set_stream": set_stream, "stream": pretend.stream_context, "StreamContext": pretend.stream_context,
        "Stream": Stream, "ExternalStream": pretend.ExternalStream, "Event": pretend.Event,
        "get_stream_from_external": pretend.ExternalStream, "CUDAGraph": pretend.Graph, "graph": pretend.graph,
        "is_current_stream_capturing": lambda: gpu.capturing, "graph_pool_handle": lambda: (0, 0),
        "empty_cache": lambda: None, "ipc_collect": lambda: None, "manual_seed": lambda seed: None,
        "manual_seed_all": lambda seed: None, "seed": lambda: None, "seed_all": lambda: None,
        "initial_seed": lambda: 0, "can_device_access_peer": lambda *_: False, "memory_stats": lambda device=None: {},
        "memory_summary": lambda *_, **__: "", "reset_peak_memory_stats": lambda device=None: None,
        "reset_max_memory_allocated": lambda device=None: None, "utilization": lambda device=None: 0,
        "get_rng_state": lambda device="cuda": torch.zeros(16, dtype=torch.uint8, device="cpu"),
        "set_rng_state": lambda new_state, device="cuda": None,
        "get_rng_state_all": list, "set_rng_state_all": lambda new_states: None,
        "cudart": lambda: _Cudart(device), "device": _no_context, "device_of": _no_context,
    }  # fmt: skip
    for name in ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"):
        functions[name] = lambda device=None: 0
    for name, function in functions.items():
        patches.put(cuda, name, function)
    patches.put(cuda, "default_generators", (torch.default_generator,))
    for name in ("range_push", "range_pop", "mark", "range_start", "range_end"):
        patches.put(cuda.nvtx, name, lambda *_, **__: 0)
    patches.put(cuda.nvtx, "range", _no_context)
    for module, names in (
        (cuda.streams, ("Stream", "ExternalStream", "Event")),
        (cuda.graphs, ("CUDAGraph", "graph", "graph_pool_handle", "is_current_stream_capturing")),
    ):
        for name in names:
            patches.put(module, name, functions[name])
    patches.put(torch, "Stream", Stream)
    patches.put(torch, "Event", pretend.DeviceEvent)
    accelerator = getattr(torch, "accelerator", None)
    for name, function in {
        "is_available": lambda: True, "device_count": lambda: 1, "current_device_index": lambda: 0,
        "current_device_idx": lambda: 0, "set_device_index": lambda device: None, "set_device_idx": lambda device: None,
        "current_accelerator": lambda check_available=False: torch.device("cuda"), "synchronize": synchronize,
        "current_stream": lambda device=None: gpu.current, "set_stream": set_stream,
    }.items():  # fmt: skip
        if hasattr(accelerator, name):
            patches.put(accelerator, name, function)
    patches.put(torch, "compile", _uncompiled)
    patches.put(torch._C, "_scatter", _scatter)
    patches.put(torch._C, "_cuda_getCurrentRawStream", lambda index: gpu.current.cuda_stream)
    patches.put(torch, "Generator", lambda device=None: _generator("cpu"))


class _Cudart:
    """The few functions of ``torch.cuda.cudart()`` that programs call."""

    def __init__(self, device: DryDevice) -> None:
        self._device = device

    def cudaHostRegister(self, pointer: int, size: int, flags: int = 0) -> int:  # noqa: N802
        self._device.register(pointer, size)
        return 0

    def cudaHostUnregister(self, pointer: int) -> int:  # noqa: N802
        self._device.unregister(pointer)
        return 0

    def cudaProfilerStart(self) -> int:  # noqa: N802
        return 0

    def cudaProfilerStop(self) -> int:  # noqa: N802
        return 0

    def cudaMemGetInfo(self, device: int = 0) -> tuple[int, int]:  # noqa: N802
        return 80 << 30, 80 << 30


@contextmanager
def _no_context(*_: Any, **__: Any) -> Iterator[None]:
    yield


def _scatter(tensor: torch.Tensor, devices: Any, chunk_sizes: Any, dim: int, streams: Any) -> tuple[torch.Tensor]:
    """Stand in for what ``DataParallel`` scatters with, to one GPU."""
    with pretend.stream_context(streams[0] if streams else None):
        return (tensor.to("cuda", non_blocking=True),)


def _uncompiled(model: Any = None, **_: Any) -> Any:
    """Stand in for ``torch.compile``: what is compiled runs operation by operation."""
    return (lambda function: function) if model is None else model


def _patch_tensors(patches: Patches, device: DryDevice) -> None:
    tensor, log = torch.Tensor, device.log

    def cuda(self: torch.Tensor, device: Any = None, non_blocking: bool = False, **rest: Any) -> torch.Tensor:
        return self.to("cuda", non_blocking=non_blocking, **rest)

    def pin_memory(self: torch.Tensor, device_: Any = None) -> torch.Tensor:
        if is_meta(self):
            raise RuntimeError("cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be pinned")
        if self.layout is not torch.strided:
            return self
        return self if device.pinned(self) else device.pin(self.clone(memory_format=torch.contiguous_format))

    def record_stream(self: torch.Tensor, stream: Stream) -> None:
        if device.gpu.watch is not None:
            device.gpu.watch.memory(self).recorded.add(stream.number)

    def read_back(self: torch.Tensor) -> torch.Tensor:
        return self.detach().to("cpu") if is_meta(self) else self

    def tolist(self: torch.Tensor) -> Any:
        return real_tolist(read_back(self))

    def represent(self: torch.Tensor, **rest: Any) -> str:
        if not is_meta(self):
            return real_repr(self, **rest)
        read_back(self)
        return f"tensor(..., device='cuda:0', size={tuple(self.shape)}, dtype={self.dtype})"

    def no_numpy(self: torch.Tensor, *args: Any, **rest: Any) -> Any:
        if is_meta(self):
            raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to "
                            "host memory first.")  # fmt: skip
        return real_numpy(self, *args, **rest)

    def deepcopy(self: torch.Tensor, memo: dict[int, Any]) -> Any:
        if not is_meta(self):
            return real_deepcopy(self, memo)
        if id(self) not in memo:
            copied = self.detach().clone().requires_grad_(self.requires_grad)
            if isinstance(self, torch.nn.Parameter):
                copied = torch.nn.Parameter(copied, self.requires_grad)
            memo[id(self)] = copied
        return memo[id(self)]

    patches.put(tensor, "device", property(lambda t: DEVICE if pretends(t) else _real_device(t)))
    patches.put(tensor, "is_cuda", property(pretends))
    patches.put(tensor, "is_meta", property(lambda t: is_meta(t) and not pretends(t)))
    patches.put(tensor, "cuda", cuda)
    patches.put(tensor, "pin_memory", pin_memory)
    patches.put(tensor, "is_pinned", lambda self, device_=None: device.pinned(self))
    patches.put(tensor, "get_device", lambda self: 0 if is_meta(self) else -1)
    patches.put(tensor, "record_stream", record_stream)
    real_tolist = patches.put(tensor, "tolist", tolist)
    real_repr = patches.put(tensor, "__repr__", represent)
    real_numpy = patches.put(tensor, "numpy", no_numpy)
    real_deepcopy = patches.put(tensor, "__deepcopy__", deepcopy)

    def module_cuda(self: torch.nn.Module, device: Any = None) -> torch.nn.Module:
        return self.to("cuda")

    patches.put(torch.nn.Module, "cuda", module_cuda)

    for name in ("backward", "grad"):
        patches.put(torch.autograd, name, _in_backward(device, getattr(torch.autograd, name)))
    # The mode is away inside of what it calls, and so in what backward calls: functions of the program, checkpoints.
    engine = torch.autograd._engine_run_backward  # pyright: ignore[reportPrivateImportUsage]

    def run_backward(*args: Any, **kwargs: Any) -> Any:
        with PretendMode(device):
            return engine(*args, **kwargs)

    patches.put(torch.autograd, "_engine_run_backward", run_backward)
    real_allclose = torch.allclose
    real_close = torch.testing.assert_close

    def allclose(left: torch.Tensor, right: torch.Tensor, *args: Any, **rest: Any) -> bool:
        if not device.is_made_up(left) and not device.is_made_up(right):
            return real_allclose(left, right, *args, **rest)
        read_back(left - right)
        return True

    def assert_close(actual: Any, expected: Any, *args: Any, **rest: Any) -> None:
        if not device.is_made_up(actual) and not device.is_made_up(expected):
            real_close(actual, expected, *args, **rest)
        elif isinstance(actual, torch.Tensor) and isinstance(expected, torch.Tensor):
            read_back(actual - expected)

    patches.put(torch, "allclose", allclose)
    patches.put(tensor, "allclose", allclose)
    patches.put(torch.testing, "assert_close", assert_close)

    saved: dict[str, Any] = {}

    def save(obj: Any, f: Any, *args: Any, **rest: Any) -> None:
        log.note("torch.save writes nothing in a dry run", where())
        saved[str(getattr(f, "name", f))] = obj

    real_load = torch.load

    def load(f: Any, map_location: Any = None, *args: Any, **rest: Any) -> Any:
        if (name := str(getattr(f, "name", f))) in saved:
            return saved[name]
        loaded = real_load(f, "cpu", *args, **rest)
        there = map_location is not None and str(map_location).startswith("cuda")
        return tree_map_only(torch.Tensor, lambda t: t.to("cuda"), loaded) if there else loaded

    patches.put(torch, "save", save)
    patches.put(torch, "load", load)


def _in_backward(device: DryDevice, function: Any) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        with device.backward():
            return function(*args, **kwargs)

    return call
