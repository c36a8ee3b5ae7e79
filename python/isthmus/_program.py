# SPDX-License-Identifier: Apache-2.0
"""The program that comes with the package: `python -m isthmus`, and its commands as functions."""

from __future__ import annotations

import json
import os
import pathlib
import shlex
import subprocess
import sys
from typing import Any, Callable, NoReturn, Optional, Sequence, Union

from . import _abi, _parquet
from ._cell import command_of
from ._errors import ConfigError, SystemFault, made_error, told, unstarted

Flag = Union[str, int, float, bool, "list[str]", None]


def program_path() -> pathlib.Path:
    """The program beside this file; ISTHMUS_PROGRAM names another one (a build tree's)."""
    named = os.environ.get("ISTHMUS_PROGRAM")
    path = pathlib.Path(named) if named else pathlib.Path(__file__).parent / "bin" / "isthmus"
    if not os.access(path, os.X_OK):
        raise SystemFault(
            f"no program at '{path}'{' (from ISTHMUS_PROGRAM)' if named else ''}: install the "
            "package (pip install .), or set ISTHMUS_PROGRAM to a build's src/app/isthmus"
        )
    return path


def main() -> NoReturn:
    """Becomes the program: signals, exit codes and completion are the program's own.

    Parquet files of `data tokenize` are read here, by pyarrow.
    """
    words = sys.argv[1:]
    try:
        path = str(program_path())
        if _parquet.names_parquet(words):
            sys.exit(_parquet.main(path, words))
        try:
            os.execv(path, ["isthmus", *words])
        except OSError as error:
            raise unstarted(path, error) from error
    except SystemFault as fault:
        sys.exit(told(fault, "--json" in words))
    except KeyboardInterrupt:
        sys.exit(_parquet.INTERRUPTED)


def flags_of(flags: "dict[str, Flag]") -> "list[str]":
    """step_time="1s" -> --step-time 1s; True -> the flag alone; a list -> the flag once an entry."""
    words: "list[str]" = []
    for name, value in flags.items():
        flag = "--" + name.replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            words.append(flag)
            continue
        entries = value if isinstance(value, (list, tuple)) else [str(value)]
        for each in entries:
            words += [flag, str(each)]
    return words


def call_json(*words: Union[str, "os.PathLike[str]"], environment: "Optional[dict[str, str]]" = None) -> Any:
    """What the program prints with --json, parsed. Its messages go to this process's stderr. `environment`: variables
    beside those of this process.

    Raises the exception of the program's exit code.
    """
    command = [str(program_path()), *map(str, words), "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False, text=True,
                          env={**os.environ, **environment} if environment else None)
    if done.returncode < 0:
        raise made_error("run", f"isthmus {words[0]} was ended by signal {-done.returncode}", 1, [])
    # A command that shows progress prints other lines before its result.
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    found: Any = None
    for text in ([done.stdout, lines[-1]] if lines else []):
        try:
            found = json.loads(text)
            break
        except ValueError:
            continue
    if isinstance(found, dict) and isinstance(found.get("error"), dict):
        said = found["error"]
        raise made_error(said["kind"], said["message"], said["exit"], said.get("diagnostics", []))
    if found is None:
        text = f"isthmus {' '.join(map(str, words))}: exit code {done.returncode}, and no JSON"
        raise made_error("run" if done.returncode else "internal", text, done.returncode or 1, [])
    return found


def compare(file: _abi.Path, *, train: "Optional[Callable[[Any], Any]]" = None,
            program: "Union[str, Sequence[str], None]" = None, evaluation_parts: "Union[int, str]" = 0, slots: int = 1,
            kind: str = "numpy", **flags: Flag) -> Any:
    """Runs or resumes the comparison of `file` and returns its result as one object.

    Parameters
    ----------
    file : path of the comparison's TOML file (docs/how-to/comparing.md).
    train : what trains each run in the place of the built-in trainer: the body of `isthmus.run`, a function of one
        site at the top of a module or script. It is called once for each worker, in a process of its own for each run
        (so a script that calls `compare` does it under `if __name__ == "__main__":`). It reads its settings from
        `site.config`, and gives `evaluate` to `site.attach`. `evaluation_parts`, `slots`, `kind`: as `isthmus.run` has
        them.
    program : the same as a command, a text for the shell or a list of words, that calls `isthmus.run` or
        `isthmus.simulate`; with `each_site=True` one that calls `isthmus.join`, started once for each site.
    flags : those of the command line: compare("cmp.toml", out="cmp", resume=True, jobs=2).

    Raises
    ------
    ConfigError, RunError (a program that fails or leaves no whole run), SystemFault
    """
    if train is not None and program is not None:
        raise ConfigError("compare: train and program together: one of them trains the runs")
    if train is not None:
        if evaluation_parts == 0:
            raise ConfigError("compare: losses of the outer parameters are what is compared: give evaluation_parts, "
                              "and `evaluate` to site.attach")
        flags["program"] = command_of(train, {"evaluation_parts": evaluation_parts, "slots": slots, "kind": kind})
    elif program is not None:
        flags["program"] = program if isinstance(program, str) else shlex.join(program)
    # The run's own processes import what this one can.
    path = os.pathsep.join(each for each in sys.path if each)
    return call_json("compare", os.fspath(file), "--progress", "none", *flags_of(flags),
                     environment={"PYTHONPATH": path} if train is not None else None)


def plan(what: str, file: _abi.Path, **flags: Flag) -> Any:
    """`isthmus plan WHAT FILE`: plan("mesh", "run.toml")."""
    return call_json("plan", what, os.fspath(file), *flags_of(flags))


def report(runs: "Union[_abi.Path, list[_abi.Path]]", out: _abi.Path, **flags: Flag) -> pathlib.Path:
    """Writes the report page of one run, of several, or of a comparison's folder, to `out`."""
    folders = list(runs) if isinstance(runs, (list, tuple)) else [runs]
    if not folders:
        raise ConfigError("report: no runs: give a run's folder, or several")
    call_json("report", *[os.fspath(each) for each in folders], "--out", os.fspath(out), *flags_of(flags))
    return pathlib.Path(out)
