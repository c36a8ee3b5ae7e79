// SPDX-License-Identifier: Apache-2.0
// The block loops of every instruction set of this machine against the portable ones, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

#include "quant/codec_values.h"
#include "quant/codecs/scale_plane.h"
#include "quant/cpu/codec_kernels.h"

namespace isthmus::this_file {
namespace {

using testing_support::NamedValues;

constexpr std::byte kCanary{0xA5};
constexpr float kFloatCanary = 12345.0f;

template <typename T>
std::vector<std::byte> raw(const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// Values, codes and results at `offset` elements from an aligned start.
struct Shape {
  std::size_t n = 0;
  std::size_t block = 0;
  std::size_t offset = 0;
};
std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  return out << "n = " << shape.n << ", block = " << shape.block << ", offset = " << shape.offset;
}

class BlockKernelsTest : public ::testing::TestWithParam<const CodecKernels*> {
 protected:
  const BlockKernels& fast() const { return *GetParam()->blocks; }
  const BlockKernels& reference() const { return kPortableBlockKernels; }
};

std::vector<float> shifted(const std::vector<float>& x, std::size_t offset) {
  std::vector<float> out(offset, kFloatCanary);
  out.insert(out.end(), x.begin(), x.end());
  return out;
}

// Scales as an encoder would find them; with `marked`, one block in seven is not finite, one zero.
template <typename G>
std::vector<float> scales_for(const std::vector<float>& x, std::size_t block, bool marked) {
  const std::size_t nb = blocks_of(x.size(), block);
  std::vector<std::uint32_t> largest(nb);
  kPortableBlockKernels.block_amax(x.data(), x.size(), block, largest.data());
  std::vector<float> scales;
  for (std::size_t b = 0; b < nb; ++b) {
    const float amax = std::bit_cast<float>(largest[b]);
    float scale = std::min(amax / G::kTop, largest_scale(G::kTop));
    if (G::kInput == GridInput::kThreshold) scale = amax / 3;
    if (marked && b % 7 == 3) scale = std::numeric_limits<float>::quiet_NaN();
    if (marked && b % 7 == 5) scale = 0;
    if (G::kInput == GridInput::kOffset) {
      std::vector<float> low(nb), high(nb);
      kPortableBlockKernels.block_range(x.data(), x.size(), block, low.data(), high.data(),
                                        largest.data());
      scales.push_back(low[b]);
      scale =
          static_cast<float>((static_cast<double>(high[b]) - static_cast<double>(low[b])) / 255);
    }
    scales.push_back(scale);
  }
  return scales;
}

template <typename G>
void compare(const GridLoops& fast, const GridLoops& reference, const NamedValues& input,
             const Shape& shape, bool marked) {
  const std::size_t n = shape.n;
  const std::size_t size = code_bytes(n, G::kBits);
  const std::vector<float> scales = scales_for<G>(input.x, shape.block, marked);
  const std::vector<float> x = shifted(input.x, shape.offset);
  std::vector<std::byte> codes(shape.offset + size + 1, kCanary);
  std::vector<std::byte> expected_codes(size);
  fast.encode(x.data() + shape.offset, n, shape.block, scales.data(), codes.data() + shape.offset);
  reference.encode(x.data() + shape.offset, n, shape.block, scales.data(), expected_codes.data());
  ASSERT_EQ(codes.back(), kCanary) << "wrote past the end";
  ASSERT_TRUE(std::equal(expected_codes.begin(), expected_codes.end(),
                         codes.begin() + static_cast<std::ptrdiff_t>(shape.offset)));
  codes.pop_back();  // so that a sanitizer sees what reads past the end
  codes.shrink_to_fit();
  ASSERT_TRUE(fast.valid(codes.data() + shape.offset, n));
  for (const bool add : {false, true}) {
    std::vector<float> out(shape.offset + n + 1, 0.1f);
    std::vector<float> expected = out;
    (add ? fast.decode_add : fast.decode)(codes.data() + shape.offset, n, shape.block,
                                          scales.data(), out.data() + shape.offset);
    (add ? reference.decode_add : reference.decode)(codes.data() + shape.offset, n, shape.block,
                                                    scales.data(), expected.data() + shape.offset);
    if (!marked) {
      ASSERT_EQ(raw(out), raw(expected)) << "add " << add;
    }
    ASSERT_EQ(out.back(), 0.1f) << "wrote past the end";
  }
}

/// testing_support::hard_vectors, made once a length: every grid of every instruction set asks for
/// all of them.
const std::vector<NamedValues>& hard_vectors_of(std::size_t n) {
  static std::map<std::size_t, std::vector<NamedValues>> made;
  const auto at = made.find(n);
  return at != made.end() ? at->second
                          : made.emplace(n, testing_support::hard_vectors(n)).first->second;
}

template <typename G>
void compare_everywhere(const BlockKernels& fast, const BlockKernels& reference) {
  std::vector<Shape> shapes;
  for (std::size_t n = 1; n <= 257; ++n) {
    for (std::size_t offset = 0; offset < 16; ++offset) {
      shapes.push_back({n, std::size_t{16} << (n + offset) % 5, offset});
    }
  }
  for (const std::size_t block : {1u, 8u, 16u, 64u, 1024u, 4096u}) {
    for (const std::size_t n : {1000u, 4095u, 4096u}) shapes.push_back({n, block, block % 3});
  }
  std::size_t turn = 0;
  for (const Shape& shape : shapes) {
    // All inputs at the long shapes; a different one at each of the many short ones.
    const std::vector<NamedValues>& inputs = hard_vectors_of(shape.n);
    for (std::size_t k = 0; k < (shape.n > 257 ? inputs.size() : 2); ++k) {
      const NamedValues& input = inputs[shape.n > 257 ? k : (k == 0 ? 0 : turn++ % inputs.size())];
      compare<G>(fast.grid(G::kGrid), reference.grid(G::kGrid), input, shape,
                 G::kInput != GridInput::kOffset && k == 0 && turn % 2 == 0);
      if (::testing::Test::HasFatalFailure()) {
        FAIL() << "grid " << static_cast<int>(G::kGrid) << ", " << input.name << ", " << shape;
      }
    }
  }
}

TEST_P(BlockKernelsTest, EveryGridMatchesThePortableLoops) {
  for (std::size_t g = 0; g < kGrids; ++g) {
    visit_grid(static_cast<Grid>(g),
               [this]<typename G>(G) { compare_everywhere<G>(fast(), reference()); });
  }
}

TEST_P(BlockKernelsTest, StatisticsMatchThePortableLoops) {
  for (const std::size_t block : {1u, 8u, 16u, 32u, 256u, 4096u}) {
    for (std::size_t n = 1; n <= 4096; n += n < 300 ? 1 : 977) {
      for (const NamedValues& input : hard_vectors_of(n)) {
        const std::size_t nb = blocks_of(n, block);
        const std::vector<float> x = shifted(input.x, n % 16);
        const float* const at = x.data() + n % 16;
        std::vector<std::uint32_t> amax(nb), expected_amax(nb), count(nb), expected_count(nb);
        std::vector<double> sum(nb), expected_sum(nb);
        std::vector<float> low(nb), high(nb), expected_low(nb), expected_high(nb);
        fast().block_amax(at, n, block, amax.data());
        reference().block_amax(at, n, block, expected_amax.data());
        ASSERT_EQ(amax, expected_amax) << input.name << ", n = " << n << ", block = " << block;
        fast().block_sum(at, n, block, sum.data());
        reference().block_sum(at, n, block, expected_sum.data());
        ASSERT_EQ(sum, expected_sum) << input.name << ", n = " << n << ", block = " << block;
        fast().block_squares(at, n, block, sum.data());
        reference().block_squares(at, n, block, expected_sum.data());
        ASSERT_EQ(sum, expected_sum) << input.name << ", n = " << n << ", block = " << block;
        std::vector<float> thresholds(nb);
        for (std::size_t b = 0; b < nb; ++b) {  // half the root mean square is the least allowed
          const double mean = sum[b] / static_cast<double>(std::min(block, n - b * block));
          thresholds[b] = n % 2 == 0 ? std::bit_cast<float>(amax[b]) / 2
                                     : static_cast<float>(std::sqrt(mean)) / 2;
        }
        std::vector<std::byte> codes(code_bytes(n, 2)), expected_codes(codes.size());
        fast().encode_ternary(at, n, block, thresholds.data(), codes.data(), sum.data(),
                              count.data());
        reference().encode_ternary(at, n, block, thresholds.data(), expected_codes.data(),
                                   expected_sum.data(), expected_count.data());
        ASSERT_EQ(codes, expected_codes) << input.name << ", n = " << n << ", block = " << block;
        ASSERT_EQ(sum, expected_sum) << input.name << ", n = " << n << ", block = " << block;
        ASSERT_EQ(count, expected_count) << input.name << ", n = " << n << ", block = " << block;
        fast().block_range(at, n, block, low.data(), high.data(), amax.data());
        reference().block_range(at, n, block, expected_low.data(), expected_high.data(),
                                expected_amax.data());
        ASSERT_EQ(amax, expected_amax) << input.name << ", n = " << n << ", block = " << block;
        ASSERT_EQ(raw(low), raw(expected_low)) << input.name << ", n = " << n;
        ASSERT_EQ(raw(high), raw(expected_high)) << input.name << ", n = " << n;
      }
    }
  }
}

TEST_P(BlockKernelsTest, ScalesOfMagnitudesMatchThePortableLoops) {
  for (const float top : {1.0f, 6.0f, 7.0f, 16.0f, 127.0f, 448.0f, 57344.0f}) {
    const float most = largest_scale(top);
    for (std::size_t n = 1; n <= 65; ++n) {
      for (std::uint64_t seed = 0; seed < 20; ++seed) {
        // Any magnitudes, or those of one size with a rare one of another.
        std::vector<std::uint32_t> largest(n);
        for (std::size_t b = 0; b < n; ++b) {
          const std::uint32_t word = Rng(seed, Stream::kTestData).words(b)[0];
          const bool any = seed % 2 == 0 || word % 50 == 0;
          largest[b] = any ? word & kAbsMask : 0x3F80'0000u + word % 0x80'0000u;
        }
        for (const std::uint32_t edge : {0u, 1u, 0x7F7F'FFFFu, 0x7F80'0000u}) {
          largest[seed % n] = edge;
          std::vector<float> scales(n), expected(n);
          fast().scales_for(largest.data(), n, top, most, scales.data());
          reference().scales_for(largest.data(), n, top, most, expected.data());
          ASSERT_EQ(raw(scales), raw(expected)) << "top " << top << ", n = " << n;
        }
      }
    }
  }
}

TEST_P(BlockKernelsTest, NonFiniteValuesAreSeenInEveryPlace) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    for (std::size_t n = 1; n <= 130; n += 3) {
      for (std::size_t at = 0; at < n; ++at) {
        std::vector<float> x = testing_support::normal_vector(n);
        x[at] = bad;
        std::vector<std::uint32_t> amax(blocks_of(n, 32));
        std::vector<double> sum(amax.size()), squares(amax.size());
        fast().block_amax(x.data(), n, 32, amax.data());
        fast().block_sum(x.data(), n, 32, sum.data());
        fast().block_squares(x.data(), n, 32, squares.data());
        ASSERT_GE(amax[at / 32], kInfinityBits);
        ASSERT_FALSE(std::isfinite(sum[at / 32]));
        ASSERT_FALSE(std::isfinite(squares[at / 32]));
      }
    }
  }
}

// Codes that no encoder makes are found wherever they are.
TEST_P(BlockKernelsTest, InvalidCodesAreFoundInEveryPlace) {
  for (std::size_t g = 0; g < kGrids; ++g) {
    for (std::size_t n = 1; n <= 200; n += 7) {
      visit_grid(static_cast<Grid>(g), [&]<typename G>(G) {
        for (std::size_t at = 0; at < 8 * code_bytes(n, G::kBits); ++at) {
          std::vector<std::byte> codes(code_bytes(n, G::kBits));
          for (const unsigned pattern : {0x01u, 0x7Fu, 0x80u, 0xFFu}) {
            codes[at / 8] = static_cast<std::byte>(pattern);
            ASSERT_EQ(fast().grid(G::kGrid).valid(codes.data(), n),
                      reference().grid(G::kGrid).valid(codes.data(), n))
                << "grid " << g << ", n = " << n << ", at " << at;
          }
        }
      });
    }
  }
}

// The reciprocal with its two corrections has to be the division, on exactly the inputs where an
// error of one unit in the quotient shows: quotients beside a tie.
TEST_P(BlockKernelsTest, Int8QuotientsBesideTiesRoundAsTheDivisionDoes) {
  const Rng rng(11, Stream::kTestData);
  constexpr std::size_t kBlock = 256;
  constexpr std::uint64_t kBlocks = 4000;
  for (std::uint64_t b = 0; b < kBlocks; ++b) {
    const float amax = std::bit_cast<float>(0x2000'0000u + rng.words(b)[0] % 0x3F00'0000u);
    const float scale = amax / 127;
    std::vector<float> x(kBlock, amax);
    for (std::size_t i = 1; i < kBlock; ++i) {
      const float tie = (static_cast<float>(i % 127) + 0.5f) * scale;
      const auto shift = static_cast<std::uint32_t>(i % 5) - 2;  // wraps: two units to either side
      x[i] = std::min(amax, std::bit_cast<float>(std::bit_cast<std::uint32_t>(tie) + shift));
    }
    std::vector<std::byte> codes(kBlock), expected(kBlock);
    fast().grid(Grid::kInt8).encode(x.data(), kBlock, kBlock, &scale, codes.data());
    reference().grid(Grid::kInt8).encode(x.data(), kBlock, kBlock, &scale, expected.data());
    ASSERT_EQ(codes, expected) << "amax " << amax;
  }
}

// As far from ties as reciprocal and fixed point may err, in steps of 2^-16 of a code: whoever
// decides there without dividing is found out.
TEST_P(BlockKernelsTest, Int8QuotientsNearTiesRoundAsTheDivisionDoes) {
  const Rng rng(12, Stream::kTestData);
  constexpr std::size_t kBlock = 256;
  for (std::uint64_t b = 0; b < 2000; ++b) {
    const float scale = std::bit_cast<float>(0x2000'0000u + rng.words(b)[0] % 0x3F00'0000u) / 127;
    std::vector<float> x(kBlock);
    for (std::size_t i = 0; i < kBlock; ++i) {
      const auto units = static_cast<double>(i % 33) - 16;
      const double tie = static_cast<double>(rng.words(b)[i % 4] >> i % 16 & 127u) + 0.5;
      const double quotient = std::min(tie + units * 0x1p-16, 127.5) * (i % 2 == 0 ? 1 : -1);
      x[i] = static_cast<float>(quotient * static_cast<double>(scale));
    }
    std::vector<std::byte> codes(kBlock), expected(kBlock);
    fast().grid(Grid::kInt8).encode(x.data(), kBlock, kBlock, &scale, codes.data());
    reference().grid(Grid::kInt8).encode(x.data(), kBlock, kBlock, &scale, expected.data());
    ASSERT_EQ(codes, expected) << "scale " << scale;
  }
}

// Quotients at every place where the portable code changes, and one or two units beside it; under
// scales that are powers of two, so that the quotients are exactly these.
template <typename G>
std::vector<float> beside_borders() {
  std::vector<float> all;
  const auto code = [](std::uint32_t bits) { return G::code(std::bit_cast<float>(bits)); };
  for (const std::uint32_t sign : {0u, 0x8000'0000u}) {
    // No grid has two borders closer than this, and none lies outside of these powers.
    constexpr std::uint32_t kStride = 1u << 18;
    for (std::uint32_t low = 0x3380'0000u; low < 0x4880'0000u; low += kStride) {
      if (code(sign | low) == code(sign | (low + kStride))) continue;
      std::uint32_t below = low;
      std::uint32_t from = low + kStride;
      while (from - below > 1) {
        const std::uint32_t middle = below + (from - below) / 2;
        (code(sign | middle) == code(sign | low) ? below : from) = middle;
      }
      for (const std::uint32_t bits : {below - 1, below, from, from + 1}) {
        if (std::bit_cast<float>(bits) < 2 * G::kTop) {
          all.push_back(std::bit_cast<float>(sign | bits));
        }
      }
    }
  }
  return all;
}
TEST_P(BlockKernelsTest, QuotientsBesideEveryBorderMatchThePortableLoops) {
  for (std::size_t g = 0; g < kGrids; ++g) {
    visit_grid(static_cast<Grid>(g), [this]<typename G>(G) {
      if constexpr (G::kInput == GridInput::kReciprocal) {
        const std::vector<float> quotients = beside_borders<G>();
        ASSERT_GE(quotients.size(), 8u);
        for (const float scale : {0x1p-40f, 1.0f, 0x1p40f}) {
          for (std::size_t from = 0; from < quotients.size(); from += 64) {
            std::vector<float> x(64, scale);
            for (std::size_t i = 0; i < 64; ++i) {
              x[i] = scale * quotients[(from + i) % quotients.size()];
            }
            std::vector<std::byte> codes(code_bytes(64, G::kBits)), expected(codes.size());
            fast().grid(G::kGrid).encode(x.data(), 64, 64, &scale, codes.data());
            reference().grid(G::kGrid).encode(x.data(), 64, 64, &scale, expected.data());
            ASSERT_EQ(codes, expected)
                << "grid " << static_cast<int>(G::kGrid) << ", from " << from;
          }
        }
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(AllIsas, BlockKernelsTest,
                         ::testing::ValuesIn(available_codec_kernels().begin(),
                                             available_codec_kernels().end()),
                         [](const auto& test) { return std::string(test.param->isa); });

}  // namespace
}  // namespace isthmus::this_file
