# SPDX-License-Identifier: Apache-2.0
"""One run of a comparison whose trainer is a function: `isthmus.compare(file, train=body)` starts
`python -m isthmus._cell FILE MODULE NAME OPTIONS` for each."""

from __future__ import annotations

import importlib
import json
import os
import runpy
import shlex
import sys
from typing import Any, Callable

from ._errors import ConfigError

_MAIN = "__isthmus_cell__"  # what __name__ is in a script whose function trains: not "__main__"


def command_of(train: "Callable[..., Any]", options: "dict[str, Any]") -> str:
    """The command that calls `train` in a process of its own. Raises ConfigError for a function that another process
    does not find by its name."""
    name, module = getattr(train, "__qualname__", ""), getattr(train, "__module__", "") or ""
    file = getattr(sys.modules.get(module), "__file__", None)
    spec = getattr(sys.modules.get(module), "__spec__", None)
    if module == "__main__" and spec is not None:  # python -m package.module
        module = spec.name
    if not callable(train) or not file or not name or "<" in name or "." in name:
        raise ConfigError(f"train = {train!r}: must be a function at the top of a module or script, which each run's "
                          "own process finds by its name; no lambda, no method, and nothing defined in a notebook")
    return shlex.join([sys.executable, "-m", "isthmus._cell", os.path.abspath(file), module, name, json.dumps(options)])


def main() -> None:
    from ._session import run

    file, module, name, options = sys.argv[1:]
    del sys.argv[1:]
    if module == "__main__":
        train = runpy.run_path(file, run_name=_MAIN)[name]
    else:
        train = getattr(importlib.import_module(module), name)
    sys.exit(run(file, train, **json.loads(options)).exit_code)


if __name__ == "__main__":
    main()
