"""The lab as a user meets it: a real server, a real browser."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from gapless.lab.presets import lesson

EXAMPLES = Path(__file__).parents[2] / "examples"
POINTS = lesson()
expect.set_options(timeout=20_000)  # the machine may have more to do


DRAWN = "body[data-drawn]"


@pytest.fixture(scope="session")
def lab() -> Iterator[str]:
    """Start the lab on a free port; give its address."""
    command = [sys.executable, "-m", "gapless", "lab", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found
        yield found[0]
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0


@pytest.fixture
def show(open_page, lab) -> Callable[..., Page]:
    """Give a function that opens a state of the lab and waits until it is drawn."""

    def show(state: str, **options) -> Page:
        return open_page(f"{lab}#{state}", ready=DRAWN, **options)

    return show


@pytest.fixture
def keep(shots) -> Callable[..., None]:
    """Give a function that keeps a picture of a page, or of a part of it."""
    return lambda shown, name, **options: shown.screenshot(path=shots / f"lab-{name}.png", **options)


def drawn(page: Page) -> None:
    page.wait_for_selector(DRAWN, state="attached")


def doing(page: Page, does) -> None:
    """Do something that changes the state, and wait until the new one is drawn."""
    page.evaluate("() => { delete document.body.dataset.drawn }")
    does()
    drawn(page)


def wall(page: Page) -> str:
    return page.locator("#numbers .this .time").inner_text()


def tape(page: Page):
    page.get_by_role("tab", name="Tape").click()
    return page.get_by_role("textbox", name="Tape")


def paste(page: Page, text: str) -> None:
    """Put much text into the editor at once."""
    page.evaluate(
        """text => {
          const field = document.querySelector("textarea");
          field.value = text;
          field.dispatchEvent(new Event("input"));
        }""",
        text,
    )


def go(page: Page, state: str) -> None:
    """Follow a link to another state."""
    doing(page, lambda: page.evaluate("state => { location.hash = state }", state))


# Presets


@pytest.mark.parametrize("point", POINTS, ids=[re.sub(r"\W+", "-", point.title) for point in POINTS])
def test_every_preset_is_a_link_and_shows_itself(show, keep, point):
    page = show("loop&streams=2")
    for preset in point.presets:
        doing(page, lambda slug=preset.slug: page.locator(f'#points a[data-slug="{slug}"]').click())
        expect(page.locator("#title")).to_have_text(preset.title)
        expect(page.locator("#why")).to_have_text(" ".join(preset.why.split()))
        assert page.url.endswith(f"#preset={preset.slug}")
        expect(page.locator('#points a[aria-current="page"]')).to_have_text(preset.title)
        if preset.beside:
            expect(page.locator("#cards canvas.gl-canvas")).to_have_count(len(preset.beside))
        else:
            expect(page.locator("#numbers li")).to_have_count(3)
            expect(page.locator("#problem")).to_be_empty()
            assert page.locator("#told .bad .sign").count() == 0  # no expectation fails
        keep(page, f"{preset.slug}")


@pytest.mark.parametrize("slug", ["forgotten-copy", "pinned-one-stream"])
def test_the_picture_alone_says_why(show, keep, slug):
    page = show(f"preset={slug}")
    words = page.locator(".over .gap").all_inner_texts()
    said = "default stream" if slug == "forgotten-copy" else "stream order"
    assert words.count(said) >= 3
    assert page.locator(".over .mark").all_inner_texts() == ["3N", "N+2"]
    assert page.locator(".over .issued").all_inner_texts() == ["▾ 12 operations issued"]
    legend = page.locator("#stage .legend li").all_inner_texts()
    assert legend[-2:] == ["3N: serial time", "N+2: pipelined time"]
    assert any("waits for its start (out0 waits for k0)" in line for line in legend) == (slug == "forgotten-copy")
    expect(page.locator("#told li").first).to_contain_text("6.00 ms in 3 gaps")
    expect(page.locator("#told li").first).to_contain_text("for example, in1 waits for out0")
    expect(page.locator("#told li").nth(1)).not_to_contain_text("gaps")
    keep(page, f"{slug}")
    keep(page.locator("#stage"), f"{slug}-lanes")


def test_the_four_accidents_lead_on(show):
    page = show("preset=four-accidents")
    doing(page, page.locator("#cards a").first.click)
    expect(page.locator("#title")).to_have_text("One forgotten default-stream copy")


# Controls


def test_controls_change_the_loop_and_the_link(show):
    page = show("preset=forgotten-copy")
    assert wall(page) == "12.0 ms"
    doing(page, lambda: page.get_by_label("non-blocking", exact=True).check())
    assert wall(page) == "6.00 ms"
    expect(page.locator("#changed-said")).to_have_text("You changed “One forgotten default-stream copy”.")
    assert "nonblocking=1" in page.url
    doing(page, lambda: page.get_by_role("slider", name="Chunks").fill("8"))
    assert wall(page) == "10.0 ms"
    assert page.locator("#numbers li").nth(0).inner_text().split("\n")[:3] == ["serial", "3N", "24.0 ms"]
    doing(page, page.go_back)
    assert wall(page) == "12.0 ms"
    expect(page.locator("#title")).to_have_text("One forgotten default-stream copy")


CONTROLS = [
    ("Host memory", "pageable", "3N", "12.0 ms"),
    ("On the default stream", "copy out", "3N", "12.0 ms"),
    ("On the default stream", "kernel", "2N+1", "9.00 ms"),
    ("Host waits after each chunk", "device", "3N", "12.0 ms"),
    ("Host waits after each chunk", "stream", "3N", "12.0 ms"),
    ("Host waits after each chunk", "event", "N+2", "6.00 ms"),
    ("Host waits after each chunk", "query", "N+2", "6.00 ms"),
    ("Memory for each chunk", "cudaMalloc", "3N", "12.0 ms"),
    ("Memory for each chunk", "pool", "N+2", "6.00 ms"),
    ("Copy engines", "one", "2N", "8.00 ms"),
    ("Urgent request beside it", "high priority", "", "6.25 ms"),
    ("The other streams", "per-thread default", "N+2", "6.00 ms"),
    ("Machine", "H200", "", None),
]


def test_each_control(show):
    page = show("loop")
    for name, choice, reads, time in CONTROLS:
        go(page, "loop&streams=4")
        assert wall(page) == "6.00 ms"
        group = page.get_by_role("radiogroup", name=name)
        doing(page, group.get_by_label(choice, exact=True).check)
        assert (name, choice, page.locator("#numbers .this .reads").inner_text()) == (name, choice, reads)
        assert wall(page) == time if time else wall(page) != "6.00 ms"
        go(page, "preset=forgotten-copy")


def test_streams_and_balance_by_keyboard(show):
    page = show("loop&streams=1")
    times = [wall(page)]
    page.get_by_role("slider", name="Streams").focus()
    for _ in range(3):
        doing(page, lambda: page.keyboard.press("ArrowRight"))
        times.append(wall(page))
    assert times == ["12.0 ms", "7.00 ms", "6.00 ms", "6.00 ms"]
    page.get_by_role("slider", name="Kernel").focus()
    doing(page, lambda: page.keyboard.press("End"))
    assert wall(page) == "18.0 ms"  # 4 kernels of 4 ms, a copy in, a copy out
    expect(page.get_by_role("slider", name="Kernel")).to_have_attribute("aria-valuetext", "4 ms")


# The editor


def test_errors_while_typing(show, keep):
    page = show("preset=three-streams")
    field = tape(page)
    doing(page, lambda: field.fill("stream copies nonblocking\nkernle k on copies 1ms\n"))
    problem = page.locator("#problem")
    expect(problem).to_contain_text("Line 2, column 1: no statement begins with 'kernle'")
    expect(page.locator(".ed-code .wrong")).to_have_text("kernle")
    expect(page.locator(".ed-gutter .error")).to_have_text("✕2")
    expect(page.locator("#stale")).to_be_visible()
    keep(page, "editor-error")
    doing(page, lambda: problem.get_by_role("button", name="Write kernel").click())
    expect(problem).to_be_empty()
    assert field.input_value() == "stream copies nonblocking\nkernel k on copies 1ms\n"
    assert wall(page) == "1.00 ms"
    doing(page, lambda: page.keyboard.press("ControlOrMeta+z"))
    expect(problem).to_contain_text("kernle")


def test_races_and_expectations_while_typing(show, keep):
    page = show("preset=event-order")
    field = tape(page)
    text = field.input_value()
    doing(page, lambda: field.fill(text.replace("wait   arrived on work\n", "")))
    expect(page.locator("#told h3").first).to_have_text("Races: 1 race")
    assert page.locator(".ed-gutter .race").all_text_contents() == ["!4", "!6"]
    assert page.locator(".ed-gutter .fails").count() == 3
    expect(page.locator(".over .racing")).to_have_count(2)
    expect(page.locator("#told")).to_contain_text("3 of 4 expectations fail")
    keep(page, "editor-race")
    page.locator("#told li.bad .link").first.click()
    assert field.evaluate("field => field.value.slice(0, field.selectionStart).split('\\n').length") == 4
    doing(page, lambda: field.fill(text))
    expect(page.locator("#told")).not_to_contain_text("Races")


def test_a_race_is_repaired_with_what_is_told(show):
    page = show("preset=event-forgotten")
    field = tape(page)
    lines = field.input_value().split("\n")
    lines[3:3] = ["record e on copies", "wait e on work"]
    doing(page, lambda: field.fill("\n".join(lines).replace("expect overlap", "# ").replace("expect race", "# ")))
    expect(page.locator("#told")).not_to_contain_text("Race")


def test_huge_and_endless_tapes(show):
    page = show("preset=one-stream")
    field = tape(page)
    doing(page, lambda: field.fill("repeat 1000000000\n query default\nend"))
    expect(page.locator("#problem")).to_contain_text("more than 20,000 lines")
    many = "".join(f"kernel k{i} on default 1us\n" for i in range(3000))
    doing(page, lambda: paste(page, many))
    expect(page.locator("#problem")).to_be_empty()
    assert wall(page) == "3.00 ms"
    expect(page.locator("#more")).to_be_visible()
    doing(page, lambda: paste(page, "# " + "x" * 300_000))
    expect(page.locator("#problem")).to_contain_text("longer than 256 Ki characters")


def test_markup_is_text(show):
    page = show("preset=one-stream")
    field = tape(page)
    evil = "<img src=x onerror=alert(1)><script>alert(2)</script>"
    doing(page, lambda: field.fill(f"# {evil}\nkernel {evil} on default 1ms\n"))
    expect(page.locator("#problem")).to_contain_text("<img")
    assert page.locator("img, body > script, pre script").count() == 0
    assert evil in page.locator(".ed-code").inner_text()


# Links, saving


def test_a_tape_is_a_link(show):
    page = show("preset=one-stream")
    text = "stream s nonblocking\nkernel käse on s 1ms # µ, 日本\n".replace("käse", "k")
    doing(page, lambda: tape(page).fill(text))
    page.wait_for_url(re.compile("#tape="))
    other = show(page.url.split("#")[1])
    assert other.get_by_role("textbox", name="Tape").input_value() == text
    assert wall(other) == "1.00 ms"


def test_the_link_is_copied_and_the_tape_saved(show, tmp_path):
    page = show("preset=forgotten-copy", permissions=["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy link").click()
    expect(page.locator("#status")).to_contain_text("Link copied")
    assert page.evaluate("() => navigator.clipboard.readText()") == page.url
    with page.expect_download() as download:
        page.get_by_role("button", name="Save tape").click()
    assert download.value.suggested_filename == "forgotten-copy.tape"
    assert "on default 1ms" in Path(download.value.path()).read_text()


HOSTILE = [
    ("tape=%%%", "damaged"),
    ("tape=AAAA", "damaged"),
    ("preset=<script>alert(1)</script>", "no preset"),
    ("preset=__proto__", "no preset"),
    ("nonsense", "no state of the lab"),
    ("loop&chunks=1e9", ""),
    ("loop&h2d=<img src=x onerror=alert(1)>", ""),
    ("loop&machine=%22/etc/passwd%22", ""),
    ("loop&wait=x&t=-5", ""),
    ("tape=&t=NaN", ""),
]


def test_hostile_links(show):
    page = show("loop")
    for state, said in HOSTILE:
        go(page, state)
        if said:
            expect(page.locator("#status")).to_contain_text(said)
        assert page.locator("main img, main script").count() == 0
        go(page, "loop")


def test_a_link_that_unfolds_to_a_flood_is_refused(show):
    import base64
    import zlib

    squeeze = zlib.compressobj(9, zlib.DEFLATED, -15)
    flood = squeeze.compress(b" " * 200_000_000) + squeeze.flush()
    page = show("tape=" + base64.urlsafe_b64encode(flood).decode().rstrip("="))
    expect(page.locator("#status")).to_contain_text("longer than the lab plays")


# Play, step, scrub


def test_step_and_scrub(show, keep):
    page = show("preset=three-streams")
    now = page.locator("#now")
    expect(now).to_be_hidden()
    page.get_by_role("button", name="To the start").click()
    expect(now).to_contain_text("in0 (stream s0)")
    page.get_by_role("button", name="One step on").click()
    expect(page.locator("#clock")).to_have_text("1.00 ms of 6.00 ms")
    expect(now).to_contain_text("k0 (stream s0)")
    expect(now).to_contain_text("idle: out0 waits for k0")
    page.get_by_role("slider", name="Time").focus()
    page.keyboard.press("ArrowRight")
    expect(now).to_contain_text("out0 (stream s0)")
    keep(page, "playhead")
    page.wait_for_url(re.compile("t=2000000"))
    assert page.locator(".ed-gutter .lit").count() == 3  # the lines of what runs now
    page.reload()
    drawn(page)
    expect(page.locator("#clock")).to_have_text("2.00 ms of 6.00 ms")
    page.get_by_role("slider", name="Time").focus()
    page.keyboard.press("End")
    expect(now).to_be_hidden()
    page.keyboard.press("Home")
    expect(page.locator("#clock")).to_have_text("0 ms of 6.00 ms")


def test_play_runs_to_the_end_and_stops(show):
    page = show("preset=one-stream", reduced_motion="no-preference")
    page.clock.install(time=0)
    page.clock.pause_at(1000)
    page.get_by_role("button", name="Play", exact=True).click()
    page.clock.run_for(3000)
    clock = page.locator("#clock")
    expect(clock).to_have_text(re.compile(r"^[56]\.\d+ ms of 12\.0 ms$"))
    page.get_by_role("button", name="Stop", exact=True).click()
    there = clock.inner_text()
    page.clock.run_for(3000)
    expect(clock).to_have_text(there)
    page.get_by_role("slider", name="Time").press(" ")
    page.clock.run_for(8000)
    expect(clock).to_have_text("12.0 ms")
    expect(page.get_by_role("button", name="Play", exact=True)).to_be_visible()


def test_without_motion_it_plays_step_by_step(show):
    page = show("preset=three-streams")
    page.clock.install(time=0)
    page.clock.pause_at(1000)
    page.get_by_role("button", name="Play", exact=True).click()
    expect(page.locator("#clock")).to_have_text("0 ms of 6.00 ms")
    page.clock.run_for(750)
    expect(page.locator("#clock")).to_have_text("1.00 ms of 6.00 ms")


# Files


def drop(page: Page, path: Path, name: str | None = None) -> None:
    import base64

    page.evaluate(
        """([data, name]) => {
          const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
          const transfer = new DataTransfer();
          transfer.items.add(new File([bytes], name));
          for (const type of ["dragenter", "dragover", "drop"])
            document.body.dispatchEvent(
              new DragEvent(type, { dataTransfer: transfer, bubbles: true, cancelable: true }));
        }""",
        [base64.b64encode(path.read_bytes()).decode(), name or path.name],
    )


def test_a_tape_is_dropped(show):
    page = show("preset=one-stream")
    doing(page, lambda: drop(page, EXAMPLES / "tapes" / "26-accident-allocation-in-loop.tape"))
    expect(page.locator("#drop")).to_be_hidden()
    assert wall(page) == "12.0 ms"
    expect(page.get_by_role("textbox", name="Tape")).to_be_visible()


@pytest.mark.parametrize("name", [None, "<img src=x onerror=alert(1)>.json.gz"])
def test_a_timeline_is_dropped(show, keep, name):
    page = show("preset=one-stream")
    drop(page, EXAMPLES / "timelines" / "forgotten-default-stream-copy.json.gz", name)
    frame = page.frame_locator("#explained-page")
    expect(page.locator("#explained-said")).to_contain_text("deleted already", timeout=60_000)
    expect(frame.locator("body")).to_contain_text("default-stream-barrier", timeout=30_000)
    expect(page.locator("#explained-name")).to_have_text(name or "forgotten-default-stream-copy.json.gz")
    assert page.locator("main img").count() == 0
    keep(page, "explained")
    page.get_by_role("button", name="Back to the lab").click()
    expect(page.locator("#lanes canvas.gl-canvas")).to_be_visible()


def test_what_is_neither_is_said(show, tmp_path):
    page = show("preset=one-stream")
    path = tmp_path / "noise.bin"
    path.write_bytes(bytes(range(256)) * 100)
    page.get_by_label("A tape or a timeline").set_input_files(path)
    expect(page.locator("#explained-said")).to_contain_text("noise.bin", timeout=30_000)


# For everyone


PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True}


@pytest.mark.parametrize(
    ("slug", "name", "options"),
    [
        ("event-forgotten", "dark", {"color_scheme": "dark"}),
        ("forgotten-copy", "phone", PHONE),
        ("event-forgotten", "phone-dark", PHONE | {"color_scheme": "dark"}),
        ("pinned-one-stream", "tablet", {"viewport": {"width": 1024, "height": 768}}),
    ],
)
def test_other_screens(show, keep, slug, name, options):
    page = show(f"preset={slug}", **options)
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    keep(page, f"{slug}-{name}", full_page=True)


def test_every_control_has_a_name_and_the_focus_shows(show):
    page = show("preset=forgotten-copy")
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("button, input, textarea, a[href], [role=tab], [tabindex='0']")]
          .filter((one) => one.offsetParent)
          .filter((one) => !(one.getAttribute("aria-label") || one.labels?.length || one.textContent.trim()))
          .map((one) => one.outerHTML)"""
    )
    assert nameless == []
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("#stage")).to_be_focused()
    assert page.url.endswith("#preset=forgotten-copy")


def test_the_server_gone_is_said(show):
    page = show("preset=one-stream")
    page.route("**/play", lambda route: route.fulfill(body="gone"))
    page.get_by_role("slider", name="Chunks").fill("6")
    expect(page.locator("#status")).to_contain_text("Start it again: gapless lab")
