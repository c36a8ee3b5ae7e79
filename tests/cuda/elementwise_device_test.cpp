// SPDX-License-Identifier: Apache-2.0
// Activations, rotation and embedding on a device against the CPU's in double.
#include <numeric>

#include "cuda/operation_test.h"
#include "kernels/activation_math.h"
#include "kernels/cuda/activation.h"
#include "kernels/cuda/embedding.h"
#include "kernels/cuda/rotary.h"
#include "kernels/embedding.h"
#include "kernels/rotary.h"

namespace isthmus::cuda::this_file {
namespace {

// exp and the quotient are the device's fast ones: a few units in the last place.
constexpr double kFewRoundings = 16 * kFloatRounding;

template <typename T>
class ElementsOnDevice : public DeviceTest {};
using Types = ::testing::Types<float, Bf16>;
TYPED_TEST_SUITE(ElementsOnDevice, Types);

/// Normal values with some so large that exponentials are 0 or infinite.
template <typename T>
std::vector<T> wide_values(std::int64_t n, std::uint32_t sub) {
  std::vector<T> x = normal_of<T>(n, sub, 3);
  const float extremes[] = {0.f, 100.f, -100.f, 1e4f, -1e4f, -20.f, 1e-30f};
  for (std::size_t i = 0; i < x.size(); i += 11) x[i] = static_cast<T>(extremes[i / 11 % 7]);
  return x;
}

TYPED_TEST(ElementsOnDevice, SwigluAndItsGradientAreTheFormulas) {
  using T = TypeParam;
  struct Case {
    std::int64_t rows, columns;
  };
  for (const Case& c : {Case{0, 8}, Case{3, 1}, Case{2, 7}, Case{5, 8}, Case{3, 264}, Case{4, 300},
                        Case{2, 2056}}) {
    SCOPED_TRACE(::testing::Message() << c.rows << " x " << c.columns);
    const auto gate_up = wide_values<T>(c.rows * 2 * c.columns, 1);
    const auto d_out = normal_of<T>(c.rows * c.columns, 2);
    Stream stream;
    const auto gate_up_device = on_device(stream, gate_up), d_device = on_device(stream, d_out);
    const DeviceArray<T> out(d_out.size());
    swiglu_forward(stream, c.rows, c.columns, gate_up_device.data(), out.data());
    swiglu_backward(stream, c.rows, c.columns, d_device.data(), gate_up_device.data());
    std::vector<double> expected(d_out.size()), gradient(gate_up.size());
    for (std::int64_t i = 0; i < c.rows * c.columns; ++i) {
      const auto at = static_cast<std::size_t>(i / c.columns * 2 * c.columns + i % c.columns);
      const auto up_at = at + static_cast<std::size_t>(c.columns);
      const double g = static_cast<double>(gate_up[at]), u = static_cast<double>(gate_up[up_at]);
      const double d = static_cast<double>(d_out[static_cast<std::size_t>(i)]);
      const double s = kernels::sigmoid(g);
      expected[static_cast<std::size_t>(i)] = g * s * u;
      gradient[at] = d * u * s * (1 + g * (1 - s));
      gradient[up_at] = d * g * s;
    }
    expect_close(on_host(stream, out), expected, kRounding<T> + kFewRoundings, kFewRoundings,
                 "out");
    // 1 - s loses what s has rounded away, times g.
    expect_close(on_host(stream, gate_up_device), gradient, kRounding<T> + kFewRoundings,
                 64 * kFewRoundings, "d_gate_up");
  }
}

TYPED_TEST(ElementsOnDevice, GeluAndItsGradientAreTheFormulas) {
  using T = TypeParam;
  for (const std::int64_t n : {0, 1, 7, 8, 2049, 50000}) {
    SCOPED_TRACE(n);
    const auto x = wide_values<T>(n, 1), d_out = normal_of<T>(n, 2);
    Stream stream;
    const auto x_device = on_device(stream, x), d_device = on_device(stream, d_out);
    const DeviceArray<T> out(x.size());
    gelu_forward(stream, n, x_device.data(), out.data());
    gelu_backward(stream, n, x_device.data(), d_device.data());
    std::vector<double> expected(x.size()), gradient(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      expected[i] = kernels::gelu(static_cast<double>(x[i]));
      gradient[i] =
          static_cast<double>(d_out[i]) * kernels::gelu_derivative(static_cast<double>(x[i]));
    }
    expect_close(on_host(stream, out), expected, kRounding<T> + kFewRoundings, kFewRoundings,
                 "out");
    expect_close(on_host(stream, d_device), gradient, kRounding<T> + kFewRoundings,
                 64 * kFewRoundings, "d_out");
  }
}

// Squares of these are infinite in float.
TYPED_TEST(ElementsOnDevice, GeluAndItsGradientAreFiniteForEveryFiniteValue) {
  using T = TypeParam;
  std::vector<T> x;
  for (const float size : {65.f, 1e4f, 1e10f, 1.8e19f, 1.9e19f, 1e20f, 1e30f, 3.38e38f}) {
    for (const float sign : {-1.f, 1.f}) x.push_back(static_cast<T>(sign * size));
  }
  const auto n = static_cast<std::int64_t>(x.size());
  const auto d_out = normal_of<T>(n, 2);
  Stream stream;
  const auto x_device = on_device(stream, x), d_device = on_device(stream, d_out);
  const DeviceArray<T> out(x.size());
  gelu_forward(stream, n, x_device.data(), out.data());
  gelu_backward(stream, n, x_device.data(), d_device.data());
  std::vector<double> expected(x.size()), gradient(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const bool above = static_cast<float>(x[i]) > 0;
    expected[i] = above ? static_cast<double>(x[i]) : 0;
    gradient[i] = above ? static_cast<double>(d_out[i]) : 0;
  }
  expect_close(on_host(stream, out), expected, 0, 0, "out");
  expect_close(on_host(stream, d_device), gradient, 0, 0, "d_out");
}

TYPED_TEST(ElementsOnDevice, ConvertRoundsToNearestAndWidensExactly) {
  using T = TypeParam;
  for (const std::int64_t n : {1, 9, 4096}) {
    auto x = normal_of<float>(n, 3);
    x[0] = 1.00390625f;  // halfway between two values of Bf16: to even
    Stream stream;
    const auto x_device = on_device(stream, x);
    const DeviceArray<T> narrow(x.size());
    const DeviceArray<float> wide(x.size());
    convert(stream, n, x_device.data(), narrow.data());
    convert(stream, n, narrow.data(), wide.data());
    std::vector<float> expected(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      expected[i] = static_cast<float>(static_cast<T>(x[i]));
    }
    EXPECT_TRUE(same_bits(on_host(stream, wide), expected));
  }
}

TYPED_TEST(ElementsOnDevice, AddRoundsOnceAlsoInPlace) {
  using T = TypeParam;
  for (const std::int64_t n : {1, 9, 4096}) {
    const auto x = normal_of<float>(n, 3);
    const auto y = normal_of<T>(n, 4);
    Stream stream;
    const auto x_device = on_device(stream, x);
    const auto y_device = on_device(stream, y);
    add<T>(stream, n, x_device.data(), y_device.data(), x_device.data());
    std::vector<float> expected = x;
    for (std::size_t i = 0; i < x.size(); ++i) expected[i] += static_cast<float>(y[i]);
    EXPECT_TRUE(same_bits(on_host(stream, x_device), expected));
  }
}

// From addresses that no vector access fits.
TYPED_TEST(ElementsOnDevice, TakeArraysThatAreNotAligned) {
  using T = TypeParam;
  const auto x = normal_of<T>(101, 1);
  Stream stream;
  const auto x_device = on_device(stream, x);
  const DeviceArray<T> out(x.size());
  gelu_forward(stream, 100, x_device.data() + 1, out.data() + 1);
  std::vector<double> expected(100);
  for (std::size_t i = 0; i < 100; ++i) expected[i] = kernels::gelu(static_cast<double>(x[i + 1]));
  std::vector<T> got = on_host(stream, out);
  got.erase(got.begin());
  expect_close(got, expected, kRounding<T> + kFewRoundings, kFewRoundings, "out");
}

TYPED_TEST(ElementsOnDevice, ColumnSumsAreAddedInOneOrder) {
  using T = TypeParam;
  struct Case {
    std::int64_t rows, columns;
  };
  for (const Case& c :
       {Case{0, 4}, Case{1, 1}, Case{127, 3}, Case{129, 128}, Case{300, 132}, Case{1500, 8}}) {
    SCOPED_TRACE(::testing::Message() << c.rows << " x " << c.columns);
    const auto x = normal_of<T>(c.rows * c.columns, 1);
    const Bits<float> got = in_every_thread_order([&] {
      Stream stream;
      const auto x_device = on_device(stream, x);
      const auto sum =
          on_device(stream, std::vector<float>(static_cast<std::size_t>(c.columns), 1));
      const DeviceArray<float> scratch(column_sum_scratch(c.columns));
      add_column_sums(stream, c.rows, c.columns, x_device.data(), sum.data(), scratch.data());
      return Bits<float>{on_host(stream, sum)};
    });
    std::vector<double> expected(static_cast<std::size_t>(c.columns), 1);
    for (std::size_t i = 0; i < x.size(); ++i) {
      expected[i % expected.size()] += static_cast<double>(x[i]);
    }
    expect_close(got.values, expected, 0,
                 kFloatRounding * (32 + 8 * std::sqrt(static_cast<double>(c.rows))), "sum");
  }
}

TYPED_TEST(ElementsOnDevice, RotatesHeadsThereAndBack) {
  using T = TypeParam;
  struct Case {
    std::int64_t rows, seq, heads, head_dim, row;
  };
  for (const Case& c : {Case{0, 1, 1, 8, 8}, Case{1, 1, 1, 2, 2}, Case{6, 3, 2, 6, 15},
                        Case{10, 5, 3, 8, 32}, Case{9, 9, 5, 64, 384}, Case{4, 2, 17, 128, 2304}}) {
    SCOPED_TRACE(::testing::Message() << c.rows << " x " << c.heads << " x " << c.head_dim);
    const std::int64_t half = c.head_dim / 2;
    std::vector<float> cosine(static_cast<std::size_t>(c.seq * half)), sine(cosine.size());
    kernels::rotary_table(c.seq, c.head_dim, 10000., cosine.data(), sine.data());
    const auto x = normal_of<T>(c.rows * c.row, 1);
    for (const bool backward : {false, true}) {
      Stream stream;
      const auto x_device = on_device(stream, x);
      const auto cosine_device = on_device(stream, cosine), sine_device = on_device(stream, sine);
      rotate(stream, backward, c.rows, c.seq, c.heads, c.head_dim, c.row, x_device.data(),
             cosine_device.data(), sine_device.data());
      std::vector<double> expected = in_double(x);
      for (std::int64_t r = 0; r < c.rows; ++r) {
        for (std::int64_t i = 0; i < c.heads * half; ++i) {
          const auto low = static_cast<std::size_t>(r * c.row + i / half * c.head_dim + i % half);
          const auto high = low + static_cast<std::size_t>(half);
          const auto angle = static_cast<std::size_t>(r % c.seq * half + i % half);
          const auto cos = static_cast<double>(cosine[angle]);
          const double sin = static_cast<double>(sine[angle]) * (backward ? -1 : 1);
          const double a = expected[low], b = expected[high];
          expected[low] = a * cos - b * sin;
          expected[high] = b * cos + a * sin;
        }
      }
      expect_close(on_host(stream, x_device), expected, kRounding<T>, kFewRoundings, "x");
    }
  }
}

class EmbeddingOnDevice : public DeviceTest {};

struct EmbeddingCase {
  std::int64_t rows, seq, channels, vocab;
  bool positions;
};

struct EmbeddingResults {
  Bits<float> y, d_table, d_positions;
  bool operator==(const EmbeddingResults&) const = default;
};

// Every third row has id 0, so that one run of equal ids is long.
std::vector<std::int32_t> ids_of(const EmbeddingCase& c) {
  const Rng rng(5, isthmus::Stream::kTestData);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(c.rows));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids[i] = i % 3 == 0
                 ? 0
                 : static_cast<std::int32_t>(rng.below(static_cast<std::uint64_t>(c.vocab), i));
  }
  return ids;
}

TEST_F(EmbeddingOnDevice, GivesTheBitsOfTheCpuSinceRowsAreAddedInOrder) {
  for (const EmbeddingCase& c :
       {EmbeddingCase{0, 1, 4, 3, true}, EmbeddingCase{1, 1, 1, 1, true},
        EmbeddingCase{12, 4, 7, 5, true}, EmbeddingCase{100, 50, 768, 40, true},
        EmbeddingCase{64, 64, 260, 300, false}, EmbeddingCase{700, 7, 12, 3, true}}) {
    SCOPED_TRACE(::testing::Message() << c.rows << " x " << c.channels);
    const std::vector<std::int32_t> ids = ids_of(c);
    const auto table = normal_of<float>(c.vocab * c.channels, 1);
    const auto positions = normal_of<float>(c.seq * c.channels, 2);
    const auto dy = normal_of<float>(c.rows * c.channels, 3);
    const auto got = in_every_thread_order([&] {
      Stream stream;
      const auto ids_device = on_device(stream, ids);
      const auto table_device = on_device(stream, table), dy_device = on_device(stream, dy);
      const auto positions_device = on_device(stream, positions);
      const DeviceArray<float> y(dy.size());
      const Embedding e{c.rows, c.seq, c.channels, c.vocab, ids_device.data()};
      std::vector<std::int32_t> order(ids.size());
      embedding_order(c.rows, c.vocab, ids.data(), order.data());
      const auto order_device = on_device(stream, order);
      embedding_forward(stream, e, table_device.data(),
                        c.positions ? positions_device.data() : nullptr, y.data());
      embedding_backward(stream, e, order_device.data(), dy_device.data(), table_device.data(),
                         c.positions ? positions_device.data() : nullptr);
      return EmbeddingResults{{on_host(stream, y)},
                              {on_host(stream, table_device)},
                              {on_host(stream, positions_device)}};
    });
    kernels::ThreadTeam team(1);
    const kernels::Embedding<float> e{c.rows, c.seq, c.channels, c.vocab, ids.data()};
    std::vector<float> y(dy.size()), d_table = table, d_positions = positions;
    kernels::embedding_forward(team, e, table.data(), c.positions ? positions.data() : nullptr,
                               y.data());
    kernels::embedding_backward(team, e, dy.data(), d_table.data(),
                                c.positions ? d_positions.data() : nullptr);
    EXPECT_TRUE(same_bits(got.y.values, y));
    EXPECT_TRUE(same_bits(got.d_table.values, d_table));
    EXPECT_TRUE(same_bits(got.d_positions.values, d_positions));
  }
}

// What ranks that hold some rows each compute, put together, is what one with all of them does.
TEST_F(EmbeddingOnDevice, SharesOfTheTableAddUpToAllOfIt) {
  const EmbeddingCase c{100, 50, 24, 41, true};
  const std::vector<std::int32_t> ids = ids_of(c);
  const auto table = normal_of<float>(c.vocab * c.channels, 1);
  const auto dy = normal_of<float>(c.rows * c.channels, 3);
  std::vector<std::int32_t> order(ids.size());
  embedding_order(c.rows, c.vocab, ids.data(), order.data());
  Stream stream;
  const auto ids_device = on_device(stream, ids), order_device = on_device(stream, order);
  const auto dy_device = on_device(stream, dy);
  const auto results = [&](std::int64_t first, std::int64_t rows) {
    const std::vector<float> share(table.begin() + first * c.channels,
                                   table.begin() + (first + rows) * c.channels);
    const auto share_device = on_device(stream, share);
    const DeviceArray<float> y(dy.size());
    const Embedding e{c.rows, c.seq, c.channels, rows, ids_device.data(), first};
    embedding_forward(stream, e, share_device.data(), nullptr, y.data());
    embedding_backward(stream, e, order_device.data(), dy_device.data(), share_device.data(),
                       nullptr);
    return EmbeddingResults{{on_host(stream, y)}, {on_host(stream, share_device)}, {{}}};
  };
  const EmbeddingResults all = results(0, c.vocab), low = results(0, 13),
                         high = results(13, c.vocab - 13);
  std::vector<float> sum = low.y.values, d_table = low.d_table.values;
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += high.y.values[i];
  d_table.insert(d_table.end(), high.d_table.values.begin(), high.d_table.values.end());
  EXPECT_EQ(sum, all.y.values);
  EXPECT_TRUE(same_bits(d_table, all.d_table.values));
}

}  // namespace
}  // namespace isthmus::cuda::this_file
