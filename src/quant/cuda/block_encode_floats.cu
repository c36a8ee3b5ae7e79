// SPDX-License-Identifier: Apache-2.0
// Encoding kernels of block codecs: small floating-point numbers.
#include "quant/cuda/block_encode_kernel.h"

namespace isthmus::cuda {

template void launch_block_encode<E2M1Grid>(Stream&, const BlockCodecSpec&, float,
                                            const StochasticLevels&, const EncodeWork&);
template void launch_block_encode<E3M0Grid>(Stream&, const BlockCodecSpec&, float,
                                            const StochasticLevels&, const EncodeWork&);
template void launch_block_encode<E3M0LogGrid>(Stream&, const BlockCodecSpec&, float,
                                               const StochasticLevels&, const EncodeWork&);
template void launch_block_encode<E4M3Grid>(Stream&, const BlockCodecSpec&, float,
                                            const StochasticLevels&, const EncodeWork&);
template void launch_block_encode<E5M2Grid>(Stream&, const BlockCodecSpec&, float,
                                            const StochasticLevels&, const EncodeWork&);

}  // namespace isthmus::cuda
