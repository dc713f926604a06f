"""Put the parts in C into a wheel: ``GAPLESS_PREBUILT=1 uv build --wheel`` where CUPTI's headers are there.

A wheel built so belongs to one platform. The recorder's library is for any CUPTI from 12.0 on: it finds out at run time
how large the records of the libcupti are that runs. Without the variable the wheel is pure Python, and the libraries
are compiled when they are first used.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Prebuilt(BuildHookInterface):
    """Compiles the recorder's library and the pipeline's, and marks the wheel with its platform."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and say what belongs into the wheel."""
        if self.target_name != "wheel" or os.environ.get("GAPLESS_PREBUILT") != "1":
            return
        sys.path.insert(0, str(Path(self.root) / "src"))
        from gapless.model import native
        from gapless.recorder import library

        here = Path(tempfile.mkdtemp())
        build_data["force_include"][str(library.compile_here(here))] = f"gapless/recorder/{library.NAME}"
        devices = Path("gapless/runtime/devices")  # which cannot be imported here: there is no NumPy
        name, source = "libgapless-crew.so", Path(self.root) / "src" / devices / "native/crew.c"
        made = native.library_of(source, here, name, part="staging threads")
        build_data["force_include"][str(made)] = str(devices / name)
        build_data["pure_python"] = False
        from packaging.tags import sys_tags

        platform = next(tag.platform for tag in sys_tags() if tag.platform.startswith(("manylinux", "linux")))
        build_data["tag"] = f"py3-none-{platform}"
