"""A played tape in a terminal, to the character."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from gapless.model.chunk_loop import ChunkLoop
from gapless.model.program import Program
from gapless.model.simulation import Simulation, simulate
from gapless.model.tape import read
from gapless.views.schedule import draw, draw_loop, draw_summaries, summarise, to_text

LOOP = """\
stream s0 s1 s2
repeat 4 as i
  h2d    in{i}  on s{i%3} 1ms
  kernel k{i}   on s{i%3} 1ms
  d2h    out{i} on s{i%3} 1ms
end
sync device
expect makespan 5ms
expect overlap in1 k0
"""


def played(text: str, name: str = "loop.tape") -> Simulation:
    return simulate(read(text, name=name))


def why(text: str) -> str:
    """What is said of the waits, as running text."""
    shown = to_text(played(text), width=120)
    return " ".join(shown.partition("Why engines wait\n")[2].partition("\n\n")[0].split())


def on_ascii(text: str, width: int = 80) -> str:
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    console = Console(file=out, width=width, color_system=None, legacy_windows=False, _environ={})
    for line in draw(played(text), console, console.options):
        console.print(line, soft_wrap=True)
    out.flush()
    return out.buffer.getvalue().decode("ascii")


def test_a_loop_in_80_columns():
    assert (
        to_text(played(LOOP), width=80)
        == """\
loop.tape  machine teaching, 6.00 ms

                                                                   busy
H2D  ██████████████████████████████████████                     4.00 ms      67%
SM            ▄█████████████████████████████████████▄           4.00 ms      67%
D2H                     ██████████████████████████████████████  4.00 ms      67%
ms   ╵0                 ╵2                 ╵4                   overlap      67%
s0   ▐in0━━━━━▐k0━━━━━━━▐out0━━━━▐in3━━━━━━▐k3━━━━━━▐out3━━━━━
s1            ▐in1━━━━━━▐k1━━━━━━▐out1━━━━━
s2                      ▐in2━━━━━▐k2━━━━━━━▐out2━━━━
host ▐sync device━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━

Longest chain: in0, k0, out0, out1, out2, out3. In it: 1.00 ms H2D, 1.00 ms SM,
4.00 ms D2H.

Why engines wait
H2D  2.00 ms      nothing more to do
SM   1.00 ms      k0 waits for in0, before it in stream s0
     1.00 ms      nothing more to do
D2H  2.00 ms      out0 waits for k0, before it in stream s0

1 of 2 expectations fails.
line 8    expect makespan 5ms: got 6ms"""
    )


def test_the_same_in_120_columns():
    lines = to_text(played(LOOP), width=120).splitlines()
    assert max(map(len, lines)) <= 120
    assert lines[3:8] == [
        "H2D  ████████████████████████████████████████████████████████████████▅" + " " * 34 + "4.00 ms      67%",
        "SM                   ▇███████████████████████████████████████████████████████████████▇"
        + " " * 18 + "4.00 ms      67%",
        "D2H                                  ▅████████████████████████████████████████████████████████████████"
        "  4.00 ms      67%",
        "ms   ╵0              ╵1              ╵2              ╵3              ╵4              ╵5"
        + " " * 17 + "overlap      67%",
        "s0   ▐in0━━━━━━━━━━━━▐k0━━━━━━━━━━━━━▐out0━━━━━━━━━━━▐in3━━━━━━━━━━━━▐k3━━━━━━━━━━━━━▐out3━━━━━━━━━━━━",
    ]  # fmt: skip


def test_the_same_in_ascii():
    shown = on_ascii(LOOP)
    assert "H2D  @@@@@@@@@@@@@@" in shown
    assert "s0   |in0-----|k0-------|out0----|in3------" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_the_same_where_there_is_no_room():
    lines = to_text(played(LOOP), width=40).splitlines()
    assert max(map(len, lines)) <= 40
    assert lines[2].startswith("H2D  ███")
    assert "67%" not in "".join(lines)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("stream a\nh2d x on a 1\nkernel y on a 1", "SM 1.00 ms y waits for x, before it in stream a"),
        ("stream a b\nh2d x on a 1\nrecord e on a\nwait e on b\nkernel y on b 1",
         "y waits for x (stream a), by an event"),
        ("stream a\nh2d x on default 1\nkernel y on a 1",
         "y waits for x (stream default): the default stream's fence"),
        ("stream a\nh2d x on a 1\nsync device\nkernel y on a 1",
         "y is issued late: the host waits in sync device (line 3) for x"),
        ("stream a\nh2d x on a 1 pageable\nkernel y on a 1",
         "y is issued late: the host is held by h2d x on a (line 2) until the copy is done"),
        ("stream a\nhost 1\nkernel y on a 1", "y is issued late: the host works (line 2)"),
        ("machine teaching call_cost=1ms\nstream a\nrecord e on a\nkernel y on a 1",
         "y is issued late: the host is busy with record e on a (line 3)"),
        ("machine teaching launch_cost=1ms\nstream a\nkernel y on a 1", "y waits for its own call (line 3)"),
        ("stream a\nthread T\nhost 3\nsend m\nend\nthread U\nreceive m\nkernel y on a 1\nend",
         "y is issued late: the host waits in receive m (line 7) for a message: send m"),
        ("machine teaching hostfn_workers=1\nstream a b\nhostfn f on a 1\nhostfn g on b 1\nkernel y on b 1",
         "y waits for g, before it in stream b"),
        ("stream a\nrepeat 3 as i\n  h2d x{i} on a 1\n  kernel y{i} on a 2\nend",
         "H2D 4.00 ms ×2 x1 waits for y0, before it in stream a 2.00 ms nothing more to do"
         " SM 3.00 ms ×3 y0 waits for x0"),
    ],
)  # fmt: skip
def test_what_is_said_of_waits(text, said):
    assert said in why(text)


def test_a_line_for_each_operation_is_told_by_what_they_have_in_common():
    """As a predicted program is saved: no line stands for much."""
    text = "stream a\n" + "".join(f"host 2\nkernel k{i} on a 1\nsync a\n" for i in range(1, 41))
    assert why(text) == "SM 80.0 ms ×40 k1 is issued late: the host works (line 2)"


def test_many_reasons_are_cut_short():
    text = "stream a\n" + "".join(f"host {i}\nkernel k{i} on a 1\nsync a\n" for i in range(1, 8))
    assert why(text).count("the host works") == 4
    assert why(text).endswith("for other reasons")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("machine teaching queues=1\nstream a b\nkernel x on a 1 share=1/2\nkernel z on a 2 share=1/2\n"
         "kernel y on b 1 share=1/2", "y waits for z (stream a): both streams share a hardware queue"),
        ("stream a\nrepeat 2 as i\nkernel x{i} on a 1\nkernel y{i} on default 1\nend",
         "×2 y0 waits for x0 (stream a): the default stream's fence x1 waits for y0 (stream default):"),
        ("machine teaching malloc_sync=yes\nstream a b\nkernel x on a 1\nmalloc p\nkernel y on b 1",
         "y waits for x: a first use or an allocation between them waits for all work"),
        ("machine teaching resident_grids=1\nstream a b\nkernel x on a 1 share=1/2\nkernel y on b 1 share=1/2",
         "y waits for x: no more kernels can be resident"),
    ],
)  # fmt: skip
def test_what_holds_operations_up_while_their_engine_works(text, said):
    shown = to_text(played(text), width=120)
    assert said in " ".join(shown.partition("Held up while the engine works\n")[2].split())


def test_engines_and_streams_that_take_turns_hold_nothing_up():
    assert "Held up" not in to_text(played(LOOP), width=80)


def test_a_schedule_alone_and_a_program_without_names_are_drawn():
    program = Program()
    stream = program.stream("s")
    stream.h2d("1ms")
    stream.kernel("1ms")
    shown = to_text(simulate(program).schedule, width=80)
    assert shown.startswith("schedule  machine teaching, 2.00 ms\n")
    assert "s   ▐h2d on s━━━━" in shown
    assert "kernel on s waits for h2d on s, before it in stream s" in shown


def test_a_program_that_takes_no_time_is_told_without_lanes():
    assert to_text(played("stream a\nrecord e on a\n"), width=80) == "loop.tape  machine teaching, 0 ms"


def test_one_copy_engine_is_one_lane():
    shown = to_text(simulate(read("machine one-copy-engine\nstream a\nh2d x on a 1\nd2h y on a 1\n")), width=80)
    assert re.findall(r"^(\w+) +█", shown, re.MULTILINE) == ["copy"]
    assert "D2H" not in shown


def test_engines_of_several_devices_are_told_apart():
    shown = to_text(played("stream a\nstream b device=1\nkernel x on a 1\nh2d y on b 1\nexpect makespan 1ms"), width=80)
    assert re.findall(r"^(\S+\.\d) ", shown, re.MULTILINE)[:6] == ["H2D.0", "SM.0", "D2H.0", "H2D.1", "SM.1", "D2H.1"]
    assert shown.endswith("1 expectation holds.")


def test_calls_that_fail_are_told():
    shown = to_text(played("stream a\ncapture a\nkernel k on a 1\nsync a\n"), width=80)
    assert "Calls that fail\n    line 4: sync a returns StreamCaptureUnsupported (900)" in shown


def test_races_are_left_to_the_check():
    text = "stream a b\nkernel x on a 1 writes M\nkernel y on b 1 reads M\n"
    assert to_text(played(text), width=80).endswith("\n\n1 race. More: gapless check loop.tape")


def test_many_streams_are_counted():
    names = [f"s{i}" for i in range(20)]
    shown = to_text(played(f"stream {' '.join(names)}\n" + "".join(f"kernel k{n} on {n} 1\n" for n in names)), width=80)
    assert "s15 " in shown
    assert "s16 " not in shown
    assert "and 4 more" in shown


def test_many_operations_in_a_stream_are_drawn_as_a_density():
    shown = to_text(played("stream a\nrepeat 500 as i\n  h2d x{i} on a 1us\n  kernel y{i} on a 1us\nend\n"), width=80)
    assert re.search(r"^a +█{50}", shown, re.MULTILINE)
    assert "Longest chain: x0, y0, x1, y1, ..., x499, y499. In it: 500 µs H2D, 500 µs SM." in shown


def test_a_long_name_is_shortened():
    shown = to_text(played(LOOP, name="folder/" * 20 + "loop.tape"), width=80).splitlines()[0]
    assert len(shown) <= 80
    assert shown.endswith("loop.tape  machine teaching, 6.00 ms")


def test_colours_say_which_engine_works():
    console = Console(file=io.StringIO(), width=80, color_system="standard", force_terminal=True, _environ={})
    lines = list(draw(played(LOOP), console, console.options))
    lane = next(line for line in lines if line.plain.startswith("s0 "))
    looks = {line[span.start : span.end].plain.strip("▐━ "): span.style for line in [lane] for span in line.spans}
    assert (looks["in0"], looks["k0"], looks["out0"]) == ("cyan", "green", "magenta")


def loop_text(loop: ChunkLoop) -> str:
    console = Console(file=io.StringIO(), width=80, color_system=None, _environ={})
    run = simulate(read(loop.tape(), name="loop"))
    return "\n".join(line.plain for line in draw_loop(loop, run, console, console.options))


def test_a_chunk_loop_beside_its_closed_forms():
    assert loop_text(ChunkLoop(default_stream="kernel")).startswith("""\
4 chunks over 3 streams: 1ms to the device, 1ms kernel, 1ms back, each kernel on
the default stream.

serial         3N  12.0 ms  one stage after another
pipelined     N+2  6.00 ms  all three engines busy at once
this loop    2N+1  9.00 ms  the default stream fences every kernel

""")


def test_a_chunk_loop_on_a_machine_with_costs():
    shown = loop_text(ChunkLoop(pageable=True, machine="teaching launch_cost=0.5ms")).splitlines()
    assert shown[4:8] == [
        "pipelined    N+2  6.00 ms  all three engines busy at once",
        "closed form   3N  12.0 ms  pageable copies hold the host",
        "this loop         14.0 ms  on machine teaching",
        "",
    ]


def test_a_line_for_each_of_several_tapes():
    runs = [played(LOOP, name="a.tape"), played("stream a\nkernel k on a 1\n", name="longer-name.tape")]
    console = Console(file=io.StringIO(), width=80, color_system=None, _environ={})
    assert [line.plain for line in draw_summaries([summarise(run) for run in runs], console)] == [
        "a.tape             6.00 ms  1 of 2 expectations fails",
        "longer-name.tape   1.00 ms",
    ]
