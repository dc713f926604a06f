"""Every example of the documentation is run: commands print what the page shows, Python blocks do not fail.

In a ``console`` block ``$`` begins a command; what is shown below it must be printed, and a line ``...`` stands for any
lines. A command works, unless ``# exit status 1`` stands behind it. After a change of what is printed:
``GAPLESS_UPDATE_DOCS=1 uv run pytest tests/docs`` writes whole outputs anew (those without ``...``).
"""

from __future__ import annotations

import ast
import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest

from gapless import cli

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))
FENCE = re.compile(r"^```(?P<kind>\S+)?[^\n]*\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
UPDATE = "GAPLESS_UPDATE_DOCS" in os.environ


@dataclass(frozen=True)
class Block:
    page: Path
    kind: str
    body: str
    line: int

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def python_blocks() -> list[Block]:
    """Give the blocks that are run here. Those of ``pytorch.md`` run on a pretended GPU: ``tests/torch``."""
    return [block for block in blocks("python") if block.page.name != "pytorch.md"]


def blocks(kind: str) -> list[Block]:
    return [
        Block(page, kind, found["body"], text.count("\n", 0, found.start()) + 1)
        for page in PAGES
        for text in [page.read_text()]
        for found in FENCE.finditer(text)
        if found["kind"] == kind
    ]


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    """Give a folder in which the examples lie as in the repository."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


def shown_by(body: str) -> list[tuple[str, str]]:
    """Give each command of a block, and what is shown below it."""
    parts = re.split(r"^\$ (.*)\n", body, flags=re.MULTILINE)
    assert not parts[0].strip(), "the block begins with a command"
    return list(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("block", blocks("console"), ids=str)
def test_commands_print_what_is_shown(block: Block, place: Path, capsys) -> None:
    for command, shown in shown_by(block.body):
        command, _, failing = command.partition("  # exit status ")
        name, *arguments = shlex.split(command)
        assert name == "gapless", "only gapless can be run here; put other commands into sh blocks"
        status = cli.main(arguments)
        printed, said = capsys.readouterr()
        assert status == int(failing or 0), said
        printed = "\n".join(line.rstrip() for line in printed.splitlines()) + "\n"
        if UPDATE and "..." not in shown and printed != shown:
            block.page.write_text(block.page.read_text().replace(shown, printed))
            continue
        pattern = "".join(".*" if part == "...\n" else re.escape(part) for part in shown.splitlines(keepends=True))
        assert re.fullmatch(pattern, printed, re.DOTALL), f"{command} prints:\n{printed}"


@pytest.mark.parametrize("page", sorted({block.page for block in python_blocks()}), ids=lambda page: page.name)
def test_python_works(page: Path, place: Path) -> None:
    """The blocks of a page run one after another in one namespace."""
    namespace: dict = {"__name__": "__main__"}
    for block in python_blocks():
        if block.page == page:
            exec(compile("\n" * block.line + block.body, str(page), "exec"), namespace)


@pytest.mark.parametrize("block", blocks("{code-block}"), ids=str)
def test_python_of_other_libraries_is_python(block: Block) -> None:
    ast.parse(block.body)
    assert "torch" in block.body, "what can be run here stands in a python block"


def test_kinds_of_blocks() -> None:
    """A block of another kind would not be tested."""
    run = {"console", "python"}
    drawn = {"{tape}", "{loop}", "{timeline}", "{knobs}", "{toctree}"}
    told = {"text", "sh", "json", "{code-block}"}
    kinds = {found["kind"] for page in PAGES for found in FENCE.finditer(page.read_text())}
    assert kinds <= run | drawn | told
    assert len(blocks("console")) >= 10
    assert len(python_blocks()) >= 8
