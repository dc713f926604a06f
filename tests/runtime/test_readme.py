"""The README's example of a pipeline runs, without a GPU."""

from __future__ import annotations

import textwrap
from pathlib import Path

import numpy as np
import pytest

README = Path(__file__).resolve().parents[2] / "README.md"


def test_the_example_runs_on_the_host(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("gapless.runtime.devices.cuda.is_available", lambda: False)
    block = README.read_text(encoding="utf-8").split("    import gapless, numpy as np\n    pipe")[1].split("\n\n")[0]
    code = textwrap.dedent("    import gapless, numpy as np\n    pipe" + block).replace("32_000_000", "1_000_000")
    scope: dict[str, object] = {}
    exec(compile(code, "README.md", "exec"), scope)
    y = scope["y"]
    assert isinstance(y, np.ndarray)
    assert np.allclose(y, 1)
    assert "1,000,000 rows" in capsys.readouterr().out
