# SPDX-License-Identifier: Apache-2.0
"""Arrays of a safetensors file. Nothing in such a file is code."""

from __future__ import annotations

import json
import pathlib
from typing import TYPE_CHECKING, Any

import numpy as np

from ._errors import RunError

if TYPE_CHECKING:
    import numpy.typing as npt

_DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?",
}
_LARGEST_HEADER = 100_000_000  # bytes; safetensors' own limit


def read_weights(path: pathlib.Path) -> "dict[str, npt.NDArray[Any]]":
    """Name -> array, each a copy. bfloat16 becomes float32. Raises RunError naming the tensor."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if not 2 <= size <= _LARGEST_HEADER:
            raise RunError(f"'{path}' is no safetensors file: its header would have {size} bytes")
        try:
            header: "dict[str, Any]" = json.loads(file.read(size))
        except ValueError as error:
            raise RunError(f"'{path}': its header is no JSON: {error}") from None
        header.pop("__metadata__", None)
        return {name: _read(path, file, 8 + size, name, entry) for name, entry in header.items()}


def _read(path: pathlib.Path, file: Any, start: int, name: str, entry: "dict[str, Any]") -> Any:
    try:
        dtype, shape = entry["dtype"], tuple(entry["shape"])
        begin, end = entry["data_offsets"]
    except (KeyError, TypeError, ValueError):
        raise RunError(f"'{path}': tensor '{name}' has no dtype, shape or data_offsets") from None
    if dtype != "BF16" and dtype not in _DTYPES:
        raise RunError(f"'{path}': tensor '{name}' has dtype {dtype}, which numpy has not")
    stored = np.dtype("<u2" if dtype == "BF16" else _DTYPES[dtype])
    count = int(np.prod(shape, dtype=np.int64))
    if end - begin != count * stored.itemsize:
        raise RunError(
            f"'{path}': tensor '{name}' of shape {list(shape)} has {end - begin} bytes, not "
            f"{count * stored.itemsize}"
        )
    file.seek(start + begin)
    raw = file.read(end - begin)
    if len(raw) != end - begin:
        raise RunError(f"'{path}' ends within tensor '{name}'")
    values = np.frombuffer(raw, dtype=stored)
    if dtype == "BF16":
        return (values.astype(np.uint32) << 16).view(np.float32).reshape(shape)
    return values.reshape(shape).copy()
