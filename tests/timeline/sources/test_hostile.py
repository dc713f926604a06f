"""Damaged and hostile files: what can be used is used, what cannot is counted or refused in one sentence."""

from __future__ import annotations

import gzip
import json
import random
import re
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gapless.model.errors import GaplessError
from gapless.timeline.sources import chrome_file, feed, load, torch_profiler
from gapless.timeline.sources.feed import pieces
from gapless.timeline.sources.losses import Losses
from gapless.timeline.sources.mending import mended

CUT = "The file is cut short inside the list of events: used what comes before the cut."
CUT_GZIP = "The gzip data is cut short: used what comes before the cut."
MENDED = "Mended 1 event with text or numbers that JSON does not allow."
NO_OBJECT = "Left out 1 event: no valid JSON object."


def names(timeline: Any) -> list[str]:
    return [timeline.name_of(row) for row in timeline.ops.name.tolist()]


@pytest.fixture(params=["kineto", "apart", "one line"])
def layout(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def three(kineto: SimpleNamespace) -> list[dict[str, Any]]:
    return [kineto.kernel(name, start, 2.5, start) for name, start in (("one", 10), ("two", 20), ("three", 30))]


class TestNotQuiteJson:
    @pytest.mark.parametrize("number", ["inf", "-inf", "nan", "NaN", "Infinity", "-Infinity"])
    def test_numbers_that_are_none(self, kineto: SimpleNamespace, layout: str, three: list[Any], number: str) -> None:
        three[1]["args"]["memory bandwidth (GB/s)"] = kineto.literal(number)
        timeline = kineto.read(three, layout)
        assert names(timeline) == ["one", "two", "three"]
        assert timeline.ops.correlation.tolist() == [10, 20, 30]
        assert timeline.ops.registers.tolist() == [16, 16, 16]
        assert timeline.lost == (MENDED,)

    def test_an_infinite_occupancy_is_unknown(self, kineto: SimpleNamespace, layout: str, three: list[Any]) -> None:
        three[1]["args"]["est. achieved occupancy %"] = kineto.literal("inf")
        timeline = kineto.read(three, layout)
        assert [repr(float(value)) for value in timeline.ops.occupancy] == ["0.5", "nan", "0.5"]

    @pytest.mark.parametrize("byte", [0, 1, 9, 10, 13, 31])
    def test_control_characters_in_a_name(
        self, kineto: SimpleNamespace, layout: str, three: list[Any], byte: int
    ) -> None:
        three[1]["name"] = kineto.literal(f'"t{chr(byte)}o"')
        timeline = kineto.read(three, layout)
        assert names(timeline) == ["one", "t o", "three"]
        assert timeline.lost == (MENDED,)

    @pytest.mark.parametrize(
        ("written", "read"),
        [
            (r"torch\cuda\x.py", r"torch\cuda\x.py"),
            (r"C:\Users\me", r"C:\Users\me"),
            (r"a\\c and \c", r"a\c and \c"),
            (r"\ud800 half", "\ufffd half"),
            (r"\ude00\ud83d half", "\ufffd\ufffd half"),
            (r"\ud83d\ude00 \c", "\U0001f600 \\c"),
        ],
    )
    def test_backslashes_that_escape_nothing(
        self, kineto: SimpleNamespace, layout: str, three: list[Any], written: str, read: str
    ) -> None:
        three[1]["name"] = kineto.literal(f'"{written}"')
        timeline = kineto.read(three, layout)
        assert names(timeline) == ["one", read, "three"]
        assert timeline.lost == (MENDED,)

    def test_bytes_that_are_no_utf8(self, kineto: SimpleNamespace, layout: str, three: list[Any]) -> None:
        data = kineto.text(three, layout).replace(b'"two"', b'"t\xff\xfeo"')
        timeline = kineto.read_bytes(data)
        assert names(timeline) == ["one", "t\ufffd\ufffdo", "three"]
        assert timeline.lost == (MENDED,)

    def test_a_comma_too_many(self, kineto: SimpleNamespace, layout: str, three: list[Any]) -> None:
        three[1]["args"] = kineto.literal('{"stream": 7, "device": 0, "correlation": 20, }')
        timeline = kineto.read(three, layout)
        assert timeline.ops.correlation.tolist() == [10, 20, 30]
        assert timeline.lost == (MENDED,)

    def test_a_comma_behind_the_last_event(self, kineto: SimpleNamespace, layout: str, three: list[Any]) -> None:
        data = kineto.text(three, layout)
        end = data.rindex(b"]", 0, data.rindex(b"traceName"))
        timeline = kineto.read_bytes(data[:end] + b"," + data[end:])
        assert names(timeline) == ["one", "two", "three"]
        assert timeline.info["traceName"] == "trace.json"
        assert timeline.lost == ()

    def test_a_missing_quote_costs_one_event(self, kineto: SimpleNamespace, layout: str, three: list[Any]) -> None:
        data = kineto.text([*three, kineto.flow("s", 1)], layout).replace(b'"name": "two"', b'name": "two"')
        timeline = kineto.read_bytes(data)
        assert names(timeline) == ["one", "three"]
        assert timeline.lost == (NO_OBJECT,)
        assert timeline.info["traceName"] == "trace.json"

    def test_damage_in_the_facts_costs_the_facts(self, kineto: SimpleNamespace, layout: str, three: list[Any]) -> None:
        timeline = kineto.read(three, layout, tail={"traceName": kineto.literal('"a" b')})
        assert names(timeline) == ["one", "two", "three"]
        assert timeline.info == {"schemaVersion": 1, "overlaps": 0}
        assert timeline.lost == ("Left out the facts about the run beside the events: not valid JSON.",)

    def test_a_windows_path_in_the_facts(self, kineto: SimpleNamespace, layout: str, three: list[Any]) -> None:
        timeline = kineto.read(three, layout, tail={"traceName": kineto.literal(r'"C:\cuda\x.json"')})
        assert timeline.info["traceName"] == r"C:\cuda\x.json"
        assert timeline.lost == ()

    def test_a_byte_order_mark(self, kineto: SimpleNamespace, layout: str, three: list[Any]) -> None:
        timeline = kineto.read_bytes(b"\xef\xbb\xbf" + kineto.text(three, layout))
        assert names(timeline) == ["one", "two", "three"]
        assert timeline.lost == ()

    def test_zero_bytes_behind_the_end(self, kineto: SimpleNamespace, layout: str, three: list[Any]) -> None:
        timeline = kineto.read_bytes(kineto.text(three, layout) + bytes(5000))
        assert names(timeline) == ["one", "two", "three"]
        assert timeline.info["traceName"] == "trace.json"

    def test_every_event_damaged_alike(self, kineto: SimpleNamespace, layout: str) -> None:
        events = [kineto.kernel("k", n, 0.5, n) for n in range(1, 3001)]
        for event in events:
            event["args"]["memory bandwidth (GB/s)"] = kineto.literal("inf")
        timeline = kineto.read(events, layout)
        assert len(timeline.ops) == 3000
        assert timeline.lost == ("Mended 3,000 events with text or numbers that JSON does not allow.",)


class TestCut:
    def test_anywhere(self, kineto: SimpleNamespace, layout: str, three: list[Any]) -> None:
        data = kineto.text(three, layout)
        first, last = data.index(b'"traceEvents"') + 30, data.rindex(b"]", 0, data.rindex(b"traceName"))
        starts = [at.start() for at in re.finditer(b'"ph"', data)]
        ends = [data.rindex(b"}", 0, start) + 1 for start in (*starts[1:], last)]
        for cut in range(first, last, 3):
            whole = sum(end <= cut for end in ends)
            if not whole:
                with pytest.raises(GaplessError, match="cut short"):
                    kineto.read_bytes(data[:cut])
                continue
            timeline = kineto.read_bytes(data[:cut])
            assert names(timeline) == ["one", "two", "three"][:whole]
            assert timeline.lost == (CUT,)

    def test_behind_the_list_of_events(self, kineto: SimpleNamespace, layout: str, three: list[Any]) -> None:
        data = kineto.text(three, layout)
        timeline = kineto.read_bytes(data[: data.rindex(b"traceName") + 14])
        assert names(timeline) == ["one", "two", "three"]
        assert timeline.info["schemaVersion"] == 1
        assert timeline.lost == ("Left out the facts about the run beside the events: not valid JSON.",)

    def test_before_the_list_of_events(self, kineto: SimpleNamespace, layout: str, three: list[Any]) -> None:
        data = kineto.text(three, layout)
        with pytest.raises(GaplessError, match="not valid JSON: it ends too early, after 12 bytes"):
            kineto.read_bytes(data[:12])

    def test_gzip(self, kineto: SimpleNamespace, layout: str) -> None:
        events = [kineto.kernel(f"kernel {n * 7919 % 1000}", n, 0.5, n) for n in range(1, 2001)]
        packed = gzip.compress(kineto.text(events, layout))
        timeline = kineto.read_bytes(packed[: len(packed) // 2])
        assert 100 < len(timeline.ops) < 2000
        assert set(timeline.lost) == {CUT, CUT_GZIP}
        assert timeline.ops.start.tolist() == [1000 * n for n in range(len(timeline.ops))]


class TestGzip:
    def test_several_members(self, kineto: SimpleNamespace, layout: str, three: list[Any]) -> None:
        data = kineto.text(three, layout)
        packed = b"".join(gzip.compress(data[start : start + 100]) for start in range(0, len(data), 100))
        timeline = kineto.read_bytes(packed)
        assert names(timeline) == ["one", "two", "three"]
        assert timeline.lost == ()

    def test_padding_behind_the_end(self, kineto: SimpleNamespace, layout: str, three: list[Any]) -> None:
        timeline = kineto.read_bytes(gzip.compress(kineto.text(three, layout)) + bytes(1000))
        assert names(timeline) == ["one", "two", "three"]
        assert timeline.lost == ()

    def test_garbage_behind_the_end(self, kineto: SimpleNamespace, layout: str, three: list[Any]) -> None:
        for garbage in (b"x", b"\x1f", b"garbage" * 1000):
            timeline = kineto.read_bytes(gzip.compress(kineto.text(three, layout)) + garbage)
            assert names(timeline) == ["one", "two", "three"]
            assert timeline.lost == ("Left out the bytes behind the end of the gzip data: they are not gzip.",)

    def test_damage_inside(self, kineto: SimpleNamespace) -> None:
        events = [kineto.kernel(f"kernel {n * 7919 % 1000}", n, 0.5, n) for n in range(1, 2001)]
        packed = bytearray(gzip.compress(kineto.text(events)))
        packed[len(packed) // 2 : len(packed) // 2 + 40] = b"\xff" * 40
        timeline = kineto.read_bytes(bytes(packed))
        assert len(timeline.ops) > 100
        assert any(sentence.startswith("The gzip data is damaged") for sentence in timeline.lost)

    def test_a_large_file_is_unpacked_in_a_second_thread(self, kineto: SimpleNamespace) -> None:
        """More than 1 MiB packed, more than one piece unpacked."""
        noise = random.Random(7)
        filler = [kineto.host("cpu_op", noise.randbytes(2000).hex(), n, 0.5) for n in range(1, 1501)]
        packed = gzip.compress(kineto.text([*filler, kineto.kernel("k", 5, 1, 5)]), 1)
        assert len(packed) > 1 << 20
        seen: list[tuple[int, int]] = []
        path = kineto.save(packed)
        timeline = load(path, progress=lambda done, total: seen.append((done, total)))
        assert (len(timeline.ranges), len(timeline.ops), timeline.lost) == (1500, 1, ())
        assert seen[-1] == (len(packed), len(packed))
        assert [done for done, _ in seen] == sorted(done for done, _ in seen)
        path.write_bytes(packed[:-2000])
        timeline = load(path)
        assert len(timeline.ranges) > 1400
        assert CUT_GZIP in timeline.lost

    def test_a_reader_that_stops_early_stops_the_second_thread(self, kineto: SimpleNamespace) -> None:
        packed = gzip.compress(random.Random(7).randbytes(1 << 20) + bytes(64 << 20))
        stream = pieces(kineto.save(packed), None, Losses())
        next(stream)
        assert "gapless-unpack" in {thread.name for thread in threading.enumerate()}
        stream.close()
        assert "gapless-unpack" not in {thread.name for thread in threading.enumerate()}


class TestWrongTypes:
    @pytest.mark.parametrize("value", [None, True, 3, 3.5, -1, 1 << 70, -(1 << 70), "x", "", [], [1], {}, {"a": 1}])
    @pytest.mark.parametrize("field", ["ph", "cat", "name", "pid", "tid", "ts", "dur", "args"])
    def test_of_any_field(self, kineto: SimpleNamespace, layout: str, field: str, value: object) -> None:
        odd = kineto.kernel("odd", 20, 2, 20)
        odd[field] = value
        timeline = kineto.read([kineto.kernel("one", 10, 2, 10), odd, kineto.kernel("three", 30, 2, 30)], layout)
        assert {"one", "three"} <= set(names(timeline))
        assert len(timeline.ops) in (2, 3)
        if len(timeline.ops) == 2:
            assert timeline.lost or field == "cat"

    @pytest.mark.parametrize(
        "value", [None, True, 3.5, -5, 1 << 40, 1 << 70, -(1 << 70), "x", "", "12", [], [1, 2], ["x"] * 3, {}]
    )
    @pytest.mark.parametrize(
        "field",
        [
            "device", "stream", "correlation", "registers per thread", "shared memory", "grid", "block",
            "est. achieved occupancy %", "graph id", "graph node id", "priority",
        ],
    )  # fmt: skip
    def test_of_any_argument_of_a_kernel(self, kineto: SimpleNamespace, field: str, value: object) -> None:
        odd = kineto.kernel("odd", 20, 2, 20)
        odd["args"][field] = value
        timeline = kineto.read([kineto.kernel("one", 10, 2, 10), odd, kineto.kernel("three", 30, 2, 30)])
        assert names(timeline) == ["one", "odd", "three"]
        for row in (0, 2):
            assert timeline.ops.grid[row].tolist() == [1056, 2, 1]
            assert timeline.ops.correlation[row] == (row + 1) * 10

    @pytest.mark.parametrize("value", [None, True, 3.5, -5, 1 << 70, "x", [], {}])
    @pytest.mark.parametrize(
        "field",
        [
            "device", "stream", "correlation", "cuda_sync_kind", "wait_on_stream", "wait_on_cuda_event_record_corr_id",
            "wait_on_cuda_event_id",
        ],
    )  # fmt: skip
    def test_of_any_argument_of_a_synchronisation(self, kineto: SimpleNamespace, field: str, value: object) -> None:
        events = [
            kineto.sync("Stream Sync", 30, 1, 13, stream=20),
            kineto.sync("Stream Wait Event", 40, 1, 14, stream=20),
        ]
        events[1]["args"][field] = value
        assert len(kineto.read(events).marks) in (1, 2)

    def test_a_number_in_quotes_counts(self, kineto: SimpleNamespace) -> None:
        event = kineto.kernel("k", 20, 2, "20", stream="9")
        timeline = kineto.read([event])
        assert timeline.ops.correlation.tolist() == [20]
        assert timeline.streams[0].id == 9

    @pytest.mark.parametrize("field", ["ph", "cat", "name", "pid", "tid", "ts", "dur", "args"])
    def test_a_field_that_is_not_there(self, kineto: SimpleNamespace, layout: str, field: str) -> None:
        odd = kineto.kernel("odd", 20, 2, 20)
        del odd[field]
        timeline = kineto.read([kineto.kernel("one", 10, 2, 10), odd, kineto.kernel("three", 30, 2, 30)], layout)
        expected = {
            "ph": ("Left out 1 event: no phase (ph) that Chrome traces have.",),
            "ts": ("Left out 1 event: no usable time.",),
            "dur": ("Took the length of 1 event as zero: none is given.",),
        }
        assert timeline.lost == expected.get(field, ())
        assert len(timeline.ops) == (2 if field in ("ph", "cat", "ts") else 3)

    def test_things_that_are_no_events(self, kineto: SimpleNamespace, layout: str, three: list[Any]) -> None:
        events = [three[0], "17", '"text"', "null", three[1], "[1, 2]", "{}", three[2]]
        timeline = kineto.read(events, layout)
        assert names(timeline) == ["one", "two", "three"]
        assert sum(int(sentence.split()[2]) for sentence in timeline.lost) == 5

    def test_metadata_of_the_wrong_type(self, kineto: SimpleNamespace, layout: str) -> None:
        odd = [
            {"name": "thread_name", "ph": "M", "pid": [1], "tid": None, "args": {"name": 3}},
            {"name": 3, "ph": "M", "pid": 1, "tid": 1, "args": []},
            {"ph": "M"},
        ]
        timeline = kineto.read([*odd, kineto.kernel("k", 1, 2, 3)], layout)
        assert names(timeline) == ["k"]

    @pytest.mark.parametrize(
        "facts",
        [
            {"deviceProperties": 3},
            {"deviceProperties": {"id": 0}},
            {"deviceProperties": [[], {"id": -1}, {"id": 1 << 70}, {"id": 0, "name": 3, "numSms": "x"}]},
            {"distributedInfo": []},
            *({"baseTimeNanoseconds": value} for value in ("x", -5, 1 << 80, True)),
        ],
    )
    def test_facts_of_the_wrong_type(self, kineto: SimpleNamespace, layout: str, facts: dict[str, Any]) -> None:
        timeline = kineto.read([kineto.kernel("k", 1, 2, 3)], layout, head=facts)
        assert timeline.devices[0].id == 0
        assert timeline.clock_ns is None


class TestTimes:
    def test_negative_and_zero_lengths(self, kineto: SimpleNamespace, layout: str) -> None:
        events = [kineto.kernel("a", 10, -3, 1), kineto.kernel("b", 20, 0, 2), kineto.kernel("c", 30, 5, 3)]
        timeline = kineto.read(events, layout)
        assert (timeline.ops.end - timeline.ops.start).tolist() == [0, 0, 5000]
        assert timeline.lost == ("Took the length of 1 event as zero: it is negative.",)

    def test_negative_starts(self, kineto: SimpleNamespace) -> None:
        timeline = kineto.read([kineto.kernel("a", -10.5, 3, 1), kineto.kernel("b", 2, 1, 2)])
        assert timeline.ops.start.tolist() == [0, 12_500]

    @pytest.mark.parametrize("number", ["1e400", "1e30", "9" * 40, "-1e25"])
    def test_times_beyond_all_clocks(self, kineto: SimpleNamespace, layout: str, number: str) -> None:
        events = [kineto.kernel("a", kineto.literal(number), 3, 1), kineto.kernel("b", 2, kineto.literal(number), 2)]
        timeline = kineto.read(events, layout)
        assert names(timeline) == ["b"]
        assert timeline.ops.end.tolist() == [0]

    def test_the_ends_of_the_range(self, kineto: SimpleNamespace) -> None:
        most = (1 << 61) // 1000
        events = [kineto.kernel("a", -most, most, 1), kineto.kernel("b", 2 * most, most, 2)]
        timeline = kineto.read(events)
        assert timeline.ops.start.tolist() == [0, 3 * most * 1000]
        assert timeline.lost == ()
        assert (timeline.ops.end >= timeline.ops.start).all()


class TestSize:
    def test_nested_too_deeply(self, kineto: SimpleNamespace, layout: str, three: list[Any]) -> None:
        three[1]["args"] = kineto.literal('{"x": ' + "[" * 100_000 + "]" * 100_000 + "}")
        timeline = kineto.read(three, layout)
        assert names(timeline)[0] == "one"
        assert names(timeline)[-1] == "three"

    def test_a_list_nested_too_deeply_is_no_file_cut_short(self, kineto: SimpleNamespace) -> None:
        deep, braces = b"[" * 200_000 + b"]" * 200_000, b'{"a":' * 200_000 + b"1" + b"}" * 200_000
        for data in (b'{"traceEvents":' + deep + b"}", deep, b'{"traceEvents":[' + braces + b"]}"):
            with pytest.raises(GaplessError, match="nested too deeply to be an event"):
                kineto.read_bytes(data)
        event = b'{"ph":"X","cat":"kernel","name":"k","ts":1,"dur":2}'
        timeline = kineto.read_bytes(b"[" + event + b"," + deep + b"," + event + b"]")
        assert names(timeline)[0] == "k"
        assert any("nested too deeply to be an event" in said for said in timeline.lost)

    def test_sound_text_is_mended_in_one_pass(self) -> None:
        for text in (b"[" * 500_000, b"[1, 2, 3" * 100_000):  # from each place in it, it took the time of minutes
            assert mended(text) == text

    def test_a_text_without_an_end_is_refused_early(
        self, kineto: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(chrome_file, "_STRING", 1 << 20)
        monkeypatch.setattr(feed, "PIECE", 100_000)
        for start in (b'{"traceEvents": ["', b'{"traceEvents": [{"ph": "X", "name": "'):
            with pytest.raises(GaplessError, match="a text of more than 1 MiB is in it"):
                kineto.read_bytes(start + b"A" * 2_000_000 + b'"]}')

    def test_brackets_alone(self, kineto: SimpleNamespace) -> None:
        for data in (b"[" * 1_000_000, b'{"a":' * 300_000, b'{"traceEvents":' + b"[" * 1_000_000, b"[{" * 100_000):
            with pytest.raises(GaplessError):
                kineto.read_bytes(data)

    def test_a_text_of_50_megabytes(self, kineto: SimpleNamespace) -> None:
        event = kineto.host("cpu_op", "aten::mm", 1, 2) | {"args": {"Call stack": "HERE"}}
        data = kineto.text([kineto.kernel("one", 1, 2, 3), event, kineto.kernel("two", 4, 2, 5)])
        timeline = kineto.read_bytes(data.replace(b"HERE", b"x" * 50_000_000))
        assert names(timeline) == ["one", "two"]
        assert len(timeline.name_of(int(timeline.ranges.stack[0]))) == 50_000_000

    def test_an_event_that_is_longer_than_any(
        self, kineto: SimpleNamespace, three: list[Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The limits are made small, and so are the pieces that the file comes in."""
        monkeypatch.setattr(chrome_file, "_EVENT", 5000)
        monkeypatch.setattr(feed, "PIECE", 1000)
        long = kineto.host("cpu_op", "x" * 50_000, 1, 2)
        for events in ([long, *three], [*three[:2], long, three[2]]):
            timeline = kineto.read_bytes(kineto.text(events), 100)
            assert names(timeline) == ["one", "two", "three"]
            assert timeline.lost == ("Left out 1 event: longer than 128 MiB.",)
        timeline = kineto.read_bytes(kineto.text([*three, long]), 100)
        assert names(timeline) == ["one", "two", "three"]
        assert timeline.lost[0] == "Left out 1 event: longer than 128 MiB."

    def test_a_tail_that_is_longer_than_any_event(
        self, kineto: SimpleNamespace, three: list[Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(chrome_file, "_EVENT", 5000)
        monkeypatch.setattr(feed, "PIECE", 1000)
        timeline = kineto.read(three, tail={"traceName": "x" * 500, "INFO": ["y" * 50_000]})
        assert names(timeline) == ["one", "two", "three"]
        assert (timeline.info["traceName"], timeline.lost) == ("x" * 500, ())

    def test_more_events_than_memory_is_for(self, kineto: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(chrome_file, "_MOST", 1000)
        monkeypatch.setattr(feed, "PIECE", 10_000)
        events = [kineto.kernel("k", n, 0.5, n) for n in range(1, 5000)]
        timeline = kineto.read_bytes(kineto.text(events), 2000)
        assert 1000 < len(timeline.ops) < 1100
        assert timeline.lost == ("Used the first 32 million events: the file has more.",)
        assert timeline.info["schemaVersion"] == 1

    def test_a_layout_that_takes_more_memory_than_there_is(
        self, kineto: SimpleNamespace, three: list[Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(chrome_file, "_WHOLE", 1000)
        with pytest.raises(GaplessError, match="is not laid out as torch"):
            kineto.read(three, "one line")
        assert len(kineto.read(three, "kineto").ops) == 3

    def test_crumbs_of_json_make_no_mass_of_objects(self, kineto: SimpleNamespace) -> None:
        for crumb in (b"1,", b"{},", b'"a",', b"[],"):
            with pytest.raises(GaplessError, match="not one event of the trace can be read"):
                kineto.read_bytes(b"[" + crumb * 600_000 + b"{}]")
            with pytest.raises(GaplessError, match="JSON, but no trace: it has no traceEvents"):
                kineto.read_bytes(b'{"a": [' + crumb * 600_000 + b"{}]}")

    def test_running_out_of_memory_is_said(
        self, kineto: SimpleNamespace, three: list[Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: object) -> None:
            raise MemoryError

        monkeypatch.setattr(torch_profiler, "timeline", full)
        with pytest.raises(GaplessError, match="not enough memory to read it"):
            kineto.read(three)

    def test_a_number_of_many_digits(self, kineto: SimpleNamespace, layout: str, three: list[Any]) -> None:
        three[1]["args"]["correlation"] = kineto.literal("9" * 10_000)
        three[2]["pid"] = kineto.literal("9" * 10_000)
        timeline = kineto.read(three, layout)
        assert timeline.ops.correlation.tolist() == [10, 0, 30]

    def test_many_devices(self, kineto: SimpleNamespace) -> None:
        args = '"args": {{"device": {0}, "stream": {0}}}'
        row = '  {{\n    "ph": "X", "cat": "kernel", "name": "k", "ts": {0}, "dur": 1,\n    ' + args + "\n  }}"
        timeline = kineto.read([row.format(n) for n in range(40_000)])
        assert len(timeline.ops) == 40_000
        assert (timeline.ops.device >= 0).all()


class TestUseless:
    @pytest.mark.parametrize(
        ("data", "says"),
        [
            (b"{}", "it has no traceEvents"),
            (b'{"cells": [], "nbformat": 4}', "it has no traceEvents but cells, nbformat"),
            (b'{"traceEvents": null}', "its traceEvents are no list"),
            (b'{"traceEvents": {"a": 1}}', "its traceEvents are no list"),
            (b"[1, 2, 3]", "not one event"),
            (b'[{"a": 1}]', "not one event"),
            (b'{"traceEvents": [', "not one event"),
            (b'{"traceEvents": [\n  {\n    "ph": "X", "cat', "not one event"),
            (b'{"a": 1,\n  "b" 2}', r"in line 2, column \d+"),
            (b"[", "not one event"),
            (b"{", "it ends too early"),
            (b'{"a": "\xff"', "not valid JSON"),
        ],
    )
    def test_json_of_another_sort(self, kineto: SimpleNamespace, data: bytes, says: str) -> None:
        with pytest.raises(GaplessError, match=says):
            kineto.read_bytes(data)
        with pytest.raises(GaplessError, match=says):
            kineto.read_bytes(gzip.compress(data))

    def test_the_message_names_the_file(self, kineto: SimpleNamespace) -> None:
        path = kineto.save(json.dumps({"version": 1}).encode(), "report.json")
        with pytest.raises(GaplessError) as problem:
            load(path)
        assert str(problem.value) == (
            f"{path}: JSON, but no trace: it has no traceEvents but version. "
            "Expected what torch.profiler's export_chrome_trace wrote."
        )

    @pytest.mark.parametrize(
        ("data", "says"),
        [
            (b"", "is empty"),
            (gzip.compress(b"", mtime=0), "is empty"),
            (b"PK\x03\x04" + bytes(100), "a zip archive"),
            (b"\x80\x04\x95" + bytes(100), "a Python pickle"),
            (b"\x28\xb5\x2f\xfd" + bytes(100), "packed with zstd"),
            (b"\xfd7zXZ\0" + bytes(100), "packed with xz"),
            (b"BZh91AY" + bytes(100), "packed with bzip2"),
            (gzip.compress(gzip.compress(b"{}", mtime=0), mtime=0), "gzip within gzip"),
            ("\ufeff{}".encode("utf-16-le"), "UTF-16"),
            ('{"traceEvents": []}'.encode("utf-16-le"), "UTF-16"),
            (b"<!DOCTYPE html>", "a web page"),
            (bytes(4096), "nothing but zero bytes"),
            (b"# the chunk loop\nmachine teaching\nstream s0\n", "a tape"),
            (b"\x7fELF\x02\x01\x01" + bytes(100), "a program: gapless record"),
            (b"name,start,end\nk,1,2\n", "text that is not JSON"),
            (b"\x0a\x10\x08\x01\x12\x04\xff\xfe\x00\x01", "no format that gapless knows"),
        ],
    )
    def test_files_of_another_kind(self, kineto: SimpleNamespace, data: bytes, says: str) -> None:
        for packed in (data, gzip.compress(data)) if data else (data,):
            if says == "is empty" and packed is not data:
                continue
            with pytest.raises(GaplessError, match=says) as problem:
                kineto.read_bytes(packed)
            assert "Expected a trace of torch.profiler" in str(problem.value)

    def test_a_script_leads_to_the_recorder(self, kineto: SimpleNamespace) -> None:
        with pytest.raises(GaplessError, match=r"train\.py is a program: gapless record"):
            load(kineto.save(b"import torch\n", "train.py"))

    def test_a_report_of_nsight_systems(self, kineto: SimpleNamespace) -> None:
        with pytest.raises(GaplessError, match="a report of Nsight Systems"):
            load(kineto.save(b"\x01\x02\xff\xfe", "run.nsys-rep"))

    def test_no_such_file(self, tmp_path: Path) -> None:
        with pytest.raises(GaplessError, match="no such file"):
            load(tmp_path / "missing.json")

    def test_a_directory(self, tmp_path: Path) -> None:
        with pytest.raises(GaplessError, match="is a directory"):
            load(tmp_path)

    def test_no_regular_file(self) -> None:
        with pytest.raises(GaplessError, match="no regular file"):
            load("/dev/null")

    def test_a_name_that_no_file_can_have(self) -> None:
        with pytest.raises(GaplessError, match="cannot be read"):
            load("a\0b")
