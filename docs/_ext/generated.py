"""Pages that are written from the program: one a cause, the command line, the public names.

What has no words there raises ``RuntimeError``, in the build and in the tests.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import fill
from typing import Any

import gapless
import gapless.testing
import gapless.torch
from gapless.cli import COMMANDS
from gapless.diagnosis.causes import CAUSES
from gapless.diagnosis.repairs import REPAIRS

GENERATED = Path(__file__).resolve().parents[1] / "generated"


def write_pages(folder: Path = GENERATED) -> None:
    """Write all pages; those that are as they should be are left alone, so that Sphinx need not read them again."""
    pages = {"cli.md": command_line(), "api.md": public_names(), "causes.md": causes()}
    pages |= {f"cause-{slug}.md": cause(slug) for slug in CAUSES}
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.md"):
        if old.name not in pages:
            old.unlink()
    for name, text in pages.items():
        if not (folder / name).exists() or (folder / name).read_text() != text:
            (folder / name).write_text(text)


def to_pages(text: str) -> str:
    """Lead links to a source, which is there for who reads the pages without a build, to what is written from it."""
    text = text.replace("](../src/gapless/__init__.py)", "](generated/api.md)")
    text = text.replace("](../src/gapless/cli/__init__.py)", "](generated/cli.md)")
    text = text.replace("](../src/gapless/diagnosis/causes/__init__.py)", "](generated/causes.md)")
    link = re.compile(r"\]\(\.\./src/gapless/diagnosis/causes/(\w+)\.py\)")
    return link.sub(lambda found: f"](generated/cause-{found[1].replace('_', '-')}.md)", text)


# Causes


def causes() -> str:
    """List the causes, each with its first line."""
    rows = "".join(f"| [`{slug}`](cause-{slug}.md) | {_first_line(module)} |\n" for slug, module in CAUSES.items())
    toc = "\n".join(f"cause-{slug}" for slug in CAUSES)
    repairs = "".join(f"| `{name}` | {_first_line(module)} |\n" for name, module in REPAIRS.items())
    return (
        "# Causes\n\nWhat `gapless explain` looks for, in the order in which waits are claimed: the more particular "
        "cause first. `gapless explain --cause SLUG` prints the same pages.\n\n"
        f"| cause | in short |\n|---|---|\n{rows}\n## Repairs\n\nWhat `--apply` takes, and what each does to the "
        f"replayed program.\n\n| repair | in short |\n|---|---|\n{repairs}\n```{{toctree}}\n:hidden:\n\n{toc}\n```\n"
    )


# What shows a cause best: a bundled recording and the stretch to draw (ms), or a tape.
PICTURES = {
    "default-stream-barrier": ("timeline", "forgotten-default-stream-copy", 20, 34),
    "pageable-copy": ("timeline", "pageable-memory", 40, 60),
    "host-synchronize": ("timeline", "device-synchronize", 10, 13),
    "allocation-in-loop": ("timeline", "allocation-in-the-loop", 10, 13),
    "single-stream": ("timeline", "one-stream", 20, 34),
    "launch-bound": ("timeline", "pytorch-launch-bound", 40, 41),
    "copy-bound": ("timeline", "four-streams-healthy", 8, 14),
    "too-few-buffers": ("tape", "02-two-streams"),
    "hardware-queue": ("tape", "78-too-few-queues"),
    "priority-inversion": ("tape", "41-no-preemption"),
    "kernel-bound": ("tape", "70-wrong-tool-one-long-kernel"),
    "several-processes": ("tape", "79-wrong-tool-two-processes"),
    "several-devices": ("tape", "73-wrong-tool-two-devices"),
}


def cause(slug: str) -> str:
    """Give the page of a cause: the text of its file, with a picture behind its first line where there is one."""
    first, _, rest = _linked(_markdown(CAUSES[slug])).partition("\n\n")
    return f"# {slug}\n\n{first}\n\n{_picture(slug)}{rest}\n"


def _picture(slug: str) -> str:
    match PICTURES.get(slug):
        case ("timeline", name, start, end):
            shown = f"{end - start} ms of a recording on an H200."
            return f"```{{timeline}} {name}\n:from: {start}ms\n:to: {end}ms\n{shown}\n```\n\n"
        case ("tape", name):
            return f"```{{tape}} {name}\n```\n\n"
        case _:
            return ""


RULES = GENERATED.parent / "rules.md"


def _linked(text: str) -> str:
    """Make every mention of a rule a link to it, but in code."""
    found = re.compile(r"(```.*?```|``[^`]*``|`[^`]*`)|\bR\d+\.\d+\b", re.DOTALL)
    return found.sub(lambda m: m[0] if m[1] else f"[{m[0]}](../rules.md#{m[0].lower().replace('.', '-')})", text)


# The command line


def command_line() -> str:
    """Describe each command: what it does, how it is called, and each option."""
    parts = [
        "# Command line\n\nExit status of every command: 0 done, 1 an expectation or gate failed, 2 the input or the "
        "call is wrong (one message says what, where, and what to do).\n"
    ]
    for command in COMMANDS:
        text, told = _numpy_docstring(command)
        named = list(_options(command))
        if missing := {name for name, *_ in named} - told.keys():
            raise RuntimeError(f"gapless {command.__name__}: no words about {', '.join(sorted(missing))}")
        usage = " ".join(shown for _, shown, positional in named if positional)
        parts.append(f"## gapless {command.__name__}\n\n```text\ngapless {command.__name__} {usage} [OPTIONS]\n```\n")
        parts.append(text + "\n")
        parts += [f"`{shown}`\n: {told[name]}\n" for name, shown, _ in named]
    return "\n".join(parts)


def _options(command: Callable[..., int]) -> Iterator[tuple[str, str, bool]]:
    """Give each parameter of a command: its name, how it is written, and whether it stands alone."""
    for name, parameter in inspect.signature(command).parameters.items():
        kind, names = str(parameter.annotation), [f"--{name.strip('_').replace('_', '-')}"]
        if told := re.fullmatch(r"Annotated\[(.*), Parameter\((.*)\)\]", kind):
            kind, names = told[1], re.findall(r"[\"'](--?[\w-]+)[\"']", told[2]) or names
        if "parse=False" in str(parameter.annotation):  # what stands behind --
            yield name, f"[-- {name.upper()}...]", True
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
            several = parameter.kind is parameter.VAR_POSITIONAL
            optional = parameter.default is not parameter.empty
            word = name.strip("_").upper() + "..." * several
            yield name, f"[{word}]" if optional else word, True
            continue
        kind = kind.removesuffix(" | None").removeprefix("tuple[").removesuffix(", ...]")
        if choice := re.fullmatch(r"Literal\[(.*)\]", kind):
            value = " " + "|".join(word.strip().strip("\"'") for word in choice[1].split(","))
        elif kind == "bool":
            value = ""
        else:
            value = " " + {"str": "TEXT", "int": "COUNT", "float": "NUMBER", "Path": "PATH"}.get(kind, kind.upper())
        yield name, ", ".join(written + value for written in names), False


def _numpy_docstring(command: Callable[..., int]) -> tuple[str, dict[str, str]]:
    """Give the text of a docstring and what it says of each parameter."""
    text, _, parameters = inspect.cleandoc(command.__doc__ or "").partition("Parameters\n----------\n")
    found = re.findall(r"^(\w+)\n((?:    .*\n?)+)", parameters, re.MULTILINE)
    return text, {name: " ".join(words.split()) for name, words in found}


# Public names


def public_names() -> str:
    """Describe the names of ``gapless`` and ``gapless.testing``."""
    parts = ["# Python\n\nEverything public is in `gapless`, `gapless.torch` and `gapless.testing`.\n\n## gapless\n"]
    parts += [_name(gapless, name) for name in sorted(gapless.__all__, key=str.lower) if name != "__version__"]
    parts.append(f"## gapless.torch\n\n{_markdown(gapless.torch)}\n")
    parts += [_from_source(name, home) for name, home in sorted(gapless.torch._HOMES.items())]
    parts.append(f"## gapless.testing\n\n{_markdown(gapless.testing)}\n")
    parts += [_name(gapless.testing, name) for name in sorted(gapless.testing.__all__, key=str.lower)]
    return _linked("\n".join(parts))


def _from_source(name: str, home: str) -> str:
    """Describe a name of ``gapless.torch`` by its source: to import it takes PyTorch."""
    source = Path(gapless.torch.__file__).with_name(f"{home}.py").read_text()
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            words = ast.get_docstring(node)
            if not words:
                raise RuntimeError(f"gapless.torch.{name} has no docstring")
            return f"### gapless.torch.{name}\n\n{_as_markdown(words)}\n\n"
    raise RuntimeError(f"gapless.torch.{name} is not in {home}.py")


def _name(module: Any, name: str) -> str:
    value = getattr(module, name)
    if not (value.__doc__ or "").strip():
        raise RuntimeError(f"{module.__name__}.{name} has no docstring")
    text = f"### {name}\n\n"
    if not issubclass(value, Exception) if inspect.isclass(value) else True:
        text += f"```python\n{fill(name + _signature(value), 92, subsequent_indent='    ')}\n```\n\n"
    text += _markdown(value) + "\n\n"
    if inspect.isclass(value) and not issubclass(value, Exception):
        text += "".join(_members(value))
    return text


def _members(value: type) -> Iterator[str]:
    """Describe the public methods and properties that have words."""
    for name, member in vars(value).items():
        inner = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        called = name == "__call__"
        if (name.startswith("_") and not called) or not (inspect.isfunction(inner) or isinstance(inner, property)):
            continue
        if not (inner.__doc__ or "").strip():
            raise RuntimeError(f"{value.__name__}.{name} has no docstring")
        shown = (
            name + _signature(inner, method=not isinstance(member, staticmethod)) if inspect.isfunction(inner) else name
        )
        yield f"`{shown.replace('__call__', '')}`\n: " + _markdown(inner).replace("\n", "\n  ") + "\n\n"


def _signature(value: Any, *, method: bool = False) -> str:
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    parameters = list(signature.parameters.values())[1 if method else 0 :]
    shown = signature.replace(
        parameters=[p.replace(annotation=p.empty) for p in parameters], return_annotation=signature.empty
    )
    return re.sub(r"<factory>|<[^>]*>", "...", str(shown))


def _markdown(value: Any) -> str:
    """Give a docstring as Markdown: it is that already, but for lists of definitions, examples and ``::``."""
    return _as_markdown(inspect.cleandoc(value.__doc__ or ""))


def _as_markdown(text: str) -> str:
    text = re.sub(r"^::\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"::$", ":", text, flags=re.MULTILINE)
    text = re.sub(r"(?<=\n)((?:``[^`\n]+``(?:, )?)+)\n    (?=\S)", r"\1\n:   ", text)
    return re.sub(r"(?:^>>> .*\n(?:.+\n?)*)", lambda m: f"```pycon\n{m[0].rstrip()}\n```\n", text, flags=re.MULTILINE)


def _first_line(value: Any) -> str:
    return inspect.cleandoc(value.__doc__ or "").partition("\n")[0]
