"""Damage for recordings: bits, numbers, blocks, and the JSON in them."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from random import Random

from recordings import pipeline

_NUMBERS = [
    0,
    1,
    7,
    0xFF,
    0x7FFF,
    0xFFFF,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFFF,
    1 << 40,
    (1 << 62) + 5,
    1 << 63,
    (1 << 64) - 1,
]
_WORDS = [b"null", b"[]", b"{}", b"-1", b"1e400", b"99999999999999999999", b'"x"', b'"<u8"', b'"O"', b"true", b"0"]
_HEADER = 32


def seed() -> bytes:
    """Give the bytes of a sound recording of a few chunks."""
    return bytes(pipeline(10).data)


def damaged(data: bytes, random: Random) -> bytes:
    """Damage a recording in one to eight ways, and perhaps pack it and damage the packed bytes."""
    for _ in range(random.randint(1, 8)):
        if not data:
            break
        data = random.choice(_WAYS)(data, random)
    if random.random() < 0.1:
        data = gzip.compress(data, 1)
        for _ in range(random.randint(0, 2)):
            data = random.choice((_cut, _bit, _remove))(data or b"\0", random)
    return data


def _cut(data: bytes, random: Random) -> bytes:
    return data[: random.randint(0, len(data))]


def _bit(data: bytes, random: Random) -> bytes:
    at = random.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :]


def _number(data: bytes, random: Random) -> bytes:
    width = random.choice((1, 2, 4, 4, 8, 8))
    at = random.randrange(len(data))
    at -= at % width if random.random() < 0.5 else 0
    number = random.choice(_NUMBERS) & (1 << 8 * width) - 1
    return (data[:at] + number.to_bytes(width, "little") + data[at + width :])[: max(len(data), at + width)]


def _remove(data: bytes, random: Random) -> bytes:
    at = random.randrange(len(data))
    return data[:at] + data[at + random.choice((1, 4, 8, 32, 300)) :]


def _insert(data: bytes, random: Random) -> bytes:
    at = random.randrange(len(data))
    return data[:at] + random.choice((b"\0", b"GBLK", b"\xff" * 40, b"\x93GAPLESS", data[at : at + 500])) + data[at:]


def _blocks(data: bytes) -> list[tuple[int, int]]:
    marks = [found.start() for found in re.finditer(b"GBLK", data)]
    return list(zip(marks, [*marks[1:], len(data)], strict=False))


def _block(data: bytes, random: Random) -> bytes:
    """Repeat, drop or move a whole block, or give it another type, process or length."""
    blocks = _blocks(data)
    if not blocks:
        return data
    start, end = random.choice(blocks)
    other, _ = random.choice(blocks)
    match random.randrange(5):
        case 0:
            return data[:start] + data[end:]
        case 1:
            return data[:other] + data[start:end] + data[other:]
        case 2:
            return data[: start + 4] + random.randrange(14).to_bytes(2, "little") + data[start + 6 :]
        case 3:
            return data[: start + 8] + random.choice((0, 1000, 2000)).to_bytes(4, "little") + data[start + 12 :]
        case _:
            return data[: start + 16] + random.choice(_NUMBERS).to_bytes(8, "little") + data[start + 24 :]


def _field(data: bytes, random: Random) -> bytes:
    """Change a number inside the payload of a block, where records have theirs."""
    blocks = [block for block in _blocks(data) if block[1] - block[0] > _HEADER + 16]
    if not blocks:
        return data
    start, end = random.choice(blocks)
    width = random.choice((4, 8))
    at = start + _HEADER + 16 + random.randrange(0, max(end - start - _HEADER - 16, 1)) // width * width
    number = random.choice(_NUMBERS) & (1 << 8 * width) - 1
    return data[:at] + number.to_bytes(width, "little") + data[at + width :]


def _json(data: bytes, random: Random) -> bytes:
    found = list(re.finditer(rb'(?<=[:,\[] )(?:-?\d+|"[^"]*")', data))
    if not found:
        return data
    match = random.choice(found)
    word = random.choice(_WORDS)
    if random.random() < 0.7:  # of the same length, so that the block stays whole
        word = word[: len(match[0])].ljust(len(match[0]))
    return data[: match.start()] + word + data[match.end() :]


_WAYS: list[Callable[[bytes, Random], bytes]] = [
    _cut, _bit, _bit, _bit, _number, _number, _remove, _insert, _block, _block, _block, _field, _field, _field, _field,
    _json, _json, _json,
]  # fmt: skip
