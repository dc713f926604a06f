"""``--range``: the range that is asked for, and nothing else, however it is made."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gapless.timeline.sources import load

Content = Callable[[Path], Any]


def test_a_range_and_nothing_else(fake: Any, content: Content, tmp_path: Path) -> None:
    code = """
import ctypes, os
cuda = ctypes.CDLL(os.environ["FAKE"])
cuda.fake_init()
for name in (b"other", b"mine"):
    for _ in range(2):
        cuda.fake_launch()
        cuda.fake_push(name)
        cuda.fake_push(b"inner")
        cuda.fake_launch()
        cuda.fake_pop()
        cuda.fake_launch()
        cuda.fake_pop()
"""
    fake.record(tmp_path / "a.gapless", "--range", "mine", command=[sys.executable, "-c", code])
    found = content(tmp_path / "a.gapless")
    first = [int(row["correlationId"]) for row in found.records[10]]
    assert first[:2] == [8, 9]  # 1 to 6: the other range; 7: before mine
    assert [process["begins"] for process in found.process.values()] == ["range"]
    done = fake.record(tmp_path / "b.gapless", "--range", "none", command=[sys.executable, "-c", code])
    assert "No NVTX range named none" in done.stderr


RANGES = """
import ctypes, os, sys, threading
cuda = ctypes.CDLL(os.environ["FAKE"])
cuda.fake_register.restype = ctypes.c_void_p
cuda.fake_start.restype = cuda.fake_domain.restype = ctypes.c_uint64
early, domain, other = (ctypes.c_void_p(number) for number in (0, 0x1000, 0x2000))
before = ctypes.c_void_p(cuda.fake_register(domain, b"early"))
cuda.fake_init()
late, inner = (ctypes.c_void_p(cuda.fake_register(domain, text)) for text in (b"late", b"inner"))

def launch(count):
    for _ in range(count):
        cuda.fake_launch()

def on_a_thread(work, *how):
    thread = threading.Thread(target=work, args=how)
    thread.start()
    thread.join()

launch(1)
first = cuda.fake_start(b"started")
second = cuda.fake_start(b"started")
launch(2)
cuda.fake_end(ctypes.c_void_p(second))
on_a_thread(lambda: (launch(1), cuda.fake_end(ctypes.c_void_p(first))))
launch(1)
for string in (late, before):
    cuda.fake_domain(33, domain, string)
    cuda.fake_domain(33, domain, inner)
    cuda.fake_domain(33, other, inner)
    cuda.fake_domain_end(34, other, None)
    cuda.fake_domain_end(34, other, None)
    launch(4)
    cuda.fake_domain_end(34, domain, None)
    launch(1)
    cuda.fake_domain_end(34, domain, None)
    launch(1)
begun = cuda.fake_domain(31, domain, inner)
on_a_thread(launch, 6)
cuda.fake_domain_end(32, domain, ctypes.c_void_p(begun))
launch(1)
"""


@pytest.mark.parametrize(
    ("name", "first", "count"), [("started", 2, 3), ("late", 6, 5), ("early", 12, 5), ("inner", 6, 4), ("gone", 0, 0)]
)
def test_ranges_that_are_started_and_those_of_domains(
    fake: Any, tmp_path: Path, name: str, first: int, count: int
) -> None:
    """Strings may be registered before the recorder is there; other domains' ranges are others."""
    path = tmp_path / "a.gapless"
    done = fake.record(path, "--range", name, command=[sys.executable, "-c", RANGES])
    assert ("No NVTX range" in done.stderr) is (count == 0)
    if count:
        assert sorted(load(path).ops.correlation.tolist()) == list(range(first, first + count))
