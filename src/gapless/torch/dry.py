"""The dry run: a PyTorch program for a GPU, on a machine without one.

Tensors "on the GPU" are tensors of PyTorch's meta device that say they are on ``cuda:0``. They have shapes and no
values, so nothing is computed there; tensors on the CPU are real. What is read back from the pretended device is made
up: zeros. The log says where.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from .log import Log
from .meta import META, PRODUCTS, SIZED, NotFollowedError, any_meta, as_meta, inside, is_meta, to_meta
from .pretend import Pretended, where
from .stacks import Stack

STREAM = "gapless stream"  # under which a node of the autograd graph keeps the stream of its forward operation
_MADE_UP = "values read back from the device are made up (zeros): what the program decides by them is not followed"
_CASTS = (
    "torch.autocast: operations keep the types of what they are given; its casts, which streams share, are not seen"
)
_SIZES = "sizes that depend on values on the device are made up: as large as they can be, where that is known"
_MOST_QUESTIONS = 10_000


class DryDevice:
    """The pretended device, as the watch sees it."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.gpu = Pretended(log)
        self._pinned: dict[int, Any] = {}  # storage -> what tells of its end
        self._registered: list[tuple[int, int]] = []  # ranges of addresses given to cudaHostRegister
        self._made_up: dict[int, Any] = {}
        self._questions: dict[str, int] = {}  # line -> how often it asked for yes or no
        self.casts = False  # whether torch.autocast was met

    def holds(self, tensor: torch.Tensor) -> bool:
        """Tell whether a tensor lies on the device."""
        return is_meta(tensor)

    def stream(self, index: int) -> int:
        """Give the log's number of the current stream; of what backward runs, that of the forward operation."""
        return self.gpu.current.number

    def number_of(self, stream: Any) -> int:
        """Give the log's number of a stream."""
        return stream.number

    def pinned(self, tensor: torch.Tensor) -> bool:
        """Tell whether a tensor lies in pinned host memory."""
        if is_meta(tensor):
            return False
        return tensor.untyped_storage()._cdata in self._pinned or not self.guarded(tensor)

    def guarded(self, tensor: torch.Tensor) -> bool:
        """Tell whether it is not memory that the program pinned itself."""
        if not self._registered:
            return True
        at = tensor.untyped_storage().data_ptr()
        return not any(low <= at < high for low, high in self._registered)

    def fallback(self) -> Stack:
        """There is always a stack: backward runs in the thread that calls it."""
        return ()

    def pin(self, tensor: torch.Tensor) -> torch.Tensor:
        """Say that a tensor lies in pinned memory."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        self._pinned[key] = weakref.ref(storage, lambda _: self._pinned.pop(key, None))
        return tensor

    def register(self, address: int, size: int) -> None:
        """``cudaHostRegister``."""
        self._registered.append((int(address), int(address) + int(size)))

    def unregister(self, address: int) -> None:
        """``cudaHostUnregister``."""
        self._registered = [some for some in self._registered if some[0] != int(address)]

    def is_made_up(self, tensor: Any) -> bool:
        """Tell whether a tensor's values are made up."""
        return isinstance(tensor, torch.Tensor) and (
            is_meta(tensor) or tensor.untyped_storage()._cdata in self._made_up
        )

    def make_up(self, tensor: torch.Tensor) -> torch.Tensor:
        """Say that a tensor's values are made up."""
        self.log.note(_MADE_UP, where())
        storage = tensor.untyped_storage()
        key = storage._cdata
        self._made_up[key] = weakref.ref(storage, lambda _: self._made_up.pop(key, None))
        return tensor

    def noted_casts(self) -> None:
        """Note that the program asks for casts that are not made."""
        self.casts = True
        self.log.note(_CASTS, where())

    # ------------------------------------------------------------------------------------------------ one operation

    def run(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Do an operation: on the CPU for real, on the device as far as shapes go."""
        if "device" in kwargs and kwargs["device"] is not None:
            kwargs = kwargs | {"device": as_meta(kwargs["device"])}
        pin = kwargs.get("pin_memory") is True
        if pin:
            kwargs = {key: value for key, value in kwargs.items() if key != "pin_memory"}
        inside.depth += 1
        try:
            result = self._run(func, args, kwargs)
        finally:
            inside.depth -= 1
        return self.pin(result) if pin else result

    def _run(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        name = func._schema.name
        if name == "aten::_to_copy":
            return self._to_copy(func, args, kwargs)
        if name == "aten::copy_":
            return self._copy(func, args, kwargs)
        if not any_meta(args) and not any_meta(kwargs.values()):
            return func(*args, **kwargs)
        if name == "aten::record_stream":
            return None
        if name == "aten::_local_scalar_dense":
            self.log.note(_MADE_UP, place := where())
            if args[0].dtype is torch.bool:
                self._asked(place)
            return torch.zeros((), dtype=args[0].dtype, device="cpu").item()
        if name == "aten::equal":
            self.log.note(_MADE_UP, where())
            return True
        if (guess := SIZED.get(name)) is not None:
            self.log.note(_SIZES, where())
            return guess(*args, **kwargs)
        if (product := PRODUCTS.get(name)) is not None and _is_mixed(args[-2:]):
            return product(*args, **kwargs)
        if name == "aten::index" or name.startswith("aten::index_put"):
            args = (args[0], self._chosen(args[1], args[2] if name != "aten::index" else None), *args[2:])
        if "generator" in kwargs:
            kwargs = kwargs | {"generator": None}
        try:
            return func(*to_meta(args), **{key: to_meta(value) for key, value in kwargs.items()})
        except NotImplementedError as problem:
            return self._without_meta(func, args, problem)
        except RuntimeError as problem:
            # An operator of the program's own has no rule for shapes, or a library's has one that knows no values.
            told = "fake impl" in str(problem) or "data-dependent shape" in str(problem)
            if told or any(_is_unusual(value) for value in args) or name.startswith("aten::index"):
                raise _not_followed(func, problem) from problem
            if any(isinstance(value, torch.Tensor) and not is_meta(value) for value in args):
                return func(*args, **kwargs)  # one that wants it on the CPU: the lengths of what is packed
            raise

    def _asked(self, place: str) -> None:
        """Stop a program that waits for the device to say yes: here it says no each time."""
        self._questions[place] = self._questions.get(place, 0) + 1
        if self._questions[place] > _MOST_QUESTIONS:
            raise NotFollowedError(
                f"At {place} the program has asked the device {_MOST_QUESTIONS:,} times whether something is so. In a "
                "dry run the answer is no each time: what waits for a yes does not come to its end."
            )

    def _chosen(self, indices: Sequence[Any], value: torch.Tensor | None) -> list[Any]:
        """Give numbers in the place of masks: of one on the device as many as there are values to put, if not all."""
        chosen: list[Any] = []
        for index in indices:
            if index is None or index.dtype not in (torch.bool, torch.uint8):
                chosen.append(index)
                continue
            if not self.is_made_up(index):
                chosen += index.nonzero().unbind(1)
                continue
            count = index.numel()
            if value is None:
                self.log.note(_SIZES, where())
            elif len(indices) == 1 and value.dim() and value.size(0) > 1:
                count = value.size(0)
            chosen += [torch.empty(count, dtype=torch.int64, device=META)] * index.dim()
        return chosen

    def _without_meta(self, func: Any, args: Sequence[Any], problem: Exception) -> Any:
        """Do an operation that has no rule for shapes, where it only writes what it was given."""
        returns = func._schema.returns
        if all(r.alias_info is not None and r.alias_info.is_write for r in returns):
            return None if not returns else args[0]
        raise _not_followed(func, problem) from problem

    def _to_copy(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> torch.Tensor:
        source, device = args[0], kwargs.get("device")
        to_device = is_meta(source) if device is None else torch.device(device).type == "meta"
        if not is_meta(source) or to_device:
            try:
                return func(*args, **kwargs)
            except NotImplementedError as problem:
                raise _not_followed(func, problem) from problem
        dtype = kwargs.get("dtype") or source.dtype
        made = self.make_up(torch.empty_like(source, dtype=dtype, device="cpu").zero_())
        return self.pin(made) if kwargs.get("non_blocking") else made

    def _copy(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> torch.Tensor:
        target, source = args[0], args[1]
        if is_meta(target):
            return func(target, to_meta(source)) if is_meta(source) or target.shape != source.shape else target
        return self.make_up(target.zero_()) if is_meta(source) else func(*args, **kwargs)

    @contextmanager
    def backward(self) -> Iterator[None]:
        """Run what is inside as backward does: each node on the stream of its forward operation."""
        if self.gpu.follow is not None:
            yield
            return
        gpu, backward = self.gpu, _Backward(self.gpu)
        gpu.follow = lambda: backward.follow(gpu)
        try:
            yield
        finally:
            gpu.follow = None
            gpu.set_quietly(backward.caller)
            for stream in backward.used:
                self.log.join(stream.number, gpu.current.number)


def _is_unusual(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and (value.layout is not torch.strided or value.is_nested)


def _is_mixed(factors: Sequence[torch.Tensor]) -> bool:
    """Tell whether one of these is dense and the other is not."""
    return len({factor.layout is torch.strided for factor in factors}) == 2


def _not_followed(func: Any, problem: Exception) -> NotFollowedError:
    said = str(problem).splitlines()[0].split(". ")[0].rstrip(".")
    return NotFollowedError(f"A dry run cannot follow {func} at {where()}: {said}.")


class _Backward:
    """The streams of one backward: PyTorch lets each node wait for those that feed it, and the caller for all."""

    def __init__(self, gpu: Pretended) -> None:
        self.caller = gpu.current
        self.used = [gpu.current]
        self._node: Any = None

    def follow(self, gpu: Pretended) -> None:
        """Make the stream of the node that is being run the current one."""
        node = torch._C._current_autograd_node()
        if node is None or node is self._node:
            return
        self._node = node  # before all that asks for the current stream, which asks for this
        stream = metadata_of(node).get(STREAM) or gpu.default
        if stream != gpu.current or stream not in self.used:
            for other in self.used:
                gpu.log.join(other.number, stream.number)
            if stream not in self.used:
                self.used.append(stream)
        gpu.set_quietly(stream)


def metadata_of(node: Any) -> dict[str, Any]:
    """Give what a node of the autograd graph keeps for others."""
    return node.metadata
