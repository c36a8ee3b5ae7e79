// SPDX-License-Identifier: Apache-2.0
// Optimizers on a device give the CPU's bits.
#include <limits>

#include "cuda/operation_test.h"
#include "kernels/cuda/optimizer.h"
#include "kernels/optimizer.h"

namespace isthmus::cuda::this_file {
namespace {

class OptimizersOnDevice : public DeviceTest {};

struct Case {
  std::int64_t n;
  std::vector<ParameterRun> runs;  // cover [0, n)
};

// Runs whose borders no pack of four keeps to, and one with many elements a thread.
std::vector<Case> cases() {
  return {{1, {{0, 1, 0.1}}},
          {7, {{0, 3, 0.1}, {3, 4, 0}}},
          {5000, {{0, 1, 0}, {1, 4097, 0.1}, {4098, 0, 0.3}, {4098, 902, 0}}},
          {4200001, {{0, 4200001, 0.05}}}};
}

struct State {
  std::vector<float> values, first, second;
  explicit State(std::int64_t n, double scale)
      : values(normal_of<float>(n, 1, scale)),
        first(static_cast<std::size_t>(n)),
        second(static_cast<std::size_t>(n)) {}
};

/// The device's side of a test: arrays, and what an update reads.
struct Device {
  explicit Device(const State& s)
      : values(on_device(stream, s.values)),
        first(on_device(stream, s.first)),
        second(on_device(stream, s.second)),
        gradients(s.values.size()),
        working(s.values.size()),
        numbers(1),
        squares(1),
        scratch(squared_norm_scratch(static_cast<std::int64_t>(s.values.size()))) {}

  /// RETURNS: the norm.
  double give(const std::vector<float>& g, const StepNumbers& step) {
    copy(stream, gradients.data(), g.data(), g.size());
    copy(stream, numbers.data(), &step, 1);
    squared_norm(stream, static_cast<std::int64_t>(g.size()), gradients.data(), squares.data(),
                 scratch.data());
    return std::sqrt(on_host(stream, squares)[0]);
  }
  [[nodiscard]] ParameterParts parts_for(const std::vector<ParameterRun>& runs) {
    parts = on_device(stream, parts_of(runs));
    return {parts.data(), static_cast<std::int64_t>(parts.size())};
  }
  [[nodiscard]] OptimizerArrays arrays() const {
    return {values.data(), gradients.data(), first.data(), second.data(), working.data()};
  }

  Stream stream;
  DeviceArray<float> values, first, second, gradients;
  DeviceArray<Bf16> working;
  DeviceArray<StepNumbers> numbers;
  DeviceArray<double> squares, scratch;
  DeviceArray<ParameterRun> parts;
};

void expect_rounded(const std::vector<Bf16>& working, const std::vector<float>& values) {
  ASSERT_EQ(working.size(), values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(working[i].bits, Bf16(values[i]).bits) << i;
  }
}

// Sums of squares are of one sign: each of at most some thousand additions in a row rounds by
// 2^-53.
constexpr double kSumRounding = 1e-13;

TEST_F(OptimizersOnDevice, SumOfSquaresIsThatOfTheCpuButForTheRoundingOfDoubles) {
  kernels::ThreadTeam team(1);
  for (const std::int64_t n : {0, 1, 7, 8191, 8192, 8193, 1200003}) {
    const auto x = normal_of<float>(n, 2, 10);
    Stream stream;
    const auto x_device = on_device(stream, x);
    const DeviceArray<double> squares(1), scratch(squared_norm_scratch(n));
    squared_norm(stream, n, x_device.data(), squares.data(), scratch.data());
    const double expected = kernels::squared_norm(team, n, x.data());
    EXPECT_NEAR(on_host(stream, squares)[0], expected, kSumRounding * expected) << n;
  }
}

TEST_F(OptimizersOnDevice, SquaresOfPartsAreThoseOfTheirRuns) {
  kernels::ThreadTeam team(1);
  const auto x = normal_of<float>(40000, 2, 10);
  // Some begin where no vector access fits, one is longer than a part.
  const std::vector<ParameterRun> runs = {{0, 7}, {7, 1}, {12, 17000}, {20001, 19999}};
  const std::vector<ParameterRun> parts = parts_of(runs);
  ASSERT_GT(parts.size(), runs.size());
  Stream stream;
  const auto x_device = on_device(stream, x);
  const auto parts_device = on_device(stream, parts);
  const DeviceArray<double> partial(parts.size());
  part_squares(stream, {parts_device.data(), static_cast<std::int64_t>(parts.size())},
               x_device.data(), partial.data());
  const std::vector<double> got = on_host(stream, partial);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const double expected = kernels::squared_norm(team, parts[i].n, x.data() + parts[i].begin);
    EXPECT_NEAR(got[i], expected, kSumRounding * expected) << i;
  }
}

TEST_F(OptimizersOnDevice, AFactorTakesThePlaceOfClipping) {
  const std::vector<ParameterRun> runs = {{0, 3}};
  const auto update = [&](double clip, float factor, double squares, float gradient) {
    Stream stream;
    const auto values = on_device(stream, std::vector<float>{1, 2, 3});
    const auto gradients = on_device(stream, std::vector<float>(3, gradient));
    const auto parts = on_device(stream, parts_of(runs));
    StepNumbers numbers = sgd_numbers({.lr = 1}, 1, clip);
    numbers.factor = factor;
    const auto numbers_device = on_device(stream, std::vector<StepNumbers>{numbers});
    const auto squares_device = on_device(stream, std::vector<double>{squares});
    sgd_step(stream, {parts.data(), 1}, {.values = values.data(), .gradients = gradients.data()},
             false, numbers_device.data(), squares_device.data());
    return on_host(stream, values);
  };
  EXPECT_EQ(update(0, 0.5f, 0, 0.5f), (std::vector<float>{0.75, 1.75, 2.75}));
  EXPECT_EQ(update(10, 0.5f, 0, 0.5f), (std::vector<float>{0.5, 1.5, 2.5}));
}

TEST_F(OptimizersOnDevice, AdamwHasTheBitsOfTheCpuOverSeveralUpdates) {
  kernels::ThreadTeam team(1);
  for (const Case& c : cases()) {
    for (const double clip : {0.0, 0.3}) {
      if (c.n > 100000 && clip == 0) continue;
      SCOPED_TRACE(::testing::Message() << "n " << c.n << ", clip " << clip);
      State cpu(c.n, 1);
      Device device(cpu);
      const ParameterParts parts = device.parts_for(c.runs);
      for (std::uint32_t update = 1; update <= 3; ++update) {
        const auto g = normal_of<float>(c.n, 10 + update, update == 2 ? 1e-22 : 1);
        kernels::AdamWOptions options{.lr = 1e-2, .step = update};
        const double norm = device.give(g, adamw_numbers(options, clip));
        options.gradient_scale = kernels::clip_coefficient(clip, norm);
        for (const ParameterRun& run : c.runs) {
          options.weight_decay = run.weight_decay;
          kernels::adamw_step(team, options, run.n, cpu.values.data() + run.begin,
                              g.data() + run.begin, cpu.first.data() + run.begin,
                              cpu.second.data() + run.begin);
        }
        adamw_step(device.stream, parts, device.arrays(), device.numbers.data(),
                   device.squares.data());
        device.stream.synchronize();
      }
      EXPECT_TRUE(same_bits(on_host(device.stream, device.values), cpu.values));
      EXPECT_TRUE(same_bits(on_host(device.stream, device.first), cpu.first));
      EXPECT_TRUE(same_bits(on_host(device.stream, device.second), cpu.second));
      expect_rounded(on_host(device.stream, device.working), cpu.values);
    }
  }
}

// As Muon's matrices are: values between the runs, of which the optimizer knows nothing.
TEST_F(OptimizersOnDevice, AdamwKeepsNoSecondMomentsOfWhatIsLeftOut) {
  kernels::ThreadTeam team(1);
  for (const std::int64_t gap : {8, 5}) {
    const std::vector<ParameterRun> runs = {{0, 12, 0.1, 0},
                                            {12 + gap, 20000, 0.1, gap},
                                            {20012 + gap, 3, 0, gap},
                                            {20015 + 3 * gap, 70, 0.2, 3 * gap}};
    const std::int64_t n = 20085 + 4 * gap;
    State cpu(n, 1);
    cpu.second.resize(20085);
    Device device(cpu);
    const ParameterParts parts = device.parts_for(runs);
    for (std::uint32_t update = 1; update <= 2; ++update) {
      const auto g = normal_of<float>(n, 10 + update);
      kernels::AdamWOptions options{.lr = 1e-2, .step = update};
      device.give(g, adamw_numbers(options, 0));
      for (const ParameterRun& run : runs) {
        options.weight_decay = run.weight_decay;
        kernels::adamw_step(team, options, run.n, cpu.values.data() + run.begin,
                            g.data() + run.begin, cpu.first.data() + run.begin,
                            cpu.second.data() + run.begin - run.left_out);
      }
      adamw_step(device.stream, parts, device.arrays(), device.numbers.data(),
                 device.squares.data());
    }
    EXPECT_TRUE(same_bits(on_host(device.stream, device.values), cpu.values)) << gap;
    EXPECT_TRUE(same_bits(on_host(device.stream, device.first), cpu.first)) << gap;
    EXPECT_TRUE(same_bits(on_host(device.stream, device.second), cpu.second)) << gap;
  }
}

TEST_F(OptimizersOnDevice, SgdHasTheBitsOfTheCpuOverSeveralUpdates) {
  kernels::ThreadTeam team(1);
  struct Rule {
    double momentum;
    bool nesterov;
  };
  for (const Rule& rule : {Rule{0, false}, Rule{0.9, false}, Rule{0.9, true}}) {
    for (const Case& c : cases()) {
      if (c.n > 100000 && !rule.nesterov) continue;
      SCOPED_TRACE(::testing::Message() << "n " << c.n << ", momentum " << rule.momentum);
      State cpu(c.n, 1);
      // The first update does not read the buffer: it may hold anything.
      std::fill(cpu.first.begin(), cpu.first.end(), std::numeric_limits<float>::quiet_NaN());
      Device device(cpu);
      const ParameterParts parts = device.parts_for(c.runs);
      for (std::uint32_t update = 1; update <= 3; ++update) {
        const auto g = normal_of<float>(c.n, 10 + update);
        kernels::SgdOptions options{.lr = 0.1,
                                    .momentum = rule.momentum,
                                    .nesterov = rule.nesterov,
                                    .first_step = update == 1};
        const double norm = device.give(g, sgd_numbers(options, update, 0.3));
        options.gradient_scale = kernels::clip_coefficient(0.3, norm);
        OptimizerArrays arrays = device.arrays();
        arrays.second = nullptr;
        if (rule.momentum == 0) arrays.first = nullptr;
        for (const ParameterRun& run : c.runs) {
          options.weight_decay = run.weight_decay;
          kernels::sgd_step(team, options, run.n, cpu.values.data() + run.begin,
                            g.data() + run.begin, cpu.first.data() + run.begin);
        }
        sgd_step(device.stream, parts, arrays, rule.nesterov, device.numbers.data(),
                 device.squares.data());
        device.stream.synchronize();
      }
      EXPECT_TRUE(same_bits(on_host(device.stream, device.values), cpu.values));
      EXPECT_TRUE(same_bits(on_host(device.stream, device.first), cpu.first));
      expect_rounded(on_host(device.stream, device.working), cpu.values);
    }
  }
}

TEST_F(OptimizersOnDevice, AGradientThatIsNotFiniteChangesNothing) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    const State before(100, 1);
    Device device(before);
    auto g = normal_of<float>(100, 3);
    g[57] = bad;
    const ParameterParts parts = device.parts_for({{0, 100, 0.1}});
    device.give(g, adamw_numbers({.lr = 1}, 1));
    adamw_step(device.stream, parts, device.arrays(), device.numbers.data(), device.squares.data());
    device.give(g, sgd_numbers({.lr = 1, .momentum = 0.9}, 1, 1));
    sgd_step(device.stream, parts, device.arrays(), true, device.numbers.data(),
             device.squares.data());
    EXPECT_TRUE(same_bits(on_host(device.stream, device.values), before.values));
    EXPECT_TRUE(same_bits(on_host(device.stream, device.first), before.first));
    EXPECT_TRUE(same_bits(on_host(device.stream, device.second), before.second));
  }
}

TEST_F(OptimizersOnDevice, SumOfSquaresIsTheSameForEveryOrderOfThreads) {
  const auto x = normal_of<float>(20001, 2);
  const Bits<double> got = in_every_thread_order([&] {
    Stream stream;
    const auto x_device = on_device(stream, x);
    const DeviceArray<double> squares(1), scratch(squared_norm_scratch(20001));
    squared_norm(stream, 20001, x_device.data(), squares.data(), scratch.data());
    return Bits<double>{on_host(stream, squares)};
  });
  EXPECT_EQ(got.values.size(), 1u);
}

}  // namespace
}  // namespace isthmus::cuda::this_file
