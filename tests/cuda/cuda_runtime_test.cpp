// SPDX-License-Identifier: Apache-2.0
// device.h over the CUDA runtime: an answer is its call's alone, whoever asks for the last error
// afterwards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cuda/fake_cuda_runtime.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/device_errors.h"
#include "kernels/cuda/runtime_check.h"

namespace isthmus::cuda::this_file {
namespace {
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

class CudaRuntime : public testing::Test {
 protected:
  void TearDown() override { EXPECT_EQ(fake::last_error(), 0); }
  /// While `call` answers `error`.
  template <typename Use>
  static void with(const char* call, int error, const Use& use) {
    fake::answer(call, error);
    use();
    fake::answer(call, 0);
  }
};

TEST_F(CudaRuntime, AnEventThatIsNotReachedIsNoError) {
  const Event event;
  EXPECT_TRUE(event.reached());
  with("cudaEventQuery", fake::kNotReady, [&] { EXPECT_FALSE(event.reached()); });
  EXPECT_EQ(fake::last_error(), 0);
  with("cudaEventQuery", fake::kCaptureInvalidated,
       [&] { EXPECT_THROW(static_cast<void>(event.reached()), SystemError); });
}

TEST_F(CudaRuntime, AFailedCallIsNamedAndForgotten) {
  Stream stream;
  with("cudaStreamSynchronize", fake::kCaptureInvalidated, [&] {
    try {
      stream.synchronize();
      ADD_FAILURE();
    } catch (const SystemError& error) {
      EXPECT_THAT(error.what(), HasSubstr("cudaStreamSynchronize: as it was told to"));
    }
  });
}

TEST_F(CudaRuntime, ADeviceThatHasFailedIsLostWhicheverCallSaysSo) {
  Stream stream;
  const Event event;
  for (const char* const call : {"cudaStreamSynchronize", "cudaMemGetInfo", "cudaEventQuery"}) {
    with(call, fake::kIllegalAddress, [&] {
      EXPECT_THAT(
          [&] {
            stream.synchronize();
            check_alive();
            static_cast<void>(event.reached());
          },
          ThrowsMessage<DeviceLost>(AllOf(HasSubstr(std::string("cuda:0 is lost: ") + call),
                                          HasSubstr("--resume auto"), HasSubstr("dmesg"))));
    });
  }
  with("cudaMemGetInfo", fake::kCaptureInvalidated, [] { check_alive(); });
  check_alive();
}

TEST_F(CudaRuntime, AnyCallMayLackMemory) {
  Stream stream;
  with("cudaGraphLaunch", fake::kMemoryAllocation, [&] {
    const Graph graph(stream, [](const auto&) {});
    EXPECT_THAT([&] { graph.launch(stream); },
                ThrowsMessage<OutOfDeviceMemory>(
                    AllOf(HasSubstr("cudaGraphLaunch"), HasSubstr("5 of 7 bytes are free"))));
  });
}

TEST_F(CudaRuntime, ADriverThatIsTooOldIsToldFromNoneAndFromNoDevice) {
  const auto answers = [](int error, int driver) {
    std::pair<std::string, std::string> said;
    fake::set_driver_version(driver);
    with("cudaGetDeviceCount", error, [&] { said = {driver_fault(), unavailable()}; });
    fake::set_driver_version(fake::kRuntimeVersion);
    return said;
  };
  const auto old = answers(fake::kInsufficientDriver, 12040);
  EXPECT_THAT(old.first, AllOf(HasSubstr("driver is too old"), HasSubstr("CUDA 12.4"),
                               HasSubstr("runtime is 13.0"), HasSubstr("install driver 580")));
  EXPECT_EQ(old.second, old.first);
  const auto none = answers(fake::kInsufficientDriver, 0);
  EXPECT_EQ(none.first, "");
  EXPECT_THAT(none.second, HasSubstr("is its driver installed?"));
  EXPECT_EQ(answers(fake::kNoDevice, 13000),
            (std::pair<std::string, std::string>("", "this machine has no CUDA device")));
  const auto broken = answers(fake::kCaptureInvalidated, 13000);
  EXPECT_THAT(broken.first, AllOf(HasSubstr("cudaGetDeviceCount"), HasSubstr("nvidia-smi")));
  EXPECT_EQ(driver_fault(), "");
}

TEST_F(CudaRuntime, MemoryThatDoesNotSufficeIsForgotten) {
  with("cudaMalloc", fake::kMemoryAllocation,
       [&] { EXPECT_THROW(const DeviceArray<float> array(1), OutOfDeviceMemory); });
  with("cudaMallocHost", fake::kMemoryAllocation,
       [&] { EXPECT_THROW(const PinnedArray<float> array(1), SystemError); });
}

TEST_F(CudaRuntime, ARecordingThatFailsLeavesNothing) {
  Stream stream;
  with("cudaStreamEndCapture", fake::kCaptureInvalidated, [&] {
    EXPECT_THROW(const Graph graph(stream, [](const auto&) {}), SystemError);
    EXPECT_THROW(
        const Graph graph(stream, [](const auto&) { throw RunError("while it is recorded"); }),
        RunError);
  });
  with("cudaGraphInstantiate", fake::kMemoryAllocation,
       [&] { EXPECT_THROW(const Graph graph(stream, [](const auto&) {}), SystemError); });
}

TEST_F(CudaRuntime, AGraphThatIsCutHasAnEventBehindEachPartButTheLast) {
  Stream stream;
  Event event;
  const Graph graph(stream, [&](const Graph::Mark& mark) {
    mark(event);
    mark(event);
  });
  fake::take_calls("cudaGraphLaunch");
  fake::take_calls("cudaEventRecord");
  graph.launch(stream);
  EXPECT_EQ(fake::take_calls("cudaGraphLaunch"), 3);
  EXPECT_EQ(fake::take_calls("cudaEventRecord"), 2);
  for (const char* const call :
       {"cudaStreamEndCapture", "cudaGraphInstantiate", "cudaStreamBeginCapture"}) {
    EXPECT_THROW(const Graph broken(stream,
                                    [&](const Graph::Mark& mark) {
                                      fake::answer(call, fake::kCaptureInvalidated);
                                      mark(event);
                                    }),
                 SystemError);
    fake::answer(call, 0);
    EXPECT_EQ(fake::last_error(), 0) << call;
  }
}

// What a kernel is allowed is the kernel's: a launch of one thread with little shared memory must
// not lower what another thread's launch is about to need.
TEST_F(CudaRuntime, AKernelIsAllowedAllSharedMemoryOnceADevice) {
  static constexpr char kKernels[2] = {};
  constexpr int kMost = fake::kBlockSharedBytes - fake::kStaticSharedBytes;
  with("cudaFuncSetAttribute", fake::kMemoryAllocation,
       [&] { EXPECT_THROW(allow_shared_memory(&kKernels[0]), SystemError); });
  for (int i = 0; i < 3; ++i) allow_shared_memory(&kKernels[0]);
  EXPECT_THAT(fake::take_shared_bytes(), ElementsAre(kMost));
  allow_shared_memory(&kKernels[1]);
  EXPECT_THAT(fake::take_shared_bytes(), ElementsAre(kMost));
  use_device(1);
  for (int i = 0; i < 3; ++i) allow_shared_memory(&kKernels[0]);
  EXPECT_THAT(fake::take_shared_bytes(), ElementsAre(kMost));
  use_device(0);
  allow_shared_memory(&kKernels[0]);
  EXPECT_THAT(fake::take_shared_bytes(), IsEmpty());
}

TEST_F(CudaRuntime, StreamsHaveThreePrioritiesOfWhatTheDeviceHas) {
  static_cast<void>(fake::take_priorities());
  const Stream middle, low(Stream::Priority::kLow), high(Stream::Priority::kHigh);
  EXPECT_THAT(fake::take_priorities(), ElementsAre(-2, 0, -5));
  with("cudaDeviceGetStreamPriorityRange", fake::kCaptureInvalidated,
       [&] { EXPECT_THROW(const Stream none, SystemError); });
}

TEST_F(CudaRuntime, WhatFailsAtAnEndIsForgotten) {
  for (const char* const call : {"cudaStreamSynchronize", "cudaStreamDestroy", "cudaEventDestroy",
                                 "cudaFree", "cudaFreeHost"}) {
    with(call, fake::kCaptureInvalidated, [] {
      const Stream stream;
      const Event event;
      const DeviceArray<float> array(1);
      const PinnedArray<float> pinned(1);
    });
    EXPECT_EQ(fake::last_error(), 0) << call;
  }
}

TEST_F(CudaRuntime, WithoutADeviceThereIsAReasonAndNoError) {
  with("cudaGetDeviceCount", fake::kCaptureInvalidated, [] {
    EXPECT_TRUE(devices().empty());
    EXPECT_THAT(unavailable(), HasSubstr("no CUDA device can be used"));
    EXPECT_EQ(shared_bytes_of_block(), kMostSharedBytes);
  });
  EXPECT_EQ(shared_bytes_of_block(), std::size_t{99} << 10);
}

}  // namespace
}  // namespace isthmus::cuda::this_file
