# SPDX-License-Identifier: Apache-2.0
"""The library's log as records of the logger `isthmus`: taken by the threads that serve a run, never by
a native one."""

from __future__ import annotations

import ctypes
import json
import logging

from . import _abi
from ._errors import check

logger = logging.getLogger("isthmus")
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def keep() -> None:
    """From now on lines are kept for `drain`, in the place of stderr."""
    _abi.lib.isthmus_log_keep(1)


def show() -> None:
    """Lines from "info" on are shown: on stderr, where the caller has no handler for them."""
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s isthmus %(levelname)s: %(message)s", "%H:%M:%S"))
        logger.addHandler(handler)
    if logger.getEffectiveLevel() > logging.INFO:
        logger.setLevel(logging.INFO)


def drain() -> None:
    """Hands what is kept to the logger."""
    if not _abi.lib.isthmus_log_waiting():
        return
    text = ctypes.c_char_p()
    check(_abi.lib.isthmus_log_take(ctypes.byref(text)))
    for line in json.loads(_abi.taken_text(text)):
        logger.log(_LEVELS[line["level"]], "%s", line["text"])
