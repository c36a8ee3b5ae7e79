# SPDX-License-Identifier: Apache-2.0
"""Outer state in lanes (outer.placement = "ranks"): each rank of a site holds a share of anchors, momenta and
residuals. The library computes; the ranks' gloo group carries its bytes."""

from __future__ import annotations

import ctypes
import weakref
from typing import TYPE_CHECKING, Any, Callable, Optional

import torch

from .. import _abi, _log
from .._errors import Error, RunError, check
from ._ranks import Ranks

if TYPE_CHECKING:
    from .._native import NativeSession


class Lanes:
    """One rank's end. `begin`: rank 0 tells the others to call `serve` once."""

    def __init__(self, ranks: Ranks, session: "NativeSession", begin: "Callable[[], Any]") -> None:
        self._ranks = ranks
        self._session = session
        self._begin = begin
        self._error: Optional[BaseException] = None  # of a collective, while the library is called
        self._done = 0  # collectives
        this = weakref.ref(self)  # the session's memory stays until the session is freed, and must not keep it

        def do(_: Any, operation: int, peer: int, data: Any, count: int) -> int:
            own = this()
            return 1 if own is None else own._do(operation, peer, data, count)

        call = _abi.RanksCall(do)
        session.memory.append(call)
        check(_abi.lib.isthmus_session_ranks(session.handle, ranks.rank, ranks.size,
                                             ctypes.cast(call, ctypes.c_void_p), None))

    def run(self, call: "Callable[[], Any]") -> Any:
        """A call of the library that may use the ranks. Raises what a collective has raised."""
        self._error = None
        try:
            found = call()
        except Error:
            if self._error is not None:
                raise self._error from None
            raise
        # An exception that comes before the first line of `_do`, a signal's, leaves ctypes without a result to give.
        if self._done != _abi.lib.isthmus_ranks_calls(self._session.handle):
            raise RunError("a collective between the ranks of this site was broken off by an exception, which Python "
                           "has printed: start the site again, which goes on from its last checkpoint")
        return found

    def serve(self) -> None:
        self.run(self._session.share_outer)
        _log.drain()  # no request tells a rank that has no run of its lines

    def close(self) -> None:
        """Frees the share of a rank other than 0; rank 0's ends with its run."""
        if not self._ranks.leads:
            self._session.close()

    def _do(self, operation: int, peer: int, data: Any, count: int) -> int:
        try:
            if operation == _abi.RANKS_BEGIN:
                self._begin()
                self._done += 1
                return 0
            bytes_of = torch.frombuffer((ctypes.c_uint8 * count).from_address(data), dtype=torch.uint8)
            if operation == _abi.RANKS_BROADCAST:
                self._ranks.broadcast(bytes_of)
            elif operation == _abi.RANKS_SEND:
                self._ranks.send(bytes_of, peer)
            else:
                self._ranks.receive(bytes_of, peer)
            self._done += 1
            return 0
        except BaseException as error:  # nothing passes through the library
            self._error = error
            return 1
