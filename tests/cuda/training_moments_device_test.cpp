// SPDX-License-Identifier: Apache-2.0
// Adam's moments of loops on devices, as others on the host read and write them.
#include "cuda/mesh_case.h"

namespace isthmus::this_file {
namespace {

class DeviceMoments : public CudaLoopTest {
 protected:
  void SetUp() override {
    CudaLoopTest::SetUp();
    options_.model.layers = 1;
  }
  LanguageModelOptions options_ = tiny_options("gpt2");
};

/// First moments of all tensors, then second ones.
std::vector<float> as_they_stand(InnerLoop& loop) {
  std::vector<float> first, second;
  for (std::size_t i = 0; i < loop.parameters().size(); ++i) {
    const AdamMoments moments = loop.adam_moments(i);
    first.insert(first.end(), moments.first.begin(), moments.first.end());
    second.insert(second.end(), moments.second.begin(), moments.second.end());
  }
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

std::vector<float> moments_now(InnerLoop& loop) {
  loop.read_moments(all_elements(loop));
  return as_they_stand(loop);
}

/// Changes the moments of some elements, as an outer method does.
void change_moments(InnerLoop& loop, CanonicalRange elements) {
  loop.read_moments(elements);
  for (std::size_t i = 0; i < loop.parameters().size(); ++i) {
    const CanonicalRange tensor = loop.parameters()[i].elements;
    const AdamMoments moments = loop.adam_moments(i);
    for (std::int64_t e = tensor.begin; e < tensor.end; ++e) {
      if (e < elements.begin || e >= elements.end) continue;
      const auto k = static_cast<std::size_t>(e - tensor.begin);
      moments.first[k] *= -0.5f;
      moments.second[k] *= 2;
    }
  }
  loop.wrote_moments(elements);
}

/// What a loop on the CPU makes of a checkpoint.
struct OnCpu {
  OnCpu(const LanguageModelOptions& options, const InnerLoop& saved)
      : batches(kVocab, options.sequences, kLength), loop(options, batches.provider()) {
    MemoryState state;
    saved.save(state);
    loop.load(state);
  }
  RandomBatches batches;
  LanguageModelLoop loop;
};

/// Those of its checkpoint.
std::vector<float> saved_moments(const LanguageModelOptions& options, const InnerLoop& loop) {
  OnCpu cpu(options, loop);
  return as_they_stand(cpu.loop);
}

TEST_F(DeviceMoments, AreThoseOfTheLastStep) {
  CudaLoop loop(options_, batches_.provider());
  EXPECT_THAT(moments_now(loop), testing::Each(0.0f));
  std::vector<float> before;
  for (int t = 1; t <= 4; ++t) {  // by the recorded update too
    static_cast<void>(loop.train_step(StepIndex(t)));
    const std::vector<float> now = moments_now(loop);
    EXPECT_EQ(now, saved_moments(options_, loop)) << t;
    EXPECT_NE(now, before);
    before = now;
  }
  static_cast<void>(loop.gradients(StepIndex(5), {}));
  EXPECT_EQ(moments_now(loop), before);
  static_cast<void>(loop.apply_gradients(StepIndex(5)));
  EXPECT_EQ(moments_now(loop), saved_moments(options_, loop));
}

// Whole, or parts that meet no neighbour: others stay as the device has them.
TEST_F(DeviceMoments, WhatIsWrittenIsWhatTheNextUpdateReads) {
  const std::int64_t end = CudaLoop(options_, batches_.provider()).parameters().back().elements.end;
  const std::vector<std::vector<CanonicalRange>> cases = {
      {{0, end}}, {{100, 200}}, {{7, 9}, {end - 50, end}}, {{0, end}, {5, 50}}, {{3, 4}, {0, end}}};
  for (const std::vector<CanonicalRange>& ranges : cases) {
    CudaLoop loop(options_, batches_.provider());
    static_cast<void>(moments_now(loop));
    const std::vector<float> values = train(loop, 1, 2).values;
    OnCpu cpu(options_, loop);
    for (const CanonicalRange& range : ranges) {
      change_moments(loop, range);
      change_moments(cpu.loop, range);
    }
    CudaLoop expected(options_, cpu_batches_.provider());
    MemoryState state;
    cpu.loop.save(state);
    expected.load(state);
    set_values(expected, values);
    EXPECT_EQ(train(loop, 3, 5), train(expected, 3, 5)) << ranges.size();
    EXPECT_EQ(moments_now(loop), moments_now(expected));
  }
}

TEST_F(DeviceMoments, WhatIsWrittenIsSaved) {
  CudaLoop loop(options_, batches_.provider());
  static_cast<void>(train(loop, 1, 2));
  static_cast<void>(moments_now(loop));
  change_moments(loop, all_elements(loop));
  const std::vector<float> written = as_they_stand(loop);
  EXPECT_EQ(saved_moments(options_, loop), written);
  EXPECT_EQ(moments_now(loop), written);
}

TEST_F(DeviceMoments, OthersThatTakeTheirPlaceAreReadAndNotWrittenOver) {
  CudaLoop loop(options_, batches_.provider());
  static_cast<void>(train(loop, 1, 2));
  MemoryState state;
  loop.save(state);
  const std::vector<float> saved = moments_now(loop);
  change_moments(loop, all_elements(loop));
  loop.load(state);
  EXPECT_EQ(moments_now(loop), saved);
  change_moments(loop, all_elements(loop));
  loop.reset_optimizer();
  EXPECT_THAT(moments_now(loop), testing::Each(0.0f));
}

TEST_F(DeviceMoments, AreRefusedWhereTheOptimizerIsAnotherOne) {
  options_.inner.optimizer = "sgd";
  CudaLoop loop(options_, batches_.provider());
  loop.read_moments(all_elements(loop));  // of none
  EXPECT_THROW(static_cast<void>(loop.adam_moments(0)), ConfigError);
}

TEST_F(DeviceMoments, GradientsThatStayThereAreNotAppliedFromTheHost) {
  CudaLoop loop(options_, batches_.provider());
  loop.keep_gradients_on_device(true);
  static_cast<void>(loop.gradients(StepIndex(1), {}));
  EXPECT_DEATH(static_cast<void>(loop.apply_gradients(StepIndex(1))), "gradients_stay_");
  loop.keep_gradients_on_device(false);
  static_cast<void>(loop.gradients(StepIndex(1), {}));
  EXPECT_GT(loop.apply_gradients(StepIndex(1)), 0);
}

TEST_F(DeviceMoments, OfAMeshGoToAllRanksBeforeTheNextUpdate) {
  constexpr int kRanks = 2;
  const LanguageModelOptions options = with_ranks(options_, kRanks);
  RandomBatches batches(kVocab, kMeshSequences, kLength), others(kVocab, kMeshSequences, kLength);
  CudaMesh mesh(options, batches.provider(), on_devices(kRanks));
  const std::vector<float> values = train(mesh, 1, 3).values;
  OnCpu cpu(with_ranks(options_, 1), mesh);
  static_cast<void>(moments_now(mesh));
  change_moments(mesh, all_elements(mesh));
  change_moments(cpu.loop, all_elements(mesh));
  static_cast<void>(mesh.gradients(StepIndex(4), {}));  // needs no moments
  static_cast<void>(mesh.apply_gradients(StepIndex(4)));
  for (int i = 0; i < kRanks; ++i) {
    EXPECT_EQ(moments_now(mesh.loop_of(i)), moments_now(mesh)) << i;
  }
  CudaMesh expected(options, others.provider(), on_devices(kRanks));
  MemoryState state;
  cpu.loop.save(state);
  expected.load(state);
  set_values(expected, values);
  static_cast<void>(train(expected, 4, 4));
  EXPECT_EQ(moments_now(mesh), moments_now(expected));
  EXPECT_EQ(train(mesh, 5, 6), train(expected, 5, 6));
  EXPECT_THAT(values_of_ranks(mesh, kRanks), testing::Each(values_now(mesh)));
}

}  // namespace
}  // namespace isthmus::this_file
