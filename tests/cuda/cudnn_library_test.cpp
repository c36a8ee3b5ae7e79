// SPDX-License-Identifier: Apache-2.0
// Loading cuDNN, and what its frontend says to our graphs. No device is touched; without a cuDNN on
// this machine the second part skips by name.
#include "kernels/cuda/cudnn/cudnn_library.h"

#include <gmock/gmock.h>

#include "kernels/cuda/cudnn/cudnn_attention.h"

namespace isthmus::cuda::this_file {
namespace {
using testing::AllOf;
using testing::HasSubstr;

TEST(CudnnLibrary, ThatIsNotThereIsNamedWithTheRemedy) {
  const CudnnLibrary library = load_cudnn("libcudnn_of_nobody.so.9", 9, 91600, "libc.so.6");
  EXPECT_EQ(library.handle, nullptr);
  EXPECT_THAT(library.missing,
              AllOf(HasSubstr("libcudnn_of_nobody.so.9"), HasSubstr("install cuDNN 9.16 or later"),
                    HasSubstr("LD_LIBRARY_PATH"), HasSubstr("own kernels")));
}

TEST(CudnnLibrary, ThatIsAnotherLibraryIsRefused) {
  const CudnnLibrary library = load_cudnn("libc.so.6", 9, 91600, "libc.so.6");
  EXPECT_EQ(library.handle, nullptr);
  EXPECT_THAT(library.missing, HasSubstr("libc.so.6 has no cudnnGetVersion"));
}

class Cudnn : public testing::Test {
 protected:
  void SetUp() override {
    if (!cudnn_missing().empty()) GTEST_SKIP() << cudnn_missing();
  }
};

TEST_F(Cudnn, OfAnotherVersionIsRefused) {
  EXPECT_THAT(load_cudnn("libcudnn.so.9", 8, 80000, "libc.so.6").missing,
              HasSubstr("or later of major version 8 is needed"));
  EXPECT_THAT(load_cudnn("libcudnn.so.9", 9, 99999, "libc.so.6").missing,
              HasSubstr("9.99.99 or later of major version 9 is needed"));
  EXPECT_THAT(load_cudnn("libcudnn.so.9", 9, 91600, "libcudart_of_nobody.so").missing,
              HasSubstr("needs the CUDA runtime as a library: libcudart_of_nobody.so"));
}

// The frontend's own rules, of which cudnn_refusal is a summary.
TEST_F(Cudnn, ObjectsToWhatIsRefusedAndToNothingElse) {
  for (const int capability : {80, 86, 90, 120}) {
    for (const std::int64_t head_dim : {8, 20, 64, 96, 128, 136, 192, 256, 264}) {
      for (const std::int64_t seq : {1, 2, 40, 129, 1024}) {
        for (const std::int64_t kv_heads : {1, 2, 6}) {
          const AttentionShape shape{2, seq, 6, kv_heads, head_dim, 0.125};
          const auto rows = [&](std::int64_t row) {
            return kernels::heads_in_rows<const kernels::Bf16>(nullptr, seq, row, head_dim);
          };
          const std::int64_t qkv = (6 + 2 * kv_heads) * head_dim;
          const std::string objection = cudnn_objection(
              {shape, rows(qkv), rows(qkv), rows(qkv), rows(6 * head_dim)}, capability);
          EXPECT_EQ(objection.empty(), cudnn_refusal(shape, capability / 10).empty())
              << "compute capability " << capability << ", heads of " << head_dim << ", " << seq
              << " tokens: " << objection;
        }
      }
    }
  }
}

}  // namespace
}  // namespace isthmus::cuda::this_file
