# SPDX-License-Identifier: Apache-2.0
"""State beside the parameters: exact there and back, nothing that is code."""
import collections

import numpy
import pytest

import isthmus
from isthmus._state import packed, restore_into, unpacked


def there_and_back(state):
    entries = packed(state)
    assert all(isinstance(each, bytes) for each in entries.values())
    return unpacked(entries.__getitem__)


def test_every_bit_comes_back():
    array = numpy.frombuffer(numpy.random.default_rng(0).bytes(4000), numpy.float32)  # NaNs too
    state = {"m": array, 3: [1, 2.5, -0.0, float("inf"), None, True, "text \u00e9"], "t": (1, (2,)), "empty": {},
             "big": 2**80, "scalar": numpy.float64(0.1), "bits": numpy.array([True, False]),
             "half": numpy.arange(3, dtype=numpy.float16), "none": numpy.empty((0, 2), numpy.int64)}
    back = there_and_back(state)
    assert list(back) == list(state)
    assert back["m"].tobytes() == array.tobytes() and back["m"].dtype == numpy.float32
    assert back[3][:6] == state[3][:6] and str(back[3][2]) == "-0.0" and back[3][5] is True
    assert back["t"] == (1, (2,)) and back["big"] == 2**80 and back["scalar"] == 0.1
    assert back["bits"].tolist() == [True, False] and back["half"].dtype == numpy.float16
    assert back["none"].shape == (0, 2) and back["none"].dtype == numpy.int64
    assert numpy.isnan(there_and_back({"x": float("nan")})["x"])


@pytest.mark.parametrize("state, words", [
    ({"a": [1, object()]}, r"state\['a'\]\[1\]: a builtins.object"),
    ({"a": lambda: 1}, "function"),
    ({(1, 2): 3}, "a key of type tuple"),
    ({"o": numpy.array([object()])}, "dtype object"),
    (collections.deque(), "deque"),
])
def test_what_cannot_be_kept_is_named(state, words):
    with pytest.raises(isthmus.ConfigError, match=words):
        packed(state)


def test_arrays_are_filled_in_place():
    moment, second, third = numpy.zeros(3, numpy.float32), numpy.zeros(2), numpy.zeros(1)
    state = {"m": moment, "t": 0, "pair": (second, third), "list": [third, 5], "nested": {"v": numpy.ones(2)}}
    given = {"m": numpy.array([1, 2, 3], numpy.float32), "t": numpy.int64(7), "pair": (numpy.ones(2), numpy.ones(1)),
             "list": [numpy.full(1, 4.0), 6], "nested": {"v": numpy.zeros(2)}}
    restore_into(state, unpacked(packed(given).__getitem__))
    assert state["m"] is moment and moment.tolist() == [1, 2, 3]
    assert state["t"] == 7 and isinstance(state["t"], numpy.int64)
    assert state["pair"][0] is second and second.tolist() == [1, 1]
    assert state["list"][0] is third and third.tolist() == [4] and state["list"][1] == 6


@pytest.mark.parametrize("into, state, kind, words", [
    ({"m": numpy.zeros(3)}, {"m": numpy.zeros(4)}, isthmus.RunError, r"state\['m'\]: float64 of shape \(3,\)"),
    ({"m": numpy.zeros(3, numpy.int32)}, {"m": numpy.zeros(3)}, isthmus.RunError, "int32 of shape"),
    ({"m": numpy.zeros(3)}, {}, isthmus.RunError, r"has \['m'\], the checkpoint \[\]"),
    ([numpy.zeros(3)], [], isthmus.RunError, "has 1 entries, the checkpoint 0 entries"),
    ((1, numpy.zeros(3)), (2, numpy.zeros(3)), isthmus.ConfigError, r"state\[0\]: a tuple's a int"),
    (3, 4, isthmus.ConfigError, "a int cannot be restored in place"),
])
def test_another_state_is_refused(into, state, kind, words):
    with pytest.raises(kind, match=words):
        restore_into(into, state)


@pytest.mark.parametrize("damaged", [b"", b"{", b'{"$array": "7"}', b'{"$array": "0", "dtype": "<f4", "shape": [2]}'])
def test_damaged_state_is_an_error(damaged):
    with pytest.raises(isthmus.RunError, match="cannot be read"):
        unpacked({"outline": damaged, "0": b"123"}.__getitem__)
