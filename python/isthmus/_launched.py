# SPDX-License-Identifier: Apache-2.0
"""What `isthmus launch RUN.toml --program` tells the program of a site in its environment, and `isthmus compare FILE
--program` the program of a run."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Optional

from ._errors import ConfigError, Error

if TYPE_CHECKING:
    from types import TracebackType

# Lists are lines.
_TEXTS = {"out": "ISTHMUS_OUT", "links": "ISTHMUS_LINKS"}
_LISTS = {"overrides": "ISTHMUS_OVERRIDES", "addresses": "ISTHMUS_ADDRESSES", "change": "ISTHMUS_CHANGES"}


_taken = False  # this process has had the run of its cell


def told_config(given: Any) -> Any:
    """The file of the run: that of the comparison's cell which this program trains, whatever file it names itself."""
    return os.environ.get("ISTHMUS_CONFIG") or given


def in_cell() -> bool:
    """Whether this program trains one run of a comparison, all of whose sites are in this process."""
    return "ISTHMUS_CELL" in os.environ


def told_cell(given: "dict[str, Any]") -> "dict[str, Any]":
    """The options of a run whose sites are all in this process; in a cell of a comparison its folder and its clock,
    whatever the caller says. Raises ConfigError for a second run, and for links."""
    global _taken
    if not in_cell():
        return given
    exits_as_told()
    if _taken:
        raise ConfigError("a cell of isthmus compare is one run, and this process has had it: leave the second "
                          "isthmus.run or isthmus.simulate out")
    if given.get("link") is not None:
        raise ConfigError(f"link = \"{given['link']}\" in a cell of isthmus compare: its links are those of the file; "
                          "give [[link]] there")
    _taken = True
    simulated = os.environ["ISTHMUS_CELL"] == "simulated"
    return {**given, "out": os.environ["ISTHMUS_OUT"], "resume": "never", "force": 1, "simulated": int(simulated)}


def told_overrides() -> "list[str]":
    """The keys of `isthmus launch --set` and `--change`."""
    return [each for name in ("ISTHMUS_OVERRIDES", "ISTHMUS_CHANGES") for each in os.environ.get(name, "").splitlines()]


def told(given: "dict[str, Any]") -> "dict[str, Any]":
    """The options of a joining site, with those of the environment where the caller says nothing: `out`, `links`,
    `resume` in the place of "auto", `force`. Overrides, addresses and changes of the environment come after the
    caller's."""
    exits_as_told()
    options = dict(given)
    for name, variable in _TEXTS.items():
        options[name] = options.get(name) or os.environ.get(variable)
    for name, variable in _LISTS.items():
        options[name] = [*(options.get(name) or ()), *os.environ.get(variable, "").splitlines()]
    if options.get("resume") == "auto":
        options["resume"] = os.environ.get("ISTHMUS_RESUME", "auto")
    if os.environ.get("ISTHMUS_FORCE") == "1":
        options["force"] = 1
    return options


def exits_as_told() -> None:
    """A program that `isthmus launch` has started ends with the exit code of the isthmus.Error that it lets go, so
    that a site which has lost the others is told from a mistake in a file."""
    if os.environ.get("ISTHMUS_LAUNCHED") != "1" or getattr(sys.excepthook, "of_isthmus", False):
        return
    before = sys.excepthook

    def hook(kind: "type[BaseException]", error: BaseException, trace: "Optional[TracebackType]") -> None:
        before(kind, error, trace)
        if isinstance(error, Error):
            raise SystemExit(error.exit_code)

    setattr(hook, "of_isthmus", True)
    sys.excepthook = hook
