# SPDX-License-Identifier: Apache-2.0
"""Parameters that the ranks of a site hold together: replicas (DDP) and shards (FSDP2's DTensors).

Rank 0 has the values that the run reads and writes. Shards are collected to it, some tensors at a time and never the
whole model; replicas are its own. What the run writes goes back in place, into the memory that the next all-gather
reads.
"""

from __future__ import annotations

from typing import Any, Callable, Iterable, Iterator, Mapping, Optional, Tuple

import torch

from .._errors import ConfigError, RunError
from ._memory import Memory, Slot, is_sharded, local_of
from ._ranks import Ranks

_ALL = 1 << 62  # elements
_BUCKET_BYTES = 32 << 20  # of tensors that travel together; a larger tensor travels alone

Region = Tuple[slice, ...]


def whole_of(tensor: Any) -> torch.Tensor:
    """A DTensor's values with its whole shape, at every rank. Collective."""
    whole: torch.Tensor = tensor.detach().full_tensor()
    return whole


def part_of(whole: torch.Tensor, like: Any) -> Any:
    """A DTensor as `like` with the values of `whole`. Collective."""
    from torch.distributed.tensor import distribute_tensor  # not before PyTorch 2.5

    return distribute_tensor(whole.to(like.to_local().device), like.device_mesh, like.placements)


def regions_of(tensor: Any) -> "list[Region]":
    """Which part of the whole tensor each rank of the mesh holds, in the mesh's order."""
    mesh = tensor.device_mesh.mesh
    found: "list[Region]" = []
    for place in torch.cartesian_prod(*[torch.arange(n) for n in mesh.shape]).reshape(-1, mesh.dim()).tolist():
        spans = [(0, n) for n in tensor.shape]
        for at, parts, placement in zip(place, mesh.shape, tensor.placements):
            if placement.is_shard():
                begin, end = spans[placement.dim]
                size = -(-(end - begin) // parts)  # as torch.chunk: the last ones are shorter, or empty
                spans[placement.dim] = (min(begin + at * size, end), min(begin + (at + 1) * size, end))
        found.append(tuple(slice(begin, end) for begin, end in spans))
    return found


def check_mesh(name: str, tensor: Any, ranks: Ranks) -> None:
    mesh = [int(each) for each in tensor.device_mesh.mesh.flatten()]
    if mesh != ranks.members:
        raise ConfigError(
            f"parameter '{name}' is on a mesh of the ranks {mesh}, and `group` has {ranks.members}: each rank of the "
            "group must have a part of each parameter, in one order (pipelines are not taken)")
    region = regions_of(tensor)[ranks.rank]
    if tuple(each.stop - each.start for each in region) != tuple(tensor.to_local().shape):
        raise ConfigError(f"parameter '{name}' is shared out over the ranks in another way than torch.chunk does: "
                          f"this one has {tuple(tensor.to_local().shape)} of {tuple(tensor.shape)}")


class SharedSlot(Slot):
    """One parameter at one rank."""

    def __init__(self, name: str, tensor: torch.Tensor, first: int, ranks: Ranks) -> None:
        self.sharded = is_sharded(tensor)
        self.leads = ranks.leads
        # Where all ranks have the whole of it, rank 0's is it.
        self.regions = regions_of(tensor) if self.sharded else []
        self.split = len({str(each) for each in self.regions}) > 1
        if self.leads:
            super().__init__(name, tensor, first)
            return
        # No memory of this rank is the run's.
        self.name, self.tensor = name, tensor
        self.first, self.end = first, first + tensor.numel()
        self.base, self.mirrored = None, True
        self.values = torch.empty(0)
        self.array, self.address = self.values.numpy(), 0

    def fill(self) -> None:
        if not self.split:
            self.take(local_of(self.tensor))
            self.rebase()

    def read(self) -> bool:
        return bool(self.mirrored and self.take(local_of(self.tensor)))

    def show(self, values: Any) -> None:
        if values is not self.values or self.mirrored:
            local_of(self.tensor).copy_(values)

    def sends(self, rank: int) -> bool:
        """Whether the rank is the first that has its part."""
        return rank > 0 and self.regions[rank] not in self.regions[:rank] and _size(self.regions[rank]) > 0

    def moved(self) -> bool:
        if self.leads:
            return super().moved()
        return bool(self.end - self.first != self.tensor.numel())

    def bind(self, tensor: torch.Tensor) -> None:
        if is_sharded(tensor) != self.sharded or self.sharded and regions_of(tensor) != self.regions:
            raise RunError(f"parameter '{self.name}' is sharded in another way than at join: shard a model before join")
        if self.leads:
            super().bind(tensor)
        self.tensor = tensor


class SharedMemory(Memory):
    """The parameters at one rank. `read`, `wrote` and `show` are called at all ranks together."""

    def __init__(self, ranks: Ranks, found: "Mapping[str, torch.Tensor]",
                 again: "Callable[[], Mapping[str, torch.Tensor]]") -> None:
        super().__init__(found, again, lambda name, tensor, first: SharedSlot(name, tensor, first, ranks))
        self._ranks = ranks

    def collect(self) -> None:
        """The first values of shards, once all ranks are there."""
        with torch.no_grad():
            for slots in _buckets(slot for slot in self._of(0, _ALL) if slot.split):
                self._collect(slots)
                for slot in slots if self._ranks.leads else []:
                    slot.rebase()

    def read(self, first: int, end: int) -> None:
        if self._ranks.leads:
            super().read(first, end)
        else:
            self.look()
        with torch.no_grad():
            for slots in _buckets(slot for slot in self._of(first, end) if slot.split):
                self._collect(slots)

    def wrote(self, first: int, end: int) -> None:
        self.look()
        with torch.no_grad():
            slots = self._of(first, end)
            if self._ranks.leads:
                for slot in slots:
                    if slot.mirrored:
                        slot.rebase()
            self._spread(slots, [slot.values for slot in slots])

    def show(self, values: "Iterable[Any]") -> None:
        for slot, shown in zip(self._of(0, _ALL), values):
            self._spread([slot], [shown])

    def of(self, first: int, end: int) -> "list[Slot]":
        """Those that this rank can read by itself."""
        return [slot for slot in self._of(first, end) if not slot.split]

    def _of(self, first: int, end: int) -> "list[SharedSlot]":
        return [slot for slot in super().of(first, end) if isinstance(slot, SharedSlot)]

    def _collect(self, slots: "list[SharedSlot]") -> None:
        """Shards come to rank 0."""
        ranks = self._ranks
        local = [local_of(slot.tensor) for slot in slots]
        if not ranks.leads:
            sent = [each.reshape(-1) for slot, each in zip(slots, local) if slot.sends(ranks.rank)]
            if sent:
                ranks.send(torch.cat(sent), 0)
            return
        wholes = [torch.empty(tuple(slot.tensor.shape), dtype=slot.tensor.dtype) if slot.narrow else slot.values
                  for slot in slots]
        for whole, slot, each in zip(wholes, slots, local):
            whole[slot.regions[0]].copy_(each)
        for rank in range(1, ranks.size):
            of_rank = [(slot, whole) for slot, whole in zip(slots, wholes) if slot.sends(rank)]
            count = sum(_size(slot.regions[rank]) for slot, _ in of_rank)
            if not count:
                continue
            flat = torch.empty(count, dtype=local[0].dtype, device=local[0].device)
            ranks.receive(flat, rank)
            flat, at = flat.to("cpu"), 0
            for slot, whole in of_rank:
                part = whole[slot.regions[rank]]
                part.copy_(flat[at : at + part.numel()].view(part.shape))
                at += part.numel()
        for slot, whole in zip(slots, wholes):
            if slot.narrow:
                slot.take(whole)

    def _spread(self, slots: "list[SharedSlot]", values: "list[Any]") -> None:
        """Rank 0's values, of whole shapes, go to all ranks."""
        given = {id(slot): each for slot, each in zip(slots, values)}
        for several in _buckets(slot for slot in slots if not slot.split):
            if self._ranks.leads:
                for slot in several:
                    slot.show(given[id(slot)])
            local = [local_of(slot.tensor) for slot in several]
            flat = torch.cat([each.reshape(-1) for each in local]) if self._ranks.size > 1 else torch.empty(0)
            self._ranks.broadcast(flat)
            if not self._ranks.leads:
                _lay(flat, local)
        for several in _buckets(slot for slot in slots if slot.split):
            local = [local_of(slot.tensor) for slot in several]
            dtype, device = local[0].dtype, local[0].device
            if not self._ranks.leads:
                flat = torch.empty(sum(each.numel() for each in local), dtype=dtype, device=device)
                if flat.numel():
                    self._ranks.receive(flat, 0)
                    _lay(flat, local)
                continue
            for rank in range(self._ranks.size):
                parts = [given[id(slot)][slot.regions[rank]] for slot in several]
                if rank == 0:
                    for each, part in zip(local, parts):
                        each.copy_(part)
                elif any(part.numel() for part in parts):
                    self._ranks.send(torch.cat([part.reshape(-1) for part in parts]).to(dtype).to(device), rank)


def _lay(flat: torch.Tensor, tensors: "list[torch.Tensor]") -> None:
    at = 0
    for each in tensors:
        each.copy_(flat[at : at + each.numel()].view(each.shape))
        at += each.numel()


def _size(region: Region) -> int:
    size = 1
    for each in region:
        size *= each.stop - each.start
    return size


def _buckets(slots: "Iterator[SharedSlot]") -> "Iterator[list[SharedSlot]]":
    """Tensors of one type and device, up to _BUCKET_BYTES together."""
    found: "list[SharedSlot]" = []
    kind: Optional[Tuple[torch.dtype, torch.device]] = None
    size = 0
    for slot in slots:
        own, more = (slot.tensor.dtype, slot.tensor.device), slot.tensor.numel() * slot.tensor.element_size()
        if found and (own != kind or size + more > _BUCKET_BYTES):
            yield found
            found, size = [], 0
        found.append(slot)
        kind, size = own, size + more
    if found:
        yield found
