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
    (lambda: isthmus.codec("int8\0:64"), "NUL character"),
    (lambda: isthmus.codec(8), "must be a text"),
    (lambda: isthmus.codec("int8\ud800"), "int8"),
    (lambda: isthmus.codec("int8").encode(numpy.zeros(3, numpy.float32), seed=-1), "seed = -1.*2\\^64 - 1"),
    (lambda: isthmus.codec("int8").encode(numpy.zeros(3, numpy.float32), seed=1 << 64), "seed = 18446744073709551616"),
    (lambda: isthmus.codec("int8").encode(numpy.zeros(3, numpy.float32), seed=1.5), "seed = 1.5"),
    (lambda: isthmus.codec("int8").encode(numpy.zeros(3, numpy.float32), tile=1 << 70), "tile = "),
    (lambda: isthmus.codec("int8").encode(numpy.zeros(3, numpy.float32), worker=-1), "worker = -1"),
    (lambda: isthmus.codec("int8").encode(numpy.ma.masked_array(numpy.zeros(3, numpy.float32), [0, 1, 0])), "mask"),
    (lambda: isthmus.codec("int8").encoded_bytes(1 << 63), "2\\^48 - 1"),
    (lambda: isthmus.codec("int8").encoded_bytes("3"), "values = '3'"),
    (lambda: isthmus.codec("int8").decode(b"", -1), "values = -1"),
    (lambda: isthmus.codec("int8").decode(b"", None), "values = None"),
    (lambda: isthmus.codec("int8").decode([1, 2], 2), "coded is a list"),
    (lambda: isthmus.codec("int8").decode(numpy.zeros(8, numpy.int32), 4), "contiguous array of uint8"),
    (lambda: isthmus.codec("int8").decode(numpy.zeros(8, numpy.uint8)[::2], 2), "contiguous"),
])
def test_mistakes_are_config_errors(make, words):
    with pytest.raises(isthmus.ConfigError, match=words) as caught:
        make()
    assert isinstance(caught.value, ValueError) and caught.value.exit_code == 3


def test_a_refused_codec_can_be_shown():
    """As debuggers and reports of tracebacks do with every argument."""
    refused = isthmus._codec.Codec.__new__(isthmus._codec.Codec)
    with pytest.raises(isthmus.ConfigError):
        refused.__init__("int9")
    assert repr(refused) == "a refused isthmus.codec"
    with pytest.raises(AttributeError):
        refused.name


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
    with pytest.raises(isthmus.RunError, match="are no encoding"):
        codec.decode(coded, 1 << 40)  # without the memory for so many


def through(spelling, values, size=32):
    """`values` in a block with zeros behind, encoded and decoded."""
    block = numpy.zeros(size, numpy.float32)
    block[:len(values)] = values
    codec = isthmus.codec(spelling)
    return codec.decode(codec.encode(block), size)[:len(values)]


def test_the_numbers_of_docs_numerics_elsewhere():
    """The columns of isthmus in docs/guarantees/numerics-elsewhere.md, where other libraries give other bits."""
    ties = through("mxfp4", [0.75, 1.75, 2.5, 3.5, 6])  # a block of scale 1
    assert ties.tolist() == [1, 2, 2, 4, 6]
    low = through("mxfp4", [6, -0.25])
    assert low[1] == 0 and numpy.signbit(low[1])
    zeros = isthmus.codec("mxfp4").encode(numpy.zeros(32, numpy.float32))
    assert not zeros.any()  # a scale of 2^-127
    for value in (numpy.nan, -numpy.nan, numpy.inf):
        for spelling in ("mxfp4", "fp4-e2m1", "fp8-e4m3:scale=e8m0", "fp8-e5m2:scale=e8m0"):
            with pytest.raises(isthmus.RunError):
                through(spelling, [value], 128)
    assert not through("fp8-e4m3:scale=e8m0", [0, 0], 128).any()
    # Halfway to the next step and beyond, at a scale of 1: neither NaN nor infinity.
    assert through("fp8-e4m3:scale=e8m0", [464, 448], 128).tolist() == [448, 448]
    assert through("fp8-e4m3:scale=e8m0", [500, 256], 128).tolist() == [448, 256]
    assert through("fp8-e5m2:scale=e8m0", [61440, 57344], 128).tolist() == [57344, 57344]
    assert through("fp8-e5m2:scale=e8m0", [65535, 4], 128).tolist() == [57344, 4]
    # Beyond, the scale of the block grows: 2^11, 2 and 2^4.
    assert through("fp8-e4m3:scale=e8m0", [511], 128) == 448
    assert through("fp8-e4m3:scale=e8m0", [1e6], 128) == 448 * 2**11
    assert through("fp8-e5m2:scale=e8m0", [65536], 128) == 65536
    assert through("fp8-e5m2:scale=e8m0", [1e6], 128) == 57344 * 2**4
    # With fp32 scales the largest value is 448 or 57344 of its scale, and nothing saturates.
    assert through("fp8-e4m3", [500, 1e6], 128)[1] == 1e6
    assert through("fp8-e5m2", [1e6], 128)[0] == 1e6
