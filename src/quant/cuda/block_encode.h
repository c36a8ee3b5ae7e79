// SPDX-License-Identifier: Apache-2.0
// Queues the encoding of a vector with one grid; defined in block_encode_kernel.h.
#pragma once

#include "quant/cuda/tile_kernels.h"
#include "quant/math/block_grids.h"

namespace isthmus::cuda {

/// One thread block per tile; work.n >= 1. Does not wait.
template <typename G>
void launch_block_encode(Stream& stream, const BlockCodecSpec& spec, float most_scale,
                         const StochasticLevels& levels, const EncodeWork& work);

}  // namespace isthmus::cuda
