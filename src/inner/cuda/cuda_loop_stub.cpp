// SPDX-License-Identifier: Apache-2.0
// Chosen by CMake when there is no CUDA: refuses by name.
#include <fmt/format.h>

#include "inner/cuda/cuda_loop.h"
#include "inner/cuda/cuda_mesh.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {
[[noreturn]] void refuse() {
  throw ConfigError(fmt::format("device cuda: {}; train with --device cpu", cuda::unavailable()));
}
}  // namespace

std::unique_ptr<InnerLoop> make_cuda_loop(const LanguageModelOptions&, BatchProvider) { refuse(); }

std::unique_ptr<InnerLoop> make_cuda_mesh(const LanguageModelOptions&, BatchProvider,
                                          const CudaMeshOptions&) {
  refuse();
}

MemoryEstimate cuda_loop_memory(const ModelLayout&, const LanguageModelOptions&,
                                const CudaLoopSettings&, int) {
  refuse();
}

bool attention_is_cudnn(const ModelLayout&, const LanguageModelOptions&) { refuse(); }

}  // namespace isthmus
