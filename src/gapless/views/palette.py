"""The colours of pictures: those of the page (``web/looks.js``) on paper, apart for colour-blind eyes.

Words on them are dark: their contrast is at least 4.5 : 1.
"""

from __future__ import annotations

from collections.abc import Mapping

from gapless.model.kinds import Engine

ENGINES: Mapping[Engine, str] = {
    Engine.H2D: "#4c97dc", Engine.SM: "#26946f", Engine.D2H: "#e29cca", Engine.PEER: "#b98600",
}  # fmt: skip
CALL = "#a7afba"  # of a host thread
FINDING = "#d99e00"  # where it shows
EVENT = "#5a54c9"  # recorded, and what waits for it
INK, FAINT, PAPER = "#1b1f24", "#667080", "#ffffff"
WORDS = "#101418"  # on a colour
