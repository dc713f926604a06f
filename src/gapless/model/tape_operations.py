"""The statements of a tape whose operations take time: copies, memsets, kernels and host functions."""

from __future__ import annotations

from dataclasses import dataclass

from . import tape_words as words
from .handles import Buffer
from .kinds import MemoryKind
from .streams import Stream
from .tape_line import Line, alternatives, shown
from .tape_reading import MOST_DEVICES, Reading

_MOST_BLOCKS = 2**31 - 1


@dataclass(slots=True)
class _Transfer:
    """What follows the name and stream of a copy or memset; places are numbers of words, -1 for none."""

    time: int | None = None
    bytes: int = -1
    to: int = -1
    src: int = -1
    dst: int = -1
    sync: bool = False
    pageable: bool = False
    pinned: bool = False


_HOST_SIDES = {"h2d": (True, False), "d2h": (False, True), "h2h": (True, True)}  # is source, is target host memory
# What tells the time of one by its size; the host's own copies have nothing.
_CURVES = {
    "h2d": "h2d_curve", "d2h": "d2h_curve", "d2d": "d2d_curve", "p2p": "p2p_curve", "memset": "memset_curve", "h2h": "",
}  # fmt: skip
_PAGEABLE_CURVES = {"h2d": "pageable_h2d_curve", "d2h": "pageable_d2h_curve"}
_TRANSFER_WORDS = {
    "h2d": ("SRC -> DST", "pageable", "sync"),
    "d2h": ("SRC -> DST", "pageable", "sync"),
    "h2h": ("SRC -> DST", "pageable", "sync"),
    "d2d": ("SRC -> DST", "sync"),
    "p2p": ("SRC -> DST", "to=DEVICE", "sync"),
    "memset": ("-> DST", "pinned", "sync"),
}


def copy(reader: Reading, line: Line, label: str) -> None:
    """Read ``h2d``, ``d2h``, ``d2d``, ``p2p`` and ``h2h NAME on S TIME [SIZE] [SRC -> DST] ...``."""
    kind, name, stream, said = _transfer(reader, line)
    options: dict[str, object] = {"name": name, "label": label}
    if said.src >= 0:
        host_memory = MemoryKind.PAGEABLE if said.pageable else MemoryKind.PINNED
        sides = [host_memory if host else MemoryKind.DEVICE for host in _HOST_SIDES.get(kind, (False, False))]
        for side, at, memory in zip(("src", "dst"), (said.src, said.dst), sides, strict=True):
            options[side] = reader.copied(line, at, memory)
    if said.pageable:
        options["pageable"] = True
    if kind == "p2p":
        options["to"] = said.to
    if said.time is None:
        buffers = [option for option in options.values() if isinstance(option, Buffer)]
        pageable = said.pageable or any(buffer.info.kind == MemoryKind.PAGEABLE for buffer in buffers)
        _check_cost_model(reader, line, (pageable and _PAGEABLE_CURVES.get(kind)) or _CURVES[kind])
    if reader.batch is not None and label:
        line.fail(len(line.words), "", "a copy of a batch is no call of its own: the label belongs to the batch")
    if reader.batch is not None:
        del options["label"]
    getattr(reader.batch or stream or reader.program, kind)(said.time, said.bytes, **options)


def memset(reader: Reading, line: Line, label: str) -> None:
    """Read ``memset NAME on S TIME [SIZE] [-> DST] [pinned] [sync]``."""
    _, name, stream, said = _transfer(reader, line)
    memory = MemoryKind.PINNED if said.pinned else MemoryKind.DEVICE
    target = reader.copied(line, said.dst, memory) if said.dst >= 0 else None
    if said.time is None:
        _check_cost_model(reader, line, _CURVES["memset"])
    (stream or reader.program).memset(said.time, said.bytes, dst=target, pinned=said.pinned, name=name, label=label)


def _transfer(reader: Reading, line: Line) -> tuple[str, str, Stream | None, _Transfer]:
    """Read a copy or memset: statement, name, stream (None for the synchronous form) and the rest."""
    kind, name = line.words[0], reader.operation(line)
    on = line.at
    stream = reader.stream(line) if line.take("on") else None
    said = _Transfer()
    while line.peek():
        _transfer_word(reader, line, kind, said)
    if reader.batch is not None:
        if stream or said.sync:
            line.fail(on if stream else line.words.index("sync"), "a copy of the batch", "the batch has the stream")
    elif stream and said.sync:
        line.fail(on, "no 'on'", f"{kind} ... sync is the plain form, which goes to the default stream")
    elif not stream and not said.sync:
        line.fail(on, "on STREAM, or the word sync further on")
    if said.time is None and said.bytes == -1:
        line.fail(len(line.words), f"{words.A_TIME} or {words.A_SIZE}")
    if kind == "p2p" and said.to == -1:
        line.fail(len(line.words), "to=DEVICE")
    return kind, name, stream, said


def _transfer_word(reader: Reading, line: Line, kind: str, said: _Transfer) -> None:
    word, allowed = line.peek(), _TRANSFER_WORDS[kind]
    if words.looks_like_number(word):
        if said.time is None and not words.is_size(word):
            said.time = reader.time(line)
        else:
            _once(line, said.bytes == -1, "size")
            said.bytes = words.size(line)
    elif word in allowed:
        _once(line, not getattr(said, word), word)
        setattr(said, line.next(""), True)
    elif word.startswith("to=") and "to=DEVICE" in allowed:
        line.next("")
        said.to = words.whole(line, word[3:], "a device", 0, MOST_DEVICES - 1)
    elif word == "->" and kind == "memset":
        line.next("")
        words.name(line, "a buffer")
        said.dst = line.at - 1
    elif words.is_name(word) and "SRC -> DST" in allowed and line.words[line.at + 1 : line.at + 2] == ["->"]:
        _once(line, said.src == -1, "SRC -> DST")
        said.src, said.dst = line.at, line.at + 2
        for what in ("a buffer", "->", "a buffer"):
            line.next(what)
    else:
        hint = "found '->' without spaces around it" if "->" in word and word != "->" else ""
        line.fail(line.at, alternatives(["a time", "a size", *allowed, "as LABEL"]), hint, [*allowed, "on"])


def _check_cost_model(reader: Reading, line: Line, curve: str) -> None:
    """Refuse an operation with only a size on a machine that cannot tell its time."""
    if not curve or not getattr(reader.machine, curve):
        at = next(at for at, word in enumerate(line.words) if words.is_size(word))
        line.fail(at, "a time", f"machine {reader.machine.name} cannot tell the time of this operation from its size")


def _once(line: Line, first: bool, what: str) -> None:
    if not first:
        line.fail(line.at, "something else", f"found {shown(line.peek())}, a second {what}")


def kernel(reader: Reading, line: Line, label: str) -> None:
    """Read ``kernel NAME on S TIME [share=F] [blocks=N block=F] [first] [reads A,B] [writes C,D]``."""
    name, stream = reader.operation(line), reader.on(line)
    time = words.time(line)
    blocks, block, share, first = 0, None, None, False
    reads, writes = list[Buffer](), list[Buffer]()
    while word := line.peek():
        line.next("")
        if word.startswith("share="):
            share = words.share(line, word[6:])
        elif word.startswith("blocks="):
            blocks = words.whole(line, word[7:], "a number of blocks", 1, _MOST_BLOCKS)
        elif word.startswith("block="):
            block = words.share(line, word[6:])
        elif word == "first":
            first = True
        elif word in ("reads", "writes"):
            (reads if word == "reads" else writes).extend(reader.buffers(line, MemoryKind.DEVICE))
        else:
            line.fail(line.at - 1, alternatives([*_KERNEL_WORDS, "as LABEL"]), known=_KERNEL_KNOWN)
    if share and (blocks or block):
        line.fail(len(line.words), "", "share=F is blocks=1 block=F: give one or the other")
    if bool(blocks) != bool(block):
        line.fail(len(line.words), "block=F" if blocks else "blocks=N")
    times, part = max(blocks, 1), share or block
    reader.spend(line, 0, int(times * part) if part else times, time * times)
    stream.kernel(time, share=part, blocks=blocks or 1, first=first, reads=reads, writes=writes,
                  name=name, label=label)  # fmt: skip


_KERNEL_WORDS = ("share=F", "blocks=N block=F", "first", "reads A,B", "writes C,D")
_KERNEL_KNOWN = ("share=", "blocks=", "block=", "first", "reads", "writes")


def host_function(reader: Reading, line: Line, label: str) -> None:
    """Read ``hostfn NAME on S TIME [reads ..] [writes ..]``."""
    name, stream = reader.operation(line), reader.on(line)
    time = reader.time(line)
    reads, writes = list[Buffer](), list[Buffer]()
    while line.peek():
        word = words.choice(line, ("reads", "writes"))
        (reads if word == "reads" else writes).extend(reader.buffers(line, MemoryKind.PINNED))
    stream.host_function(time, reads=reads, writes=writes, name=name, label=label)
