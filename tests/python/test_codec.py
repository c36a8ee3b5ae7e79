# SPDX-License-Identifier: Apache-2.0
"""Codecs through ctypes: shapes, dtypes, bits, mistakes."""
import copy
import pickle

import numpy
import pytest

import isthmus


@pytest.mark.parametrize("name", [each["name"] for each in isthmus.codecs()])
def test_every_codec_goes_there_and_back(name):
    codec = isthmus.codec(name)
    values = numpy.random.default_rng(3).standard_normal(9000).astype(numpy.float32)
    coded = codec.encode(values, seed=5, worker=1)
    assert coded.dtype == numpy.uint8 and coded.size == codec.encoded_bytes(9000)
    back = codec.decode(coded, 9000)
    assert back.dtype == numpy.float32 and back.shape == (9000,)
    if codec.lossless:
        assert back.tobytes() == values.tobytes()
    assert isthmus.codec(codec.name).encode(values, seed=5, worker=1).tobytes() == coded.tobytes()
    total = numpy.full(9000, 2, numpy.float32)
    codec.decode_add(coded, total)
    assert (total == 2 + back).all()


def test_int8_is_within_half_a_level():
    # Blocks of 128 values: the level is the largest magnitude of the block / 127.
    values = numpy.linspace(-3, 3, 4096, dtype=numpy.float32)
    codec = isthmus.codec("int8:128")
    error = numpy.abs(codec.decode(codec.encode(values), 4096) - values).reshape(-1, 128)
    level = numpy.abs(values).reshape(-1, 128).max(axis=1) / 127
    assert (error.max(axis=1) <= 0.51 * level).all()


def test_shapes_are_taken_in_c_order():
    values = numpy.arange(24, dtype=numpy.float32).reshape(4, 6)
    codec = isthmus.codec("fp32")
    assert codec.encode(values.T).tobytes() == codec.encode(values.T.copy()).tobytes()
    assert codec.encode(values[:, ::2]).tobytes() == codec.encode(values[:, ::2].copy()).tobytes()
    assert codec.encode(numpy.float32(3)).size == codec.encoded_bytes(1)
    assert codec.encode(numpy.empty(0, numpy.float32)).size == 0


def test_the_tile_number_moves_random_bits_alone():
    values = numpy.linspace(0, 1, 4096, dtype=numpy.float32)
    nearest, drawn = isthmus.codec("int8"), isthmus.codec("int8:128:rounding=stochastic")
    assert nearest.encode(values, seed=1).tobytes() == nearest.encode(values, seed=2).tobytes()
    assert drawn.encode(values, seed=1).tobytes() != drawn.encode(values, seed=2).tobytes()
    whole = drawn.encode(numpy.concatenate([values, values]), seed=1)
    assert whole[whole.size // 2:].tobytes() == drawn.encode(values, seed=1, tile=1).tobytes()


@pytest.mark.parametrize("make, words", [
    (lambda: isthmus.codec("int9"), "int9"),
    (lambda: isthmus.codec("int8").encode(numpy.zeros(3)), "float64"),
    (lambda: isthmus.codec("int8").encode([1, 2, 3]), "float32"),
    (lambda: isthmus.codec("int8").encoded_bytes(-1), "-1"),
    (lambda: isthmus.codec("int8").encode(numpy.zeros(3, numpy.float32), worker=1 << 22), "4194304"),
    (lambda: isthmus.codec("int8").decode_add(b"", numpy.zeros(3)), "float32"),
])
def test_mistakes_are_config_errors(make, words):
    with pytest.raises(isthmus.ConfigError, match=words) as caught:
        make()
    assert isinstance(caught.value, ValueError) and caught.value.exit_code == 3


def test_copies_are_codecs_of_their_own():
    codec = isthmus.codec("int4:64")
    copies = [copy.copy(codec), copy.deepcopy(codec), pickle.loads(pickle.dumps(codec))]
    del codec
    assert [each.name for each in copies] == ["int4:64"] * 3


def test_damaged_bytes_are_refused():
    codec = isthmus.codec("int8")
    coded = codec.encode(numpy.ones(100, numpy.float32))
    with pytest.raises(isthmus.RunError, match="int8"):
        codec.decode(coded[:-1], 100)
    with pytest.raises(isthmus.RunError):
        codec.decode(coded, 101)
