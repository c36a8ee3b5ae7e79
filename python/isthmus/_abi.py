# SPDX-License-Identifier: Apache-2.0
"""libisthmus.so over ctypes: where it is, what its functions take. `scripts/check-abi` compares the
table with include/isthmus/c.h and with the library."""

from __future__ import annotations

import ctypes
import functools
import os
import pathlib
from typing import Any, Callable, Optional, Union

ABI = 1

_text = ctypes.c_char_p
_out_text = ctypes.POINTER(ctypes.c_char_p)  # char**; frees by isthmus_text_free
_handle = ctypes.c_void_p
_out_handle = ctypes.POINTER(ctypes.c_void_p)
_address = ctypes.c_void_p  # of values or bytes
_size = ctypes.c_size_t
_int = ctypes.c_int32


class EncodeKey(ctypes.Structure):
    """isthmus_encode_key."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("seed", ctypes.c_uint64),
        ("tile", ctypes.c_uint64),
        ("worker", ctypes.c_uint32),
    ]


class SessionOptions(ctypes.Structure):
    """isthmus_session_options."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("config", ctypes.c_char_p),
        ("overrides", ctypes.POINTER(ctypes.c_char_p)),
        ("override_count", ctypes.c_size_t),
        ("site", ctypes.c_char_p),
        ("listen", ctypes.c_char_p),
        ("key_file", ctypes.c_char_p),
        ("out", ctypes.c_char_p),
        ("resume", ctypes.c_char_p),
        ("link", ctypes.c_char_p),
        ("kind", ctypes.c_char_p),
        ("common", ctypes.c_char_p),
        ("evaluation_parts", ctypes.c_int64),
        ("simulated", ctypes.c_int32),
        ("force", ctypes.c_int32),
        ("addresses", ctypes.POINTER(ctypes.c_char_p)),
        ("address_count", ctypes.c_size_t),
        ("links", ctypes.c_char_p),
        ("changes", ctypes.POINTER(ctypes.c_char_p)),
        ("change_count", ctypes.c_size_t),
    ]


class Parameter(ctypes.Structure):
    """isthmus_parameter."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("dimensions", ctypes.c_size_t),
        ("values", ctypes.c_void_p),
        ("layer", ctypes.c_int32),
        ("gradient", ctypes.c_void_p),
    ]


class Request(ctypes.Structure):
    """isthmus_request."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("kind", ctypes.c_int32),
        ("step", ctypes.c_int64),
        ("parts", ctypes.POINTER(ctypes.c_int64)),
        ("part_count", ctypes.c_size_t),
        ("wrote", ctypes.c_int32),
        ("first", ctypes.c_int64),
        ("end", ctypes.c_int64),
        ("until", ctypes.c_int64),
        ("log_lines", ctypes.c_int64),
    ]


class Step(ctypes.Structure):
    """isthmus_step."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("loss", ctypes.c_double),
        ("grad_norm", ctypes.c_double),
        ("tokens", ctypes.c_int64),
        ("learning_rate", ctypes.c_double),
        ("skipped", ctypes.c_int32),
    ]


_CODES: "dict[Any, str]" = {ctypes.c_double: "d", ctypes.c_int64: "q", ctypes.c_int32: "i"}


def view(struct: ctypes.Structure, member: str) -> Any:
    """A struct as an array of elements like one of its members, which is at `place`. An element is read and written
    by a fifth of the code that an attribute takes."""
    raw: Any = memoryview((ctypes.c_char * ctypes.sizeof(struct)).from_buffer(struct))
    kinds = {field[0]: field[1] for field in struct._fields_}
    return raw.cast("B").cast(_CODES[kinds[member]])


def place(struct: "type[ctypes.Structure]", member: str) -> int:
    """Index of a member in its `view`."""
    found = getattr(struct, member)
    offset: int = found.offset
    return offset // int(found.size)


# Kinds of requests, as in c.h.
NOTHING, TRAIN, SAVE, LOAD, RESTART, EVALUATE, END, READ, WROTE, GRADIENTS, APPLY, REPLAY, RANKS = range(13)

# isthmus_ranks_call, and its operations.
RanksCall = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32, ctypes.c_void_p,
                             ctypes.c_size_t)
RANKS_BEGIN, RANKS_BROADCAST, RANKS_SEND, RANKS_RECEIVE = range(4)

_worker = ctypes.c_int32
_out_integer = ctypes.POINTER(ctypes.c_int64)

# name: (result, arguments), as in c.h. _handle as a result is an error, or none.
FUNCTIONS: "dict[str, tuple[Any, list[Any]]]" = {
    "isthmus_abi": (_int, []),
    "isthmus_version": (_text, []),
    "isthmus_text_free": (None, [_address]),
    "isthmus_error_text": (_text, [_handle]),
    "isthmus_error_kind": (_text, [_handle]),
    "isthmus_error_exit_code": (_int, [_handle]),
    "isthmus_error_diagnostics": (_text, [_handle]),
    "isthmus_error_free": (None, [_handle]),
    "isthmus_log_keep": (None, [_int]),
    "isthmus_log_waiting": (ctypes.c_int64, []),
    "isthmus_log_take": (_handle, [_out_text]),
    "isthmus_methods": (_handle, [_out_text]),
    "isthmus_codecs": (_handle, [_out_text]),
    "isthmus_keys": (_handle, [_out_text]),
    "isthmus_config_load": (_handle, [_text, ctypes.POINTER(_text), _size, _out_text]),
    "isthmus_toml_to_json": (_handle, [_text, _text, _out_text]),
    "isthmus_codec_new": (_handle, [_text, _out_handle]),
    "isthmus_codec_free": (None, [_handle]),
    "isthmus_codec_name": (_text, [_handle]),
    "isthmus_codec_lossless": (_int, [_handle]),
    "isthmus_codec_sparse": (_int, [_handle]),
    "isthmus_codec_error_feedback": (_int, [_handle]),
    "isthmus_codec_bytes": (_size, [_handle, _size]),
    "isthmus_codec_encode": (
        _handle,
        [_handle, _address, _size, ctypes.POINTER(EncodeKey), _address, _size],
    ),
    "isthmus_codec_decode": (_handle, [_handle, _address, _size, _address, _size]),
    "isthmus_codec_decode_add": (_handle, [_handle, _address, _size, _address, _size]),
    "isthmus_session_new": (_handle, [ctypes.POINTER(SessionOptions), _out_handle]),
    "isthmus_session_config": (_text, [_handle]),
    "isthmus_session_placement": (_text, [_handle]),
    "isthmus_session_workers": (_int, [_handle]),
    "isthmus_session_local": (_int, [_handle]),
    "isthmus_session_first": (_int, [_handle]),
    "isthmus_session_steps": (ctypes.c_int64, [_handle]),
    "isthmus_session_worker": (_handle, [_handle, _worker, ctypes.POINTER(Parameter), _size]),
    "isthmus_session_copies": (_handle, [_handle, _worker]),
    "isthmus_session_ranks": (_handle, [_handle, _int, _int, _address, _address]),
    "isthmus_ranks": (_handle, [_handle, _worker]),
    "isthmus_ranks_calls": (ctypes.c_int64, [_handle]),
    "isthmus_session_start": (_handle, [_handle]),
    "isthmus_next": (_handle, [_handle, _worker, ctypes.c_int64, ctypes.POINTER(Request)]),
    "isthmus_answer": (_handle, [_handle, _worker, ctypes.POINTER(Step)]),
    "isthmus_answer_next": (
        _handle,
        [_handle, _worker, ctypes.POINTER(Step), ctypes.c_int64, ctypes.POINTER(Request)],
    ),
    "isthmus_answer_losses": (
        _handle,
        [_handle, _worker, ctypes.POINTER(ctypes.c_double), ctypes.POINTER(ctypes.c_int64), _size],
    ),
    "isthmus_samples": (_handle, [_handle, _worker, _out_integer, _out_integer, _out_integer]),
    "isthmus_batch": (_handle, [_handle, _worker, ctypes.c_int64, _address, _address, _size]),
    "isthmus_validation": (
        _handle,
        [_handle, _worker, ctypes.c_int64, _address, _address, _size, _out_integer],
    ),
    "isthmus_packed_batch": (
        _handle,
        [_handle, _worker, ctypes.c_int64, _address, _address, _address, _size],
    ),
    "isthmus_packed_validation": (
        _handle,
        [_handle, _worker, ctypes.c_int64, _address, _address, _address, _size, _out_integer],
    ),
    "isthmus_outer_values": (_handle, [_handle, _worker, _size, _address, _size]),
    "isthmus_session_fail": (_handle, [_handle, _worker, _text]),
    "isthmus_state_put": (_handle, [_handle, _worker, _text, _address, _size]),
    "isthmus_state_bytes": (ctypes.c_int64, [_handle, _worker, _text]),
    "isthmus_state_get": (_handle, [_handle, _worker, _text, _address, _size]),
    "isthmus_session_wish": (_handle, [_handle, _int]),
    "isthmus_kill_at": (_handle, [_text]),
    "isthmus_session_end": (_handle, [_handle, _out_text]),
    "isthmus_session_free": (_int, [_handle]),
}


def library_path() -> pathlib.Path:
    """The library beside this file; ISTHMUS_LIBRARY names another one (a build tree's)."""
    named = os.environ.get("ISTHMUS_LIBRARY")
    path = pathlib.Path(named) if named else pathlib.Path(__file__).parent / "lib" / "libisthmus.so"
    if not path.is_file():
        raise ImportError(
            f"isthmus: no library at '{path}'"
            + (" (from ISTHMUS_LIBRARY)" if named else "")
            + ": install the package (pip install .), or set ISTHMUS_LIBRARY to a build's "
            "src/c/libisthmus.so"
        )
    return path


def open_library(path: Optional[pathlib.Path] = None) -> ctypes.CDLL:
    """Loads the library and gives every function its types. Its symbols stay its own (RTLD_LOCAL)."""
    path = path or library_path()
    try:
        library = ctypes.CDLL(str(path), mode=ctypes.RTLD_LOCAL)
    except OSError as error:
        raise ImportError(f"isthmus: '{path}' cannot be loaded: {error}") from None
    try:
        library.isthmus_abi.restype = _int
        abi = library.isthmus_abi()
    except AttributeError:
        raise ImportError(f"isthmus: '{path}' is no library of isthmus") from None
    if abi != ABI:
        raise ImportError(
            f"isthmus: '{path}' speaks version {abi} of the C interface, this package version {ABI}: "
            "install the package and the library of one build"
        )
    for name, (result, arguments) in FUNCTIONS.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    return library


lib = open_library()


def bound(name: str, *arguments: Any) -> "Callable[[], Any]":
    """A call of a function with these arguments, which are objects of ctypes: nothing is converted at each call."""
    function = lib[name]  # another object than lib.NAME, without its argument types
    function.restype = ctypes.c_void_p
    return functools.partial(function, *arguments)


def version() -> str:
    raw: bytes = lib.isthmus_version()
    return raw.decode()


def taken_text(pointer: "ctypes.c_char_p") -> str:
    """A text that a function wrote through char**; freed here."""
    address = ctypes.cast(pointer, ctypes.c_void_p)
    try:
        return (pointer.value or b"").decode()
    finally:
        lib.isthmus_text_free(address)


Path = Union[str, "os.PathLike[str]"]
