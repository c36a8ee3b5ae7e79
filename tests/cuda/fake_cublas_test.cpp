// SPDX-License-Identifier: Apache-2.0
// What matmul.cpp asks of cuBLASLt and of the device, over a fake of the one and an emulated other.
#include "cuda/device_test.h"
#include "cuda/emulated/runtime.h"
#include "kernels/cuda/matmul.h"

namespace isthmus::cuda::this_file {
namespace {

TEST(FakeCublas, IsFoundWithoutMemoryOfADevice) {
  emulated::set_device_memory(1 << 10);  // another process has the rest
  EXPECT_EQ(products_missing(), "");
  EXPECT_THROW(Blas(), OutOfDeviceMemory);
  emulated::set_device_memory(std::size_t{4} << 30);
}

TEST(FakeCublas, SaysItsVersion) { EXPECT_EQ(products_version(), "13.2.9"); }

}  // namespace
}  // namespace isthmus::cuda::this_file
