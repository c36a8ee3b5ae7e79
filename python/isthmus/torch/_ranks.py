# SPDX-License-Identifier: Apache-2.0
"""The ranks of one site: rank 0 of a process group gives orders, the other ranks follow.

Orders are a few integers over a gloo group; what they speak of follows as tensors and texts. Never pickle.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import weakref
from typing import Any, Callable, Iterator, Optional

import torch
import torch.distributed as dist

from .._errors import ConfigError, Error, PeerError, made_error

_NUMBERS = 5  # of an order
_BROKEN = re.compile(r"gloo|NCCL|[Cc]onnection (closed|reset|refused)|Broken pipe|Timed out")


class Ranks:
    """This process as a rank of a site. All methods but the properties are collective."""

    def __init__(self, group: Any = None) -> None:
        self._data = group if group is not None else dist.group.WORLD
        self.rank: int = dist.get_rank(self._data)
        self.size: int = dist.get_world_size(self._data)
        if self.rank < 0:
            raise ConfigError("join: this process is no rank of `group`: give the group whose ranks are this site")
        self.members = [_global_rank(self._data, each) for each in range(self.size)]
        self._orders = _gloo_beside(self._data, self.members)
        made = self._orders is not self._data
        # At the latest as the interpreter ends, for loops without `with`: gloo's threads end with their group, and one
        # that still held a tensor after that would ask for the interpreter's lock, so the process would end by abort().
        self._free = weakref.finalize(self, _free, self._orders, os.getpid()) if made else None
        self._order = torch.zeros(_NUMBERS, dtype=torch.int64)

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def order(self, *numbers: int) -> "list[int]":
        """Rank 0's numbers, at every rank."""
        if self.leads:
            self._order[: len(numbers)] = torch.tensor(numbers)
        self._broadcast(self._order, self._orders)
        found: "list[int]" = self._order.tolist()
        return found

    def close(self) -> None:
        """The orders are over."""
        self._orders = self._data = None
        if self._free is not None:
            self._free()

    def latest(self, numbers: "list[int]") -> "list[int]":
        """The largest of all ranks' numbers, place by place."""
        given = torch.tensor(numbers, dtype=torch.int64)
        with self.peers():
            dist.all_reduce(given, op=dist.ReduceOp.MAX, group=self._orders)
        found: "list[int]" = given.tolist()
        return found

    def data(self, given: "Optional[bytes]") -> bytes:
        """Rank 0's bytes, at every rank."""
        size = torch.tensor([len(given or b"")])
        self._broadcast(size, self._orders)
        if self.size == 1 or not int(size):
            return given or b""
        whole = torch.frombuffer(bytearray(given), dtype=torch.uint8) if self.leads and given else torch.empty(
            int(size), dtype=torch.uint8)
        self._broadcast(whole, self._orders)
        found: bytes = given if self.leads and given else whole.numpy().tobytes()
        return found

    def text(self, given: "Optional[str]") -> str:
        return self.data((given or "").encode()).decode()

    def read(self, name: str, source: "Callable[[str], bytes]") -> bytes:
        """Entry `name` as rank 0 has it from `source`. Raises KeyError at every rank where it is not there."""
        found: Optional[bytes] = None
        if self.leads:
            with contextlib.suppress(KeyError):
                found = source(name)
        if not self.order(1 if found is not None else 0)[0]:
            raise KeyError(name)
        return self.data(found)

    def each_data(self, given: bytes) -> "list[bytes]":
        """The bytes of every rank, at rank 0; elsewhere nothing."""
        found = []
        for rank, size in enumerate(self._sizes(len(given))):
            if rank == 0:
                found.append(given)
            elif self.leads:
                found.append(self._received(size, rank))
            elif rank == self.rank:
                self._send(given, 0)
        return found if self.leads else []

    def to_each(self, given: "Optional[list[bytes]]") -> bytes:
        """What rank 0 has for this rank."""
        own = given[0] if given else b""
        sizes = torch.tensor([len(each) for each in given] if given else [0] * self.size)
        self._broadcast(sizes, self._orders)
        for rank in range(1, self.size):
            if self.leads and given:
                self._send(given[rank], rank)
            elif rank == self.rank:
                own = self._received(int(sizes[rank]), 0)
        return own

    def each_text(self, given: str) -> "list[str]":
        """The texts of all ranks, at every rank."""
        sent = given.encode()
        sizes = self._sizes(len(sent))
        padded = torch.zeros(max(sizes), dtype=torch.uint8)
        padded[: len(sent)] = torch.frombuffer(bytearray(sent), dtype=torch.uint8)
        found = [torch.zeros_like(padded) for _ in sizes]
        with self.peers():
            dist.all_gather(found, padded, group=self._orders)
        return [each.numpy().tobytes()[:size].decode() for each, size in zip(found, sizes)]

    def agree(self, error: Optional[Error], facts: "dict[str, Any]") -> "list[dict[str, Any]]":
        """What every rank has to say. Raises at every rank where one has an error; its own, where it has one."""
        said = {**facts, "error": None if error is None else [error.kind, str(error), error.exit_code]}
        found: "list[dict[str, Any]]" = [json.loads(each) for each in self.each_text(json.dumps(said))]
        if error is not None:
            raise error
        for rank, each in enumerate(found):
            if each["error"] is not None:
                kind, text, code = each["error"]
                raise made_error(kind, f"rank {rank} of this site: {text}", code, [])
        return found

    def broadcast(self, tensor: torch.Tensor) -> None:
        """Rank 0's values in every rank's `tensor`, which is contiguous and may lie on a device."""
        self._broadcast(_as_bytes(tensor), self._group_of(tensor))

    def send(self, tensor: torch.Tensor, rank: int) -> None:
        with self.peers():
            dist.send(_as_bytes(tensor), self.members[rank], group=self._group_of(tensor))

    def receive(self, tensor: torch.Tensor, rank: int) -> None:
        with self.peers():
            dist.recv(_as_bytes(tensor), self.members[rank], group=self._group_of(tensor))

    def _group_of(self, tensor: torch.Tensor) -> Any:
        return self._orders if tensor.device.type == "cpu" else self._data

    def _broadcast(self, tensor: torch.Tensor, group: Any) -> None:
        if self.size > 1:
            with self.peers():
                dist.broadcast(tensor, self.members[0], group=group)

    def _sizes(self, size: int) -> "list[int]":
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        with self.peers():
            dist.all_gather(sizes, torch.tensor([size]), group=self._orders)
        return [int(each) for each in sizes]

    def _send(self, given: bytes, rank: int) -> None:
        if given:
            self.send(torch.frombuffer(bytearray(given), dtype=torch.uint8), rank)

    def _received(self, size: int, rank: int) -> bytes:
        whole = torch.empty(size, dtype=torch.uint8)
        if size:
            with self.peers():
                dist.recv(whole, self.members[rank], group=self._orders)
        return bytes(whole.numpy().tobytes())

    @contextlib.contextmanager
    def peers(self) -> "Iterator[None]":
        try:
            yield
        except RuntimeError as error:
            raise_if_lost(error)
            raise


def _free(group: Any, pid: int) -> None:
    if os.getpid() != pid:
        return
    with contextlib.suppress(AssertionError, RuntimeError, ValueError):  # the caller has destroyed all groups before
        dist.destroy_process_group(group)


def _as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """gloo had no bfloat16 before PyTorch 2; NCCL has all types."""
    return tensor.view(torch.uint8) if tensor.device.type == "cpu" and tensor.dtype == torch.bfloat16 else tensor


def raise_if_lost(error: Any) -> None:
    """A collective that broke off, since another rank is gone or does not come, is a PeerError."""
    if not isinstance(error, RuntimeError) or isinstance(error, Error):
        return
    if type(error).__module__.startswith("torch.distributed") or _BROKEN.search(str(error)):
        first = (str(error).splitlines() or [""])[0]
        raise PeerError(f"another rank of this site is gone, and its own error says why ({first})") from error


def _global_rank(group: Any, rank: int) -> int:
    if group is dist.group.WORLD:
        return rank
    find = getattr(dist, "get_global_rank", None)
    if find is not None:
        return int(find(group, rank))
    return int(dist.distributed_c10d._get_global_rank(group, rank))  # not in public before PyTorch 2


def _gloo_beside(group: Any, members: "list[int]") -> Any:
    """A gloo group of the same ranks for orders, so that they do not mix with the training's collectives."""
    if group is dist.group.WORLD or len(members) == dist.get_world_size():
        return dist.new_group(members, backend="gloo")
    try:
        return dist.new_group(members, backend="gloo", use_local_synchronization=True)
    except TypeError:  # not before PyTorch 2.1: each process of the job would have to call
        if dist.get_backend(group) == "gloo":
            return group
        raise ConfigError("join: `group` is a part of the job and has another backend than gloo, which needs "
                          "PyTorch 2.1") from None


def initialized() -> bool:
    return bool(dist.is_available() and dist.is_initialized())


def rank_in_words() -> str:
    """Both readings of a launcher's RANK."""
    rank = os.environ.get("RANK") or (dist.get_rank() if initialized() else "?")
    return (f"join: RANK = {rank} could be a rank inside a site, as torchrun sets it, or the number of the site: name "
            "the site, join(..., site=...) or ISTHMUS_SITE, at every rank of it")
