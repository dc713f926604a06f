"""The report's page as text: nothing from outside is markup, nothing may be loaded, files are never overwritten."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gapless
from gapless.cli import main
from gapless.views.html import LANES, bundle, data, tag, text, web
from gapless.views.report_page import SCRIPT, to_html

EXAMPLES = Path(__file__).parents[2] / "examples" / "timelines"
TRACE = EXAMPLES / "one-stream.json.gz"


class Reader(HTMLParser):
    """Reads text and the names of elements."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.said, self.tags = "", list[str]()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.said += data


@settings(deadline=None)
@given(st.text())
def test_words_come_back_as_words(words: str) -> None:
    page = tag("p", words, title=words)
    assert Reader(page).tags == ["p"]
    assert Reader(page).said == Reader(text(words)).said
    assert not re.search("[\x00-\x08\u202e\u2028\ud800-\udfff]", page)


@settings(deadline=None)
@given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_data_ends_no_script_and_comes_back(value: object) -> None:
    element = data("content", value)
    inner = element.removeprefix('<script type="application/json" id="content">').removesuffix("</script>")
    assert not re.search("[<>&\u2028\u2029]", inner)
    assert json.loads(inner) == value


def test_the_modules_become_one_without_imports() -> None:
    script = bundle(*SCRIPT)
    assert not re.search(r"^\s*(import|export) ", script, re.MULTILINE)
    assert "</script" not in script
    names = re.findall(r"^(?:async )?(?:function|class|const|let) (\w+)", script, re.MULTILINE)
    assert len(names) == len(set(names)), "two modules use one name"
    assert "fetch(" not in script
    assert "innerHTML" not in script
    assert "eval(" not in script


def test_each_module_comes_after_what_it_needs_when_it_loads() -> None:
    """Constants and classes are there only below their own line."""
    for place, name in enumerate(LANES):
        for other in re.findall(r'from "\./(\w+\.js)"', web(name)):
            needed = re.findall(r"^export class (\w+)", web(other), re.MULTILINE)
            assert LANES.index(other) < place or not any(f"extends {one}" in web(name) for one in needed)


def test_the_page_holds_what_the_report_holds() -> None:
    report = gapless.explain(TRACE)
    said = Reader(to_html(report)).said
    for words in (report.headline, *(f.title for f in report.findings), *(f.evidence for f in report.findings)):
        assert words in said
    assert "Measured, and predicted with a repair made" in said


def test_the_command_writes_the_page_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "report.html"
    assert main(["explain", str(TRACE), "--html", str(path)]) == 0
    out, err = capsys.readouterr()
    assert out.endswith(f"The page is {path}: open it in a browser.\n")
    assert err == ""
    assert path.read_text().startswith("<!doctype html>")


def test_json_stays_json_beside_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "report.html"
    assert main(["explain", str(TRACE), "--json", "--html", str(path), "--apply", "streams=4"]) == 0
    assert json.loads(capsys.readouterr().out)["prediction"]["repairs"] == ["streams=4"]
    assert 'value="0" checked> streams=4<' in path.read_text()


@pytest.mark.parametrize(
    ("name", "words"),
    [("there.html", "is there already, and gapless did not write it so: it is left as it is"),
     ("report.txt", "ends in .html"),
     ("no/folder/report.html", "cannot be written: No such file or directory")],
)  # fmt: skip
def test_what_cannot_be_written_is_said_and_nothing_is_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, words: str
) -> None:
    (tmp_path / "there.html").write_text("mine")
    assert main(["explain", str(TRACE), "--html", str(tmp_path / name)]) == 2
    assert words in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["there.html"]
    assert (tmp_path / "there.html").read_text() == "mine"


def test_a_page_takes_the_place_of_an_older_one(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    assert main(["explain", str(TRACE), "--html", str(path)]) == 0
    first = path.read_bytes()
    path.write_bytes(first + b"<!-- older -->")
    assert main(["explain", str(TRACE), "--html", str(path)]) == 0
    assert path.read_bytes() == first


def test_one_page_holds_one_timeline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(TRACE), str(TRACE), "--html", str(tmp_path / "a.html")]) == 2
    assert "--html writes the page of one timeline" in capsys.readouterr().err


def test_without_gpu_work_there_is_no_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "cpu.json"
    trace.write_text(json.dumps({"traceEvents": [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 5}
    ]}))  # fmt: skip
    assert main(["explain", str(trace), "--html", str(tmp_path / "a.html")]) == 2
    assert "No GPU activity" in capsys.readouterr().err
    assert not (tmp_path / "a.html").exists()


def test_a_part_of_a_run_is_a_page_of_that_part(tmp_path: Path) -> None:
    whole = gapless.explain(TRACE)
    start, end = whole.window
    part = gapless.explain(gapless.load(TRACE), start_ns=start, end_ns=start + (end - start) // 4)
    scene = json.loads(re.search(r'id="content">(.*?)</script>', to_html(part))[1])["scene"]
    assert scene["end"] == (end - start) // 4
    assert scene["items"]["start"][1] < len(whole.timeline.ops) + len(whole.timeline.calls)


def test_a_repair_with_nothing_to_change_is_said_once_and_as_a_sentence() -> None:
    page = to_html(gapless.explain(gapless.load(TRACE), apply=["pin", "streams=4"]))
    assert "pin changes nothing: there is nothing to pin (no copy uses pageable memory). To the same scale." in page


def test_a_window_without_work_is_a_page_that_says_so() -> None:
    loaded = gapless.load(TRACE)
    done = np.sort(np.maximum.accumulate(loaded.ops.end[np.argsort(loaded.ops.start)]))
    gaps = np.sort(loaded.ops.start)[1:] - done[:-1]
    end = int(done[gaps.argmax()])  # of the work before the longest gap
    report = gapless.explain(loaded, start_ns=end + 1, end_ns=end + 10)
    page = to_html(report)
    assert "No GPU activity in this window" in page
    assert np.all(report.window == (end + 1, end + 10))
