// SPDX-License-Identifier: Apache-2.0
// The trainer of one site whose ranks are devices with shares of the layers (tensor parallelism) or
// with some layers (pipeline stages): threads of this process, each a CudaMeshRank. Ranks keep
// weights, gradients and moments and update them, as a mesh on the CPU with ZeRO does, so a
// LanguageModelLoop drives them. The canonical weights, in host memory, are collected from the
// ranks before they are read, and sent to them after they were written. Checkpoints are those of
// any mesh.
//
// Threads: one thread drives it; its current device stays that of the first rank.
#pragma once

#include <memory>

#include "inner/cuda/cuda_mesh.h"
#include "inner/cuda/cuda_mesh_rank.h"
#include "inner/loop/language_model_loop.h"
#include "isthmus/inner_loop.h"

namespace isthmus {

/// THROWS: as make_cuda_mesh. REQUIRES: a device for each rank of options.mesh.
[[nodiscard]] std::unique_ptr<InnerLoop> make_cuda_mesh_of_shares(
    const LanguageModelOptions& options, BatchProvider batches, const CudaMeshOptions& mesh);

/// Device memory of each rank of such a mesh.
[[nodiscard]] CudaMeshRankOptions cuda_mesh_rank_options(const LanguageModelOptions& options,
                                                         const CudaLoopSettings& settings);

}  // namespace isthmus
