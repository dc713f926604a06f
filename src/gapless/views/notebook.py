"""What a notebook shows of an object: its text, and its page in a frame that may run the page's own script and no more.

The frame has no origin: nothing in it can reach the notebook, its kernel or the network.
"""

from __future__ import annotations

from html import escape

MOST = 12_000_000  # characters of a page that are put into a notebook; a longer one would make it slow to open
WHOLE, LEAST = 760, 180  # px


def framed(page: str, *, title: str, height: int = WHOLE) -> str:
    """Give a page as a frame; empty where it is too long for a notebook."""
    if len(page) > MOST:
        return ""
    height = max(LEAST, min(height, WHOLE))
    return (
        f'<iframe sandbox="allow-scripts" title="{escape(title)}" loading="lazy" '
        f'style="width: 100%; height: {height}px; border: 0" srcdoc="{escape(page)}"></iframe>'
    )
