// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention.h"

#include "kernels/kernel_test.h"

namespace isthmus::kernels::this_file {
namespace {

struct Case {
  std::int64_t batch, seq, q_heads, kv_heads, head_dim;
  bool fused;                // q, k and v in one (B, T, ...) buffer
  std::int64_t longest = 0;  // document; 0: one document a sequence
  std::int64_t window = 0;
  double cap = 0;
};

// Lengths below and beyond a tile, a block of queries and a chunk of keys; one key head per query
// head, several, and one for all; few heads (split by query blocks) and many.
constexpr Case kCases[] = {{2, 5, 3, 3, 16, true},    {1, 64, 2, 1, 32, false},
                           {1, 97, 4, 2, 64, true},   {3, 130, 6, 6, 48, true},
                           {1, 300, 2, 1, 64, false}, {1, 530, 1, 1, 96, true},
                           {1, 70, 8, 2, 128, false}, {9, 33, 4, 2, 16, true},
                           {1, 21, 2, 1, 512, true},  {1, 21, 2, 1, 640, true}};
constexpr Case kOddDims[] = {{2, 9, 4, 2, 5, true}, {1, 20, 1, 1, 3, false}};
// Documents shorter and longer than a tile, a panel, a block of queries and a chunk of keys.
constexpr Case kDocuments[] = {
    {2, 5, 3, 3, 16, true, 2},      {1, 97, 4, 2, 64, true, 1},    {3, 130, 6, 6, 48, true, 9},
    {1, 300, 2, 1, 64, false, 70},  {2, 530, 1, 1, 96, true, 300}, {1, 800, 2, 2, 32, true, 600},
    {1, 1100, 2, 1, 16, false, 40}, {9, 133, 4, 2, 16, true, 50},  {1, 700, 2, 1, 512, true, 200}};
// The same of windows, alone and with documents; soft caps below and above the logits' size.
constexpr Case kWindowsAndCaps[] = {
    {2, 5, 3, 3, 16, true, 0, 1},        {1, 97, 4, 2, 64, true, 0, 5},
    {1, 300, 2, 1, 64, false, 0, 100},   {1, 530, 1, 1, 96, true, 0, 257},
    {1, 130, 2, 1, 32, true, 0, 200},    {2, 530, 2, 1, 32, true, 300, 70},
    {2, 70, 4, 2, 32, true, 0, 0, 0.7},  {1, 300, 2, 1, 64, false, 0, 0, 50},
    {9, 33, 4, 2, 16, true, 12, 7, 1.5}, {1, 700, 2, 1, 32, true, 0, 256, 2}};
// Rows that all see many keys; in bf16 the rounding of queries, keys and values alone moves their
// sums by 2.5 of the roundings below, which leaves no room for the rest.
constexpr Case kManyKeys[] = {{1, 1100, 2, 2, 32, true, 0, 300}};
constexpr Case kOddDocuments[] = {{2, 9, 4, 2, 5, true, 4},
                                  {1, 20, 1, 1, 3, false, 7},
                                  {2, 9, 4, 2, 5, true, 6, 3, 1.5},
                                  {1, 20, 1, 1, 3, false, 0, 2},
                                  {1, 20, 1, 1, 3, false, 0, 0, 0.5}};

std::string describe(const Case& c) {
  return "B " + std::to_string(c.batch) + " T " + std::to_string(c.seq) + " heads " +
         std::to_string(c.q_heads) + "/" + std::to_string(c.kv_heads) + " dim " +
         std::to_string(c.head_dim) + " documents of " + std::to_string(c.longest) + " window " +
         std::to_string(c.window) + " cap " + std::to_string(c.cap);
}

/// Documents of 1 to c.longest rows, other ones in each sequence; empty for one document each.
std::vector<std::int32_t> starts_of(const Case& c) {
  std::vector<std::int32_t> starts;
  if (c.longest == 0) return starts;
  std::uint64_t draw = 12345;
  for (std::int64_t b = 0; b < c.batch; ++b) {
    for (std::int64_t t = 0, start = 0, length = 0; t < c.seq; ++t) {
      if (t == start + length) {
        start = t;
        draw = draw * 6364136223846793005u + 1442695040888963407u;
        length =
            1 + static_cast<std::int64_t>((draw >> 33) % static_cast<std::uint64_t>(c.longest));
      }
      starts.push_back(static_cast<std::int32_t>(start));
    }
  }
  return starts;
}

AttentionShape shape_of(const Case& c, const std::vector<std::int32_t>& starts) {
  return {.batch = c.batch,
          .seq = c.seq,
          .q_heads = c.q_heads,
          .kv_heads = c.kv_heads,
          .head_dim = c.head_dim,
          .scale = 1 / std::sqrt(static_cast<double>(c.head_dim)),
          .document_starts = starts.empty() ? nullptr : starts.data(),
          .window = c.window,
          .cap = c.cap};
}

/// Query, key and value (or their gradients) in one fused buffer or three of their own.
template <typename Real>
class Qkv {
 public:
  Qkv(const Case& c, std::uint64_t seed) : c_(c) {
    const std::int64_t width = c.q_heads + 2 * c.kv_heads;
    storage_ = normal_values<Real>(c.batch * c.seq * width * c.head_dim, seed);
  }
  HeadsView<Real> q() { return view(0, c_.q_heads); }
  HeadsView<Real> k() { return view(c_.q_heads, c_.kv_heads); }
  HeadsView<Real> v() { return view(c_.q_heads + c_.kv_heads, c_.kv_heads); }
  std::vector<Real>& storage() { return storage_; }

 private:
  HeadsView<Real> view(std::int64_t heads_before, std::int64_t heads) {
    if (c_.fused) {
      const std::int64_t row = (c_.q_heads + 2 * c_.kv_heads) * c_.head_dim;
      return heads_in_rows(storage_.data() + heads_before * c_.head_dim, c_.seq, row, c_.head_dim);
    }
    return heads_in_rows(storage_.data() + heads_before * c_.batch * c_.seq * c_.head_dim, c_.seq,
                         heads * c_.head_dim, c_.head_dim);
  }
  Case c_;
  std::vector<Real> storage_;
};

template <typename Real>
HeadsView<const Real> read(HeadsView<Real> view) {
  return {view.data, view.batch_stride, view.token_stride, view.head_stride};
}

/// Everything a forward and a backward pass write.
template <typename Real>
struct Result {
  std::vector<Real> out, gradients;
  std::vector<RealOf<Real>> lse;
  bool operator==(const Result&) const = default;
};

template <typename Real>
Result<Real> run(ThreadTeam& team, const Case& c) {
  const std::vector<std::int32_t> starts = starts_of(c);
  const AttentionShape s = shape_of(c, starts);
  Qkv<Real> x(c, 1);
  Qkv<Real> dx(c, 2);
  Result<Real> result;
  const std::int64_t out_size = c.batch * c.seq * c.q_heads * c.head_dim;
  result.out.assign(static_cast<std::size_t>(out_size), Real(7));
  result.lse.assign(static_cast<std::size_t>(c.batch * c.q_heads * c.seq), 7);
  std::vector<Real> d_out = normal_values<Real>(out_size, 3);
  const auto rows = [&](std::vector<Real>& data) {
    return heads_in_rows(data.data(), c.seq, c.q_heads * c.head_dim, c.head_dim);
  };
  attention_forward<Real>(team, s, read(x.q()), read(x.k()), read(x.v()), rows(result.out),
                          result.lse.data());
  attention_backward<Real>(team, s,
                           {.q = read(x.q()),
                            .k = read(x.k()),
                            .v = read(x.v()),
                            .out = read(rows(result.out)),
                            .d_out = read(rows(d_out)),
                            .lse = result.lse.data(),
                            .d_q = dx.q(),
                            .d_k = dx.k(),
                            .d_v = dx.v()});
  result.gradients = dx.storage();
  return result;
}

/// The definition, one query row at a time, in double.
double naive_output(const Case& c, const AttentionShape& s, Qkv<double>& x, std::int64_t b,
                    std::int64_t t, std::int64_t h, std::int64_t d) {
  const std::int64_t kv = h / (c.q_heads / c.kv_heads);
  double total = 0;
  double sum = 0;
  for (std::int64_t u = 0; u <= t; ++u) {
    if (s.document_starts != nullptr && u < s.document_starts[b * c.seq + t]) continue;
    if (c.window > 0 && t - u >= c.window) continue;
    double logit = 0;
    for (std::int64_t i = 0; i < c.head_dim; ++i)
      logit += x.q().at(b, t, h)[i] * x.k().at(b, u, kv)[i];
    logit *= s.scale;
    if (c.cap > 0) logit = c.cap * std::tanh(logit / c.cap);
    const double p = std::exp(logit);
    total += p;
    sum += p * x.v().at(b, u, kv)[d];
  }
  return sum / total;
}

std::vector<Case> joined(std::span<const Case> a, std::span<const Case> b) {
  std::vector<Case> all(a.begin(), a.end());
  all.insert(all.end(), b.begin(), b.end());
  return all;
}

TEST(AttentionReference, ForwardIsTheDefinition) {
  ThreadTeam team(2);
  for (const Case& c : joined(kOddDims, kOddDocuments)) {
    const std::vector<std::int32_t> starts = starts_of(c);
    const AttentionShape s = shape_of(c, starts);
    Qkv<double> x(c, 1);
    const Result<double> result = run<double>(team, c);
    std::size_t at = 0;
    for (std::int64_t b = 0; b < c.batch; ++b) {
      for (std::int64_t t = 0; t < c.seq; ++t) {
        for (std::int64_t h = 0; h < c.q_heads; ++h) {
          for (std::int64_t d = 0; d < c.head_dim; ++d, ++at) {
            ASSERT_NEAR(result.out[at], naive_output(c, s, x, b, t, h, d), 1e-12) << describe(c);
          }
        }
      }
    }
  }
}

TEST(AttentionReference, BackwardMatchesCentralDifferences) {
  ThreadTeam team(2);
  constexpr double kStep = 1e-5;
  for (const Case& c : joined(kOddDims, kOddDocuments)) {
    const std::vector<std::int32_t> starts = starts_of(c);
    const AttentionShape s = shape_of(c, starts);
    Qkv<double> x(c, 1);
    const std::int64_t out_size = c.batch * c.seq * c.q_heads * c.head_dim;
    const std::vector<double> weights = normal_values<double>(out_size, 3);
    std::vector<double> out(weights.size());
    std::vector<double> lse(static_cast<std::size_t>(c.batch * c.q_heads * c.seq));
    const auto objective = [&] {
      attention_forward<double>(
          team, s, read(x.q()), read(x.k()), read(x.v()),
          heads_in_rows(out.data(), c.seq, c.q_heads * c.head_dim, c.head_dim), lse.data());
      double sum = 0;
      for (std::size_t i = 0; i < out.size(); ++i) sum += weights[i] * out[i];
      return sum;
    };
    const Result<double> result = run<double>(team, c);
    for (std::size_t i = 0; i < x.storage().size(); ++i) {
      const double value = x.storage()[i];
      x.storage()[i] = value + kStep;
      const double above = objective();
      x.storage()[i] = value - kStep;
      const double below = objective();
      x.storage()[i] = value;
      ASSERT_NEAR(result.gradients[i], (above - below) / (2 * kStep), 1e-7)
          << describe(c) << " " << i;
    }
  }
}

using AttentionTest = IsaTest;
ISTHMUS_EVERY_ISA(AttentionTest);

TEST_P(AttentionTest, AgreesWithDoubleWithinRounding) {
  ThreadTeam team(2);
  for (const Case& c : joined(joined(kCases, kDocuments), joined(kWindowsAndCaps, kManyKeys))) {
    const Result<float> fast = run<float>(team, c);
    const Result<double> exact = run<double>(team, c);
    // Logits of size below 16 carry head_dim roundings; sums over up to seq keys carry as many.
    const double tolerance = kFloatEpsilon * (16 + static_cast<double>(c.head_dim + c.seq));
    for (std::size_t i = 0; i < exact.out.size(); ++i) {
      ASSERT_NEAR(static_cast<double>(fast.out[i]), exact.out[i], tolerance) << describe(c);
    }
    for (std::size_t i = 0; i < exact.lse.size(); ++i) {
      ASSERT_NEAR(static_cast<double>(fast.lse[i]), exact.lse[i], tolerance) << describe(c);
    }
    const double group = static_cast<double>(c.q_heads) / static_cast<double>(c.kv_heads);
    for (std::size_t i = 0; i < exact.gradients.size(); ++i) {
      ASSERT_NEAR(static_cast<double>(fast.gradients[i]), exact.gradients[i], 4 * group * tolerance)
          << describe(c) << " " << i;
    }
  }
}

/// |x - exact| / |exact|, Euclidean.
template <typename T>
double relative_error(const std::vector<T>& x, const std::vector<double>& exact) {
  double error = 0;
  double norm = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const double difference = static_cast<double>(static_cast<float>(x[i])) - exact[i];
    error += difference * difference;
    norm += exact[i] * exact[i];
  }
  return std::sqrt(error / norm);
}

// A stored value is off by 2^-9 of its size at most, 2^-9 / sqrt(3) in the mean; a gradient comes
// out of four products in a row with two operands each, and the result is stored too.
TEST_P(AttentionTest, Bf16StaysWithinItsRounding) {
  constexpr double kRounding = 1.0 / 512 / 1.732;
  ThreadTeam team(2);
  const std::vector<Case> packed = joined(joined(kDocuments, kOddDocuments), kWindowsAndCaps);
  for (const Case& c : joined(joined(kCases, kOddDims), packed)) {
    const Result<Bf16> fast = run<Bf16>(team, c);
    const Result<double> exact = run<double>(team, c);
    EXPECT_LE(relative_error(fast.out, exact.out), 3 * kRounding) << describe(c);
    // Of a document's first row, and in a narrow window, lse is a logit, whose two operands are
    // rounded: sqrt(2) in the mean of many. Rows of more keys have the logarithm of their number
    // beside it.
    EXPECT_LE(relative_error(fast.lse, exact.lse),
              (c.longest == 0 && c.window == 0 ? 1.4 : 2.5) * kRounding)
        << describe(c);
    EXPECT_LE(relative_error(fast.gradients, exact.gradients), 4 * kRounding) << describe(c);
  }
}

template <typename T>
void expect_same_bits_in_every_team() {
  for (const Case& c : joined(joined(kCases, kDocuments), kWindowsAndCaps)) {
    ThreadTeam alone(1);
    const Result<T> expected = run<T>(alone, c);
    for (const int size : kTeamSizes) {
      ThreadTeam team(size);
      ASSERT_EQ(run<T>(team, c), expected) << describe(c) << " team of " << size;
    }
  }
}

TEST_P(AttentionTest, BitsDoNotDependOnTheTeam) {
  expect_same_bits_in_every_team<float>();
  expect_same_bits_in_every_team<Bf16>();
}

TEST_P(AttentionTest, SurvivesLargeLogits) {
  const Case c{1, 40, 1, 1, 16, false};
  const AttentionShape s = shape_of(c, {});
  ThreadTeam team(1);
  Qkv<float> x(c, 1);
  for (float& value : x.storage()) value *= 100;  // logits of some tens of thousands
  std::vector<float> out(40 * 16);
  std::vector<float> lse(40);
  attention_forward<float>(team, s, read(x.q()), read(x.k()), read(x.v()),
                           heads_in_rows(out.data(), 40, 16, 16), lse.data());
  for (const float value : out) ASSERT_TRUE(std::isfinite(value));
  for (const float value : lse) ASSERT_TRUE(std::isfinite(value));
}

}  // namespace
}  // namespace isthmus::kernels::this_file
