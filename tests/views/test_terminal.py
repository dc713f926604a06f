from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from inline_snapshot import snapshot
from rich.console import Console

import gapless
from gapless.diagnosis.report import EngineUse, Finding, Prediction, Repair, Replay, Report, StepTimes, Where
from gapless.timeline.timeline import Timeline, Unknown
from gapless.views import register
from gapless.views.terminal import draw, draw_page, draw_summaries, summarise, to_text


def console(width=80, **options):
    file = options.pop("file", io.StringIO())
    return Console(file=file, width=width, legacy_windows=False, _environ={}, **options)


def drawn(report, **options):
    on = console(**options)
    with on.capture() as capture:
        for line in draw(report, on, on.options):
            on.print(line, soft_wrap=True)
    return capture.get()


def lines(text):
    assert all(line == line.rstrip() for line in text.splitlines()), "no spaces at the end of a line"
    return "\n" + text.strip("\n") + "\n"


def test_a_short_run(short):
    assert lines(to_text(short, width=80)) == snapshot("""\

loop.json.gz  NVIDIA H200, 12.8 ms

Each engine works a third of the time and none while another does.

                                                         busy   moved       rate
H2D ████         ████         ████         ████           31%  200 MB  50.0 GB/s
SM      ████         ████         ████         ████       31%
D2H         ████         ████         ████         ████   31%  200 MB  50.0 GB/s
1               ▔            ▔            ▔
ms  ╵0                  ╵5                  ╵10            0%  overlapped

1   The host waits for every chunk ×4                        costs 750 µs (5.9%)
    After each of 4 chunks the host waits in cudaDeviceSynchronize and launches
    late.
    at   loop.cu:41 main ×3
         loop.cu:60 main
    do   no-sync (likely): Wait for an event where the result is read.
    if   nothing on the host reads the result

◆   The link carries all it can                             binds 1.00 ms (7.8%)
    Both ways run at 50 GB/s.
    do   Move fewer bytes.

Also
• The first 2 chunks warm up.

This timeline cannot tell
• Which events streams wait for.
• Which memory is pinned. Record with events.

more: gapless explain --cause host-synchronize
""")


def test_a_long_run_is_enlarged(long):
    assert lines(to_text(long, width=100)) == snapshot("""\

loop.json.gz  NVIDIA H200, 650 ms

Each engine works a third of the time and none while another does.

                                                                            busy    moved       rate
H2D ▃▃▃▃▃▂▂▃▃▃▃▂▂▂▃▃▃▃▂▂▂▃▃▃▃▂▂▂▃▃▃▃▂▂▂▃▃▃▃▂▂▂▃▃▃▃▂▂▂▃▃▃▃▂▂▂▃▃▃▃▂▂▂▃▃▃▃▂▂▂   31%  10.0 GB  50.0 GB/s
SM  ▃▃▂▂▂▃▃▃▃▂▂▂▃▃▃▃▂▂▂▃▃▃▃▂▂▂▃▃▃▃▂▂▂▃▃▃▃▂▂▂▃▃▃▃▂▂▂▃▃▃▃▂▂▂▃▃▃▃▂▂▂▃▃▃▃▂▂▂▃▃   31%
D2H ▂▂▂▃▃▃▃▂▂▂▃▃▃▃▂▂▂▃▃▃▃▂▂▂▃▃▃▃▂▂▂▃▃▃▃▂▂▂▃▃▃▃▂▂▂▃▃▃▃▂▂▂▃▃▃▃▂▂▂▃▃▃▃▂▂▃▃▃▃▃   31%  10.0 GB  50.0 GB/s
ms  ╵0                   ╵200                  ╵400                 ╵600      0%  overlapped

    36.8 ms of it enlarged
H2D ██▅     ▄██▁    ▁██▅     ▄██▁    ▁██▅     ▄██▁    ▁██▄     ▅██▁    ▁██▄     ▅██▁    ▁██▄     ▅██
SM    ▃██▂     ▇█▆     ▃██▂     ▇█▆     ▃██▁     ██▅     ▄██▁     ██▅     ▄██▁     ██▅     ▄██▁
D2H      ▆█▇     ▂██▃     ▆█▇     ▂██▂     ▇█▆     ▃██▂     ▇█▆     ▃██▂     ▇█▆     ▃██▂     ▇█▆
1          ▔▔       ▔       ▔▔       ▔       ▔▔       ▔       ▔▔       ▔       ▔▔       ▔       ▔▔
ms             ╵310         ╵315         ╵320         ╵325          ╵330         ╵335         ╵340

1   The host waits for every chunk ×200                                         costs 49.8 ms (7.7%)
    After each of 200 chunks the host waits in cudaDeviceSynchronize and launches late.
    at   loop.cu:41 main ×199
         loop.cu:60 main
    do   no-sync (likely): Wait for an event where the result is read.
    if   nothing on the host reads the result

◆   The link carries all it can                                                 binds 1.00 ms (0.2%)
    Both ways run at 50 GB/s.
    do   Move fewer bytes.

Also
• The first 2 chunks warm up.

This timeline cannot tell
• Which events streams wait for.
• Which memory is pinned. Record with events.

more: gapless explain --cause host-synchronize
""")


def test_narrow(short):
    text = to_text(short, width=40)
    assert lines(text) == snapshot("""\

loop.json.gz  NVIDIA H200, 12.8 ms

Each engine works a third of the time
and none while another does.

                                    busy
H2D ██▃    ▃██     ▆█▅    ▁██▂       31%
SM    ▅█▆     ██▃    ▃██     ▆█▅     31%
D2H     ▂██▁    ▅█▆     ██▃    ▃██   31%
1          ▔      ▔▔      ▔
ms  ╵0         ╵5          ╵10

1   The host waits for every chunk ×4
    costs 750 µs (5.9%)
    After each of 4 chunks the host
    waits in cudaDeviceSynchronize and
    launches late.
    at   loop.cu:41 main ×3
         loop.cu:60 main
    do   no-sync (likely): Wait for an
         event where the result is read.
    if   nothing on the host reads the
         result

◆   The link carries all it can
    binds 1.00 ms (7.8%)
    Both ways run at 50 GB/s.
    do   Move fewer bytes.

Also
• The first 2 chunks warm up.

This timeline cannot tell
• Which events streams wait for.
• Which memory is pinned. Record with
  events.

more:
gapless explain --cause host-synchronize
""")


def test_ascii(short):
    latin = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    text = drawn(short, file=latin)
    assert lines(text) == snapshot("""\

loop.json.gz  NVIDIA H200, 12.8 ms

Each engine works a third of the time and none while another does.

                                                         busy   moved       rate
H2D @@@@         @@@@         @@@@         @@@@           31%  200 MB  50.0 GB/s
SM      @@@@         @@@@         @@@@         @@@@       31%
D2H         @@@@         @@@@         @@@@         @@@@   31%  200 MB  50.0 GB/s
1               ^            ^            ^
ms  |0                  |5                  |10            0%  overlapped

1   The host waits for every chunk x4                        costs 750 us (5.9%)
    After each of 4 chunks the host waits in cudaDeviceSynchronize and launches
    late.
    at   loop.cu:41 main x3
         loop.cu:60 main
    do   no-sync (likely): Wait for an event where the result is read.
    if   nothing on the host reads the result

*   The link carries all it can                             binds 1.00 ms (7.8%)
    Both ways run at 50 GB/s.
    do   Move fewer bytes.

Also
- The first 2 chunks warm up.

This timeline cannot tell
- Which events streams wait for.
- Which memory is pinned. Record with events.

more: gapless explain --cause host-synchronize
""")
    text.encode("ascii")


@pytest.mark.parametrize("width", [20, 24, 40, 60, 80, 119, 200, 400])
def test_no_line_is_wider_than_the_terminal(short, long, width):
    for report in (short, long):
        assert max(map(len, to_text(report, width=width).splitlines())) <= width


def test_everything_that_a_report_can_say(short):
    finding = replace(short.findings[0], wall_ms=11.0, speedup=1.16, low=1.12, high=1.19)
    useless = replace(short.findings[0], title="A second host wait", speedup=1.0, wall_ms=12.75, where=(), repair=None)
    report = replace(
        short,
        findings=(finding, useless),
        steps=StepTimes(count=4, median_ms=3.25, p95_ms=3.3, slowest="ProfilerStep#2", slowest_ms=3.31),
        replay=Replay(wall_ms=12.7, error=-0.004),
        together=Prediction(repairs=("no-sync", "streams=4"), wall_ms=6.2, speedup=2.06),
        prediction=Prediction(repairs=("streams=4",), wall_ms=6.4, speedup=1.99, low=1.9, high=2.1),
        lost=("The file is cut short: used what comes before.",),
    )
    assert lines(to_text(report, width=80)) == snapshot("""\

loop.json.gz  NVIDIA H200, 12.8 ms

Each engine works a third of the time and none while another does.
4 steps: median 3.25 ms, slowest ProfilerStep#2 3.31 ms.

                                                         busy   moved       rate
H2D ████         ████         ████         ████           31%  200 MB  50.0 GB/s
SM      ████         ████         ████         ████       31%
D2H         ████         ████         ████         ████   31%  200 MB  50.0 GB/s
1               ▔            ▔            ▔
ms  ╵0                  ╵5                  ╵10            0%  overlapped

1   The host waits for every chunk ×4                1.16× faster (1.12 to 1.19)
    After each of 4 chunks the host waits in cudaDeviceSynchronize and launches
    late.
    at   loop.cu:41 main ×3
         loop.cu:60 main
    do   no-sync (likely): Wait for an event where the result is read.
    if   nothing on the host reads the result
    then 11.0 ms instead of 12.8 ms

2   A second host wait ×4                                        no gain (1.00×)
    After each of 4 chunks the host waits in cudaDeviceSynchronize and launches
    late.
    do   Wait for an event where the result is read.
    then 12.8 ms instead of 12.8 ms

Asked for: streams=4: 6.40 ms, 1.99× faster (1.90 to 2.10)
All together: no-sync, streams=4: 6.20 ms, 2.06× faster
Replayed unchanged, the device's work takes 12.7 ms, 0.4% less than was
measured. A prediction is less sure than that; its range says by how much.

Also
• The first 2 chunks warm up.

This timeline cannot tell
• Which events streams wait for.
• Which memory is pinned. Record with events.

Damaged, and left out
• The file is cut short: used what comes before.

more: gapless explain --cause host-synchronize
""")


def test_what_costs_next_to_nothing_is_told_in_a_line(short):
    first, verdict = short.findings
    small = replace(first, title="A small cost", count=1, cost_ms=0.01)
    none = replace(first, title="No cost at all", count=1, cost_ms=0.0)
    repaired = replace(small, title="A small cost with a known gain", wall_ms=11.0, speedup=1.16)
    text = to_text(replace(short, findings=(first, small, none, repaired, verdict)), width=80)
    assert lines(text[text.index("2   A small") : text.index("Also")]) == snapshot("""\

2   A small cost                                           costs 10.0 µs (<0.1%)
3   No cost at all                                                 costs nothing

4   A small cost with a known gain                                  1.16× faster
    After each of 4 chunks the host waits in cudaDeviceSynchronize and launches
    late.
    at   loop.cu:41 main ×3
         loop.cu:60 main
    do   no-sync (likely): Wait for an event where the result is read.
    if   nothing on the host reads the result
    then 11.0 ms instead of 12.8 ms

◆   The link carries all it can                             binds 1.00 ms (7.8%)
    Both ways run at 50 GB/s.
    do   Move fewer bytes.
""")
    alone = to_text(replace(short, findings=(none,)), width=80)
    assert none.evidence.split()[0] in alone


def test_a_repair_that_gains_nothing_is_not_advised(short):
    idle = replace(short.findings[0], wall_ms=12.8, speedup=1.001, low=0.9, high=1.1)
    text = to_text(replace(short, findings=(idle,)), width=80)
    assert "no gain (1.00×)" in text
    assert "do   nothing: no-sync alone would not make this run faster.\n" in text
    assert "if   " not in text
    assert "then " not in text
    part = Prediction(repairs=("no-sync", "streams=4"), wall_ms=6.2, speedup=2.06)
    assert "do   no-sync (likely)" in to_text(replace(short, findings=(idle,), together=part), width=80)


def test_times_without_the_profiler_are_compared_with_each_other(short):
    finding = replace(short.findings[0], wall_ms=8.0, speedup=1.25, low=1.2, high=1.3)
    report = replace(short, findings=(finding,), replay=Replay(wall_ms=12.8, error=-0.00001, untraced_ms=10.0))
    text = " ".join(to_text(report, width=80).split())
    assert "then 8.00 ms instead of 10.0 ms, without the profiler" in text
    assert "takes 12.8 ms, as was measured. A prediction is less sure" in text
    assert (
        "Gains are counted from 10.0 ms: the replay from the first call to the return of the last, without the "
        "profiler's own cost."
    ) in text
    longer = replace(report, replay=Replay(wall_ms=12.8, error=0.002, untraced_ms=14.0))
    text = " ".join(to_text(longer, width=80).split())
    assert "profiler" not in text
    assert "then 8.00 ms instead of 14.0 ms, replayed unchanged" in text
    assert "takes 12.8 ms, 0.2% more than was measured." in text
    assert "Gains are counted from 14.0 ms: the replay from the first call to the return of the last." in text
    unknown = replace(report, replay=Replay(wall_ms=12.8, error=0.0, untraced_ms=12.0, taken_out=False))
    assert "profiler" not in to_text(unknown, width=80)
    nothing = replace(report, findings=(), replay=Replay(wall_ms=12.8, error=0.0))
    assert "A prediction" not in to_text(nothing, width=80)


def test_repairs_that_no_finding_proposes_are_told_apart(short):
    beside = {"prefetch=1": "the next input is copied ahead"}
    together = Prediction(repairs=("no-sync", "prefetch=1"), wall_ms=6.2, speedup=2.06, beside=beside)
    text = " ".join(to_text(replace(short, together=together), width=80).split())
    assert (
        "All together: no-sync, prefetch=1: 6.20 ms, 2.06× faster. No finding proposes prefetch=1; beside the others "
        "it pays: the next input is copied ahead. "
    ) in text + " "


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (1, "One step: epoch 8.00 ms."),
        (19, "19 steps: median 3.00 ms, slowest epoch 8.00 ms."),
        (2000, "2,000 steps: median 3.00 ms, 19 of 20 within 4.00 ms, slowest epoch 8.00 ms."),
    ],
)
def test_steps(short, count, words):
    steps = StepTimes(count=count, median_ms=3, p95_ms=4, slowest="epoch", slowest_ms=8)
    assert to_text(replace(short, steps=steps), width=120).splitlines()[3] == words


def test_a_report_about_nothing():
    report = Report(
        source="empty.json",
        device="device 0",
        wall_ms=0.0,
        engines={},
        overlapped=0.0,
        headline="There is no GPU work.",
    )
    assert lines(to_text(report, width=80)) == snapshot("""\

empty.json  device 0, 0 ms

There is no GPU work.
""")


HOSTILE = "[bold]x[/bold] [link=http://a]\x1b[31mred\x07 :smile: \u202e" + "k" * 500


def test_text_of_a_timeline_is_never_interpreted():
    report = Report(
        source=HOSTILE,
        device=HOSTILE,
        wall_ms=1.0,
        engines={},
        overlapped=0.0,
        headline=HOSTILE,
        findings=(
            Finding(
                cause="host-bound", title=HOSTILE, cost_ms=0.5, count=2, evidence=HOSTILE, advice="Do.",
                where=(Where(file=HOSTILE, line=3, function=HOSTILE),),
                repair=Repair(name="x", grade="sure", precondition="x"),
            ),
        ),
        notes=(HOSTILE,),
        lost=(HOSTILE,),
        unknown=(Unknown(what="x", text=HOSTILE, remedy="Record."),),
        steps=StepTimes(count=1, median_ms=1, p95_ms=1, slowest=HOSTILE, slowest_ms=1),
    )  # fmt: skip
    text = drawn(report, width=120)
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "\u202e" not in text
    assert text.count("[bold]x[/bold]") >= 8
    assert "k" * 80 not in text
    assert max(map(len, text.splitlines())) <= 120
    coloured = drawn(report, width=120, force_terminal=True, color_system="truecolor")
    assert "\x1b[31mred" not in coloured
    assert "\x1b]8;" not in coloured


def test_colour_only_where_wanted(short):
    assert "\x1b[" in drawn(short, force_terminal=True, color_system="standard")
    assert "\x1b[" not in drawn(short)
    plain = Console(file=io.StringIO(), width=80, force_terminal=True, _environ={"NO_COLOR": "1"})
    with plain.capture() as capture:
        for line in draw(short, plain, plain.options):
            plain.print(line)
    assert not any(f"\x1b[{code}m" in capture.get() for code in range(30, 38))


def test_a_place_keeps_its_file_and_line(short):
    deep = "/home/somebody/" + "very/" * 30 + "deep/train.py"
    finding = replace(short.findings[0], where=(Where(file=deep, line=88, function="step", count=3),))
    place = next(
        line for line in to_text(replace(short, findings=(finding,)), width=80).splitlines() if "train" in line
    )
    assert place.endswith("deep/train.py:88 step ×3")
    assert len(place) <= 80


def test_print_shows_the_report_once_registered(short, monkeypatch):
    register()
    monkeypatch.setenv("COLUMNS", "90")
    assert str(short) == to_text(short, width=90)
    bundle = short._repr_mimebundle_(include=None, exclude=None)
    assert bundle["text/plain"] == str(short)
    assert bundle["text/html"].startswith('<iframe sandbox="allow-scripts" ')
    on = console(width=90)
    with on.capture() as capture:
        on.print(short)
    assert capture.get().strip() == str(short).strip()


def test_summaries(short, long):
    healthy = replace(short, source="a/healthy.json", findings=short.findings[::-1])
    nothing = Report(source="n.json", device="", wall_ms=0.0, engines={}, overlapped=0.0, headline="")
    on = console(width=100)
    with on.capture() as capture:
        for line in draw_summaries([summarise(r) for r in (long, healthy, nothing)], on):
            on.print(line, soft_wrap=True)
    assert lines(capture.get()) == snapshot("""\

                   time  H2D   SM  D2H  first cause
loop.json.gz     650 ms  31%  31%  31%  host-synchronize 7.7%
a/healthy.json  12.8 ms  31%  31%  31%  copy-bound
n.json             0 ms                 no GPU activity
""")


@pytest.mark.parametrize("width", [40, 60, 64, 80, 120])
def test_a_summary_tells_the_engines_at_every_width_or_says_what_width_it_takes(long, width):
    names = [f"/some/where/{'deep' * n}/recorded-default-stream-copy.gapless.gz" for n in range(3)]
    on = console(width=width)
    with on.capture() as capture:
        for line in draw_summaries([summarise(replace(long, source=name)) for name in names], on):
            on.print(line, soft_wrap=True)
    shown = capture.get()
    assert max(map(len, shown.splitlines())) <= width
    assert ("H2D" in shown and "D2H" in shown) or "columns the engines' figures stand here" in " ".join(shown.split())
    assert shown.count("host-synchronize") == 3 or width == 40


def test_a_summary_without_room_for_figures(long):
    there = [replace(long, source=f"/some/where/{name}") for name in ("deep/a_rather_long_name.json.gz", "short.json")]
    on = console(width=64)
    with on.capture() as capture:
        for line in draw_summaries([summarise(r) for r in there], on):
            on.print(line, soft_wrap=True)
    assert lines(capture.get()) == snapshot("""\

    time  H2D   SM  D2H  first cause
deep/a_rather_long_name.json.gz
  650 ms  31%  31%  31%  host-synchronize 7.7%
short.json
  650 ms  31%  31%  31%  host-synchronize 7.7%
""")


def test_a_summary_shortens_the_long_names_alone(long):
    sources = ["/t/forgotten-default-stream-copy.json.gz", "/t/one-stream.json.gz", "/t/four-streams.json.gz"]
    on = console(width=72)
    with on.capture() as capture:
        for line in draw_summaries([summarise(replace(long, source=source)) for source in sources], on):
            on.print(line, soft_wrap=True)
    assert lines(capture.get()) == snapshot("""\

                              time  H2D   SM  D2H  first cause
forgotten-def…copy.json.gz  650 ms  31%  31%  31%  host-synchronize 7.7%
one-stream.json.gz          650 ms  31%  31%  31%  host-synchronize 7.7%
four-streams.json.gz        650 ms  31%  31%  31%  host-synchronize 7.7%
""")
    twins = [f"/t/forgotten-default-{word}-stream-copy.json.gz" for word in ("one", "two")]
    on = console(width=72)
    with on.capture() as capture:
        for line in draw_summaries([summarise(replace(long, source=source)) for source in twins], on):
            on.print(line, soft_wrap=True)
    assert all(Path(twin).name in capture.get() for twin in twins)


def test_a_summary_holds_no_timeline(long):
    summary = summarise(long)
    assert summary.share == pytest.approx(long.findings[0].cost_ms / long.wall_ms)
    assert not any(isinstance(getattr(summary, name), Timeline | np.ndarray) for name in summary.__slots__)
    assert EngineUse not in map(type, summary.busy.values())


PAGE = """What it is,
in a line.

## Heading
Some ``code`` and [brackets] over
two lines.

- a point that is
  long
- another
"""


def test_a_page():
    on = console(width=30)
    with on.capture() as capture:
        for line in draw_page("slug", PAGE, on):
            on.print(line, soft_wrap=True)
    assert lines(capture.get()) == snapshot("""\

slug

What it is, in a line.

Heading
Some code and [brackets] over
two lines.

- a point that is long
- another
""")


@pytest.mark.parametrize("name", ["loop/balanced1M.trap4", "loop/balanced16M.four", "torch/training.naive"])
def test_measured_runs_fit_the_terminal(measured, name):
    report = gapless.explain(measured / f"{name}.json.gz")
    for width in (60, 80, 150):
        text = to_text(report, width=width)
        assert lines(text)
        assert max(map(len, text.splitlines())) <= width
        assert report.findings[0].title.split()[0] in text
