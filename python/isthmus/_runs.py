# SPDX-License-Identifier: Apache-2.0
"""What a run has left in its folder: `isthmus.open("runs/x")`."""

from __future__ import annotations

import json
import pathlib
from typing import TYPE_CHECKING, Any, Iterator, Mapping

import numpy as np

from . import _abi
from ._errors import ConfigError, RunError
from ._program import call_json
from ._safetensors import read_weights
from ._tables import Section, read_toml

if TYPE_CHECKING:
    import numpy.typing as npt

    Column = npt.NDArray[Any]

KINDS = ("train", "worker", "eval", "round", "event", "ckpt", "rank", "end", "meta")
_NUMBERS = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}


class Table(Mapping[str, "Column"]):
    """Rows of one kind as numpy columns of equal length: `table["loss"]`.

    Numbers that all rows have are int64 or float64; where some rows lack one the column is float64
    with NaN. Columns with texts or lists have dtype object, with None where a row lacks them.
    """

    def __init__(self, columns: "dict[str, Column]", rows: int) -> None:
        self._columns = columns
        self.rows = rows

    def __getitem__(self, name: str) -> "Column":
        try:
            return self._columns[name]
        except KeyError:
            raise KeyError(
                f"no column '{name}'; there are: {', '.join(self._columns) or 'none'}"
            ) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __repr__(self) -> str:
        return f"<{self.rows} rows: {', '.join(self._columns) or 'no columns'}>"

    def to_pandas(self) -> Any:
        """A pandas.DataFrame. Imports pandas."""
        import pandas  # type: ignore

        return pandas.DataFrame(dict(self._columns))

    def to_arrow(self) -> Any:
        """A pyarrow.Table. Imports pyarrow."""
        import pyarrow

        return pyarrow.table({name: column.tolist() for name, column in self._columns.items()})


def column_of(values: "list[Any]") -> "Column":
    values = [_NUMBERS.get(each, each) if isinstance(each, str) else each for each in values]
    kinds = {type(each) for each in values}
    if kinds <= {bool} and kinds:
        return np.array(values, dtype=np.bool_)
    if kinds <= {int} and kinds:
        return np.array(values, dtype=np.int64)
    if kinds <= {int, float, type(None)}:
        return np.array([float("nan") if each is None else each for each in values], np.float64)
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


def table_of(rows: "list[dict[str, Any]]") -> Table:
    names: "dict[str, None]" = {}
    for row in rows:
        names.update(dict.fromkeys(row))
    return Table({name: column_of([row.get(name) for row in rows]) for name in names}, len(rows))


class Run:
    """A run's folder, read when asked; a run that goes on may be opened too.

    `manifest` and `summary` are dictionaries (manifest.json, summary.json), `config` the resolved
    configuration: `run.config.outer.H`.
    """

    def __init__(self, folder: _abi.Path) -> None:
        self.folder = pathlib.Path(folder)
        if not (self.folder / "manifest.json").is_file():
            raise ConfigError(
                f"'{self.folder}' is no run: it has no manifest.json; give the folder that --out named"
            )

    def __repr__(self) -> str:
        return f"<isthmus run {self.manifest.get('name', '')!r} in '{self.folder}'>"

    def _json(self, name: str) -> "dict[str, Any]":
        path = self.folder / name
        try:
            found: "dict[str, Any]" = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise RunError(f"'{path}' is not there: the run has not ended, or was cut off") from None
        except ValueError as error:
            raise RunError(f"'{path}' cannot be read as JSON: {error}") from None
        return found

    @property
    def manifest(self) -> "dict[str, Any]":
        return self._json("manifest.json")

    @property
    def summary(self) -> "dict[str, Any]":
        """Of a run that has ended; else RunError."""
        return self._json("summary.json")

    @property
    def config(self) -> Section:
        return read_toml(self.folder / "config.resolved.toml")

    def status(self) -> "dict[str, Any]":
        """What `isthmus status` says of the run, as one object; asks a run that goes on."""
        found: "dict[str, Any]" = call_json("status", str(self.folder))
        return found

    def events(self) -> "list[dict[str, Any]]":
        """Rows of events.jsonl, in order."""
        return list(_lines(self.folder / "events.jsonl"))

    def table(self, kind: str) -> Table:
        """Rows of metrics.jsonl of that kind ("train", "worker", "eval", "round", "event", "ckpt",
        "rank"), in order. No such rows: an empty table."""
        if kind not in KINDS:
            raise ConfigError(f'table("{kind}"): no such kind; there are: {", ".join(KINDS)}')
        rows = []
        for row in _lines(self.folder / "metrics.jsonl"):
            if row.get("k") == kind:
                rows.append({name: value for name, value in row.items() if name not in ("k", "v")})
        return table_of(rows)

    def weights(self, step: "int | None" = None) -> "dict[str, npt.NDArray[Any]]":
        """The outer parameters of a checkpoint by name: the last one's, or that after `step`.

        Arrays are float32, float64 or integers as stored; bfloat16 comes as float32.
        """
        name = "last" if step is None else f"step-{step:07d}"
        path = self.folder / "ckpt" / name / "model.safetensors"
        if not path.is_file():
            there = sorted(each.name for each in (self.folder / "ckpt").glob("step-*"))
            raise RunError(
                f"'{path}' is not there; checkpoints: {', '.join(there) or 'none'}"
            )
        return read_weights(path)


def _lines(path: pathlib.Path) -> "Iterator[dict[str, Any]]":
    """Objects of a file of JSON lines. A last line without its end is being written: left out."""
    try:
        file = path.open(encoding="utf-8")
    except FileNotFoundError:
        return
    with file:
        for number, line in enumerate(file, 1):
            if not line.endswith("\n"):
                return
            try:
                yield json.loads(line)
            except ValueError as error:
                raise RunError(f"{path}:{number}: no JSON: {error}") from None


def open(folder: _abi.Path) -> Run:
    """The run in `folder`: the one that --out named."""
    return Run(folder)
