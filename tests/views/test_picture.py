"""Pictures of lanes: valid XML, nothing interpreted, the same lanes and figures as elsewhere."""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

import gapless
from gapless.diagnosis.explain import explain
from gapless.model.errors import GaplessError
from gapless.model.extras import install_line
from gapless.model.kinds import CallKind, Engine, OpKind
from gapless.model.simulation import simulate
from gapless.timeline.simulated import from_schedule
from gapless.timeline.sinks import Note
from gapless.timeline.sources import load
from gapless.timeline.timeline import Calls, Device, Ops, Stream, Thread, Timeline
from gapless.views.palette import CALL, ENGINES, EVENT, FAINT, FINDING, INK, PAPER, WORDS
from gapless.views.picture import png, svg

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TAPES = sorted((EXAMPLES / "tapes").glob("*.tape"))
SVG = "{http://www.w3.org/2000/svg}"


def parsed(picture: str) -> ET.Element:
    return ET.fromstring(picture)


def words(picture: str) -> list[str]:
    return [element.text or "" for element in parsed(picture).iter(f"{SVG}text")]


def bars(picture: str, color: str) -> list[tuple[float, float, float]]:
    """Give left edge, width and top of the bars of one colour."""
    return [
        (float(rect.attrib["x"]), float(rect.attrib["width"]), float(rect.attrib["y"]))
        for rect in parsed(picture).iter(f"{SVG}rect")
        if rect.attrib["fill"] == color
    ]


def played(name: str) -> Timeline:
    path = next((EXAMPLES / "tapes").glob(f"{name}*.tape"))
    return from_schedule(simulate(path).schedule, source=path.name)


@pytest.mark.parametrize("path", TAPES, ids=lambda path: path.stem)
def test_every_tape_has_a_picture(path: Path) -> None:
    timeline = from_schedule(simulate(path).schedule, source=path.name)
    root = parsed(svg(timeline))
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    for rect in root.iter(f"{SVG}rect"):
        assert float(rect.attrib.get("x", 0)) + float(rect.attrib["width"]) <= width
        assert float(rect.attrib.get("y", 0)) + float(rect.attrib["height"]) <= height
        assert float(rect.attrib["width"]) > 0


def test_lanes_and_figures() -> None:
    timeline = played("20-accident-default-stream")
    picture = svg(timeline)
    shown = words(picture)
    assert shown[0] == "20-accident-default-stream.tape · teaching · 12.0 ms"
    labels = [word for word in shown if word in {"H2D", "SM", "D2H", "s0", "s1", "s2", "s3", "default", "host"}]
    assert labels == ["H2D", "SM", "D2H", "s0", "s1", "s2", "s3", "default", "host"]
    assert [word for word in shown if word.endswith("%")] == ["33%", "33%", "34%"]
    uploads = bars(picture, ENGINES[Engine.H2D])
    lane = sorted(x for x, _, y in uploads if y == uploads[0][2])
    assert np.allclose(np.diff(lane), 788 * 3.01 / 12.04)  # four chunks, one after another
    assert len(bars(picture, CALL)) == 4


def test_description_tells_what_the_picture_shows() -> None:
    root = parsed(svg(played("20-accident-default-stream")))
    title, desc = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
    assert title is not None and desc is not None  # noqa: PT018
    assert root.attrib["role"] == "img"
    assert root.attrib["aria-labelledby"].split() == [title.attrib["id"], desc.attrib["id"]]
    assert title.text == "Timeline of 20-accident-default-stream.tape"
    assert desc.text == (
        "12.0 ms of 16 operations in 5 streams. Busy: H2D 33%, SM 33%, D2H 34%; at least two at once 0%."
    )


def test_window_cuts() -> None:
    timeline = load(EXAMPLES / "timelines" / "four-streams-healthy.json.gz")
    start, _ = timeline.window()
    picture = svg(timeline, window=(start + 5_000_000, start + 9_000_000))
    assert "4.00 ms" in words(picture)[0]
    assert next(word for word in words(picture) if re.fullmatch(r"[\d.]+", word)) == "5.0"
    for x, width, _ in bars(picture, ENGINES[Engine.SM]):
        assert x >= 104
        assert x + width <= 104 + 788


def test_findings_are_marked_and_told() -> None:
    report = explain(load(EXAMPLES / "timelines" / "forgotten-default-stream-copy.json.gz"))
    notes = [Note(name=finding.title, spans=finding.spans) for finding in report.findings]
    picture = svg(report.timeline, notes=notes)
    assert report.findings[0].title in words(picture)
    paths = [path for path in parsed(picture).iter(f"{SVG}path") if path.attrib["fill"] == FINDING]
    assert paths[0].attrib["d"].count("M") >= 60
    assert f"Found: {report.findings[0].title}." in picture


def test_text_from_traces_is_text() -> None:
    name = "<script>alert(1)</script>&\"'\x00\x1b[31m\ud800\ufffe"
    timeline = Timeline(
        ops=Ops.build(kind=[OpKind.KERNEL], name=[0], device=[0], stream=[0], start=[0], end=[1000]),
        calls=Calls.build(kind=[CallKind.LAUNCH], name=[0], thread=[0], start=[0], end=[900]),
        devices=(Device(id=0, name=name),), streams=(Stream(device=0, id=7, name=name),), strings=(name,),
        threads=(Thread(pid=1, tid=2, name=name),), source=name,
    )  # fmt: skip
    picture = svg(timeline, notes=[Note(name=name, spans=np.array([[0, 500]]))])
    assert "<script" not in picture
    assert {element.tag.removeprefix(SVG) for element in parsed(picture).iter()} == {
        "svg", "title", "desc", "rect", "text", "path"
    }  # fmt: skip
    assert "<script>alert(1)</script>&\"'\\x00\\x1b[31m\\ud800\ufffd" in words(picture)


def test_what_is_too_small_is_drawn_by_how_full_a_pixel_is() -> None:
    count = 100_000
    start = np.arange(count) * 1000
    timeline = Timeline(
        ops=Ops.build(kind=[0] * count, name=[0] * count, device=[0] * count, stream=[0] * count, start=start,
                      end=start + np.where(np.arange(count) < count // 2, 250, 1000)),
        devices=(Device(id=0),), streams=(Stream(device=0, id=7),), strings=("k",),
    )  # fmt: skip
    picture = svg(timeline, notes=[Note(name="gaps", spans=np.stack((start, start + 500), axis=1))])
    assert len(picture) < 11_000
    green = [path for path in parsed(picture).iter(f"{SVG}path") if path.attrib["fill"] == ENGINES[Engine.SM]]
    assert {path.attrib.get("fill-opacity") for path in green} == {"0.375", None}
    assert "62%" in words(picture)


def test_many_streams_and_threads_are_counted() -> None:
    zeros, rows = [0] * 40, np.arange(40)
    timeline = Timeline(
        ops=Ops.build(kind=zeros, name=zeros, device=zeros, stream=rows, start=rows, end=rows + 1),
        devices=(Device(id=0),), streams=tuple(Stream(device=0, id=i) for i in range(40)), strings=("k",),
    )  # fmt: skip
    assert "and 24 more streams" in words(svg(timeline))


def test_devices_have_lanes_of_their_own() -> None:
    labels = words(svg(played("73-wrong-tool-two-devices")))
    assert {"SM 0", "SM 1", "P2P 0"} & set(labels) >= {"SM 0", "SM 1"}


def test_records_are_dots_and_waits_are_arrows_from_them() -> None:
    root = parsed(svg(played("10-event-between-two-streams")))
    dot = next(root.iter(f"{SVG}circle"))
    assert float(dot.attrib["cx"]) == pytest.approx(104 + 788 / 3, abs=0.1)  # 1 of 3 ms
    arrows = [path.attrib["d"] for path in root.iter(f"{SVG}path") if path.attrib.get("stroke") == EVENT]
    assert len(arrows) == 1
    assert arrows[0].startswith(f"M{float(dot.attrib['cx']):g} {float(dot.attrib['cy']):g}C")
    assert not list(parsed(svg(played("11-event-forgotten"))).iter(f"{SVG}circle"))


def test_too_many_records_are_left_out() -> None:
    tape = "stream a\nrepeat 100 as i\nkernel k{i} on a 1ms\nrecord e{i} on a\nend\n"
    timeline = from_schedule(simulate(gapless.read_tape(tape)).schedule)
    assert not list(parsed(svg(timeline)).iter(f"{SVG}circle"))


def test_records_too_close_to_be_told_apart_are_left_out() -> None:
    tape = "stream a\nkernel long on a 900ms\nrepeat 20 as i\nkernel k{i} on a 1ms\nrecord e{i} on a\nend\n"
    timeline = from_schedule(simulate(gapless.read_tape(tape)).schedule)
    assert not list(parsed(svg(timeline)).iter(f"{SVG}circle"))


def test_the_heading_has_the_files_name_without_its_folders() -> None:
    timeline = replace(played("01-one-stream"), source="/home/me/<b>/01.tape")
    assert words(svg(timeline))[0] == "01.tape · teaching · 24.0 ms"


def test_operations_at_one_time_stand_below_each_other() -> None:
    tape = "stream a b c\n" + "".join(f"kernel k{s} on {s} 1ms share=1/4\n" for s in "abc")
    picture = svg(from_schedule(simulate(gapless.read_tape(tape)).schedule))
    tops = [y for _, _, y in bars(picture, ENGINES[Engine.SM])]
    assert len(set(tops)) == 6  # three in the lane of the SMs, and one in that of each stream
    heights = [
        float(r.attrib["height"]) for r in parsed(picture).iter(f"{SVG}rect") if r.attrib["fill"] == ENGINES[Engine.SM]
    ]
    assert sorted(heights) == [12, 12, 12, 22, 22, 22]


def test_nothing_to_draw() -> None:
    with pytest.raises(GaplessError, match="nothing worked on a device"):
        svg(Timeline(source="empty.json"))


def test_two_pictures_of_one_page_have_names_of_their_own() -> None:
    ids = [set(re.findall(r'id="(\w+)"', svg(played(name)))) for name in ("01-one-stream", "03-three-streams")]
    assert not ids[0] & ids[1]


def luminance(color: str) -> float:
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("color", [*ENGINES.values(), CALL])
def test_words_can_be_read_on_every_colour(color: str) -> None:
    assert (luminance(color) + 0.05) / (luminance(WORDS) + 0.05) >= 4.5


def test_colours_are_those_of_the_page() -> None:
    script = resources.files("gapless.views").joinpath("web/looks.js").read_text()
    light = dict(re.findall(r'(\w+): "(#\w+)"', script[script.index("light: {") : script.index("dark: {")]))
    engines = {"h2d": Engine.H2D, "sm": Engine.SM, "d2h": Engine.D2H, "peer": Engine.PEER}
    assert {engine: light[name] for name, engine in engines.items()} == ENGINES
    assert (light["call"], light["finding"], light["event"], light["paper"]) == (CALL, FINDING, EVENT, PAPER)
    assert (light["ink"], light["muted"], light["path"]) == (INK, FAINT, WORDS)


def test_png_is_the_same_picture_twice_as_large() -> None:
    picture = svg(played("03-three-streams"))
    drawn = png(picture)
    height = int(parsed(picture).attrib["height"])
    assert drawn.startswith(b"\x89PNG\r\n\x1a\n")
    assert (int.from_bytes(drawn[16:20]), int.from_bytes(drawn[20:24])) == (1920, 2 * height)
    assert b"written by gapless" in drawn[:100]


def test_png_without_its_library_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(GaplessError, match=re.escape(install_line("png"))):
        png("<svg/>")


def test_png_without_fonts_is_refused(monkeypatch) -> None:
    import resvg_py

    drawn = resvg_py.svg_to_bytes
    monkeypatch.setattr(resvg_py, "svg_to_bytes", lambda **options: drawn(**options, skip_system_fonts=True))
    with pytest.raises(GaplessError, match="No font was found"):
        png(svg(played("03-three-streams")))
