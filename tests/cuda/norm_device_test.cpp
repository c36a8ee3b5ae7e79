// SPDX-License-Identifier: Apache-2.0
// Norms on a device against kernels/norm.h in double.
#include "cuda/operation_test.h"
#include "kernels/cuda/norm.h"
#include "kernels/norm.h"

namespace isthmus::cuda::this_file {
namespace {

constexpr double kEps = 1e-5;

struct Case {
  std::int64_t rows, channels;
};
// One and several warps a row, packs of four and single values, more rows than blocks take at once.
constexpr Case kCases[] = {{1, 1},    {3, 7},    {5, 32},   {9, 128},  {17, 132},
                           {4, 256},  {6, 768},  {33, 260}, {3, 1028}, {2, 2049},
                           {3, 4096}, {2, 6144}, {2, 8192}, {2200, 8}, {2113, 3}};

template <typename T>
struct NormResults {
  Bits<float> s, mean, rstd, d_stream, d_weight, d_bias;
  Bits<T> y, d_branch;
  bool operator==(const NormResults&) const = default;
};

template <typename T>
struct NormInputs {
  NormInputs(const Case& c, bool centred_)
      : rows(c.rows),
        channels(c.channels),
        centred(centred_),
        x(normal_of<float>(rows * channels, 1)),
        weight(normal_of<float>(channels, 2)),
        bias(normal_of<float>(channels, 3)),
        d_stream(normal_of<float>(rows * channels, 4)),
        branch(normal_of<T>(rows * channels, 5)),
        dy(normal_of<T>(rows * channels, 6)) {}
  std::int64_t rows, channels;
  bool centred;
  std::vector<float> x, weight, bias, d_stream;
  std::vector<T> branch, dy;
};

template <typename T>
NormResults<T> on_the_device(const NormInputs<T>& in) {
  Stream stream;
  const auto x = on_device(stream, in.x), weight = on_device(stream, in.weight);
  const auto bias = on_device(stream, in.bias), d_stream = on_device(stream, in.d_stream);
  const auto branch = on_device(stream, in.branch), dy = on_device(stream, in.dy);
  const std::vector<float> ones(static_cast<std::size_t>(in.channels), 1);
  const auto d_weight = on_device(stream, ones), d_bias = on_device(stream, ones);
  const DeviceArray<float> s(x.size()), mean(static_cast<std::size_t>(in.rows)), rstd(mean.size());
  const DeviceArray<T> y(x.size()), d_branch(x.size());
  const DeviceArray<float> scratch(norm_backward_scratch(in.channels));
  norm_forward<T>(stream, {.rows = in.rows,
                           .channels = in.channels,
                           .eps = kEps,
                           .centred = in.centred,
                           .x = x.data(),
                           .branch = branch.data(),
                           .s = s.data(),
                           .weight = weight.data(),
                           .bias = in.centred ? bias.data() : nullptr,
                           .y = y.data(),
                           .mean = mean.data(),
                           .rstd = rstd.data()});
  norm_backward<T>(stream, {.rows = in.rows,
                            .channels = in.channels,
                            .centred = in.centred,
                            .dy = dy.data(),
                            .s = s.data(),
                            .weight = weight.data(),
                            .mean = mean.data(),
                            .rstd = rstd.data(),
                            .d_stream = d_stream.data(),
                            .d_branch = d_branch.data(),
                            .d_weight = d_weight.data(),
                            .d_bias = in.centred ? d_bias.data() : nullptr,
                            .scratch = scratch.data()});
  return {{on_host(stream, s)},        {on_host(stream, mean)},     {on_host(stream, rstd)},
          {on_host(stream, d_stream)}, {on_host(stream, d_weight)}, {on_host(stream, d_bias)},
          {on_host(stream, y)},        {on_host(stream, d_branch)}};
}

template <typename T>
void compare(const NormInputs<T>& in, const NormResults<T>& got) {
  kernels::ThreadTeam team(1);
  std::vector<double> s = in_double(in.x);
  for (std::size_t i = 0; i < s.size(); ++i) {
    s[i] = static_cast<double>(in.x[i] + static_cast<float>(in.branch[i]));
  }
  const auto weight = in_double(in.weight), bias = in_double(in.bias), dy = in_double(in.dy);
  const auto d_sum = in_double(in.d_stream);
  const auto rows = static_cast<std::size_t>(in.rows);
  const auto channels = static_cast<std::size_t>(in.channels);
  std::vector<double> y(s.size()), mean(rows), rstd(rows), ds(s.size());
  std::vector<double> d_weight(channels, 1), d_bias(channels, 1);
  const kernels::NormForward<double> forward{.rows = in.rows,
                                             .channels = in.channels,
                                             .eps = kEps,
                                             .x = s.data(),
                                             .weight = weight.data(),
                                             .bias = in.centred ? bias.data() : nullptr,
                                             .y = y.data(),
                                             .mean = mean.data(),
                                             .rstd = rstd.data()};
  const kernels::NormBackward<double> backward{.rows = in.rows,
                                               .channels = in.channels,
                                               .dy = dy.data(),
                                               .s = s.data(),
                                               .weight = weight.data(),
                                               .mean = mean.data(),
                                               .rstd = rstd.data(),
                                               .d_sum = d_sum.data(),
                                               .ds = ds.data(),
                                               .d_weight = d_weight.data(),
                                               .d_bias = in.centred ? d_bias.data() : nullptr};
  if (in.centred) {
    layer_norm_forward(team, forward);
    layer_norm_backward(team, backward);
  } else {
    rms_norm_forward(team, forward);
    rms_norm_backward(team, backward);
  }
  // Sums of at most 8192 values of order 1; a row of one value divides by sqrt(eps).
  const double few = in.channels < 4 ? 1000 : 32;
  const double rows_error = kFloatRounding * (32 + 4 * std::sqrt(static_cast<double>(in.rows)));
  expect_close(got.s.values, s, 0, 0, "s");
  if (in.centred) expect_close(got.mean.values, mean, 0, 8 * kFloatRounding, "mean");
  expect_close(got.rstd.values, rstd, few * kFloatRounding, 0, "rstd");
  expect_close(got.y.values, y, kRounding<T>, few * kFloatRounding, "y");
  expect_close(got.d_stream.values, ds, few * kFloatRounding, few * few * kFloatRounding, "ds");
  expect_close(got.d_weight.values, d_weight, rows_error, few * rows_error, "d_weight");
  if (in.centred) expect_close(got.d_bias.values, d_bias, rows_error, rows_error, "d_bias");
  for (std::size_t i = 0; i < ds.size(); ++i) {
    EXPECT_EQ(static_cast<float>(got.d_branch.values[i]),
              static_cast<float>(static_cast<T>(got.d_stream.values[i])));
  }
}

template <typename T>
class NormOnDevice : public DeviceTest {};
using Types = ::testing::Types<float, Bf16>;
TYPED_TEST_SUITE(NormOnDevice, Types);

TYPED_TEST(NormOnDevice, GivesWhatDoubleGivesUpToRounding) {
  for (const Case& c : kCases) {
    for (const bool centred : {true, false}) {
      SCOPED_TRACE(::testing::Message() << c.rows << " x " << c.channels << ", " << centred);
      const NormInputs<TypeParam> in(c, centred);
      compare(in, on_the_device(in));
    }
  }
}

TYPED_TEST(NormOnDevice, GivesTheSameBitsForEveryOrderOfThreads) {
  // Of the last, which has several warps a row, some blocks take rows twice.
  for (const Case& c : {Case{70, 768}, Case{9, 1028}, Case{19, 7}, Case{1100, 257}}) {
    const NormInputs<TypeParam> in(c, true);
    const auto results = in_every_thread_order([&] { return on_the_device(in); });
    EXPECT_FALSE(results.y.values.empty());
  }
}

TYPED_TEST(NormOnDevice, TakesNoRowsAndRefusesTooManyChannels) {
  EXPECT_TRUE(on_the_device(NormInputs<TypeParam>({0, 8}, true)).y.values.empty());
  EXPECT_THAT(
      [] {
        (void)on_the_device(NormInputs<TypeParam>({1, 8196}, true));
      },
      ::testing::ThrowsMessage<SystemError>(::testing::HasSubstr("8196 channels")));
}

template <typename T>
struct HeadResults {
  Bits<T> y, dx;
  Bits<float> rstd, d_weight;
  bool operator==(const HeadResults&) const = default;
};

struct HeadCase {
  std::int64_t rows, heads, head_dim, row;
};

template <typename T>
HeadResults<T> heads_on_the_device(const HeadCase& c, const std::vector<T>& x,
                                   const std::vector<T>& dy, const std::vector<float>& weight) {
  Stream stream;
  const auto x_device = on_device(stream, x), dy_device = on_device(stream, dy);
  const auto weight_device = on_device(stream, weight);
  const auto d_weight = on_device(stream, std::vector<float>(weight.size(), 1));
  const DeviceArray<T> y(dy.size());
  const DeviceArray<float> rstd(static_cast<std::size_t>(c.rows * c.heads));
  const DeviceArray<float> scratch(head_norm_scratch(c.head_dim));
  const HeadNorm<T> norm{c.rows, c.heads, c.head_dim, c.row, kEps, weight_device.data()};
  head_norm_forward(stream, norm, x_device.data(), y.data(), rstd.data());
  head_norm_backward(stream, norm, dy_device.data(), x_device.data(), rstd.data(), x_device.data(),
                     d_weight.data(), scratch.data());
  return {{on_host(stream, y)},
          {on_host(stream, x_device)},
          {on_host(stream, rstd)},
          {on_host(stream, d_weight)}};
}

TYPED_TEST(NormOnDevice, NormalisesEachHeadAndLeavesWhatLiesBetweenTheRows) {
  using T = TypeParam;
  for (const HeadCase& c : {HeadCase{1, 1, 4, 4}, HeadCase{5, 3, 16, 64}, HeadCase{7, 2, 128, 512},
                            HeadCase{3, 2, 6, 13}, HeadCase{300, 9, 8, 80}}) {
    SCOPED_TRACE(::testing::Message() << c.rows << " x " << c.heads << " x " << c.head_dim);
    const auto x = normal_of<T>(c.rows * c.row, 1),
               dy = normal_of<T>(c.rows * c.heads * c.head_dim, 2);
    const auto weight = normal_of<float>(c.head_dim, 3);
    const HeadResults<T> got =
        in_every_thread_order([&] { return heads_on_the_device(c, x, dy, weight); });
    // The heads, contiguous, through the operation on the CPU.
    const auto wide = in_double(x), wide_dy = in_double(dy), wide_weight = in_double(weight);
    std::vector<double> s(dy.size()), y(s.size()), ds(s.size());
    const std::int64_t width = c.heads * c.head_dim;
    for (std::int64_t i = 0; i < c.rows * width; ++i) {
      s[static_cast<std::size_t>(i)] =
          wide[static_cast<std::size_t>(i / width * c.row + i % width)];
    }
    std::vector<double> rstd(static_cast<std::size_t>(c.rows * c.heads)),
        d_weight(weight.size(), 1);
    kernels::ThreadTeam team(1);
    rms_norm_forward<double>(team, {.rows = c.rows * c.heads,
                                    .channels = c.head_dim,
                                    .eps = kEps,
                                    .x = s.data(),
                                    .weight = wide_weight.data(),
                                    .y = y.data(),
                                    .rstd = rstd.data()});
    rms_norm_backward<double>(team, {.rows = c.rows * c.heads,
                                     .channels = c.head_dim,
                                     .dy = wide_dy.data(),
                                     .s = s.data(),
                                     .weight = wide_weight.data(),
                                     .rstd = rstd.data(),
                                     .ds = ds.data(),
                                     .d_weight = d_weight.data()});
    std::vector<double> dx = wide;  // what is not a head stays
    for (std::int64_t i = 0; i < c.rows * width; ++i) {
      dx[static_cast<std::size_t>(i / width * c.row + i % width)] = ds[static_cast<std::size_t>(i)];
    }
    expect_close(got.y.values, y, kRounding<T>, 32 * kFloatRounding, "y");
    expect_close(got.rstd.values, rstd, 32 * kFloatRounding, 0, "rstd");
    expect_close(got.dx.values, dx, kRounding<T>, 64 * kFloatRounding, "dx");
    expect_close(got.d_weight.values, d_weight, 256 * kFloatRounding, 1024 * kFloatRounding,
                 "d_weight");
  }
}

}  // namespace
}  // namespace isthmus::cuda::this_file
