"""The page's colours: engines are told apart by every eye, in light and dark, and by their patterns too."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

from gapless.views.html import web

# How eyes that lack a kind of cones see linear RGB (Machado, Oliveira and Fernandes 2009, severity 1).
EYES = {
    "all cones": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "no long ones": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "no middle ones": [
        [0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881],
    ],
    "no short ones": [
        [1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900],
    ],
}  # fmt: skip
LEAST = {
    "all cones": 40,
    "no long ones": 20,
    "no middle ones": 20,
    "no short ones": 12,
}  # a difference of 2 is just seen
XYZ = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
WHITE = [0.9505, 1.0, 1.089]


def colours(theme: str) -> dict[str, str]:
    script = web("looks.js")
    start = script.index(f"{theme}: {{")
    return dict(re.findall(r'(\w+): "(#\w{6})"', script[start : script.index("\n  },", start)]))


def seen(colour: str, eye: str) -> np.ndarray:
    """Give a colour as an eye sees it, in CIE L*a*b*."""
    parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    x, y, z = np.cbrt(np.array(XYZ) @ np.clip(np.array(EYES[eye]) @ linear, 1e-3, 1) / WHITE)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("eye", EYES)
def test_engines_are_told_apart(theme: str, eye: str) -> None:
    known = colours(theme)
    for one, other in itertools.combinations(("sm", "h2d", "d2h", "peer"), 2):
        apart = np.linalg.norm(seen(known[one], eye) - seen(known[other], eye))
        assert apart >= LEAST[eye], (one, other)


def test_copies_have_patterns_of_their_own() -> None:
    patterns = dict(re.findall(r'(\w+): "(\w+)"', re.search(r"PATTERN = \{(.*)\}", web("looks.js"))[1]))
    assert len({patterns.get(look) for look in ("sm", "h2d", "d2h", "peer", "block")}) == 5


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_words_on_the_page_can_be_read(theme: str) -> None:
    def luminance(colour: str) -> float:
        parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
        return float(np.array(XYZ[1]) @ np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4))

    known = colours(theme)
    paper = luminance(known["paper"])
    for name in ("ink", "muted"):
        bright, dark = sorted((luminance(known[name]), paper), reverse=True)
        assert (bright + 0.05) / (dark + 0.05) >= 4.5
