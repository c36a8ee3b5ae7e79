// SPDX-License-Identifier: Apache-2.0
// Methods 1bit-adam and 01-adam over loops on devices: warm-up, freeze, compressed and local steps,
// checkpoints on either side of the freeze that go on there and on the CPU.
#include <functional>
#include <memory>
#include <ostream>

#include "cuda/mesh_case.h"
#include "outer/place/outer_placement.h"
#include "outer/toy_loops.h"

namespace isthmus::this_file {
namespace {

using testing_support::anchors_of;
using OuterState = testing_support::MemoryState;

constexpr int kWorkers = 2;
constexpr int kRanks = 2;  // of a mesh
constexpr int kSteps = 9;
constexpr int kFreeze = 4;            // last step of the warm-up, or of changing variances
constexpr std::int64_t kShort = 5;    // tokens, since many runs are made
constexpr double kCurveError = 1e-3;  // of weights and losses, with sums in another order

struct Method {
  const char* label;
  const char* name;
  OuterOptions outer;
};
void PrintTo(const Method& method, std::ostream* out) { *out << method.label; }

std::vector<Method> methods_here() {
  const ZeroOneAdamOptions zero_one{.var_freeze_step = kFreeze,
                                    .var_update_scaler = 2,
                                    .local_step_scaler = 2,
                                    .local_step_clipper = 4};
  return {{"OneBit", "1bit-adam", {.one_bit_adam = {.freeze = kFreeze}}},
          {"OneBitUncorrected",
           "1bit-adam",
           {.one_bit_adam = {.freeze = kFreeze, .bias_correction = false}}},
          {"ZeroOne", "01-adam", {.zero_one_adam = zero_one}}};
}

/// Who computes what a method does beside passes and a corrected warm-up's updates.
enum class Arithmetic { kAsRuns, kHost };  // kAsRuns: the device, where it has that

using Loops = std::function<std::unique_ptr<InnerLoop>(BatchProvider)>;

/// Of worker 0, after some steps.
struct Outcome {
  std::vector<double> losses;
  std::vector<float> values;  // the method's, as an evaluation reads them
  bool operator==(const Outcome&) const = default;
};

/// Of a worker, between two steps.
struct Checkpoint {
  OuterState inner, outer;
  std::vector<float> local;
};
using Checkpoints = std::vector<Checkpoint>;

/// Steps first .. last, from `from` where it is not null; leaves `to` there.
Outcome train(const Method& method, const Loops& loops, int first, int last,
              Checkpoints* from = nullptr, Checkpoints* to = nullptr,
              std::int64_t sequences = kSequences, Arithmetic by = Arithmetic::kAsRuns) {
  Outcome outcome;
  if (to != nullptr) *to = Checkpoints(kWorkers);
  run_in_process(kWorkers, [&](WorkerContext& context) {
    const auto w = static_cast<std::size_t>(context.rank.value());
    RandomBatches batches(kVocab, sequences, kShort);
    const std::int64_t shift = 100 * context.rank.value();
    const std::unique_ptr<InnerLoop> loop =
        loops([&](StepIndex t) { return batches.at(StepIndex(t.value() + shift)); });
    if (from != nullptr) set_values(*loop, (*from)[w].local);
    auto* const there = dynamic_cast<cuda::ResidentValues*>(loop.get());
    const auto strategy =
        there != nullptr && by == Arithmetic::kAsRuns
            ? outer::make_outer_strategy_beside_device(method.name, method.outer, *loop,
                                                       context.exchange, *there)
            : make_outer_strategy(method.name, method.outer, *loop, context.exchange);
    if (from != nullptr) {
      loop->load((*from)[w].inner);
      strategy->load((*from)[w].outer);
    }
    std::vector<double> losses;
    for (int t = first; t <= last; ++t) losses.push_back(strategy->step().inner.loss);
    if (auto* const mesh = dynamic_cast<CudaMesh*>(loop.get())) {
      static_cast<void>(mesh->gradients(StepIndex(last + 1), {}));  // ranks take over what is new
      EXPECT_THAT(values_of_ranks(*mesh, kRanks), testing::Each(values_now(*mesh))) << last;
    }
    if (to != nullptr) {
      Checkpoint& checkpoint = (*to)[w];
      checkpoint.local = values_now(*loop);
      loop->save(checkpoint.inner);
      strategy->save(checkpoint.outer);
    } else {
      static_cast<void>(strategy->finish());
    }
    if (w == 0) outcome = {losses, anchors_of(*strategy, *loop)};
  });
  return outcome;
}

void expect_near(const Outcome& found, const Outcome& expected) {
  ASSERT_EQ(found.losses.size(), expected.losses.size());
  for (std::size_t i = 0; i < expected.losses.size(); ++i) {
    EXPECT_NEAR(found.losses[i], expected.losses[i], kCurveError * expected.losses[i]) << i;
  }
  EXPECT_LE(relative_error(found.values, expected.values), kCurveError);
}

/// Gradients of a loop on a device, and all else on the host: what a method does where nothing of
/// Adam's is on the device.
class AdamOnHost final : public InnerLoop {
 public:
  AdamOnHost(const LanguageModelOptions& options, BatchProvider batches)
      : device_(options, std::move(batches)),
        values_(values_now(device_)),
        first_(values_.size()),
        second_(values_.size()) {
    for (Parameter parameter : device_.parameters()) {
      parameter.values = part(values_, parameter);
      parameters_.push_back(parameter);
    }
  }
  [[nodiscard]] std::span<const Parameter> parameters() const override { return parameters_; }
  InnerStep train_step(StepIndex) override { throw std::logic_error("of ddp alone"); }
  InnerStep gradients(StepIndex t, const GradientReady& on_ready) override {
    set_values(device_, values_);
    return device_.gradients(t, on_ready);
  }
  [[nodiscard]] std::span<float> gradient(std::size_t i) override { return device_.gradient(i); }
  [[nodiscard]] double learning_rate(StepIndex t) const override {
    return device_.learning_rate(t);
  }
  [[nodiscard]] AdamSettings adam_settings() const override { return device_.adam_settings(); }
  [[nodiscard]] AdamMoments adam_moments(std::size_t i) override {
    return {part(first_, parameters_[i]), part(second_, parameters_[i])};
  }

 private:
  static std::span<float> part(std::vector<float>& all, const Parameter& parameter) {
    return std::span(all).subspan(static_cast<std::size_t>(parameter.elements.begin),
                                  static_cast<std::size_t>(parameter.elements.size()));
  }

  CudaLoop device_;
  std::vector<float> values_, first_, second_;
  std::vector<Parameter> parameters_;
};

class OuterAdam : public cuda::DeviceTest, public testing::WithParamInterface<Method> {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    options_.model.layers = 1;
    options_.context = kShort;
    options_.inner.clip = 0.5;
    options_.inner.weight_decay = 0.1;
  }
  template <typename Loop>
  [[nodiscard]] Loops make() const {
    return [options = options_](BatchProvider batches) {
      return std::make_unique<Loop>(options, std::move(batches));
    };
  }
  /// Where sums in another order give another sign, a step is another one: this is for comparing
  /// with the CPU.
  [[nodiscard]] static Method without_signs() {
    Method method = GetParam();
    method.outer.codec = "fp32";
    method.outer.one_bit_adam.variance_floor = 0.1;
    return method;
  }
  const Method& method_ = GetParam();
  LanguageModelOptions options_ = tiny_options("gpt2");
};

// The update of a corrected warm-up is the device's own, all else the host's arithmetic.
TEST_P(OuterAdam, OnADeviceHasTheBitsOfOneWhoseAdamIsOnTheHost) {
  options_.bf16 = true;  // whose rounded copies must follow
  const Outcome device = train(method_, make<CudaLoop>(), 1, kSteps);
  EXPECT_EQ(device, train(method_, make<CudaLoop>(), 1, kSteps, nullptr, nullptr, kSequences,
                          Arithmetic::kHost));
  if (std::string(method_.label) != "OneBit") {
    EXPECT_EQ(device, train(method_, make<AdamOnHost>(), 1, kSteps));
  }
  EXPECT_LT(device.losses.back(), device.losses.front());
}

TEST_P(OuterAdam, ResumesAnywhereAroundTheFreeze) {
  const Outcome straight = train(method_, make<CudaLoop>(), 1, kSteps);
  for (const int stop : {kFreeze - 2, kFreeze, kFreeze + 2}) {
    Checkpoints middle;
    static_cast<void>(train(method_, make<CudaLoop>(), 1, stop, nullptr, &middle));
    const Outcome rest = train(method_, make<CudaLoop>(), stop + 1, kSteps, &middle);
    EXPECT_EQ(rest.values, straight.values) << stop;
    EXPECT_EQ(rest.losses, std::vector(straight.losses.begin() + stop, straight.losses.end()));
  }
}

TEST_P(OuterAdam, IsThatOfTheCpuAndGoesOnOnTheOtherSide) {
  const Method method = without_signs();
  const Outcome cpu = train(method, make<LanguageModelLoop>(), 1, kSteps);
  const Outcome device = train(method, make<CudaLoop>(), 1, kSteps);
  expect_near(device, cpu);
  EXPECT_NE(device.values, cpu.values);
  for (const int stop : {kFreeze - 2, kFreeze + 2}) {
    Checkpoints of_device, of_cpu;
    static_cast<void>(train(method, make<CudaLoop>(), 1, stop, nullptr, &of_device));
    static_cast<void>(train(method, make<LanguageModelLoop>(), 1, stop, nullptr, &of_cpu));
    const Outcome rest = {{cpu.losses.begin() + stop, cpu.losses.end()}, cpu.values};
    expect_near(train(method, make<LanguageModelLoop>(), stop + 1, kSteps, &of_device), rest);
    expect_near(train(method, make<CudaLoop>(), stop + 1, kSteps, &of_cpu), rest);
  }
}

TEST_P(OuterAdam, OnAMeshOfDevicesIsThatOfTheCpusMesh) {
  const LanguageModelOptions options = with_ranks(options_, kRanks);
  const Loops devices = [&](BatchProvider batches) {
    return std::make_unique<CudaMesh>(options, std::move(batches), on_devices(kRanks));
  };
  const Loops cpu = [&](BatchProvider batches) {
    return std::make_unique<LanguageModelLoop>(options, std::move(batches));
  };
  const Method method = without_signs();
  const Outcome straight = train(method, devices, 1, kSteps, nullptr, nullptr, kMeshSequences);
  expect_near(straight, train(method, cpu, 1, kSteps, nullptr, nullptr, kMeshSequences));
  Checkpoints middle;
  static_cast<void>(train(method, devices, 1, kFreeze + 2, nullptr, &middle, kMeshSequences));
  const Outcome rest =
      train(method, devices, kFreeze + 3, kSteps, &middle, nullptr, kMeshSequences);
  EXPECT_EQ(rest.values, straight.values);
}

INSTANTIATE_TEST_SUITE_P(Methods, OuterAdam, testing::ValuesIn(methods_here()),
                         [](const auto& param) { return std::string(param.param.label); });

}  // namespace
}  // namespace isthmus::this_file
