"""The report's page in a real browser: every control, keys, mouse, fingers, looks, paper, and names that mean harm."""

from __future__ import annotations

import gzip
import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest

import gapless
from gapless.cli import main
from gapless.views.report_page import to_html

EXAMPLES = Path(__file__).parents[2] / "examples" / "timelines"
VIEW = "gapless.view"


@pytest.fixture(scope="module")
def fence(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the page about four streams that a default-stream copy fences."""
    path = tmp_path_factory.mktemp("pages") / "fence.html"
    assert main(["explain", str(EXAMPLES / "forgotten-default-stream-copy.json.gz"), "--html", str(path)]) == 0
    return path


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pages") / "training.html"
    path.write_text(to_html(gapless.explain(EXAMPLES / "pytorch-training.json.gz")))
    return path


def shown(page: Any) -> tuple[float, float]:
    """Paint, and give the stretch of time in view."""
    page.evaluate(f"{VIEW}.paint()")
    return tuple(page.evaluate(f"[{VIEW}.t0, {VIEW}.t1]"))


def press(page: Any, *keys: str) -> None:
    page.locator("#lanes .gl-stage").focus()
    for key in keys:
        page.keyboard.press(key)


def said(page: Any) -> str:
    """Give what a screen reader is told of the interval in focus."""
    return page.locator("#lanes [aria-live]").text_content()


def test_the_page_says_what_the_report_says(open_page: Any, fence: Path, shots: Path) -> None:
    page = open_page(fence)
    report = gapless.explain(EXAMPLES / "forgotten-default-stream-copy.json.gz")
    text = page.locator("body").inner_text()
    assert report.headline in text
    for finding in report.findings:
        assert finding.title in text
        assert finding.evidence in text
    for unknown in report.unknown:
        assert unknown.text in text
    assert "Critical path" in text
    page.screenshot(path=shots / "report-light.png", full_page=True)


def test_the_page_stands_without_scripts(open_page: Any, fence: Path) -> None:
    page = open_page(fence, ready="main", java_script_enabled=False)
    assert "64 operations on the default stream fence 4 other streams" in page.locator("body").inner_text()


def test_nothing_but_its_own_script_may_run_and_nothing_may_be_loaded(fence: Path) -> None:
    text = fence.read_text()
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy[1]
    assert not re.search(r"""(src|href)=["'](?!data:|#)""", text)
    assert "http://" not in text.replace("http://www.w3.org", "")


def test_every_control_has_a_name_and_the_keyboard_reaches_it(open_page: Any, training: Path) -> None:
    page = open_page(training)
    controls = page.locator("button:visible, input:visible, summary:visible, [tabindex='0']:visible")
    count = controls.count()
    assert count > 20
    reached = set()
    page.evaluate("document.body.focus()")
    for _ in range(2 * count):
        page.keyboard.press("Tab")
        name, ring = page.evaluate("""() => {
            const one = document.activeElement;
            const words = one.labels?.[0] ?? one;
            return [one.getAttribute("aria-label") || words.textContent.trim(), getComputedStyle(one).outlineStyle];
        }""")
        if page.evaluate("document.activeElement === document.body"):
            break
        assert name
        assert ring != "none", name
        reached.add(name)
    for name in (
        "Zoom in",
        "Zoom out",
        "Earlier",
        "Later",
        "Show all",
        "Critical path",
        "Arrows",
        "Dark",
        "Streams lanes",
    ):
        assert name in reached
    assert any(name.startswith("pytorch-training") for name in reached)  # the lanes themselves


def test_buttons_zoom_and_pan(open_page: Any, fence: Path) -> None:
    page = open_page(fence)
    whole = shown(page)

    def click(name: str) -> tuple[float, float]:
        page.get_by_role("toolbar").get_by_role("button", name=name, exact=True).click()
        return shown(page)

    near = click("Zoom in")
    assert near[1] - near[0] == pytest.approx((whole[1] - whole[0]) / 2, rel=0.01)
    later = click("Later")
    assert later[0] == pytest.approx(near[0] + (near[1] - near[0]) / 2, rel=0.01)
    assert click("Earlier")[0] == pytest.approx(near[0], rel=0.01)
    assert click("Zoom out")[1] - whole[0] == pytest.approx(whole[1] - whole[0], rel=0.1)
    click("Zoom in")
    assert click("Show all") == pytest.approx(whole, rel=1e-6)


def test_keys_zoom_pan_and_go_from_interval_to_interval(open_page: Any, fence: Path) -> None:
    page = open_page(fence)
    whole = shown(page)
    press(page, "+", "+")
    near = shown(page)
    assert near[1] - near[0] < whole[1] - whole[0]
    press(page, "PageDown")
    assert shown(page)[0] > near[0]
    press(page, "0")
    assert shown(page) == pytest.approx(whole, rel=1e-6)
    press(page, "ArrowDown", "ArrowDown")  # past the findings: the first engine
    first = said(page)
    assert "Memcpy HtoD" in first
    press(page, "Home")
    press(page, "ArrowRight")
    second = said(page)
    press(page, "ArrowRight")
    assert said(page) != second
    assert "Memcpy" in said(page)
    assert "takes" in said(page)
    press(page, "ArrowDown")
    assert "work" in said(page)
    shown(page)
    assert page.locator("#lanes .gl-note").is_visible()
    press(page, "Enter")
    close = shown(page)
    assert close[1] - close[0] < 5e6
    press(page, "Escape")
    assert page.evaluate(f"{VIEW}.focused") == -1
    shown(page)
    assert page.locator("#lanes .gl-note").is_hidden()


def test_the_wheel_zooms_where_it_is_meant_to_and_else_the_page_scrolls(open_page: Any, fence: Path) -> None:
    page = open_page(fence, viewport={"width": 1100, "height": 500})
    whole = shown(page)
    box = page.locator("#lanes .gl-canvas").bounding_box()
    page.mouse.move(box["x"] + 600, box["y"] + 100)
    page.mouse.wheel(0, -300)
    assert shown(page) == whole  # it has not the focus
    page.keyboard.down("Control")
    page.mouse.wheel(0, -300)
    page.keyboard.up("Control")
    zoomed = shown(page)
    assert zoomed[1] - zoomed[0] < (whole[1] - whole[0]) / 2
    page.mouse.wheel(200, 0)
    assert shown(page)[0] > zoomed[0]
    press(page, "0")
    shown(page)
    page.mouse.wheel(0, -300)
    focused = shown(page)
    assert focused[1] - focused[0] < whole[1] - whole[0]


def test_the_mouse_drags_points_and_selects(open_page: Any, fence: Path, shots: Path) -> None:
    page = open_page(fence)
    press(page, "+", "+", "+")
    before = shown(page)
    box = page.locator("#lanes .gl-canvas").bounding_box()
    x, y = box["x"] + 700, box["y"] + 85

    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x - 200, y, steps=4)
    page.mouse.up()
    after = shown(page)
    assert after[0] > before[0]
    assert after[1] - after[0] == pytest.approx(before[1] - before[0])

    item = page.evaluate(f"""(() => {{
        const v = {VIEW}, lane = v.rows.find(row => row.lane?.label === "SM");
        const track = lane.lane.tracks[0], i = track.firstFrom(v.t0 + (v.t1 - v.t0) / 3);
        const x = v.gutter + (track.start(i) + track.length(i) / 2 - v.t0) / (v.t1 - v.t0) * (v.width - v.gutter);
        return [x, lane.y + lane.height / 2];
    }})()""")
    page.mouse.move(box["x"] + item[0], box["y"] + item[1])
    shown(page)
    note = page.locator("#lanes .gl-note")
    assert "work" in note.inner_text()
    assert "issued by" in note.inner_text()
    page.screenshot(path=shots / "report-hover.png")
    page.mouse.down()
    page.mouse.up()
    assert said(page).startswith("work")

    page.keyboard.down("Shift")
    page.mouse.down()
    page.mouse.move(box["x"] + item[0] + 100, box["y"] + item[1], steps=3)
    page.mouse.up()
    page.keyboard.up("Shift")
    selected = shown(page)
    assert selected[1] - selected[0] < (after[1] - after[0]) / 5


def test_two_fingers_zoom_and_one_pans(open_page: Any, fence: Path) -> None:
    page = open_page(fence, has_touch=True, viewport={"width": 390, "height": 800})
    whole = shown(page)
    page.evaluate("""() => {
        const canvas = document.querySelector("#lanes .gl-canvas"), box = canvas.getBoundingClientRect();
        canvas.setPointerCapture = () => {};
        const send = (type, id, x) => canvas.dispatchEvent(new PointerEvent(type, {
            pointerId: id, pointerType: "touch", isPrimary: id === 1, button: 0, buttons: 1, bubbles: true,
            clientX: box.left + x, clientY: box.top + 80,
        }));
        send("pointerdown", 1, 180); send("pointerdown", 2, 220);
        for (let by = 0; by <= 60; by += 10) { send("pointermove", 1, 180 - by); send("pointermove", 2, 220 + by); }
        send("pointerup", 1, 120); send("pointerup", 2, 280);
    }""")
    near = shown(page)
    assert near[1] - near[0] == pytest.approx((whole[1] - whole[0]) / 4, rel=0.05)
    page.evaluate("""() => {
        const canvas = document.querySelector("#lanes .gl-canvas"), box = canvas.getBoundingClientRect();
        const send = (type, x) => canvas.dispatchEvent(new PointerEvent(type, {
            pointerId: 1, pointerType: "touch", button: 0, buttons: 1, bubbles: true, clientX: box.left + x,
            clientY: box.top + 80,
        }));
        send("pointerdown", 300); send("pointermove", 250); send("pointermove", 200); send("pointerup", 200);
    }""")
    moved = shown(page)
    assert moved[0] > near[0]
    assert moved[1] - moved[0] == pytest.approx(near[1] - near[0])


def test_findings_jump_to_their_evidence_and_light_it_up(open_page: Any, fence: Path, shots: Path) -> None:
    page = open_page(fence)
    whole = shown(page)
    button = page.get_by_role("button", name="Show on the timeline")
    button.click()
    near = shown(page)
    assert near[1] - near[0] < (whole[1] - whole[0]) / 10
    assert button.get_attribute("aria-pressed") == "true"
    assert "of 64" in page.locator("[data-count='0']").inner_text()
    assert "fence 4 other streams" in said(page)
    page.screenshot(path=shots / "report-finding.png")
    lit = page.evaluate(f"{VIEW}.finding")
    assert lit == 0
    page.get_by_role("button", name="Next place of finding 1").click()
    assert shown(page)[0] > near[0]
    page.get_by_role("button", name="Previous place of finding 1").click()
    assert shown(page) == pytest.approx(near)
    button.click()
    assert page.evaluate(f"{VIEW}.finding") is None
    assert shown(page) == pytest.approx(whole)


def test_the_critical_path_lights_up(open_page: Any, fence: Path, shots: Path) -> None:
    page = open_page(fence)
    button = page.get_by_role("button", name="Critical path")
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    press(page, "+", "+", "+", "+")
    shown(page)
    page.screenshot(path=shots / "report-critical-path.png")
    press(page, "p")
    assert button.get_attribute("aria-pressed") == "false"


def test_groups_of_lanes_come_and_go(open_page: Any, fence: Path) -> None:
    page = open_page(fence)
    tall = page.locator("#lanes .gl-canvas").bounding_box()["height"]
    for group in ("Findings", "Engines", "Streams", "Host", "Ranges"):
        button = page.get_by_role("button", name=f"{group} lanes")
        button.click()
        assert button.get_attribute("aria-pressed") == "false"
        assert page.locator("#lanes .gl-canvas").bounding_box()["height"] < tall
        button.click()
        assert page.locator("#lanes .gl-canvas").bounding_box()["height"] == tall
    arrows = page.get_by_role("button", name="Arrows")
    arrows.click()
    assert arrows.get_attribute("aria-pressed") == "false"


def test_measured_stands_beside_predicted_to_one_scale(open_page: Any, training: Path, shots: Path) -> None:
    page = open_page(training)
    assert page.get_by_role("radio").count() == 3
    page.get_by_role("button", name="Compare with no-sync").click()
    assert page.get_by_role("radio", name="no-sync", exact=True).is_checked()
    assert page.locator("[data-repair='1']").is_visible()
    assert page.locator("[data-repair='0']").is_hidden()
    page.get_by_role("radio", name="pin, prefetch=1, no-sync").check()
    assert page.locator("[data-repair='2']").is_visible()
    page.locator(".comparison").screenshot(path=shots / "report-comparison.png")


def test_how_busy_a_predicted_engine_is_counts_until_the_predicted_run_is_done(open_page: Any, tmp_path: Path) -> None:
    """23.4 ms drawn to the scale of 63 ms: the link is full, not at the 36% that the blank behind makes of it."""
    path = tmp_path / "one.html"
    path.write_text(to_html(gapless.explain(EXAMPLES / "one-stream.json.gz")))
    page = open_page(path)
    page.evaluate("""() => {
        window.written = [];
        const write = CanvasRenderingContext2D.prototype.fillText;
        CanvasRenderingContext2D.prototype.fillText = function (...given) {
            written.push([this.canvas.closest("#predicted, #measured")?.id, given[0]]);
            return write.apply(this, given);
        };
    }""")
    page.set_viewport_size({"width": 1100, "height": 900})
    page.wait_for_function("written.some(([side]) => side === 'predicted')")
    figures = [(side, text) for side, text in page.evaluate("written") if re.fullmatch(r"\d+%", text)]
    assert ("measured", "31%") in figures
    assert ("predicted", "97%") in figures
    assert ("predicted", "36%") not in figures


def test_light_and_dark_by_the_system_and_by_the_switch(open_page: Any, fence: Path, shots: Path) -> None:
    page = open_page(fence, color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 27)"
    assert page.locator("#lanes .gl").get_attribute("data-theme") == "dark"
    page.screenshot(path=shots / "report-dark.png", full_page=True)
    button = page.get_by_role("button", name="Dark")
    assert button.get_attribute("aria-pressed") == "true"
    button.click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    shown(page)
    assert page.locator("#lanes .gl").get_attribute("data-theme") == "light"


@pytest.mark.parametrize("width", [320, 390, 768])
def test_it_fits_a_phone(open_page: Any, training: Path, shots: Path, width: int) -> None:
    page = open_page(training, viewport={"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.screenshot(path=shots / f"report-{width}.png", full_page=True)


def test_on_paper_it_is_light_and_without_controls(open_page: Any, fence: Path, shots: Path) -> None:
    page = open_page(fence, color_scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    shown(page)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.locator("#lanes .gl").get_attribute("data-theme") == "light"
    assert page.get_by_role("toolbar").count() == 0
    page.pdf(path=shots / "report.pdf", format="A4")
    assert (shots / "report.pdf").stat().st_size > 20_000
    page.screenshot(path=shots / "report-print.png", full_page=True)


def test_a_browser_that_cannot_draw_says_so(browser: Any, fence: Path) -> None:
    page = browser.new_page()
    page.add_init_script("delete globalThis.DecompressionStream")
    page.goto(fence.as_uri())
    page.get_by_text("The lanes cannot be drawn in this browser: DecompressionStream is not defined").wait_for()
    page.close()


HOSTILE = [
    "<script>globalThis.harmed=1</script>",
    '"><img src=x onerror="globalThis.harmed=1">',
    "</script><script>globalThis.harmed=1</script>",
    "<!--<script>",
    "\u2028\u2029\u202egnp.exe\u0000\u0007\ud800",
    "javascript:globalThis.harmed=1",
    "${globalThis.harmed=1}{{1+1}}",
    "name" * 5_000,
]


def test_names_that_mean_harm_are_text(open_page: Any, tmp_path: Path, shots: Path) -> None:
    """Every name in the trace, and the file's own, is markup: it is shown as written, and nothing of it runs."""
    trace = json.loads(gzip.decompress((EXAMPLES / "forgotten-default-stream-copy.json.gz").read_bytes()))
    names = itertools.cycle(HOSTILE)
    for event in trace["traceEvents"]:
        if event.get("cat") in ("kernel", "cpu_op", "user_annotation"):
            event["name"] = next(names)
        if event.get("name") in ("process_name", "thread_name"):
            event["args"]["name"] = HOSTILE[1]
    trace["deviceProperties"][0]["name"] = HOSTILE[2]
    path = tmp_path / "a<script>globalThis.harmed=1<!script>.json"
    path.write_text(json.dumps(trace))
    target = tmp_path / "hostile.html"
    target.write_text(to_html(gapless.explain(path)))
    page = open_page(target)
    assert page.locator("script").count() == 2  # the data and the page's own
    assert page.locator("img").count() == 0
    assert HOSTILE[2] in page.locator("header").inner_text()
    press(page, "ArrowDown", "ArrowDown", "ArrowDown", "Home")
    heard = []
    for _ in range(len(HOSTILE)):
        heard.append(said(page))
        shown(page)
        note = page.locator("#lanes .gl-note")
        assert note.locator("script, img").count() == 0
        page.keyboard.press("ArrowRight")
    assert any(HOSTILE[0] in text for text in heard)
    assert any(HOSTILE[1] in text for text in heard)
    assert any("\\u2028\\u2029\\u202e" in text for text in heard)
    assert page.evaluate("globalThis.harmed") is None
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    page.screenshot(path=shots / "report-hostile.png", full_page=True)
