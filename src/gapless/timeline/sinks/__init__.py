"""The timeline formats that gapless writes for other tools.

Each is one module with ``pieces(timeline, notes)``, which gives the file's bytes piece by piece, and
``left_out(timeline)``, which says in sentences what the format cannot hold; and one entry in ``SINKS``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType

from gapless.timeline.sinks import chrome, perfetto
from gapless.timeline.sinks.files import gzipped, write
from gapless.timeline.sinks.notes import Note

SINKS: Mapping[str, ModuleType] = {"perfetto": perfetto, "chrome": chrome}

__all__ = ["SINKS", "Note", "gzipped", "write"]
