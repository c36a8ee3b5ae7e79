// SPDX-License-Identifier: Apache-2.0
// Encoding kernels of block codecs: grids of at most eight values.
#include "quant/cuda/block_encode_kernel.h"

namespace isthmus::cuda {

template void launch_block_encode<Lm2Grid>(Stream&, const BlockCodecSpec&, float,
                                           const StochasticLevels&, const EncodeWork&);
template void launch_block_encode<Lm3Grid>(Stream&, const BlockCodecSpec&, float,
                                           const StochasticLevels&, const EncodeWork&);
template void launch_block_encode<TernaryGrid>(Stream&, const BlockCodecSpec&, float,
                                               const StochasticLevels&, const EncodeWork&);
template void launch_block_encode<SignGrid>(Stream&, const BlockCodecSpec&, float,
                                            const StochasticLevels&, const EncodeWork&);

}  // namespace isthmus::cuda
