"""A tape played: what is in its plain values, and what cannot be played."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gapless.model.errors import DeadlockError, GaplessError
from gapless.model.machine import Machine
from gapless.model.program import Program
from gapless.model.simulation import check, load_tape, simulate
from gapless.model.tape import read

LOOP = """\
stream a b
h2d    x on a 1/3ms
kernel k on a 1ms
sync a as done
d2h    y on b 1ms
expect makespan 3ms
expect order x k
"""
RACE = "stream a b\nkernel x on a 1ms writes M\nkernel y on b 1ms reads M\n"
DEADLOCK = "thread A\n  receive m\n  send n\nend\nthread B\n  receive n\n  send m\nend\n"
CHANCE = """\
stream a b nonblocking
thread T
  kernel x on a 1ms writes X
  record e on a
end
thread U
  host 2ms
  wait e on b
  kernel y on b 1ms reads X
end
"""


def test_plain_values():
    values = simulate(read(LOOP)).to_dict()
    assert values == {
        "version": 1,
        "source": "tape",
        "makespan_ns": 2333333.333,
        "ops": {
            "x": {"start_ns": 0, "end_ns": 333333.333, "bound_by": "host"},
            "k": {"start_ns": 333333.333, "end_ns": 1333333.333, "bound_by": "stream order: h2d x on a"},
            "y": {
                "start_ns": 1333333.333,
                "end_ns": 2333333.333,
                "bound_by": "host: in sync a, for work it waits for: kernel k on a",
            },
        },
        "calls": {"done": {"begin_ns": 0, "return_ns": 1333333.333}},
        "races": [],
        "expectations": [
            {"line": 6, "holds": False, "got": "2.333333333ms"},
            {"line": 7, "holds": True, "got": "x before k"},
        ],
    }
    assert json.loads(json.dumps(values)) == values


def test_races_stand_in_the_plain_values():
    (race,) = simulate(read(RACE)).to_dict()["races"]
    assert {key: race[key] for key in ("class", "first", "second", "buffer")} == {
        "class": "error", "first": "x", "second": "y", "buffer": "M",
    }  # fmt: skip
    assert race["repair"] == "record e on a after x; wait e on b before y"


def test_each_run_of_a_graphs_operation_has_a_name():
    text = "stream a\ncapture a\nkernel k on a 1\nend-capture a as G\nlaunch G on a\nlaunch G on a\n"
    ops = simulate(read(text)).to_dict()["ops"]
    assert list(ops) == ["k", "k.1", "k.2"]
    assert ops["k"] == ops["k.2"]
    assert [ops[name]["start_ns"] for name in ("k.1", "k.2")] == [0, 1_000_000]
    once = simulate(read(text.replace("launch G on a\n", "", 1))).to_dict()["ops"]
    assert list(once) == ["k"]


def test_what_never_ran_is_left_out():
    text = "stream a\ncapture a\nkernel k on a 1\nend-capture a as G\n"
    assert simulate(read(text)).to_dict()["ops"] == {}


def test_a_file_a_tape_or_a_program_is_played_on_its_machine_or_another(tmp_path):
    path = tmp_path / "race.tape"
    path.write_text(RACE)
    assert simulate(path).name == str(path)
    assert simulate(str(path)).schedule.makespan == simulate(read(RACE)).schedule.makespan
    program = Program()
    program.stream("s").kernel("1ms")
    assert simulate(program).schedule.makespan == 10**9
    assert simulate(program, machine="h200").schedule.makespan > 10**9
    costly = Machine.named(launch_cost="1ms")
    assert simulate(program, machine=costly).schedule.makespan == 2 * 10**9


def test_ok_is_what_the_exit_status_says():
    assert not simulate(read(LOOP)).ok
    assert simulate(read(RACE)).ok  # races are the check's matter
    assert not check(read(RACE)).ok
    assert check(read(RACE + "expect race x y\n")).ok
    assert check(read(RACE + "expect overlap x y\n")).ok is False
    assert check(read("stream a\nkernel x on a 1 writes M\nkernel y on a 1 reads M")).ok


def test_a_deadlock_names_the_calls_and_their_lines():
    with pytest.raises(DeadlockError, match=r"receive m \(line 2, thread A\); receive n \(line 6, thread B\)"):
        simulate(read(DEADLOCK))


def test_explored_runs_can_be_replayed():
    checked = check(read(CHANCE), explore=60)
    assert not checked.races.errors
    assert not checked.ok
    (failure,) = checked.explored.failures
    values = checked.to_dict()["explored"]
    assert values["runs"] == 60
    assert values["orders"] > 1
    assert values["failures"] == [{"replay": str(failure.choice), "what": failure.what}]
    replayed = check(read(CHANCE), replay=str(failure.choice))
    assert not replayed.ok
    assert [race.buffer for race in replayed.races.errors] == ["X"]
    with pytest.raises(GaplessError, match="is no run"):
        simulate(read(CHANCE), replay="x1")


def test_a_replayed_run_is_judged_by_what_must_hold_in_every_run():
    tape = read(CHANCE + "expect makespan 1ns\nexpect order x y\n")
    assert [outcome.holds for outcome in simulate(tape).outcomes] == [False, True]
    assert [outcome.line for outcome in simulate(tape, replay="h1").outcomes] == [12]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\x7fELF\0\0\0", "is no tape"),
        (b"\x1f\x8b\x08", "gapless explain"),
        (b'{"traceEvents": []}', "gapless explain"),
        (b"# caf\xc3\xa9\n# caf\xe9\n", "line 2: this is not UTF-8 text"),
        (b"kernel\n", "expected"),
    ],
)
def test_files_that_are_no_tapes(tmp_path, content, words):
    path = tmp_path / "x.tape"
    path.write_bytes(content)
    with pytest.raises(GaplessError, match=words) as problem:
        load_tape(path)
    assert str(path) in str(problem.value)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(GaplessError, match=r"none\.tape: no such file"):
        load_tape(tmp_path / "none.tape")
    with pytest.raises(GaplessError, match="directory"):
        load_tape(tmp_path)
    with pytest.raises(GaplessError, match="cannot be read"):
        load_tape("a\0b")


@pytest.mark.parametrize("start", ["", "\n  ", "\ufeff", "\ufeff\r\n\t"])
@pytest.mark.parametrize("text", ['{\n "traceEvents": []\n}', "[\n]"])
def test_json_over_several_lines_is_no_tape(tmp_path, start, text):
    (tmp_path / "trace.json").write_text(start + text, encoding="utf-8")
    with pytest.raises(GaplessError, match=r"trace\.json is no tape.*read by gapless explain"):
        load_tape(tmp_path / "trace.json")


def test_machine_files_are_looked_for_beside_the_tape(tmp_path):
    (tmp_path / "mine.json").write_text('{"launch_cost": "2ms"}')
    (tmp_path / "x.tape").write_text('machine "mine.json"\nstream s\nkernel k on s 1ms\n')
    assert simulate(Path(tmp_path / "x.tape")).schedule.makespan == 3 * 10**9
