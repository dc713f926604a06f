"""Sphinx's part of what is written from the program: the generated pages, and the table of a machine's knobs."""

from __future__ import annotations

from dataclasses import fields

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from gapless.model.machine import PROFILES, Machine
from generated import to_pages, write_pages


class Knobs(SphinxDirective):
    """``{knobs}``: a table of the knobs that the body describes, ``NAME: words`` a line, with each profile's value."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Make the table; a name that is no knob is an error."""
        machines = [Machine.named(profile) for profile in PROFILES]
        known = {f.name: f for f in fields(Machine)}
        rows = []
        for line in self.content:
            name, _, words = line.partition(": ")
            if name not in known:
                raise self.error(f"there is no knob {name!r}")
            values = known[name].metadata.get("values")
            shown = [values.write(getattr(machine, name)) if values else "" for machine in machines]
            rows.append((name, words + (f" ({values.allowed})" if values else ""), *shown))
        head = ("knob", "what", *PROFILES)
        table = nodes.table(classes=["knobs"])
        group = nodes.tgroup(cols=len(head))
        table += group
        group += [nodes.colspec(colwidth=1) for _ in head]
        group += nodes.thead("", _row(head, literal=False))
        group += nodes.tbody("", *(_row(row, literal=True) for row in rows))
        return [table]


def _row(cells: tuple[str, ...], *, literal: bool) -> nodes.row:
    row = nodes.row()
    for at, cell in enumerate(cells):
        parts = cell.split("`") if at == 1 else ["", cell] if literal else [cell]
        words = [nodes.literal(text=part) if i % 2 else nodes.Text(part) for i, part in enumerate(parts) if part]
        row += nodes.entry("", nodes.paragraph("", "", *words))
    return row


def _read(app: Sphinx, page: str, source: list[str]) -> None:
    source[0] = to_pages(source[0])


def setup(app: Sphinx) -> dict[str, bool]:
    """Write the pages, and tell Sphinx of the directive."""
    write_pages()
    app.connect("source-read", _read)
    app.add_directive("knobs", Knobs)
    return {"parallel_read_safe": True}
