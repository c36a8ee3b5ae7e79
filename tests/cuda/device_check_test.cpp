// SPDX-License-Identifier: Apache-2.0
// A device that fails, or computes wrong things, is found out before a run is given to it.
#include "inner/cuda/device_check.h"

#include <gmock/gmock.h>

#include "cuda/emulated/runtime.h"
#include "cuda/training_case.h"

namespace isthmus::this_file {
namespace {
using testing::AllOf;
using testing::HasSubstr;

class DeviceCheck : public testing::Test {
 protected:
  void TearDown() override {
    cuda::emulated::set_launches_fail(false);
    cuda::emulated::set_product_factor(1);
    cuda::emulated::set_skipped_kernels("");
  }
};

TEST_F(DeviceCheck, PassesADeviceThatComputesWhatTheCpuDoes) {
  for (const char* const model : {"gpt2", "llama", "llama+", "family"}) {
    for (const bool bf16 : {false, true}) {
      for (const char* const optimizer : {"adamw", "sgd", "muon"}) {
        LanguageModelOptions options = tiny_options(model);
        options.bf16 = bf16;
        options.inner.optimizer = optimizer;
        EXPECT_EQ(device_self_check(options), "") << model << bf16 << optimizer;
      }
    }
  }
  LanguageModelOptions forward_only = tiny_options("gpt2");
  forward_only.forward_only = true;
  forward_only.recompute = Recompute::kSelective;
  EXPECT_EQ(device_self_check(forward_only), "");
}

TEST_F(DeviceCheck, NamesWhatFails) {
  cuda::emulated::set_launches_fail(true);
  EXPECT_THAT(
      device_self_check(tiny_options("gpt2")),
      HasSubstr("a step of a tiny model fails there: CUDA: kernel launch: no kernel image"));
}

TEST_F(DeviceCheck, NamesWhatDiffers) {
  for (const bool bf16 : {false, true}) {
    LanguageModelOptions options = tiny_options("llama");
    options.bf16 = bf16;
    cuda::emulated::set_product_factor(1.25f);
    EXPECT_THAT(device_self_check(options),
                AllOf(HasSubstr("the gradient of"), HasSubstr("on the CPU")));
  }
}

// Losses and norms may not show it: the second step's are of weights that have hardly moved.
TEST_F(DeviceCheck, FindsAnOptimizerThatDoesNothing) {
  cuda::emulated::set_skipped_kernels("ParameterRun");
  for (const bool bf16 : {false, true}) {
    for (const char* const optimizer : {"adamw", "sgd", "muon"}) {
      LanguageModelOptions options = tiny_options("gpt2");
      options.bf16 = bf16;
      options.inner.optimizer = optimizer;
      EXPECT_THAT(device_self_check(options), HasSubstr("tiny model")) << bf16 << optimizer;
    }
  }
}

// What AdamW does to the rest is right, and more.
TEST_F(DeviceCheck, FindsMatricesThatMuonDoesNotChange) {
  cuda::emulated::set_skipped_kernels("MuonMatrix");
  for (const bool bf16 : {false, true}) {
    for (const char* const model : {"gpt2", "llama+"}) {
      LanguageModelOptions options = tiny_options(model);
      options.bf16 = bf16;
      options.inner.optimizer = "muon";
      EXPECT_THAT(device_self_check(options), HasSubstr("in the layers' matrices of a tiny model"))
          << bf16 << model;
    }
  }
}

TEST_F(DeviceCheck, TrainsWithTheRunsMomentum) {
  for (const bool nesterov : {false, true}) {
    LanguageModelOptions options = tiny_options("llama");
    options.inner.optimizer = "sgd";
    options.inner.momentum = 0.9;
    options.inner.nesterov = nesterov;
    EXPECT_EQ(device_self_check(options), "");
  }
}

}  // namespace
}  // namespace isthmus::this_file
