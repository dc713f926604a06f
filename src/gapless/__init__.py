"""gapless keeps a GPU's engines busy: see a timeline, explain the waits, predict the repairs.

The public names live here and nowhere else; each is loaded when first used, so that ``import gapless`` is cheap.
"""

from __future__ import annotations

__version__ = "0.1.0"
