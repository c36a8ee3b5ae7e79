// SPDX-License-Identifier: Apache-2.0
// Storage in bfloat16: the rounding itself, and operations that must give what they give on floats,
// rounded once.
#include "kernels/bf16.h"

#include <bit>
#include <limits>

#include "kernels/activation.h"
#include "kernels/gemm.h"
#include "kernels/kernel_test.h"
#include "kernels/norm.h"
#include "kernels/rotary.h"

namespace isthmus::kernels::this_file {
namespace {

Bf16 of_code(std::uint32_t code) {
  Bf16 x;
  x.bits = static_cast<std::uint16_t>(code);
  return x;
}

/// Floats whose rounding is known, and it: every positive code, halves between neighbours, and what
/// lies next to those.
struct Roundings {
  std::vector<float> from;
  std::vector<std::uint32_t> to;
  void add(float x, std::uint32_t code) {
    from.push_back(x);
    to.push_back(code);
    from.push_back(-x);
    to.push_back(code | 0x8000);
  }
};

Roundings roundings(std::uint32_t first, std::uint32_t step) {
  constexpr std::uint32_t kInfinity = 0x7f80;
  Roundings all;
  for (std::uint32_t code = first; code < kInfinity; code += step) {
    const float low = of_code(code);
    all.add(low, code);
    if (code + 1 == kInfinity) break;
    const float half = low + (of_code(code + 1) - low) / 2;
    all.add(half, code % 2 == 0 ? code : code + 1);
    all.add(std::nextafterf(half, 0.0f), code);
    all.add(std::nextafterf(half, std::numeric_limits<float>::infinity()), code + 1);
  }
  all.add(std::numeric_limits<float>::max(), kInfinity);
  all.add(std::numeric_limits<float>::infinity(), kInfinity);
  return all;
}

TEST(Bf16, RoundsToTheNearestTiesToEven) {
  const Roundings all = roundings(0, 1);
  for (std::size_t i = 0; i < all.from.size(); ++i) {
    ASSERT_EQ(Bf16(all.from[i]).bits, all.to[i]) << all.from[i];
  }
}

TEST(Bf16, KeepsNan) {
  for (const std::uint32_t bits : {0x7fc00000u, 0x7f800001u, 0xff80ffffu, 0x7fffffffu}) {
    EXPECT_TRUE(std::isnan(static_cast<float>(Bf16(std::bit_cast<float>(bits)))));
  }
}

using Bf16StorageTest = IsaTest;
ISTHMUS_EVERY_ISA(Bf16StorageTest);

/// Values as a kernel stores them: the bias of a product of nothing.
std::vector<Bf16> stored(const std::vector<float>& x) {
  ThreadTeam team(1);
  std::vector<Bf16> out(x.size());
  const auto n = static_cast<std::int64_t>(x.size());
  gemm<float>(team, {.m = 1,
                     .n = n,
                     .k = 0,
                     .a = x.data(),
                     .lda = 0,
                     .b = x.data(),
                     .ldb = n,
                     .c = out.data(),
                     .ldc = n,
                     .bias = x.data(),
                     .bf16 = true});
  return out;
}

TEST_P(Bf16StorageTest, RoundsToTheNearestTiesToEven) {
  constexpr std::uint32_t kNormal = 0x80;  // below are denormals, which may become zero
  Roundings all = roundings(kNormal, 7);
  all.from.push_back(std::numeric_limits<float>::quiet_NaN());
  const std::vector<Bf16> out = stored(all.from);
  for (std::size_t i = 0; i < all.to.size(); ++i) {
    ASSERT_EQ(out[i].bits, all.to[i]) << all.from[i];
  }
  EXPECT_TRUE(std::isnan(static_cast<float>(out.back())));
}

std::vector<Bf16> rounded(const std::vector<float>& x) {
  std::vector<Bf16> out;
  for (const float value : x) out.emplace_back(value);
  return out;
}
std::vector<float> widened(const std::vector<Bf16>& x) { return {x.begin(), x.end()}; }

constexpr std::int64_t kRows = 37;
constexpr std::int64_t kColumns = 52;  // a masked vector at the end

void run_norm(ThreadTeam& team, bool centred, const auto& f) {
  if (centred) {
    layer_norm_forward(team, f);
  } else {
    rms_norm_forward(team, f);
  }
}

TEST_P(Bf16StorageTest, NormsOfAStreamAreTheFloatOnesRounded) {
  ThreadTeam team(2);
  const std::vector<float> x = normal_values<float>(kRows * kColumns, 1);
  const std::vector<float> w = normal_values<float>(kColumns, 2);
  const std::vector<Bf16> dy = rounded(normal_values<float>(kRows * kColumns, 3));
  const std::vector<float> wide_dy = widened(dy);
  for (const bool centred : {false, true}) {
    const auto forward = [&]<typename T>(std::vector<T>& y) {
      std::vector<float> mean(kRows), rstd(kRows);
      NormForward<T> f{.rows = kRows, .channels = kColumns, .eps = 1e-5, .x = x.data()};
      f.weight = w.data();
      f.y = y.data();
      f.mean = mean.data();
      f.rstd = rstd.data();
      run_norm(team, centred, f);
      mean.insert(mean.end(), rstd.begin(), rstd.end());
      return mean;
    };
    std::vector<float> y(x.size());
    std::vector<Bf16> narrow_y(x.size());
    const std::vector<float> statistics = forward(y);
    EXPECT_EQ(forward(narrow_y), statistics);
    EXPECT_EQ(widened(narrow_y), widened(rounded(y)));

    const auto backward = [&]<typename T>(const T* gradient) {
      std::vector<float> ds(x.size()), d_weight(kColumns);
      NormBackward<T> n{.rows = kRows, .channels = kColumns, .dy = gradient, .s = x.data()};
      n.weight = w.data();
      n.mean = statistics.data();
      n.rstd = statistics.data() + kRows;
      n.d_sum = x.data();
      n.ds = ds.data();
      n.d_weight = d_weight.data();
      if (centred) {
        layer_norm_backward(team, n);
      } else {
        rms_norm_backward(team, n);
      }
      ds.insert(ds.end(), d_weight.begin(), d_weight.end());
      return ds;
    };
    EXPECT_EQ(backward(dy.data()), backward(wide_dy.data()));
  }
}

TEST_P(Bf16StorageTest, NormsOfHeadsAreTheFloatOnesRounded) {
  ThreadTeam team(2);
  std::vector<Bf16> x = rounded(normal_values<float>(kRows * kColumns, 1));
  std::vector<Bf16> d = rounded(normal_values<float>(kRows * kColumns, 3));
  std::vector<float> wide_x = widened(x);
  std::vector<float> wide_d = widened(d);
  const std::vector<float> w = normal_values<float>(kColumns, 2);
  const auto run = [&]<typename T>(std::vector<T>& values, std::vector<T>& gradient) {
    std::vector<float> rstd(kRows), d_weight(kColumns);
    std::vector<T> y = values;  // in place
    rms_norm_forward<T, T>(team, {.rows = kRows,
                                  .channels = kColumns,
                                  .eps = 1e-5,
                                  .x = y.data(),
                                  .weight = w.data(),
                                  .y = y.data(),
                                  .rstd = rstd.data()});
    rms_norm_backward<T, T>(team, {.rows = kRows,
                                   .channels = kColumns,
                                   .dy = gradient.data(),
                                   .s = values.data(),
                                   .weight = w.data(),
                                   .rstd = rstd.data(),
                                   .ds = gradient.data(),
                                   .d_weight = d_weight.data()});
    values = y;
    return d_weight;
  };
  EXPECT_EQ(run(x, d), run(wide_x, wide_d));
  EXPECT_EQ(widened(x), widened(rounded(wide_x)));
  EXPECT_EQ(widened(d), widened(rounded(wide_d)));
}

TEST_P(Bf16StorageTest, SwiGluIsTheFloatOneRounded) {
  ThreadTeam team(2);
  std::vector<Bf16> x = rounded(normal_values<float>(kRows * 2 * kColumns, 1));
  std::vector<Bf16> d = rounded(normal_values<float>(kRows * kColumns, 2));
  std::vector<float> wide_x = widened(x);
  std::vector<float> wide_d = widened(d);
  const auto run = [&]<typename T>(std::vector<T>& values, const std::vector<T>& gradient) {
    std::vector<T> out(gradient.size());
    const SwiGlu<T> s{.rows = kRows,
                      .columns = kColumns,
                      .gate = values.data(),
                      .up = values.data() + kColumns,
                      .ld_in = 2 * kColumns,
                      .ld_out = kColumns};
    swiglu_forward(team, s, out.data());
    swiglu_backward(team, s, gradient.data(), values.data(), values.data() + kColumns);
    return out;
  };
  EXPECT_EQ(widened(run(x, d)), widened(rounded(run(wide_x, wide_d))));
  EXPECT_EQ(widened(x), widened(rounded(wide_x)));
}

TEST_P(Bf16StorageTest, RotationsAreTheFloatOnesRounded) {
  ThreadTeam team(2);
  constexpr std::int64_t kSeq = 33, kHeads = 3, kDim = 20;
  std::vector<float> cosine(kSeq * kDim / 2);
  std::vector<float> sine(cosine.size());
  rotary_table(kSeq, kDim, 10000.0, cosine.data(), sine.data());
  std::vector<Bf16> x = rounded(normal_values<float>(kSeq * kHeads * kDim, 1));
  for (const bool forward : {true, false}) {
    std::vector<float> wide_x = widened(x);
    const auto run = [&]<typename T>(std::vector<T>& values) {
      const HeadsView<T> view = heads_in_rows(values.data(), kSeq, kHeads * kDim, kDim);
      const auto rotate = forward ? rotary_forward<T> : rotary_backward<T>;
      rotate(team, 1, kSeq, kHeads, kDim, view, cosine.data(), sine.data(), nullptr);
    };
    run(x);
    run(wide_x);
    EXPECT_EQ(widened(x), widened(rounded(wide_x)));
  }
}

}  // namespace
}  // namespace isthmus::kernels::this_file
