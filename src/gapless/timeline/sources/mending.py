"""Text that is nearly JSON: mend what writers of traces let through, and say where the rest is broken."""

from __future__ import annotations

import re

import msgspec

MALFORMED = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)

_CONTROL = dict.fromkeys(range(32), " ")
_SOUND_THEN_NOT = re.compile(
    r"""
    ((?: [^"+\-inIN,]++                    # what needs no look: digits, brackets, exponents, blanks
       | "[^"\\\x00-\x1f]*+"               # a plain string
       | ,(?!\s*[}\]]) | -(?=\d) | null
    )*+)
    (?: ("(?:[^"\\]|\\[\s\S])*+")        # a string that needs a look
      | ("[\s\S]*)                         # one that never ends
      | [-+]?\b(?:inf|infinity|nan)\b      # no number of JSON's
      | (,)                                # before a closing bracket
      | ([\s\S])
      | (\Z)                                # else what is sound to the end would be looked at from each place in it
    )""",
    re.VERBOSE | re.IGNORECASE,
)
_ESCAPE = re.compile(
    r"""\\(?:
      (  ["\\/bfnrt]
       | u(?![dD][89a-fA-F])[0-9a-fA-F]{4}
       | u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}
      )
    | (u[dD][89a-fA-F][0-9a-fA-F]{2})  # half of a surrogate pair
    )?""",
    re.VERBOSE,
)
_POSITION = re.compile(r"(?:JSON is malformed: )?(.*) \(byte (\d+)\)")


def mended(text: bytes) -> bytes:
    """Mend what JSON does not allow but writers of traces let through.

    Bytes that are no UTF-8, control characters in strings, backslashes that escape nothing, half surrogate pairs,
    ``inf`` and ``nan`` for numbers, commas before a closing bracket.
    """
    return _SOUND_THEN_NOT.sub(_mend, text.decode("utf-8", "replace")).encode()


def _mend(found: re.Match[str]) -> str:
    sound, string, endless, comma, other, _ = found.groups("")
    if found[6] is not None:
        return sound
    if string:
        return sound + _ESCAPE.sub(_mend_escape, string.translate(_CONTROL))
    if endless or other:
        return sound + endless + other
    return sound if comma else sound + "null"


def _mend_escape(escape: re.Match[str]) -> str:
    if escape[1]:
        return escape[0]
    return r"\ufffd" if escape[2] else r"\\"


def place(text: bytes, problem: Exception) -> str:
    """Say why a text is no JSON, and in which line and column."""
    if isinstance(problem, RecursionError):
        return "nested too deeply"
    if "truncated" in str(problem):
        return f"not valid JSON: it ends too early, after {len(text):,} bytes"
    if not (found := _POSITION.fullmatch(str(problem))):
        return f"not valid JSON: {problem}"
    before = text[: int(found[2])]
    line, column = before.count(b"\n") + 1, len(before) - before.rfind(b"\n")
    return f"not valid JSON: {found[1]} in line {line:,}, column {column:,}"
