"""An SQLite export of Nsight Systems: its tables as columns of whole numbers, its strings, its enumerations.

Tables are there only if such events occurred, and columns come and go with the schema's version. So an absent table is
an empty one, an absent optional column is unknown in every row, and an absent column that nothing can replace is named.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gapless.model.errors import GaplessError
from gapless.timeline.sources.columns import Columns
from gapless.timeline.sources.cupti import NO_TIME, NONE
from gapless.timeline.sources.feed import Progress
from gapless.timeline.sources.losses import Losses

Int64: TypeAlias = NDArray[np.int64]

_BATCH = 512  # rows turned into arrays in one go: what a core's cache holds
_IDS = 20_000  # strings looked up in one go
_LONGEST = 64 << 10  # characters kept of a string
_LARGEST = 1 << 20  # bytes of one value, beyond which SQLite gives up
_SMALL = 1 << 16  # rows read of a table that describes devices, streams and the like
_SHORT = 1000  # characters kept of a text in it
_SPARE = 1 << 16  # rows, and bytes of text, that a table may have beyond what the file's size explains
_STEP = 100_000  # instructions of SQLite's machine between two looks at the clock

_PROBLEMS = (sqlite3.Error, UnicodeDecodeError)  # the second where SQLite's message quotes a damaged name

# Columns kept in 64 bits. All others are small numbers; one that does not fit 32 bits is taken as unknown.
_TIMES = frozenset({"start", "end", "timestamp"})
_WIDE = _TIMES | {
    "bytes", "callchainId", "correlationId", "demangledName", "eventId", "eventSyncId", "globalPid", "globalTid",
    "graphId", "graphNodeId", "id", "mangledName", "nameId", "shortName", "streamId", "symbol", "textId",
}  # fmt: skip


class Database:
    """An export, opened for reading only. What is damaged in it is told to ``losses``.

    Nothing is ever written beside the file: it is opened as immutable, without locks, journal or write-ahead log.
    """

    def __init__(self, file: Path, source: str, losses: Losses, progress: Progress | None = None) -> None:
        """Open ``file``. ``source`` is what messages call it. Raises ``GaplessError`` where SQLite cannot read it."""
        self.source = source
        self._losses = losses
        self._progress = progress
        self._size = file.stat().st_size
        self._expected = self._seen = self._steps = 0
        self._damage = ""
        self._connection = sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
        self._connection.text_factory = bytes
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LARGEST)
        self._connection.set_progress_handler(self._stop, _STEP)
        try:
            self._connection.execute("PRAGMA trusted_schema = OFF")
            query = "SELECT name, type FROM sqlite_master WHERE type IN ('table', 'view')"
            found = [(text_of(name), text_of(kind)) for name, kind in self._connection.execute(query).fetchmany(_SMALL)]
            self._tables = {name.lower(): name for name, _ in found}
            self._views = {name.lower() for name, kind in found if kind == "view"}
        except _PROBLEMS as problem:
            self._connection.close()
            raise GaplessError(
                f"{source} is an SQLite database, but a damaged one ({_said(problem)}). Export the report again: "
                "nsys export --type sqlite REPORT.nsys-rep"
            ) from None
        self._columns = {name: self._columns_of(name) for name in self._tables}
        facts = {
            text_of(name): text_of(value)
            for table in ("EXPORT_META_DATA", "META_DATA_EXPORT")  # its old name and its new one
            for name, value in self.rows(table, ("name", "value"))
        }
        self.facts = {name: value for name, value in facts.items() if name and value}

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    @property
    def schema(self) -> str:
        """The version of the schema that the export names, such as ``3.24.14``; empty where it names none."""
        return self.facts.get("EXPORT_SCHEMA_VERSION", "")

    @property
    def damage(self) -> str:
        """What SQLite said of the first damaged table; empty where all could be read."""
        return self._damage

    def has(self, *tables: str) -> bool:
        """Tell whether one of these tables is there, empty or not."""
        return any(table.lower() in self._tables for table in tables)

    def knows(self, table: str, column: str) -> bool:
        """Tell whether a table has a column."""
        return column.lower() in self._columns.get(table.lower(), frozenset())

    def expect(self, tables: Iterable[str]) -> None:
        """Count, for the progress, the rows that are going to be read."""
        for table in tables:
            if self.has(table) and table.lower() not in self._views:
                try:
                    found = self._connection.execute(f"SELECT max(rowid) FROM {self._quoted(table)}").fetchone()
                    self._expected += min(max(whole(found[0]), 0), self._size)
                except _PROBLEMS:  # a table without row ids, or a damaged one
                    continue

    def read(
        self,
        table: str,
        required: str,
        optional: str = "",
        texts: Callable[[Sequence[bytes | None]], list[int]] | None = None,
    ) -> Columns:
        """Read columns of whole numbers, named in ``required`` and ``optional`` and parted by spaces.

        What is not told is ``NONE``, or ``NO_TIME``. With ``texts``, which numbers texts, the column ``text`` is there
        too: the numbers of its cells, ``NONE`` where there is no such column. A table that is not there is empty.
        Raises ``GaplessError`` for a required column that is not there, unless the table is empty.
        """
        wanted = [*required.split(), *optional.split()]
        present = self._columns.get(table.lower(), frozenset())
        if missing := [name for name in required.split() if name.lower() not in present]:
            if self._is_empty(table):
                return {name: np.empty(0, _dtype(name)) for name in [*wanted, *(["text"] if texts is not None else [])]}
            version = f"schema version {self.schema}" if self.schema else "the schema version is not named"
            raise GaplessError(
                f"{self.source}: {table}.{missing[0]} is missing ({version}), and gapless cannot do without it. "
                "Export the report again with the nsys that recorded it, or a newer one: "
                "nsys export --type sqlite REPORT.nsys-rep"
            )
        told = [name for name in wanted if name.lower() in present]
        batches: dict[str, list[NDArray[Any]]] = {name: [] for name in told}
        text = texts is not None and "text" in present
        rows_of_texts: list[NDArray[np.int32]] = []
        count = 0
        for columns in self._batches(table, told, text=text):
            count += len(columns[0])
            if texts is not None and text:
                rows_of_texts.append(np.array(texts(columns.pop()), np.int32))
            for name, cells in zip(told, columns, strict=True):
                batches[name].append(self._numbers(table, name, cells))
        found: Columns = {}
        for name in wanted:
            if name in batches:
                found[name] = np.concatenate([np.empty(0, _dtype(name)), *batches.pop(name)])
            else:
                found[name] = np.full(count, _none(name), _dtype(name))
        if texts is not None:
            found["text"] = np.concatenate([np.empty(0, np.int32), *rows_of_texts]) if text else np.full(count, NONE)
        return found

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """Give rows of a small table as they are; None for a column that is not there."""
        present = self._columns.get(table.lower(), frozenset())
        if not any(name.lower() in present for name in columns):
            return
        chosen = ", ".join(_shortened(_quote(name)) if name.lower() in present else "NULL" for name in columns)
        left = _SMALL
        try:
            cursor = self._connection.execute(f"SELECT {chosen} FROM {self._quoted(table)}")
            while (found := cursor.fetchmany(_BATCH)) and left > 0:
                left -= len(found)
                yield from found
        except _PROBLEMS as problem:
            self._damaged(table, problem)

    def strings(self, ids: Int64) -> dict[int, str]:
        """Give the texts that ``StringIds`` has for these ids; an id without text is left out."""
        found: dict[int, str] = {}
        size = 0
        if {"id", "value"} <= self._columns.get("stringids", frozenset()):
            for first in range(0, len(ids), _IDS):
                asked = json.dumps(ids[first : first + _IDS].tolist())
                # One pass over the ids asked for where StringIds is indexed by id, else one over StringIds.
                query = (
                    f"SELECT id, substr(CAST(value AS BLOB), 1, {_LONGEST}) FROM {self._quoted('StringIds')} "
                    "WHERE value IS NOT NULL AND id IN (SELECT value FROM json_each(?))"
                )
                try:
                    for id_, value in self._connection.execute(query, (asked,)):
                        found[whole(id_)] = text_of(value)
                        size += len(found[whole(id_)])
                        if size > self._size + _SPARE:
                            raise GaplessError(f"{self.source}: StringIds gives more than the file can hold.")
                except _PROBLEMS as problem:
                    self._damaged("StringIds", problem)
        return found

    def words(self, table: str, known: Mapping[int, str]) -> dict[int, str]:
        """Give an enumeration: for each number one of the words in ``known``, or "" for a meaning that is not there.

        The export's own table of the enumeration decides, by how the names in it end; ``known`` says what the numbers
        mean where there is no such table.
        """
        words = sorted(known.values(), key=len, reverse=True)
        told = {
            whole(number): next((word for word in words if f"_{text_of(name).upper()}".endswith(f"_{word}")), "")
            for number, name in self.rows(table, ("id", "name"))
            if name is not None
        }
        return {**known, **told}

    def _columns_of(self, table: str) -> frozenset[str]:
        try:
            found = self._connection.execute(f"PRAGMA table_xinfo({self._quoted(table)})").fetchmany(_SMALL)
        except _PROBLEMS as problem:  # such as a view on a table that is not there
            self._damaged(self._tables[table], problem)
            return frozenset()
        return frozenset(text_of(row[1]).lower() for row in found)

    def _quoted(self, table: str) -> str:
        return _quote(self._tables[table.lower()])

    def _is_empty(self, table: str) -> bool:
        if not self._columns.get(table.lower()):
            return True
        try:
            return self._connection.execute(f"SELECT 1 FROM {self._quoted(table)} LIMIT 1").fetchone() is None
        except _PROBLEMS as problem:
            self._damaged(table, problem)
            return True

    def _batches(self, table: str, names: Sequence[str], *, text: bool) -> Iterator[list[tuple[Any, ...]]]:
        chosen = [f"ifnull({_quote(name)}, {_none(name)})" for name in names]
        if text:
            chosen.append(f"substr(CAST(text AS BLOB), 1, {_LONGEST})")
        if not chosen:
            return
        count = size = 0
        try:
            cursor = self._connection.execute(f"SELECT {', '.join(chosen)} FROM {self._quoted(table)}")
            while rows := cursor.fetchmany(_BATCH):
                count += len(rows)
                columns = list(zip(*rows, strict=True))
                size += sum(len(cell) for cell in columns[-1] if cell) if text else 0
                if max(count, size) > self._size + _SPARE:  # a view can give rows without end
                    raise GaplessError(f"{self.source}: {table} gives more than the file can hold.")
                yield columns
                self._advance(len(rows))
        except _PROBLEMS as problem:
            self._damaged(table, problem)

    def _numbers(self, table: str, name: str, cells: Sequence[Any]) -> NDArray[Any]:
        """Make an array of cells; what is no number, or too large a one, is unknown."""
        try:
            return np.fromiter(cells, _dtype(name), len(cells))
        except (TypeError, ValueError, OverflowError):
            limits = np.iinfo(_dtype(name))
            numbers = [whole(cell, NO_TIME) for cell in cells]
            bad = sum(number == NO_TIME != cell for number, cell in zip(numbers, cells, strict=True))
            self._losses.add(f"Took {table}.{name} as unknown in {{events}}: what stands there is no number.", bad)
            fitting = [number if limits.min <= number <= limits.max else _none(name) for number in numbers]
            return np.array(fitting, _dtype(name))

    def _advance(self, rows: int) -> None:
        self._seen += rows
        if self._progress and self._expected:
            self._progress(min(self._seen, self._expected) * self._size // self._expected, self._size)

    def _stop(self) -> bool:
        """Stop a query that works out of all proportion to the file: only a view or an index made to can."""
        self._steps += 1
        return self._steps * _STEP > 20_000_000 + 100 * self._size

    def _damaged(self, table: str, problem: Exception) -> None:
        said = _said(problem)
        if "interrupted" in said:
            raise GaplessError(f"{self.source}: reading {table} takes far longer than its size explains.") from None
        self._damage = self._damage or f"{table}: {said}"
        self._losses.add(f"{table} is damaged ({said}): used what could be read of it.")


def whole(value: Any, none: int = NONE) -> int:
    """Give a cell as a whole number of 64 bits, ``none`` where it is not one."""
    if isinstance(value, bytes) and len(value) <= 20 and value.removeprefix(b"-").isdigit():
        value = int(value)
    if isinstance(value, float) and math.isfinite(value):
        value = math.floor(value)
    return value if isinstance(value, int) and -(1 << 63) <= value < 1 << 63 else none


def text_of(value: Any) -> str:
    """Give a cell as text; empty for NULL."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return "" if value is None else str(value)


def _said(problem: Exception) -> str:
    """Give SQLite's words for a problem in one line; damaged names in them may be no text."""
    return " ".join(str(problem).split())[:200] if isinstance(problem, sqlite3.Error) else "names in it are no text"


def _shortened(column: str) -> str:
    return f"iif(typeof({column}) IN ('text', 'blob'), substr(CAST({column} AS BLOB), 1, {_SHORT}), {column})"


def _dtype(name: str) -> type[np.integer[Any]]:
    return np.int64 if name in _WIDE else np.int32


def _none(name: str) -> int:
    return NO_TIME if name in _TIMES else NONE


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
