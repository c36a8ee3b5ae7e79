// SPDX-License-Identifier: Apache-2.0
// The trainer of one site whose ranks are devices that have shares of the layers (tensor
// parallelism) or some of them (pipeline stages): threads of this process, each a CudaMeshRank.
// Ranks keep weights, gradients and moments and update them, as a mesh on the CPU with ZeRO does,
// so a LanguageModelLoop drives them; the canonical weights, in the host's memory, are collected
// where somebody reads them and handed out where somebody has written them. Checkpoints are those
// of any mesh.
//
// Threads: one drives it; it keeps the device of the first rank.
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

/// Of each rank of such a mesh.
[[nodiscard]] CudaMeshRankOptions cuda_mesh_rank_options(const LanguageModelOptions& options,
                                                         const CudaLoopSettings& settings);

}  // namespace isthmus
