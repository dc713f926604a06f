"""The colours of engines in pictures: apart for colour-blind eyes, and dark enough for white words on paper and screen.

Contrast with white is at least 4.5 : 1, with the dark background ``#131416`` at least 3 : 1.
"""

from __future__ import annotations

from collections.abc import Mapping

from gapless.model.kinds import Engine

ENGINES: Mapping[Engine, str] = {
    Engine.H2D: "#0072b2", Engine.SM: "#007a5a", Engine.D2H: "#b8500a", Engine.PEER: "#8a5a9e",
}  # fmt: skip
HOST = "#6b7280"  # calls of host threads
FAULT = "#c2185b"  # where a finding shows
INK, FAINT, PAPER = "#1f2328", "#59636e", "#ffffff"
