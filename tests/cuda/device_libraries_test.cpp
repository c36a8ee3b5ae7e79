// SPDX-License-Identifier: Apache-2.0
// Loading cuBLASLt and NCCL: what is missing, of another version, or no such library is named with
// the version that the build was made with and the remedy. No device is touched.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "isthmus/errors.h"
#include "kernels/cuda/cublas_calls.h"
#include "transport/collectives/nccl_calls.h"

namespace isthmus::this_file {
namespace {
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::string old_libraries() {
  const char* const path = std::getenv("ISTHMUS_OLD_LIBRARIES");
  return path == nullptr ? "" : path;
}

void load_cublas(const std::string& name) { static_cast<void>(cuda::load_cublas_calls(name)); }
void load_nccl(const std::string& name) {
  NcclCalls calls;
  add_nccl_calls(calls, name);
}

/// What each error of cuBLASLt says.
auto cublas_says(const std::string& what) {
  const std::string major = std::to_string(CUBLAS_VER_MAJOR);
  return ThrowsMessage<SystemError>(AllOf(HasSubstr(what), HasSubstr("made with " + major + "."),
                                          HasSubstr("libcublas of CUDA " + major),
                                          HasSubstr("LD_LIBRARY_PATH"), HasSubstr("--device cpu")));
}

TEST(DeviceLibraries, CublasThatIsMissingOrOfAnotherVersion) {
  ASSERT_NE(old_libraries(), "");
  EXPECT_THAT([] { load_cublas("libcublasLt_of_nobody.so.13"); },
              cublas_says("libcublasLt_of_nobody.so.13"));
  EXPECT_THAT([] { load_cublas(old_libraries()); }, cublas_says("is of version 12.4.5"));
  EXPECT_THAT([] { load_cublas("libc.so.6"); }, cublas_says("libc.so.6 has no cublasLtGetVersion"));
}

auto nccl_says(const std::string& what) {
  return ThrowsMessage<SystemError>(
      AllOf(HasSubstr("communicator \"nccl\""), HasSubstr(what), HasSubstr("\"threads\"")));
}

TEST(DeviceLibraries, NcclThatIsMissingOrTooOld) {
  EXPECT_THAT([] { load_nccl("libnccl_of_nobody.so.2"); }, nccl_says("libnccl_of_nobody.so.2"));
  EXPECT_THAT([] { load_nccl(old_libraries()); },
              nccl_says("is of version 2.14.3, and this build, made with 2."));
  EXPECT_THAT([] { load_nccl("libc.so.6"); }, nccl_says("libc.so.6 has no ncclGetVersion"));
}

}  // namespace
}  // namespace isthmus::this_file
