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
    moment = numpy.zeros(3, numpy.float32)
    state = {"m": moment, "t": 0, "nested": {"v": numpy.ones(2)}, "gone": 1}
    restore_into(state, {"m": numpy.array([1, 2, 3], numpy.float32), "t": 7, "nested": {"v": numpy.zeros(2)}}, "")
    assert state["m"] is moment and moment.tolist() == [1, 2, 3] and state["t"] == 7 and "gone" not in state
    with pytest.raises(isthmus.RunError, match=r"state\['m'\]: an array of shape \(3,\)"):
        restore_into(state, {"m": numpy.zeros(4), "t": 0, "nested": {}}, "")


@pytest.mark.parametrize("damaged", [b"", b"{", b'{"$array": "7"}', b'{"$array": "0", "dtype": "<f4", "shape": [2]}'])
def test_damaged_state_is_an_error(damaged):
    with pytest.raises(isthmus.RunError, match="cannot be read"):
        unpacked({"outline": damaged, "0": b"123"}.__getitem__)
