"""Every example of docs/pytorch.md does what its first line says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")

import gapless.torch as gt

PAGE = Path(__file__).parents[2] / "docs" / "pytorch.md"
EXAMPLES = re.findall(r"```python\n# ([\w-]+)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def test_every_example_says_what_it_is() -> None:
    assert len(EXAMPLES) == PAGE.read_text(encoding="utf-8").count("```python") > 15


@pytest.mark.parametrize(("says", "code"), EXAMPLES, ids=[f"{i}-{says}" for i, (says, _) in enumerate(EXAMPLES)])
def test_the_page(says: str, code: str) -> None:
    with gt.check(dry=True) as checking:
        exec(compile(code, "example.py", "exec"), {"__name__": "__main__"})
    found = {finding.cause.slug for finding in checking.result.findings}
    assert found == (set() if says == "silent" else {says})
