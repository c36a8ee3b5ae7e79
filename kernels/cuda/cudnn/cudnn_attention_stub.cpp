// SPDX-License-Identifier: Apache-2.0
// Chosen by CMake when cuDNN's headers or CUDA are not there: says so and computes nothing.
#include "isthmus/errors.h"
#include "kernels/cuda/cudnn/cudnn_attention.h"

namespace isthmus::cuda {

std::string cudnn_missing() {
  return "this build has no attention by cuDNN (configure with CUDA and the headers cudnn.h and "
         "cudnn_frontend.h, or with ISTHMUS_CUDNN=ON to insist)";
}

std::string cudnn_version() { return ""; }

std::string cudnn_refusal_here(const AttentionShape&) { return cudnn_missing(); }

std::string cudnn_objection(const AttentionLayout&, int) { return cudnn_missing(); }

struct CudnnAttention::Impl {};

CudnnAttention::CudnnAttention(const AttentionLayout&, Passes) {
  throw SystemError("cuDNN: " + cudnn_missing());
}
CudnnAttention::~CudnnAttention() = default;

std::size_t CudnnAttention::workspace_bytes() const { return 0; }
bool CudnnAttention::takes(const AttentionShape&) const { return false; }

void CudnnAttention::forward(Stream&, HeadsView<const kernels::Bf16>,
                             HeadsView<const kernels::Bf16>, HeadsView<const kernels::Bf16>,
                             HeadsView<kernels::Bf16>, float*, void*) {}
void CudnnAttention::backward(Stream&, const kernels::AttentionBackward<kernels::Bf16>&, void*) {}

}  // namespace isthmus::cuda
