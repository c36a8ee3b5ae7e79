// SPDX-License-Identifier: Apache-2.0
// Data that were appended to while a run was at rest: what a worker reads from then on, and that
// its state takes that along, to a checkpoint and to a site that joins.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "app/common/commands.h"
#include "app/train/language_model_trainer.h"
#include "core/base/system_runtime.h"
#include "core/state/state_bytes.h"
#include "core/state/state_snapshot.h"
#include "core/temporary_directory.h"

namespace isthmus::app::this_file {
namespace {

constexpr const char* kFile = R"([model]
layers = 1
d_model = 16
heads = 2
[data]
source = "text:a.txt"
val_fraction = 0.1
[train]
steps = 100
global_batch = "64 tok"
context = 16
threads = 1
[eval]
tokens = "all"
[outer]
method = "diloco"
H = 4
)";

class GrownData : public testing::Test {
 protected:
  void put(int numbers) {
    std::string text;
    for (int i = 0; i < numbers; ++i) text += std::to_string(i * i % 9973) + " ";
    write_atomically(storage_, directory_ / "a.txt", text);
  }
  /// One that has opened the data as they are now.
  struct Worker {
    explicit Worker(const std::filesystem::path& folder)
        : config(load_config_text(kFile, folder / "run.toml", {}, schema_context())),
          plan(make_training_plan(config, std::vector<int>{0})),
          data(Dataset::open(storage, config.data, folder)),
          trainer({.config = config, .plan = plan, .storage = storage, .data = data}, WorkerId(0),
                  SystemRuntime()) {}
    SystemStorage storage;
    Config config;
    TrainingPlan plan;
    Dataset data;
    LanguageModelTrainer trainer;
  };
  [[nodiscard]] std::unique_ptr<Worker> worker() {
    return std::make_unique<Worker>(directory_.path());
  }
  static std::vector<double> losses(Worker& worker, std::int64_t begin, std::int64_t end) {
    std::vector<double> all;
    for (std::int64_t t = begin; t < end; ++t) {
      all.push_back(worker.trainer.loop().train_step(StepIndex(t)).loss);
    }
    return all;
  }
  static void give(Worker& from, Worker& to) {
    StateSnapshot state;
    from.trainer.loop().save(state);
    for (const Parameter& each : from.trainer.loop().parameters()) {
      state.tensor("local/" + each.name, each.values);
    }
    const auto reader = read_state(write_state(state));
    ASSERT_TRUE(reader.has_value());
    for (const Parameter& each : to.trainer.loop().parameters()) {
      (*reader)->tensor("local/" + each.name, each.values);
      to.trainer.loop().wrote_values(each.elements);
    }
    to.trainer.loop().load(**reader);
  }
  TemporaryDirectory directory_;
  SystemStorage storage_;
};

TEST_F(GrownData, TheStateTakesTheHistoryOfTheDataAlong) {
  put(600);
  const std::unique_ptr<Worker> before = worker();
  losses(*before, 1, 11);
  const auto tokens = before->data.tokens();
  put(900);
  const std::unique_ptr<Worker> grown = worker();
  give(*before, *grown);
  grown->trainer.data_grew({.after_step = 10, .tokens = tokens});
  losses(*grown, 11, 15);
  const std::unique_ptr<Worker> joined = worker();
  const std::unique_ptr<Worker> fresh = worker();
  give(*grown, *joined);
  give(*grown, *fresh);
  EXPECT_EQ(joined->trainer.evaluation_parts(), before->trainer.evaluation_parts());
  EXPECT_EQ(losses(*joined, 15, 30), losses(*grown, 15, 30));
  StateSnapshot of_no_growth;
  before->trainer.loop().save(of_no_growth);
  fresh->trainer.loop().load(**read_state(write_state(of_no_growth)));
  EXPECT_NE(fresh->trainer.evaluation_parts(), before->trainer.evaluation_parts());
}

}  // namespace
}  // namespace isthmus::app::this_file
