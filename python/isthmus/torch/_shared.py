# SPDX-License-Identifier: Apache-2.0
"""What several ranks of one site train together.

Rank 0 answers the run's requests and has each of them done at all ranks: it sends an order, and every rank then takes
part in the collectives that the order means. The other ranks wait for orders inside `site.step`. The order for a step
says up to which step all go on without another order."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from typing import Any, Callable, Iterator, Mapping, Optional

import torch

from .._errors import ConfigError, Error, made_error
from .._native import Outcome, layer_number
from .._trained import Floats
from . import _state
from ._memory import Memory, Slot, is_sharded, local_of
from ._lanes import Lanes
from ._ranks import Ranks
from ._shards import SharedMemory, SharedSlot, check_mesh, part_of, whole_of
from ._trained import TorchTrained

TRAIN, WAIT, READ, WROTE, SAVE, LOAD, RESTART, EVALUATE, BEGIN, END, FAILED, COUNT, MEAN, LANES, SHOWN = range(15)
_ASK_S = 0.5  # the ranks are asked so often what their callers wish


class Wishes:
    """What the callers of all ranks wish of the run, each kind with the step at which it was wished: the same wish
    of all ranks at one step is one."""

    def __init__(self) -> None:
        self.t = 0
        self.own = [0] * 5  # kinds are 1 to 4
        self._granted = [0] * 5
        self.grant: "Optional[Callable[[int], None]]" = None  # at rank 0

    def made(self, kind: int) -> None:
        """This rank's caller wishes it, and at rank 0 has told the run."""
        self.own[kind] = self.t + 1
        if self.grant is not None:
            self._granted[kind] = self.t + 1

    def take(self, latest: "list[int]") -> None:
        for kind, at in enumerate(latest):
            if at > self._granted[kind]:
                self._granted[kind] = at
                if self.grant is not None:
                    self.grant(kind)

    def begin_anew(self) -> None:
        """The clock has been set back or forward."""
        self.own, self._granted = [0] * 5, [0] * 5


class SharedTrained(TorchTrained):
    """One rank's side of the model. Rank 0 orders what the run asks; every method is called at all ranks."""

    _shards = True

    def __init__(self, ranks: Ranks, wishes: "Wishes", model: Any, optimizer: Any = None, **given: Any) -> None:
        self.ranks = ranks
        self._ranks = ranks.size
        self._wishes = wishes
        self._under_way = False  # an order whose collectives are not over
        self._told = False  # the other ranks, that rank 0 has failed
        self._asked_at = 0.0
        self._until = 0  # so far steps follow without an order
        self.mean_came = False  # of gradients, by the last order
        self.lanes: "Optional[Lanes]" = None  # this rank's share of the outer state
        super().__init__(model, optimizer, **given)
        if not ranks.leads:
            self.arrays: "dict[str, Floats]" = {}

    def _memory_of(self, found: "dict[str, torch.Tensor]") -> Memory:
        for name, tensor in found.items():
            if is_sharded(tensor):
                check_mesh(name, tensor, self.ranks)
        return SharedMemory(self.ranks, found, self._finder())

    def _find(self, frozen_too: bool = False) -> "dict[str, torch.Tensor]":
        if hasattr(self._model, "modules"):
            for each in self._model.modules():
                if type(each).__name__.startswith("FSDP") and hasattr(each, "reshard"):
                    each.reshard()  # the root keeps whole parameters after a forward pass without a backward one
        return super()._find(frozen_too)

    def layout(self) -> str:
        """Equal at ranks that have the same parameters."""
        whole = [(slot.name, list(slot.tensor.shape), str(slot.tensor.dtype), is_sharded(slot.tensor))
                 for slot in self._memory.slots]
        return hashlib.sha256(json.dumps(whole).encode()).hexdigest()

    def collect(self) -> None:
        """Shards give rank 0 their first values."""
        assert isinstance(self._memory, SharedMemory)
        with self.ranks.peers():
            self._memory.collect()

    # ---- orders ----

    @contextlib.contextmanager
    def _ordered(self, kind: int, *numbers: int) -> "Iterator[None]":
        """Rank 0 tells the others what comes, and all do it. Inside of another order it is a part of that."""
        if self._under_way:
            yield
            return
        self._under_way = True
        if self.ranks.leads:
            self.ranks.order(kind, *numbers)
        with self.ranks.peers():
            yield
        self._under_way = False

    def failed(self, error: Error) -> None:
        """Rank 0 ends, and no order is under way: the others, which wait for one, end with the same error."""
        if self._under_way or self._told:
            return
        self._told = True
        with contextlib.suppress(Error):
            self.ranks.order(FAILED)
            self.ranks.text(json.dumps([error.kind, str(error), error.exit_code]))

    def ask_wishes(self) -> None:
        self._wishes.take(self.ranks.latest(self._wishes.own))
        self._asked_at = time.monotonic()

    def follow(self) -> "Optional[tuple[int, Optional[Outcome]]]":
        """Takes part in one order of rank 0. RETURNS: the step that begins, or how the run has ended; else nothing
        yet. Raises what rank 0 has failed with."""
        if self._goes_on(self._wishes.t + 1):
            self.after_step(False, self._wishes.t + 1, self._until)
            return self._wishes.t, None
        kind, first, second, third, fourth = self.ranks.order()
        if kind == TRAIN:
            if third:
                self.ask_wishes()
            self.stage = second >> 1
            self.after_step(bool(second & 1), first, fourth)
            return first, None
        if kind == MEAN:
            self.mean_came = self.take_gradients(None)
            return (self._wishes.t, None) if self.mean_came else None
        if kind == END:
            outcome = Outcome(json.loads(self.ranks.text(None)))
            self.after_run(outcome)
            return 0, outcome
        if kind == FAILED:
            name, text, code = json.loads(self.ranks.text(None))
            raise made_error(name, f"rank 0 of this site: {text}", code, [])
        if kind == WAIT:
            self.ask_wishes()
        elif kind == READ:
            self.read(first, second)
        elif kind == WROTE:
            self.wrote(first, second)
        elif kind == SAVE:
            self.save({})
        elif kind == LOAD:
            self.load(_nothing)
        elif kind == RESTART:
            self.restart()
        elif kind == EVALUATE:
            self.losses([])
        elif kind == COUNT:
            self.count_from(first)
        elif kind == LANES:
            self._serve_lanes()
        else:
            self.begin(first)
        return None

    # ---- outer state ----

    def layers_out(self, session: Any, layer_of: "Optional[Callable[[str], int]]") -> str:
        """Every rank gets its share of the outer state, as outer.placement = "ranks" says. `session`: at a rank other
        than 0 one that does not start, of the same configuration. RETURNS: a text that is equal at ranks whose lanes
        fit."""
        slots = self._memory.slots
        layers = {slot.name: layer_number(slot.name, layer_of) for slot in slots}
        self.lanes = Lanes(self.ranks, session, lambda: self.ranks.order(LANES))
        if not self.ranks.leads:
            session.give_parameters(0, [(slot.name, tuple(slot.tensor.shape), None, None) for slot in slots],
                                    layers.__getitem__)
        found = [(slot.name, layers[slot.name], slot.tensor.numel()) for slot in slots]
        return hashlib.sha256(json.dumps(found).encode()).hexdigest()

    def share_outer(self, call: "Callable[[], None]") -> None:
        assert self.lanes is not None
        self._under_way = True
        self.lanes.run(call)
        self._under_way = False

    def _serve_lanes(self) -> None:
        assert self.lanes is not None
        self.lanes.serve()

    def close(self) -> None:
        """This rank follows no order any more."""
        if self.lanes is not None:
            self.lanes.close()
        self.ranks.close()

    def _next_shown(self, values: "Iterator[Floats]") -> Any:
        """Rank 0's next outer parameter, for which the library may ask the ranks."""
        if self.lanes is None:
            return torch.from_numpy(next(values)) if self.ranks.leads else None
        if self.ranks.leads:
            try:
                return torch.from_numpy(self.lanes.run(lambda: next(values)))
            finally:
                self.ranks.order(SHOWN)
        while self.ranks.order()[0] == LANES:
            self._serve_lanes()
        return None

    # ---- requests ----

    def before_step(self, loss: Any, tokens: Optional[int], grad_norm: Any, learning_rate: Optional[float],
                    skipped: bool) -> "tuple[float, int, float, float, bool]":
        if self.ranks.leads:
            return super().before_step(loss, tokens, grad_norm, learning_rate, skipped)
        return super().before_step(None, None, None, learning_rate, skipped)

    def begin(self, index: int) -> None:
        with self._ordered(BEGIN, index):
            super().begin(index)

    def _goes_on(self, t: int) -> bool:
        """Whether step t follows without an order."""
        return t == self._wishes.t + 1 and t <= self._until

    def after_step(self, wrote: bool, t: int, until: int) -> None:
        if self.ranks.leads and not self._goes_on(t):
            asks = time.monotonic() - self._asked_at >= _ASK_S
            self.ranks.order(TRAIN, t, int(wrote) + 2 * self.stage, int(asks), until)
            if asks:
                self.ask_wishes()
        self._wishes.t, self._until = t, until
        super().after_step(wrote, t, until)

    # ---- gradients: each rank's caller calls for them, without an order ----

    def _gradient_of(self, slot: Slot) -> Optional[torch.Tensor]:
        """Replicas have the site's gradient at each rank, and rank 0's goes; shards of it are collected."""
        gradient = slot.tensor.grad
        if gradient is None or not is_sharded(gradient):
            return gradient
        with self.ranks.peers():
            return whole_of(gradient)

    def take_gradients(self, given: Any) -> bool:
        """Rank 0's mean, at every rank; called by rank 0, and by the others at its order."""
        if self.ranks.size == 1 and not any(is_sharded(slot.tensor) for slot in self._memory.slots):
            return super().take_gradients(given)
        slots = self._memory.slots
        if self.ranks.leads:
            self.ranks.order(MEAN)
        finite = self.ranks.leads and all(bool(torch.isfinite(mean).all()) for mean in self._gradients.values())
        if not self.ranks.order(int(finite))[0]:
            return False
        for slot in slots:
            mean = self._gradients[slot.name] if self.ranks.leads else torch.empty(tuple(slot.tensor.shape))
            self.ranks.broadcast(mean)
            part = mean
            if is_sharded(slot.tensor):
                assert isinstance(slot, SharedSlot)
                part = mean[slot.regions[self.ranks.rank]]
            with torch.no_grad():
                if not bool(mean.any()):  # as in one process
                    slot.tensor.grad = None
                    continue
                if slot.tensor.grad is None:
                    slot.tensor.grad = torch.zeros_like(slot.tensor)
                local_of(slot.tensor.grad).copy_(part)
        return True

    def waits(self) -> None:
        if self.ranks.leads:
            self.ranks.order(WAIT)
            self.ask_wishes()

    def after_run(self, outcome: Outcome) -> None:
        if self.ranks.leads:
            self.ranks.order(END)
            self.ranks.text(json.dumps(vars(outcome)))
        super().after_run(outcome)

    def read(self, first: int, end: int) -> None:
        with self._ordered(READ, first, end):
            super().read(first, end)

    def wrote(self, first: int, end: int) -> None:
        with self._ordered(WROTE, first, end):
            super().wrote(first, end)

    def restart(self) -> None:
        with self._ordered(RESTART):
            if self._fresh is None or self._optimizer is None:
                return
            source = self._fresh.__getitem__
            fresh = _state.unpacked("", lambda name: self.ranks.read(name, source), self._shared_state(), self._place)
            _state.forget(self._optimizer, fresh["optimizer"])

    def count_from(self, t: int) -> None:
        with self._ordered(COUNT, t):
            super().count_from(t)

    def losses(self, parts: "list[int]") -> "list[tuple[float, int]]":
        with self._ordered(EVALUATE):
            return super().losses(json.loads(self.ranks.text(json.dumps(parts))))

    @contextlib.contextmanager
    def showing(self, values: "Iterator[Floats]") -> "Iterator[None]":
        """Called at all ranks by their callers, without an order."""
        error: Optional[Error] = None
        first: Any = None
        try:
            first = self._next_shown(values)
        except Error as found:
            error = found
        said = json.loads(self.ranks.text(json.dumps(None if error is None else [error.kind, str(error),
                                                                                 error.exit_code])))
        if said is not None:
            kind, text, code = said
            raise error or made_error(kind, f"rank 0 of this site: {text}", code, [])
        if error is not None:  # of this rank's share
            raise error

        def outer() -> "Iterator[Any]":
            yield first
            for _ in self._memory.slots[1:]:
                yield self._next_shown(values)

        self._under_way = True
        with self._with_values(self._memory.slots, outer()):
            self._under_way = False
            yield

    # ---- state ----

    def _raw(self, tensor: torch.Tensor) -> bytes:
        """Shards are collected; the bytes are rank 0's alone."""
        whole = whole_of(tensor) if is_sharded(tensor) else tensor
        return _state.raw_of(whole) if self.ranks.leads else b""

    def _place(self, path: "list[str]", whole: torch.Tensor, own: Any) -> torch.Tensor:
        """This rank's part of a tensor that was saved whole: by what is there now, or as its parameter."""
        of_optimizer = len(path) > 1 and path[0] == "optimizer"
        like = own if is_sharded(own) else self._parameters.get(path[-1]) if of_optimizer else None
        if like is None or not is_sharded(like) or like.shape != whole.shape:
            return whole
        part: torch.Tensor = part_of(whole, like)
        return part

    @property
    def _parameters(self) -> "dict[str, torch.Tensor]":
        return {slot.name: slot.tensor for slot in self._memory.slots}

    def save(self, entries: "dict[str, bytes]") -> None:
        with self._ordered(SAVE):
            _state.packed("", self._shared_state(), entries if self.ranks.leads else {}, self._raw)
            own: "dict[str, bytes]" = {}
            _state.packed("own/", self._own_state(), own)
            for rank, data in enumerate(self.ranks.each_data(_joined(own))):
                for name, each in _split(data).items():
                    entries[_own_name(name, rank)] = each

    def _load(self, read: "Callable[[str], bytes]", fresh: bool) -> None:
        with self._ordered(LOAD):
            self.ask_wishes()
            self._wishes.begin_anew()
            shared = _state.unpacked("", lambda name: self.ranks.read(name, read), self._shared_state(), self._place)
            self._load_shared(shared, fresh)
            own = self._own_of_each(read)
            if own is not None:
                self._load_own(own, int(own["ranks"]), fresh)

    def _own_of_each(self, read: "Callable[[str], bytes]") -> "Optional[dict[str, Any]]":
        """This rank's own state; rank 0's where the checkpoint is of another number of ranks; none: a donor's."""
        given: "Optional[list[bytes]]" = None
        if self.ranks.leads:
            first: "dict[str, bytes]" = {}
            own = _state.unpacked("own/", _noting(read, first, 0), self._own_state())
            ranks = int(own.get("ranks", 1))
            if own["index"] != self._index:
                given = [b""] * self._ranks
            else:
                given = [_joined(first)]
                for rank in range(1, self._ranks):
                    of_rank: "dict[str, bytes]" = {}
                    if ranks == self._ranks:
                        _state.unpacked("own/", _noting(read, of_rank, rank))
                    given.append(_joined(of_rank or first))
        found = self.ranks.to_each(given)
        if not found:
            return None
        entries = _split(found)
        state: "dict[str, Any]" = _state.unpacked("own/", entries.__getitem__, self._own_state())
        return {"ranks": 1, **state}


def _nothing(name: str) -> bytes:
    raise KeyError(name)


def _own_name(name: str, rank: int) -> str:
    """The entry of a checkpoint for "own/..." of a rank: rank 0's are those of a site of one process."""
    return name if rank == 0 else f"own/rank{rank}/{name[len('own/'):]}"


def _noting(read: "Callable[[str], bytes]", entries: "dict[str, bytes]", rank: int) -> "Callable[[str], bytes]":
    """Reads what is the rank's own, and keeps it."""
    def noted(name: str) -> bytes:
        entries[name] = read(_own_name(name, rank))
        return entries[name]

    return noted


def _joined(entries: "Mapping[str, bytes]") -> bytes:
    head = json.dumps([[name, len(data)] for name, data in entries.items()]).encode()
    return len(head).to_bytes(8, "little") + head + b"".join(entries.values())


def _split(data: bytes) -> "dict[str, bytes]":
    size = int.from_bytes(data[:8], "little")
    at, found = 8 + size, {}
    for name, length in json.loads(data[8:at]):
        found[name] = data[at : at + length]
        at += length
    return found
