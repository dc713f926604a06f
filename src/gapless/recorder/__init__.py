"""Watch a CUDA program run: CUPTI's activity records, as they come, into one file.

What runs inside the traced program is small C (``native/``); the file is described in ``docs/recording-format.md``.
"""

from __future__ import annotations
