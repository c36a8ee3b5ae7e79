// SPDX-License-Identifier: Apache-2.0
// Encoding kernels of block codecs: integers and NF4.
#include "quant/cuda/block_encode_kernel.h"

namespace isthmus::cuda {

template void launch_block_encode<Int8Grid>(Stream&, const BlockCodecSpec&, float,
                                            const StochasticLevels&, const EncodeWork&);
template void launch_block_encode<Int4Grid>(Stream&, const BlockCodecSpec&, float,
                                            const StochasticLevels&, const EncodeWork&);
template void launch_block_encode<Uint8Grid>(Stream&, const BlockCodecSpec&, float,
                                             const StochasticLevels&, const EncodeWork&);
template void launch_block_encode<Nf4Grid>(Stream&, const BlockCodecSpec&, float,
                                           const StochasticLevels&, const EncodeWork&);

}  // namespace isthmus::cuda
