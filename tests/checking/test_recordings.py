"""Races in recordings: found where no rule orders two accesses, not found where one does."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import gapless
import written
from gapless.checking.recordings import RecordingCheck, check
from gapless.cli import main
from gapless.model.errors import GaplessError
from gapless.model.races import RaceClass
from gapless.timeline.sources.recording_format import FILE_HEADER, Block
from gapless.timeline.timeline import Unknown

LEGACY, A, B = 7, 13, 14
X, Y, P, Q = 0x900000, 0xB00000, 0x50000, 0x70000  # device memory and host memory
PINNED, PAGEABLE, DEVICE = 2, 1, 3


def said(found: RecordingCheck) -> list[tuple[bool, str, int, int]]:
    """Give certainty, class and both lines of each finding."""
    return [(f.exact, f.kind.word, f.first.line, f.second.line) for f in found.findings]


def test_two_copies_in_two_streams_without_an_event(program: Callable[..., Any]) -> None:
    run = program()
    run.line = 10
    run.h2d(A, P, X)
    run.line = 20
    run.d2h(B, X, Q)
    found = run.check()
    assert said(found) == [(True, "error", 10, 20)]
    (finding,) = found.findings
    assert not found.ok
    assert (finding.first.does, finding.second.does) == ("writes", "reads")
    assert (finding.first.stream, finding.second.stream) == ("stream 13", "stream 14")
    assert finding.why == "stream 13 and stream 14 run side by side, and no event leads from the one to the other"
    assert finding.repair == (
        "cudaEventRecord(e, stream 13) after cudaMemcpyAsync (ring.cu:10); "
        "cudaStreamWaitEvent(stream 14, e) before cudaMemcpyAsync (ring.cu:20)"
    )
    assert "4 KiB of device memory at 0x900000, whose allocation was not recorded" in finding.memory


@pytest.mark.parametrize("how", ["event", "stream", "sync", "device", "event sync"])
def test_what_orders_two_copies(program: Callable[..., Any], how: str) -> None:
    run = program()
    run.h2d(A, P, X)
    if how in ("event", "event sync"):
        run.record("e", A)
    if how == "event":
        run.wait(B, "e")
    elif how == "event sync":
        run.sync_event("e")
    elif how == "sync":
        run.sync(A)
    elif how == "device":
        run.sync_device()
    run.d2h(A if how == "stream" else B, X, Q)
    assert run.check().findings == ()


def test_an_event_that_is_recorded_too_early(program: Callable[..., Any]) -> None:
    run = program()
    run.record("e", A)
    run.h2d(A, P, X)
    run.wait(B, "e")
    run.d2h(B, X, Q)
    (finding,) = run.check().findings
    assert finding.why == (
        "stream 14 waits for an event of stream 13, but it was recorded before the H2D copy of 4 KiB"
    )  # fmt: skip


def test_an_event_used_again_means_the_record_that_was_waited_for(program: Callable[..., Any]) -> None:
    run = program()
    run.h2d(A, P, X)
    run.record("e", A)
    run.wait(B, "e")
    run.h2d(A, P, Y)
    run.record("e", A)  # nobody waits for this one
    run.d2h(B, X, Q)
    assert run.check().findings == ()
    run.d2h(B, Y, Q)
    assert [f.first.what for f in run.check().findings] == ["H2D copy of 4 KiB"]


@pytest.mark.parametrize("by_host", [False, True])
def test_a_wait_for_an_event_that_is_not_known_is_for_all_or_for_nothing(
    program: Callable[..., Any], by_host: bool
) -> None:
    """Older than a recording begun in the middle it may mean anything; from the start on it was never recorded."""
    for how, races in (("attached", 0), ("injected", 1)):
        run = program(how=how)
        run.h2d(A, P, X)
        if by_host:
            run.sync_event_unknown()
        else:
            run.wait_for_unknown(B)
        run.d2h(B, X, Q)
        found = run.check()
        assert len(found.findings) == races
        assert ("event-waits" in {unknown.what for unknown in found.unknown}) == (how == "attached")


def test_the_default_stream_fences_blocking_streams_alone(program: Callable[..., Any]) -> None:
    for kind, expected in ((1, []), (2, [(True, "error", 1, 2)])):
        run = program(kind=kind)
        run.h2d(LEGACY, P, X)
        run.line = 2
        run.d2h(A, X, Q)
        found = run.check()
        assert said(found) == expected
    assert found.findings[0].why == (
        "stream 13 is non-blocking: the default stream does not fence it, and no event orders the two"
    )


def test_parts_of_a_buffer_that_do_not_meet(program: Callable[..., Any]) -> None:
    run = program()
    run.malloc(X, 1 << 20)
    run.h2d(A, P, X, 4096)
    run.d2h(B, X + 4096, Q, 4096)
    assert run.check().findings == ()
    run.d2h(B, X + 4095, Q + 4096, 1)
    assert said(run.check()) == [(True, "error", 1, 1)]


def test_a_host_buffer_that_is_used_again_too_early(program: Callable[..., Any]) -> None:
    """The result of the one stream lands where the other still reads its input."""
    run = program()
    run.malloc(P, 4096, "cudaHostAlloc", PINNED)
    run.line = 5
    run.h2d(A, P, X)
    run.line = 6
    run.d2h(B, Y, P)
    (finding,) = run.check().findings
    assert (finding.exact, finding.first.does, finding.second.does) == (True, "reads", "writes")
    assert finding.memory == f"4 KiB of pinned host memory at {P:#x}, from cudaHostAlloc at ring.cu:1"


def test_rows_of_a_larger_array_are_possible_not_exact(program: Callable[..., Any]) -> None:
    run = program()
    run.h2d(A, P, X, 8192, pitch=4096)
    run.d2h(B, X + 2048, Q, 1024)
    found = run.check()
    assert [f.exact for f in found.findings] == [False]
    assert found.ok


def test_a_kernel_is_possible_and_says_by_which_argument(program: Callable[..., Any]) -> None:
    run = program()
    run.malloc(X)
    run.h2d(A, P, X)
    run.line = 30
    run.kernel(B, X, Y)
    found = run.check()
    (finding,) = found.findings
    assert (finding.exact, found.ok) == (False, True)
    assert finding.second.what == "kernel scale"
    assert finding.second.does == "may write"
    assert finding.second.argument == "argument 0 (float*)"
    assert finding.repair.endswith("cudaStreamWaitEvent(stream 14, e) before cudaLaunchKernel of scale (ring.cu:30)")


def test_pointers_to_const_are_only_read(program: Callable[..., Any]) -> None:
    run = program()
    run.malloc(X)
    run.kernel(A, Y, X)
    run.kernel(B, Y + 64, X)
    run.d2h(LEGACY, X, Q)
    assert run.check().findings == ()
    run.h2d(LEGACY, P, X)
    assert [f.first.does for f in run.check().findings] == ["may read"] * 2


def test_without_signatures_every_argument_may_be_written(program: Callable[..., Any]) -> None:
    run = program(signatures=False)
    run.malloc(X)
    run.kernel(A, Y, X)
    run.kernel(B, Y + 64, X)
    assert [f.first.argument for f in run.check().findings] == ["argument 1"]


def test_chunks_of_one_allocation_are_not_taken_for_all_of_it(program: Callable[..., Any]) -> None:
    """Kernels of several streams on pointers into one buffer, as a chunk loop hands them out."""
    run = program()
    run.malloc(X, 1 << 20)
    size = 1 << 16
    for chunk in range(8):
        stream = (A, B)[chunk % 2]
        run.h2d(stream, P + chunk * size, X + chunk * size, size)
        run.kernel(stream, X + chunk * size, name=0x1200)
        run.d2h(stream, X + chunk * size, Q + (chunk + 16) * size, size)
    assert run.check().findings == ()


def test_freed_while_it_is_used(program: Callable[..., Any]) -> None:
    run = program()
    run.malloc(X, 1 << 20)
    run.h2d(A, P, X)
    run.line = 9
    run.free(X)
    found = run.check()
    (finding,) = found.findings
    assert (finding.exact, finding.kind, finding.second.does) == (True, RaceClass.WARNING, "frees")
    assert found.ok  # the contract is broken, and today's drivers hide it
    assert finding.why == (
        "the host does not wait for stream 13 before cudaFree: today's drivers wait in it, the documentation does not "
        "promise it"
    )
    run = program()
    run.malloc(X, 1 << 20)
    run.h2d(A, P, X)
    run.sync(A)
    run.free(X)
    assert run.check().findings == ()


def test_memory_of_a_stream_is_ordered_by_the_stream(program: Callable[..., Any]) -> None:
    for freed_in, expected in ((A, []), (B, [(True, "unallocated", 1, 1), (True, "unallocated", 2, 1)])):
        run = program()
        run.malloc(X, 1 << 20, "cudaMallocAsync", DEVICE, A)
        run.line = 2
        run.h2d(A, P, X)
        run.line = 1
        run.free(X, 1 << 20, "cudaFreeAsync", DEVICE, freed_in)
        assert said(run.check()) == expected


def test_memory_handed_out_again_is_other_memory(program: Callable[..., Any]) -> None:
    run = program()
    run.malloc(X, 4096)
    run.h2d(A, P, X)
    run.sync(A)
    run.free(X, 4096)
    run.malloc(X, 4096)
    run.h2d(B, Q, X)
    assert run.check().findings == ()


def test_a_synchronous_copy_from_pageable_memory_may_come_late(program: Callable[..., Any]) -> None:
    """R3.3, H09: it returns when the data is staged; a non-blocking stream does not wait for it."""
    run = program()
    run.sync_h2d(P, X, memory=PAGEABLE)
    run.d2h(A, X, Q)
    assert said(run.check()) == [(True, "error", 1, 1)]
    run = program()
    run.sync_h2d(P, X, memory=PINNED)
    run.d2h(A, X, Q)
    assert run.check().findings == ()


def test_a_successful_query_orders_what_was_over(program: Callable[..., Any]) -> None:
    """Allocators hand pinned memory out again when an event's query succeeds."""
    for result, expected in ((0, 0), (600, 1)):
        run = program()
        run.h2d(A, P, X)
        run.until(200_000)
        run.query(result)
        run.d2h(B, Y, P)
        assert len(run.check().findings) == expected


def test_a_query_that_seems_to_return_just_before_the_end_saw_it(program: Callable[..., Any]) -> None:
    """The clocks of host and device agree to some microseconds only, and a program that polls goes on at once."""
    for early, races in ((3_000, 0), (30_000, 1)):
        run = program()
        run.h2d(A, P, X)  # ends at 62.5 us
        run.until(62_500 - 2_000 - early)
        run.query()
        run.d2h(B, Y, P)
        assert len(run.check().findings) == races


def test_a_query_says_nothing_of_what_was_still_going_on(program: Callable[..., Any]) -> None:
    run = program()
    run.h2d(A, P, X)
    run.query(0)  # of some other event: the copy is still under way
    run.d2h(B, Y, P)
    assert len(run.check().findings) == 1


def test_host_threads_tell_each_other_what_returned_before(program: Callable[..., Any]) -> None:
    run = program()
    run.h2d(A, P, X)
    run.sync(A)
    run.thread = 88
    run.d2h(B, X, Q)
    found = run.check()
    assert found.findings == ()
    assert "host-order" in {unknown.what for unknown in found.unknown}


def test_a_thread_knows_nothing_of_a_wait_that_goes_on(program: Callable[..., Any]) -> None:
    """While one thread waits for the copy, another already uses what it brings."""
    run = program()
    run.h2d(A, P, X)
    before = run.now
    run.sync(A)
    run.now, run.thread = before + 1_000, 88
    run.d2h(B, X, Q)
    assert len(run.check().findings) == 1


def test_a_launch_of_a_graph_orders_its_stream_and_what_it_touches_is_said_to_be_unknown(
    program: Callable[..., Any],
) -> None:
    run = program()
    run.h2d(A, P, X)
    run.graph(A, 3)
    run.d2h(A, X, Q)
    found = run.check()
    assert found.findings == ()
    (gap,) = [unknown for unknown in found.unknown if unknown.what == "graph-accesses"]
    assert gap.text == "What 1 launch of graphs touches is not recorded."


def test_a_copy_in_pieces_is_one_copy(program: Callable[..., Any]) -> None:
    run = program()
    run.h2d(A, P, X, pieces=3)
    run.d2h(B, X, Q)
    assert said(run.check()) == [(True, "error", 1, 1)]


def test_alike_findings_are_counted(program: Callable[..., Any]) -> None:
    run = program()
    for chunk in range(5):
        run.line = 40
        run.h2d(A, P + 4096 * chunk, X + 4096 * chunk)
        run.line = 41
        run.d2h(B, X + 4096 * chunk, Q + 4096 * chunk)
    (finding,) = run.check().findings
    assert (finding.count, finding.first.line, finding.second.line) == (5, 40, 41)


def test_json(program: Callable[..., Any]) -> None:
    run = program()
    run.h2d(A, P, X)
    run.d2h(B, X, Q)
    told = run.check().to_dict()
    assert (told["version"], told["ok"], told["more"]) == (1, False, False)
    (finding,) = told["findings"]
    assert (finding["certainty"], finding["class"], finding["count"]) == ("exact", "error", 1)
    assert finding["first"]["file"] == "ring.cu"
    assert [step["add"] for step in finding["add"]] == [
        "cudaEventRecord(e, stream 13)",
        "cudaStreamWaitEvent(stream 14, e)",
    ]


def test_every_key_of_the_json_is_documented(program: Callable[..., Any]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "json.md").read_text()
    run = program()
    run.h2d(A, P, X)
    run.d2h(B, X, Q)
    told = run.check().to_dict()
    (finding,) = told["findings"]
    keys = {*told, *finding, *finding["first"], *finding["add"][0], *told["unknown"][0]}
    assert not {key for key in keys if f"`{key}`" not in page}


def test_a_recording_without_addresses_says_how_to_record_them(program: Callable[..., Any]) -> None:
    run = program()
    run.malloc(X)
    run.sync(A)
    with pytest.raises(GaplessError, match="gapless record --addresses -- COMMAND"):
        check(run.timeline())


def test_the_command_takes_recordings_beside_tapes(
    program: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = program()
    run.h2d(A, P, X)
    run.d2h(B, X, Q)
    run.timeline()
    tape = tmp_path / "fine.tape"
    tape.write_text("stream s\nh2d a on s 1ms\n")
    assert main(["check", str(tape), str(tmp_path / "run.gapless")]) == 1
    shown = capsys.readouterr().out
    assert "no race" in shown
    assert "1   race: H2D copy of 4 KiB writes, D2H copy of 4 KiB reads the same memory" in shown
    assert main(["check", "--json", str(tmp_path / "run.gapless")]) == 1
    assert '"certainty": "exact"' in capsys.readouterr().out
    assert main(["check", "--explore", "5", str(tmp_path / "run.gapless")]) == 2
    assert "are for tapes" in capsys.readouterr().err


def test_the_function_takes_recordings_and_shows_what_it_found(program: Callable[..., Any], tmp_path: Path) -> None:
    run = program()
    run.h2d(A, P, X)
    run.sync(A)
    timeline = run.timeline()
    for source in (timeline, tmp_path / "run.gapless", str(tmp_path / "run.gapless")):
        found = gapless.check(source)
        assert isinstance(found, gapless.RecordingCheck)
        assert found.ok
        assert "Nothing races in what was looked at." in str(found)


def cut_at(size: int, tmp_path: Path) -> Path:
    """Give the first bytes of the recording of a program that has addresses in it."""
    whole = Path(__file__).parents[2] / "examples/timelines/recorded-default-stream-copy.gapless.gz"
    path = tmp_path / "cut.gapless"
    path.write_bytes(gzip.decompress(whole.read_bytes())[:size])
    return path


def test_a_whole_recording_misses_nothing(tmp_path: Path) -> None:
    found = check(cut_at(1 << 20, tmp_path))
    assert (found.lost, found.missing) == ((), ())
    assert "issing from this recording" not in str(found)
    assert "Nothing races in what was looked at." in str(found)


@pytest.mark.parametrize("size", range(16_000, 21_000, 700))
def test_a_cut_recording_says_so_before_anything_else(size: int, tmp_path: Path) -> None:
    found = check(cut_at(size, tmp_path))
    assert found.to_dict()["lost"][0].startswith("The recording ends in the middle of a block")
    lines = str(found).splitlines()
    assert lines[2] == "Missing from this recording"
    assert lines[3].startswith("• The recording ends in the middle of a block")
    assert "Nothing races in what is left of it." in lines


@pytest.mark.parametrize("size", [10, 100, 1_000, 3_000, 5_000, 7_000, 10_000, 13_000])
def test_a_recording_cut_before_its_addresses_is_said_to_be_cut(size: int, tmp_path: Path) -> None:
    with pytest.raises(GaplessError, match=r"cut off after|is a damaged recording|^Part of .* is missing, and"):
        check(cut_at(size, tmp_path))


def test_a_cut_recording_without_addresses_is_not_blamed_for_how_it_was_made(tmp_path: Path, capsys: Any) -> None:
    path = cut_at(13_000, tmp_path)
    assert main(["check", str(path)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"gapless: Part of {path} is missing, and the rest does not say which memory")
    assert "ends in the middle of a block" in said
    assert "Check the whole file, or record again: gapless record --addresses -- COMMAND" in said


def test_a_program_that_was_killed_misses_what_came_after_the_last_flush(
    program: Callable[..., Any], tmp_path: Path
) -> None:
    run = program()
    run.h2d(A, P, X)
    run.d2h(B, X, Q)
    killed = replace(run.timeline(), unknown=(Unknown(what="unfinished", text="Process 1 did not close it."),))
    found = check(killed)
    assert found.missing == ("Process 1 did not close it.",)
    assert found.unknown[0].what == "unfinished"
    text = str(found)
    assert text.index("Process 1 did not close it.") < text.index("race: H2D copy")
    assert text.count("Process 1 did not close it.") == 1
    assert "A race may be among it, and so may a wait between two accesses below." in text


def test_a_damaged_recording_knows_no_event_for_sure(program: Callable[..., Any]) -> None:
    run = program()
    run.h2d(A, P, X)
    run.wait_for_unknown(B)
    run.d2h(B, X, Q)
    timeline = run.timeline()
    assert len(check(timeline).findings) == 1
    assert check(replace(timeline, lost=("A block was torn.",))).findings == ()  # its record may be in that block


# What cannot be told invents no race


C, D = 33, 34  # streams of a second device


def test_each_device_is_waited_for_by_its_own_synchronise(program: Callable[..., Any]) -> None:
    """One thread works on two devices, then waits for the one and for the other."""
    for waits, raced in (((0, 1), []), ((1,), [(True, "error", 1, 2)]), ((0,), [(True, "error", 1, 3)])):
        run = program()
        run.h2d(A, P, X)
        run.h2d(C, Q, Y)
        for device in waits:
            run.sync_device(device)
        run.line = 2
        run.d2h(B, X, P + 0x10000)
        run.line = 3
        run.d2h(D, Y, Q + 0x10000)
        assert said(run.check()) == raced


@pytest.mark.parametrize("api", ["cudaDeviceSynchronize", "cudaDeviceReset"])
def test_a_call_that_waits_for_a_device_that_is_not_told_is_for_all(program: Callable[..., Any], api: str) -> None:
    run = program()
    run.h2d(A, P, X)
    run.h2d(C, Q, Y)
    run.call(api)  # CUPTI has no record of the wait itself
    run.d2h(B, X, P + 0x10000)
    run.d2h(D, Y, Q + 0x10000)
    assert run.check().findings == ()


@pytest.mark.parametrize("api", ["cudaLaunchHostFunc", "cudaStreamAddCallback"])
def test_a_function_of_the_host_tells_of_what_was_over_before_it_ran(program: Callable[..., Any], api: str) -> None:
    for until, asked, races in ((200_000, True, 0), (0, True, 1), (200_000, False, 1)):
        run = program()
        run.h2d(A, P, X)
        if asked:
            run.call(api)
        run.until(until)
        run.d2h(B, Y, P)
        assert len(run.check().findings) == races


def test_a_stream_that_waits_for_a_value_may_wait_for_all(program: Callable[..., Any]) -> None:
    run = program()
    run.h2d(A, P, X)
    run.call("cuStreamWaitValue32")
    run.d2h(B, X, Q)
    found = run.check()
    assert found.findings == ()
    assert "event-waits" in {unknown.what for unknown in found.unknown}


def test_a_peer_copy_in_two_legs_is_in_order_with_both_streams(program: Callable[..., Any]) -> None:
    """Without peer access it is told on a stream of either device; which of them it was issued in is not."""
    run = program()
    run.h2d(A, P, X)
    run.peer(A, X, Y, legs=(A, C))
    run.d2h(C, Y, Q)
    run.h2d(A, P, X)
    assert run.check().findings == ()
    run.d2h(D, Y, Q + 0x10000)
    assert [f.second.stream for f in run.check().findings] == ["stream 34"]


def test_a_synchronous_peer_copy_is_in_order_with_the_default_streams_of_both_devices(
    program: Callable[..., Any],
) -> None:
    for api, races in (("cudaMemcpyPeer", 0), ("cudaMemcpyPeerAsync", 1)):
        run = program()
        run.h2d(27, Q, Y)
        run.peer(LEGACY, Y, X, api=api)
        assert len(run.check().findings) == races


def test_an_event_recorded_after_the_wait_means_nothing_to_it(program: Callable[..., Any]) -> None:
    run = program()
    run.h2d(A, P, X)
    run.wait_for_unknown(B, event=1)
    run.record("e", A)  # event 1
    run.d2h(B, X, Q)
    assert len(run.check().findings) == 1


def test_an_event_whose_record_is_not_told_may_mean_anything(program: Callable[..., Any]) -> None:
    run = program()
    run.record("e", A)  # event 1
    run.h2d(A, P, X)
    run.wait_for_unknown(B, event=1)  # CUPTI does not say which record
    run.d2h(B, X, Q)
    assert run.check().findings == ()


@pytest.mark.parametrize("begins", ["after", "range", "start"])
def test_an_event_may_be_older_than_a_recording_that_begins_late(program: Callable[..., Any], begins: str) -> None:
    run = program(begins=begins)
    run.h2d(A, P, X)
    run.wait_for_unknown(B)
    run.d2h(B, X, Q)
    assert len(run.check().findings) == (begins == "start")


@pytest.mark.parametrize("api", ["cudaIpcOpenEventHandle", "cudaGraphLaunch"])
def test_an_event_may_be_recorded_by_another_process_or_a_graph(program: Callable[..., Any], api: str) -> None:
    run = program()
    run.call(api)
    run.h2d(A, P, X)
    run.wait_for_unknown(B)
    run.d2h(B, X, Q)
    assert run.check().findings == ()


# Memory that was freed


def test_memory_used_after_it_went_back_to_its_pool(program: Callable[..., Any]) -> None:
    run = program()
    run.malloc(X, 1 << 20, "cudaMallocAsync", DEVICE, A)
    run.h2d(A, P, X)
    run.line = 3
    run.free(X, 1 << 20, "cudaFreeAsync", DEVICE, A)
    run.line = 4
    run.d2h(A, X + 64, Q, 64)
    run.line = 5
    run.kernel(A, X)
    found = run.check()
    assert said(found) == [(True, "unallocated", 3, 4), (False, "unallocated", 3, 5)]
    assert found.findings[0].why == "cudaFreeAsync comes first, whatever the timing"
    assert found.findings[0].repair == "move cudaFreeAsync (ring.cu:3) behind cudaMemcpyAsync (ring.cu:4)"


def test_memory_that_is_handed_out_again_is_allocated(program: Callable[..., Any]) -> None:
    """Also where another thread frees it while the call that gets it goes on; or where it comes back unseen."""
    for api, memory in (("cudaMallocAsync", DEVICE), ("cuMemMap", None)):
        run = program()
        run.malloc(X, 1 << 20, "cudaMallocAsync", DEVICE, A)
        run.h2d(A, P, X)
        before = run.now
        if memory:
            run.malloc(X, 4096, api, memory, A, length=20_000)
        else:
            run.call(api, 20_000)
        after, run.now, run.thread = run.now, before + 5_000, 88
        run.free(X, 1 << 20, "cudaFreeAsync", DEVICE, A)
        run.now, run.thread = after, 77
        run.d2h(A, X, Q)
        assert run.check().findings == ()


def test_host_memory_at_the_address_of_freed_memory_is_other_memory(program: Callable[..., Any]) -> None:
    run = program()
    run.malloc(P, 4096, "cudaMallocAsync", DEVICE, A)
    run.free(P, 4096, "cudaFreeAsync", DEVICE, A)
    run.h2d(A, P, X, memory=PAGEABLE)
    assert run.check().findings == ()


# What was not looked at


def test_copies_whose_memory_is_not_told_are_counted(program: Callable[..., Any]) -> None:
    run = program()
    run.h2d(A, P, X)
    run.unseen_copy(B)
    run.unseen_copy(B)
    (gap,) = [unknown for unknown in run.check().unknown if unknown.what == "copy-accesses"]
    assert gap.text == "Which memory 2 calls of cudaMemcpy3DAsync touch is not recorded."


def test_kernels_whose_arguments_were_not_recorded_are_said_to_be_unknown(program: Callable[..., Any]) -> None:
    run = program()
    run.h2d(A, P, X)
    told = Unknown(what="no-kernel-arguments", text="What kernels touch is not recorded.")
    assert told in check(replace(run.timeline(), unknown=(told,))).unknown


# A recording part of which is missing


@pytest.mark.parametrize("how", ["cut", "max-size", "file-full", "killed", "stuck"])
def test_nothing_races_in_what_is_left_is_no_pass(
    program: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    run = program()
    run.h2d(A, P, X)
    run.timeline()
    path = tmp_path / "run.gapless"
    whole = path.read_bytes()
    end = whole.rindex(b"GBLK")
    assert main(["check", str(path)]) == 0
    path.write_bytes({
        "cut": whole[:-5], "killed": whole[:end], "stuck": whole + note("stuck"),
        "max-size": whole + ended("max-size"), "file-full": whole + ended("file-full"),
    }[how])  # fmt: skip
    found = check(path)
    assert (found.ok, found.has_races, len(found.missing) > 0) == (False, False, True)
    assert found.to_dict()["missing"] == list(found.missing)
    capsys.readouterr()
    for options in ([], ["--json"]):
        assert main(["check", *options, str(path)]) == 2
        out, err = capsys.readouterr()
        assert out
        assert err == f"gapless: Part of {path} is missing: whether the program is free of races is not known.\n"


def test_a_range_that_was_still_open_at_the_end_is_no_part_that_is_missing(
    program: Callable[..., Any], tmp_path: Path
) -> None:
    run = program()
    run.h2d(A, P, X)
    run.open_range()
    found = check(run.timeline())
    assert found.lost == ("Left out 1 event: NVTX ranges that were still open when the recording ended.",)
    assert (found.ok, found.missing) == (True, ())
    assert main(["check", str(tmp_path / "run.gapless")]) == 0


def test_a_race_in_what_is_left_of_a_recording_is_found(program: Callable[..., Any], tmp_path: Path) -> None:
    run = program()
    run.h2d(A, P, X)
    run.d2h(B, X, Q)
    run.timeline()
    path = tmp_path / "run.gapless"
    path.write_bytes(path.read_bytes()[:-5])
    assert main(["check", str(path)]) == 1


def note(what: str) -> bytes:
    """Give a block that notes something."""
    return bytes(written.Recording().json(Block.NOTE, what=what, text="It was so.").data[FILE_HEADER.itemsize :])


def ended(reason: str) -> bytes:
    """Give a block that ends the recording of a process."""
    return bytes(written.Recording().end(reason).data[FILE_HEADER.itemsize :])
