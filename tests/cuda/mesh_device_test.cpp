// SPDX-License-Identifier: Apache-2.0
// Data-parallel ranks on devices against one device that accumulates as many micro-batches, and
// against a mesh of ranks on the CPU.
#include <limits>

#include "cuda/mesh_case.h"
#include "inner/model/samples.h"
#include "test_weight.h"

namespace isthmus::this_file {
namespace {
using testing::HasSubstr;

constexpr std::int64_t kShort = 5;    // tokens, since many steps are taken
constexpr double kCurveError = 1e-4;  // of 50 steps
constexpr int kRanks = 2;

class DeviceMesh : public cuda::DeviceTest, public testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    options_.context = kShort;
  }
  [[nodiscard]] LanguageModelOptions mesh(int ranks = kRanks) const {
    return with_ranks(options_, ranks);
  }

  LanguageModelOptions options_ = tiny_options(GetParam());
  RandomBatches batches_{kVocab, kMeshSequences, kShort};
  RandomBatches other_batches_{kVocab, kMeshSequences, kShort};
};

void expect_near(const Trajectory& found, const Trajectory& expected) {
  for (std::size_t i = 0; i < expected.losses.size(); ++i) {
    const double loss = expected.losses[i];
    EXPECT_NEAR(found.losses[i], loss, kCurveError * loss) << "step " << i + 1;
    EXPECT_NEAR(found.norms[i], expected.norms[i], 20 * kCurveError * expected.norms[i]) << i + 1;
  }
}

TEST_P(DeviceMesh, FollowsOneDeviceAndTheCpusMesh) {
  options_.model.layers = 1;
  const int steps = testing_support::by_weight(12, 50);
  CudaMesh mesh_of_devices(mesh(), batches_.provider(), on_devices(kRanks));
  const Trajectory found = train(mesh_of_devices, 1, steps);
  LanguageModelOptions one = mesh(1);
  one.micro_batches = kRanks;
  CudaLoop device(one, other_batches_.provider());
  expect_near(found, train(device, 1, steps));
  LanguageModelLoop cpu(mesh(), other_batches_.provider());
  expect_near(found, train(cpu, 1, steps));
}

TEST_P(DeviceMesh, HasTheSameWeightsOnAllRanksAfterEachStep) {
  for (const bool bf16 : {false, true}) {
    options_.bf16 = bf16;
    CudaMesh loop(mesh(4), batches_.provider(), on_devices(4));
    std::vector<float> before = values_now(loop);
    for (int t = 1; t <= 4; ++t) {
      static_cast<void>(loop.train_step(StepIndex(t)));
      EXPECT_THAT(values_of_ranks(loop, 4), testing::Each(values_now(loop))) << t;
      EXPECT_NE(values_now(loop), before);
      before = values_now(loop);
    }
  }
}

TEST_P(DeviceMesh, WeightsThatPartEndTheRunBySixtyFourSteps) {
  options_.total_steps = 100;
  CudaMesh loop(mesh(), batches_.provider(), on_devices(kRanks));
  static_cast<void>(loop.train_step(StepIndex(64)));
  CudaLoop& other = loop.loop_of(1);
  cuda::use_device(on_devices(kRanks).devices[1]);
  std::vector<float> values = values_now(other);
  values.back() += 1;
  set_values(other, values);
  cuda::use_device(on_devices(kRanks).devices[0]);
  static_cast<void>(loop.train_step(StepIndex(127)));
  try {
    static_cast<void>(loop.train_step(StepIndex(128)));
    FAIL() << "ranks with other weights go on";
  } catch (const RunError& error) {
    EXPECT_THAT(error.what(), HasSubstr("step 128: rank 1 of the mesh"));
  }
}

// A rank's gradients are taken at a scale of 1 over all targets, of which it has half.
TEST_P(DeviceMesh, GradientsAreSumsOfTheRanksOwn) {
  options_.micro_batches = 2;
  CudaMesh loop(mesh(), batches_.provider(), on_devices(kRanks));
  std::vector<float> sums(values_now(loop).size(), 0.0f);
  for (int rank = 0; rank < kRanks; ++rank) {
    LanguageModelOptions own = mesh(1);
    own.sequences = kMeshSequences / kRanks;
    CudaLoop alone(own, [&](StepIndex t) {
      return samples_of(other_batches_.at(t), rank * own.sequences, own.sequences);
    });
    static_cast<void>(alone.gradients(StepIndex(1), {}));
    const std::vector<float> gradients = all_gradients(alone);
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += 0.5f * gradients[i];
  }
  std::vector<std::size_t> announced;
  const InnerStep step =
      loop.gradients(StepIndex(1), [&](std::size_t i) { announced.push_back(i); });
  EXPECT_EQ(all_gradients(loop), sums);
  EXPECT_EQ(step.tokens, kMeshSequences * kShort);
  EXPECT_EQ(announced.size(), loop.parameters().size());
  EXPECT_EQ(announced.back(), 0u);
}

TEST_P(DeviceMesh, WhatAnExchangePutIntoTheGradientsIsAppliedByAllRanks) {
  CudaMesh loop(mesh(), batches_.provider(), on_devices(kRanks));
  CudaLoop one(mesh(1), other_batches_.provider());
  static_cast<void>(loop.gradients(StepIndex(1), {}));
  for (std::size_t i = 0; i < loop.parameters().size(); ++i) {
    std::ranges::fill(loop.gradient(i), 0.01f);
    std::ranges::fill(one.gradient(i), 0.01f);
  }
  EXPECT_EQ(loop.apply_gradients(StepIndex(1)), one.apply_gradients(StepIndex(1)));
  EXPECT_THAT(values_of_ranks(loop, kRanks), testing::Each(values_now(one)));
}

TEST_P(DeviceMesh, WhatOthersWriteReachesAllRanks) {
  CudaMesh loop(mesh(), batches_.provider(), on_devices(kRanks));
  CudaMesh straight(mesh(), other_batches_.provider(), on_devices(kRanks));
  const Trajectory begin = train(loop, 1, 2);
  static_cast<void>(train(straight, 1, 2));
  std::vector<float> written = begin.values;
  for (float& value : written) value *= 1.25f;
  set_values(loop, written);
  // On the device, and in two parts that are far from one another.
  for (const CanonicalRange part :
       {CanonicalRange{0, 40}, CanonicalRange{41, std::ssize(written)}}) {
    cuda::copy<float>(straight.stream(), straight.device_values() + part.begin,
                      written.data() + part.begin, static_cast<std::size_t>(part.size()));
    straight.stream().synchronize();
    straight.wrote_device_values(part);
  }
  cuda::copy<float>(straight.stream(), straight.device_values() + 40, written.data() + 40, 1);
  straight.stream().synchronize();
  straight.wrote_device_values({40, 41});
  EXPECT_EQ(values_now(loop), written);
  const Trajectory end = train(loop, 3, 4);
  EXPECT_EQ(end, train(straight, 3, 4));
  EXPECT_THAT(values_of_ranks(loop, kRanks), testing::Each(end.values));
}

TEST_P(DeviceMesh, ADivergedStepNamesItselfAndChangesNothing) {
  CudaMesh loop(mesh(), batches_.provider(), on_devices(kRanks));
  const Trajectory begin = train(loop, 1, 2);
  std::vector<float> broken = begin.values;
  std::fill_n(broken.end() - 32, 32, std::numeric_limits<float>::infinity());
  set_values(loop, broken);
  EXPECT_THROW(static_cast<void>(loop.train_step(StepIndex(3))), RunError);
  EXPECT_THAT(values_of_ranks(loop, kRanks), testing::Each(broken));
  set_values(loop, begin.values);
  CudaMesh straight(mesh(), other_batches_.provider(), on_devices(kRanks));
  EXPECT_EQ(train(loop, 3, 4).values, train(straight, 1, 4).values);
}

TEST_P(DeviceMesh, ABatchThatCannotBeReadFailsInItsStep) {
  CudaMesh loop(
      mesh(),
      [&](StepIndex t) {
        if (t.value() == 3) throw RunError("step 3 cannot be read");
        return batches_.at(t);
      },
      on_devices(kRanks));
  static_cast<void>(train(loop, 1, 2));
  EXPECT_THROW(static_cast<void>(loop.train_step(StepIndex(3))), RunError);
  static_cast<void>(train(loop, 4, 5));
}

TEST_P(DeviceMesh, CheckpointsAreThoseOfAnyMesh) {
  CudaMesh loop(mesh(), batches_.provider(), on_devices(kRanks));
  LanguageModelLoop cpu(mesh(), other_batches_.provider());
  const std::vector<float> values = train(loop, 1, 3).values;
  static_cast<void>(train(cpu, 1, 1));
  MemoryState state;
  loop.save(state);
  cpu.load(state);
  set_values(cpu, values);
  CudaMesh resumed(mesh(), other_batches_.provider(), on_devices(kRanks));
  static_cast<void>(train(resumed, 7, 7));
  resumed.load(state);
  set_values(resumed, values);
  const Trajectory straight = train(loop, 4, 6);
  EXPECT_EQ(train(resumed, 4, 6), straight);
  expect_near(train(cpu, 4, 6), straight);
  MemoryState of_cpu;
  cpu.save(of_cpu);
  resumed.load(of_cpu);
  set_values(resumed, all_values(cpu));
  expect_near(train(resumed, 7, 8), train(cpu, 7, 8));
  resumed.reset_optimizer();
  static_cast<void>(train(resumed, 9, 9));
  EXPECT_THAT(values_of_ranks(resumed, kRanks), testing::Each(values_now(resumed)));
}

TEST_P(DeviceMesh, EvaluatesAsOneDeviceDoes) {
  CudaMesh loop(mesh(), batches_.provider(), on_devices(kRanks));
  CudaLoop one(mesh(1), other_batches_.provider());
  RandomBatches many(kVocab, 11, kShort);
  const TokenBatch batch = many.at(StepIndex(1));
  EXPECT_NEAR(loop.loss(batch, LoopParameters(loop.parameters())),
              one.loss(batch, LoopParameters(one.parameters())), 1e-6);
}

TEST_P(DeviceMesh, RefusesWhatRanksOnDevicesDoNotDo) {
  const auto refused = [&](const char* text, const auto& change) {
    LanguageModelOptions options = mesh();
    change(options);
    try {
      const CudaMesh loop(options, batches_.provider(), on_devices(kRanks));
      ADD_FAILURE() << text << " was taken";
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr(text));
    }
  };
  refused("parallel.zero = 1", [](LanguageModelOptions& o) { o.zero = 1; });
  refused("parallel.codec_data = \"int8\"",
          [](LanguageModelOptions& o) { o.rank_codecs.data = "int8"; });
  refused("a mesh of 1 x 1 x 2 ranks", [](LanguageModelOptions& o) { o.forward_only = true; });
  refused("parallel.micro_batches = 3", [](LanguageModelOptions& o) { o.micro_batches = 3; });
}

INSTANTIATE_TEST_SUITE_P(Models, DeviceMesh, testing::Values("gpt2", "llama+"),
                         [](const auto& param) {
                           return std::string(param.index == 0 ? "gpt2" : "llama_grouped");
                         });

}  // namespace
}  // namespace isthmus::this_file
