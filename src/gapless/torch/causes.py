"""What can be missing."""

from __future__ import annotations

from enum import Enum


class Cause(Enum):
    """What is missing: the slug, and what it means in a sentence."""

    MISSING_WAIT = "missing-wait", "used on two streams, and the second does not wait for the first"
    REUSED_BLOCK = "reused-block", "released and handed out again while another stream may still use it"
    UNREADY_BLOCK = "unready-block", "used before earlier work in the same block is over"
    SOURCE_OVERWRITTEN = "source-overwritten", "written by the host before its copy to the device is done"
    SOURCE_FREED = "source-freed", "released before its copy to the device is done"
    READ_TOO_EARLY = "read-too-early", "used by the host before its copy from the device is done"

    def __init__(self, slug: str, words: str) -> None:
        self.slug = slug
        self.words = words

    @classmethod
    def of(cls, slug: str) -> Cause:
        """Give the cause of this slug."""
        return next(cause for cause in cls if cause.slug == slug)
