// SPDX-License-Identifier: Apache-2.0
// Cross-entropy on a device against its definition in double.
#include <limits>

#include "cuda/operation_test.h"
#include "kernels/cuda/cross_entropy.h"

namespace isthmus::cuda::this_file {
namespace {

struct Case {
  std::int64_t rows, vocab, ld;
  double z_loss, scale;
};
constexpr Case kCases[] = {{1, 1, 1, 0, 1},          {3, 2, 8, 0, 0.5},
                           {5, 255, 256, 1e-4, 1},   {300, 17, 24, 0, 1e-3},
                           {4, 1031, 1031, 1e-2, 1}, {2, 50257, 50304, 1e-4, 1. / 512}};

template <typename T>
struct Results {
  Bits<T> logits;
  double loss = 0, z_loss = 0;
  std::int64_t targets = 0;
  bool operator==(const Results&) const = default;
};

/// Every fifth row is ignored. Row 1 has one logit far above the others, row 2 equal ones.
template <typename T>
struct Inputs {
  explicit Inputs(const Case& c_) : c(c_), logits(normal_of<T>(c.rows * c.ld, 1, 4)) {
    const Rng rng(3, isthmus::Stream::kTestData);
    for (std::int64_t r = 0; r < c.rows; ++r) {
      const auto draw =
          rng.below(static_cast<std::uint64_t>(c.vocab), static_cast<std::uint64_t>(r));
      targets.push_back(r % 5 == 4 ? -1 : static_cast<std::int32_t>(draw));
      T* const row = logits.data() + r * c.ld;
      if (r == 1) row[c.vocab / 2] = static_cast<T>(300.f);
      if (r == 2) std::fill(row, row + c.vocab, static_cast<T>(-150.f));
      // What lies between the rows is not read.
      std::fill(row + c.vocab, row + c.ld, static_cast<T>(std::numeric_limits<float>::quiet_NaN()));
    }
  }
  Case c;
  std::vector<T> logits;
  std::vector<std::int32_t> targets;
};

template <typename T>
Results<T> on_the_device(const Inputs<T>& in, bool gradient) {
  Stream stream;
  const auto logits = on_device(stream, in.logits);
  const auto targets = on_device(stream, in.targets);
  const DeviceArray<double> row_losses(2 * in.targets.size());
  const DeviceArray<LossTotals> totals(1);
  const auto scale = on_device<double>(stream, {in.c.scale});
  fill_zero(stream, totals.data(), 1);
  cross_entropy<T>(stream, {.rows = in.c.rows,
                            .vocab = in.c.vocab,
                            .ld = in.c.ld,
                            .logits = logits.data(),
                            .targets = targets.data(),
                            .gradient = gradient,
                            .gradient_scale = gradient ? scale.data() : nullptr,
                            .z_loss = in.c.z_loss,
                            .row_losses = row_losses.data(),
                            .totals = totals.data()});
  const LossTotals sums = on_host(stream, totals)[0];
  return {{on_host(stream, logits)}, sums.loss, sums.z_loss, sums.targets};
}

template <typename T>
void compare(const Inputs<T>& in, const Results<T>& got) {
  double loss = 0, z_loss = 0;
  std::int64_t targets = 0;
  std::vector<double> gradient(in.logits.size(), 0);
  for (std::size_t r = 0; r < in.targets.size(); ++r) {
    if (in.targets[r] < 0) continue;
    const std::vector<double> all = in_double(in.logits);
    const auto row = static_cast<std::int64_t>(r) * in.c.ld;
    const std::vector<double> logits(all.begin() + row, all.begin() + row + in.c.vocab);
    const double top = *std::max_element(logits.begin(), logits.end());
    double total = 0;
    for (const double x : logits) total += std::exp(x - top);
    const double log_z = top + std::log(total);
    const auto target = static_cast<std::size_t>(in.targets[r]);
    loss += log_z - logits[target];
    z_loss += in.c.z_loss * log_z * log_z;
    ++targets;
    for (std::size_t j = 0; j < logits.size(); ++j) {
      const double softmax = std::exp(logits[j] - log_z);
      gradient[static_cast<std::size_t>(row) + j] =
          in.c.scale * (softmax * (1 + 2 * in.c.z_loss * log_z) - (j == target ? 1 : 0));
    }
  }
  // exp of a difference of logits of up to 300 in float loses some 300 roundings of the difference.
  const double error = 512 * kFloatRounding;
  EXPECT_NEAR(got.loss, loss, error * (1 + std::abs(loss)));
  EXPECT_NEAR(got.z_loss, z_loss, error * (1 + std::abs(z_loss)));
  EXPECT_EQ(got.targets, targets);
  expect_close(got.logits.values, gradient, kRounding<T> + error, error * in.c.scale, "gradient");
}

template <typename T>
class CrossEntropyOnDevice : public DeviceTest {};
using Types = ::testing::Types<float, Bf16>;
TYPED_TEST_SUITE(CrossEntropyOnDevice, Types);

TYPED_TEST(CrossEntropyOnDevice, LossAndGradientAreThoseOfTheDefinition) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(::testing::Message() << c.rows << " x " << c.vocab);
    const Inputs<TypeParam> in(c);
    compare(in, on_the_device(in, true));
  }
}

/// Columns [first, first + columns) of the logits, in rows of their own with more than they need.
template <typename T>
Inputs<T> columns_of(const Inputs<T>& all, std::int64_t first, std::int64_t columns) {
  Inputs<T> some = all;
  some.c.vocab = columns;
  some.c.ld = (columns + 63) / 64 * 64;
  some.logits.assign(static_cast<std::size_t>(all.c.rows * some.c.ld), T(7.f));
  for (std::int64_t r = 0; r < all.c.rows; ++r) {
    std::copy_n(all.logits.begin() + r * all.c.ld + first, columns,
                some.logits.begin() + r * some.c.ld);
  }
  return some;
}

// What ranks that hold some columns each compute is what one with all of them does. Surplus columns
// of a share have no gradient, also where the target is another rank's.
TYPED_TEST(CrossEntropyOnDevice, SharesOfTheColumnsHaveTheLossesAndGradientsOfAll) {
  constexpr std::int64_t kRanks = 3;
  const Inputs<TypeParam> all({23, 217, 217, 1e-3, 0.25});
  const auto rows = static_cast<std::size_t>(all.c.rows);
  Stream stream;
  const auto targets = on_device(stream, all.targets);
  const auto scale = on_device<double>(stream, {all.c.scale});
  const DeviceArray<RowShare> shares(kRanks * rows);
  std::vector<DeviceArray<TypeParam>> logits;
  std::vector<CrossEntropy<TypeParam>> ranks;
  std::vector<std::int64_t> firsts;
  for (std::int64_t rank = 0; rank < kRanks; ++rank) {
    const std::int64_t first = all.c.vocab * rank / kRanks;
    const std::int64_t end = all.c.vocab * (rank + 1) / kRanks;
    const Inputs<TypeParam> own = columns_of(all, first, end - first);
    firsts.push_back(first);
    logits.push_back(on_device(stream, own.logits));
    ranks.push_back({.rows = own.c.rows,
                     .vocab = own.c.vocab,
                     .ld = own.c.ld,
                     .first = first,
                     .logits = logits.back().data(),
                     .targets = targets.data(),
                     .gradient = true,
                     .gradient_scale = scale.data(),
                     .z_loss = own.c.z_loss});
    row_shares(stream, ranks.back(), shares.data() + static_cast<std::size_t>(rank) * rows);
  }
  std::vector<Results<TypeParam>> results;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const DeviceArray<double> row_losses(2 * rows);
    const DeviceArray<LossTotals> totals(1);
    fill_zero(stream, totals.data(), 1);
    ranks[rank].row_losses = row_losses.data();
    ranks[rank].totals = totals.data();
    ranks[rank].shares = shares.data();
    ranks[rank].ranks = kRanks;
    cross_entropy(stream, ranks[rank]);
    const LossTotals sums = on_host(stream, totals)[0];
    results.push_back({{on_host(stream, logits[rank])}, sums.loss, sums.z_loss, sums.targets});
  }
  Results<TypeParam> joined = results[0];
  joined.logits.values.assign(all.logits.size(), TypeParam(0.f));
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    EXPECT_EQ(results[rank].loss, results[0].loss);
    EXPECT_EQ(results[rank].z_loss, results[0].z_loss);
    for (std::int64_t r = 0; r < all.c.rows; ++r) {
      const auto row = results[rank].logits.values.begin() + r * ranks[rank].ld;
      std::copy_n(row, ranks[rank].vocab,
                  joined.logits.values.begin() + r * all.c.ld + firsts[rank]);
      EXPECT_TRUE(std::all_of(row + ranks[rank].vocab, row + ranks[rank].ld,
                              [](TypeParam v) { return static_cast<float>(v) == 0; }))
          << rank << ", row " << r;
    }
  }
  compare(all, joined);
}

TYPED_TEST(CrossEntropyOnDevice, WithoutAGradientLogitsStayAndLossesAreTheSame) {
  const Inputs<TypeParam> in({9, 517, 520, 1e-3, 1});
  const auto with = on_the_device(in, true), without = on_the_device(in, false);
  EXPECT_TRUE(same_bits(without.logits.values, in.logits));
  EXPECT_EQ(with.loss, without.loss);
  EXPECT_EQ(with.z_loss, without.z_loss);
}

TYPED_TEST(CrossEntropyOnDevice, TotalsAreAddedToAndNoRowsAddNothing) {
  Stream stream;
  const DeviceArray<LossTotals> totals = on_device(stream, std::vector<LossTotals>{{2, 3, 4}});
  CrossEntropy<TypeParam> none;
  none.totals = totals.data();
  cross_entropy(stream, none);
  const LossTotals sums = on_host(stream, totals)[0];
  EXPECT_EQ(sums.loss, 2);
  EXPECT_EQ(sums.targets, 4);
}

TYPED_TEST(CrossEntropyOnDevice, GivesTheSameBitsForEveryOrderOfThreads) {
  const Inputs<TypeParam> in({37, 1234, 1240, 1e-4, 1});
  EXPECT_GT(in_every_thread_order([&] { return on_the_device(in, true); }).targets, 0);
}

}  // namespace
}  // namespace isthmus::cuda::this_file
