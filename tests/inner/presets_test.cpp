// SPDX-License-Identifier: Apache-2.0
#include "inner/model/presets.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "inner/model/model_layout.h"
#include "isthmus/errors.h"

namespace isthmus::this_file {
namespace {

TEST(Workloads, AreThePresetsOfTheConfiguration) {
  int shared = 0;
  for (const Workload& workload : workloads()) {
    if (workload.name == "gpt2-124m-1k") continue;  // the same model on longer sequences
    const Config config = load_config_text(
        fmt::format("[model]\npreset = \"{}\"\n[data]\nsource = \"synth:markov3\"\n"
                    "[train]\nsteps = 1\ncontext = {}\nglobal_batch = \"{} tok\"\n"
                    "[outer]\nmethod = \"ddp\"\n",
                    workload.name, workload.context, workload.context),
        "preset.toml");
    const ModelLayout preset(model_shape(config.model, workload.context));
    const ModelLayout measured(model_shape(workload.model, workload.context));
    ASSERT_EQ(preset.tensors().size(), measured.tensors().size()) << workload.name;
    for (std::size_t i = 0; i < preset.tensors().size(); ++i) {
      EXPECT_EQ(preset.tensors()[i].name, measured.tensors()[i].name);
      EXPECT_EQ(preset.tensors()[i].shape, measured.tensors()[i].shape) << workload.name;
    }
    ++shared;
  }
  EXPECT_EQ(shared, 10);
}

TEST(Workloads, AnUnknownNameListsTheKnownOnes) {
  try {
    static_cast<void>(find_workload("big"));
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("'big'"));
    EXPECT_THAT(error.what(), testing::HasSubstr("small-10m"));
  }
}

}  // namespace
}  // namespace isthmus::this_file
