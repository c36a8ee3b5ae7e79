// SPDX-License-Identifier: Apache-2.0
// Muon on a device: the CPU's momentum by its bits, and its updates but for a few roundings.
#include <limits>
#include <span>

#include "cuda/operation_test.h"
#include "kernels/cuda/matmul.h"
#include "kernels/cuda/muon.h"
#include "kernels/muon.h"
#include "kernels/muon_case.h"
#include "kernels/optimizer.h"

namespace isthmus::cuda::this_file {
namespace {

using kernels::kFlipError;

class MuonOnDevice : public DeviceTest {};

struct Shape {
  std::int64_t rows, cols;
};
// Tall, wide, square; with edges that no pack of four keeps to, and with blocks of several packs.
constexpr Shape kShapes[] = {{24, 72}, {72, 24}, {48, 48}, {5, 200}, {33, 17}, {1, 7}, {160, 120}};

constexpr std::size_t kBehind = 9;  // values behind a matrix, which are others'

/// A matrix among others' values, with momentum, rounded copy and what an update reads.
struct Device {
  Device(const MuonMatrix& matrix_, const std::vector<float>& values_)
      : matrix(matrix_),
        values(on_device(stream, values_)),
        gradients(values_.size()),
        buffer(on_device(stream, std::vector<float>(values_.size()))),
        working(on_device(stream, std::vector<Bf16>(values_.size()))),
        numbers(1),
        squares(1),
        partial_squares(squared_norm_scratch(matrix.rows * matrix.cols)),
        scratch(static_cast<std::size_t>(muon_scratch_bytes(matrix.rows, matrix.cols))) {}

  [[nodiscard]] std::int64_t elements() const { return matrix.rows * matrix.cols; }
  [[nodiscard]] std::vector<float> part(const std::vector<float>& all) const {
    return {all.begin() + matrix.begin, all.begin() + matrix.begin + elements()};
  }

  /// RETURNS: the norm of the matrix's gradient.
  double give(const std::vector<float>& g, double lr, double clip) {
    const StepNumbers step = adamw_numbers({.lr = lr}, clip);
    copy(stream, gradients.data() + matrix.begin, g.data(), g.size());
    copy(stream, numbers.data(), &step, 1);
    squared_norm(stream, elements(), gradients.data() + matrix.begin, squares.data(),
                 partial_squares.data());
    return std::sqrt(on_host(stream, squares)[0]);
  }
  void queue(const MuonRule& rule) {
    const OptimizerArrays arrays{.values = values.data(),
                                 .gradients = gradients.data(),
                                 .first = buffer.data(),
                                 .working = working.data()};
    muon_step(stream, blas, rule, matrix, arrays, numbers.data(), squares.data(), scratch.data());
  }

  Stream stream;
  Blas blas;
  MuonMatrix matrix;
  DeviceArray<float> values, gradients, buffer;
  DeviceArray<Bf16> working;
  DeviceArray<StepNumbers> numbers;
  DeviceArray<double> squares, partial_squares;
  DeviceArray<std::byte> scratch;
};

/// The orthogonalised `g` by the device: one step of rate 1 from zero without momentum.
std::vector<float> orthogonalized(std::int64_t rows, std::int64_t cols,
                                  const std::vector<float>& g) {
  Device device({.rows = rows, .cols = cols}, std::vector<float>(g.size()));
  device.give(g, 1, 0);
  device.queue({.momentum = 0, .nesterov = false});
  std::vector<float> o = on_host(device.stream, device.values);
  for (float& value : o) value = -value;
  return o;
}

TEST_F(MuonOnDevice, MomentumHasTheBitsOfTheCpuAndUpdatesAreItsButForAFewRoundings) {
  kernels::ThreadTeam team(2);
  for (const Shape& s : kShapes) {
    for (const std::int64_t begin : {0, 3, 8}) {
      const bool nesterov = begin != 8;
      SCOPED_TRACE(::testing::Message() << s.rows << " x " << s.cols << " from " << begin);
      kernels::MuonOptions options{
          .lr = 0.1, .nesterov = nesterov, .weight_decay = 0.5, .update_scale = 1.5};
      const std::int64_t n = s.rows * s.cols;
      const std::vector<float> before =
          normal_of<float>(begin + n + static_cast<std::int64_t>(kBehind), 1);
      Device device({begin, s.rows, s.cols, options.weight_decay, options.update_scale}, before);
      std::vector<float> p = device.part(before);
      std::vector<float> buffer(p.size());
      double bound = 0;
      for (std::uint32_t step = 1; step <= 3; ++step) {
        const std::vector<float> g = normal_of<float>(n, 10 + step, step == 2 ? 100 : 1);
        const double clip = step == 1 ? 0 : 0.5;
        const double norm = device.give(g, options.lr, clip);
        options.gradient_scale = kernels::clip_coefficient(clip, norm);
        kernels::muon_step(team, options, s.rows, s.cols, p.data(), g.data(), buffer.data());
        device.queue({.momentum = options.momentum, .nesterov = nesterov});
        bound += kFlipError * options.lr * options.update_scale *
                 std::sqrt(static_cast<double>(std::min(s.rows, s.cols)));
      }
      EXPECT_TRUE(same_bits(device.part(on_host(device.stream, device.buffer)), buffer));
      std::vector<float> after = on_host(device.stream, device.values);
      const double error = kernels::distance(device.part(after), p);
      EXPECT_LE(error, bound);
      std::printf("%d x %d: error %.3f of the bound\n", static_cast<int>(s.rows),
                  static_cast<int>(s.cols), error / bound);
      const std::vector<Bf16> working = on_host(device.stream, device.working);
      for (std::size_t i = 0; i < after.size(); ++i) {
        const auto at = static_cast<std::int64_t>(i) - begin;
        const bool inside = at >= 0 && at < n;
        ASSERT_EQ(working[i].bits, inside ? Bf16(after[i]).bits : 0) << i;
        if (!inside) {
          ASSERT_EQ(after[i], before[i]) << i;
        }
      }
    }
  }
}

TEST_F(MuonOnDevice, ThreeStepsFollowTorch) {
  for (const kernels::GoldenCase& c : kernels::golden_cases()) {
    const kernels::MuonOptions options = c.options();
    Device device({0, c.rows, c.cols, options.weight_decay, options.update_scale},
                  kernels::hashed(1, c.after.size()));
    for (std::uint32_t step = 1; step <= 3; ++step) {
      device.give(kernels::hashed(10000 * step, c.after.size()), options.lr, 0);
      device.queue({.momentum = options.momentum, .nesterov = c.nesterov});
    }
    EXPECT_LE(kernels::distance(on_host(device.stream, device.values), c.after),
              3 * c.error_of_a_step())
        << c.name;
  }
}

double rounded(double x) {
  return static_cast<double>(static_cast<float>(Bf16(static_cast<float>(x))));
}

/// x (rows, k) y (k, cols) of values rounded to bfloat16, else in double.
std::vector<double> product(std::int64_t rows, std::int64_t k, std::int64_t cols,
                            const std::vector<double>& x, const std::vector<double>& y) {
  std::vector<double> z(static_cast<std::size_t>(rows * cols));
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t l = 0; l < k; ++l) {
      const double factor = rounded(x[static_cast<std::size_t>(i * k + l)]);
      for (std::int64_t j = 0; j < cols; ++j) {
        z[static_cast<std::size_t>(i * cols + j)] +=
            factor * rounded(y[static_cast<std::size_t>(l * cols + j)]);
      }
    }
  }
  return z;
}

/// Five Newton-Schulz steps of a matrix that is not taller than wide.
std::vector<double> newton_schulz(std::int64_t rows, std::int64_t cols,
                                  const std::vector<float>& g) {
  std::vector<double> x(g.begin(), g.end());
  for (double& value : x) value /= kernels::norm(g);
  for (int step = 0; step < 5; ++step) {
    std::vector<double> x_transposed;
    for (std::int64_t j = 0; j < cols; ++j) {
      for (std::int64_t i = 0; i < rows; ++i) {
        x_transposed.push_back(x[static_cast<std::size_t>(i * cols + j)]);
      }
    }
    const std::vector<double> gram = product(rows, cols, rows, x, x_transposed);
    std::vector<double> p = product(rows, rows, rows, gram, gram);
    for (std::size_t i = 0; i < p.size(); ++i) p[i] = 2.0315 * p[i] - 4.7750 * gram[i];
    const std::vector<double> px = product(rows, rows, cols, p, x);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = 3.4445 * x[i] + px[i];
  }
  return x;
}

TEST_F(MuonOnDevice, IsThePlainLoopsInDoubleWithOperandsRoundedToBfloat16) {
  for (const Shape& s : kShapes) {
    SCOPED_TRACE(::testing::Message() << s.rows << " x " << s.cols);
    const std::vector<float> g = normal_of<float>(s.rows * s.cols, 1, 1e-3);
    const bool tall = s.rows > s.cols;
    const std::int64_t small = std::min(s.rows, s.cols), large = std::max(s.rows, s.cols);
    const std::vector<double> expected =
        newton_schulz(small, large, tall ? kernels::transposed(g, s.rows, s.cols) : g);
    std::vector<float> o = orthogonalized(s.rows, s.cols, g);
    if (tall) o = kernels::transposed(o, s.rows, s.cols);
    EXPECT_LE(kernels::distance(o, std::vector<float>(expected.begin(), expected.end())),
              kFlipError * std::sqrt(static_cast<double>(small)));
  }
}

TEST_F(MuonOnDevice, SingularValuesComeNearOne) {
  for (const Shape& s : {Shape{1, 7}, {16, 33}, {33, 16}, {48, 144}, {144, 48}, {5, 200}}) {
    const std::vector<float> g = normal_of<float>(s.rows * s.cols, 1);
    const std::vector<double> values =
        kernels::singular_values(s.rows, s.cols, orthogonalized(s.rows, s.cols, g));
    ASSERT_EQ(std::ssize(values), std::min(s.rows, s.cols));
    for (const double value : values) {
      EXPECT_GE(value, kernels::kLeastSingular * (1 - kernels::kSingularError)) << s.rows;
      EXPECT_LE(value, kernels::kMostSingular * (1 + kernels::kSingularError)) << s.rows;
    }
  }
}

TEST_F(MuonOnDevice, WithoutGradientOnlyDecays) {
  Device device({.rows = 2, .cols = 3, .weight_decay = 0.5}, std::vector<float>(6, 2.0f));
  device.give(std::vector<float>(6), 0.5, 1);
  device.queue({});
  EXPECT_EQ(on_host(device.stream, device.values), std::vector<float>(6, 1.5f));
  EXPECT_EQ(on_host(device.stream, device.buffer), std::vector<float>(6));
}

TEST_F(MuonOnDevice, ANormThatIsNotFiniteChangesNothing) {
  const std::vector<float> before = normal_of<float>(24, 1);
  Device device({.rows = 4, .cols = 6, .weight_decay = 0.5}, before);
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    device.give(normal_of<float>(24, 2), 0.5, 1);
    copy(device.stream, device.squares.data(), &bad, 1);
    device.stream.synchronize();
    device.queue({});
    EXPECT_TRUE(same_bits(on_host(device.stream, device.values), before));
    EXPECT_EQ(on_host(device.stream, device.buffer), std::vector<float>(24));
    EXPECT_TRUE(same_bits(on_host(device.stream, device.working), std::vector<Bf16>(24)));
  }
}

// The rate, the clip and the gradients of a replay are not those of the recording.
TEST_F(MuonOnDevice, AGraphHasTheBitsOfTheSameStepsQueued) {
  const MuonMatrix matrix{.rows = 24, .cols = 72, .weight_decay = 0.1, .update_scale = 2};
  const std::vector<float> before = normal_of<float>(24 * 72, 1);
  Device queued(matrix, before), replayed(matrix, before);
  replayed.give(before, 0, 0);  // products run once before they are recorded
  replayed.queue({});
  fill_zero(replayed.stream, replayed.buffer.data(), replayed.buffer.size());
  replayed.stream.synchronize();
  const Graph graph(replayed.stream, [&](const Graph::Mark&) { replayed.queue({}); });
  for (std::uint32_t step = 1; step <= 3; ++step) {
    const std::vector<float> g = normal_of<float>(24 * 72, 10 + step);
    for (Device* const each : {&queued, &replayed}) each->give(g, 0.1 / step, 0.25 * step);
    queued.queue({});
    graph.launch(replayed.stream);
    EXPECT_TRUE(same_bits(on_host(queued.stream, queued.values),
                          on_host(replayed.stream, replayed.values)));
  }
  EXPECT_NE(on_host(queued.stream, queued.values), before);
  EXPECT_TRUE(
      same_bits(on_host(queued.stream, queued.buffer), on_host(replayed.stream, replayed.buffer)));
}

TEST_F(MuonOnDevice, HasTheSameBitsForEveryOrderOfThreadsAndUsesItsScratchAlone) {
  const std::int64_t n = 33 * 17;
  const Bits<float> got = in_every_thread_order([&] {
    Device device({.rows = 33, .cols = 17}, normal_of<float>(n, 1));
    const std::size_t bytes = device.scratch.size();
    device.scratch = on_device(device.stream, std::vector<std::byte>(bytes + 256, std::byte{0xA5}));
    device.give(normal_of<float>(n, 2), 0.1, 1);
    device.queue({});
    const std::vector<std::byte> scratch = on_host(device.stream, device.scratch);
    for (std::size_t i = bytes; i < scratch.size(); ++i) EXPECT_EQ(scratch[i], std::byte{0xA5});
    return Bits<float>{on_host(device.stream, device.values)};
  });
  EXPECT_EQ(std::ssize(got.values), n);
}

TEST_F(MuonOnDevice, ScratchIsSixBytesAValueAndTenOfTheShorterSidesSquare) {
  constexpr std::int64_t kParts = 8 * 256;  // each begins at a multiple of 256
  for (const Shape& s : kShapes) {
    const std::int64_t small = std::min(s.rows, s.cols);
    const std::int64_t values = 6 * s.rows * s.cols + 10 * small * small;
    EXPECT_GE(muon_scratch_bytes(s.rows, s.cols), values);
    EXPECT_LE(muon_scratch_bytes(s.rows, s.cols), values + kParts);
  }
}

}  // namespace
}  // namespace isthmus::cuda::this_file
