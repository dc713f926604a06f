"""The server: for this machine and its own page alone, whatever is asked of it."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gapless.lab.app import make_app
from gapless.lab.serving import Server
from gapless.lab.workers import TooLongError, Workers
from gapless.model.extras import install_line

EXAMPLES = Path(__file__).parents[2] / "examples"
FORGOTTEN = EXAMPLES / "timelines" / "forgotten-default-stream-copy.json.gz"


# Who may ask


def test_the_page_and_its_parts(lab):
    page = lab.ask("GET", "/")
    assert page.status == 200
    assert b"<title>gapless lab</title>" in page.body
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self';")
    assert "unsafe" not in policy
    for name, kind in (("lab.js", "text/javascript"), ("lanes.js", "text/javascript"), ("lab.css", "text/css")):
        part = lab.ask("GET", f"/web/{name}")
        assert (part.status, part.headers.get_content_type()) == (200, kind)
        assert "access-control-allow-origin" not in part.headers
    points = json.loads(lab.ask("GET", "/lesson").body)["points"]
    assert len(points) == 14


@pytest.mark.parametrize("name", ["no.js", "..%2fapp.py", "../app.py", "%2e%2e/app.py", "lab.js%00", "x%5c..%5capp.py"])
def test_there_are_no_other_files(lab, name):
    assert lab.ask("GET", f"/web/{name}").status == 404


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost.evil:{port}", "", "[::1]:{port}"]
)
@pytest.mark.parametrize("path", ["/", "/lesson", "/play"])
def test_no_other_name_is_served(lab, host, path):
    answer = lab.ask("POST" if path == "/play" else "GET", path, Host=host.format(port=lab.port))
    assert answer.status == 403
    assert f"127.0.0.1:{lab.port}".encode() in answer.body


def test_localhost_is_served(lab):
    assert lab.ask("GET", "/", Host=f"localhost:{lab.port}").status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "https://127.0.0.1"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
)
def test_no_other_page_may_ask(lab, headers):
    answer = lab.ask("POST", "/play", '{"loop": {}}', **headers)
    assert (answer.status, b"own page" in answer.body) == (403, True)
    assert lab.ask("GET", "/lesson", **headers).status == 403


def test_a_link_from_elsewhere_opens_the_page(lab):
    assert lab.ask("GET", "/", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate").status == 200
    assert lab.ask("GET", "/", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="no-cors").status == 403


def test_it_listens_on_this_machine_alone(lab):
    assert lab.host == "127.0.0.1"
    addresses = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
    for address in addresses - {"127.0.0.1", "127.0.1.1"}:
        with pytest.raises(OSError, match="refused"):
            socket.create_connection((str(address), lab.port), timeout=2)


# What it does


def test_it_plays(lab):
    run = lab.play(loop={"streams": 4, "default_stream": "copy"})
    assert run["wall"] == 12e6
    assert [one["text"] for one in run["numbers"]] == ["12.0 ms", "12.0 ms", "6.00 ms"]
    assert run["scene"]["version"] == 1
    own = f"http://127.0.0.1:{lab.port}"
    assert lab.ask("POST", "/play", '{"loop": {}}', Origin=own, Sec_Fetch_Site="same-origin").status == 200


def test_hostile_requests_are_answered(lab):
    assert "no request of the lab's page" in lab.play(other=1)["error"]["said"]
    for body in (b"\xff\x00\xfe", b'{"loop":' * 50_000, b'{"tape": "\\ud800"}', b'{"other": 1}'):
        answer = lab.ask("POST", "/play", body)
        assert (answer.status, "no request" in json.loads(answer.body)["error"]["said"]) == (400, True)
    assert lab.ask("POST", "/play", b'{"tape": "' + b"x" * (3 << 20)).status == 413
    assert "more than 20,000 lines" in lab.play(tape="repeat 1000000000\nquery default\nend")["error"]["said"]
    assert "no files" in lab.play(tape='machine "/etc/passwd"')["error"]["said"]
    assert lab.play(tape="kernel <img/src=x> on default 1")["error"]["column"] == 8
    assert lab.ask("GET", "/play").status == 405
    assert lab.play(loop={})["wall"] == 6e6  # and it goes on


def test_a_timeline_is_explained_and_deleted(lab):
    answer = lab.ask("POST", "/explain?name=my%20trace.json.gz", FORGOTTEN.read_bytes())
    told = json.loads(answer.body)
    assert "default stream" in told["headline"]
    page = lab.ask("GET", told["page"])
    assert page.status == 200
    assert b"my trace.json.gz" in page.body
    assert b"/tmp" not in page.body
    assert "sandbox allow-scripts" in page.headers["content-security-policy"]
    assert _uploads(lab) == 0
    assert lab.ask("GET", "/explained/nothing").status == 404


@pytest.mark.parametrize("body", [b"", b"\x00\x01\x02" * 1000, b'{"traceEvents": [', b'{"traceEvents": []}'])
def test_what_is_no_timeline_is_answered(lab, body):
    told = json.loads(lab.ask("POST", "/explain?name=%3Cscript%3Ealert(1)%3C/script%3E", body).body)
    assert "error" in told or "no" in told["headline"].lower()
    assert "gapless-lab-" not in json.dumps(told)  # nor any other place of this machine
    assert _uploads(lab) == 0


def test_a_report_of_nsight_systems_is_known_by_its_name(lab):
    told = json.loads(lab.ask("POST", "/explain?name=my.nsys-rep", b"\0NSYS" * 100).body)
    assert "my.nsys-rep" in told["error"]["said"]
    assert str(lab.folder) not in told["error"]["said"]
    assert _uploads(lab) == 0


def test_a_timeline_has_a_size(lab):
    connection = socket.create_connection((lab.host, lab.port), timeout=10)
    with connection:
        head = f"POST /explain?name=big HTTP/1.1\r\nHost: 127.0.0.1:{lab.port}\r\nContent-Length: {2 << 30}\r\n\r\n"
        connection.sendall(head.encode())
        assert b" 413 " in connection.recv(4096).split(b"\r\n")[0]


def _uploads(lab) -> int:
    """Count the uploads that the lab keeps."""
    return len(list(lab.folder.rglob("upload*")))


# How it starts and ends


def test_ctrl_c_ends_it_with_its_workers(start_lab):
    lab = start_lab()
    lab.play(loop={})
    assert list(lab.folder.iterdir())
    assert lab.stop() == 0
    assert list(lab.folder.iterdir()) == []
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((lab.host, lab.port), timeout=2)


def test_a_kill_ends_it_while_it_works(start_lab):
    lab = start_lab()
    with socket.create_connection((lab.host, lab.port), timeout=10) as connection:
        connection.sendall(f"POST /play HTTP/1.1\r\nHost: 127.0.0.1:{lab.port}\r\nContent-Length: 10\r\n\r\n".encode())
        assert lab.stop(signal.SIGTERM) == 0
    assert list(lab.folder.iterdir()) == []


@pytest.mark.parametrize("path", ["/play", "/explain?name=x.json"])
def test_what_it_works_on_when_it_ends_is_answered_and_nothing_is_said_of_it(path, tmp_path, monkeypatch, capfd):
    working, stopped = threading.Event(), threading.Event()

    async def endless(self, job, *, within, keep=True):
        working.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async def warm(self):
        pass

    monkeypatch.setattr(Workers, "do", endless)
    monkeypatch.setattr(Workers, "warm", warm)
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as thread:
        port = listener.getsockname()[1]
        server = Server(make_app({f"127.0.0.1:{port}"}, tmp_path), lambda: None)
        running = thread.submit(server.run, [listener])
        try:
            with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
                connection.request("POST", path, b'{"loop": {}}')
                assert working.wait(20)
                server.should_exit = True  # what Ctrl-C does
                answer = connection.getresponse()
                told = json.loads(answer.read())
        finally:
            server.should_exit = True
            running.result(20)
    assert (answer.status, told["error"]["said"]) == (503, "the lab has been ended")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert stopped.is_set()
    assert capfd.readouterr().err == ""
    assert list(tmp_path.iterdir()) == []


def test_an_upload_that_is_not_complete_does_not_hold_up_its_end(start_lab, capfd):
    lab = start_lab()
    with socket.create_connection((lab.host, lab.port), timeout=20) as connection:
        head = f"POST /explain?name=x HTTP/1.1\r\nHost: 127.0.0.1:{lab.port}\r\nContent-Length: 10\r\n"
        connection.sendall(f"{head}Expect: 100-continue\r\n\r\n".encode())
        assert b" 100 " in connection.recv(4096)  # it waits for the body now
        assert lab.stop() == 0
        assert b" 503 " in connection.recv(4096).split(b"\r\n")[0]
    assert list(lab.folder.iterdir()) == []
    assert capfd.readouterr().err == ""


def test_a_taken_port_is_said(capsys):
    from gapless.cli import main

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["lab", "--no-browser", "--port", str(port)]) == 2
    assert f"Port {port}: " in capsys.readouterr().err
    assert main(["lab", "--no-browser", "--port", "70000"]) == 2
    assert "--port 70000 is no port" in capsys.readouterr().err


def test_without_its_extra_it_says_what_to_install(monkeypatch, capsys):
    import sys

    from gapless.cli import main

    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "gapless.lab.serving", raising=False)
    assert main(["lab", "--no-browser"]) == 2
    assert install_line("lab") in capsys.readouterr().err


# Workers

ENDLESS = "repeat 9000 as i\nh2d h{i} on default 1 x -> y\nkernel k{i} on default 1 reads y writes z\nend"


def run(work, folder):
    async def whole():
        workers = Workers(folder)
        try:
            return await work(workers)
        finally:
            await workers.close()

    # in a thread of its own: a browser test before this one may have left its loop in the main thread
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, whole()).result()


def test_a_job_that_takes_too_long_is_ended_and_the_next_one_is_done(tmp_path):
    async def work(workers):
        with pytest.raises(TooLongError):
            await workers.do({"play": json.dumps({"tape": ENDLESS})}, within=0.01)
        return json.loads(await workers.do({"play": '{"loop": {}}'}, within=30))

    assert run(work, tmp_path)["wall"] == 6e6


def test_nobody_waits_for_a_job_whose_caller_went_away(tmp_path):
    async def work(workers):
        job = asyncio.ensure_future(workers.do({"play": json.dumps({"tape": ENDLESS})}, within=30))
        while not workers._all:
            await asyncio.sleep(0)
        (worker,) = workers._all
        job.cancel()
        await asyncio.gather(job, return_exceptions=True)
        return worker.returncode

    assert run(work, tmp_path) is not None


def test_a_worker_that_dies_is_an_answer_and_is_replaced(tmp_path):
    async def work(workers):
        await workers.do({"play": '{"loop": {}}'}, within=30)
        (worker,) = workers._all
        worker.kill()
        first = json.loads(await workers.do({"play": '{"loop": {}}'}, within=30))
        again = json.loads(await workers.do({"play": '{"loop": {}}'}, within=30))
        return first, again

    first, again = run(work, tmp_path)
    assert "ended before it was done" in first.get("error", {}).get("said", "") or first["wall"] == 6e6
    assert again["wall"] == 6e6


def test_many_at_once_all_get_their_own_answer(tmp_path):
    async def work(workers):
        jobs = [workers.do({"play": json.dumps({"loop": {"chunks": n, "streams": 1}})}, within=30) for n in range(1, 9)]
        return [json.loads(answer)["wall"] for answer in await asyncio.gather(*jobs)]

    assert run(work, tmp_path) == [n * 3e6 for n in range(1, 9)]
