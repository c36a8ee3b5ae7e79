// SPDX-License-Identifier: Apache-2.0
// What training a model folder is said to take, against what it takes.
#include <gtest/gtest.h>

#include <string>

#include "inner/hf/hf_config.h"
#include "inner/loop/language_model_loop.h"
#include "inner/loop/model_cost.h"
#include "test_paths.h"

namespace isthmus::this_file {
namespace {

const std::filesystem::path kFolders =
    std::filesystem::path(testing_support::kTestsFolder) / "inner/hf/data";

LanguageModelOptions options_of(const ModelConfig& model, std::int64_t context) {
  LanguageModelOptions options;
  options.model = model;
  options.context = context;
  options.sequences = 8;
  options.total_steps = 2;
  options.threads = 1;
  return options;
}

/// A step and an evaluation, so that all that can be there is there; the chunk of logits is there
/// while it is computed.
std::int64_t held_after_a_step(const LanguageModelOptions& options) {
  const auto tokens = static_cast<std::size_t>(options.sequences * options.context);
  const std::vector<std::int32_t> ids(tokens, 3);
  LanguageModelLoop loop(options, [&](StepIndex) {
    return TokenBatch{ids, ids, options.sequences, options.context};
  });
  (void)loop.train_step(StepIndex(1));
  return static_cast<std::int64_t>(loop.held_bytes());
}

void expect_foreseen(const LanguageModelOptions& options, const std::string& what) {
  const ModelLayout layout(model_shape(options.model, options.context));
  const MemoryEstimate foreseen = loop_memory(layout, options);
  const auto expected = static_cast<double>(foreseen.total() - foreseen.logits);
  EXPECT_NEAR(static_cast<double>(held_after_a_step(options)), expected, 0.05 * expected) << what;
}

TEST(HfMemory, OfEveryModelFolderIsWhatIsForeseen) {
  const SystemStorage storage;
  for (const std::string& name : storage.list(kFolders)) {
    const ModelConfig model = read_hf_config(storage, kFolders / name).model;
    for (const std::int64_t context : {std::int64_t{1}, model.context}) {
      for (const bool bf16 : {false, true}) {
        LanguageModelOptions options = options_of(model, context);
        options.bf16 = bf16;
        expect_foreseen(options, name);
        options.micro_batches = 4;
        expect_foreseen(options, name + " in micro-batches");
      }
    }
  }
}

// Tables of all positions would take 2 * 10 M * 2 / 2 * 4 = 80 MB.
TEST(HfMemory, OfRotaryTablesIsThatOfTheLongestPass) {
  const SystemStorage storage;
  ModelConfig model = read_hf_config(storage, kFolders / "llama").model;
  const std::int64_t context = model.context;
  const std::int64_t few = held_after_a_step(options_of(model, context));
  model.context = 10'000'000;
  EXPECT_EQ(held_after_a_step(options_of(model, context)), few);
  expect_foreseen(options_of(model, context), "10 M positions");
  model.context = 4096;
  expect_foreseen(options_of(model, 1024), "a long pass");
}

}  // namespace
}  // namespace isthmus::this_file
