# SPDX-License-Identifier: Apache-2.0
"""What `isthmus launch RUN.toml --program` tells the program of a site, in its environment."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Optional

from ._errors import Error

if TYPE_CHECKING:
    from types import TracebackType

# Lists are lines.
_TEXTS = {"out": "ISTHMUS_OUT", "links": "ISTHMUS_LINKS"}
_LISTS = {"overrides": "ISTHMUS_OVERRIDES", "addresses": "ISTHMUS_ADDRESSES", "change": "ISTHMUS_CHANGES"}


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
