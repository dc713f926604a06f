"""Put the recorder's library into a wheel: ``GAPLESS_PREBUILT=1 uv build --wheel`` where CUPTI's headers are there.

A wheel built so belongs to one platform. It holds the library for any CUPTI from 12.0 on: the recorder finds out at run
time how large the records of the libcupti are that runs. Without the variable the wheel is pure Python, and the library
is compiled at the first ``gapless record``.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Prebuilt(BuildHookInterface):
    """Compiles ``gapless/recorder/libgapless-recorder.so`` and marks the wheel with its platform."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and say what belongs into the wheel."""
        if self.target_name != "wheel" or os.environ.get("GAPLESS_PREBUILT") != "1":
            return
        sys.path.insert(0, str(Path(self.root) / "src"))
        from gapless.recorder import library

        made = library.compile_here(Path(tempfile.mkdtemp()))
        build_data["force_include"][str(made)] = f"gapless/recorder/{library.NAME}"
        build_data["pure_python"] = False
        from packaging.tags import sys_tags

        platform = next(tag.platform for tag in sys_tags() if tag.platform.startswith(("manylinux", "linux")))
        build_data["tag"] = f"py3-none-{platform}"
