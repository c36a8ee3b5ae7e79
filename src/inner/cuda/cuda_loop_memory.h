// SPDX-License-Identifier: Apache-2.0
// What a CudaLoop is made of, as its options say: sizes of its parts, and the words for what does
// not fit. Pure functions.
#pragma once

#include <string>

#include "inner/cuda/cuda_batches.h"
#include "inner/cuda/cuda_loop.h"
#include "inner/cuda/cuda_model.h"

namespace isthmus {

/// THROWS: ConfigError for what devices do not do: of meshes what is shared out beyond layers and
/// samples, codecs between ranks, ranks that are processes.
void check_cuda_options(const LanguageModelOptions& options);

/// Of each rank of a mesh that is a CudaLoop (cuda_mesh.h); of one rank `options`.
[[nodiscard]] LanguageModelOptions cuda_rank_options(const LanguageModelOptions& options);

[[nodiscard]] CudaModelOptions cuda_model_options(const LanguageModelOptions& options,
                                                  const CudaLoopSettings& settings);
[[nodiscard]] CudaBatches::Shape cuda_batches_shape(const ModelLayout& layout,
                                                    const LanguageModelOptions& options);

/// How much rank `rank` needs, by part, of how much its device, the calling thread's, has, and
/// which settings lower it. cause: what CUDA said.
[[nodiscard]] std::string cuda_memory_error(const LanguageModelOptions& options,
                                            const CudaLoopSettings& settings,
                                            const std::string& cause, int rank = 0);

/// The same of a run that has begun: another process has taken memory, or a kernel's code found
/// none.
[[nodiscard]] std::string cuda_step_memory_error(const LanguageModelOptions& options,
                                                 const std::string& cause);

}  // namespace isthmus
