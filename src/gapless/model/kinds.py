"""The words of the model: kinds of operations, memory, streams, host calls, and the engines they need.

Programs, schedules and timelines all use these; rule numbers are those of the specification of CUDA stream semantics.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from types import SimpleNamespace


class OpKind(IntEnum):
    """What a device operation does (section 1)."""

    KERNEL = 0
    H2D = 1
    D2H = 2
    D2D = 3
    P2P = 4
    H2H = 5
    MEMSET = 6
    HOST_FUNCTION = 7
    RECORD = 8
    WAIT = 9
    MALLOC = 10
    FREE = 11
    GRAPH = 12
    BATCH = 13  # of copies: over when all of them are (R3.9)
    WRITE_VALUE = 14  # to a word of memory (R5.9)
    WAIT_VALUE = 15


class Engine(IntEnum):
    """The part of a GPU that serves an operation; one H2D and one D2H copy at a time (R3.6), kernels share the SMs."""

    NONE = -1
    SM = 0
    H2D = 1
    D2H = 2
    PEER = 3
    HOST = 4


ENGINE_OF: dict[OpKind, Engine] = {
    OpKind.KERNEL: Engine.SM,
    OpKind.H2D: Engine.H2D,
    OpKind.D2H: Engine.D2H,
    OpKind.D2D: Engine.SM,  # R3.10: a copy inside the device is an SM kernel
    OpKind.P2P: Engine.PEER,
    OpKind.H2H: Engine.HOST,
    OpKind.MEMSET: Engine.SM,  # R3.10
    OpKind.HOST_FUNCTION: Engine.HOST,
    OpKind.RECORD: Engine.NONE,
    OpKind.WAIT: Engine.NONE,
    OpKind.MALLOC: Engine.NONE,
    OpKind.FREE: Engine.NONE,
    OpKind.GRAPH: Engine.SM,
    OpKind.BATCH: Engine.NONE,
    OpKind.WRITE_VALUE: Engine.NONE,
    OpKind.WAIT_VALUE: Engine.NONE,
}


class MemoryKind(IntEnum):
    """Where one side of a copy lives. The numbers are gapless's own: CUPTI's and Nsight's differ from each other."""

    UNKNOWN = 0
    PAGEABLE = 1
    PINNED = 2
    DEVICE = 3
    ARRAY = 4
    MANAGED = 5


class StreamKind(IntEnum):
    """How a stream stands to the legacy default stream (section 1, R2.1)."""

    UNKNOWN = 0
    LEGACY = 1
    PER_THREAD = 2
    BLOCKING = 3
    NON_BLOCKING = 4


class CallKind(IntEnum):
    """What a host call asks of CUDA, in the classes that section 4 tells apart."""

    OTHER = 0
    LAUNCH = 1
    COPY_ASYNC = 2
    COPY_SYNC = 3
    MEMSET_ASYNC = 4
    MEMSET_SYNC = 5
    SYNC_DEVICE = 6
    SYNC_STREAM = 7
    SYNC_EVENT = 8
    QUERY = 9
    RECORD = 10
    WAIT_EVENT = 11
    ELAPSED = 12
    MALLOC = 13
    FREE = 14
    HOST_MALLOC = 15
    HOST_FREE = 16
    HOST_REGISTER = 17
    HOST_UNREGISTER = 18
    MALLOC_ASYNC = 19
    FREE_ASYNC = 20
    GRAPH_LAUNCH = 21
    GRAPH_BUILD = 22
    CAPTURE = 23
    HOST_FUNCTION = 24
    STREAM_CREATE = 25
    STREAM_DESTROY = 26
    EVENT_CREATE = 27
    EVENT_DESTROY = 28
    MODULE = 29
    FUNCTION_ATTRIBUTES = 30
    DEVICE_LIMIT = 31
    DEVICE = 32
    # What host threads do beside calling CUDA, and the second half of a capture. Only programs have these.
    CAPTURE_END = 33
    HOST_WORK = 34
    HOST_READ = 35
    HOST_WRITE = 36
    SEND = 37
    RECEIVE = 38
    REUSE = 39
    BATCH = 40  # the call; the rows that follow it in its thread are its copies, and no calls of their own (R3.9)
    BATCHED = 41
    WRITE_VALUE = 42
    WAIT_VALUE = 43
    GRAPH_UPDATE = 45
    STORE = 44  # a host thread writes a word that streams wait for (R5.9)


class Condition(IntEnum):
    """When a stream that waits for a value goes on (``CU_STREAM_WAIT_VALUE_...``, R5.9)."""

    GEQ = 0
    EQ = 1
    AND = 2
    NOR = 3


class SourceOrder(IntEnum):
    """When the copies of a batch may read their sources (``srcAccessOrder``, R3.9)."""

    STREAM = 0
    DURING_CALL = 1
    ANY_TIME = 2


class CaptureMode(IntEnum):
    """Which calls of which threads a capture forbids (R7.4)."""

    GLOBAL = 0
    THREAD_LOCAL = 1
    RELAXED = 2


class CudaError(IntEnum):
    """What a call returned, in CUDA's numbers. ``cuda_name`` is the name without ``cudaError``."""

    SUCCESS = 0
    INVALID_VALUE = 1
    MEMORY_ALLOCATION = 2
    INVALID_RESOURCE_HANDLE = 400
    ILLEGAL_STATE = 401
    NOT_READY = 600
    STREAM_CAPTURE_UNSUPPORTED = 900
    STREAM_CAPTURE_INVALIDATED = 901
    STREAM_CAPTURE_MERGE = 902
    STREAM_CAPTURE_UNMATCHED = 903
    STREAM_CAPTURE_UNJOINED = 904
    STREAM_CAPTURE_ISOLATION = 905
    STREAM_CAPTURE_IMPLICIT = 906
    CAPTURED_EVENT = 907
    STREAM_CAPTURE_WRONG_THREAD = 908

    @property
    def cuda_name(self) -> str:
        """The name as CUDA spells it: ``StreamCaptureImplicit``."""
        return "".join(word.capitalize() for word in self.name.split("_"))


class Bound(IntEnum):
    """What kept an operation from starting, or a call from going on, until the moment it did."""

    NONE = 0  # nothing: it never ran, or its own cost was all
    HOST = 1  # the host came late: it started as soon as its call had issued it
    STREAM = 2  # the operation before it in its stream (R1.3)
    FENCE = 3  # the legacy default stream's rule (R2.1, R3.7)
    EVENT = 4  # the work an event stands for (R5.2)
    GRAPH = 5  # a node of the same graph, or the graph's launch before (R7.1, R7.2)
    FIRST_USE = 6  # the barrier of a kernel's first use, or of an allocation (R4.1, D1)
    COPY_ENGINE = 7  # another copy (R3.6, R6.1)
    SM = 8  # other kernels (R6.11)
    GRID_SLOT = 9  # too many kernels resident (R6.10)
    QUEUE = 10  # a hardware queue shared with other streams (R6.5)
    WORKER = 11  # another host function (R6.15)
    WORK = 12  # calls: the host waited for an operation
    LAUNCH_QUEUE = 13  # calls: no room in the launch queue (R6.9)
    LOCK = 14  # calls: another thread's call held the driver's lock (R4.2)
    STAGING = 15  # calls: no staging slot free (R3.12)
    MESSAGE = 16  # calls: another thread had not sent yet
    VALUE = 18  # the operation that wrote the value it waited for (R5.9)
    STORE = 19  # the host thread's store of that value
    POOL = 17  # the free of the memory that the pool hands out again (R8.4)


class Flag(IntFlag):
    """What else is to be said about a call."""

    FIRST = 1  # the first use of a kernel (R4.1), or of the pool of stream-ordered memory (section 4)
    UNTIMED = 2  # a record of an event without timing (R5.7)
    EXTERNAL = 4  # a wait with cudaEventWaitExternal (R7.4)
    PROGRAMMATIC = 8  # a kernel launched as programmatic dependent of the one before (R6.14)
    FIRST_OF_LIBRARY = 16  # the first launch out of a library loaded at run time (R4.1)
    MORE_STACK = 32  # needs more local memory than ever before, or changes the stack limit (section 4)
    DURING_CALL = 128  # a copy of a batch that has read its source when the call returns (R3.9)
    ANY_TIME = 256  # a copy of a batch that may read its source from the call on (R3.9)
    POOL = 64  # a plain free of stream-ordered memory, which waits for nothing (section 4)


def _numbers(kinds: type[IntEnum] | type[IntFlag]) -> SimpleNamespace:
    return SimpleNamespace(**{name: int(member) for name, member in kinds.__members__.items()})


# The same as plain numbers, for what looks through programs: NumPy compares a column with these four times faster.
OP, CALL, MEMORY, FLAG = _numbers(OpKind), _numbers(CallKind), _numbers(MemoryKind), _numbers(Flag)
