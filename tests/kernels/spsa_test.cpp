// SPDX-License-Identifier: Apache-2.0
// SPSA's arithmetic against its definition: known-answer vectors, then naive loops bit for bit on
// every instruction set, team size, alignment, order and batching.
#include "kernels/spsa.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <tuple>
#include <utility>

#include "kernel_test.h"
#include "kernels/spsa_code.h"

namespace isthmus::kernels::this_file {
namespace {

using Words = std::array<std::uint32_t, 4>;

// Random123's known-answer file, and one more counter computed with it.
TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, {0, 0}),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(philox4x32_10({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(
      philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
      (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
  EXPECT_EQ(philox4x32_10({1, 0, 0, 0}, {7, 9}),
            (Words{0x568e0869, 0x7113b89e, 0x77dd92bc, 0xdb594cdd}));
}

// Oracle (10): a counter determines (step, machine, sample, group of 128 elements), so none of 10^7
// tuples collide; the digits-pasted-together seed of the paper's code does.
TEST(SpsaCounter, IsInvertibleSoTuplesNeverCollide) {
  const Rng rng{1, Stream::kTestData};
  for (std::uint64_t i = 0; i < 10'000'000; ++i) {
    const Words draw = rng.words(i);
    const SpsaDirection z{.step = draw[0], .machine = draw[1], .sample = draw[2] >> 8};
    const std::int64_t element = static_cast<std::int64_t>(
        (std::uint64_t{draw[3]} << 15 | (draw[2] & 0xff)) & ((std::uint64_t{1} << 47) - 1));
    const Words c = spsa_counter(z, element);
    const std::int64_t group = static_cast<std::int64_t>(std::uint64_t{c[1] & 0xff} << 32 | c[0]);
    ASSERT_EQ(std::make_tuple(c[3], c[2], c[1] >> 8, group),
              std::make_tuple(z.step, z.machine, z.sample, element >> 7));
  }
}

TEST(SpsaCode, GivesTheVectorsOfTheSpecification) {
  EXPECT_EQ(spsa_encode(1, 0), 64);
  EXPECT_EQ(spsa_encode(-1, 0), 0x80 | 64);
  EXPECT_EQ(spsa_encode(0, 0), 0);
  EXPECT_EQ(spsa_encode(-0.0f, 0), 0);
  EXPECT_EQ(spsa_encode(1e9f, 0), 127);
  EXPECT_EQ(spsa_encode(1e-9f, 0), 1);
  EXPECT_EQ(spsa_encode(-1e-40f, 0), 0x80 | 1);  // subnormal
  EXPECT_EQ(spsa_encode(std::numeric_limits<float>::quiet_NaN(), 0), 0);
  EXPECT_EQ(spsa_encode(-std::numeric_limits<float>::infinity(), 0), 0);
  EXPECT_EQ(spsa_decode_q31(0), 0);
  EXPECT_EQ(spsa_decode_q31(0x80), 0);
  EXPECT_EQ(spsa_decode_q31(64), std::int64_t{1} << 31);
  EXPECT_EQ(spsa_decode_q31(0x80 | 72), -(std::int64_t{1} << 32));
  EXPECT_EQ(spsa_decode(64, 5), 32.0f);
  EXPECT_EQ(spsa_encode_sign(-0.001f), 0x80 | 64);
  EXPECT_EQ(spsa_encode_sign(7e9f), 64);
  EXPECT_EQ(spsa_encode_sign(std::numeric_limits<float>::quiet_NaN()), 0);
}

// Magnitudes are 2^((k-64)/8) as a logarithm gives them, and the code is the nearest one.
TEST(SpsaCode, EncodesToTheNearestPowerAndDecodesWithinHalfAStep) {
  constexpr double kHalfStep = 0.0443;  // 2^(1/16) - 1, and a little for fp32 tables
  const Rng rng{3, Stream::kTestData};
  for (std::uint64_t i = 0; i < 200000; ++i) {
    for (const int scale : {0, -7, 20}) {
      const double exponent = rng.uniform(i) * 15.6 - 7.8;
      const auto g = static_cast<float>((i % 2 == 0 ? 1 : -1) * std::exp2(exponent + scale));
      const std::uint8_t code = spsa_encode(g, scale);
      const double nearest = 64 + 8 * (std::log2(std::fabs(static_cast<double>(g))) - scale);
      EXPECT_NEAR(code & 127, nearest, 0.5 + 1e-5) << g;
      EXPECT_NEAR(spsa_decode(code, scale) / g, 1.0, kHalfStep) << g;
    }
  }
}

TEST(SpsaCode, EveryCodeComesBack) {
  for (int code = 0; code < 256; ++code) {
    const auto byte = static_cast<std::uint8_t>(code);
    if ((code & 127) == 0) continue;  // both are zero
    for (const int scale : {-64, -1, 0, 9, 64}) {
      EXPECT_EQ(spsa_encode(spsa_decode(byte, scale), scale), byte) << scale;
    }
    EXPECT_EQ(static_cast<double>(spsa_decode_q31(byte)) * 0x1p-31,
              static_cast<double>(spsa_decode(byte, 0)));
  }
}

constexpr std::uint64_t kRun = 0x0123456789abcdef;
// Spans that start and end inside words, counters and blocks, and one far out in the layout.
const std::vector<std::pair<std::int64_t, std::int64_t>> kSpans = {
    {0, 0},
    {0, 1},
    {0, 31},
    {0, 32},
    {5, 27},
    {31, 2},
    {127, 130},
    {0, 4096},
    {2047, 300},
    {1000, 5000},
    {65530, 131100},
    {33, 70001},
    {(std::int64_t{1} << 39) - 5, 4000},
    {(std::int64_t{1} << 46) + 77, 1000}};

struct Replay {
  std::vector<std::vector<SpsaEntry>> entries;
  std::vector<SpsaStep> steps;
};

/// Steps with 1, several, none and many entries, with and without decay.
Replay some_steps() {
  const Rng rng{9, Stream::kTestData};
  Replay replay;
  std::uint64_t draws = 0;
  for (const int count : {1, 3, 0, 8, 1, 40, 2, 17}) {
    std::vector<SpsaEntry> entries;
    for (int k = 0; k < count; ++k) {
      const auto code = static_cast<std::uint8_t>(rng.below(256, draws++));
      entries.push_back({static_cast<std::uint32_t>(k % 5), static_cast<std::uint32_t>(k / 5),
                         spsa_decode_q31(code)});
    }
    replay.entries.push_back(entries);
  }
  for (std::size_t s = 0; s < replay.entries.size(); ++s) {
    replay.steps.push_back({.step = static_cast<std::uint32_t>(s + 1),
                            .entries = replay.entries[s],
                            .c = 1e-3f * 0x1p-31f / static_cast<float>(s + 1),
                            .decay = s % 3 == 2 ? 0.99f : 1.0f});
  }
  return replay;
}

/// The specification of section 2.3, element by element.
std::vector<float> naive_apply(const Replay& replay, std::int64_t first, std::vector<float> w) {
  for (std::size_t i = 0; i < w.size(); ++i) {
    for (const SpsaStep& step : replay.steps) {
      std::int64_t a = 0;
      for (const SpsaEntry& entry : step.entries) {
        a += entry.d * spsa_sign(kRun, {step.step, entry.machine, entry.sample},
                                 first + static_cast<std::int64_t>(i));
      }
      if (step.decay != 1.0f) w[i] = w[i] * step.decay;
      const float product = static_cast<float>(a) * step.c;
      w[i] = w[i] - product;
    }
  }
  return w;
}

std::vector<std::uint32_t> bits_of(const std::vector<float>& x) {
  std::vector<std::uint32_t> bits(x.size());
  std::ranges::transform(x, bits.begin(), [](float v) { return std::bit_cast<std::uint32_t>(v); });
  return bits;
}

std::vector<float> weights(std::int64_t n) {
  std::vector<float> w = normal_values<float>(n, 5);
  for (std::size_t i = 3; i < w.size(); i += 50) w[i] = i % 100 < 50 ? 0.0f : -0.0f;
  return w;
}

class Spsa : public IsaTest {};
ISTHMUS_EVERY_ISA(Spsa);

TEST_P(Spsa, PerturbsAsTheDefinitionSaysAndLeavesTheWeightsAlone) {
  const SpsaDirection z{.step = 12, .machine = 3, .sample = 70000};
  for (const auto& [first, n] : kSpans) {
    const std::vector<float> w = weights(n);
    const std::vector<float> before = w;
    for (const int size : kTeamSizes) {
      ThreadTeam team(size);
      std::vector<float> out(w.size(), 9.0f);
      spsa_perturb(team, kRun, z, 1e-3f, first, w, out);
      for (std::size_t i = 0; i < w.size(); ++i) {
        const float step =
            spsa_sign(kRun, z, first + static_cast<std::int64_t>(i)) > 0 ? 1e-3f : -1e-3f;
        ASSERT_EQ(std::bit_cast<std::uint32_t>(out[i]), std::bit_cast<std::uint32_t>(w[i] + step))
            << "first " << first << " i " << i;
      }
      EXPECT_EQ(bits_of(w), bits_of(before));
    }
  }
}

// Oracle (1), the arithmetic: threads, spans, one pass for all steps or one each.
TEST_P(Spsa, ReplaysTheBitsOfTheDefinition) {
  const Replay replay = some_steps();
  for (const auto& [first, n] : kSpans) {
    const std::vector<float> w = weights(n);
    const auto expected = bits_of(naive_apply(replay, first, w));
    for (const int size : kTeamSizes) {
      ThreadTeam team(size);
      std::vector<float> fused = w;
      spsa_apply(team, kRun, replay.steps, first, fused);
      ASSERT_EQ(bits_of(fused), expected) << "first " << first << " n " << n;
      std::vector<float> singly = w;
      for (const SpsaStep& step : replay.steps) {
        const std::size_t cut = singly.size() / 3;
        spsa_apply(team, kRun, {&step, 1}, first, std::span(singly).first(cut));
        spsa_apply(team, kRun, {&step, 1}, first + static_cast<std::int64_t>(cut),
                   std::span(singly).subspan(cut));
      }
      ASSERT_EQ(bits_of(singly), expected) << "first " << first << " n " << n;
    }
  }
}

// Oracle (3).
TEST_P(Spsa, EntriesInAnyOrderGiveTheSameBits) {
  Replay replay = some_steps();
  const std::vector<float> w = weights(3000);
  ThreadTeam team(2);
  std::vector<float> expected = w;
  spsa_apply(team, kRun, replay.steps, 100, expected);
  const Rng rng{4, Stream::kTestData};
  std::uint64_t draws = 0;
  for (int trial = 0; trial < 10; ++trial) {
    for (auto& entries : replay.entries) {
      for (std::size_t k = entries.size(); k > 1; --k) {
        std::swap(entries[k - 1], entries[rng.below(k, draws++)]);
      }
    }
    std::vector<float> shuffled = w;
    spsa_apply(team, kRun, replay.steps, 100, shuffled);
    EXPECT_EQ(bits_of(shuffled), bits_of(expected));
  }
}

// The largest sum there may be stays exact: 2^15 entries of the largest code in agreement.
TEST_P(Spsa, LargeSumsDoNotOverflow) {
  std::vector<SpsaEntry> entries;
  for (std::uint32_t k = 0; k < (1U << 15); ++k) {
    entries.push_back({k, 0, spsa_decode_q31(k % 2 == 0 ? 127 : 0xff)});
  }
  const SpsaStep step{.step = 1, .entries = entries, .c = 0x1p-60f};
  std::vector<float> w(40, 0.0f);
  ThreadTeam team(1);
  Replay replay;
  replay.steps = {step};
  const auto expected = bits_of(naive_apply(replay, 0, w));
  spsa_apply(team, kRun, {&step, 1}, 0, w);
  EXPECT_EQ(bits_of(w), expected);
}

// Oracle (11), the must-fail twin: walking +eps, -2 eps, +eps on the weights themselves does not
// come back to where it was.
TEST_P(Spsa, UndoByArithmeticDrifts) {
  constexpr int kRounds = 100;
  constexpr float kEps = 1e-3f;
  std::vector<float> w = normal_values<float>(1 << 16, 8);
  for (float& value : w) value *= 0.02f;
  const std::vector<float> base = w;
  ThreadTeam team(1);
  std::vector<float> next(w.size());
  for (std::uint32_t step = 1; step <= kRounds; ++step) {
    for (const float eps : {kEps, -2 * kEps, kEps}) {
      spsa_perturb(team, kRun, {.step = step}, eps, 0, w, next);
      w.swap(next);
    }
  }
  std::size_t changed = 0;
  for (std::size_t i = 0; i < w.size(); ++i) changed += w[i] != base[i] ? 1 : 0;
  // 30 % with these directions; with Gaussian ones, as the papers' code has, 46 %.
  EXPECT_GT(static_cast<double>(changed) / static_cast<double>(w.size()), 0.2);
}

}  // namespace
}  // namespace isthmus::kernels::this_file
