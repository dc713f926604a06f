"""The command that installs an extra is one that works for the installation at hand."""

from __future__ import annotations

import json
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gapless.model.extras import install_line

CLONE = {"url": "file:///home/me/my%20clone", "dir_info": {"editable": True}}


@pytest.mark.parametrize(
    ("origin", "environment", "line"),
    [
        (None, "", "pip install 'gapless[lab]'"),
        ("{", "", "pip install 'gapless[lab]'"),
        ("[]", "", "pip install 'gapless[lab]'"),
        (CLONE, "home = /usr\n", "pip install -e '/home/me/my clone[lab]'"),
        (CLONE, "home = /usr\nuv = 0.9\n", "uv sync --project '/home/me/my clone' --no-dev --inexact --extra lab"),
        ({"url": "file:///home/me/clone", "dir_info": {}}, "uv = 0.9", "pip install '/home/me/clone[lab]'"),
        (
            {"url": "https://example.org/gapless", "vcs_info": {"vcs": "git", "commit_id": "0"}},
            "",
            "pip install 'gapless[lab] @ git+https://example.org/gapless'",
        ),
        ({"url": "https://example.org/a.whl"}, "", "pip install 'gapless[lab] @ https://example.org/a.whl'"),
    ],
)
def test_it_is_that_of_the_installation(
    origin: Any, environment: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = origin if origin is None or isinstance(origin, str) else json.dumps(origin)
    monkeypatch.setattr(metadata, "distribution", lambda _: SimpleNamespace(read_text=lambda _: told))
    (tmp_path / "pyvenv.cfg").write_text(environment)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert install_line("lab") == line


def test_within_the_clone_uv_needs_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = json.dumps({"url": tmp_path.as_uri(), "dir_info": {"editable": True}})
    monkeypatch.setattr(metadata, "distribution", lambda _: SimpleNamespace(read_text=lambda _: told))
    (tmp_path / "pyvenv.cfg").write_text("home = /usr\nuv = 0.9\n")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    (tmp_path / "below").mkdir()
    for folder in (tmp_path, tmp_path / "below"):
        monkeypatch.chdir(folder)
        assert install_line("lab") == "uv sync --no-dev --inexact --extra lab"


def test_a_gapless_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    assert install_line("png") == "pip install 'gapless[png]'"
