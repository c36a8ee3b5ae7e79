# SPDX-License-Identifier: Apache-2.0
"""Exceptions. Each text names the thing, the value, the cause and the remedy."""

from __future__ import annotations

import json
import sys
from typing import Any, Optional

from . import _abi


class Error(RuntimeError):
    """Base of what isthmus raises.

    `exit_code` is what the program would exit with; `kind` is "config", "usage", "environment",
    "run", "peer", "internal" or "error".
    """

    kind = "error"

    def __init__(self, text: str, exit_code: int = 1, kind: Optional[str] = None) -> None:
        super().__init__(text)
        self.exit_code = exit_code
        if kind is not None:
            self.kind = kind


class ConfigError(Error, ValueError):
    """A configuration, spelling or argument that cannot be used.

    `diagnostics` has one dictionary an error of a configuration file: code, where, line, column,
    message, hint, source_line. The text of the exception is all of them with their excerpts.
    """

    kind = "config"

    def __init__(
        self, text: str, exit_code: int = 3, diagnostics: "Optional[list[dict[str, Any]]]" = None
    ) -> None:
        super().__init__(text, exit_code)
        self.diagnostics = diagnostics or []


class SystemFault(Error, OSError):
    """A file, device or system call that refused."""

    kind = "environment"

    def __init__(self, text: str, exit_code: int = 4) -> None:
        Error.__init__(self, text, exit_code)

    def __str__(self) -> str:
        return str(self.args[0])


class RunError(Error):
    """Data or a run that cannot go on."""

    kind = "run"


class PeerError(Error, ConnectionError):
    """Other sites that disagree or are gone."""

    kind = "peer"

    def __init__(self, text: str, exit_code: int = 5) -> None:
        Error.__init__(self, text, exit_code)

    def __str__(self) -> str:
        return str(self.args[0])


def made_error(
    kind: str, text: str, exit_code: int, diagnostics: "list[dict[str, Any]]"
) -> Error:
    if kind in ("config", "usage"):
        return ConfigError(text, exit_code, diagnostics)
    if kind == "environment":
        return SystemFault(text, exit_code)
    if kind == "run":
        return RunError(text, exit_code)
    if kind == "peer":
        return PeerError(text, exit_code)
    return Error(text, exit_code, kind)


def unstarted(program: str, error: OSError) -> SystemFault:
    """What to say of a program that the system does not run."""
    return SystemFault(f"{program}: cannot be started: {error.strerror}; install the package again (pip install .), or "
                       "name a build's program in ISTHMUS_PROGRAM")


def told(error: Error, as_json: bool) -> int:
    """Prints an error as the program does. Returns the exit code."""
    if as_json:
        said = {"kind": error.kind, "exit": error.exit_code, "message": str(error), "diagnostics": []}
        print(json.dumps({"error": said}), flush=True)
    print(f"isthmus: error: {error}", file=sys.stderr)
    return error.exit_code


def check(error: Optional[int]) -> None:
    """Raises what a function of the library returned."""
    if not error:
        return
    try:
        raised = made_error(
            _abi.lib.isthmus_error_kind(error).decode(),
            _abi.lib.isthmus_error_text(error).decode(errors="replace"),
            _abi.lib.isthmus_error_exit_code(error),
            json.loads(_abi.lib.isthmus_error_diagnostics(error)),
        )
    finally:
        _abi.lib.isthmus_error_free(error)
    raise raised
