"""What a check advises can be followed: the line added where it says, the finding is gone; else it is said in words."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")

import gapless.torch as gt
import stream_programs as programs
from gapless.torch.advice import Advice
from gapless.torch.gpu import GpuDevice
from gapless.torch.log import Log

PAGE = Path(__file__).parents[2] / "docs" / "pytorch.md"
EXAMPLES = re.findall(r"```python\n# ([\w-]+)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
MOST = 3  # lines to add until nothing is found

Run = Callable[[str], gt.Checked]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Check a program, each time in a file of its own; of a module the function of the name behind ``#``."""
    numbers = itertools.count()

    def check(text: str) -> gt.Checked:
        file = tmp_path / f"{next(numbers)}.py"
        file.write_text(text)
        space: dict[str, object] = {"__name__": "program"}
        name = text.splitlines()[-1].partition("# call ")[2]
        code = compile(text, str(file), "exec")
        if name:
            exec(code, space)
        with gt.check(dry=True) as checking:
            if name:
                program = space[name]
                assert callable(program)
                program()
            else:
                exec(code, space)
        return checking.result

    return check


def with_line(text: str, advice: Advice) -> str:
    """Add the advised line, indented as the line beside which it belongs."""
    assert advice.where is not None
    assert advice.where.file.endswith(".py")
    lines = text.splitlines()
    at = advice.where.line - 1
    indent = re.match(r"\s*", lines[at])
    assert indent is not None
    lines.insert(at if advice.before else at + 1, indent[0] + advice.line)
    return "\n".join(lines) + "\n"


def follow(text: str, run: Run) -> list[str]:
    """Follow the advice until nothing is found; give what is left to do in words."""
    for _ in range(MOST + 1):
        findings = run(text).findings
        lines = [finding.advice for finding in findings if finding.advice.line]
        if not lines:
            return [finding.advice.words for finding in findings]
        text = with_line(text, lines[0])
    raise AssertionError(f"still: {findings[0]}")


IN_WORDS = {17: "give the graph an input of its own", 19: "copy (batch.clone())"}


@pytest.mark.parametrize("number", [n for n, (says, _) in enumerate(EXAMPLES) if says != "silent"])
def test_the_advice_for_the_page_can_be_followed(number: int, run: Run) -> None:
    left = follow(EXAMPLES[number][1], run)
    assert len(left) == (number in IN_WORDS)
    assert all(IN_WORDS[number] in words for words in left)


SAID = {
    "read_too_early": "does both: make two statements of it, and put torch.cuda.default_stream().synchronize() between",
    "two_threads_on_two_streams": "record an event on a stream made at",
    "the_32nd_stream_is_another": "let one of streams (another) wait for one of streams before",
    "reads_batches_on_a_stream_of_others": "call record_stream of the batch with that stream",
}


@pytest.mark.parametrize("program", [p for p, _ in programs.RACES + programs.WARNINGS], ids=lambda p: p.__name__)
def test_the_advice_can_be_followed(program: Callable[[], object], run: Run) -> None:
    text = Path(programs.__file__).read_text(encoding="utf-8")
    left = follow(f"{text}\n# call {program.__name__}\n", run)
    assert len(left) == (program.__name__ in SAID)
    assert all(SAID[program.__name__] in words for words in left)


def only(text: str, run: Run) -> gt.Finding:
    (finding,) = run("import torch\nimport gapless.torch\n" + text).findings
    return finding


def test_the_page_says_which_streams_and_which_memory(run: Run) -> None:
    def said(number: int) -> gt.Finding:
        (finding,) = run(EXAMPLES[number][1]).findings
        return finding

    assert said(3).first.stream == "one"
    handed_out, external, graph, refilled = said(10), said(15), said(17), said(19)
    assert handed_out.advice.line == "ahead.record_stream(torch.cuda.default_stream())"
    assert handed_out.advice.where is not None
    assert handed_out.advice.where.text.startswith("ahead = ")
    assert external.advice.line == "x.record_stream(other)"
    assert external.advice.where is not None
    assert external.advice.where.text.startswith("other.wait_stream")  # the first line of the body
    assert external.buffer == graph.buffer == "float32[1000]"
    assert external.first.stream == "other"
    ours = "the stream that prefetch copies on"
    assert external.second.stream == graph.first.stream == refilled.first.stream == ours
    for number in (19, 20, 22, 29):
        finding = said(number)
        assert finding.first_used
        assert not finding.allocated


def test_memory_that_was_seen_allocated_says_so(run: Run) -> None:
    finding = only("x = torch.ones(9, device='cuda')\nresult = x.to('cpu', non_blocking=True)\nresult.sum()\n", run)
    assert finding.allocated
    assert not finding.first_used
    assert finding.to_dict()["buffer"]["allocated"][0]["text"].startswith("result = ")


SIDE = "side = torch.cuda.Stream()\nx = torch.ones(9, device='cuda')\n"


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        # a stream that has no name where it is needed
        ("def fill():\n    hidden = torch.cuda.Stream()\n    with hidden:\n"
         "        return torch.ones(9, device='cuda')\ny = fill() + 1\n", "",
         "let torch.cuda.default_stream() wait for hidden before"),
        ("with torch.cuda.stream(torch.cuda.Stream()):\n    x = torch.ones(9, device='cuda')\ny = x + 1\n", "",
         "wait for a stream made at"),
        ("with torch.cuda.ExternalStream(0x7F0000):\n    x = torch.ones(9, device='cuda')\n"
         "    r = x.to('cpu', non_blocking=True)\nr.sum()\n", "torch.cuda.synchronize()", "an external stream made at"),
        # the second has none, and is the current one
        (SIDE + "with torch.cuda.stream(torch.cuda.Stream()):\n    x.add_(1)\n",
         "torch.cuda.current_stream().wait_stream(torch.cuda.default_stream())", ""),
        # two of one name
        ("x = torch.ones(9, device='cuda')\ntorch.cuda.synchronize()\nfor _ in range(2):\n"
         "    side = torch.cuda.Stream()\n    with side:\n        x.add_(1)\n", "", "let side (another) wait for"),
        # in a comprehension no line can be added
        (SIDE + "with side:\n    y = [x * 2 for _ in range(1)]\n", "", "let side wait for torch.cuda.default_stream()"),
        # results of to_host
        ("side = torch.cuda.Stream()\ndef results():\n    for _ in range(2):\n        with side:\n"
         "            y = torch.ones(9, device='cuda')\n        yield y\n"
         "for r in gapless.torch.to_host(results()):\n    r.sum()\n", "", "let the current stream wait for side"),
        ("def results():\n    y = torch.ones(9, device='cuda')\n    for _ in range(2):\n        yield y\n"
         "        y.add_(1)\nfor r in gapless.torch.to_host(results()):\n    r.sum()\n", "", "yield a copy of it"),
        # a transform of prefetch reads what the loader made on a stream that nobody waits for
        ("side = torch.cuda.Stream()\ndef loader():\n    for _ in range(2):\n        with side:\n"
         "            y = torch.ones(9, device='cuda')\n        yield y\n"
         "for x in gapless.torch.prefetch(loader(), transform=lambda y: y.mul_(2)):\n    pass\n"
         "torch.cuda.synchronize()\n", "", "prefetch waits for the stream that is current when it asks"),
        # a batch that another stream uses before it is there
        ("side = torch.cuda.Stream()\nfor x in gapless.torch.prefetch([torch.ones(9).pin_memory()]):\n    with side:\n"
         "        x * 2\n", "side.wait_stream(torch.cuda.default_stream())", ""),
        # a batch of several tensors has no name
        ("other = torch.cuda.ExternalStream(0x7F0000)\nwith torch.cuda.stream(torch.cuda.Stream()):\n"
         "    for x, in gapless.torch.prefetch([(torch.ones(9).pin_memory(),) for _ in range(8)]):\n"
         "        other.wait_stream(torch.cuda.current_stream())\n        with other:\n            x * 2\n", "",
         "prefetch does not hear of other by itself"),
    ],
)  # fmt: skip
def test_what_has_no_name_is_told_in_words(text: str, line: str, words: str, run: Run) -> None:
    finding = only(text, run)
    assert finding.advice.line == line
    assert words in finding.advice.words
    assert bool(finding.advice.words) is bool(words)
    if line:
        assert follow(f"import torch\nimport gapless.torch\n{text}", run) == []
    again = gt.Checked.from_dict(gt.Checked([finding]).to_dict())
    assert again.findings[0].to_dict() == finding.to_dict()


USES = "x = {0}ones(9, device='cuda')\nside = {1}Stream()\nwith {1}stream(side):\n    x * 2\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("import torch as t\n" + USES.format("t.", "t.cuda."), "side.wait_stream(t.cuda.default_stream())"),
        ("from torch import cuda, ones\n" + USES.format("", "cuda."), "side.wait_stream(cuda.default_stream())"),
        ("import torch.cuda as gpu, torch.nn, torch\n" + USES.format("torch.", "gpu."),
         "side.wait_stream(gpu.default_stream())"),
        ("import torch.nn\n" + USES.format("torch.", "torch.cuda."),
         "side.wait_stream(torch.cuda.default_stream())"),
        ("from torch.cuda import Stream, default_stream as main, stream\nfrom torch import ones\n"
         + USES.format("", ""), "side.wait_stream(main())"),
        ("def torch_of_another_function():\n    import torch as t\ndef program():\n    import torch as u\n"
         + "".join(f"    {part}\n" for part in USES.format("u.", "u.cuda.").splitlines()) + "# call program",
         "side.wait_stream(u.cuda.default_stream())"),
        ("t = __import__('to' + 'rch')\n" + USES.format("t.", "t.cuda."), ""),
        ("from torch import ones\nfrom torch.cuda import Stream, stream\n" + USES.format("", ""), ""),
        ("import torch as t\nx = t.ones(9, device='cuda')\nr = x.to('cpu', non_blocking=True)\nr.sum()\n",
         "t.cuda.default_stream().synchronize()"),
    ],
)  # fmt: skip
def test_torch_is_called_as_the_program_calls_it(text: str, line: str, run: Run) -> None:
    (finding,) = run(text).findings
    assert finding.advice.line == line
    assert bool(follow(text, run)) is not bool(line)
    assert bool(line) is not finding.advice.words.startswith("let side wait for torch.cuda.default_stream() before")


def test_the_batch_of_a_helper_is_named_where_it_is_used(run: Run) -> None:
    text = (
        "import torch\nside = torch.cuda.Stream()\ndef made():\n    return torch.ones(9, device='cuda')\n"
        "def use(tensor):\n    with side:\n        return tensor * 2\n"
        "x = made()\nside.wait_stream(torch.cuda.current_stream())\nuse(x)\ndel x\n"
        "z = torch.zeros(9, device='cuda')\ntorch.cuda.synchronize()\n"
    )
    finding = run(text).findings[0]
    assert str(finding.advice).startswith("add x.record_stream(side) after ")
    assert finding.advice.where is not None
    assert finding.advice.where.text == "use(x)"
    assert follow(text, run) == []


def test_advice_in_words_is_drawn(run: Run) -> None:
    from gapless.views.page import plain
    from gapless.views.torch_check import draw

    found = run(EXAMPLES[17][1])
    drawn = plain(lambda console, options: draw(found, "train.py", console, options), width=200)
    assert "\n    do        the graph was captured over a batch of prefetch" in drawn
    found = run(EXAMPLES[20][1])
    drawn = plain(lambda console, options: draw(found, "train.py", console, options), width=200)
    assert "\n    memory    first used at" in drawn


def test_a_function_that_is_called_again_is_one_finding_and_names_its_stream(run: Run) -> None:
    text = (
        "import torch\ndef step():\n    side = torch.cuda.Stream()\n    x = torch.ones(9, device='cuda')\n"
        "    with side:\n        x.mul_(2)\n    torch.cuda.synchronize()\nfor _ in range(3):\n    step()\n"
    )
    (finding,) = run(text).findings
    assert finding.advice.line == "side.wait_stream(torch.cuda.default_stream())"
    assert follow(text, run) == []


def test_a_stream_of_the_pool_that_two_names_share_has_none_for_sure(run: Run) -> None:
    text = (
        "import torch\nfirst = torch.cuda.Stream()\nrest = [torch.cuda.Stream() for _ in range(31)]\n"
        "again = torch.cuda.Stream()\nassert again == first\n"
        "x = torch.ones(9, device='cuda')\nwith again:\n    x.mul_(2)\n"
    )
    (finding,) = run(text).findings
    assert finding.advice.line == "torch.cuda.current_stream().wait_stream(torch.cuda.default_stream())"
    assert follow(text, run) == []


def test_a_stream_that_torch_makes_is_not_called_by_what_the_program_makes(run: Run) -> None:
    text = (
        "import torch\nlinear, x = torch.nn.Linear(9, 9).cuda(), torch.ones(9, 9).cuda()\n"
        "made = torch.cuda.make_graphed_callables(linear, (x,))\n"
    )
    streams = run(text).streams
    assert len(streams) > 1
    assert "made" not in streams


def test_a_name_that_is_given_to_something_else_is_used_before(run: Run) -> None:
    text = (
        "import torch\nside = torch.cuda.Stream()\nx = torch.ones(9, device='cuda')\n"
        "side.wait_stream(torch.cuda.current_stream())\nwith side:\n    x = x * 2\n"
        "z = torch.zeros(9, device='cuda')\ntorch.cuda.synchronize()\n"
    )
    (finding,) = run(text).findings
    assert finding.advice.line == "x.record_stream(side)"
    assert finding.advice.before
    assert finding.advice.where is not None
    assert finding.advice.where.text == "x = x * 2"
    assert follow(text, run) == []


def test_a_real_gpu_names_its_streams_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gapless.torch.gpu._stream_flags", lambda: None)  # of handles that are none
    log = Log()
    gpu = GpuDevice(log)
    first, other = gpu.being_made(0, 0x10, external=False), gpu.being_made(0, 0x20, external=True)
    assert (first, other) == (None, None)
    gpu.being_made(0, 0x30, external=True)
    names = [log.streams[gpu.numbered(0, handle)].name for handle in (0, 0x10, 0x20, 0x30, 0x40)]
    assert names[:3] == ["torch.cuda.default_stream()", "first", "other"]
    assert names[3].startswith("an external stream made at ")
    assert names[4] == "stream_0x40"
    again = gpu.being_made(0, 0x10, external=False)
    made = [log.streams[gpu.numbered(0, handle)].made for handle in (0x10, 0x20)]
    assert (again, made[0].variable, made[1].variable) == (None, "", "other")
