"""``gapless bench``: measure this machine as a profile of the model, and run the pipeline beside what people use today.

All contenders of a comparison run in the same process over the same data, in turns, and their results are checked.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from gapless.model.errors import GaplessError
from gapless.model.kinds import OpKind
from gapless.model.machine import Machine

from . import peers
from .calibrate import Bench, Costs, costs_of, measure, ran_out
from .devices import Device, HostArray, open_device
from .kernels import cuda_kernel
from .pipeline import Pipeline
from .tune import Plan

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
CURVE = (4, 4 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB)
LARGEST = 64 * MIB
DUPLEX = (64 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB)

AXPB = cuda_kernel(
    "__global__ void axpb(const float* x, float* y, size_t n) {"
    " size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; if (i < n) y[i] = 2.0f * x[i] + 1.0f; }",
    "axpb",
)

# A kernel that fills the GPU for a given time, whatever it computes: its blocks wait for the clock.
TIMED = """
__global__ void timed(const float* x, float* y, size_t n, long long ns) {
  long long begun, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begun));
  size_t step = (size_t)gridDim.x * blockDim.x;
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += step) y[i] = 2.0f * x[i] + 1.0f;
  do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); } while (now - begun < ns);
}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineReport:
    """What copies and calls cost here, and the same as a profile (``Machine``) that the model takes."""

    device: str
    costs: Costs
    machine: Machine

    def __str__(self) -> str:
        c = self.costs
        h2d, d2h = c.both_rates(c.both[-1][0])
        copied = ", ".join(f"{threads}: {rate:.1f}" for threads, rate in c.host_copy)
        kind = "threads" if c.pools else "threads of Python (no C compiler was there for better ones)"
        pinning = "cannot be done" if c.register == float("inf") else f"{1 / c.register:.1f} GB/s with undoing it"
        return "\n".join((
            self.device,
            f"  H2D alone            {c.h2d_rate:8.2f} GB/s, {c.h2d_latency / 1e3:.1f} us a copy",
            f"  D2H alone            {c.d2h_rate:8.2f} GB/s, {c.d2h_latency / 1e3:.1f} us a copy",
            f"  both ways at once    {h2d:8.2f} and {d2h:.2f} GB/s",
            f"  pageable, by driver  {_rate(self.machine.pageable_h2d_curve)} in, "
            f"{_rate(self.machine.pageable_d2h_curve)} out",
            f"  staging, GB/s by {kind}: {copied}",
            f"  pinning in place: {pinning}",
            f"  the host's time for a chunk: {c.direct / 1e3:.1f} us; staged {c.staged / 1e3:.1f} us",
        ))  # fmt: skip

    def to_json(self) -> str:
        """Give the profile as the JSON file that ``--machine`` and ``Machine.load`` take."""
        return self.machine.to_json()


@dataclass(slots=True)
class Case:
    """One comparison: seconds of each contender, run by run, and what is to be said about them."""

    name: str
    bytes_each_way: int
    seconds: dict[str, list[float]] = field(default_factory=dict[str, "list[float]"])
    limit: float | None = None  # seconds
    notes: list[str] = field(default_factory=list[str])

    def median(self, name: str) -> float:
        """Give a contender's median in seconds."""
        return float(median(self.seconds[name]))

    def __str__(self) -> str:
        lines = [self.name]
        best = min((self.median(name) for name in self.seconds if not name.startswith("gapless")), default=None)
        for name, runs in sorted(self.seconds.items(), key=lambda entry: median(entry[1])):
            time = self.median(name)
            percent = f"{100 * self.limit / time:6.1f}% of limit" if self.limit else ""
            gain = f"  {best / time:.2f}x the fastest other" if best and name.startswith("gapless") else ""
            spread = f"[{min(runs) * 1e3:.4g} to {max(runs) * 1e3:.4g}]"
            lines.append(f"  {name:<34} {time * 1e3:9.2f} ms {spread:<20} {percent}{gain}")
        return "\n".join((*lines, *(f"  {note}" for note in self.notes)))

    def to_dict(self) -> dict[str, Any]:
        """Give it as plain values."""
        medians = {name: self.median(name) for name in self.seconds}
        return {"name": self.name, "bytes_each_way": self.bytes_each_way, "median_s": medians, "runs_s": self.seconds,
                "limit_s": self.limit, "notes": self.notes}  # fmt: skip


def bench(device: str | Device | None = None) -> MachineReport:
    """Measure this machine: copies by size and direction, both ways at once, pageable, staged, pinned; calls."""
    there = open_device(device)
    if not there.stages:
        raise GaplessError("There is no GPU to measure: gapless bench measures the link between host and GPU.")
    try:
        costs = measure(there, largest=LARGEST)
        tools = Bench(there, LARGEST)
    except Exception as problem:
        if not ran_out(problem):
            raise
        raise GaplessError(
            f"Memory ran out: gapless bench takes up to {4 * LARGEST >> 20} MiB of the GPU's, and {20 * LARGEST >> 20} "
            "MiB of the host's. End what else uses them."
        ) from problem
    curves: dict[str, Any] = {
        "h2d_curve": [[size, tools.copy(OpKind.H2D, size, count=9)] for size in CURVE],
        "d2h_curve": [[size, tools.copy(OpKind.D2H, size, count=9)] for size in CURVE],
        "pageable_h2d_curve": [[size, tools.copy(OpKind.H2D, size, host=tools.pageable)] for size in CURVE],
        "pageable_d2h_curve": [[size, tools.copy(OpKind.D2H, size, host=tools.pageable)] for size in CURVE],
    }
    duplex = []
    for size in DUPLEX:
        both = tools.both(size)
        alone = [size / _on(curves[name], size) for name in ("h2d_curve", "d2h_curve")]
        duplex.append([size, *(round(min(rate / base, 1.0), 3) for rate, base in zip(both, alone, strict=True))])
    machine = Machine(
        name="".join(letter.lower() if letter.isalnum() else "-" for letter in there.name),
        h2d_curve=_points(curves["h2d_curve"]),
        d2h_curve=_points(curves["d2h_curve"]),
        pageable_h2d_curve=_points(curves["pageable_h2d_curve"]),
        pageable_d2h_curve=_points(curves["pageable_d2h_curve"]),
        duplex_curve=tuple(tuple(row) for row in duplex),
        call_costs={"copy_async": round(costs.call / 3), "record": round(costs.call / 9)},
    )
    return MachineReport(device=there.name, costs=costs, machine=machine)


CASES = ("out", "fresh", "pinned", "loops", "items")


def bench_pipeline(
    device: str | Device | None = None, *, size: int = 2 * GIB, runs: int = 5, cases: Sequence[str] = CASES
) -> Iterator[Case]:
    """Run the pipeline beside CuPy, PyTorch, JAX and loops by hand, and give each comparison when it is done.

    *size* is the bytes each way of the large array, *cases* which of ``CASES`` are run.

    Raises GaplessError where there is no GPU, or a contender's result is wrong.
    """
    there = open_device(device)
    if not there.stages:
        raise GaplessError("There is no GPU: gapless bench pipeline compares ways of using one.")
    x = np.random.default_rng(1).random(size // 4, dtype=np.float32)
    right = 2 * x + 1
    pinned, pinned_out = (there.pinned(size).view(np.float32) for _ in range(2))
    pinned[:] = x
    limit = link_limit(there, pinned, pinned_out)
    if "out" in cases:
        yield pageable(there, x, right, limit, runs, fresh=False)
    if "fresh" in cases:
        yield pageable(there, x, right, limit, runs, fresh=True)
    if "pinned" in cases:
        yield straight(there, pinned, pinned_out, right, limit, runs)
    for loop in LOOPS if "loops" in cases else ():
        yield chunk_loop(there, pinned, pinned_out, right, *loop, runs)
    if "items" in cases:
        yield small_items(there, x, right, runs)


def link_limit(
    device: Device, source: HostArray, target: HostArray, *, runs: int = 5, size: int | None = None
) -> float:
    """Give the seconds of wall time for all bytes each way, issued at once from independent pinned buffers."""
    size = source.nbytes if size is None else size
    to, fro = (device.memory(size).array(0, (size,), np.dtype(np.uint8)) for _ in range(2))
    one, other, events = device.stream(), device.stream(), [device.event(), device.event()]
    there, back = source.view(np.uint8)[:size], target.view(np.uint8)[:size]
    times: list[float] = []
    for _ in range(runs + 1):
        start = perf_counter()
        one.submit(OpKind.H2D, lambda: one.h2d(to, there), events[0], size)
        other.submit(OpKind.D2H, lambda: other.d2h(back, fro), events[1], size)
        for event in events:
            event.wait()
        times.append(perf_counter() - start)
    return float(median(times[1:]))


def pageable(device: Device, x: HostArray, right: HostArray, limit: float, runs: int, *, fresh: bool) -> Case:
    """From NumPy to NumPy: into an array that is there, or a fresh one.

    A fresh result of the pipeline lies in memory of one that was dropped, where there is such; so it runs a second time
    with its last three results kept, which leaves new pages only, as the others have.
    """
    case = Case(f"{_size(x.nbytes)} float32, NumPy to NumPy, {'fresh result' if fresh else 'out='}", x.nbytes)
    case.limit = limit
    out = None if fresh else np.zeros_like(right)
    function = Pipeline(lambda a: 2 * a + 1, device=device, arrays="cupy") if _has("cupy") else None
    with Pipeline(AXPB, device=device) as pipe:
        ways: dict[str, Callable[[], HostArray]] = {"gapless, CUDA C++ kernel": lambda: pipe(x, out=out)}
        if function is not None:
            ways["gapless, CuPy function"] = lambda: function(x, out=out)
        kept: deque[HostArray] = deque(maxlen=3)
        keeping = Pipeline(AXPB, device=device)
        if fresh:
            ways["gapless, results kept"] = lambda: kept.append(keeping(x)) or kept[-1]
        for name, run in peers.contenders().items():
            ways[name] = lambda run=run: run(x, out)
        _race(case, ways, right, runs, out)
        pipe(x, out=out)
        case.notes += [_planned(pipe.plan()), pipe.report().binding]
    keeping.close()
    if function is not None:
        function.close()
    return case


def straight(device: Device, source: HostArray, target: HostArray, right: HostArray, limit: float, runs: int) -> Case:
    """From pinned to pinned memory, beside the loop by hand."""
    case = Case(f"{_size(source.nbytes)} float32, pinned to pinned", source.nbytes)
    costs = costs_of(device)
    with Pipeline(AXPB, device=device) as pipe:
        plan = pipe.plan(source, out=target)
        edge = plan.chunk_bytes / costs.h2d_rate / 1e9 + plan.chunk_bytes / costs.d2h_rate / 1e9
        case.limit = limit + edge
        ways: dict[str, Callable[[], HostArray]] = {"gapless": lambda: pipe(source, out=target)}
        for chunk in sorted({16 * MIB, plan.chunk_bytes}):
            loop = peers.cuda_loop(4, chunk // 4)
            if loop is not None:
                ways[f"CUDA C++, 4 streams, {_size(chunk)}"] = lambda loop=loop: loop(source, target)
        if _has("cupy"):
            by_hand = peers.cupy_loop(4, plan.chunk_bytes // 4)
            ways[f"CuPy, 4 streams, {_size(plan.chunk_bytes)}"] = lambda: by_hand(source, target)
        _race(case, ways, right, runs, target)
        case.notes += [
            f"limit: {limit * 1e3:.2f} ms for the same bytes each way at once, and {edge * 1e3:.2f} ms to fill and "
            "drain one chunk",
            _planned(pipe.plan()),
            pipe.report().binding,
        ]
    return case


# Name, chunks, bytes of a chunk, kernel time as a multiple of the time of one chunk's H2D copy alone.
LOOPS = (("balanced", 64, 16 * MIB, 1.0), ("copy-heavy", 64, 16 * MIB, 0.2), ("kernel-heavy", 64, 16 * MIB, 3.0))


def chunk_loop(device: Device, source: HostArray, target: HostArray, right: HostArray, name: str, chunks: int,
               chunk: int, share: float, runs: int) -> Case:  # fmt: skip
    """Run a loop of chunks with a kernel of known length, beside the model's bound."""
    costs = costs_of(device)
    alone_in, alone_out = chunk / costs.h2d_rate, chunk / costs.d2h_rate  # ns
    kernel_ns = share * alone_in
    size = chunks * chunk
    case = Case(f"{name}: {chunks} chunks of {_size(chunk)}, kernel {kernel_ns / 1e3:.0f} us", size)
    h2d, d2h = costs.both_rates(chunk)
    # Section 10: one chunk through all stages, and the longest stage for each of the others.
    longest = max(chunk / h2d, kernel_ns, chunk / d2h)
    case.limit = (alone_in + kernel_ns + alone_out + (chunks - 1) * longest) / 1e9
    part, back, count = source[: size // 4], target[: size // 4], size // 4
    with Pipeline(AXPB, device=device, launch=_timed(device, kernel_ns), chunk=chunk) as pipe:
        _race(case, {"gapless": lambda: pipe(part, out=back)}, right[:count], runs, back)
    return case


def small_items(device: Device, x: HostArray, right: HostArray, runs: int, *, item: int = 64 * KIB) -> Case:
    """Run items of 64 KiB through a stream, beside the plain loop."""
    count = min(x.nbytes, GIB) // item
    items = list(x[: count * item // 4].reshape(count, item // 4))
    case = Case(f"{count} items of {_size(item)}", count * item)
    costs = costs_of(device)
    case.limit = costs.limit_ns(case.bytes_each_way, case.bytes_each_way) / 1e9
    rows = device.pinned(case.bytes_each_way).view(np.float32).reshape(count, item // 4)
    back = device.pinned(case.bytes_each_way).view(np.float32)
    rows[:] = items
    with ExitStack() as stack:
        # Each way has a pipeline of its own: what one keeps of its last run is not another's to clear up.
        listed, table, single = (stack.enter_context(Pipeline(AXPB, device=device)) for _ in range(3))
        streams: dict[str, Callable[[], Iterator[HostArray]]] = {
            "gapless, packed": lambda: listed.stream(items, pack=True),
            "gapless, rows of a pinned array, packed": lambda: table.stream(rows, pack=True),
            "gapless, one by one": lambda: single.stream(items),
        }
        ways: dict[str, Callable[[], Any]] = {}
        for name, stream in streams.items():
            for got, wanted in zip(stream(), right.reshape(-1, item // 4), strict=False):
                if not np.array_equal(got, wanted):
                    raise GaplessError(f"{name} gave a wrong result for a small item.")
            ways[name] = lambda stream=stream: sum(1 for _ in stream())
        loop = peers.cupy_items()
        if loop is not None:
            ways["CuPy, item by item"] = lambda: loop(items)
        for chunk in (item, 8 * MIB):
            by_hand = peers.cuda_loop(4, chunk // 4)
            if by_hand is not None:
                name = f"CUDA C++, 4 streams, pinned, {_size(chunk)} at a time"
                ways[name] = lambda by_hand=by_hand: by_hand(rows.reshape(-1), back)
        _race(case, ways, None, max(runs // 2, 3))
        for name in case.seconds:
            case.notes.append(f"{name}: {count / case.median(name):.0f} items/s")
    return case


def _timed(device: Any, kernel_ns: float) -> Callable[..., None]:
    """Give what launches a kernel that fills the GPU for a time."""
    from cuda.core import LaunchConfig, launch  # pyright: ignore[reportMissingImports]

    from .devices.frameworks import compiled

    kernel = compiled(device, cuda_kernel(TIMED, "timed"))
    grid = int(device.core.properties.multiprocessor_count) * 2

    def start(stream: Any, inputs: Any, outputs: Any, rows: int) -> None:
        config = LaunchConfig(grid=grid, block=1024)
        count, length = np.uint64(rows), np.int64(kernel_ns)
        launch(stream, config, kernel, inputs[0].pointer, outputs[0].pointer, count, length)

    return start


def _race(
    case: Case, ways: dict[str, Callable[[], Any]], right: HostArray | None, runs: int, out: HostArray | None = None
) -> None:
    """Run all contenders in turns: twice to warm up and check, then *runs* times."""
    for name, run in ways.items():
        run()
        if out is not None:
            out.fill(-1)  # what another contender left there is no result
        got = run()
        if right is not None and not np.array_equal(got, right):
            raise GaplessError(f"{name} gave a wrong result in {case.name!r}.")
        del got
        case.seconds[name] = []
    turn, order = list(ways.items()), random.Random(0)
    for _ in range(runs):
        order.shuffle(turn)  # what one leaves to the system to clear up is not always the same one's burden
        for name, run in turn:
            start = perf_counter()
            result = run()
            case.seconds[name].append(perf_counter() - start)
            del result


def _points(curve: list[list[float]]) -> tuple[tuple[float, ...], ...]:
    return tuple((int(size), round(time)) for size, time in curve)


def _planned(plan: Plan) -> str:
    return f"plan: {str(plan).splitlines()[0]}"


def _has(package: str) -> bool:
    from importlib.util import find_spec

    return find_spec(package) is not None


def _on(curve: list[list[float]], size: int) -> float:
    return float(np.interp(size, [point[0] for point in curve], [point[1] for point in curve]))


def _rate(curve: Any) -> str:
    return f"{curve[-1][0] / curve[-1][1]:.2f} GB/s" if curve else "not measured"


def _size(count: int) -> str:
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if count >= unit:
            return f"{count / unit:.3g} {name}"
    return f"{count} B"
