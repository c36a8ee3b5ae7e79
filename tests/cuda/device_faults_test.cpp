// SPDX-License-Identifier: Apache-2.0
// Training on a device that fails in the middle: one error, of the device, whoever sees it first;
// nothing can be saved of it, and nobody waits for it.
#include <fmt/format.h>

#include "core/state/state_memory.h"
#include "cuda/emulated/faults.h"
#include "cuda/emulated/runtime.h"
#include "cuda/mesh_case.h"
#include "kernels/cuda/device_errors.h"

namespace isthmus::this_file {
namespace {
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr int kRanks = 2;

class DeviceFaults : public CudaLoopTest {
 protected:
  void SetUp() override { cuda::use_device(0); }
  void TearDown() override {
    cuda::emulated::end_faults();
    cuda::emulated::set_streams_late();
    cuda::use_device(0);
  }

  LanguageModelOptions options_ = tiny_options("gpt2");
};

/// What steps from `first` on end with: the error's text where it is a DeviceLost.
[[nodiscard]] std::string end_of(InnerLoop& loop, int first) {
  try {
    for (int t = first; t < first + 4; ++t) static_cast<void>(loop.train_step(StepIndex(t)));
  } catch (const cuda::DeviceLost& error) {
    return error.what();
  } catch (const std::exception& error) {
    return fmt::format("another error: {}", error.what());
  }
  return "no error";
}

[[nodiscard]] auto is_lost(int ordinal) {
  return AllOf(HasSubstr(fmt::format("cuda:{} is lost: ", ordinal)),
               HasSubstr("an illegal memory access was encountered"), HasSubstr("--resume auto"),
               HasSubstr("CUDA_VISIBLE_DEVICES"));
}

TEST_F(DeviceFaults, ADeviceThatIsLostInAStepEndsItAndAllThatFollows) {
  for (const bool graphs : {false, true}) {
    for (const int kernels : {0, 1, 20, 100}) {
      CudaLoop loop(options_, batches_.provider(), {.graphs = graphs});
      static_cast<void>(train(loop, 1, 3));
      cuda::emulated::lose_device(0, kernels);
      EXPECT_THAT(end_of(loop, 4), is_lost(0)) << kernels;
      EXPECT_THAT(end_of(loop, 5), is_lost(0)) << kernels;
      cuda::emulated::end_faults();
    }
  }
}

TEST_F(DeviceFaults, ARecordingOfALostDeviceIsNotTriedByHand) {
  CudaLoop loop(options_, batches_.provider());
  static_cast<void>(train(loop, 1, 1));
  cuda::emulated::lose_device(0, 0);
  testing::internal::CaptureStderr();
  EXPECT_THAT(end_of(loop, 2), is_lost(0));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST_F(DeviceFaults, ALostDeviceOfAMeshIsTheErrorOfAllRanks) {
  for (const bool early : {false, true}) {
    for (const int lost : {0, 1}) {
      for (const int kernels : {0, 30, 120}) {
        if (early) cuda::emulated::set_streams_early();
        RandomBatches batches(kVocab, kMeshSequences, kLength);
        CudaMeshOptions on = on_devices(kRanks);
        on.loop.bucket_values = 1;
        auto mesh =
            std::make_unique<CudaMesh>(with_ranks(options_, kRanks), batches.provider(), on);
        static_cast<void>(train(*mesh, 1, 3));
        cuda::emulated::lose_device(lost, kernels);
        EXPECT_THAT(end_of(*mesh, 4), is_lost(lost)) << kernels;
        testing::internal::CaptureStderr();
        mesh.reset();  // waits for nobody, and has nothing to add
        EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
        cuda::emulated::end_faults();
        cuda::use_device(0);
      }
    }
  }
}

TEST_F(DeviceFaults, ALostDeviceOfAMeshOfSharesIsTheErrorOfAllRanks) {
  for (const MeshShape& shape : {MeshShape{.tp = 2}, MeshShape{.pp = 2}}) {
    for (const int lost : {0, 1}) {
      LanguageModelOptions options = with_ranks(options_, 1);
      options.mesh = shape;
      options.micro_batches = 2;
      RandomBatches batches(kVocab, kMeshSequences, kLength);
      auto mesh = make_cuda_mesh(options, batches.provider(), on_devices(kRanks));
      static_cast<void>(mesh->train_step(StepIndex(1)));
      cuda::emulated::lose_device(lost, 40);
      EXPECT_THAT(end_of(*mesh, 2), is_lost(lost)) << shape.tp;
      testing::internal::CaptureStderr();
      mesh.reset();
      EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
      cuda::emulated::end_faults();
      cuda::use_device(0);
    }
  }
}

TEST_F(DeviceFaults, MemoryThatAStepDoesNotFindIsNamedWithTheRemedies) {
  for (const bool graphs : {false, true}) {
    CudaLoop loop(options_, batches_.provider(), {.graphs = graphs});
    static_cast<void>(train(loop, 1, 3));
    cuda::emulated::exhaust_launches(0, graphs ? 1 : 30);
    EXPECT_THAT(
        [&] {
          for (int t = 4; t <= 5; ++t) static_cast<void>(loop.train_step(StepIndex(t)));
        },
        ThrowsMessage<SystemError>(AllOf(
            HasSubstr("does not suffice in the middle of a run"), HasSubstr("out of memory"),
            HasSubstr(graphs ? "cudaGraphLaunch" : "kernel launch"), HasSubstr("bytes are free"),
            HasSubstr("train.recompute = true"), HasSubstr("--resume auto"))));
    cuda::emulated::end_faults();
  }
}

}  // namespace
}  // namespace isthmus::this_file
