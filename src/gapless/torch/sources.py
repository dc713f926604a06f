"""What stands in the user's source: which name a line gives to what it makes, where that name is known, where a line
can be added.

Python keeps for each instruction where in the source it stands, so of several calls in a line the right one is found.
"""

from __future__ import annotations

import ast
import dis
import linecache
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from inspect import CO_OPTIMIZED
from itertools import islice
from threading import RLock
from types import CodeType
from typing import Any, TypeAlias

Span: TypeAlias = "tuple[int | None, int | None, int | None, int | None]"  # first line, last line, first column, end

_NEXT = dis.opmap["FOR_ITER"]
_LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_UNNAMED = ("<lambda>", "<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")  # code that no line can be added to


def given_name(code: CodeType, at: int) -> str:
    """Give the name that a statement gives to what its instruction at this offset makes; empty if none.

    ``x`` of ``x = torch.empty(4)``, ``self.side`` of ``self.side, e = Stream(), Event()``, ``sides[1]`` of ``sides =
    [Stream(), Stream()]``, but of ``sides = [Stream() for _ in range(9)]``: "one of sides".
    """
    return _given_name(code.co_filename, code, at)


@lru_cache(maxsize=4096)
def _given_name(file: str, code: CodeType, at: int) -> str:  # code of two files may be equal
    span, tree = _span(code, at), _tree(file)
    if span is None or tree is None:
        return ""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr):
            targets = [node.target]
        else:
            continue
        if node.value is None or not (node.lineno <= (span[0] or 0) <= (node.end_lineno or 0)):
            continue
        for target in targets:
            if name := _given(target, node.value, span):
                return name
    return ""


def _given(target: ast.expr, value: ast.expr, span: Span) -> str:
    if isinstance(target, ast.Tuple | ast.List):
        if isinstance(value, ast.Tuple | ast.List) and len(target.elts) == len(value.elts):
            return next(filter(None, map(_given, target.elts, value.elts, [span] * len(value.elts))), "")
        return ""
    name = ast.unparse(target)
    if isinstance(value, ast.Tuple | ast.List):
        return next((f"{name}[{n}]" for n, part in enumerate(value.elts) if _is(part, span)), "")
    if isinstance(value, ast.Dict):
        pairs = zip(value.keys, value.values, strict=True)
        return next((f"{name}[{ast.unparse(k)}]" for k, part in pairs if k is not None and _is(part, span)), "")
    if isinstance(value, ast.ListComp):
        return f"one of {name}" if _is(value.elt, span) else ""
    parts = [value]
    if isinstance(value, ast.IfExp):
        parts = [value.body, value.orelse]
    elif isinstance(value, ast.BoolOp):
        parts = value.values
    return name if any(_is(part, span) for part in parts) else ""


def _is(node: ast.expr, span: Span) -> bool:
    return (node.lineno, node.end_lineno, node.col_offset, node.end_col_offset) == span


def root(name: str) -> str:
    """Give the variable that a name begins with: ``self`` of ``self.sides[0]``; empty where it means more than one."""
    try:
        node = _parse(name, "eval").body
    except (SyntaxError, ValueError):
        return ""
    while True:
        constant = isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant)
        if isinstance(node, ast.Attribute) or (isinstance(node, ast.Subscript) and constant):
            node = node.value
        else:
            return node.id if isinstance(node, ast.Name) else ""


def is_known(name: str, given: CodeType, there: CodeType) -> bool:
    """Tell whether a name that *given* gives means the same in the code *there*."""
    variable = root(name)
    if not variable or given.co_filename != there.co_filename:
        return False
    if given is there:
        return True
    if variable in there.co_freevars:
        return variable in given.co_cellvars and any(code is there for code in _inside(given))
    function, local = given.co_flags & CO_OPTIMIZED, {*given.co_varnames, *given.co_cellvars, *given.co_freevars}
    if given.co_name == "<module>" or (function and variable not in local):  # a global
        return variable not in there.co_varnames and variable not in there.co_cellvars
    return variable != name and _method_of(given, variable) == _method_of(there, variable) != ""


def _inside(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _inside(constant)


def _method_of(code: CodeType, first: str) -> str:
    """Give the class of a method whose first argument has this name; empty where it is none."""
    holder, dot, _ = code.co_qualname.rpartition(".")
    inside = dot and not holder.endswith("<locals>")
    return holder if inside and code.co_argcount and code.co_varnames[0] == first else ""


def spelled(name: str, code: CodeType, at: int) -> str:
    """Give what ``torch.cuda.NAME`` is called in some code, as it was imported there; empty where it is not known."""
    tree, line = _tree(code.co_filename), line_of(code, at)
    if tree is None or not tree.body:
        return f"torch.cuda.{name}"  # its source is not there
    for statement in _imports(tree, line, in_function=code.co_name != "<module>"):
        for module in statement.names:
            bound = module.asname or module.name.partition(".")[0]
            what = module.name if module.asname or isinstance(statement, ast.ImportFrom) else bound
            full = f"{statement.module}.{what}" if isinstance(statement, ast.ImportFrom) else what
            if f"torch.cuda.{name}" == full or f"torch.cuda.{name}".startswith(f"{full}."):
                return bound + f"torch.cuda.{name}"[len(full) :]
    used = any(isinstance(node, ast.Name) and node.id == "torch" for node in ast.walk(tree))
    return f"torch.cuda.{name}" if used else ""  # imported in another cell of a notebook


def _imports(tree: ast.Module, line: int, *, in_function: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    """Give the imports that a line sees: in the functions around it above it, and outside of all functions."""
    inner, nodes = list[ast.Import | ast.ImportFrom](), list[tuple[ast.AST, bool]]([(tree, False)])
    outer = list[ast.Import | ast.ImportFrom]()
    while nodes:
        node, local = nodes.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            if node.lineno < line or (in_function and not local):
                (inner if local else outer).append(node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if _has(node, line):
                nodes += [(part, True) for part in node.body]
        elif isinstance(node, ast.Module | ast.stmt | ast.excepthandler | ast.match_case):
            nodes += [(part, local) for part in ast.iter_child_nodes(node)]
    yield from inner
    yield from outer


def mentions(file: str, line: int, name: str) -> bool:
    """Tell whether the statement at a line uses a name."""
    found = _statement(file, line)
    parts = [] if found is None else [part for part in _header(found) for part in ast.walk(part)]
    return any(isinstance(part, ast.expr) and ast.unparse(part) == name for part in parts)


def in_loop(code: CodeType, at: int) -> bool:
    """Tell whether an instruction stands in a loop, so that it may run more than once when its code runs once."""
    tree, line = _tree(code.co_filename), line_of(code, at)
    loops = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
    return tree is None or any(isinstance(node, loops) and _has(node, line) for node in ast.walk(tree))


def in_one_statement(code: CodeType, at: int, later: int) -> bool:
    """Tell whether two instructions, in this order, are of one statement."""
    found, other = (_statement(code.co_filename, line_of(code, offset)) for offset in (at, later))
    return at < later and found is not None and found is other


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a line can be added: before or behind a line of the source, or at the end of the loop that ends there."""

    line: int
    before: bool = True
    ends_loop: bool = False


def spot_before(code: CodeType, at: int, other: int = 0) -> Spot | None:
    """Give where a line has to be added to run between another line of the same code (0: none) and this instruction.

    For what runs in each turn of a loop, in its header, that is the end of the body where the other is of the loop too.
    None where no line can be added: in a comprehension, beside another statement of the line, in a loop that goes on
    from several places or whose other access is somewhere else.
    """
    line, turns = line_of(code, at), _asks_for_next(code, at)
    found = _statement(code.co_filename, line)
    if code.co_name in _UNNAMED:
        return None
    if found is None:
        return None if turns else Spot(line)
    if not _is_alone(code.co_filename, found):
        return None
    if turns if isinstance(found, ast.For | ast.AsyncFor) else isinstance(found, ast.While):
        end = found.end_lineno or 0
        if found.lineno <= other <= end:
            return Spot(end, before=False, ends_loop=True) if _goes_on_from_its_end(found) else None
        turns = turns and not other
    return None if turns else Spot(min([found.lineno, *(d.lineno for d in getattr(found, "decorator_list", []))]))


def spot_after(code: CodeType, at: int, name: str = "") -> Spot | None:
    """Give where a line can be added that runs as soon as the instruction is over.

    Before a ``return`` or a header, and before a statement that gives *name* to something else. None where no line can
    be added.
    """
    line = line_of(code, at)
    found = _statement(code.co_filename, line)
    if code.co_name in _UNNAMED or _asks_for_next(code, at) or isinstance(found, ast.While):
        return None
    if found is None:
        return Spot(line, before=False)
    if not _is_alone(code.co_filename, found):
        return None
    if isinstance(found, _LEAVES) or hasattr(found, "body") or (name and _gives(found, root(name))):
        return Spot(found.lineno)
    return Spot(found.end_lineno or line, before=False)


def _gives(statement: ast.stmt, variable: str) -> bool:
    names = (node for node in ast.walk(statement) if isinstance(node, ast.Name) and node.id == variable)
    return any(not isinstance(name.ctx, ast.Load) for name in names)


def _goes_on_from_its_end(loop: ast.stmt) -> bool:
    """Tell whether each turn of a loop runs through the last line of its body, and nothing stands behind that."""
    body, behind = (getattr(loop, name, []) for name in ("body", "orelse"))
    jumps = any(isinstance(node, ast.Continue) for statement in body for node in ast.walk(statement))
    return not jumps and not behind and not isinstance(body[-1], _LEAVES)


def _is_alone(file: str, statement: ast.stmt) -> bool:
    """Tell whether no other statement stands on the lines of a statement; of a header, none on the header's."""
    begin = linecache.getline(file, statement.lineno).encode()[: statement.col_offset]
    body = getattr(statement, "body", None)
    if body:
        return not begin.strip() and body[0].lineno > statement.lineno
    end = linecache.getline(file, statement.end_lineno or 0).encode()[statement.end_col_offset :].strip()
    return not begin.strip() and (not end or end.startswith(b"#"))


def turn(code: CodeType, at: int) -> tuple[str, Spot] | None:
    """Give the name and the first line of a ``for`` loop that asks for its next item; None where it is none."""
    found = _statement(code.co_filename, line_of(code, at))
    if not _asks_for_next(code, at) or not isinstance(found, ast.For) or not isinstance(found.target, ast.Name):
        return None
    first = found.body[0].lineno
    return (found.target.id, Spot(first)) if first > found.lineno else None


def is_returned(code: CodeType, at: int) -> bool:
    """Tell whether what an instruction makes is what its statement returns."""
    found, span = _statement(code.co_filename, line_of(code, at)), _span(code, at)
    return isinstance(found, ast.Return) and found.value is not None and span is not None and _is(found.value, span)


def _asks_for_next(code: CodeType, at: int) -> bool:
    return code.co_code[at] == _NEXT


def _span(code: CodeType, at: int) -> Span | None:
    return next(islice(code.co_positions(), at // 2, None), None)


def line_of(code: CodeType, at: int) -> int:
    """Give the line of an instruction, by its offset in the code."""
    for first, end, line in code.co_lines():
        if first <= at < end and line is not None:
            return line
    return code.co_firstlineno


def _has(node: ast.AST, line: int) -> bool:
    return getattr(node, "lineno", 0) <= line <= getattr(node, "end_lineno", 0)


def _header(statement: ast.stmt) -> list[ast.AST]:
    """Give the parts of a statement without the statements inside it."""
    inner = (ast.stmt, ast.excepthandler, ast.match_case)
    return [part for part in ast.iter_child_nodes(statement) if not isinstance(part, inner)]


def _statement(file: str, line: int) -> ast.stmt | None:
    """Give the innermost statement at a line; of an ``elif`` the ``if`` that it belongs to."""
    found: ast.stmt | None = None
    node: ast.AST | None = _tree(file)
    while node is not None:
        above = node
        node = next((inner for inner in ast.iter_child_nodes(above) if _holds(inner, line)), None)
        if isinstance(node, ast.stmt) and not _is_elif(above, node):
            found = node
    return found


def _holds(node: ast.AST, line: int) -> bool:
    """Tell whether a node is a statement at a line, or a part of one that holds statements."""
    if isinstance(node, ast.match_case):  # which does not say where it stands
        return any(_has(statement, line) for statement in node.body)
    return isinstance(node, ast.stmt | ast.excepthandler) and _has(node, line)


def _is_elif(above: ast.AST, node: ast.stmt) -> bool:
    return isinstance(above, ast.If) and [node] == above.orelse and node.col_offset == above.col_offset


def _tree(file: str) -> ast.Module | None:
    return _parsed("".join(linecache.getlines(file)))


@lru_cache(maxsize=256)
def _parsed(text: str) -> ast.Module | None:
    try:
        return _parse(text, "exec")
    except (SyntaxError, ValueError, RecursionError):
        return None


_parsing = RLock()  # a collection in the midst of it may end things of ours, in this thread


def _parse(text: str, mode: str) -> Any:
    """Parse, one thread at a time: Python 3.11 raises SystemError where two do at once."""
    with _parsing:
        return ast.parse(text, mode=mode)
