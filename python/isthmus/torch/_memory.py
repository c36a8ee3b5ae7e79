# SPDX-License-Identifier: Apache-2.0
"""Parameters as the run sees them: float32 in C order. A contiguous float32 tensor on the CPU is used
in place; any other has a mirror that values are copied through when the run asks."""

from __future__ import annotations

import warnings
from typing import Any, Callable, Iterable, Mapping, Optional

import torch

from .._errors import ConfigError, RunError


def in_place(tensor: Any) -> bool:
    return bool(tensor.dtype == torch.float32 and tensor.device.type == "cpu" and tensor.is_contiguous()
                and not is_sharded(tensor) and not tensor.is_neg())


def note_write(tensors: "list[torch.Tensor]") -> None:
    """Autograd is told of a write through the tensors' memory, where this version of PyTorch can be."""
    tensors = [each for each in tensors if not is_sharded(each)]  # these are written by PyTorch itself
    if not tensors:
        return
    increment = getattr(torch.autograd.graph, "increment_version", None)
    if increment is None:
        return
    try:
        increment(tensors)
    except TypeError:  # takes one tensor before version 2.6
        for each in tensors:
            increment(each)


class Slot:
    """One parameter and the float32 values that the run reads and writes."""

    def __init__(self, name: str, tensor: torch.Tensor, first: int) -> None:
        self.name = name
        self.tensor = tensor
        self.first, self.end = first, first + tensor.numel()
        self.base: Optional[torch.Tensor] = None
        self.mirrored = not in_place(tensor)
        if self.mirrored:
            pinned = tensor.device.type == "cuda"
            self.values = torch.empty(tuple(tensor.shape), dtype=torch.float32, pin_memory=pinned)
            self.fill()
        else:
            self.values = tensor.detach()
        # A separate object: its base is the tensor's storage, which stays while the run may use it.
        self.array = self.values.numpy()
        self.address = self.values.data_ptr()

    def fill(self) -> None:
        """The mirror takes the parameter's first values."""
        self.values.copy_(self.tensor.detach())
        self.rebase()

    def show(self, values: Any) -> None:
        """The parameter holds `values`, a tensor of its whole shape, or those that are in its memory already."""
        if values is not self.values or self.mirrored:
            self.tensor.detach().copy_(values)

    @property
    def narrow(self) -> bool:
        return bool(self.tensor.dtype != torch.float32)

    def rebase(self) -> None:
        """What was written last, which a narrower type holds rounded."""
        self.base = self.values.clone() if self.narrow else None

    def bind(self, tensor: torch.Tensor) -> None:
        """The parameter's values lie elsewhere now. Its former memory becomes a mirror."""
        if tensor.shape != self.values.shape:
            raise RunError(
                f"parameter '{self.name}' has shape {tuple(tensor.shape)} now, and had {tuple(self.values.shape)} "
                "at join: change a model before join"
            )
        self.tensor = tensor
        if self.mirrored and (self.base is not None) == (tensor.dtype != torch.float32):
            return
        self.mirrored = True
        self.rebase()

    def moved(self) -> bool:
        if self.tensor.shape != self.values.shape:
            return True
        if self.mirrored:
            return bool((self.base is not None) != (self.tensor.dtype != torch.float32))
        return bool(not in_place(self.tensor) or (self.tensor.numel() > 0 and self.tensor.data_ptr() != self.address))

    def read(self) -> bool:
        """RETURNS: whether a copy from a device is under way."""
        if not self.mirrored:
            return False
        return self.take(self.tensor.detach())

    def take(self, now: torch.Tensor) -> bool:
        """The mirror follows a parameter whose values are `now`."""
        if self.base is None:
            self.values.copy_(now, non_blocking=now.is_cuda)
            return bool(now.is_cuda)
        # What training has changed, laid over what float32 knows: no change, not one bit moves.
        now = now.to("cpu")
        wide = torch.float64 if now.dtype == torch.float64 else torch.float32
        rounded = self.base.to(now.dtype)
        self.values.copy_(self.base + (now.to(wide) - rounded.to(wide)).to(torch.float32))
        return False

    def wrote(self) -> bool:
        if not self.mirrored:
            return False
        self.rebase()
        self.tensor.detach().copy_(self.values, non_blocking=self.tensor.is_cuda)
        return bool(self.tensor.is_cuda)


class Memory:
    """All parameters of one worker, in canonical order."""

    def __init__(self, found: "Mapping[str, torch.Tensor]", again: "Callable[[], Mapping[str, torch.Tensor]]",
                 slot_of: "Optional[Callable[[str, torch.Tensor, int], Slot]]" = None) -> None:
        self.slots: "list[Slot]" = []
        self._again = again
        first = 0
        for name, tensor in found.items():
            self.slots.append((slot_of or Slot)(name, tensor, first))
            first = self.slots[-1].end
        self.arrays = {slot.name: slot.array for slot in self.slots}
        self._looked = False
        self._warned = False

    def look_again(self) -> None:
        self._looked = False
        self.look()

    def look(self) -> None:
        """Finds tensors that were moved or replaced since join. Once between two steps."""
        if self._looked:
            return
        self._looked = True
        now = self._again()
        check_new(now, {slot.name for slot in self.slots})
        for slot in self.slots:
            tensor = now.get(slot.name)
            if tensor is None:
                raise RunError(f"parameter '{slot.name}' is gone from the model: change a model before join")
            replaced = tensor is not slot.tensor
            if not replaced and not slot.moved():
                continue
            slot.bind(tensor)
            if not self._warned:
                self._warned = True
                warnings.warn(
                    f"isthmus: parameter '{slot.name}' was {'replaced' if replaced else 'moved'} after join"
                    + ("; make sure that the optimizer has the new one" if replaced else "")
                    + ": its values are copied from now on. Move and load a model before join, or write in "
                    "place (param.copy_(...))", RuntimeWarning, stacklevel=4)

    def of(self, first: int, end: int) -> "list[Slot]":
        return [slot for slot in self.slots if slot.first < end and first < slot.end]

    def read(self, first: int, end: int) -> None:
        self.look()
        with torch.no_grad():
            streams = _Copies()
            for slot in self.of(first, end):
                streams.do(slot, slot.read)
            streams.wait_on_host()

    def wrote(self, first: int, end: int) -> None:
        self.look()
        with torch.no_grad():
            streams = _Copies()
            for slot in self.of(first, end):
                streams.do(slot, slot.wrote)
            streams.wait_on_device()

    def show(self, values: "Iterable[Any]") -> None:
        """The parameters hold `values`, a tensor of its whole shape for each."""
        for slot, shown in zip(self.slots, values):
            slot.show(shown)

    def after_step(self, wrote: bool) -> None:
        self._looked = False
        if wrote:
            note_write([slot.tensor for slot in self.slots if not slot.mirrored])

    def exact(self) -> "dict[str, Any]":
        """What float32 values do not tell of narrower parameters: their bits, and what was written last."""
        return {slot.name: [slot.tensor.detach(), slot.base] for slot in self.slots if slot.narrow}

    def set_exact(self, saved: "dict[str, Any]") -> None:
        for slot in self.slots:
            if not slot.narrow or slot.name not in saved:
                continue
            now, base = saved[slot.name]
            if now.dtype != slot.tensor.dtype or now.shape != slot.tensor.shape:
                raise RunError(f"parameter '{slot.name}' is {slot.tensor.dtype}, the checkpoint's {now.dtype}")
            with torch.no_grad():
                slot.tensor.detach().copy_(now)
                if slot.base is not None:
                    slot.base.copy_(base)


class _Copies:
    """Copies between pinned memory and a device, on a stream of their own beside the current one.
    Not run: no machine with a device was at hand."""

    def __init__(self) -> None:
        self._side: Any = None
        self._current: Any = None

    def do(self, slot: Slot, copy: "Callable[[], bool]") -> None:
        if not slot.tensor.is_cuda or not slot.mirrored:
            copy()
            return
        if self._side is None:
            self._current = torch.cuda.current_stream(slot.tensor.device)
            self._side = torch.cuda.Stream(device=slot.tensor.device)
            self._side.wait_event(self._current.record_event())
        with torch.cuda.stream(self._side):
            copy()

    def wait_on_host(self) -> None:
        if self._side is not None:
            self._side.record_event().synchronize()

    def wait_on_device(self) -> None:
        """The mirror may be written again once this returns, and the next step sees the values."""
        if self._side is not None:
            event = self._side.record_event()
            self._current.wait_event(event)
            event.synchronize()


def is_sharded(tensor: Any) -> bool:
    """A DTensor: this rank holds a part of it, or a copy, as its placements say."""
    return hasattr(tensor, "full_tensor") and hasattr(tensor, "placements")


def local_of(tensor: Any) -> torch.Tensor:
    """The memory that this rank has of a tensor."""
    local: torch.Tensor = tensor.detach().to_local() if is_sharded(tensor) else tensor.detach()
    return local


def check_parameter(name: str, tensor: Any, shards: bool = False) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise ConfigError(f"params['{name}'] is a {type(tensor).__qualname__}: must be a tensor")
    if is_sharded(tensor):
        if not shards:
            raise ConfigError(f"parameter '{name}' is sharded (DTensor, FSDP2): isthmus.torch.join takes it at every "
                              "rank of a site, bodies of run and simulate have whole parameters")
        kinds = {type(each).__name__ for each in tensor.placements} - {"Shard", "Replicate"}
        if kinds:
            raise ConfigError(f"parameter '{name}' has the placements {tensor.placements}: must be Shard or Replicate "
                              "along each dimension of its mesh (FSDP2 together with tensor parallelism is not taken)")
    if tensor.is_meta:
        raise ConfigError(
            f"parameter '{name}' is on the meta device and has no values: materialize the model before join "
            "(model.to_empty(device=...), then initialize it)"
        )
    if tensor.is_inference():
        raise ConfigError(
            f"parameter '{name}' was made under torch.inference_mode(): make the model outside of it, or "
            "clone its parameters"
        )
    if not tensor.dtype.is_floating_point:
        raise ConfigError(f"parameter '{name}' has dtype {tensor.dtype}: must be of a floating-point type")
    if tensor.layout != torch.strided:
        raise ConfigError(f"parameter '{name}' has layout {tensor.layout}: must be dense")
    if not hasattr(tensor, "is_neg"):
        raise ConfigError("isthmus.torch needs PyTorch 1.13 or newer")
    if any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape)):
        raise ConfigError(f"parameter '{name}' is expanded: several of its values are one; give it .clone()")


def check_new(now: "Mapping[str, torch.Tensor]", known: "set[str]") -> None:
    """A parameter that trains and was frozen, or not there, at join: no other site hears of it, and no checkpoint
    holds it."""
    for name, tensor in now.items():
        if name not in known and tensor.requires_grad:
            raise RunError(
                f"parameter '{name}' requires gradients now, and did not at join: it would train at this site alone, "
                "and no checkpoint would hold it. Let all that will train require gradients until join has returned, "
                "and freeze it then: what is frozen after join still takes part"
            )


def plain(name: str) -> str:
    """A name without what wrappers put before it: DistributedDataParallel, torch.compile."""
    parts = [part for part in name.split(".") if part != "_orig_mod"]
    return ".".join(parts)


def trained_of(model: Any, frozen_too: bool = False) -> "dict[str, torch.Tensor]":
    """name -> parameter, for the parameters that require gradients; shared ones once. `frozen_too`: of all,
    since a parameter that took part at join still does where it is frozen later."""
    found: "dict[str, torch.Tensor]" = {}
    seen: "dict[Any, str]" = {}
    wrapped = type(model).__name__ in ("DistributedDataParallel", "DataParallel")
    for full, tensor in model.named_parameters():
        if not (tensor.requires_grad or frozen_too):
            continue
        name = plain(full[len("module."):] if wrapped and full.startswith("module.") else full)
        if not tensor.is_meta and tensor.layout == torch.strided and tensor.numel() > 0 and not is_sharded(tensor):
            # Two Parameters over one memory are one, as two names of one Parameter are.
            place = (tensor.device, tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype)
            if place in seen:
                continue
            seen[place] = name
        if not tensor.is_meta and tensor.numel() == 0:
            continue  # nothing of it to share
        if name in found:
            raise ConfigError(f"two parameters have the name '{name}'")
        found[name] = tensor
    return found


def checked(found: "Mapping[str, Any]", shards: bool = False) -> None:
    if not found:
        raise ConfigError("no parameter requires gradients: give a model with trainable parameters, or params={...}")
    spans = []
    for name, tensor in found.items():
        check_parameter(name, tensor, shards)
        if tensor.numel() > 0 and not is_sharded(tensor):
            size = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride()))
            begin = tensor.data_ptr()
            spans.append((str(tensor.device), begin, begin + size * tensor.element_size(), name))
    spans.sort()
    for before, after in zip(spans, spans[1:]):
        if before[0] == after[0] and after[1] < before[2]:
            raise ConfigError(
                f"parameters '{before[3]}' and '{after[3]}' share memory: tie them as one Parameter, or clone one"
            )

