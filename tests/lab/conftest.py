"""A lab that really runs: the server as a user starts it, on a free port."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest


@dataclass(frozen=True)
class Served:
    """A running lab; whatever it keeps lies in a folder of its own."""

    process: subprocess.Popen[str]
    host: str
    port: int
    folder: Path

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> http.client.HTTPResponse:
        """Send one request; the answer has its ``body`` beside it."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=30)
        try:
            connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
            answer = connection.getresponse()
            answer.body = answer.read()  # pyright: ignore[reportAttributeAccessIssue]
            return answer
        finally:
            connection.close()

    def play(self, **asked: Any) -> dict[str, Any]:
        """Ask to play something."""
        return json.loads(self.ask("POST", "/play", json.dumps(asked)).body)  # pyright: ignore[reportAttributeAccessIssue]

    def stop(self, how: signal.Signals = signal.SIGINT) -> int:
        """Press Ctrl-C, or send another signal; give the exit status."""
        self.process.send_signal(how)
        status = self.process.wait(20)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return status


def start(folder: Path) -> Served:
    """Start a lab and wait until it says where it is."""
    process = subprocess.Popen(
        [sys.executable, "-m", "gapless", "lab", "--no-browser"], stdout=subprocess.PIPE, text=True,
        env=os.environ | {"TMPDIR": str(folder)},
    )  # fmt: skip
    assert process.stdout is not None
    found = re.search(r"http://\S+", process.stdout.readline())
    assert found
    address = urlsplit(found[0])
    assert address.hostname
    assert address.port
    return Served(process, address.hostname, address.port, folder)


@pytest.fixture
def start_lab(tmp_path) -> Callable[[], Served]:
    """Give a function that starts a lab of a test's own, which the test stops."""
    return lambda: start(tmp_path)


@pytest.fixture(scope="module")
def lab(tmp_path_factory) -> Iterator[Served]:
    """One lab for the tests of a file."""
    served = start(tmp_path_factory.mktemp("lab"))
    yield served
    assert served.stop() == 0
