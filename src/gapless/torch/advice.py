"""What to do about a finding: a line to add where all its names are known, else in words."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import CodeType

from gapless.model.kinds import OpKind, StreamKind

from .causes import Cause
from .log import HOST, Log, Memory, Op
from .sources import (
    Spot,
    in_loop,
    in_one_statement,
    is_known,
    line_of,
    mentions,
    root,
    spelled,
    spot_after,
    spot_before,
    turn,
)
from .stacks import Place, place
from .streams import Stream, another, named_by


@dataclass(frozen=True, slots=True)
class Advice:
    """A ``line`` of Python to add before or behind ``where``; what to do in ``words``, where no line says it all."""

    line: str = ""
    where: Place | None = None
    before: bool = True
    words: str = ""

    def __str__(self) -> str:
        beside = f" {'before' if self.before else 'after'} {self.where}" if self.where else ""
        return f"add {self.line}{beside}" + (f" ({self.words})" if self.words else "") if self.line else self.words


def advise(cause: Cause, first: Op, second: Op, memory: Memory, log: Log) -> Advice:
    """Say what puts the two accesses in order."""
    return _Adviser(cause, first, second, memory, log).advise()


@dataclass(slots=True)
class _Adviser:
    cause: Cause
    first: Op
    second: Op
    memory: Memory
    log: Log
    _of_first: Stream | None = field(init=False)  # None: the host
    _of_second: Stream | None = field(init=False)

    def __post_init__(self) -> None:
        streams = self.log.streams
        self._of_first, self._of_second = (
            None if op.stream == HOST else streams[op.stream] for op in (self.first, self.second)
        )

    def advise(self) -> Advice:
        ours = [stream.made.ours for stream in (self._of_first, self._of_second) if stream is not None]
        found = None
        if "prefetch" in ours:
            found = self._about_prefetch()
        elif "to_host" in ours:
            found = self._about_to_host()
        elif self.cause is Cause.REUSED_BLOCK:
            found = self._record()
        return found or self._wait()

    # --------------------------------------------------------------------------------------------- a wait that lacks

    def _wait(self) -> Advice:
        """Let the second wait for the first; for a block that is not ready, for the stream that has it."""
        over = self._of_first
        if self.cause is Cause.UNREADY_BLOCK and self.memory.stream >= 0:
            over = self.log.streams[self.memory.stream]
        return self._wait_for(over)

    def _wait_for(self, over: Stream | None) -> Advice:
        waiting, stack = self._of_second, self.second.stack
        code, at = stack[0] if stack else (None, 0)
        other = next((offset for inner, offset in self.first.stack if inner is code), None)
        spot = None
        if code is not None:
            spot = spot_before(code, at, 0 if other is None else line_of(code, other))
        if code is None or spot is None:
            return self._in_words(over)
        name, words = self._name(over, code, at), ""
        if waiting is not None:
            waiter = self._name(waiting, code, at) or (self._current(code, at) if self._is_current(self.second) else "")
            if not waiter or not name:
                return self._in_words(over)
            line = f"{waiter}.wait_stream({name})"
        elif name:
            line = f"{name}.synchronize()"
        else:
            said = over.name if over else "what comes first"
            synchronize = spelled("synchronize", code, at)
            if not synchronize:
                return self._in_words(over)
            line, words = f"{synchronize}()", f"it waits for more than {said}, which has no name there"
            if over is not None and not over.made.ours:
                words += f"; an event recorded on that stream{self._behind_first()} waits for less"
        if other is not None and in_one_statement(code, other, at):
            return Advice(words=f"{place(stack)} does both: make two statements of it, and put {line} between them")
        return _at(line, code, spot, words)

    def _in_words(self, over: Stream | None) -> Advice:
        waits = self._of_second.name if self._of_second else "the host"
        if over is not None and over is not self._of_second and waits == over.name:
            waits = another(waits)
        before = f" before {there}" if (there := place(self.second.stack)) else ""
        said = over.name if over else "what comes first"
        if any(stream is not None and stream.made.ours for stream in (over, self._of_second)):
            return Advice(words=f"let {waits} wait for {said}{before}: gapless's own stream has no name, but "
                          "torch.cuda.synchronize() there waits for all")  # fmt: skip
        how = f"record an event on {said}{self._behind_first()}, and wait for it there"
        return Advice(words=f"let {waits} wait for {said}{before}: {how}")

    def _behind_first(self) -> str:
        there = place(self.first.stack)
        return f" behind {there}" if there else ""

    # ------------------------------------------------------------------------------------ a block that comes back early

    def _record(self) -> Advice | None:
        """Tell the allocator of the stream: where the tensor is used, or where it is made."""
        named = named_by(self.memory.born) if self.memory.allocation_seen else None
        if named is None or not root(named[1]):
            return None
        born, name = named
        for depth, (code, at) in enumerate(self.first.stack):
            stream = self._name(self._of_first, code, at)
            if not stream and depth == 0 and self._is_current(self.first):
                stream = self._current(code, at)
            used = is_known(name, born[0][0], code) and mentions(code.co_filename, line_of(code, at), name)
            if code is born[0][0] and in_one_statement(code, *sorted((born[0][1], at))):
                continue  # where its name may still mean another
            if stream and used and (spot := spot_after(code, at, name)):
                return _at(f"{name}.record_stream({stream})", code, spot)
        code, at = born[0]
        stream = self._name(self._of_first, code, at)
        if stream and self._is_made_before(code, at) and (spot := spot_after(code, at)) and not spot.before:
            return _at(f"{name}.record_stream({stream})", code, spot)
        return None

    def _is_made_before(self, code: CodeType, at: int) -> bool:
        """Tell whether the stream of the first access is there for sure when an instruction runs."""
        stream = self._of_first
        if stream is None or stream.kind == StreamKind.LEGACY:
            return True
        made = stream.made.stack
        return bool(made) and made[0][0] is code and line_of(*made[0]) < line_of(code, at)

    # --------------------------------------------------------------------------------------- gapless's own streams

    def _about_prefetch(self) -> Advice | None:
        if "graph replay" in (self.first.name, self.second.name):
            replayed = place((self.first if self.first.name == "graph replay" else self.second).stack)
            return Advice(words="the graph was captured over a batch of prefetch, whose memory the next batches come "
                          "into: give the graph an input of its own, made before the loop, and copy each batch into it "
                          f"(static.copy_(batch)) before the replay at {replayed}")  # fmt: skip
        if self.cause in (Cause.SOURCE_OVERWRITTEN, Cause.SOURCE_FREED):
            return Advice(
                words="prefetch copies a pinned batch later, from where it lies: let the loader yield another tensor "
                "each time, or a copy (batch.clone()), and leave alone what it has yielded"
            )
        if self.cause is not Cause.MISSING_WAIT:
            return None
        if self._of_second is not None and self._of_second.made.ours:
            return self._record_batch() if self.second.kind == OpKind.H2D else self._hand_over_in_order("prefetch")
        owner = self.log.streams[self.memory.stream] if self.memory.stream >= 0 else None
        if owner is not None and owner != self._of_second and not owner.made.ours:
            return self._wait_for(owner)
        return Advice(
            words="prefetch fills the memory of a batch again when nothing holds the batch any more: hold its tensor "
            f"as long as it is used, or use a copy (batch.clone()), at {place(self.second.stack)}"
        )

    def _record_batch(self) -> Advice:
        """Tell prefetch of a stream that it does not hear of by itself."""
        code, at = self.second.stack[0] if self.second.stack else (None, 0)
        found = turn(code, at) if code is not None else None
        stream = self._name(self._of_first, code, at)
        if code is not None and found is not None and stream:
            name, spot = found
            return _at(f"{name}.record_stream({stream})", code, spot)
        said = self._of_first.name if self._of_first else "the stream"
        return Advice(words=f"prefetch does not hear of {said} by itself: call record_stream of the batch with that "
                      f"stream{self._behind_first()}")  # fmt: skip

    def _about_to_host(self) -> Advice | None:
        if self.cause is not Cause.MISSING_WAIT:
            return None
        if self._of_second is not None and self._of_second.made.ours:
            return self._hand_over_in_order("to_host")
        return Advice(
            words="to_host may still be copying this result: write into another tensor, or yield a copy of it "
            "(result.clone())"
        )

    def _hand_over_in_order(self, to: str) -> Advice:
        """Say what gapless's own stream waits for: what it is given has to be in order there."""
        said = self._of_first.name if self._of_first else "the first"
        return Advice(
            words=f"{to} waits for the stream that is current when it asks for the next item, and for no other: there, "
            f"before the item is yielded, let the current stream wait for {said}"
        )

    # ------------------------------------------------------------------------------------------------------- names

    def _current(self, code: CodeType, at: int) -> str:
        """Call the current stream as some code can."""
        function = spelled("current_stream", code, at)
        return function and f"{function}()"

    def _name(self, stream: Stream | None, code: CodeType | None, at: int) -> str:
        """Give what a stream is called in some code; empty where it has no name there, or not for sure."""
        if stream is None or code is None:
            return ""
        if stream.kind == StreamKind.LEGACY:
            function, bracket, arguments = stream.name.removeprefix("torch.cuda.").partition("(")
            known = spelled(function, code, at)
            return known and f"{known}{bracket}{arguments}"
        made = stream.made
        if not made.variable or not is_known(made.variable, made.stack[0][0], code):
            return ""
        of_that_name = [
            other.made.stack[0]
            for other in self.log.streams
            if other.made.variable == made.variable and other.made.stack[0][0] is made.stack[0][0]
        ]
        if len(of_that_name) == 1:
            return made.variable
        # A function that makes it once each time it is called has one of that name then.
        once = code is made.stack[0][0] and code.co_name != "<module>" and not in_loop(*made.stack[0])
        return made.variable if once and len(set(of_that_name)) == 1 and self._names_differ() else ""

    def _names_differ(self) -> bool:
        return self._of_first is None or self._of_second is None or self._of_first.name != self._of_second.name

    def _is_current(self, op: Op) -> bool:
        """Tell whether an operation's stream is the current one at its line: of what backward runs, it is not."""
        there = place(op.stack)
        return there is not None and bool(there.text) and "backward" not in there.text and "grad" not in there.text


def _at(line: str, code: CodeType, spot: Spot, words: str = "") -> Advice:
    """Advise a line at a spot of some code."""
    if spot.ends_loop:
        words = "as the last line of the loop's body" + (f"; {words}" if words else "")
    return Advice(line, Place(code.co_filename, spot.line, code.co_name), spot.before, words)
