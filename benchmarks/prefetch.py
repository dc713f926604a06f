"""Loops over batches, with the data brought to the GPU in several ways: ``python benchmarks/prefetch.py``, on a GPU.

For every loop the time a step and the 95th percentile of single steps (medians of several runs), and how close
``gapless.torch.prefetch`` comes to the best that a loop written by hand for it reaches. Prints JSON, one loop a line.

``recorded_training``, ``recorded_inference`` and ``recorded_results`` are the loops whose timelines the tests replay
(``training``, ``pageable_inference``, ``cpu_results``), with as many steps as were recorded: starting and ending count.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import random
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import torch
from torch import nn

import gapless.torch as gt

RUNS = {"training": 21, "resnet": 4, "recorded_training": 5}  # of a loop; others: 15
Run = tuple[float, float]  # ms a step, 95th percentile
Way = Callable[[Iterable[Any]], Iterable[Any]]


# ----------------------------------------------------------------------------- ways to bring batches to the GPU


def plain(loader: Iterable[Any]) -> Iterator[Any]:
    """``.to(device)``: the host waits for each copy."""
    for batch in loader:
        yield [x.to("cuda") for x in batch]


def non_blocking(loader: Iterable[Any]) -> Iterator[Any]:
    """``.to(device, non_blocking=True)``, on the stream of the kernels."""
    for batch in loader:
        yield [x.to("cuda", non_blocking=True) for x in batch]


def one_ahead(loader: Iterable[Any]) -> Iterator[Any]:
    """The prefetcher of many training scripts: one batch ahead on a side stream, ``record_stream`` when it is used."""
    side, ahead = torch.cuda.Stream(), None
    for batch in loader:
        with torch.cuda.stream(side):
            nxt = [x.to("cuda", non_blocking=True) for x in batch]
        if ahead is not None:
            yield ahead
        torch.cuda.current_stream().wait_stream(side)
        for x in nxt:
            x.record_stream(torch.cuda.current_stream())
        ahead = nxt
    if ahead is not None:
        yield ahead


def stream_waits(loader: Iterable[Any]) -> Iterator[Any]:
    """Another common one: the side stream waits for the kernels before it copies, so no block is reused too early."""
    side = torch.cuda.Stream()
    source = iter(loader)

    def load() -> Any:
        batch = next(source, None)
        if batch is None:
            return None
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            return [x.to("cuda", non_blocking=True) for x in batch]

    ahead = load()
    while ahead is not None:
        torch.cuda.current_stream().wait_stream(side)
        batch, ahead = ahead, load()
        yield batch


def by_hand(loader: Iterable[Any], slots: int = 4) -> Iterator[Any]:
    """The best by hand: fixed buffers for batches of one shape from pinned memory, two events a slot."""
    side, buffers, events, held = torch.cuda.Stream(), [], [], []
    source = iter(loader)
    ahead: list[int] = []
    at = 0

    def load() -> bool:
        nonlocal at
        batch = next(source, None)
        if batch is None:
            return False
        slot = at % slots
        if len(buffers) <= slot:
            buffers.append([torch.empty_like(x, device="cuda") for x in batch])
            side.wait_stream(torch.cuda.current_stream())  # whose earlier work may still use that memory
            events.append((torch.cuda.Event(), torch.cuda.Event()))
            held.append(batch)
        copied, released = events[slot]
        copied.synchronize()
        held[slot] = batch
        side.wait_event(released)
        with torch.cuda.stream(side):
            for target, x in zip(buffers[slot], batch, strict=True):
                target.copy_(x, non_blocking=True)
        copied.record(side)
        ahead.append(slot)
        at += 1
        return True

    for _ in range(slots - 1):
        load()
    while ahead:
        slot = ahead.pop(0)
        current = torch.cuda.current_stream()
        current.wait_event(events[slot][0])
        yield buffers[slot]
        events[slot][1].record(current)
        load()


REPORTS: list[str] = [""]


def prefetched(loader: Iterable[Any]) -> Iterator[Any]:
    """``gapless.torch.prefetch(loader)``."""
    batches = gt.prefetch(loader)
    yield from batches
    REPORTS.append(batches.report())


WAYS: dict[str, Way] = {
    "plain": plain, "non_blocking": non_blocking, "one ahead, record_stream": one_ahead,
    "one ahead, wait_stream": stream_waits, "by hand": by_hand, "prefetch": prefetched,
}  # fmt: skip


# ------------------------------------------------------------------------------------------------------- the loops


class Slices:
    """Batches cut out of tensors that lie ready, pinned or not."""

    def __init__(self, data: torch.Tensor, batch: int, steps: int) -> None:
        self.batches = [[part] for part in data.split(batch)]
        self.steps = steps

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[Any]:
        return (self.batches[i % len(self.batches)] for i in range(self.steps))


def mlp(width: int, depth: int) -> nn.Module:
    """Linear layers in half precision."""
    layers = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*layers).cuda().half()


def training() -> tuple[Iterable[Any], Iterable[Any], Callable[[Any], Any]]:
    """Train four layers of 4096 on batches of 16 MiB; copies take about as long as the kernels."""
    model = mlp(4096, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    data = torch.randn(8 * 2048, 4096).half()

    def step(batch: Any) -> None:
        loss = model(batch[0]).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    return Slices(data, 2048, 100), Slices(data.pin_memory(), 2048, 100), step


def inference() -> tuple[Iterable[Any], Iterable[Any], Callable[[Any], Any]]:
    """Run six layers of 4096 forward on batches of 16 MiB."""
    model = mlp(4096, 6)
    data = torch.randn(8 * 2048, 4096).half()

    def step(batch: Any) -> None:
        with torch.inference_mode():
            model(batch[0])

    return Slices(data, 2048, 100), Slices(data.pin_memory(), 2048, 100), step


def recorded_training() -> tuple[Iterable[Any], Iterable[Any], Callable[[Any], Any]]:
    """24 steps of a two-layer network in single precision, 64 MiB a batch; the loss is summed up on the GPU."""
    model = nn.Sequential(nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 4096)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = torch.randn(4 * 4096, 4096)
    total = torch.zeros((), device="cuda")

    def step(batch: Any) -> None:
        loss = model(batch[0]).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        total.add_(loss.detach())

    return Slices(data, 4096, 24), Slices(data.pin_memory(), 4096, 24), step


def recorded_inference() -> tuple[Iterable[Any], Iterable[Any], Callable[[Any], Any]]:
    """16 steps of three layers of 4096 in half precision, 32 MiB a batch."""
    model = mlp(4096, 3)
    data = torch.randn(4 * 4096, 4096).half()

    def step(batch: Any) -> None:
        with torch.inference_mode():
            model(batch[0])

    return Slices(data, 4096, 16), Slices(data.pin_memory(), 4096, 16), step


class Images(torch.utils.data.Dataset[Any]):
    """Images as bytes, of which each sample is a copy."""

    def __init__(self, count: int) -> None:
        self.data = torch.randint(0, 256, (64, 3, 224, 224), dtype=torch.uint8)
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, at: int) -> tuple[torch.Tensor, int]:
        return self.data[at % 64].clone(), at % 1000


def resnet() -> tuple[Iterable[Any], Iterable[Any], Callable[[Any], Any]]:
    """Train a ResNet-50 in bfloat16 from a DataLoader with 12 workers, 128 images of 224 x 224 a step."""
    from torchvision.models import resnet50

    model = resnet50().cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loss_of = nn.CrossEntropyLoss()

    def loader(*, pin: bool) -> Any:
        return torch.utils.data.DataLoader(
            Images(128 * 60), batch_size=128, num_workers=12, pin_memory=pin, persistent_workers=True, prefetch_factor=4
        )

    def step(batch: Any) -> None:
        images, labels = batch
        x = images.to(memory_format=torch.channels_last).float().div_(255)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = loss_of(model(x), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    return loader(pin=False), loader(pin=True), step


LOOPS = {"training": training, "inference": inference, "resnet": resnet, "recorded_training": recorded_training,
         "recorded_inference": recorded_inference}  # fmt: skip


def measured(batches: Iterable[Any], step: Callable[[Any], Any]) -> tuple[float, list[float]]:
    """Run one loop; give ms a step, and the GPU's time from each step's end to the next."""
    marks: list[Any] = []
    torch.cuda.synchronize()
    begun = time.perf_counter()
    for batch in batches:
        step(batch)
        marks.append(torch.cuda.Event(enable_timing=True))
        marks[-1].record()
    torch.cuda.synchronize()
    whole = (time.perf_counter() - begun) * 1e3 / len(marks)
    return whole, [a.elapsed_time(b) for a, b in itertools.pairwise(marks)]


def compare(name: str, chosen: list[str], runs: int) -> dict[str, Any]:
    """Measure a loop in all ways, or in those that were chosen, in turn."""
    # recorded_training: single precision, as it was recorded
    torch.backends.cuda.matmul.allow_tf32 = name != "recorded_training"
    found = in_turn(_ways(name, chosen), runs)
    gc.collect()
    torch.cuda.empty_cache()
    return {"loop": name, **summed_up(found, "prefetch"), "report": REPORTS[-1]}


def _ways(name: str, chosen: list[str]) -> dict[str, Callable[[], tuple[float, list[float]]]]:
    pageable, pinned, step = LOOPS[name]()

    def run(way: str) -> tuple[float, list[float]]:
        return measured(WAYS[way](pageable if way == "plain" else pinned), step)

    return {way: partial(run, way) for way in WAYS if not chosen or way in chosen}


def in_turn(ways: dict[str, Callable[[], tuple[float, list[float]]]], runs: int) -> dict[str, list[Run]]:
    """Run all ways so many times, each time in another order; give ms a step of each run, and its 95th percentile."""
    found: dict[str, list[Run]] = {way: [] for way in ways}
    for run in range(runs + 1):
        for way, measure in random.Random(run).sample([*ways.items()], len(ways)):
            whole, single = measure()
            if run:  # the first warms up
                found[way].append((whole, _p95(single[4:])))
    return found


def summed_up(found: dict[str, list[Run]], ours: str) -> dict[str, Any]:
    """Give medians, and how close we come to the loop by hand and to the best of all the others.

    The machine's pace drifts by more than the ways differ, so those are medians of what each turn gives.
    """
    ways = {way: dict(zip(("ms", "p95_ms"), _medians(runs), strict=True)) for way, runs in found.items()}
    best = min((way for way in ways if way != ours), key=lambda way: ways[way]["ms"])
    result: dict[str, Any] = {"ways": ways, "best": best}
    for name, other in (("of_by_hand", "by hand"), ("of_best", best)):
        if other not in found:
            continue
        ratios = [(a / b, c / d) for (a, c), (b, d) in zip(found[other], found[ours], strict=True)]
        result[name], result[f"{name}_p95"] = _medians(ratios)
    return result


def _medians(pairs: list[Run]) -> list[float]:
    return [round(statistics.median(values), 4) for values in zip(*pairs, strict=True)]


def _p95(times: list[float]) -> float:
    return sorted(times)[int(0.95 * len(times))]


# -------------------------------------------------------------------------------------------- results, and the check


def results(layers: int, steps: int) -> dict[str, Any]:
    """Inference with results on the host: ``.cpu()`` a step, by hand, and ``to_host(... prefetch ...)``."""
    model = mlp(4096, layers)
    data = torch.randn(8 * 2048, 4096).half()
    pageable, pinned = Slices(data, 2048, steps), Slices(data.pin_memory(), 2048, steps)
    answers = [torch.empty(2048, 4096, dtype=torch.float16, pin_memory=True) for _ in range(steps)]
    streams = [torch.cuda.Stream() for _ in range(3)]

    def on_cpu() -> Iterator[Any]:
        for (x,) in pageable:
            yield model(x.cuda()).cpu()

    def by_hand_() -> Iterator[Any]:
        side, under_way = torch.cuda.Stream(), []
        for i, (x,) in enumerate(by_hand(pinned)):
            y = model(x)
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                answers[i].copy_(y, non_blocking=True)
            under_way.append((y, side.record_event(), answers[i]))
            if len(under_way) > 3:
                under_way[0][1].synchronize()
                yield under_way.pop(0)[2]
        for _, copied, answer in under_way:
            copied.synchronize()
            yield answer

    def three_streams() -> Iterator[Any]:
        """As recorded: each step on one of three streams, with memory for all results."""
        done = []
        for i, (x,) in enumerate(pinned):
            with torch.cuda.stream(streams[i % 3]):
                answers[i].copy_(model(x.to("cuda", non_blocking=True)), non_blocking=True)
                done.append(streams[i % 3].record_event())
        for copied, answer in zip(done, answers, strict=True):
            copied.synchronize()
            yield answer

    def by_gapless() -> Iterator[Any]:
        yield from gt.to_host(model(x) for (x,) in gt.prefetch(pinned))

    def timed(way: Callable[[], Iterator[Any]]) -> tuple[float, list[float]]:
        torch.cuda.synchronize()
        begun = time.perf_counter()
        came = [time.perf_counter() for _ in way()]
        torch.cuda.synchronize()
        whole = (time.perf_counter() - begun) * 1e3 / steps
        return whole, [(b - a) * 1e3 for a, b in itertools.pairwise(came)]

    every = {"cpu": on_cpu, "three streams": three_streams, "by hand": by_hand_, "to_host": by_gapless}
    with torch.inference_mode():
        found = in_turn({name: partial(timed, way) for name, way in every.items()}, 15)
    return {"loop": f"results of {layers} layers", **summed_up(found, "to_host")}


def overhead() -> dict[str, Any]:
    """What the check costs: a training step of a small network, launch-bound, and of a ResNet-50."""
    model = nn.Sequential(*(layer for _ in range(8) for layer in (nn.Linear(256, 256), nn.ReLU()))).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(64, 256, device="cuda")

    def small(_: Any = None) -> None:
        loss = model(x).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    *_, big = resnet()
    batch = [torch.randint(0, 256, (128, 3, 224, 224), dtype=torch.uint8, device="cuda"),
             torch.zeros(128, dtype=torch.int64, device="cuda")]  # fmt: skip
    costs: dict[str, Any] = {"loop": "check"}
    for name, step, steps in (("small", small, 100), ("resnet", lambda _: big(batch), 5)):
        measured(range(5), step)
        without, _ = measured(range(steps), step)
        with gt.check() as checking:
            measured(range(2), step)  # what it learns of each operator and each line, it learns once
            before = checking.log.operations
            within, _ = measured(range(steps), step)
        operations = checking.result.operations - before
        costs[name] = {"ms": round(without, 4), "checked_ms": round(within, 4), "operations": operations,
                       "us_an_operation": round((within - without) * steps * 1e3 / max(1, operations), 2),
                       "findings": [str(finding) for finding in checking.result.findings]}  # fmt: skip
    return costs


RESULTS = {"results": (6, 50), "recorded_results": (3, 24)}  # layers, steps


def main() -> None:
    """Measure what the command line names, by default everything: loops, and ways of bringing batches."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [*LOOPS, *RESULTS, "check", *WAYS]
    parser.add_argument("names", nargs="*", choices=[[], *names], metavar="NAME", help=", ".join(names))
    parser.add_argument("--runs", type=int, help="how often each way runs a loop")
    given = parser.parse_args()
    ways = [name for name in given.names if name in WAYS]
    chosen = [name for name in given.names if name not in WAYS] or [*LOOPS, *RESULTS, "check"]
    print(json.dumps({"device": torch.cuda.get_device_name(), "torch": torch.__version__}), flush=True)
    for name in chosen:
        if name in LOOPS:
            result = compare(name, ways, given.runs or RUNS.get(name, 15))
        else:
            result = overhead() if name == "check" else results(*RESULTS[name])
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
