"""As much of the protobuf encoding as a writer needs: numbers, texts and messages behind their field's tag."""

from __future__ import annotations

import struct
from functools import lru_cache

_VARINT, _FIXED64, _BYTES = 0, 1, 2
_NEGATIVE = 1 << 64


def varint(number: int) -> bytes:
    """Encode a whole number, seven bits a byte; a negative one as 64 bits in two's complement."""
    if 0 <= number < 0x80:
        return _SMALL[number]
    if number < 0:
        number += _NEGATIVE
    digits = bytearray()
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    digits.append(number)
    return bytes(digits)


_SMALL = [bytes([number]) for number in range(0x80)]


@lru_cache(maxsize=1024)
def _tag(field: int, kind: int) -> bytes:
    return varint(field << 3 | kind)


def number(field: int, value: int) -> bytes:
    """Encode a field of type int, uint, bool or enum."""
    return _tag(field, _VARINT) + varint(value)


def fixed64(field: int, value: int) -> bytes:
    """Encode a field of type fixed64."""
    return _tag(field, _FIXED64) + struct.pack("<Q", value)


def double(field: int, value: float) -> bytes:
    """Encode a field of type double."""
    return _tag(field, _FIXED64) + struct.pack("<d", value)


def message(field: int, content: bytes) -> bytes:
    """Encode a field that holds a message or bytes."""
    return _tag(field, _BYTES) + varint(len(content)) + content


def text(field: int, value: str) -> bytes:
    """Encode a field of type string; what UTF-8 cannot hold (a half of a surrogate pair) becomes a question mark."""
    return message(field, value.encode("utf-8", "replace"))
