// SPDX-License-Identifier: Apache-2.0
// Encoding of block codecs, by grid; the kernels are compiled in block_encode_*.cu.
#include "quant/cuda/block_encode.h"

namespace isthmus::cuda {

void encode_blocks(Stream& stream, const BlockCodecSpec& spec, float most_scale,
                   const StochasticLevels& levels, const EncodeWork& work) {
  visit_grid(spec.grid, [&]<typename G>(G) {
    launch_block_encode<G>(stream, spec, most_scale, levels, work);
  });
}

}  // namespace isthmus::cuda
