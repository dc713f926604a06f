"""Names and places in the source of a program, found by the instruction. Needs no PyTorch."""

from __future__ import annotations

import gc
import linecache
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from gapless.torch.sources import Spot, given_name, is_known, is_returned, mentions, spot_after, spot_before, turn

At = tuple[CodeType, int]


def met(folder: Path, text: str) -> list[At]:
    """Run a program; give where it called ``here`` or asked ``Items`` for the next one, in order."""
    seen: list[At] = []

    def here(*_: object, **__: object) -> Any:
        frame = sys._getframe(1)
        seen.append((frame.f_code, frame.f_lasti))
        return 0

    class Items:
        def __init__(self) -> None:
            self.left = 2

        def __iter__(self) -> Items:
            return self

        def __next__(self) -> int:
            frame = sys._getframe(1)
            seen.append((frame.f_code, frame.f_lasti))
            self.left -= 1
            if self.left < 0:
                raise StopIteration
            return 1

    file = folder / "program.py"
    file.write_text(text)
    linecache.clearcache()
    exec(compile(text, str(file), "exec"), {"__name__": "program", "here": here, "Items": Items})
    return seen


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("x = here()", ["x"]),
        ("x = here() + 1", [""]),
        ("x = 1 + here(here())", ["", ""]),
        ("one, other, (third, _) = here(), here(), (here(), 1)", ["one", "other", "third"]),
        ("both = [here(), here()]", ["both[0]", "both[1]"]),
        ("both = {'a': here()}", ["both['a']"]),
        ("all_ = [here() for _ in range(2)]", ["one of all_", "one of all_"]),
        ("first = second = here()", ["first"]),
        ("x: int = here()", ["x"]),
        ("if (x := here()) == 0: pass", ["x"]),
        ("x = None\nx = here() if x is None else x", ["x"]),
        ("x = (\n    here(\n        1,\n    )\n)", ["x"]),
        ("class A: pass\na = A()\na.b = here()", ["a.b"]),
        ("here()", [""]),
        ("a, b = [here(), 1][::-1]", [""]),
    ],
)
def test_the_name_that_a_line_gives(text: str, names: list[str], tmp_path: Path) -> None:
    assert [given_name(*at) for at in met(tmp_path, text)] == names


def test_a_source_that_cannot_be_read_gives_no_name(tmp_path: Path) -> None:
    seen = met(tmp_path, "x = here()\nhere()")
    broken = compile("x = 1", str(tmp_path / "nowhere.py"), "exec")
    (tmp_path / "broken.py").write_bytes(b"x = (\x00\xff\n")
    for file in ("nowhere.py", "broken.py"):
        code = seen[0][0].replace(co_filename=str(tmp_path / file))
        assert given_name(code, seen[0][1]) == ""
        assert spot_before(code, seen[0][1]) == Spot(1)
        assert not is_known("x", broken, seen[0][0])


@pytest.mark.parametrize(
    ("name", "text", "known"),
    [
        ("x", "x = here()\nhere()", True),
        ("x", "x = here()\ndef f(): here()\nf()", True),
        ("x", "x = here()\ndef f(x): here()\nf(1)", False),
        ("x", "def f():\n    x = here()\nf()\nhere()", False),
        ("x", "def f():\n    global x\n    x = here()\nf()\nhere()", True),
        ("x", "def f():\n    x = here()\n    def g():\n        here(); x\n    g()\nf()", True),
        ("x", "def f():\n    x = here()\n    def g():\n        here()\n    g()\nf()", False),
        ("x", "def g():\n    here()\ndef f():\n    x = here()\n    g()\nf()", False),
        ("x", "class A:\n    x = here()\nhere()", False),
        ("self.x", "class A:\n    def f(self): self.x = here()\n    def g(self): here()\na = A(); a.f(); a.g()", True),
        ("self.x", "class A:\n    def f(self): self.x = here()\nclass B:\n    def g(self): here()\nA().f()\nB().g()",
         False),
        ("one of x", "x = [here() for _ in (1,)]\nhere()", False),
        ("x[n]", "n, x = 0, {}\nx[n] = here()\nhere()", False),
        ("x[0]", "x = [here(), 0]\nhere()", True),
    ],
)  # fmt: skip
def test_where_a_name_is_known(name: str, text: str, known: bool, tmp_path: Path) -> None:
    (given, _), (there, _) = met(tmp_path, text)[:2]
    assert is_known(name, given, there) is known


@pytest.mark.parametrize(
    ("text", "before", "after"),
    [
        ("x = here()", Spot(1), Spot(1, before=False)),
        ("x = max(\n    1,\n    here(),\n)", Spot(1), Spot(4, before=False)),
        ("def f():\n    return here()\nf()", Spot(2), Spot(2)),
        ("if here():\n    pass", Spot(1), Spot(1)),
        ("if 0:\n    pass\nelif 0:\n    pass\nelif here():\n    pass", Spot(1), Spot(1)),
        ("if 0:\n    pass\nelse:\n    if here():\n        pass", Spot(4), Spot(4)),
        ("if 0:\n    pass\nelif 1:\n    here()", Spot(4), Spot(4, before=False)),
        ("try:\n    1 / 0\nexcept ZeroDivisionError:\n    here()", Spot(4), Spot(4, before=False)),
        ("match 1:\n    case 1:\n        here()", Spot(3), Spot(3, before=False)),
        ("for x in (here(),):\n    pass", Spot(1), Spot(1)),
        ("for x in Items():\n    pass", None, None),
        ("if 1: here()", None, None),
        ("x = 1; here()", None, None),
        ("here(); x = 1", None, None),
        ("for _ in (1,): here()", None, None),
        ("here()  # a comment", Spot(1), Spot(1, before=False)),
        ("é = here()", Spot(1), Spot(1, before=False)),
        ("while here():\n    pass", Spot(1), None),
        ("x = [here() for _ in (1,)]", None, None),
        ("x = [i for i in Items()]", None, None),
        ("(lambda: here())()", None, None),
    ],
)
def test_where_a_line_can_be_added(text: str, before: Spot | None, after: Spot | None, tmp_path: Path) -> None:
    at = met(tmp_path, text)[0]
    assert spot_before(*at) == before
    assert spot_after(*at) == after


@pytest.mark.parametrize(
    ("text", "spot"),
    [
        ("for x in Items():\n    here()\n    if x:\n        x\n", Spot(4, before=False, ends_loop=True)),
        ("while here():\n    here()\n    x = 1\n    break\n", None),
        ("for x in Items():\n    here()\n    if x: continue\n    x\n", None),
        ("for x in Items(): here()\n", None),
        ("for x in Items():\n    here()\n    x\nelse:\n    x = 1\n", None),
    ],
)
def test_what_a_header_does_in_each_turn_comes_after_the_end_of_the_body(
    text: str, spot: Spot | None, tmp_path: Path
) -> None:
    text = text.replace("while here():\n    here()", "n = 0\nwhile here() == n:\n    here()")
    header, body = met(tmp_path, text)[:2]
    line = next(number for number, line in enumerate(text.splitlines(), 1) if line.lstrip().endswith("here()"))
    assert header[0] is body[0]
    assert spot_before(*header, line) == spot


def test_what_a_header_does_after_what_is_before_its_loop_comes_before_it(tmp_path: Path) -> None:
    before, header = met(tmp_path, "here()\nfor x in Items():\n    x\n")[:2]
    assert before[0] is header[0]
    assert spot_before(*header, 1) == Spot(2)
    assert spot_before(*header, 2) == Spot(3, before=False, ends_loop=True)  # what it does itself, a turn before


def test_the_first_line_of_a_turn(tmp_path: Path) -> None:
    header = met(tmp_path, "for x in Items():\n    x\n")[0]
    assert turn(*header) == ("x", Spot(2))
    for text in ("for x in Items(): x\n", "for x in (here(),):\n    x\n", "for x, in zip(Items()):\n    x\n"):
        assert turn(*met(tmp_path, text)[0]) is None


def test_what_is_returned_and_mentioned(tmp_path: Path) -> None:
    text = "def f():\n    x = here()\n    if x.real:\n        y = x\n    return here()\nf()"
    assert [is_returned(*at) for at in met(tmp_path, text)] == [False, True]
    file = str(tmp_path / "program.py")
    assert [mentions(file, line, "x") for line in (2, 3, 4, 5)] == [True, True, True, False]
    assert mentions(file, 3, "x.real")
    assert not mentions(file, 3, "y")  # of a header, not of what is inside


def test_a_file_that_is_equal_to_another_without_a_source_has_its_names(tmp_path: Path) -> None:
    text = "x = here()\n"
    codes = [compile(text, name, "exec") for name in ("<nowhere>", str(tmp_path / "program.py"))]
    (_, at), *_ = met(tmp_path, text)
    assert codes[0] == codes[1]
    assert [given_name(code, at) for code in codes] == ["", "x"]


def test_threads_look_at_sources_at_once(tmp_path: Path) -> None:
    """Python 3.11 cannot parse in two threads at once: the program's own thread got a SystemError.

    A thread is left in the middle of it where the collector runs something of Python.
    """
    files = [tmp_path / f"{number}.py" for number in range(24)]
    for number, file in enumerate(files):
        file.write_text("".join(f"x{number} = [y + {n} * (z - {n}) for y in range({n})]\n" for n in range(100)))
    interval, threshold = sys.getswitchinterval(), gc.get_threshold()
    gc.callbacks.append(lambda *_: [None for _ in range(100)])
    gc.set_threshold(100)
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            told = list(pool.map(lambda file: mentions(str(file), 7, f"x{file.stem}"), files))
    finally:
        sys.setswitchinterval(interval)
        gc.set_threshold(*threshold)
        gc.callbacks.pop()
    assert told == [True] * len(files)
