"""The chunk loop, and each way in which it falls back to one thing after another: as a tape, and as closed forms.

The work comes in N chunks; each is copied to the device, worked on by a kernel and copied back, in one of k streams
dealt round robin. Everything here stands for the lesson's first page: serial is 3N, pipelined N + 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import wrap

from . import bounds
from .errors import GaplessError
from .tape_line import alternatives
from .units import format_time, parse_time

DEFAULT_STREAM_OPS = ("copy", "kernel")
WAITS = ("device", "stream", "event", "query")
ALLOCATIONS = ("malloc", "pool")
URGENT = ("same", "high")  # priority of the request beside the loop, next to the loop's own
MOST_STREAMS = 1024


@dataclass(frozen=True, slots=True)
class Form:
    """A closed form: what it is about, how it reads, its value in ps; None where no closed form is known."""

    about: str
    reads: str
    value: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkLoop:
    """The loop and its accidents. Times are text as on a tape; a bare number is ms.

    ``default_stream``: what of each chunk goes to the default stream, ``copy`` (the one back) or ``kernel``; where the
    streams are no longer fenced, it gets the event waits that keep it in order. ``wait``: how the host makes sure,
    after each chunk, that it may fill the chunk's source memory again: ``device`` and ``stream`` synchronise these,
    ``event`` waits for the copy alone, ``query`` only asks. ``allocation``: scratch memory of each chunk, from
    ``malloc`` or from the stream's ``pool``. ``urgent``: beside the loop another host thread has a short request, a
    quarter of a chunk, in a stream of its own with the ``same`` priority or a ``high`` one. ``machine``: what stands
    behind the word ``machine`` on a tape.
    """

    chunks: int = 4
    streams: int = 3
    h2d: str = "1ms"
    kernel: str = "1ms"
    d2h: str = "1ms"
    pageable: bool = False
    default_stream: str | None = None
    nonblocking: bool = False
    per_thread: bool = False
    wait: str | None = None
    allocation: str | None = None
    urgent: str | None = None
    copy_engines: int | None = None
    machine: str = ""

    def __post_init__(self) -> None:
        """Refuse what is no loop."""
        if self.chunks < 1:
            raise GaplessError(f"the loop has at least one chunk, not {self.chunks}")
        if not 1 <= self.streams <= MOST_STREAMS:
            raise GaplessError(f"the loop has 1 to {MOST_STREAMS} streams, not {self.streams}")
        for about, value, known in (
            ("on the default stream goes", self.default_stream, DEFAULT_STREAM_OPS),
            ("the host waits by", self.wait, WAITS),
            ("memory in the loop comes from", self.allocation, ALLOCATIONS),
            ("the priority of the request is", self.urgent, URGENT),
        ):
            if value not in (None, *known):
                raise GaplessError(f"{about} {alternatives(known)}, not {value!r}")
        if self.copy_engines not in (None, 1, 2):
            raise GaplessError(f"a GPU has 1 or 2 copy engines here, not {self.copy_engines}")
        self.stages()

    def stages(self) -> tuple[int, int, int]:
        """Give the times of the three stages of a chunk in ps."""
        h2d, kernel, d2h = (parse_time(text) for text in (self.h2d, self.kernel, self.d2h))
        return h2d, kernel, d2h

    # ------------------------------------------------------------------------------------------------------ the tape

    def tape(self) -> str:
        """Write the loop as a tape."""
        serial, pipelined, this = self.forms()
        return "\n".join(
            [
                *(f"# {line}" for line in wrap(f"{self.title()}.", 100)),
                f"# serial {serial.reads} = {_time(serial)}, pipelined {pipelined.reads} = {_time(pipelined)}",
                *([f"# this loop: {this.reads} = {_time(this)}"] if this.value is not None else []),
                *self._declarations(),
                "",
                f"repeat {self.chunks} as i",
                *(f"  {line}" for line in self._chunk()),
                "end",
                *self._request(),
                "sync device",
                "",
            ]
        )

    def title(self) -> str:
        """Say in words what the loop is."""
        h2d, kernel, d2h = (format_time(time) for time in self.stages())
        said = [
            f"{_plural(self.chunks, 'chunk')} over {_plural(self.streams, 'stream')}: "
            f"{h2d} to the device, {kernel} kernel, {d2h} back",
            "pageable host memory" if self.pageable else "",
            f"each {self.default_stream}{' back' if self.default_stream == 'copy' else ''} on the default stream"
            if self.default_stream
            else "",
            "non-blocking streams" if self.nonblocking else "",
            "a default stream per thread" if self.per_thread else "",
            {"malloc": "cudaMalloc and cudaFree in the loop", "pool": "memory from the stream's pool"}.get(
                self.allocation or "", ""
            ),
            _WAITS.get(self.wait or "", ""),
            f"an urgent request of {self.urgent} priority beside it" if self.urgent else "",
            "one copy engine" if self.copy_engines == 1 else "",
        ]
        return ", ".join(part for part in said if part)

    def _declarations(self) -> list[str]:
        machine = self.machine or "teaching"
        if self.copy_engines is not None:
            machine += f" shared_copy_engine={'yes' if self.copy_engines == 1 else 'no'}"
        names = " ".join(f"s{i}" for i in range(self.streams))
        return [
            *([f"machine {machine}"] if machine != "teaching" else []),
            *(["default-stream per-thread"] if self.per_thread else []),
            f"stream {names} {'nonblocking' if self.nonblocking else 'blocking'}",
            *([f"stream urgent nonblocking{' priority=-5' * (self.urgent == 'high')}"] if self.urgent else []),
        ]

    def _chunk(self) -> list[str]:
        stream = "s{i%" + str(self.streams) + "}" if self.streams > 1 else "s0"
        pageable = " pageable" if self.pageable else ""
        copy_back = "default" if self.default_stream == "copy" else stream
        runs_on = "default" if self.default_stream == "kernel" else stream
        pool = f" on {stream}" if self.allocation == "pool" else ""
        return [
            *([f"malloc scratch{{i}} 1MiB{pool}"] if self.allocation else []),
            f"h2d    in{{i}}  on {stream} {self.h2d}{pageable}",
            *([f"record sent{{i}} on {stream} untimed"] if self.wait in ("event", "query") else []),
            *self._handed_over("copied", stream, runs_on),
            f"kernel k{{i}}   on {runs_on} {self.kernel}",
            *self._handed_over("done", runs_on, copy_back),
            f"d2h    out{{i}} on {copy_back} {self.d2h}{pageable}",
            *([f"free   scratch{{i}}{pool}"] if self.allocation else []),
            *{
                "device": ["sync device"],
                "stream": [f"sync {stream}"],
                "event": ["sync event sent{i}"],
                "query": ["query event sent{i}"],
            }.get(self.wait or "", []),
        ]

    def _request(self) -> list[str]:
        """Write the urgent request: another thread makes it while the first chunk is being copied in."""
        if not self.urgent:
            return []
        h2d, kernel, d2h = (format_time(time // 4) for time in self.stages())
        return [
            "",
            "thread request",
            f"  host   {format_time(self.stages()[0] // 2)}",
            f"  h2d    ask    on urgent {h2d}",
            f"  kernel reply  on urgent {kernel}",
            f"  d2h    answer on urgent {d2h}",
            "  sync urgent as answered",
            "end",
        ]

    def _handed_over(self, event: str, before: str, after: str) -> list[str]:
        """Keep the stages of a chunk in order where no fence does it."""
        if before == after or self._fenced():
            return []
        return [f"record {event}{{i}} on {before} untimed", f"wait   {event}{{i}} on {after}"]

    # -------------------------------------------------------------------------------------------------- closed forms

    def forms(self) -> tuple[Form, Form, Form]:
        """Give the closed forms: serial, pipelined, and this loop on the ``teaching`` machine (section 10)."""
        n, (h, k, d) = self.chunks, self.stages()
        equal = h == k == d
        serial = Form("serial", "3N" if equal else "N(h+k+d)", bounds.serial(n, h, k, d))
        pipelined = Form("pipelined", "N+2" if equal else "h+k+d+(N-1)max", bounds.slots(n, 3, h, k, d))
        if self.urgent:
            return serial, pipelined, Form("the loop with an urgent request beside it", "", None)
        if why := self._serial_because():
            return serial, pipelined, Form(why, serial.reads, serial.value)
        return serial, pipelined, self._form(n, h, k, d, equal)

    def _fenced(self) -> bool:
        """Tell whether the default stream and the loop's streams wait for each other (R2.1)."""
        return not (self.nonblocking or self.per_thread)

    def _serial_because(self) -> str:
        """Say what lets nothing overlap, if anything does."""
        fenced = self._fenced()
        reasons = {
            "one stream": self.streams == 1 and (fenced or self.default_stream != "copy"),
            "the default stream fences every chunk": self.default_stream == "copy" and fenced,
            "pageable copies hold the host": self.pageable,
            "cudaFree waits for the device": self.allocation == "malloc",
            "the host waits for every chunk": self.wait == "device"
            or (self.wait == "stream" and (fenced or self.default_stream != "copy")),
            "one copy engine, and the default stream fences": self.default_stream == "kernel" and fenced
            and self.copy_engines == 1,
        }  # fmt: skip
        return next((reason for reason, holds in reasons.items() if holds), "")

    def _form(self, n: int, h: int, k: int, d: int, equal: bool) -> Form:
        if self.copy_engines == 1:
            if equal and self.streams >= n > 1 and self.wait not in ("stream", "event"):
                return Form("both copies share an engine", "2N", bounds.one_copy_engine(n, h, k, d))
            return Form("both copies share an engine", "", None if n > 1 else h + k + d)
        if self.default_stream == "kernel" and self._fenced():
            # Each kernel waits for all copies so far and they for it: the next copy in runs beside the copy back.
            reads = "2N+1" if equal else "h+k+d+(N-1)(k+max(h,d))"
            return Form("the default stream fences every kernel", reads, h + k + d + (n - 1) * (k + max(h, d)))
        if self.default_stream == "copy" and (self.streams == 1 or self.wait == "stream"):  # two stages, then one
            reads = "2N+1" if equal else "h+k+d+(N-1)max(h+k,d)"
            about = "one stream" if self.streams == 1 else "the host waits for every kernel"
            about += ", and the default stream beside it"
            return Form(about, reads, h + k + d + (n - 1) * max(h + k, d))
        slots = 3 if self.default_stream == "copy" else self.streams  # a stream is free again after the kernel
        value = bounds.slots(n, slots, h, k, d)
        if value == bounds.slots(n, 3, h, k, d):
            return Form("every engine always has a next chunk", "N+2" if equal else "h+k+d+(N-1)max", value)
        reads = "3N/2+1" if equal and n % 2 == 0 else "(3N+3)/2" if equal else "S+(N-1)/2 max(S,2m)"
        return Form("two streams: a third would fill the gaps", reads, value)


_WAITS = {
    "device": "cudaDeviceSynchronize in the loop",
    "stream": "cudaStreamSynchronize in the loop",
    "event": "cudaEventSynchronize in the loop",
    "query": "cudaEventQuery in the loop",
}


def _time(form: Form) -> str:
    return format_time(form.value or 0)


def _plural(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"
