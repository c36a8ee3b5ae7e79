# SPDX-License-Identifier: Apache-2.0
"""isthmus: one model, trained by clusters joined only by thin links.

>>> import isthmus
>>> isthmus.codec("int8").encoded_bytes(4096)
4160

`open` reads what a run has left in its folder, `load_config` checks a configuration, `methods`,
`codecs`, `keys` and `explain` tell what this build has, `compare`, `plan` and `report` are the
program's commands. `python -m isthmus` is the program itself.
"""

from __future__ import annotations

from importlib import metadata as _metadata

from . import _abi
from ._codec import Codec, codec
from ._errors import ConfigError, Error, PeerError, RunError, SystemFault
from ._program import compare, plan, program_path, report
from ._runs import Run, Table, open
from ._native import Forked, Outcome
from ._session import Site, join, run, simulate
from ._tables import Section, codecs, explain, keys, load_config, methods

__version__ = _abi.version()

try:
    _installed = _metadata.version("isthmus")
except _metadata.PackageNotFoundError:  # a source tree on PYTHONPATH
    _installed = __version__
if _installed != __version__:
    raise ImportError(
        f"isthmus: the package is version {_installed}, its library '{_abi.library_path()}' version "
        f"{__version__}: install both from one build"
    )

__all__ = [
    "Codec", "ConfigError", "Error", "Forked", "Outcome", "PeerError", "Run", "RunError", "Section", "Site",
    "SystemFault", "Table", "codec", "codecs", "compare", "explain", "join", "keys", "load_config",
    "methods", "open", "plan", "program_path", "report", "run", "simulate",
]
