# SPDX-License-Identifier: Apache-2.0
"""A PyTorch model, its optimizer and state as what one site trains."""

from __future__ import annotations

import contextlib
import weakref
import warnings
from typing import Any, Callable, Iterable, Iterator, Mapping, Optional

import numpy as np
import torch

from .._errors import ConfigError, RunError
from .._log import logger
from .._order import in_order
from .._native import Outcome
from .._trained import Evaluate, Floats, Trained, count_of, number_of
from .._turns import random_states, set_random_states
from . import _state
from ._masters import Given, Masters
from ._memory import Memory, Slot, checked, local_of, note_write, trained_of

_SHARED, _OWN = "", "own/"


class TorchTrained(Trained):
    """The model's parameters are read and written between steps; see `isthmus.torch.join`."""

    copies = True  # so that the run asks before it reads, and moved parameters are found then
    _shards = False  # parameters may be DTensors
    _ranks = 1  # processes of this site that train the model
    _gradients: "dict[str, torch.Tensor]" = {}  # of a run under ddp, where the session is

    def __init__(self, model: Any, optimizer: Any = None, *, params: "Optional[Mapping[str, Given]]" = None,
                 state: Any = None, evaluate: "Optional[Evaluate]" = None) -> None:
        check_model(model, self._shards)
        self._model = model
        self._masters = Masters(model, params)
        found = self._find()
        checked(found, self._shards)
        self._memory = self._memory_of(found)
        self.arrays: "dict[str, Floats]" = self._memory.arrays
        self.evaluates = evaluate
        self._names = {id(tensor): name for name, tensor in [*self._masters.weights().items(), *found.items()]}
        self._optimizers = _state.optimizers_of(optimizer)
        self._optimizer = _state.named(optimizer, self._names)
        check_optimizers(self._optimizers, found, params is not None)
        self._given = state
        self._shared, self._own = _state.split_state(state)
        self._index = 0
        self._fresh: "Optional[dict[str, bytes]]" = None
        self._loads = 0  # of the site's own state
        self._resumed = False
        self._waiting: "Optional[tuple[torch.Tensor, Any]]" = None  # a loss on its way from a device
        self._counts = False  # the optimizers tell of their steps
        self._taken: "dict[int, int]" = {}  # steps of each optimizer since the last site.step()
        self._rate: Optional[float] = None
        self._noted: "dict[str, Any]" = {}
        self._watch()

    def _memory_of(self, found: "dict[str, torch.Tensor]") -> Memory:
        return Memory(found, self._finder())

    def _finder(self) -> "Callable[[], dict[str, torch.Tensor]]":
        """Not of self: a cycle would keep model and loader in memory beyond the run."""
        this = weakref.ref(self)

        def find() -> "dict[str, torch.Tensor]":
            own = this()
            assert own is not None
            return own._find(frozen_too=True)

        return find

    def _find(self, frozen_too: bool = False) -> "dict[str, torch.Tensor]":
        found = self._masters.tensors if self._masters.given else trained_of(self._model, frozen_too)
        return {name: found[name] for name in in_order(found)}

    def _watch(self) -> None:
        this = weakref.ref(self)

        def stepped(optimizer: Any, *_: Any) -> None:
            own = this()
            if own is not None:
                own._stepped(optimizer)

        for each in self._optimizers:
            if hasattr(each, "register_step_post_hook"):
                each.register_step_post_hook(stepped)

    def _stepped(self, optimizer: Any) -> None:
        self._counts = True
        self._rate = _rate_of(optimizer)
        number = self._taken.get(id(optimizer), 0) + 1
        self._taken[id(optimizer)] = number
        if number == 2:
            warnings.warn(
                "isthmus: optimizer.step() was called twice without site.step() between: call site.step() "
                "once after each optimizer.step(), or the run's clock is slower than the training",
                RuntimeWarning, stacklevel=4)

    def note(self, said: "dict[str, Any]") -> None:
        self._noted = said

    def begin(self, index: int) -> None:
        self._index = index
        self._masters.follow(self._memory.slots)
        self._fresh = {}
        self.save(self._fresh)
        self._load(self._fresh.__getitem__, True)  # what cannot be restored is told of now
        warn_of_buffers(self._model)

    def before_step(self, loss: Any, tokens: Optional[int], grad_norm: Any,
                    learning_rate: Optional[float], skipped: bool) -> "tuple[float, int, float, float, bool]":
        if self._noted:
            noted, self._noted = self._noted, {}
            loss = noted.get("loss") if loss is None else loss
            tokens = noted.get("tokens") if tokens is None else tokens
            grad_norm = noted.get("grad_norm") if grad_norm is None else grad_norm
        if self._counts and not self._taken:
            skipped = True  # a gradient scaler has left the optimizer's step out
        self._taken.clear()
        rate = learning_rate
        if rate is None:
            rate = self._rate if self._rate is not None else (_rate_of(self._optimizers[0]) if self._optimizers else 0)
        self._rate = None
        return (self._loss("loss", loss), 1 if tokens is None else count_of("tokens", tokens),
                0.0 if grad_norm is None else self._loss("grad_norm", grad_norm),
                float(rate or 0), bool(skipped))

    def number(self, name: str, value: Any) -> float:
        return self._loss(name, value)

    def gradient_arrays(self) -> "dict[str, Floats]":
        self._gradients = {slot.name: torch.zeros(tuple(slot.tensor.shape)) for slot in self._memory.slots}
        return {name: tensor.numpy() for name, tensor in self._gradients.items()}

    def give_gradients(self, given: Any) -> None:
        if given is not None:
            raise ConfigError("average_gradients: the gradients of a model are those of its parameters: leave "
                              "`gradients` out")
        self._memory.look()
        self._taken.clear()  # an optimizer's step that was without gradients
        slots = self._memory.slots
        if all(slot.tensor.grad is None for slot in slots):
            raise RunError("average_gradients: no parameter has a gradient: call it after loss.backward() and before "
                           "optimizer.zero_grad()")
        with torch.no_grad():
            for slot in slots:
                gradient = self._gradient_of(slot)
                if slot.name not in self._gradients:
                    continue  # of a rank that has no session
                if gradient is None:
                    self._gradients[slot.name].zero_()
                else:
                    self._gradients[slot.name].copy_(gradient)

    def _gradient_of(self, slot: Slot) -> Optional[torch.Tensor]:
        """Of its whole shape."""
        return slot.tensor.grad

    def take_gradients(self, given: Any) -> bool:
        if not all(bool(torch.isfinite(mean).all()) for mean in self._gradients.values()):
            return False
        with torch.no_grad():
            for slot in self._memory.slots:
                mean = self._gradients[slot.name]
                if not bool(mean.any()):  # the same at all sites, so that no optimizer moves it, or each does
                    slot.tensor.grad = None
                elif slot.tensor.grad is not None:
                    slot.tensor.grad.copy_(mean)
                else:  # other sites have used the parameter in this step
                    slot.tensor.grad = mean.to(slot.tensor.device, slot.tensor.dtype, copy=True)
        return True

    def drop_gradients(self) -> None:
        self._taken.clear()
        for slot in self._memory.slots:
            slot.tensor.grad = None

    def _loss(self, name: str, value: Any) -> float:
        if not isinstance(value, torch.Tensor):
            return number_of(name, value)
        if not value.is_cuda:
            try:
                if value.dim() == 0:
                    found: Any = value.tolist()  # three quarters of the code of item()
                    if type(found) is float:
                        return found
                return float(value.item())
            except (ValueError, RuntimeError, TypeError):
                _check_single(name, value)
                raise ConfigError(f"{name} = {value!r}: must be one number") from None
        _check_single(name, value)
        value = value.detach()
        if name != "loss":  # not worth a wait for the device
            return 0.0
        # Not run: the loss of the step before, which has come by now, so the device is not waited for.
        there = torch.empty((), dtype=value.dtype, pin_memory=True)
        there.copy_(value.reshape(()), non_blocking=True)
        before, self._waiting = self._waiting, (there, torch.cuda.current_stream(value.device).record_event())
        shown, event = before if before is not None else self._waiting
        event.synchronize()
        return float(shown)

    def after_step(self, wrote: bool, t: int, until: int) -> None:
        self._memory.after_step(wrote)

    def after_run(self, outcome: Outcome) -> None:
        self._memory.after_step(True)

    def read(self, first: int, end: int) -> None:
        self._memory.read(first, end)

    def wrote(self, first: int, end: int) -> None:
        self._memory.wrote(first, end)
        self._masters.follow(self._memory.of(first, end))

    # ---- state ----

    def _shared_state(self) -> "dict[str, Any]":
        state: "dict[str, Any]" = {"state": _state.state_of(_state.shared_now(self._shared)),
                                   "narrow": self._memory.exact()}
        if self._optimizer is not None:
            state["optimizer"] = _state.state_of(self._optimizer)
        return state

    def _own_state(self) -> "dict[str, Any]":
        return {"index": self._index, "random": random_states(), "state": _state.state_of(self._own),
                "buffers": dict(buffers_of(self._model)), "ranks": self._ranks}

    def save(self, entries: "dict[str, bytes]") -> None:
        _state.packed(_SHARED, self._shared_state(), entries)
        _state.packed(_OWN, self._own_state(), entries)

    def load(self, read: "Callable[[str], bytes]") -> None:
        self._resumed = True
        self._load(read, False)

    def _load(self, read: "Callable[[str], bytes]", fresh: bool) -> None:
        self._load_shared(_state.unpacked(_SHARED, read, self._shared_state()), fresh)
        own = _state.unpacked(_OWN, read, self._own_state())
        if own["index"] == self._index:  # else it is a donor's: its random numbers, its place in its data
            self._load_own(own, own.get("ranks", 1), fresh)

    def _load_shared(self, shared: "dict[str, Any]", fresh: bool) -> None:
        if self._optimizer is not None:
            if "optimizer" not in shared:
                raise RunError("the checkpoint holds no optimizer's state")
            _state.restore(self._optimizer, shared["optimizer"], "optimizer")
        elif "optimizer" in shared:
            raise ConfigError("the run has the state of an optimizer, and no optimizer is given here: give the "
                              "optimizer as the run was begun, or start a new run from its weights")
        if not isinstance(shared.get("state"), dict):
            raise RunError("the checkpoint's trainer is another one")
        _state.restore(self._shared, shared["state"], "state")
        if not fresh:  # the parameters are those that `begin` has just saved
            self._memory.set_exact(shared["narrow"])
            self._masters.follow(self._memory.slots)

    def _load_own(self, own: "dict[str, Any]", ranks: int, fresh: bool) -> None:
        """What is the site's own, or this rank's; a checkpoint of `ranks` ranks holds it."""
        self._loads += not fresh
        if ranks == self._ranks:
            _state.restore(self._own, own["state"], "state")
            set_random_states(own["random"])
        else:
            logger.warning("the checkpoint is of %d ranks, this site has %d: random numbers and the places of loaders "
                           "begin anew at each rank", ranks, self._ranks)
        buffers = dict(buffers_of(self._model))
        with torch.no_grad():
            for name, value in own["buffers"].items():
                if name in buffers and buffers[name].shape == value.shape:
                    buffers[name].copy_(value)

    def restart(self) -> None:
        if self._fresh is not None and self._optimizer is not None:
            fresh = _state.unpacked(_SHARED, self._fresh.__getitem__, self._shared_state())
            _state.forget(self._optimizer, fresh["optimizer"])

    def count_from(self, t: int) -> None:
        _state.count_from(self._shared, t)

    # ---- outer parameters ----

    @contextlib.contextmanager
    def showing(self, values: "Iterator[Floats]") -> "Iterator[None]":
        outer = [torch.from_numpy(np.ascontiguousarray(shown)) for shown in values]
        with self._with_values(self._memory.slots, outer):
            yield

    @contextlib.contextmanager
    def _with_values(self, kept: "list[Slot]", values: "Iterable[Any]") -> "Iterator[None]":
        """The parameters hold `values`, one for each; then those of `kept` hold their own again."""
        self._memory.look()
        slots = self._memory.slots
        own = [slot.tensor.detach().clone() for slot in kept]
        try:
            with torch.no_grad():
                self._memory.show(values)
            note_write([slot.tensor for slot in slots])
            with self._masters.following(slots):
                yield
        finally:
            self._memory.look_again()
            with torch.no_grad():
                for slot, before in zip(kept, own):
                    slot.tensor.detach().copy_(before)
            note_write([slot.tensor for slot in kept])

    def losses(self, parts: "list[int]") -> "list[tuple[float, int]]":
        """The arrays hold what is evaluated. Random states and training mode stay as they were."""
        assert self.evaluates is not None
        random = random_states()
        modes = [(each, each.training) for each in self._model.modules()] if hasattr(self._model, "modules") else []
        slots = self._memory.slots
        try:
            with self._with_values([slot for slot in slots if slot.mirrored], [slot.values for slot in slots]):
                with torch.no_grad():
                    return [self.evaluates(part) for part in parts]
        finally:
            for each, mode in modes:
                each.training = mode
            set_random_states(random)

    # ---- batches ----

    def batches_of(self, batches: "Iterable[Any]", total_steps: int) -> "Callable[[int], Any]":
        known = any(each is batches for each in self._own.values())
        again = not hasattr(batches, "__next__")  # an epoch may follow an epoch
        if self._resumed and not known:
            has = hasattr(batches, "state_dict")
            warnings.warn(
                "isthmus: the run goes on after a checkpoint, and the loader is not in `state`: its samples begin "
                "anew. " + ("Give join(..., state={'loader': loader})" if has else
                            f"A {type(batches).__name__} has no state_dict: give site.steps(function of t), or a "
                            "loader that has one (torchdata's StatefulDataLoader) in `state`"),
                RuntimeWarning, stacklevel=3)
        iterator = _resumed_iterator(batches) if known and self._loads else iter(batches)
        seen = [self._loads, 0]

        def of_step(t: int) -> Any:
            nonlocal iterator
            if known and seen[0] != self._loads:
                seen[0] = self._loads
                iterator = _resumed_iterator(batches)
            for attempt in range(2):
                try:
                    return next(iterator)
                except StopIteration:
                    if not again or attempt == 1:
                        break
                    seen[1] += 1
                    sampler: Any = getattr(batches, "sampler", None)
                    if hasattr(sampler, "set_epoch"):
                        sampler.set_epoch(seen[1])
                    iterator = iter(batches)
            raise RunError(
                f"the batches ended before step {t} of {total_steps}: give an iterable that goes on, or a "
                "function of t"
            )

        return of_step


def _resumed_iterator(batches: "Iterable[Any]") -> "Iterator[Any]":
    """A DataLoader's iterator draws seeds when it is made. The run that was left had drawn them before."""
    states = random_states()
    iterator = iter(batches)
    set_random_states(states)
    return iterator


def check_model(model: Any, shared: bool = False) -> None:
    if not hasattr(model, "named_parameters"):
        raise ConfigError(f"model is a {type(model).__qualname__}: must be a torch.nn.Module")
    if isinstance(model, type):
        raise ConfigError(f"model is the class {model.__qualname__}: give a model of it, {model.__name__}(...)")
    for lazy, parameter in model.named_parameters():
        if isinstance(parameter, torch.nn.parameter.UninitializedParameter):
            raise ConfigError(f"parameter '{lazy}' has no shape yet (a lazy module): run the model once on a batch "
                              "before the optimizer is made and before join")
    name, module = type(model).__name__, type(model).__module__
    if module.split(".")[0] == "deepspeed" or name == "DeepSpeedEngine":
        raise ConfigError("a DeepSpeed engine keeps its parameters in pieces of its own and is not taken: use FSDP2, "
                          "or plain PyTorch")
    modules = list(model.modules()) if hasattr(model, "modules") else []
    if any(type(each).__name__ == "FullyShardedDataParallel" for each in modules):
        raise ConfigError("FSDP1 (FullyShardedDataParallel) flattens parameters and is not taken: use "
                          "fully_shard (FSDP2), or plain PyTorch")
    distributed = torch.distributed
    if name == "DistributedDataParallel" and not shared and distributed.get_world_size(model.process_group) > 1:
        raise ConfigError("DistributedDataParallel over several ranks: these are one site, and each of them calls "
                          "isthmus.torch.join(..., group=...) with the group of the model")


def check_optimizers(optimizers: "list[Any]", found: "Mapping[str, torch.Tensor]", chosen: bool) -> None:
    own = {id(tensor) for tensor in found.values()}
    # Two Parameters over one memory are one. A shard may be empty.
    memory = {local_of(tensor).data_ptr() for tensor in found.values()} - {0}
    for each in optimizers:
        held = [parameter for group in each.param_groups for parameter in group["params"]]
        foreign = [parameter for parameter in held if parameter.requires_grad and parameter.numel() > 0
                   and id(parameter) not in own and local_of(parameter).data_ptr() not in memory]
        if held and len(foreign) == len(held) and not chosen:
            raise ConfigError(
                f"the optimizer ({type(each).__name__}) holds none of the model's parameters: it was made before the "
                "model was sharded, moved or loaded. Make the optimizer after that, of model.parameters()"
            )
        if foreign and not chosen:
            warnings.warn(
                f"isthmus: {len(foreign)} of the parameters of {type(each).__name__} are not the model's: each site "
                "trains its own, and no site hears of the others'. Give join(...) one module that holds all",
                RuntimeWarning, stacklevel=5)


def buffers_of(model: Any) -> "Iterator[tuple[str, torch.Tensor]]":
    """Persistent buffers: what the model's state_dict holds beside parameters."""
    if not hasattr(model, "modules"):
        return
    seen: "set[int]" = set()
    for prefix, module in model.named_modules():
        for name, buffer in module._buffers.items():
            if buffer is None or name in module._non_persistent_buffers_set or id(buffer) in seen:
                continue
            if buffer.is_meta:
                continue
            seen.add(id(buffer))
            yield (f"{prefix}.{name}" if prefix else name), buffer


_warned_of_buffers: "weakref.WeakSet[Any]" = weakref.WeakSet()


def warn_of_buffers(model: Any) -> None:
    name = next((name for name, _ in buffers_of(model) if name.rsplit(".", 1)[-1] == "running_mean"), None)
    if name is not None and not _warned_of_buffers:
        _warned_of_buffers.add(model)
        warnings.warn(
            f"isthmus: '{name}' and the like (statistics of BatchNorm) stay each site's own and are not averaged: "
            "the outer parameters have no statistics that belong to them. GroupNorm or LayerNorm need none",
            RuntimeWarning, stacklevel=4)


def _check_single(name: str, value: torch.Tensor) -> None:
    if value.numel() != 1:
        raise ConfigError(f"{name} is a tensor of shape {tuple(value.shape)}: must be one number, loss.mean()")


def _rate_of(optimizer: Any) -> float:
    return float(optimizer.param_groups[0]["lr"]) if getattr(optimizer, "param_groups", None) else 0.0
