"""What ``torch.cuda`` and tensors say and do in a dry run: stand-ins that are put in place and taken out again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode  # pyright: ignore[reportMissingImports]
from torch.utils import _device, _foreach_utils  # pyright: ignore[reportMissingImports]

from gapless.model.kinds import OpKind

from . import pretend
from .currents import forget
from .dry import STREAM, DryDevice, metadata_of
from .meta import META, NotFollowedError, as_meta, is_meta, pretends
from .old_types import patch_old_types
from .patches import Patches
from .pretend import DEVICE, Stream, where
from .saving import patch_saving
from .stacks import here
from .watch import Watch

_real_data: Any = torch._C.TensorBase.data  # pyright: ignore[reportAttributeAccessIssue]
_real_device = torch._C.TensorBase.device.__get__  # pyright: ignore[reportAttributeAccessIssue]
_parse_to = torch._C._nn._parse_to  # pyright: ignore[reportAttributeAccessIssue] - of modules
_FROM_NUMBERS = (torch.tensor, torch.as_tensor, torch.asarray, torch.Tensor.new_tensor)
_BY_NUMBER: dict[Any, int] = {torch.Tensor.to: 1, _parse_to: 0}


class PretendMode(TorchFunctionMode):
    """Send what names the GPU to the meta device, and let nodes of the autograd graph keep their stream."""

    def __init__(self, device: DryDevice, watch: Watch) -> None:
        super().__init__()
        self._device = device
        self._watch = watch

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function of PyTorch."""
        kwargs = kwargs or {}
        if self._watch.ended:
            return func(*args, **kwargs)
        if func is torch.device:
            return func(f"cuda:{args[0]}") if args and type(args[0]) is int else func(*args, **kwargs)
        args = tuple(as_meta(value) for value in args)
        pin = bool(kwargs) and kwargs.get("pin_memory") is True
        if kwargs:
            kwargs = {key: as_meta(value) for key, value in kwargs.items() if not (pin and key == "pin_memory")}
            if type(kwargs.get("device")) is int:
                kwargs["device"] = as_meta(f"cuda:{kwargs['device']}")
        if _device.CURRENT_DEVICE is not None and kwargs.get("device") is None:
            kwargs = kwargs | _by_default(func)
        at = _BY_NUMBER.get(func)  # which argument may be a GPU's number
        if at is not None and len(args) > at and type(args[at]) is int:
            args = (*args[:at], as_meta(f"cuda:{args[at]}"), *args[at + 1 :])
        if not self._device.casts and torch.is_autocast_enabled("cuda"):
            self._device.noted_casts()
        result = _of_numbers(func, args, kwargs) if func in _FROM_NUMBERS else func(*args, **kwargs)
        if pin:
            self._device.pin(result)
        current = self._device.gpu.current
        if current is not self._device.gpu.default:
            _label(result, current)
        return result


def _by_default(func: Any) -> dict[str, Any]:
    """Give the device of ``torch.set_default_device`` or ``with torch.device(...)``, where that is the GPU."""
    lowest = torch._C._get_function_stack_at(0) if torch._C._len_torch_function_stack() else None
    if not isinstance(lowest, _device.DeviceContext) or lowest.device.type != "cuda":
        return {}
    return {"device": as_meta(lowest.device)} if func in _device._device_constructors() else {}


def _of_numbers(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
    """Make a tensor of numbers on the host, and copy it to the device: PyTorch does so where nobody sees it."""
    args = tuple(_numbers(value) for value in args)
    device = kwargs.get("device")
    if func is torch.Tensor.new_tensor and device is None and is_meta(args[0]):
        device = META
    if device != META or (isinstance(args[-1], torch.Tensor) and is_meta(args[-1])):
        return func(*args, **kwargs)
    requires_grad = kwargs.get("requires_grad", False)
    kwargs = {name: value for name, value in kwargs.items() if name != "requires_grad"}
    return func(*args, **kwargs | {"device": "cpu"}).to(META).requires_grad_(requires_grad)


def _numbers(value: Any) -> Any:
    """Give numbers for tensors on the device that stand in a list: PyTorch asks for each, where nobody hears it."""
    if isinstance(value, list | tuple) and any(isinstance(item, list | tuple | torch.Tensor) for item in value):
        return [item.tolist() if isinstance(item, torch.Tensor) and is_meta(item) else _numbers(item) for item in value]
    return value


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
def dry_run(device: DryDevice, watch: Watch) -> Iterator[None]:
    """Pretend a GPU: everything that ``torch.cuda`` says and does here, it says and does of the pretended one."""
    import torch._dynamo  # noqa: F401 # pyright: ignore[reportMissingImports] - optimizers load it; it would keep the stand-ins if it were loaded below

    patches = Patches()
    device.gpu.watch = watch
    Stream.gpu = device.gpu
    forget()
    _patch_cuda(patches, device)
    _patch_tensors(patches, device, watch)
    try:
        with ExitStack() as modes:
            modes.enter_context(PretendMode(device, watch))
            modes.enter_context(watch)
            yield
    finally:
        patches.undo()
        forget()


def modes_of_thread(device: DryDevice, watch: Watch) -> ExitStack:
    """Give what a new thread has to enter."""
    modes = ExitStack()
    modes.enter_context(PretendMode(device, watch))
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

    def set_device(device: Any) -> None:
        as_meta(_named(device))  # which says so if it is another than the one that there is

    def sleep(cycles: int) -> None:
        gpu.log.op(OpKind.KERNEL, gpu.current.number, "sleep", here())

    properties = SimpleNamespace(
        name="pretended GPU", major=9, minor=0, total_memory=80 << 30, multi_processor_count=132, warp_size=32,
        max_threads_per_multi_processor=2048, shared_memory_per_block=48 << 10, gcnArchName="",
    )  # fmt: skip
    functions = {
        "is_available": lambda: True, "is_initialized": lambda: True, "init": lambda: None, "_lazy_init": lambda: None,
        "device_count": lambda: 1, "current_device": lambda: 0, "set_device": set_device,
        "get_device_name": lambda device=None: properties.name, "get_device_properties": lambda device=None: properties,
        "get_device_capability": lambda device=None: (9, 0), "get_arch_list": lambda: ["sm_90"],
        "is_bf16_supported": lambda including_emulation=True: True, "is_tf32_supported": lambda: True,
        "synchronize": synchronize,
        "current_stream": lambda device=None: gpu.current, "default_stream": lambda device=None: gpu.default,
        "set_stream": set_stream, "stream": pretend.stream_context, "StreamContext": pretend.StreamContext,
        "Stream": Stream, "ExternalStream": pretend.ExternalStream, "Event": pretend.Event,
        "get_stream_from_external": pretend.ExternalStream, "CUDAGraph": pretend.Graph,
        "graph": pretend.GraphContext,
        "is_current_stream_capturing": lambda: gpu.capturing, "graph_pool_handle": pretend.pool_handle,
        "ipc_collect": lambda: None, "manual_seed": lambda seed: None,
        "manual_seed_all": lambda seed: None, "seed": lambda: None, "seed_all": lambda: None,
        "initial_seed": lambda: 0, "can_device_access_peer": lambda *_: False,
        "get_sync_debug_mode": lambda: 0, "set_sync_debug_mode": lambda debug_mode: None,
        "current_blas_handle": lambda: 0, "current_solver_handle": lambda: 0,
        "get_rng_state": lambda device="cuda": torch.zeros(16, dtype=torch.uint8, device="cpu"),
        "set_rng_state": lambda new_state, device="cuda": None,
        "get_rng_state_all": list, "set_rng_state_all": lambda new_states: None,
        "cudart": lambda: _Cudart(device), "device": pretend.DeviceContext, "device_of": pretend.DeviceContext,
        "_sleep": sleep,
    }  # fmt: skip
    for name in ("utilization", "memory_usage", "temperature", "power_draw", "clock_rate", "device_memory_used"):
        functions[name] = lambda device=None: 0
    for name, function in functions.items():
        patches.put(cuda, name, function)
    for name, function in _ABOUT_MEMORY.items():
        for module in (cuda, cuda.memory):
            if hasattr(module, name):
                patches.put(module, name, function)
    patches.put(cuda, "default_generators", (torch.default_generator,))
    patches.put(cuda.profiler, "cudart", functions["cudart"])
    patches.put(cuda.profiler, "check_error", _nothing)
    patches.put(torch.backends.cudnn, "is_acceptable", lambda tensor: False)  # it would warn that there is none
    for name in ("range_push", "range_pop", "mark", "range_start", "range_end"):
        patches.put(cuda.nvtx, name, lambda *_, **__: 0)
    patches.put(cuda.nvtx, "range", _no_context)
    patches.put(torch.autograd.profiler, "emit_nvtx", _no_context)
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
        "device_index": pretend.DeviceContext, "empty_cache": _nothing,
    }.items():  # fmt: skip
        if hasattr(accelerator, name):
            patches.put(accelerator, name, function)
    patches.put(torch, "compile", _uncompiled)
    if torch.distributed.is_available():
        patches.put(torch.distributed, "init_process_group", _no_processes(torch.distributed.init_process_group))
    patches.put(torch._C, "_scatter", _scatter)
    patches.put(torch._C, "_cuda_getCurrentRawStream", lambda index: gpu.current.cuda_stream)
    patches.put(torch, "Generator", pretend.Generator)


def _nothing(*_: Any, **__: Any) -> None:
    """Stand in for what has nothing to do here."""


_ABOUT_MEMORY: dict[str, Any] = {
    "mem_get_info": lambda device=None: (80 << 30, 80 << 30), "memory_snapshot": lambda mempool_id=None: [],
    "memory_summary": lambda *_, **__: "", "list_gpu_processes": lambda device=None: "",
    "get_allocator_backend": lambda: "native", "get_per_process_memory_fraction": lambda device=None: 1.0,
    "_snapshot": lambda device=None: {"segments": [], "device_traces": []},
    **dict.fromkeys(("memory_stats", "memory_stats_as_nested_dict", "host_memory_stats",
                     "host_memory_stats_as_nested_dict"), lambda device=None: defaultdict(int)),
    **dict.fromkeys(("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved",
                     "memory_cached", "max_memory_cached"), lambda device=None: 0),
    **dict.fromkeys(("empty_cache", "reset_peak_memory_stats", "reset_accumulated_memory_stats", "_dump_snapshot",
                     "reset_max_memory_allocated", "reset_max_memory_cached", "set_per_process_memory_fraction",
                     "reset_peak_host_memory_stats", "reset_accumulated_host_memory_stats", "_record_memory_history"),
                    _nothing),
}  # fmt: skip


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


def _no_processes(real: Any) -> Any:
    def init_process_group(backend: Any = None, *args: Any, **rest: Any) -> None:
        if backend is None or "nccl" in str(backend):
            raise NotFollowedError(
                f"A dry run is one process, and has no NCCL: it cannot follow what begins at {where()}. Run it as one "
                "process without torch.distributed."
            )
        real(backend, *args, **rest)

    return init_process_group


def _uncompiled(model: Any = None, **_: Any) -> Any:
    """Stand in for ``torch.compile``: what is compiled runs operation by operation."""
    return (lambda function: function) if model is None else model


def _move(tensor: torch.Tensor, new: torch.Tensor) -> None:
    """``tensor.data = new`` between the host and the device: the tensor stays the object that others hold."""
    new = new.detach()
    if tensor.is_leaf:
        new.requires_grad_(tensor.requires_grad)
        if tensor.grad is not None:
            new.grad = torch.zeros_like(new)
        for hooks in ("_backward_hooks", "_post_accumulate_grad_hooks"):
            if getattr(tensor, hooks) is not None:
                setattr(new, hooks, getattr(tensor, hooks))
    torch._C._swap_tensor_impl(tensor, new)


def _named(device: Any) -> Any:
    """Give the device that ``.cuda(device)`` names."""
    return "cuda" if device is None else f"cuda:{device}" if isinstance(device, int) else device


def _patch_tensors(patches: Patches, device: DryDevice, watch: Watch) -> None:
    tensor = torch.Tensor

    def cuda(self: torch.Tensor, device: Any = None, non_blocking: bool = False, **rest: Any) -> torch.Tensor:
        return self.to(_named(device), non_blocking=non_blocking, **rest)

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
        if is_meta(self) and rest.get("force"):
            return real_numpy(read_back(self), force=True)
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

    def set_data(self: torch.Tensor, new: torch.Tensor) -> None:
        if is_meta(self) == is_meta(new):
            _real_data.__set__(self, new)
        else:
            _move(self, new)

    real_compatible = torch._has_compatible_shallow_copy_type  # pyright: ignore[reportPrivateImportUsage]

    def compatible(old: torch.Tensor, new: torch.Tensor) -> bool:
        return real_compatible(old, new) or (is_meta(old) != is_meta(new) and old.layout == new.layout)

    patches.put(torch, "_has_compatible_shallow_copy_type", compatible)
    patches.put(tensor, "data", property(_real_data.__get__, set_data))
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
        return self.to(_named(device))

    patches.put(torch.nn.Module, "cuda", module_cuda)
    real_wrapper = tensor._make_wrapper_subclass

    def make_wrapper(*args: Any, **rest: Any) -> torch.Tensor:  # it says "cuda" of what it wraps: no C++ can use that
        return real_wrapper(*map(as_meta, args), **{key: as_meta(value) for key, value in rest.items()})

    real_dlpack = tensor.__dlpack__

    def dlpack(self: torch.Tensor, *args: Any, **rest: Any) -> Any:
        if is_meta(self):
            raise NotFollowedError(
                f"A dry run has no memory on the device to hand to other code (DLPack) at {where()}."
            )
        return real_dlpack(self, *args, **rest)

    patches.put(tensor, "__dlpack__", dlpack)
    patches.put(tensor, "_make_wrapper_subclass", staticmethod(make_wrapper))
    of_foreach = _foreach_utils._get_foreach_kernels_supported_devices
    patches.put(_foreach_utils, "_get_foreach_kernels_supported_devices", lambda: [*of_foreach(), "meta"])

    for name in ("backward", "grad"):
        patches.put(torch.autograd, name, _in_backward(device, getattr(torch.autograd, name)))
    # The mode is away inside of what it calls, and so in what backward calls: functions of the program, checkpoints.
    engine = torch.autograd._engine_run_backward  # pyright: ignore[reportPrivateImportUsage]

    def run_backward(*args: Any, **kwargs: Any) -> Any:
        with PretendMode(device, watch):
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
    patch_old_types(patches)
    patch_saving(patches, device)


def _in_backward(device: DryDevice, function: Any) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        with device.backward():
            return function(*args, **kwargs)

    return call
