"""Programs with a missing wait, and the same programs repaired: for the dry run and for a GPU."""

from __future__ import annotations

import ctypes
import io
import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

import gapless.torch

N = 1 << 12
Program = Callable[[], object]


def blocking_stream(number: int) -> torch.cuda.Stream:
    """Give a stream as cudaStreamCreate makes them; a made-up one where the GPU is."""
    if torch.cuda.get_device_name() == "pretended GPU":
        return torch.cuda.ExternalStream(0x7F0000 + number)
    libraries = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libcudart" in line}
    handle = ctypes.c_void_p()
    assert ctypes.CDLL(libraries.pop()).cudaStreamCreate(ctypes.byref(handle)) == 0
    return torch.cuda.ExternalStream(handle.value)


@contextmanager
def two_streams_feed_a_gradient() -> Iterator[None]:
    """Say that this is meant: PyTorch 2.11 warns where a gradient comes from another stream than it is summed up on."""
    warn = getattr(torch.autograd.graph, "set_warn_on_accumulate_grad_stream_mismatch", lambda _: None)
    warn(False)
    try:
        yield
    finally:
        warn(True)


def filled() -> torch.Tensor:
    return torch.full((N,), 1.0, device="cuda")


# ------------------------------------------------------------------------------------- streams that do not wait


def missing_wait() -> None:
    side = torch.cuda.Stream()
    x = filled()
    with torch.cuda.stream(side):
        x * 2


def waits_for_the_stream() -> None:
    side = torch.cuda.Stream()
    x = filled()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        x * 2
    torch.cuda.current_stream().wait_stream(side)


def waits_for_an_event() -> None:
    side, ready = torch.cuda.Stream(), torch.cuda.Event()
    x = filled()
    ready.record()
    with torch.cuda.stream(side):
        ready.wait()
        x * 2
    torch.cuda.current_stream().wait_event(side.record_event())


def synchronises() -> None:
    side = torch.cuda.Stream()
    x = filled()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        x * 2
    side.synchronize()


def polls_the_event() -> None:
    side, ready = torch.cuda.Stream(), torch.cuda.Event()
    x = filled()
    ready.record()
    while not ready.query():
        pass
    with torch.cuda.stream(side):
        x * 2
    side.synchronize()


def event_recorded_before_the_write() -> None:
    side, ready = torch.cuda.Stream(), torch.cuda.Event()
    x = filled()
    ready.record()
    x.add_(1)
    with torch.cuda.stream(side):
        ready.wait()
        x * 2


def one_event_for_two_streams() -> None:  # B23: an event holds its latest record alone
    a, b, c = torch.cuda.Stream(), torch.cuda.Stream(), torch.cuda.Stream()
    done = torch.cuda.Event()
    with torch.cuda.stream(a):
        x = filled()
        done.record()
    with torch.cuda.stream(b):
        y = filled()
        done.record()
    with torch.cuda.stream(c):
        done.wait()
        x + y
    torch.cuda.synchronize()


def an_event_for_each_stream() -> None:
    a, b, c = torch.cuda.Stream(), torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.stream(a):
        x = filled()
    with torch.cuda.stream(b):
        y = filled()
    c.wait_event(a.record_event())
    c.wait_event(b.record_event())
    with torch.cuda.stream(c):
        x + y
    torch.cuda.synchronize()


def waits_before_the_record() -> None:  # B23: waiting for an event that is not recorded yet waits for nothing
    a, b, done = torch.cuda.Stream(), torch.cuda.Stream(), torch.cuda.Event()
    x = filled()
    torch.cuda.synchronize()
    with torch.cuda.stream(a):
        done.wait()
        x * 2
    with torch.cuda.stream(b):
        x.zero_()
        done.record()
    torch.cuda.synchronize()


def copies_to_host_on_the_wrong_stream() -> None:  # B15: the host waits for the copy, the copy for nothing
    side = torch.cuda.Stream()
    x = filled()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        x.mul_(2)
    x.cpu()


def copies_to_host_after_the_stream() -> None:
    side = torch.cuda.Stream()
    x = filled()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        x.mul_(2)
    side.synchronize()
    x.cpu()


def copies_and_kernels_on_one_stream() -> None:  # B07: pinned and non_blocking; nothing overlaps, all is in order
    for part in torch.ones(4, N).pin_memory():
        part.to("cuda", non_blocking=True) * 2
    torch.cuda.synchronize()


def copies_on_a_stream_of_their_own() -> None:  # B07
    copies, kept = torch.cuda.Stream(), []
    for part in torch.ones(4, N).pin_memory():
        with torch.cuda.stream(copies):
            kept.append(part.to("cuda", non_blocking=True))
        torch.cuda.current_stream().wait_event(copies.record_event())
        kept[-1] * 2
    torch.cuda.synchronize()


def copies_on_a_stream_that_nothing_waits_for() -> None:  # B07, the wait forgotten
    copies, kept = torch.cuda.Stream(), []
    for part in torch.ones(4, N).pin_memory():
        with torch.cuda.stream(copies):
            kept.append(part.to("cuda", non_blocking=True))
        kept[-1] * 2
    torch.cuda.synchronize()


def products_side_by_side() -> None:  # B11: two streams, and nothing between them
    side = torch.cuda.Stream()
    a, b = torch.ones(2, 64, 64, device="cuda")
    torch.cuda.synchronize()
    a @ a
    with torch.cuda.stream(side):
        b @ b
    torch.cuda.synchronize()


def _in_two_threads(streams: list[torch.cuda.Stream]) -> None:
    """The second thread goes on with what the first made."""
    x = torch.zeros(N, device="cuda")
    torch.cuda.synchronize()

    def add(stream: torch.cuda.Stream) -> None:
        with torch.cuda.stream(stream):
            x.add_(1)

    for stream in streams:
        thread = threading.Thread(target=add, args=(stream,))
        thread.start()
        thread.join()
    torch.cuda.synchronize()


def two_threads_on_one_stream() -> None:  # B13: the stream orders, whichever thread issues
    _in_two_threads([torch.cuda.Stream()] * 2)


def two_threads_on_two_streams() -> None:  # B13: to join a thread waits for no kernel
    _in_two_threads([torch.cuda.Stream(), torch.cuda.Stream()])


def _recycles_a_buffer(*, waits: bool) -> None:
    fills, copies = torch.cuda.Stream(), torch.cuda.Stream()
    buffer, taken = torch.empty(N, device="cuda"), torch.empty(3, N, device="cuda")
    torch.cuda.synchronize()
    for i in range(3):
        with torch.cuda.stream(fills):
            buffer.fill_(i)
        copies.wait_stream(fills)
        with torch.cuda.stream(copies):
            taken[i].copy_(buffer)
        if waits:
            fills.wait_event(copies.record_event())
    torch.cuda.synchronize()


def buffer_recycled_under_a_copy() -> None:  # B25
    _recycles_a_buffer(waits=False)


def buffer_recycled_after_the_copy() -> None:  # B25
    _recycles_a_buffer(waits=True)


def size_asked_of_the_gpu() -> None:  # B27: how many there are is read on the host, which waits for the stream
    side = torch.cuda.Stream()
    x = filled()
    x.nonzero()
    with torch.cuda.stream(side):
        x * 2
    torch.cuda.synchronize()


# ------------------------------------------------------------------------------------------- in place, parts, views


def in_place_beside_a_reader() -> None:
    side = torch.cuda.Stream()
    x = filled()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        x.sum()
    x.add_(1)
    torch.cuda.synchronize()


def in_place_after_the_reader() -> None:
    side = torch.cuda.Stream()
    x = filled()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        x.sum()
    torch.cuda.current_stream().wait_stream(side)
    x.add_(1)


def _halves(first: slice, second: slice) -> None:
    side = torch.cuda.Stream()
    x = torch.zeros(64, 64, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    x[:, first].add_(1)
    with torch.cuda.stream(side):
        x[:, second].mul_(2)
    torch.cuda.synchronize()


def columns_overlap() -> None:
    _halves(slice(0, 33), slice(32, 64))


def columns_apart() -> None:
    _halves(slice(0, 32), slice(32, 64))


def _rows(first: slice, second: slice) -> None:
    side = torch.cuda.Stream()
    x = torch.zeros(64, 64, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    x[first].t().add_(1)
    with torch.cuda.stream(side):
        x.view(-1).view(64, 64)[second].mul_(2)
    torch.cuda.synchronize()


def rows_overlap() -> None:
    _rows(slice(0, 10), slice(9, 20))


def rows_apart() -> None:
    _rows(slice(0, 10), slice(10, 20))


def even_and_odd() -> None:
    side = torch.cuda.Stream()
    x = torch.zeros(N, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    x[::2].add_(1)
    with torch.cuda.stream(side):
        x[1::2].add_(1)
    torch.cuda.synchronize()


def even_and_every_third() -> None:
    side = torch.cuda.Stream()
    x = torch.zeros(N, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    x[::2].add_(1)
    with torch.cuda.stream(side):
        x[1::3].add_(1)
    torch.cuda.synchronize()


# -------------------------------------------------------------------------------------------- the caching allocator


def block_handed_out_again() -> None:  # B17
    side = torch.cuda.Stream()
    x = filled()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        x * 2
    del x
    z = torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    del z


def block_recorded() -> None:
    side = torch.cuda.Stream()
    x = filled()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        x * 2
        x.record_stream(side)
    del x
    z = torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    del z


def block_recorded_for_the_wrong_stream() -> None:
    side, other = torch.cuda.Stream(), torch.cuda.Stream()
    x = filled()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        x * 2
        x.record_stream(other)
    del x
    z = torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    del z


def block_joined_before_it_is_released() -> None:
    side = torch.cuda.Stream()
    x = filled()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        x * 2
    torch.cuda.current_stream().wait_stream(side)
    del x
    torch.zeros(N, device="cuda")


def block_joined_before_it_is_used_again() -> None:
    side = torch.cuda.Stream()
    x = filled()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        x * 2
    del x
    torch.cuda.current_stream().wait_stream(side)
    torch.zeros(N, device="cuda")


def block_too_small_for_the_next() -> None:
    side = torch.cuda.Stream()
    x = filled()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        x * 2
    del x
    torch.zeros(64 * N, device="cuda")
    torch.cuda.synchronize()


def block_still_in_use_by_its_own_stream() -> None:  # the allocation itself is ordered on its own stream alone
    side = torch.cuda.Stream()
    old = filled()
    old.mul_(2)
    del old
    x = torch.empty(N, device="cuda")
    with torch.cuda.stream(side):
        x.fill_(1)
    torch.cuda.synchronize()


def block_waited_for() -> None:
    side = torch.cuda.Stream()
    old = filled()
    old.mul_(2)
    del old
    x = torch.empty(N, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        x.fill_(1)
    torch.cuda.synchronize()


def block_fresh_after_a_synchronise() -> None:
    side = torch.cuda.Stream()
    old = filled()
    del old
    torch.cuda.synchronize()
    x = torch.empty(N, device="cuda")
    with torch.cuda.stream(side):
        x.fill_(1)
    torch.cuda.synchronize()


def _prefetch_by_hand(*, record: bool, back_wait: bool) -> None:
    copies = torch.cuda.Stream()
    batches = [torch.ones(N).pin_memory() for _ in range(4)]
    kept = None
    for batch in batches:
        with torch.cuda.stream(copies):
            if back_wait:
                copies.wait_stream(torch.cuda.default_stream())
            x = batch.to("cuda", non_blocking=True)
        torch.cuda.current_stream().wait_stream(copies)
        if record:
            x.record_stream(torch.cuda.current_stream())
        kept = (x * 2).sum()
    assert kept is not None
    kept.item()


def prefetches_without_the_back_wait() -> None:
    _prefetch_by_hand(record=False, back_wait=False)


def prefetches_with_record_stream() -> None:
    _prefetch_by_hand(record=True, back_wait=False)


def prefetches_with_the_back_wait() -> None:
    _prefetch_by_hand(record=False, back_wait=True)


# ---------------------------------------------------------------------------------------------- the host's memory


def source_overwritten() -> None:  # B31: pinned memory used again without its event
    staged = torch.empty(N, pin_memory=True)
    for i in range(3):
        staged.fill_(i)
        staged.to("cuda", non_blocking=True)


def source_overwritten_after_its_event() -> None:  # B31
    staged, copied = torch.empty(N, pin_memory=True), torch.cuda.Event()
    for i in range(3):
        copied.synchronize()
        staged.fill_(i)
        staged.to("cuda", non_blocking=True)
        copied.record()


def source_overwritten_after_a_plain_copy() -> None:
    staged = torch.empty(N, pin_memory=True)
    for i in range(3):
        staged.fill_(i)
        staged.to("cuda")


def source_converted_on_the_host() -> None:  # another type: the host converts it first, into memory of its own
    staged = torch.empty(N, pin_memory=True)
    for i in range(3):
        staged.fill_(i)
        staged.to("cuda", torch.float16, non_blocking=True)


def pageable_source_overwritten() -> None:
    staged = torch.empty(N)
    for i in range(3):
        staged.fill_(i)
        staged.to("cuda", non_blocking=True)


def source_freed() -> None:  # B19: memory that the program pinned itself
    staged = torch.ones(N)
    address = staged.data_ptr()
    torch.cuda.cudart().cudaHostRegister(address, N * 4, 0)
    staged.to("cuda", non_blocking=True)
    del staged
    torch.cuda.cudart().cudaHostUnregister(address)


def source_freed_after_the_copy() -> None:
    staged = torch.ones(N)
    torch.cuda.cudart().cudaHostRegister(staged.data_ptr(), N * 4, 0)
    address = staged.data_ptr()
    staged.to("cuda", non_blocking=True)
    torch.cuda.current_stream().synchronize()
    del staged
    torch.cuda.cudart().cudaHostUnregister(address)


def pageable_source_freed() -> None:  # B19, before it was pinned
    staged = torch.ones(N)
    staged.to("cuda", non_blocking=True)
    del staged


def source_freed_by_pytorch() -> None:  # its own pinned memory waits for the copies out of it
    torch.ones(N).pin_memory().to("cuda", non_blocking=True)


def read_too_early() -> None:  # B21
    filled().to("cpu", non_blocking=True).sum()


def read_after_the_synchronise() -> None:
    result = filled().to("cpu", non_blocking=True)
    torch.cuda.current_stream().synchronize()
    result.sum()


def read_after_the_event() -> None:
    result = filled().to("cpu", non_blocking=True)
    torch.cuda.current_stream().record_event().synchronize()
    result.tolist()


def read_after_an_event_of_another_stream() -> None:
    side = torch.cuda.Stream()
    result = filled().to("cpu", non_blocking=True)
    side.record_event().synchronize()
    result.tolist()


def read_after_item() -> None:
    x = filled()
    result = x.to("cpu", non_blocking=True)
    x.sum().item()
    result.sum()


def half_read_too_early() -> None:
    result, x = torch.empty(2, N, pin_memory=True), filled()
    result[0].copy_(x, non_blocking=True)
    result[:, :1].sum()


def other_half_read() -> None:
    result, x = torch.zeros(2, N, pin_memory=True), filled()
    result[0].copy_(x, non_blocking=True)
    result[1].sum()


def pageable_read_too_early() -> None:  # B05: not promised, and hidden by today's drivers
    result = torch.empty(N)
    result.copy_(filled(), non_blocking=True)
    result.sum()


# -------------------------------------------------------------------- default stream, the pool of streams, graphs


def fenced_by_the_default_stream() -> None:
    blocking = blocking_stream(0)
    with torch.cuda.stream(blocking):
        x = filled()
    x.mul_(2)
    with torch.cuda.stream(blocking):
        x.add_(1)
    torch.cuda.synchronize()


def fenced_through_the_default_stream() -> None:
    one, other = blocking_stream(0), blocking_stream(1)
    y = filled()
    with torch.cuda.stream(one):
        x = filled()
    y.mul_(2)
    with torch.cuda.stream(other):
        x.add_(1)
    torch.cuda.synchronize()


def blocking_streams_side_by_side() -> None:
    one, other = blocking_stream(0), blocking_stream(1)
    with torch.cuda.stream(one):
        x = filled()
    with torch.cuda.stream(other):
        x.add_(1)
    torch.cuda.synchronize()


def pool_stream_not_fenced() -> None:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        x = filled()
    x.mul_(2)
    torch.cuda.synchronize()


def the_33rd_stream_is_the_first() -> None:  # B35
    streams = [torch.cuda.Stream() for _ in range(33)]
    with torch.cuda.stream(streams[0]):
        x = filled()
    with torch.cuda.stream(streams[32]):
        x.mul_(2)
    torch.cuda.synchronize()


def the_32nd_stream_is_another() -> None:
    streams = [torch.cuda.Stream() for _ in range(33)]
    with torch.cuda.stream(streams[0]):
        x = filled()
    with torch.cuda.stream(streams[31]):
        x.mul_(2)
    torch.cuda.synchronize()


def _graph(wait: bool) -> None:
    x, y = filled(), filled()
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.graph(graph):
        y.copy_(x)
        y.mul_(2)
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        x.add_(1)
    if wait:
        torch.cuda.current_stream().wait_stream(side)
    graph.replay()
    torch.cuda.synchronize()


def graph_reads_too_early() -> None:
    _graph(wait=False)


def graph_waits() -> None:
    _graph(wait=True)


def _forks_in_a_graph(*, joins_before: bool) -> None:
    x, y = filled(), filled()
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.graph(graph):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            y.copy_(x)
        torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph.replay()
    if joins_before:
        side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y.sum()
    torch.cuda.synchronize()


def graph_forked_and_joined() -> None:  # B51
    _forks_in_a_graph(joins_before=True)


def graph_leaves_its_capture_stream() -> None:  # B51: the replay is on the current stream, not on those captured
    _forks_in_a_graph(joins_before=False)


def graph_replayed_on_two_streams() -> None:  # R7.1: a graph never overlaps itself
    x = filled()
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.graph(graph):
        x.mul_(2)
    torch.cuda.synchronize()
    graph.replay()
    with torch.cuda.stream(side):
        graph.replay()
    torch.cuda.synchronize()


# ------------------------------------------------------------------------------------------------------- autograd


def _two_branches(wait: bool) -> None:
    side, weight = torch.cuda.Stream(), torch.ones(N, device="cuda", requires_grad=True)
    x = filled()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        left = (x * weight).relu()
    right = x * weight
    if wait:
        torch.cuda.current_stream().wait_stream(side)
    loss = (left + right).sum()
    with two_streams_feed_a_gradient():
        loss.backward()
    assert weight.grad is not None
    weight.grad.add_(1)
    torch.cuda.synchronize()


def branches_meet_without_a_wait() -> None:
    _two_branches(wait=False)


def branches_meet_after_a_wait() -> None:
    _two_branches(wait=True)


def trains() -> None:
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(288, 10)
    ).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        loss = torch.nn.functional.cross_entropy(
            model(torch.randn(4, 3, 8, 8).cuda()), torch.zeros(4, dtype=torch.long, device="cuda")
        )
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        loss.item()


class Read(torch.utils.data.Dataset[torch.Tensor]):
    """Samples that the workers look at in all ways, as those of images do."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, at: int) -> torch.Tensor:
        x = torch.full((4,), float(at))
        return torch.from_numpy(x.numpy() + sum(x.tolist()))


def loads_in_a_worker() -> None:
    for x in torch.utils.data.DataLoader(Read(), batch_size=4, num_workers=1, pin_memory=True):
        x.cuda(non_blocking=True).sum().item()


def loads_in_a_worker_of_a_thread() -> None:
    thread = threading.Thread(target=loads_in_a_worker)
    thread.start()
    thread.join()


def moves_by_number() -> None:
    model = torch.nn.Linear(4, 4).to(0)
    x = torch.zeros(2, 4).to(0, non_blocking=True)
    assert model(x).is_cuda
    assert torch.ones(2, device=0).is_cuda


def _reads_batches_on_a_side_stream(
    read: Callable[[torch.Tensor, torch.cuda.Stream], object], side: torch.cuda.Stream | None = None
) -> None:
    side = torch.cuda.Stream() if side is None else side
    for x in gapless.torch.prefetch([torch.ones(N).pin_memory() for _ in range(8)]):
        side.wait_stream(torch.cuda.current_stream())
        read(x, side)
        del x
    torch.cuda.synchronize()


def _read_on(x: torch.Tensor, side: torch.cuda.Stream) -> None:
    with torch.cuda.stream(side):
        x * 2


def reads_batches_on_a_side_stream() -> None:  # the ring waits for what was current
    _reads_batches_on_a_side_stream(_read_on)


def reads_batches_on_a_side_stream_that_is_a_context() -> None:
    def read(x: torch.Tensor, side: torch.cuda.Stream) -> None:
        with side:
            x * 2

    _reads_batches_on_a_side_stream(read)


def reads_batches_on_a_side_stream_in_a_thread() -> None:
    def read(x: torch.Tensor, side: torch.cuda.Stream) -> None:
        thread = threading.Thread(target=_read_on, args=(x, side))
        thread.start()
        thread.join()

    _reads_batches_on_a_side_stream(read)


def reads_batches_on_a_stream_of_others() -> None:  # which may be gone before the ring waits for it
    default = torch.cuda.Stream()
    with torch.cuda.stream(default):  # no legacy default stream, whose fences would put this in order
        _reads_batches_on_a_side_stream(_read_on, blocking_stream(2))


def reads_batches_on_a_stream_of_others_and_says_so() -> None:
    def read(x: torch.Tensor, side: torch.cuda.Stream) -> None:
        _read_on(x, side)
        x[: N // 2].record_stream(side)

    default = torch.cuda.Stream()
    with torch.cuda.stream(default):
        _reads_batches_on_a_side_stream(read, blocking_stream(2))


def loads_with_pinning() -> None:
    data = torch.utils.data.TensorDataset(torch.ones(64, 8), torch.zeros(64))
    for x, y in torch.utils.data.DataLoader(data, batch_size=16, pin_memory=True):
        assert x.is_pinned()
        (x.cuda(non_blocking=True).sum() + y.to("cuda", non_blocking=True).sum()).item()


# ------------------------------------------------------------------------- what the host waits for, and reads unseen


def early() -> tuple[torch.Tensor, torch.Tensor]:
    """Give a tensor, and what may not be its copy on the host yet."""
    x = filled()
    return x, x.to("cpu", non_blocking=True)


def read_after_a_mask() -> None:
    x, result = early()
    x[x > 0]
    result.sum()


def read_after_a_mask_of_two_dimensions() -> None:
    x, result = early()
    table = x.view(64, -1)
    table[table > 0] = table[table > 0] * 2
    result.sum()


def read_after_an_index_of_the_host() -> None:
    chosen = torch.tensor([0, 1])
    x, result = early()
    x[chosen]
    result.sum()


def read_after_numbers_went_to_the_gpu() -> None:
    _, result = early()
    torch.tensor([1.0, 2.0], device="cuda")
    result.sum()


def read_after_an_inverse() -> None:
    x, result = early()
    torch.linalg.inv(x[:4].diag())
    result.sum()


def read_after_an_index() -> None:
    chosen = torch.tensor([0, 1], device="cuda")
    x, result = early()
    x[chosen]
    result.sum()


def read_after_a_mask_was_filled() -> None:
    x, result = early()
    x[x > 0] = 0
    result.sum()


def read_after_a_repetition_of_known_size() -> None:
    repeats = torch.ones(N, dtype=torch.int64, device="cuda")
    x, result = early()
    x.repeat_interleave(repeats, output_size=N)
    result.sum()


def saved_too_early() -> None:
    _, result = early()
    torch.save({"result": result}, io.BytesIO())


def saved_after_the_synchronise() -> None:
    _, result = early()
    torch.cuda.synchronize()
    torch.save({"result": result}, io.BytesIO())


def pickled_too_early() -> None:
    _, result = early()
    pickle.dumps(result)


def saved_on_the_wrong_stream() -> None:
    side, x = torch.cuda.Stream(), filled()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        x.mul_(2)
    torch.save(x, io.BytesIO())


def read_after_the_gpu_was_saved() -> None:
    x, result = early()
    torch.save(x, io.BytesIO())
    result.sum()


def memory_of_the_host_like_a_tensor_of_the_gpu() -> None:
    side, x = torch.cuda.Stream(), filled()
    torch.cuda.synchronize()
    x * 2  # its block is free again, while it is being written; that is nothing to memory of the host
    result = torch.empty_like(x, device="cpu", pin_memory=True)
    with torch.cuda.stream(side):
        result.copy_(x, non_blocking=True)
    side.synchronize()
    result.sum()


def infers_and_reads_too_early() -> None:
    with torch.inference_mode():
        _, result = early()
        result.sum()


def infers_from_a_source_that_is_overwritten() -> None:
    source = torch.ones(N).pin_memory()
    with torch.inference_mode():
        source.cuda(non_blocking=True)
        source.fill_(1)


def infers_on_a_stream_that_does_not_wait() -> None:
    side = torch.cuda.Stream()
    with torch.inference_mode():
        x = filled().view(64, -1)
        with torch.cuda.stream(side):
            x.t().reshape(N)  # copies


def infers_and_waits() -> None:
    side, source = torch.cuda.Stream(), torch.ones(N).pin_memory()
    with torch.inference_mode():
        x = source.cuda(non_blocking=True)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            x.view(64, -1).t().reshape(N).contiguous()
        torch.cuda.current_stream().wait_stream(side)
        result = x.to("cpu", non_blocking=True)
        assert x.cpu().shape == (N,)  # waits for the copy before it
        source.add_(result)


def made_like_what_another_stream_still_writes() -> None:
    side, x = torch.cuda.Stream(), filled()
    with torch.cuda.stream(side):
        torch.zeros_like(x), torch.ones_like(x), torch.full_like(x, 2), torch.rand_like(x), x.new_zeros(3)


def goes_back_from_a_stream_that_does_not_wait() -> None:
    forward, caller = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.stream(forward):
        weight = torch.ones(N, device="cuda", requires_grad=True)
        loss = (weight * 3).sum()
    with torch.cuda.stream(caller):
        loss.backward()  # waits by itself, and does not look at the loss
        weight.grad.add_(1)


# ------------------------------------------------------------------------------ memory that goes and comes, and pools


def memory_given_back_while_another_stream_reads(waits: bool = False) -> None:
    side, x = torch.cuda.Stream(), filled()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        x * 2
    if waits:
        torch.cuda.current_stream().wait_stream(side)
    x.untyped_storage().resize_(0)
    torch.zeros(N, device="cuda")


def memory_given_back_after_the_reader() -> None:
    memory_given_back_while_another_stream_reads(waits=True)


def memory_taken_again_and_used_at_once() -> None:
    side, x = torch.cuda.Stream(), filled()
    size = x.untyped_storage().nbytes()
    x.untyped_storage().resize_(0)
    x.untyped_storage().resize_(size)  # may be what is still being filled
    with torch.cuda.stream(side):
        x.fill_(1)


def graphs_of_one_pool_side_by_side(waits: bool = False) -> None:
    side, graphs, kept = torch.cuda.Stream(), [torch.cuda.CUDAGraph() for _ in range(2)], list[object]()
    x, pool = filled(), torch.cuda.graph_pool_handle()
    for graph in graphs:
        with torch.cuda.graph(graph, pool=pool):
            kept.append((x * 2).relu())
    torch.cuda.synchronize()
    graphs[0].replay()
    if waits:
        side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        graphs[1].replay()
    torch.cuda.synchronize()


def graphs_of_one_pool_in_turn() -> None:
    graphs_of_one_pool_side_by_side(waits=True)


def graphs_of_their_own_pools_side_by_side() -> None:
    side, graphs, kept = torch.cuda.Stream(), [torch.cuda.CUDAGraph() for _ in range(2)], list[object]()
    x = filled()
    for graph in graphs:
        with torch.cuda.graph(graph):
            kept.append((x * 2).relu())
    torch.cuda.synchronize()
    graphs[0].replay()
    with torch.cuda.stream(side):
        graphs[1].replay()
    torch.cuda.synchronize()


def graph_whose_result_is_read_too_early() -> None:
    x, result, graph = filled(), torch.empty(N, pin_memory=True), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result.copy_(x, non_blocking=True)
    graph.replay()
    result.sum()


RACES: list[tuple[Program, str]] = [
    (missing_wait, "missing-wait"),
    (event_recorded_before_the_write, "missing-wait"),
    (one_event_for_two_streams, "missing-wait"),
    (waits_before_the_record, "missing-wait"),
    (copies_to_host_on_the_wrong_stream, "missing-wait"),
    (copies_on_a_stream_that_nothing_waits_for, "missing-wait"),
    (two_threads_on_two_streams, "missing-wait"),
    (buffer_recycled_under_a_copy, "missing-wait"),
    (in_place_beside_a_reader, "missing-wait"),
    (columns_overlap, "missing-wait"),
    (rows_overlap, "missing-wait"),
    (even_and_every_third, "missing-wait"),
    (block_handed_out_again, "reused-block"),
    (block_recorded_for_the_wrong_stream, "reused-block"),
    (prefetches_without_the_back_wait, "reused-block"),
    (block_still_in_use_by_its_own_stream, "unready-block"),
    (source_overwritten, "source-overwritten"),
    (source_freed, "source-freed"),
    (read_too_early, "read-too-early"),
    (read_after_an_event_of_another_stream, "read-too-early"),
    (half_read_too_early, "read-too-early"),
    (blocking_streams_side_by_side, "missing-wait"),
    (pool_stream_not_fenced, "missing-wait"),
    (the_32nd_stream_is_another, "missing-wait"),
    (graph_reads_too_early, "missing-wait"),
    (graph_leaves_its_capture_stream, "missing-wait"),
    (branches_meet_without_a_wait, "missing-wait"),
    (reads_batches_on_a_stream_of_others, "missing-wait"),
    (read_after_an_index, "read-too-early"),
    (read_after_a_mask_was_filled, "read-too-early"),
    (read_after_a_repetition_of_known_size, "read-too-early"),
    (saved_too_early, "read-too-early"),
    (pickled_too_early, "read-too-early"),
    (saved_on_the_wrong_stream, "missing-wait"),
    (memory_given_back_while_another_stream_reads, "reused-block"),
    (memory_taken_again_and_used_at_once, "unready-block"),
    (graphs_of_one_pool_side_by_side, "missing-wait"),
    (graph_whose_result_is_read_too_early, "read-too-early"),
    (infers_and_reads_too_early, "read-too-early"),
    (infers_from_a_source_that_is_overwritten, "source-overwritten"),
    (infers_on_a_stream_that_does_not_wait, "missing-wait"),
]
SILENT: list[Program] = [
    waits_for_the_stream, waits_for_an_event, synchronises, polls_the_event, an_event_for_each_stream,
    copies_to_host_after_the_stream, copies_and_kernels_on_one_stream, copies_on_a_stream_of_their_own,
    products_side_by_side, two_threads_on_one_stream, buffer_recycled_after_the_copy, size_asked_of_the_gpu,
    pageable_source_freed, graph_forked_and_joined, in_place_after_the_reader, columns_apart, rows_apart, even_and_odd,
    block_recorded, block_joined_before_it_is_released, block_joined_before_it_is_used_again,
    block_too_small_for_the_next, block_waited_for, block_fresh_after_a_synchronise, prefetches_with_record_stream,
    prefetches_with_the_back_wait, source_overwritten_after_its_event, source_overwritten_after_a_plain_copy,
    source_converted_on_the_host, source_freed_after_the_copy, source_freed_by_pytorch, read_after_the_synchronise,
    read_after_the_event, read_after_item, other_half_read, fenced_by_the_default_stream,
    fenced_through_the_default_stream, the_33rd_stream_is_the_first, graph_waits, graph_replayed_on_two_streams,
    branches_meet_after_a_wait, trains, loads_with_pinning, moves_by_number, loads_in_a_worker,
    loads_in_a_worker_of_a_thread,
    reads_batches_on_a_side_stream, reads_batches_on_a_side_stream_that_is_a_context,
    reads_batches_on_a_side_stream_in_a_thread, reads_batches_on_a_stream_of_others_and_says_so,
    read_after_a_mask, read_after_a_mask_of_two_dimensions, read_after_an_index_of_the_host,
    read_after_numbers_went_to_the_gpu, read_after_an_inverse, saved_after_the_synchronise,
    memory_given_back_after_the_reader, graphs_of_one_pool_in_turn, graphs_of_their_own_pools_side_by_side,
    made_like_what_another_stream_still_writes, goes_back_from_a_stream_that_does_not_wait, infers_and_waits,
    read_after_the_gpu_was_saved, memory_of_the_host_like_a_tensor_of_the_gpu,
]  # fmt: skip
WARNINGS: list[tuple[Program, str]] = [
    (pageable_source_overwritten, "source-overwritten"),
    (pageable_read_too_early, "read-too-early"),
]
