// SPDX-License-Identifier: Apache-2.0
// Training whose arrays lie in files, held against the same in memory.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "core/state/state_memory.h"
#include "core/temporary_directory.h"
#include "inner/inner_test.h"
#include "inner/loop/language_model_loop.h"

namespace isthmus::this_file {
namespace {

constexpr std::int64_t kSequences = 4;
constexpr std::int64_t kLength = 16;
constexpr std::int64_t kVocab = 4099;  // a head of several pages whose border is within one

struct Case {
  const char* name;
  const char* arch;
  bool tied = true;
  const char* optimizer = "adamw";
  Recompute recompute = Recompute::kNone;
  std::int64_t micro_batches = 1;
  MeshShape mesh = {};
};

LanguageModelOptions options_of(const Case& c) {
  LanguageModelOptions o;
  o.model = {.arch = c.arch,
             .layers = 3,
             .d_model = 96,
             .heads = 4,
             .vocab = kVocab,
             .context = 32,
             .tied = c.tied};
  o.inner.optimizer = c.optimizer;
  o.inner.lr = 2e-3;
  if (o.inner.optimizer != "adamw") o.inner.momentum = 0.9;
  o.context = kLength;
  o.sequences = kSequences;
  o.micro_batches = c.micro_batches;
  o.recompute = c.recompute;
  o.total_steps = 10;
  o.threads = 2;
  o.seed = 5;
  o.mesh = c.mesh;
  return o;
}

/// Parameters of a copy that lies wherever arrays lie.
class CopiedParameters final : public ParameterSource {
 public:
  explicit CopiedParameters(const InnerLoop& loop) {
    for (const Parameter& parameter : loop.parameters()) copies_.emplace_back(parameter.values);
  }
  [[nodiscard]] std::span<const float> values(std::size_t parameter) const override {
    return copies_[parameter].span();
  }

 private:
  std::vector<StateArray> copies_;
};

struct Outcome {
  std::vector<double> numbers;  // losses, norms
  std::vector<float> values;
  bool operator==(const Outcome&) const = default;
};

Outcome train(const LanguageModelOptions& options, bool in_files) {
  RandomBatches batches(kVocab, options.sequences, options.context);
  LanguageModelLoop loop(options, batches.provider());
  EXPECT_EQ(state_in_file(loop.parameters()[0].values), in_files);
  EXPECT_EQ(state_in_file(loop.gradient(0)), in_files);
  Outcome out;
  for (int t = 1; t <= 3; ++t) {
    const InnerStep step = loop.train_step(StepIndex(t));
    out.numbers.insert(out.numbers.end(), {step.loss, step.grad_norm});
    const CopiedParameters copy(loop);
    out.numbers.push_back(loop.loss(batches.at(StepIndex(100 + t)), copy));
  }
  // As ddp takes a step.
  out.numbers.push_back(loop.gradients(StepIndex(4), {}).loss);
  out.numbers.push_back(loop.apply_gradients(StepIndex(4)));
  out.values = all_values(loop);
  return out;
}

class OffloadTest : public testing::TestWithParam<Case> {};

TEST_P(OffloadTest, HasTheBitsOfTrainingInMemory) {
  const LanguageModelOptions options = options_of(GetParam());
  const Outcome in_memory = train(options, false);
  const TemporaryDirectory directory;
  StateMemory memory({.folder = directory / "state"});
  const StateMemoryScope scope(&memory);
  const Outcome in_files = train(options, true);
  EXPECT_EQ(in_files.numbers, in_memory.numbers);
  EXPECT_EQ(in_files.values, in_memory.values);
  EXPECT_GT(memory.traffic().written_bytes, 0);  // how much by now is a matter of the disk
}

INSTANTIATE_TEST_SUITE_P(
    Ways, OffloadTest,
    testing::Values(
        Case{.name = "Gpt2", .arch = "gpt2"},
        Case{.name = "Gpt2Recomputed", .arch = "gpt2", .recompute = Recompute::kFull},
        Case{.name = "Gpt2Untied", .arch = "gpt2", .tied = false},
        Case{.name = "Llama", .arch = "llama", .tied = false},
        Case{.name = "Selective",
             .arch = "llama",
             .recompute = Recompute::kSelective,
             .micro_batches = 2},
        Case{.name = "LlamaTied", .arch = "llama", .tied = true, .recompute = Recompute::kFull},
        Case{.name = "Parts", .arch = "gpt2", .recompute = Recompute::kFull, .micro_batches = 2},
        Case{.name = "Muon", .arch = "llama", .tied = false, .optimizer = "muon"},
        Case{.name = "Sgd", .arch = "gpt2", .optimizer = "sgd"},
        Case{.name = "Mesh", .arch = "gpt2", .mesh = {.tp = 2, .pp = 1, .dp = 1}},
        Case{.name = "Pipeline",
             .arch = "llama",
             .tied = false,
             .micro_batches = 2,
             .mesh = {.tp = 1, .pp = 2, .dp = 1}}),
    [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace isthmus::this_file
