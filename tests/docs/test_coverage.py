"""What is there is documented: names, commands, options, causes, repairs, knobs, formats, tapes and their words."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import fields
from pathlib import Path

import pytest

import gapless
import gapless.testing
import gapless.torch
from gapless import cli
from gapless.cli import COMMANDS
from gapless.cli.convert import FORMATS
from gapless.diagnosis.causes import CAUSES
from gapless.diagnosis.repairs import REPAIRS
from gapless.model.machine import PROFILES, Machine
from gapless.model.tape import _KNOWN as STATEMENTS
from gapless.timeline.sources import SOURCES

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
LESSON = (DOCS / "lesson.md").read_text()


def written() -> str:
    """Give all that people wrote."""
    return "\n".join(page.read_text() for page in DOCS.glob("*.md"))


@pytest.fixture(scope="module")
def generated() -> dict[str, str]:
    """Give the pages that are generated; what has no docstring raises here."""
    sys.path.insert(0, str(DOCS / "_ext"))
    try:
        import generated as pages
    finally:
        sys.path.remove(str(DOCS / "_ext"))
    made = {"cli": pages.command_line(), "api": pages.public_names(), "causes": pages.causes()}
    return made | {slug: pages.cause(slug) for slug in CAUSES}


def test_public_names(generated) -> None:
    for module in (gapless, gapless.testing):
        for name in set(module.__all__) - {"__version__"}:
            assert f"\n### {name}\n" in generated["api"]
    for name in gapless.torch.__all__:
        assert f"\n### gapless.torch.{name}\n" in generated["api"]


@pytest.fixture(scope="module")
def options() -> dict[str, set[str]]:
    """Give the options that each command itself tells of."""
    told: dict[str, set[str]] = {}
    for command in COMMANDS:
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as out:
            patch.setenv("COLUMNS", "200")
            cli.main([command.__name__, "--help"])
        found = re.findall(r"^[│*| ]*(--[a-z][a-z0-9-]*)", out.getvalue(), re.MULTILINE)
        told[command.__name__] = set(found) - {"--help", "--version"}
    return told


@pytest.mark.parametrize("command", [command.__name__ for command in COMMANDS])
def test_options_are_those_that_the_command_itself_tells(command: str, generated, options) -> None:
    section = generated["cli"].partition(f"\n## gapless {command}\n")[2].partition("\n## gapless ")[0]
    told = re.findall(r"^`(.*)`\n: \S", section, re.MULTILINE)
    assert {name for line in told for name in re.findall(r"--[\w-]+", line)} == options[command]


@pytest.mark.parametrize("page", [ROOT / "README.md", *sorted(DOCS.glob("*.md"))], ids=lambda page: page.name)
def test_commands_in_running_text_are_commands(page: Path, options) -> None:
    for told in re.findall(r"(?:`|^ *|\$ )gapless ([a-z]+\b[^`\n|]*)", page.read_text(), re.MULTILINE):
        verb, *words = told.partition(" -- ")[0].split()
        if verb not in options and verb in PROSE:
            continue
        assert verb in options, told
        assert {word.split("=")[0] for word in words if word.startswith("--")} <= options[verb], told


PROSE = {"keeps", "reads", "itself", "is", "and", "knows", "has", "does", "records", "checks", "wrote", "says", "never"}


def test_commands_are_shown_somewhere() -> None:
    for command in COMMANDS:
        assert f"gapless {command.__name__}" in written()


def test_causes_have_a_page_with_all_headings(generated) -> None:
    for slug in CAUSES:
        assert f"[`{slug}`](cause-{slug}.md)" in generated["causes"]
        for heading in ("What it finds", "Why engines wait", "What repairs it", "What it cannot see"):
            assert f"## {heading}" in generated[slug]


def test_causes_are_met_in_the_lesson_or_are_no_matter_of_it() -> None:
    apart = {"small-copies", "host-bound", "first-use"}  # no point of the lesson is about them
    for slug in set(CAUSES) - apart:
        assert f"](../src/gapless/diagnosis/causes/{slug.replace('-', '_')}.py)" in LESSON


@pytest.mark.parametrize("page", [ROOT / "README.md", *sorted(DOCS.glob("*.md"))], ids=lambda page: page.name)
def test_links_lead_somewhere_without_a_build(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (page.parent / link).exists(), link


def test_repairs(generated) -> None:
    for name in REPAIRS:
        assert f"| `{name}` | " in generated["causes"]


def test_knobs_and_tables_of_machines() -> None:
    page = (DOCS / "machines.md").read_text()
    described = re.findall(r"^([a-z0-9_]+): \S", page, re.MULTILINE)
    assert sorted(described) == sorted(f.name for f in fields(Machine) if f.name != "name")
    for profile in PROFILES:
        assert f"| `{profile}` | " in page


def test_formats() -> None:
    page = (DOCS / "convert.md").read_text()
    for name, suffixes in FORMATS.items():
        assert f"| `{name}` | " in page
        for suffix in suffixes:
            assert f"`{suffix}`" in page
    reads = (DOCS / "explain.md").read_text()
    for source in SOURCES:
        assert any(word in source.EXPECTED for word in ("torch.profiler", "Nsight", "gapless", "recording"))
    for told in ("torch.profiler", "Nsight Systems", "recording"):
        assert told in reads


def test_statements_of_tapes() -> None:
    page = (DOCS / "tape-format.md").read_text()
    for statement in STATEMENTS:
        assert re.search(rf"`{statement}\b|`expect {statement}\b", page), statement


def test_every_tape_of_the_lesson_is_shown() -> None:
    left_out = {"05-sixteen-streams", "71-wrong-tool-one-long-kernel-chunked"}  # told in words
    shown = set(re.findall(r"^```\{tape\} (\S+)$", LESSON, re.MULTILINE))
    assert {path.stem for path in (ROOT / "examples" / "tapes").glob("*.tape")} - left_out == shown


def test_keys_of_json() -> None:
    def keys(value: object) -> Iterator[str]:
        if isinstance(value, dict):
            for key, inner in value.items():
                yield key
                yield from keys(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from keys(inner)

    page = (DOCS / "json.md").read_text()
    timelines = ROOT / "examples" / "timelines"
    before = gapless.explain(timelines / "one-stream.json.gz", apply=["streams=4"])
    compared = gapless.compare(before, timelines / "four-streams-healthy.json.gz", gates=["speedup>=2"])
    checked = gapless.check(ROOT / "examples" / "tapes" / "11-event-forgotten.tape", explore=2).to_dict()
    checked["ops"] = checked["ops"]["in"]  # by name
    told = {*keys(before.to_dict()), *keys(compared.to_dict()), *keys(checked)}
    assert not {key for key in told if f"`{key}`" not in page}


def test_rules_that_are_cited() -> None:
    told = set(re.findall(r"^\[\]\{#r\d+-\d+\}(R\d+\.\d+) ", (DOCS / "rules.md").read_text(), re.MULTILINE))
    sources = [path for path in (ROOT / "src" / "gapless").rglob("*.py") if "torch" not in path.parts]
    cited = {rule for path in sources for rule in re.findall(r"\bR\d\.\d+\b", path.read_text())}
    assert cited <= told, cited - told


def test_findings_in_pytorch_programs() -> None:
    source = (ROOT / "src" / "gapless" / "torch" / "causes.py").read_text()
    page = (DOCS / "pytorch.md").read_text()
    told = re.findall(r'^    [A-Z_]+ = "([a-z-]+)", "(.*)"$', source, re.MULTILINE)
    assert len(told) >= 6
    for name, words in told:
        assert f"| `{name}` | {words} |" in page


def test_options_of_pipelines() -> None:
    import inspect

    page = (DOCS / "pipeline.md").read_text()
    for name in list(inspect.signature(gapless.Pipeline).parameters)[1:]:
        assert f"| `{name}` | " in page


def test_every_page_is_in_the_contents() -> None:
    index = (DOCS / "index.md").read_text()
    for page in DOCS.glob("*.md"):
        assert page.stem == "index" or re.search(rf"^{page.stem}$", index, re.MULTILINE), page.name


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path, generated) -> None:
    anchors = {
        known.name: {slug(heading) for heading in re.findall(r"^#+ (.*)$", known.read_text(), re.MULTILINE)}
        for known in DOCS.glob("*.md")
    }
    made = {f"generated/{name}.md" for name in ("cli", "api", "causes", *(f"cause-{slug}" for slug in CAUSES))}
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        name, _, anchor = target.partition("#")
        if target.startswith(("https://", "http://")):
            continue
        assert not name or name in made or (DOCS / name).exists(), target
        if anchor:
            assert anchor in anchors[name or page.name], target


def slug(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
