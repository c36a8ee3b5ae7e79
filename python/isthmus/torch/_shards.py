# SPDX-License-Identifier: Apache-2.0
"""Parameters that the ranks of a site hold together: replicas (DDP) and shards (FSDP2's DTensors).

Rank 0 has the values that the run reads and writes. Shards are collected to it tensor by tensor; replicas are its
own. What the run writes goes back in place, into the memory that the next all-gather reads.
"""

from __future__ import annotations

from typing import Any, Optional

import torch

from .._errors import ConfigError, RunError
from ._memory import Slot, is_sharded
from ._ranks import Ranks


def whole_of(tensor: Any) -> torch.Tensor:
    """A shard's tensor with its whole shape, at every rank. Collective."""
    whole: torch.Tensor = tensor.detach().full_tensor()
    return whole


def part_of(whole: Optional[torch.Tensor], like: Any) -> Any:
    """A DTensor as `like` whose values are those of `whole` at the mesh's first rank; the other ranks need none.
    Collective."""
    from torch.distributed.tensor import distribute_tensor  # not before PyTorch 2.5

    local = like.to_local()
    if whole is None:
        whole = torch.empty(like.shape, dtype=like.dtype, device=local.device)
    return distribute_tensor(whole.to(local.device), like.device_mesh, like.placements)


def check_mesh(name: str, tensor: Any, ranks: Ranks) -> None:
    mesh = [int(each) for each in tensor.device_mesh.mesh.flatten()]
    if sorted(mesh) != sorted(ranks.members) or mesh[0] != ranks.members[0]:
        raise ConfigError(
            f"parameter '{name}' is on a mesh of the ranks {mesh}, and `group` has {ranks.members}: each rank of the "
            "group must have a part of each parameter, and the first rank be the same (pipelines are not taken)")


class SharedSlot(Slot):
    """One parameter at one rank. The methods are called at all ranks together."""

    def __init__(self, name: str, tensor: torch.Tensor, first: int, ranks: Ranks) -> None:
        self._ranks = ranks
        self.sharded = is_sharded(tensor)
        if ranks.leads:
            super().__init__(name, tensor, first)
            return
        # No memory of this rank is the run's.
        self.name, self.tensor = name, tensor
        self.first, self.end = first, first + tensor.numel()
        self.base, self.mirrored = None, True
        self.values = torch.empty(0)
        self.array, self.address = self.values.numpy(), 0

    def fill(self) -> None:
        if not self.sharded and self._ranks.leads:
            super().fill()

    def collect(self) -> None:
        """The first values of a shard, once all ranks are there."""
        if not self.sharded:
            return
        now = whole_of(self.tensor)
        if self._ranks.leads:
            self.values.copy_(now)
            self._rebase()

    def now(self) -> torch.Tensor:
        return whole_of(self.tensor) if self.sharded else super().now()

    def show(self, values: Any) -> None:
        if not self.sharded:
            if self._ranks.leads:
                super().show(values)
            self._ranks.broadcast(self.tensor.detach())
            return
        whole = values.to(self.tensor.dtype) if self._ranks.leads else None
        part = part_of(whole, self.tensor.detach())
        self.tensor.detach().to_local().copy_(part.to_local())

    def read(self) -> bool:
        if not self._ranks.leads:
            if self.sharded:
                whole_of(self.tensor)
            return False
        copying = super().read()
        if self.sharded and copying:  # not on the stream of copies, since PyTorch's collectives come before it
            torch.cuda.current_stream(self.tensor.device).synchronize()
        return copying

    def wrote(self) -> bool:
        if self._ranks.leads:
            self._rebase()
        self.show(self.values if self._ranks.leads else None)
        return False

    def moved(self) -> bool:
        if self._ranks.leads:
            return super().moved()
        return bool(self.tensor.dim() and self.end - self.first != self.tensor.numel())

    def bind(self, tensor: torch.Tensor) -> None:
        if is_sharded(tensor) != self.sharded:
            raise RunError(f"parameter '{self.name}' is {'whole' if self.sharded else 'sharded'} now, and was not at "
                           "join: shard a model before join")
        if self._ranks.leads:
            super().bind(tensor)
        self.tensor = tensor
