// SPDX-License-Identifier: Apache-2.0
// Meshes whose ranks keep their shares of the training state in files, held against the same in
// memory.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "config/schema/recompute.h"
#include "core/state/state_memory.h"
#include "core/temporary_directory.h"
#include "inner/mesh_test.h"

namespace isthmus::this_file {
namespace {

/// Shares of at least a MiB even on four ranks, below which arrays stay in memory.
LanguageModelOptions large(const Case& c, int zero, Recompute recompute) {
  LanguageModelOptions o = on_mesh(model_of("llama-tied"), c);
  o.model.d_model = 192;
  o.model.d_ff = 768;
  o.sequences = 4;
  o.context = 8;
  o.zero = zero;
  o.recompute = recompute;
  return o;
}

struct Outcome {
  std::vector<double> numbers;  // losses, norms
  std::vector<float> values;
};

Outcome trained(const LanguageModelOptions& options) {
  RandomBatches batches(kVocab, options.sequences, options.context);
  LanguageModelLoop loop(options, batches.provider());
  Outcome out;
  for (int t = 1; t <= 2; ++t) {
    const InnerStep step = loop.train_step(StepIndex(t));
    out.numbers.insert(out.numbers.end(), {step.loss, step.grad_norm});
    const CopiedParameters copy(loop);
    out.numbers.push_back(loop.loss(batches.at(StepIndex(100 + t)), copy));
  }
  // As ddp takes a step, and through a checkpoint's state.
  out.numbers.push_back(loop.gradients(StepIndex(4), {}).loss);
  out.numbers.push_back(loop.apply_gradients(StepIndex(4)));
  MemoryState state;
  loop.save(state);
  loop.load(state);
  out.numbers.push_back(loop.train_step(StepIndex(5)).loss);
  out.values = all_values(loop);
  return out;
}

void expect_same(const Outcome& in_files, const Outcome& in_memory) {
  EXPECT_EQ(in_files.numbers, in_memory.numbers);
  EXPECT_EQ(in_files.values, in_memory.values);
}

class MeshOffloadTest : public testing::TestWithParam<std::tuple<Case, int, Recompute>> {
 protected:
  LanguageModelOptions options_ =
      large(std::get<0>(GetParam()), std::get<1>(GetParam()), std::get<2>(GetParam()));
};

TEST_P(MeshOffloadTest, ThreadsHaveTheBitsOfTrainingInMemory) {
  const Outcome in_memory = trained(options_);
  const TemporaryDirectory directory;
  StateMemory memory({.folder = directory / "state"});
  const StateMemoryScope scope(&memory);
  expect_same(trained(options_), in_memory);
}

TEST_P(MeshOffloadTest, ProcessesHaveTheBitsOfTrainingInMemory) {
  const Outcome in_memory = trained(options_);
  const TemporaryDirectory directory;
  RankThreads ranks(options_.mesh, std::chrono::minutes(2));
  const ModelLayout layout(model_shape(options_.model, options_.context));
  std::vector<std::jthread> others;
  for (int r = 1; r < options_.mesh.ranks(); ++r) {
    others.emplace_back([&, r] {
      StateMemory memory({.folder = directory / "state"});  // one folder, as on one machine
      const StateMemoryScope scope(&memory);
      LanguageModelOptions own = options_;
      own.processes = &ranks[r];
      serve_mesh(layout, mesh_options(own), ranks[r]);
    });
  }
  StateMemory memory({.folder = directory / "state"});
  const StateMemoryScope scope(&memory);
  options_.processes = &ranks[0];
  expect_same(trained(options_), in_memory);
}

TEST_P(MeshOffloadTest, SharesLieInFilesAndAreForeseen) {
  const MeshOptions options = mesh_options(options_);
  const ModelLayout layout(model_shape(options_.model, options_.context));
  const TemporaryDirectory directory;
  auto worlds = make_thread_communicators(options.mesh.ranks(), std::chrono::minutes(2));
  std::vector<std::jthread> threads;
  for (std::size_t r = 0; r < worlds.size(); ++r) {
    threads.emplace_back([&, r] {
      StateMemory memory({.folder = directory / "state"});
      const StateMemoryScope scope(&memory);
      MeshRank rank(layout, options, *worlds[r], true);
      std::int64_t in_files = 0;
      const auto count = [&](const LocalValues& values, const char* what) {
        const auto size = static_cast<std::size_t>(values.range.size());
        EXPECT_TRUE(state_in_file({values.values, size})) << what << " of rank " << r;
        in_files += 4 * values.range.size();
      };
      for (std::size_t k = 0; k < rank.chunks(); ++k) {
        StageState& state = rank.state(k);
        count(state.own_weights(), "weights");
        count(state.gradients(), "gradients");
        if (options.zero == 0) continue;
        count(state.owned_values(RankValues::kMoment1), "first moments");
        count(state.owned_values(RankValues::kMoment2), "second moments");
      }
      EXPECT_EQ(in_files, MeshRank::stored_bytes(layout, options, static_cast<int>(r), true)) << r;
    });
  }
}

const Case kCases[] = {
    {"dp2", {.dp = 2}},
    {"tp2 dp2 split", {.tp = 2, .dp = 2, .sequence_parallel = true}, 2},
};
const Case kPipelines[] = {
    {"pp2 dp2", {.pp = 2, .dp = 2}, 2},
    {"zbh1", {.pp = 2, .dp = 2}, 2, PipelineKind::kZbH1},
};

std::string test_name(const testing::TestParamInfo<MeshOffloadTest::ParamType>& at) {
  std::string name = std::get<0>(at.param).name + "zero" + std::to_string(std::get<1>(at.param)) +
                     std::string(recompute_name(std::get<2>(at.param)));
  std::erase_if(name, [](char c) { return std::isalnum(c) == 0; });
  return name;
}

INSTANTIATE_TEST_SUITE_P(Meshes, MeshOffloadTest,
                         testing::Combine(testing::ValuesIn(kCases), testing::Values(0, 1, 2, 3),
                                          testing::Values(Recompute::kNone)),
                         test_name);
INSTANTIATE_TEST_SUITE_P(Recomputing, MeshOffloadTest,
                         testing::Combine(testing::Values(kCases[0]), testing::Values(0, 2, 3),
                                          testing::Values(Recompute::kSelective, Recompute::kFull)),
                         test_name);
INSTANTIATE_TEST_SUITE_P(Pipelines, MeshOffloadTest,
                         testing::Combine(testing::ValuesIn(kPipelines), testing::Values(0, 1),
                                          testing::Values(Recompute::kNone)),
                         test_name);

INSTANTIATE_TEST_SUITE_P(PipelinesOfSlices, MeshOffloadTest,
                         testing::Combine(testing::Values(kPipelines[0]), testing::Values(2, 3),
                                          testing::Values(Recompute::kNone)),
                         test_name);

}  // namespace
}  // namespace isthmus::this_file
