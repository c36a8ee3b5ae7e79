// SPDX-License-Identifier: Apache-2.0
// The words of a build without cuDNN's headers.
#include <gmock/gmock.h>

#include "isthmus/errors.h"
#include "kernels/cuda/cudnn/cudnn_attention.h"

namespace isthmus::cuda::this_file {
namespace {
using testing::AllOf;
using testing::HasSubstr;

TEST(CudnnStub, SaysWhatTheBuildLacks) {
  EXPECT_THAT(cudnn_missing(), AllOf(HasSubstr("this build has no attention by cuDNN"),
                                     HasSubstr("cudnn_frontend.h"), HasSubstr("ISTHMUS_CUDNN=ON")));
  EXPECT_EQ(cudnn_version(), "");
  try {
    const CudnnAttention attention({}, CudnnAttention::Passes::kBoth);
    FAIL() << "made";
  } catch (const SystemError& error) {
    EXPECT_THAT(error.what(), HasSubstr("this build has no attention by cuDNN"));
  }
}

}  // namespace
}  // namespace isthmus::cuda::this_file
