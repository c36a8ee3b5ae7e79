# SPDX-License-Identifier: Apache-2.0
"""Codecs in process: `isthmus.codec("int8:256")`."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from . import _abi
from ._errors import ConfigError, RunError, check

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float32]
    Bytes = npt.NDArray[np.uint8]


class Codec:
    """The bytes form of float vectors on the wire; immutable, for any number of threads.

    >>> import isthmus, numpy
    >>> int8 = isthmus.codec("int8:256")
    >>> coded = int8.encode(numpy.linspace(-1, 1, 1000, dtype=numpy.float32))
    >>> coded.nbytes == int8.encoded_bytes(1000)
    True
    >>> bool(abs(int8.decode(coded, 1000)[-1] - 1) < 0.01)
    True
    """

    def __init__(self, spelling: str) -> None:
        if not isinstance(spelling, str):
            raise ConfigError(f'codec = {spelling!r}: must be a text, such as "int8:256"')
        if "\0" in spelling:
            raise ConfigError(f"codec = {spelling!r}: has a NUL character, at which the library would end; leave it out")
        handle = ctypes.c_void_p()
        check(_abi.lib.isthmus_codec_new(spelling.encode("utf-8", "replace"), ctypes.byref(handle)))
        self._handle = handle  # a refused codec has none

    def __del__(self) -> None:
        handle = getattr(self, "_handle", None)
        if handle:
            _abi.lib.isthmus_codec_free(handle)

    def __reduce__(self) -> "tuple[Any, ...]":
        return (Codec, (self.name,))  # copies and pickles are codecs of their own

    def __repr__(self) -> str:
        return f'isthmus.codec("{self.name}")' if hasattr(self, "_handle") else "a refused isthmus.codec"

    @property
    def name(self) -> str:
        """The canonical spelling."""
        raw: bytes = _abi.lib.isthmus_codec_name(self._handle)
        return raw.decode()

    @property
    def lossless(self) -> bool:
        """Whether every value survives bit for bit."""
        return bool(_abi.lib.isthmus_codec_lossless(self._handle))

    @property
    def sparse(self) -> bool:
        """Whether the exchange of this codec is a gather (top-k)."""
        return bool(_abi.lib.isthmus_codec_sparse(self._handle))

    @property
    def error_feedback(self) -> bool:
        """Whether the spelling asks for error feedback, which the sender keeps."""
        return bool(_abi.lib.isthmus_codec_error_feedback(self._handle))

    def encoded_bytes(self, values: int) -> int:
        """Exact size of so many encoded values."""
        return int(_abi.lib.isthmus_codec_bytes(self._handle, _whole("values", values, 48)))

    def encode(self, values: "Any", *, seed: int = 0, worker: int = 0, tile: int = 0) -> "Bytes":
        """The bytes of float32 `values` (any shape, taken in C order).

        `seed`, `worker`, `tile`: what random bits are drawn from (isthmus/codec.h, EncodeKey);
        codecs that round to nearest ignore them. The bytes are the same on every machine.
        """
        floats = _floats(values)
        out = np.empty(self.encoded_bytes(floats.size), dtype=np.uint8)
        key = _abi.EncodeKey(
            ctypes.sizeof(_abi.EncodeKey),
            _whole("seed", seed, 64), _whole("tile", tile, 64), _whole("worker", worker, 22),
        )
        check(
            _abi.lib.isthmus_codec_encode(
                self._handle, floats.ctypes.data, floats.size, ctypes.byref(key), out.ctypes.data,
                out.size,
            )
        )
        return out

    def decode(self, coded: "Union[Bytes, bytes]", values: int) -> "Floats":
        """So many float32 values. Raises RunError for bytes that are no encoding of them."""
        raw = _bytes(coded)
        needed = self.encoded_bytes(values)
        if raw.size != needed:  # before the values have memory
            raise RunError(f'codec "{self.name}": {raw.size} bytes are no encoding of {values} values, which take {needed}')
        out = np.empty(int(values), dtype=np.float32)
        check(
            _abi.lib.isthmus_codec_decode(
                self._handle, raw.ctypes.data, raw.size, out.ctypes.data, out.size
            )
        )
        return out

    def decode_add(self, coded: "Union[Bytes, bytes]", into: "Floats") -> None:
        """into += decoded, in place, one rounded addition a value."""
        if (
            not isinstance(into, np.ndarray)
            or into.dtype != np.float32
            or not into.flags.c_contiguous
            or not into.flags.writeable
        ):
            raise ConfigError("decode_add: `into` must be a writable contiguous float32 array")
        raw = _bytes(coded)
        check(
            _abi.lib.isthmus_codec_decode_add(
                self._handle, raw.ctypes.data, raw.size, into.ctypes.data, into.size
            )
        )


def _whole(name: str, value: Any, bits: int) -> int:
    try:
        number = int(value)
        if number == value and 0 <= number < 1 << bits:
            return number
    except (TypeError, ValueError, OverflowError):
        pass
    raise ConfigError(f"{name} = {value!r}: must be a whole number from 0 to 2^{bits} - 1")


def _bytes(coded: Any) -> "Bytes":
    try:
        view = memoryview(coded)
        if view.itemsize == 1 and view.c_contiguous:
            return np.frombuffer(view, dtype=np.uint8)
    except TypeError:
        pass
    raise ConfigError(f"coded is a {type(coded).__qualname__}: must be bytes, or a contiguous array of uint8")


def _floats(values: Any) -> "Floats":
    if isinstance(values, np.ma.MaskedArray):
        raise ConfigError("values are a masked array, whose mask the codec would not see: give their data")
    array = np.asarray(values)
    if array.dtype != np.float32:
        raise ConfigError(
            f"values of dtype {array.dtype}: a codec takes float32; convert with "
            ".astype(numpy.float32)"
        )
    return np.ascontiguousarray(array)


def codec(spelling: str) -> Codec:
    """A codec from its spelling: "int8", "int4:64", "topk:0.01:ef" (docs/internals/codecs.md).

    Raises ConfigError that says what is allowed.
    """
    return Codec(spelling)
