"""Watch a program's PyTorch operations: what each reads and writes, on which stream, goes into the log.

PyTorch calls ``Watch`` for every operation below autograd. Which arguments an operation writes stands in its schema;
what it gives back and did not get is new memory; where it gives back nothing but what it got, it is a view and touches
nothing. Copies between host and device are told apart, since the host may meet them.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from threading import RLock
from typing import Any, Protocol

import torch
from torch.utils._python_dispatch import TorchDispatchMode  # pyright: ignore[reportMissingImports]

from gapless.model.kinds import MemoryKind, OpKind

from .batches import behind
from .log import HOST, Access, Log, Memory, Op
from .operators import Operator, operator_of
from .parts import View
from .stacks import Stack, here, place

VIEWS = "memory that NumPy or other code was given: what it reads and writes there is not seen"


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


class _Part:
    """A tensor among the arguments or results: where it stands, and its storage."""

    __slots__ = ("key", "storage", "tensor", "where")

    def __init__(self, where: int | str, tensor: torch.Tensor) -> None:
        self.where = where
        self.tensor = tensor
        self.storage = tensor.untyped_storage()
        self.key: int = self.storage._cdata


class _End(weakref.ref):  # pyright: ignore[reportMissingTypeArgument]
    """Tells when a storage ends, and which."""

    __slots__ = ("key", "unguarded")

    def __new__(cls, storage: Any, callback: Any, key: int, unguarded: bool = False) -> _End:
        return super().__new__(cls, storage, callback)  # pyright: ignore[reportCallIssue]

    def __init__(self, storage: Any, callback: Any, key: int, unguarded: bool = False) -> None:
        super().__init__(storage, callback)  # pyright: ignore[reportCallIssue]
        self.key = key
        self.unguarded = unguarded


class Capture:
    """What a CUDA graph touches: recorded once, done by every replay."""

    def __init__(self) -> None:
        self.accesses: dict[tuple[int, View, bool], tuple[Memory, View, bool]] = {}
        self.stack = here()
        self.event = -1
        self.pool: object = self  # the handle of the memory pool that it allocates from
        self.allocates = False

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
        self._first = twin._first if twin else self
        self.asleep = False  # in a process that was forked: it is not part of the program; see ``sleeps``
        self.over = False  # in a thread that goes on after the check
        self._known: dict[Any, Operator] = twin._known if twin else {}
        self._ends: dict[int, _End] = twin._ends if twin else {}
        self._pools: dict[object, Memory] = twin._pools if twin else {}  # of CUDA graphs, by the handle

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else PyTorch's compiler wraps every operation

    @property
    def sleeps(self) -> bool:
        """Whether nothing is watched, and the GPU must not be asked: this process was forked."""
        return self._first.asleep

    @property
    def ended(self) -> bool:
        """Whether the check is over: a thread that began in it may go on."""
        return self._first.over

    def in_thread(self) -> Watch:
        """Give what watches another thread and writes into the same log."""
        return Watch(self.log, self.device, self)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Do an operation and log it."""
        kwargs = kwargs or {}
        if types and _has_own_dispatch(types):
            return NotImplemented  # a subclass turns it into operations on plain tensors; those come here again
        if self._first.over:
            return func(*args, **kwargs)
        known = self._known.get(func)
        if known is None:
            known = self._known[func] = operator_of(func)
        if self._first.asleep:
            return self.device.run(func, args, kwargs)
        if known.composite:  # in inference mode it comes as it is called; elsewhere autograd has taken it apart
            with self:
                return func.decompose(*args, **kwargs)
        if known.idle:
            return self.device.run(func, args, kwargs)
        if known.name == "record_stream":
            with self.lock:
                self.memory(args[0]).recorded.add(self.device.number_of(args[1]))
            return self.device.run(func, args, kwargs)
        given = _given(args[1:] if known.is_like else args, kwargs)
        result = self.device.run(func, args, kwargs)
        made = _given((result,))
        with self.lock:
            if known.collective:
                self._collective()
            elif known.copies and self._is_transfer(given, made):
                self._transfer(known, given, made, kwargs, args)
            else:
                self._operation(known, given, made, waits=known.waits(args, kwargs, self.device.holds))
        return result

    # ------------------------------------------------------------------------------------------------- one operation

    def _operation(self, known: Operator, given: list[_Part], made: list[_Part], *, waits: bool) -> None:
        holds = self.device.holds
        got = {part.key for part in given}
        fresh = [part for part in made if part.key not in got]
        if not known.writes and not fresh and made:
            return  # a view
        there = [part for part in given if holds(part.tensor)]
        made_there = [part for part in fresh if holds(part.tensor)]
        if not there and not made_there:
            for part in given:
                self._host_touch(part, known)
            return
        index = _index((there or made_there)[0].tensor)
        stream = self.device.stream(index)
        stack = self._stack()
        if known.allocates:
            for part in made_there:  # what is like a tensor on the device may be on the host
                self._memory(part, stream, stack)
            return
        # PyTorch lets both sides wait for a copy between two GPUs
        indices = {_index(part.tensor) for part in (*there, *made_there)} - {index}
        others = [self.device.stream(other) for other in indices]
        for other in others:
            self.log.join(other, stream)
        op = self.log.op(OpKind.KERNEL, stream, known.name, stack)
        if len(there) < len(given):
            for part in given:
                if not holds(part.tensor):
                    self._host_touch(part, known)
        for part in there:
            self._touch(self._memory(part, None, stack), op, part.tensor, part.where in known.writes)
        for part in made_there:
            owner = self.device.stream(_index(part.tensor)) if others else stream
            self._touch(self._memory(part, owner, stack), op, part.tensor, True)
        for other in others:
            self.log.join(stream, other)
        if known.foreign:
            self.log.note(f"operators of {known.name.split('::')[0]}: taken to work on the current stream, and to "
                          "write what their schema says", _where(op.stack))  # fmt: skip
        if waits and not self.capture:
            self.log.sync_stream(stream)

    def _host_touch(self, part: _Part, known: Operator) -> None:
        """Let the host touch a tensor; of interest only once a copy of it may be under way."""
        memory = self.log.alive.get(part.key)
        if memory is not None:
            op = self.log.op(-1, HOST, known.name, self._stack())
            self._touch(memory, op, part.tensor, part.where in known.writes)

    def host_reads(self, tensor: torch.Tensor, name: str) -> None:
        """Let the host read a tensor some other way than by an operation."""
        if self.sleeps:
            return
        with self.lock:
            if not self.device.holds(tensor) and tensor.layout is torch.strided:
                self._host_touch(_Part(0, tensor), Operator(name))

    def copies(self, tensor: torch.Tensor) -> bool:
        """Tell whether copies into or out of a tensor on the host may be under way."""
        return tensor.layout is torch.strided and tensor.untyped_storage()._cdata in self.log.alive

    def copied_to_host(self, tensor: torch.Tensor) -> None:
        """Let the host wait for a copy of a tensor on the device that no operation makes."""
        with self.lock:
            self._transfer_of(Operator("copy_"), _Part(1, tensor), _Part(0, torch.empty(0)), blocking=True)

    def _is_transfer(self, given: list[_Part], made: list[_Part]) -> bool:
        return len({self.device.holds(part.tensor) for part in (*given, *made)}) == 2

    def _transfer(self, known: Operator, given: list[_Part], made: list[_Part], kwargs: dict[str, Any],
                  args: Sequence[Any]) -> None:  # fmt: skip
        """Log a copy between host and device; of a sparse tensor, of all parts of it."""
        half = len(given) // 2
        if known.name == "_to_copy":
            sources, targets, blocking = given, made, not kwargs.get("non_blocking", False)
        elif known.name == "_copy_from":
            sources, targets, blocking = given[:half], given[half:], not (args[2] if len(args) > 2 else False)
        else:
            not_waiting = args[2] if len(args) > 2 else kwargs.get("non_blocking", False)
            sources, targets, blocking = given[half:], given[:half], not not_waiting
        for source, target in zip(sources, targets, strict=False):
            if self.device.holds(source.tensor) != self.device.holds(target.tensor):
                self._transfer_of(known, source, target, blocking=blocking)

    def _transfer_of(self, known: Operator, source: _Part, target: _Part, *, blocking: bool) -> None:
        to_device = self.device.holds(target.tensor)
        on_device, on_host = (target, source) if to_device else (source, target)
        stream, stack = self.device.stream(_index(on_device.tensor)), self._stack()
        kind = MemoryKind.PINNED if self.device.pinned(on_host.tensor) else MemoryKind.PAGEABLE
        straight = not to_device or _straight(source.tensor, target.tensor)
        if not straight:
            self._host_touch(source, known)  # converted by the host first, into memory of PyTorch's own
        op = self.log.op(OpKind.H2D if to_device else OpKind.D2H, stream, _COPY[to_device], stack, kind)
        fresh = stream if known.name == "_to_copy" and to_device else None
        there = self._memory(on_device, fresh, stack)
        if to_device and there.tensor[0] is torch.uint8 and _view(target.tensor, there.size) is None:
            there.tensor = _said(target.tensor)  # what the bytes of a buffer are from now on
        self._touch(there, op, on_device.tensor, to_device)
        if straight and not blocking and _is_of_others(on_host.storage):
            self.log.note(VIEWS, _where(stack))
        if straight and (not blocking or on_host.key in self.log.alive):
            new = known.name == "_to_copy" and not to_device
            memory = self._memory_of_host(on_host, kind, stack, seen=new)
            self._touch(memory, op, on_host.tensor, not to_device)
        if blocking and not self.capture:
            self.log.sync_stream(stream)

    def _collective(self) -> None:
        self.log.note("collectives run on streams of their own: neither they nor the wait for them is followed",
                      _where(self._stack()))  # fmt: skip

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
            if capture.allocates:  # what its operations leave in its pool, those of the pool's other graphs write again
                self.log.touch(self._pool_of(capture), op, None, True)
            self.log.record(capture.event, stream)

    def _pool_of(self, capture: Capture) -> Memory:
        memory = self._pools.get(capture.pool)
        if memory is None:
            said = "the memory pool that graphs share", ()
            memory = self._pools[capture.pool] = self.log.allocated(
                -1 - len(self._pools), 1, MemoryKind.DEVICE, HOST, said, capture.stack, cached=False
            )
        return memory

    def memory(self, tensor: torch.Tensor) -> Memory:
        """Give the memory of a tensor on the device."""
        return self._memory(_Part(0, tensor), None, self._stack())

    def _memory(self, part: _Part, stream: int | None, stack: Stack) -> Memory:
        """Give the memory of a tensor on the device. *stream*: it is new, and this is its stream."""
        memory = self.log.alive.get(part.key)
        if memory is None:
            cached = stream is not None and not self.capture
            if stream is not None and self.capture:
                self.capture[0].allocates = True
            owner = self.device.stream(_index(part.tensor)) if stream is None else stream
            memory = self.log.allocated(part.key, part.storage.nbytes(), MemoryKind.DEVICE, owner, _said(part.tensor),
                                        stack, seen=stream is not None, cached=cached)  # fmt: skip
            self._ends[part.key] = _End(part.storage, self._ended, part.key)
        return memory

    def resized(self, storage: Any, before: int) -> None:
        """Let a storage give its memory back and take another (``UntypedStorage.resize_``)."""
        key, size = storage._cdata, storage.nbytes()
        with self.lock:
            memory = self.log.alive.get(key)
            if size == before or (memory is None and before):
                return
            stack = here()
            if memory is not None:
                self.log.released(key, stack)
                del self._ends[key]
            if size and storage.device.type != "cpu":
                said = memory.tensor if memory is not None else (torch.uint8, (size,))
                stream = self.device.stream(storage.device.index or 0)
                self.log.allocated(key, size, MemoryKind.DEVICE, stream, said, stack, cached=not self.capture)
                self._ends[key] = _End(storage, self._ended, key)

    def _memory_of_host(self, part: _Part, kind: MemoryKind, stack: Stack, *, seen: bool) -> Memory:
        """Give the memory of a tensor on the host that a copy uses."""
        memory = self.log.alive.get(part.key)
        if memory is None:
            memory = self.log.allocated(part.key, part.storage.nbytes(), kind, HOST, _said(part.tensor), stack,
                                        seen=seen)  # fmt: skip
            unguarded = kind == MemoryKind.PINNED and not self.device.guarded(part.tensor)
            self._ends[part.key] = _End(part.storage, self._ended, part.key, unguarded)
        return memory

    def _ended(self, end: _End) -> None:
        """Let a storage's last reference go."""
        if self.sleeps:
            return  # the lock may be held, by a thread that is not in this process
        with self.lock:
            self._ends.pop(end.key, None)
            memory = self.log.alive.get(end.key)
            if memory is None:
                return
            stack = here() if memory.shared or end.unguarded else ()
            if end.unguarded:
                self.log.touch(memory, self.log.op(-1, HOST, "release", stack), None, True)
            self.log.released(end.key, stack)

    def _stack(self) -> Stack:
        return here() or self.device.fallback()


_COPY = {True: "copy to device", False: "copy to host"}


def _has_own_dispatch(types: Any) -> bool:
    plain = torch._C._disabled_torch_dispatch_impl
    return any(getattr(t, "__torch_dispatch__", plain) is not plain for t in types)


def _given(args: Sequence[Any], kwargs: dict[str, Any] | None = None) -> list[_Part]:
    """Give all tensors among arguments."""
    parts: list[_Part] = []
    for where, value in (*enumerate(args), *kwargs.items()) if kwargs else enumerate(args):
        if isinstance(value, torch.Tensor):
            _add(parts, where, value)
        elif isinstance(value, list | tuple):
            _add_all(parts, where, value)
    return parts


def _add(parts: list[_Part], where: int | str, tensor: torch.Tensor) -> None:
    if tensor.layout is torch.strided:
        parts.append(_Part(where, tensor))
    else:
        parts += [_Part(where, part) for part in behind(tensor)]


def _add_all(parts: list[_Part], where: int | str, values: Sequence[Any]) -> None:
    for value in values:
        if isinstance(value, torch.Tensor):
            _add(parts, where, value)
        elif isinstance(value, list | tuple):
            _add_all(parts, where, value)


def _index(tensor: torch.Tensor) -> int:
    return tensor.device.index or 0


def _view(tensor: torch.Tensor, size: int) -> View:
    """Give the bytes that a tensor covers of its memory."""
    contiguous = tensor.is_contiguous()
    if contiguous and tensor.nbytes == size:
        return None
    if tensor.is_nested:
        return None
    width, offset = tensor.dtype.itemsize, int(tensor.storage_offset())
    if contiguous:
        low, bytes_ = offset * width, tensor.numel() * width
        return None if low == 0 and bytes_ >= size else (low, bytes_, (), ())
    strides = tuple(stride * width for stride in tensor.stride())
    return offset * width, width, tuple(tensor.size()), strides


def _is_of_others(storage: Any) -> bool:
    """Tell whether memory on the host is not PyTorch's own: of an array (``torch.from_numpy``), or what a program maps.

    What workers share is PyTorch's, and nobody writes it when it has come.
    """
    return not storage.resizable() and not storage.is_shared()


def _straight(source: torch.Tensor, target: torch.Tensor) -> bool:
    """Tell whether a copy to the device reads its source directly, without a conversion on the host."""
    if source.dtype != target.dtype:
        return False
    if source.is_contiguous() and target.is_contiguous():
        return True
    return source.stride() == target.stride() and source.size() == target.size()


def _said(tensor: torch.Tensor) -> tuple[Any, Sequence[int]]:
    return tensor.dtype, () if tensor.is_nested else tensor.shape


def _where(stack: Stack) -> str:
    found = place(stack)
    return str(found) if found else ""


__all__ = ["Access", "Capture", "Device", "Watch"]
