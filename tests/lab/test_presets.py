"""Every point of the lesson can be played, and does what its paragraph says."""

from __future__ import annotations

import re

import pytest

from gapless.lab.asked import Asked
from gapless.lab.played import play
from gapless.lab.presets import knobs, lesson, preset

PRESETS = [one for point in lesson() for one in point.presets]
PLAYED = [one for one in PRESETS if not one.beside]


def played(slug: str) -> dict:
    one = preset(slug)
    return play(Asked(loop=knobs(one.loop)) if one.loop is not None else Asked(tape=one.tape))


@pytest.mark.parametrize("slug", [one.slug for one in PLAYED])
def test_every_preset_plays_as_it_says(slug):
    run = played(slug)
    assert "error" not in run
    assert all(one["holds"] for one in run["expected"])
    if preset(slug).loop is not None and not preset(slug).loop.urgent:
        assert run["numbers"][1]["reads"]  # a closed form fits
    else:
        assert run["expected"] or preset(slug).loop


def test_the_lesson_is_whole():
    assert len(lesson()) == 14
    assert len({one.slug for one in PRESETS}) == len(PRESETS)
    assert all(point.presets for point in lesson())
    for one in PRESETS:
        assert all(preset(slug) in PLAYED for slug in one.beside)


@pytest.mark.parametrize("one", PRESETS, ids=lambda one: one.slug)
def test_one_paragraph_in_plain_words(one):
    assert "\n" not in one.why.strip()
    assert 60 <= len(one.why) <= 420
    assert len(one.title) <= 50
    sentences = re.split(r"(?<=[.:;!?]) ", one.why)
    assert max(len(sentence.split()) for sentence in sentences) <= 32


@pytest.mark.parametrize(
    ("slug", "reads", "ms"),
    [
        ("one-stream", "3N", 12), ("two-streams", "3N/2+1", 7), ("three-streams", "N+2", 6), ("pipelined", "N+2", 10),
        ("pinned-one-stream", "3N", 12), ("pageable-four-streams", "3N", 12), ("pinned-four-streams", "N+2", 6),
        ("forgotten-copy", "3N", 12), ("forgotten-kernel", "2N+1", 9), ("nonblocking", "N+2", 6),
        ("per-thread", "N+2", 6), ("malloc", "3N", 12), ("pool", "N+2", 6), ("device-synchronize", "3N", 12),
        ("refill-device", "3N", 12), ("refill-event", "N+2", 6), ("one-copy-engine", "2N", 8),
        ("eight-streams", "N+2", 10),
    ],
)  # fmt: skip
def test_wall_times_of_the_lesson(slug, reads, ms):
    run = played(slug)
    assert (run["numbers"][1]["reads"], run["wall"]) == (reads, ms * 1e6)


def test_the_wrong_tools_gain_nothing():
    assert played("one-long-kernel")["wall"] / played("one-long-kernel-chunked")["wall"] < 1.1
    assert played("copy-bound")["wall"] == played("copy-bound")["numbers"][2]["time"]
    assert played("full-kernels")["wall"] == played("full-kernels")["numbers"][0]["time"]
    assert played("two-processes")["wall"] == 2 * played("two-processes-mps")["wall"]


def test_priority_moves_the_kernel_and_not_the_copy():
    same, high = ({op["name"]: op["start"] for op in played(slug)["ops"]} for slug in ("urgent-same", "urgent-high"))
    assert high["reply"] < same["reply"]
    assert high["ask"] == same["ask"]


def test_a_misleading_time_is_told_with_the_time_of_the_work():
    (answer,) = played("events-mislead")["answers"]
    assert answer["got"] == "4.00 ms"
    assert "takes 1.00 ms" in answer["really"]
    (answer,) = played("events-wrong-stream")["answers"]
    assert (answer["got"], answer["from"]) == ("0 ms", answer["to"])
    assert "no work at all" in answer["really"]
    (answer,) = played("events-measure")["answers"]
    assert "what the work between them takes" in answer["really"]


def test_an_answer_between_two_streams_is_doubted():
    tape = "stream a b nonblocking\nkernel k on a 2\nrecord e on a\nrecord f on b\nsync device\nelapsed e f as t"
    (answer,) = play(Asked(tape=tape))["answers"]
    assert "different streams" in answer["really"]
    assert "from" not in answer


def test_queries_are_told():
    assert [answer["got"] for answer in played("query")["answers"]] == ["not ready", "success"]


def test_races_are_told_with_lines_and_what_to_add():
    (race,) = played("event-forgotten")["races"]
    assert (race["lines"], race["ops"], race["bad"]) == ([3, 4], ["in", "k"], True)
    assert [add["statement"] for add in race["add"]] == ["record e on copies", "wait e on work"]


def test_the_reasons_name_the_fence_and_the_stream():
    fence = {one["words"][0] for one in played("forgotten-copy")["idle"] if one["engine"] == "H2D"}
    assert fence == {"default stream", "nothing more to do"}
    order = {one["words"][0] for one in played("pinned-one-stream")["idle"] if one["engine"] == "SM"}
    assert order == {"stream order", "nothing more to do"}
    held = {one["words"][0] for one in played("pageable-four-streams")["idle"] if one["engine"] == "H2D"}
    assert held == {"host held", "nothing more to do"}


def test_what_the_host_issues_in_no_time_is_told():
    assert played("pinned-one-stream")["issued"] == [{"time": 0, "count": 12}]
    assert [one["count"] for one in played("device-synchronize")["issued"]] == [3, 3, 3, 3]
    assert [one["count"] for one in played("pageable-four-streams")["issued"]] == [1, 1, 1, 1]  # kernels alone
