"""The chunk loop, and each way in which it falls back to one thing after another: as a tape, and as closed forms.

The work comes in N chunks; each is copied to the device, worked on by a kernel and copied back, in one of k streams
dealt round robin. Everything here stands for the lesson's first page: serial is 3N, pipelined N + 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import wrap

from . import bounds
from .errors import GaplessError
from .units import format_time, parse_time

DEFAULT_STREAM_OPS = ("copy", "kernel")
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
    streams are no longer fenced, it gets the event waits that keep it in order. ``machine``: what stands behind the
    word ``machine`` on a tape.
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
    device_sync: bool = False
    malloc: bool = False
    copy_engines: int | None = None
    machine: str = ""

    def __post_init__(self) -> None:
        """Refuse what is no loop."""
        if self.chunks < 1:
            raise GaplessError(f"the loop has at least one chunk, not {self.chunks}")
        if not 1 <= self.streams <= MOST_STREAMS:
            raise GaplessError(f"the loop has 1 to {MOST_STREAMS} streams, not {self.streams}")
        if self.default_stream not in (None, *DEFAULT_STREAM_OPS):
            raise GaplessError(f"on the default stream goes copy or kernel, not {self.default_stream!r}")
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
            "cudaMalloc and cudaFree in the loop" if self.malloc else "",
            "cudaDeviceSynchronize in the loop" if self.device_sync else "",
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
        ]

    def _chunk(self) -> list[str]:
        stream = "s{i%" + str(self.streams) + "}" if self.streams > 1 else "s0"
        pageable = " pageable" if self.pageable else ""
        copy_back = "default" if self.default_stream == "copy" else stream
        runs_on = "default" if self.default_stream == "kernel" else stream
        return [
            *(["malloc scratch{i} 1MiB"] if self.malloc else []),
            f"h2d    in{{i}}  on {stream} {self.h2d}{pageable}",
            *self._handed_over("copied", stream, runs_on),
            f"kernel k{{i}}   on {runs_on} {self.kernel}",
            *self._handed_over("done", runs_on, copy_back),
            f"d2h    out{{i}} on {copy_back} {self.d2h}{pageable}",
            *(["free   scratch{i}"] if self.malloc else []),
            *(["sync device"] if self.device_sync else []),
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
            "cudaFree waits for the device": self.malloc,
            "the host waits for every chunk": self.device_sync,
            "one copy engine, and the default stream fences": self.default_stream == "kernel" and fenced
            and self.copy_engines == 1,
        }  # fmt: skip
        return next((reason for reason, holds in reasons.items() if holds), "")

    def _form(self, n: int, h: int, k: int, d: int, equal: bool) -> Form:
        if self.copy_engines == 1:
            if equal and self.streams >= n > 1:
                return Form("both copies share an engine", "2N", bounds.one_copy_engine(n, h, k, d))
            return Form("both copies share an engine", "", None if n > 1 else h + k + d)
        if self.default_stream == "kernel" and self._fenced():
            # Each kernel waits for all copies so far and they for it: the next copy in runs beside the copy back.
            reads = "2N+1" if equal else "h+k+d+(N-1)(k+max(h,d))"
            return Form("the default stream fences every kernel", reads, h + k + d + (n - 1) * (k + max(h, d)))
        if self.default_stream == "copy" and self.streams == 1:  # a stream for two stages, one for the third
            reads = "2N+1" if equal else "h+k+d+(N-1)max(h+k,d)"
            return Form("one stream, and the default stream beside it", reads, h + k + d + (n - 1) * max(h + k, d))
        slots = 3 if self.default_stream == "copy" else self.streams  # a stream is free again after the kernel
        value = bounds.slots(n, slots, h, k, d)
        if value == bounds.slots(n, 3, h, k, d):
            return Form("every engine always has a next chunk", "N+2" if equal else "h+k+d+(N-1)max", value)
        reads = "3N/2+1" if equal and n % 2 == 0 else "(3N+3)/2" if equal else "S+(N-1)/2 max(S,2m)"
        return Form("two streams: a third would fill the gaps", reads, value)


def _time(form: Form) -> str:
    return format_time(form.value or 0)


def _plural(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"
