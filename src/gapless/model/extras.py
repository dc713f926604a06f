"""How to install what is optional, from where this gapless was installed."""

from __future__ import annotations

import json
import sys
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import unquote


def install_line(extra: str) -> str:
    """Give the command that installs an extra, from the clone, folder or address that this gapless came from if any."""
    origin = _origin()
    address = str(origin.get("url", ""))
    folder = unquote(address.removeprefix("file://")) if address.startswith("file://") else ""
    if origin.get("dir_info", {}).get("editable"):
        if not _is_uvs():
            return f"pip install -e '{folder}[{extra}]'"
        where = "" if _is_within(folder) else f" --project '{folder}'"
        return f"uv sync{where} --no-dev --inexact --extra {extra}"
    if folder:
        return f"pip install '{folder}[{extra}]'"
    if address:
        by = str(origin.get("vcs_info", {}).get("vcs", ""))
        return f"pip install 'gapless[{extra}] @ {by and by + '+'}{address}'"
    return f"pip install 'gapless[{extra}]'"


def _origin() -> dict[str, Any]:
    """Give what the installer wrote down, if it did not come from an index (PEP 610)."""
    try:
        told = metadata.distribution("gapless").read_text("direct_url.json")
        origin = json.loads(told) if told else {}
    except (metadata.PackageNotFoundError, OSError, ValueError):
        return {}
    return origin if isinstance(origin, dict) else {}


def _is_within(folder: str) -> bool:
    """Tell whether the command is typed in this folder or below it."""
    try:
        return Path.cwd().is_relative_to(folder)
    except OSError:  # the current folder is gone
        return False


def _is_uvs() -> bool:
    """Tell whether uv made this environment, which then has no pip."""
    try:
        return "\nuv = " in (Path(sys.prefix) / "pyvenv.cfg").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False
