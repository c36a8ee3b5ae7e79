// SPDX-License-Identifier: Apache-2.0
// The parts of a CudaLoop for its options: their sizes, and error texts for lack of memory. Pure
// functions.
#pragma once

#include <string>

#include "inner/cuda/cuda_batches.h"
#include "inner/cuda/cuda_loop.h"
#include "inner/cuda/cuda_model.h"

namespace isthmus {

/// THROWS: ConfigError for options that devices do not support: selective recomputation; in meshes
/// among others ZeRO, sequence parallelism, codecs between ranks, ranks that are processes.
void check_cuda_options(const LanguageModelOptions& options);

/// The options of each rank of a mesh that is a CudaLoop (cuda_mesh.h); for one rank `options`.
[[nodiscard]] LanguageModelOptions cuda_rank_options(const LanguageModelOptions& options);

[[nodiscard]] CudaModelOptions cuda_model_options(const LanguageModelOptions& options,
                                                  const CudaLoopSettings& settings);
[[nodiscard]] CudaBatches::Shape cuda_batches_shape(const ModelLayout& layout,
                                                    const LanguageModelOptions& options);

/// The error text: the bytes that rank `rank` needs, by part, the memory of its device (the calling
/// thread's), and the settings that lower the need. cause: CUDA's error.
[[nodiscard]] std::string cuda_memory_error(const LanguageModelOptions& options,
                                            const CudaLoopSettings& settings,
                                            const std::string& cause, int rank = 0);

/// The same for a run that has begun: another process has taken memory, or loading a kernel's code
/// failed.
[[nodiscard]] std::string cuda_step_memory_error(const LanguageModelOptions& options,
                                                 const std::string& cause);

}  // namespace isthmus
