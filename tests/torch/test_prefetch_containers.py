"""Batches and results in containers of all classes: carried over whole, or refused; the loader's stay as they are."""

from __future__ import annotations

import warnings
from collections import ChainMap, Counter, OrderedDict, UserDict, UserList, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import InitVar, dataclass, field
from types import MappingProxyType
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")

import gapless.torch as gt  # noqa: E402
from gapless.model.errors import GaplessError  # noqa: E402
from gapless.torch.batches import map_tensors, tensors_in  # noqa: E402
from gapless.torch.prefetching import Prefetcher  # noqa: E402
from gapless.torch.results import HostResults  # noqa: E402
from simulated_gpu import Simulated  # noqa: E402


class Rows(list):
    """A list with a constructor of its own, and an attribute."""

    def __init__(self, first: Any, *, mask: Any) -> None:
        super().__init__([first, "text"])
        self.mask, self.name = mask, "rows"


class Columns(tuple):
    def __new__(cls, first: Any) -> Columns:
        made = super().__new__(cls, (first, 7))
        made.mask = first + 1
        return made


class Doubled(namedtuple("Doubled", "x y")):
    def __new__(cls, x: Any) -> Doubled:
        return super().__new__(cls, x, x + 1)


Plain = namedtuple("Plain", "x y")


class Queue(deque):
    pass


class Bag(frozenset):
    pass


class Open(dict):
    """Its attributes are its items."""

    def __init__(self, **items: Any) -> None:
        super().__init__(**items)
        self.__dict__ = self


@dataclass
class Scaled:
    x: Any
    by: InitVar[float]
    total: Any = field(init=False)

    def __post_init__(self, by: float) -> None:
        self.total = self.x * by
        self.further = self.x + by


@dataclass(frozen=True, slots=True)
class Frozen:
    x: Any
    name: str = "frozen"


@dataclass
class Outputs(OrderedDict):
    """As models give them: fields that are items too."""

    x: Any = None
    y: Any = None

    def __post_init__(self) -> None:
        for name in ("x", "y"):
            if getattr(self, name) is not None:
                self[name] = getattr(self, name)

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        super().__setattr__(key, value)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self:
            super().__setitem__(name, value)
        super().__setattr__(name, value)


class Shared(MutableMapping):
    """Its shallow copies hold what it holds."""

    def __init__(self, items: dict[str, Any]) -> None:
        self.items_ = items

    def __getitem__(self, key: str) -> Any:
        return self.items_[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.items_[key] = value

    def __delitem__(self, key: str) -> None:
        del self.items_[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.items_)

    def __len__(self) -> int:
        return len(self.items_)


class Whole(Shared):
    """Its copies are whole."""

    def __copy__(self) -> Whole:
        return Whole(dict(self.items_))


class Rounding(Whole):
    """Does not hold what is put into it."""

    def __copy__(self) -> Rounding:
        return Rounding(dict(self.items_))

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value * 1)


class Fixed(Mapping):
    def __init__(self, items: dict[str, Any]) -> None:
        self._items = items

    def __getitem__(self, key: str) -> Any:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)


class Single(list):
    def __copy__(self) -> Single:
        return self


CONTAINERS: dict[str, Callable[[Any], Any]] = {
    "a list of its own class": lambda x: Rows(x, mask=x + 1),
    "a tuple of its own class": Columns,
    "a named tuple with a constructor": Doubled,
    "a plain named tuple": lambda x: Plain(x, (1, x + 1)),
    "what torch.max gives": lambda x: x.view(2, 4).max(0),
    "a deque": lambda x: deque([x, x + 1], maxlen=2),
    "a deque of its own class": lambda x: Queue([x]),
    "a set": lambda x: {x},
    "a frozenset of its own class": lambda x: Bag([x, 3]),
    "a mapping proxy": lambda x: MappingProxyType({"x": [x, x + 1]}),
    "a proxy of a defaultdict": lambda x: MappingProxyType(defaultdict(int, x=x)),
    "an OrderedDict": lambda x: OrderedDict(b=x, a=x + 1),
    "a UserDict": lambda x: UserDict(x=x),
    "a UserList": lambda x: UserList([x, 1]),
    "a ChainMap": lambda x: ChainMap({"x": x}, {"x": x + 1, "y": x + 2}),
    "a mapping that copies": lambda x: Whole({"x": x, "n": 1}),
    "attributes that are items": lambda x: Open(x=x, n=1),
    "a dataclass with an InitVar": lambda x: Scaled(x, 2.0),
    "a frozen dataclass with slots": Frozen,
    "a dataclass that is a dict": lambda x: Outputs(x, x + 1),
    "one in another": lambda x: Rows(MappingProxyType({"x": Frozen((x,))}), mask=None),
}


def plain(value: Any) -> Any:
    """Give what a container is and holds, in lists."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    own = {name: plain(one) for name, one in vars(value).items()} if vars_of(value) else None
    slots = {name: plain(getattr(value, name)) for name in getattr(type(value), "__slots__", ()) if name[:1] != "_"}
    if isinstance(value, Mapping):
        return type(value), [(key, plain(one)) for key, one in value.items()], own
    if isinstance(value, list | tuple | set | frozenset | deque | UserList):
        items = [plain(one) for one in value]
        return type(value), items if not isinstance(value, set | frozenset) else sorted(items, key=str), own
    return (type(value), own, slots) if own or slots else value


def vars_of(value: Any) -> bool:
    return bool(getattr(value, "__dict__", {})) and vars(value) is not value and not isinstance(value, type)


@pytest.mark.parametrize("kind", CONTAINERS, ids=str)
def test_containers_are_carried_over_whole(kind: str) -> None:
    for seed in range(6):
        gpu = Simulated(seed)
        own = [CONTAINERS[kind](torch.arange(8.0) + i) for i in range(6)]
        before = [plain(batch) for batch in own]
        got = []
        for batch in Prefetcher(own, gpu, 2, None):
            assert [gpu.holds(tensor) for tensor in tensors_in(batch)].count(False) == 0
            got.append(batch)
        gpu.finish()
        assert [plain(batch) for batch in got] == before
        assert not any(gpu.holds(tensor) for batch in own for tensor in tensors_in(batch))
        assert [plain(batch) for batch in own] == before


@pytest.mark.parametrize("kind", CONTAINERS, ids=str)
def test_containers_come_back_whole(kind: str) -> None:
    gpu = Simulated(2)
    before = [plain(CONTAINERS[kind](torch.arange(8.0) + i)) for i in range(6)]

    def made_there(x: Any) -> Any:
        there = gpu.allocate(x.numel() * x.element_size()).view(x.dtype).view(x.shape)
        there.copy_(x)
        return there

    results = [map_tensors(CONTAINERS[kind](torch.arange(8.0) + i), made_there) for i in range(6)]
    got = list(HostResults(results, gpu, 2))
    assert not any(gpu.holds(tensor) for result in got for tensor in tensors_in(result))
    assert [plain(result) for result in got] == before


def test_what_a_container_holds_twice_is_one_tensor() -> None:
    gpu, x = Simulated(1), torch.ones(8)
    outputs, opened = Outputs(x, x + 1), Open(x=x)
    first, second = Prefetcher([outputs, opened], gpu, 2, None)
    assert first.x is first["x"]
    assert first.y is first["y"]
    assert second.x is second["x"]
    second.z = 3
    assert second["z"] == 3


def test_no_constructor_sees_tensors_before_their_copies_are_done() -> None:
    made = []

    @dataclass
    class Counting:
        x: Any

        def __post_init__(self) -> None:
            made.append(self)

    batches = [Counting(torch.ones(2)) for _ in range(4)]
    assert len(list(Prefetcher(batches, Simulated(1), 2, None))) == 4
    assert len(made) == 4


@pytest.mark.parametrize(
    ("make", "why"),
    [(lambda x: Shared({"a": 1, "x": x}), "a copy of it shares what it holds"),
     (lambda x: Rounding({"x": x}), "it does not hold what is put into it"),
     (lambda x: Fixed({"x": x}), "nothing can be put into it"),
     (lambda x: MappingProxyType(Fixed({"x": x})), "no attribute 'copy'"),
     (lambda x: Single([x]), "a copy of it is no other one")],
    ids=["shared", "rounding", "fixed", "a proxy of that", "single"],
)  # fmt: skip
def test_containers_of_which_there_can_be_no_other_are_refused(make: Callable[[Any], Any], why: str) -> None:
    gpu, x = Simulated(1), torch.ones(8)
    own = make(x)
    batches = iter(Prefetcher([torch.ones(8), {"in": own}], gpu, 2, None))
    next(batches)
    with pytest.raises(
        GaplessError, match=f"tensors in a {type(own).__name__} cannot be replaced by their copies .*{why}"
    ):
        next(batches)
    there = gpu.allocate(32).view(torch.float32)
    with pytest.raises(GaplessError, match="cannot be replaced by their copies"):
        list(HostResults([make(there)], gpu, 2))
    assert [id(one) for one in tensors_in(own)] == [id(x)]


def test_what_holds_no_tensor_to_carry_is_given_as_it_is() -> None:
    gpu = Simulated(1)
    there = gpu.allocate(32).view(torch.float32)
    own = [Fixed({"a": ["x"]}), MappingProxyType(Fixed({})), Shared({"x": there}), Single([1, [2]]), Counter("aab"),
           {"a", "b"}, Frozen(1), Rows(1, mask=None), range(3), "text", Outputs]  # fmt: skip
    assert [id(one) for one in Prefetcher(own, gpu, 2, None)] == [id(one) for one in own]
    held = Fixed({"x": torch.ones(2)})
    assert list(HostResults([held], gpu, 2)) == [held]  # on the host already


def loops() -> Iterator[Any]:
    a: list[Any] = [torch.ones(2)]
    a.append(a)
    b: dict[str, Any] = {"x": torch.ones(2)}
    b["b"] = (b,)
    c = Frozen([])
    c.x.append(c)
    yield from (a, b, c)


def test_what_holds_itself_is_refused() -> None:
    for batch in loops():
        with pytest.raises(GaplessError, match="holds itself, or is nested deeper"):
            list(Prefetcher([batch], Simulated(1), 2, None))
        with pytest.raises(GaplessError, match="holds itself, or is nested deeper"):
            list(HostResults([batch], Simulated(1), 2))


def odd_tensors() -> list[tuple[str, Any]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parts = [torch.ones(2), torch.ones(3)]
        return [("nested", torch.nested.nested_tensor(parts)),
                ("nested", torch.nested.nested_tensor(parts, layout=torch.jagged)),
                ("quantized", torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8))]  # fmt: skip


def test_tensors_that_are_not_carried_are_named() -> None:
    for kind, tensor in odd_tensors():
        with gt.check(dry=True):
            batches = iter(gt.prefetch([torch.ones(4), [torch.ones(4)], [tensor]]))
            assert [next(batches).shape, next(batches)[0].shape] == [(4,), (4,)]
            with pytest.raises(GaplessError, match=f"prefetch does not carry {kind} tensors"):
                next(batches)
        if tensor.layout is torch.jagged:  # of a transform, say: what it consists of is not lost sight of
            assert [part.tolist() for part in tensors_in([tensor])] == [[1.0] * 5, [0, 2, 5]]


def test_results_that_are_not_carried_are_refused() -> None:
    gpu = Simulated(1)
    for tensor in (odd_tensors()[0][1], odd_tensors()[2][1]):
        gpu._device[tensor.untyped_storage().data_ptr()] = "consumer"
        for result in (tensor, [tensor], deque([tensor])):
            with pytest.raises(GaplessError, match="this result holds others"):
                list(HostResults([result], gpu, 2))


def test_all_tensors_that_an_object_holds_are_seen() -> None:
    class Base:
        __slots__ = "one"

    class Slotted(Base):
        __slots__ = ("__two", "never")

        def __init__(self, one: Any, two: Any) -> None:
            self.one, self.__two = one, two

    x, y, z = torch.ones(1), torch.ones(1), torch.ones(1)
    assert {id(t) for t in tensors_in(Slotted(x, deque([y, frozenset([z])])))} == {id(x), id(y), id(z)}
    assert len(list(tensors_in(Rows(x, mask=y)))) == 2
