# SPDX-License-Identifier: Apache-2.0
"""What this build has: methods, codecs, keys; configurations, checked."""

from __future__ import annotations

import ctypes
import difflib
import json
import os
from typing import Any, Iterable, Iterator, Mapping

from . import _abi
from ._errors import ConfigError, check
from ._launched import told_config, told_overrides


def _json_from(function: Any, *arguments: Any) -> Any:
    text = ctypes.c_char_p()
    check(function(*arguments, ctypes.byref(text)))
    return json.loads(_abi.taken_text(text))


def methods() -> "list[dict[str, Any]]":
    """The outer methods: name, text, source, deviations, keys, default_lr, default_momentum, ...

    >>> import isthmus
    >>> "diloco" in [method["name"] for method in isthmus.methods()]
    True
    """
    found: "list[dict[str, Any]]" = _json_from(_abi.lib.isthmus_methods)
    return found


def codecs() -> "list[dict[str, Any]]":
    """The codecs: name, text, bits_per_value (scales included)."""
    found: "list[dict[str, Any]]" = _json_from(_abi.lib.isthmus_codecs)
    return found


def keys() -> "list[dict[str, Any]]":
    """Every key of a configuration: name, type, default, range, text, used_by, example."""
    found: "list[dict[str, Any]]" = _json_from(_abi.lib.isthmus_keys)
    return found


def explain(topic: str) -> "dict[str, Any]":
    """What has that name: a key ("outer.H"), a method or a codec; `kind` says which.

    >>> import isthmus
    >>> isthmus.explain("outer.H")["kind"]
    'key'
    """
    tables = {"key": keys(), "method": methods(), "codec": codecs()}
    for kind, rows in tables.items():
        for row in rows:
            if row["name"] == topic:
                return {"kind": kind, **row}
    names = [row["name"] for rows in tables.values() for row in rows]
    near = difflib.get_close_matches(topic, names, n=1)
    raise ConfigError(
        f'explain("{topic}"): no key, method or codec has that name'
        + (f'; did you mean "{near[0]}"?' if near else "; see isthmus.keys(), methods(), codecs()")
    )


class Section(Mapping[str, Any]):
    """A table of a configuration, read by key or attribute: `config.outer.H`, `config["outer"]`."""

    def __init__(self, values: "dict[str, Any]", name: str = "") -> None:
        self._values = values
        self._name = name

    def __getitem__(self, key: str) -> Any:
        value = self._values[key]
        inner = f"{self._name}.{key}" if self._name else key
        return Section(value, inner) if isinstance(value, dict) else value

    def __getattr__(self, key: str) -> Any:
        if key.startswith("_"):
            raise AttributeError(key)
        try:
            return self[key]
        except KeyError:
            raise AttributeError(
                f"the configuration has no value '{self._name + '.' if self._name else ''}{key}'; "
                f"there are: {', '.join(self._values) or 'none'}"
            ) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __dir__(self) -> "list[str]":
        return [*super().__dir__(), *self._values]

    def __repr__(self) -> str:
        return f"<{self._name or 'configuration'}: {self._values!r}>"


def load_config(path: _abi.Path, overrides: Iterable[str] = ()) -> Section:
    """A configuration, checked, with every default filled in: `load_config("run.toml").outer.H`.

    `overrides`: as --set takes them, "outer.H=50"; those of `isthmus launch --set` and `--change` come after them
    in a program that it has started. In a program that `isthmus compare` has started the file is that of its run, whatever `path`
    says, and `overrides` has 'train.trainer="external"' already. Raises ConfigError with `.diagnostics`.
    """
    if isinstance(overrides, str):
        raise ConfigError(f'overrides = "{overrides}": must be a list of texts, ["outer.H=50"]')
    texts = [each.encode() for each in [*overrides, *told_overrides()]]
    array = (ctypes.c_char_p * len(texts))(*texts)
    return Section(
        _json_from(_abi.lib.isthmus_config_load, os.fsencode(told_config(path)), array, len(texts))
    )


def read_toml(path: _abi.Path) -> Section:
    """A TOML file, unchecked."""
    with open(path, "rb") as file:
        text = file.read()
    return Section(_json_from(_abi.lib.isthmus_toml_to_json, text, os.fsencode(path)))
