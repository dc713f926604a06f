"""Watch a program's PyTorch operations: what each reads and writes, on which stream, goes into the log.

PyTorch calls ``Watch`` for every operation below autograd. Which arguments an operation writes stands in its schema;
what it gives back and did not get is new memory; where it gives back nothing but what it got, it is a view and touches
nothing. Copies between host and device are told apart, since the host may meet them.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from threading import RLock
from typing import Any, Protocol

import torch
from torch.utils._python_dispatch import TorchDispatchMode  # pyright: ignore[reportMissingImports]

from gapless.model.kinds import MemoryKind, OpKind

from .log import HOST, Access, Log, Memory, Op
from .parts import View
from .stacks import Stack, here, place

_TOUCH_NOTHING = frozenset(
    ("set_", "resize_", "is_pinned", "size", "stride", "numel", "dim", "storage_offset", "sym_size", "sym_stride",
     "sym_numel", "sym_storage_offset", "is_same_size", "has_same_storage_numel", "_has_compatible_shallow_copy_type")
)  # fmt: skip
_ALLOCATE = frozenset(("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted"))
_OURS = frozenset(("aten", "prims", "prim", "quantized", "torchvision", "inductor"))  # operators that use one stream
_SYNC = frozenset(("_local_scalar_dense", "equal", "is_nonzero", "nonzero", "masked_select", "unique_dim", "_unique2",
                   "unique_consecutive", "_unique", "repeat_interleave"))  # fmt: skip


class Device(Protocol):
    """What differs between a GPU and a pretended one."""

    def holds(self, tensor: torch.Tensor) -> bool:
        """Tell whether a tensor lies on the device."""
        ...

    def stream(self, index: int) -> int:
        """Give the log's number of the current stream of a device."""
        ...

    def number_of(self, stream: Any) -> int:
        """Give the log's number of a stream of PyTorch."""
        ...

    def pinned(self, tensor: torch.Tensor) -> bool:
        """Tell whether a tensor lies in pinned host memory."""
        ...

    def guarded(self, tensor: torch.Tensor) -> bool:
        """Tell whether its pinned memory is PyTorch's own, which waits for copies before it is handed out again."""
        ...

    def run(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Do an operation."""
        ...

    def fallback(self) -> Stack:
        """Give the stack to blame where a thread of PyTorch has none of the user's."""
        ...


@dataclass(slots=True)
class _Known:
    """What is known of an operator from its schema."""

    name: str
    writes: frozenset[int | str]
    foreign: bool
    collective: bool
    sync: bool


class Capture:
    """What a CUDA graph touches: recorded once, done by every replay."""

    def __init__(self) -> None:
        self.accesses: dict[tuple[int, View, bool], tuple[Memory, View, bool]] = {}
        self.stack = here()
        self.event = -1

    def keep_alive(self, log: Log) -> None:
        """Keep only what outlives the capture: the rest is the graph's own."""
        alive = {id(memory) for memory in log.alive.values()}
        self.accesses = {key: access for key, access in self.accesses.items() if id(access[0]) in alive}


class Watch(TorchDispatchMode):
    """Log the operations of this thread; ``in_thread`` gives the same for another thread."""

    def __init__(self, log: Log, device: Device, twin: Watch | None = None) -> None:
        super().__init__()
        self.log = log
        self.device = device
        self.lock: Any = twin.lock if twin else RLock()
        self.capture: list[Capture] = twin.capture if twin else []  # at most one
        self._known: dict[Any, _Known] = twin._known if twin else {}
        self._dying: dict[int, Any] = twin._dying if twin else {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return True  # else PyTorch loads its compiler for the first operation

    def in_thread(self) -> Watch:
        """Give what watches another thread and writes into the same log."""
        return Watch(self.log, self.device, self)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Do an operation and log it."""
        kwargs = kwargs or {}
        if any(not (t is torch.Tensor or t is torch.nn.Parameter) for t in types) and _has_own_dispatch(types):
            return NotImplemented  # a subclass turns it into operations on plain tensors; those come here again
        known = self._known.get(func) or self._learn(func)
        if known.name in _TOUCH_NOTHING:
            return self.device.run(func, args, kwargs)
        if known.name == "record_stream":
            with self.lock:
                self.memory(args[0]).recorded.add(self.device.number_of(args[1]))
            return self.device.run(func, args, kwargs)
        given = list(_given(args, kwargs))
        result = self.device.run(func, args, kwargs)
        made = [tensor for _, tensor in _given((result,), {})]
        with self.lock:
            if known.collective:
                self._collective(func)
            elif known.name in ("copy_", "_to_copy", "_copy_from") and self._is_transfer(given, made):
                self._transfer(known, given, made, kwargs, args)
            else:
                self._operation(known, given, made)
        return result

    # ------------------------------------------------------------------------------------------------- one operation

    def _operation(self, known: _Known, given: list[tuple[int | str, torch.Tensor]], made: list[torch.Tensor]) -> None:
        holds = self.device.holds
        on_device = next((t for _, t in given if holds(t)), None)
        if on_device is None:
            on_device = next((t for t in made if holds(t)), None)
        got = {_key(t) for _, t in given}
        fresh = [t for t in made if _key(t) not in got]
        if not known.writes and not fresh and made:
            return  # a view
        if on_device is None:
            self._on_host(known, given)
            return
        stream = self.device.stream(_index(on_device))
        if known.name in _ALLOCATE:
            for tensor in fresh:
                self.memory(tensor, stream)
            return
        op = self.log.op(OpKind.KERNEL, stream, known.name, self._stack())
        for where, tensor in given:
            write = where in known.writes
            if holds(tensor):
                self._touch(self.memory(tensor), op, tensor, write)
            else:
                self._host_touch(tensor, known.name, write)
        for tensor in fresh:
            if holds(tensor):
                self._touch(self.memory(tensor, stream), op, tensor, True)
        if known.foreign:
            self.log.note(f"operators of {known.name.split('::')[0]}: taken to work on the current stream, and to "
                          "write what their schema says", _where(op.stack))  # fmt: skip
        if known.sync:
            self.log.sync_stream(stream)

    def _on_host(self, known: _Known, given: list[tuple[int | str, torch.Tensor]]) -> None:
        for where, tensor in given:
            self._host_touch(tensor, known.name, where in known.writes)

    def _host_touch(self, tensor: torch.Tensor, name: str, write: bool) -> None:
        """Let the host touch a tensor; of interest only once a copy of it may be under way."""
        memory = self.log.alive.get(_key(tensor))
        if memory is not None:
            self._touch(memory, self.log.op(-1, HOST, name, self._stack()), tensor, write)

    def host_reads(self, tensor: torch.Tensor, name: str) -> None:
        """Let the host read a tensor some other way than by an operation."""
        with self.lock:
            if not self.device.holds(tensor):
                self._host_touch(tensor, name, False)

    def _is_transfer(self, given: list[tuple[int | str, torch.Tensor]], made: list[torch.Tensor]) -> bool:
        sides = {self.device.holds(t) for t in (*(t for _, t in given), *made)}
        return len(sides) == 2

    def _transfer(self, known: _Known, given: list[tuple[int | str, torch.Tensor]], made: list[torch.Tensor],
                  kwargs: dict[str, Any], args: Sequence[Any]) -> None:  # fmt: skip
        tensors = [t for _, t in given]
        if known.name == "_to_copy":
            source, target, blocking = tensors[0], made[0], not kwargs.get("non_blocking", False)
        elif known.name == "_copy_from":
            source, target, blocking = tensors[0], tensors[1], not (args[2] if len(args) > 2 else False)
        else:
            given_async = args[2] if len(args) > 2 else kwargs.get("non_blocking", False)
            target, source, blocking = tensors[0], tensors[1], not given_async
        to_device = self.device.holds(target)
        on_device, on_host = (target, source) if to_device else (source, target)
        stream, stack = self.device.stream(_index(on_device)), self._stack()
        pinned = self.device.pinned(on_host)
        kind = MemoryKind.PINNED if pinned else MemoryKind.PAGEABLE
        if to_device and not _straight(source, target):
            self._host_touch(source, "copy", False)  # converted by the host first, into memory of PyTorch's own
            on_host = None
        op = self.log.op(OpKind.H2D if to_device else OpKind.D2H, stream, _COPY[to_device], stack, kind)
        fresh = known.name == "_to_copy"
        self._touch(self.memory(on_device, stream if fresh and to_device else None), op, on_device, to_device)
        if on_host is not None and (not blocking or _key(on_host) in self.log.alive):
            self._touch(self.memory_of_host(on_host, kind), op, on_host, not to_device)
        if blocking and not self.capture:
            self.log.sync_stream(stream)

    def _collective(self, func: Any) -> None:
        stack = self._stack()
        self.log.note("collectives run on streams of their own: neither they nor the wait for them is followed",
                      _where(stack))  # fmt: skip

    # ------------------------------------------------------------------------------------------------------- memory

    def _touch(self, memory: Memory, op: Op, tensor: torch.Tensor, write: bool) -> None:
        view = _view(tensor, memory.size)
        if not self.capture:
            self.log.touch(memory, op, view, write)
        elif op.stream != HOST:
            self.capture[0].accesses[id(memory), view, write] = memory, view, write

    def replay(self, capture: Capture, stream: int, stack: Stack) -> None:
        """Let a graph be launched: one operation, after its own last launch (R7.1)."""
        with self.lock:
            if capture.event < 0:
                capture.event = self.log.event()
            else:
                self.log.wait(capture.event, stream)
            op = self.log.op(OpKind.KERNEL, stream, "graph replay", stack)
            for memory, view, write in capture.accesses.values():
                self.log.touch(memory, op, view, write)
            self.log.record(capture.event, stream)

    def memory(self, tensor: torch.Tensor, stream: int | None = None) -> Memory:
        """Give the memory of a tensor on the device. *stream*: it is new, and this is its stream."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        memory = self.log.alive.get(key)
        if memory is None:
            cached = stream is not None and not self.capture
            owner = self.device.stream(_index(tensor)) if stream is None else stream
            memory = self.log.allocated(key, _bytes(storage), MemoryKind.DEVICE, owner, _said(tensor), self._stack(),
                                        cached=cached)  # fmt: skip
            self._watch_end(storage, key)
        return memory

    def memory_of_host(self, tensor: torch.Tensor, kind: MemoryKind) -> Memory:
        """Give the memory of a tensor on the host that a copy uses."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        memory = self.log.alive.get(key)
        if memory is None:
            pinned = "pinned " if kind == MemoryKind.PINNED else "pageable "
            memory = self.log.allocated(key, _bytes(storage), kind, HOST, pinned + _said(tensor), self._stack())
            self._watch_end(storage, key, guarded=kind != MemoryKind.PINNED or self.device.guarded(tensor))
        return memory

    def _watch_end(self, storage: torch.UntypedStorage, key: int, *, guarded: bool = True) -> None:
        def end(_: Any) -> None:
            with self.lock:
                self._dying.pop(key, None)
                memory, stack = self.log.alive.get(key), here()
                if memory is not None and not guarded:
                    self.log.touch(memory, self.log.op(-1, HOST, "release", stack), None, True)
                self.log.released(key, stack)

        self._dying[key] = weakref.ref(storage, end)

    def _stack(self) -> Stack:
        return here() or self.device.fallback()

    def _learn(self, func: Any) -> _Known:
        schema = func._schema
        space, _, name = schema.name.partition("::")
        writes: set[int | str] = set()
        for i, argument in enumerate(schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                writes |= {i, argument.name}
        ours = space in _OURS
        sync = name in _SYNC or torch.Tag.dynamic_output_shape in func.tags
        known = _Known(name if ours else schema.name, frozenset(writes), not ours and space not in ("c10d", "profiler"),
                       space in ("c10d", "_c10d_functional"), sync and space == "aten")  # fmt: skip
        self._known[func] = known
        return known


_COPY = {True: "copy to device", False: "copy to host"}


def _has_own_dispatch(types: Any) -> bool:
    plain = torch._C._disabled_torch_dispatch_impl
    return any(getattr(t, "__torch_dispatch__", plain) is not plain for t in types)


def _given(args: Sequence[Any], kwargs: dict[str, Any]) -> Iterator[tuple[int | str, torch.Tensor]]:
    """Give all tensors among arguments, with the argument's number or name; each one once."""
    for where, value in (*enumerate(args), *kwargs.items()):
        if isinstance(value, torch.Tensor):
            if value.layout is torch.strided:
                yield where, value
        elif isinstance(value, list | tuple):
            for item in value:
                if isinstance(item, torch.Tensor) and item.layout is torch.strided:
                    yield where, item
                elif isinstance(item, list | tuple):
                    yield from ((where, tensor) for _, tensor in _given(item, {}))


def _key(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _index(tensor: torch.Tensor) -> int:
    return tensor.device.index or 0


def _bytes(storage: torch.UntypedStorage) -> int:
    return storage.nbytes()


def _view(tensor: torch.Tensor, size: int) -> View:
    """Give the bytes that a tensor covers of its memory."""
    width, offset = tensor.dtype.itemsize, int(tensor.storage_offset())
    if tensor.is_contiguous():
        low, bytes_ = offset * width, tensor.numel() * width
        return None if low == 0 and bytes_ >= size else (low, bytes_, (), ())
    strides = tuple(stride * width for stride in tensor.stride())
    return offset * width, width, tuple(tensor.size()), strides


def _straight(source: torch.Tensor, target: torch.Tensor) -> bool:
    """Tell whether a copy to the device reads its source directly, without a conversion on the host."""
    if source.dtype != target.dtype:
        return False
    if source.is_contiguous() and target.is_contiguous():
        return True
    return source.stride() == target.stride() and source.size() == target.size()


def _said(tensor: torch.Tensor) -> str:
    kind = str(tensor.dtype).removeprefix("torch.")
    return f"{kind}{list(tensor.shape)}"


def _where(stack: Stack) -> str:
    found = place(stack)
    return str(found) if found else ""


__all__ = ["Access", "Capture", "Device", "Watch"]
