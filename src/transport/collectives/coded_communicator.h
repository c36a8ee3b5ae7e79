// SPDX-License-Identifier: Apache-2.0
// A communicator whose sums and messages of float travel as a codec's bytes (compression by
// dimension, arXiv:2409.02423; spec: defaults by dimension). Everything else passes as it is.
//
// A rank's own share goes through the codec too, so all ranks sum the same decoded values in rank
// order and hold the same bits. There is no error feedback: the same element does not come again
// for activations, and gradients are averaged.
#pragma once

#include <memory>
#include <string_view>

#include "isthmus/codec.h"
#include "transport/collectives/communicator.h"

namespace isthmus {

/// Over `plain`, which it owns. `codec` is borrowed; fp32 leaves `plain` as it is. all_reduce
/// gathers all ranks' codes: (n - 1) codes sent by each; reduce_scatter sends each rank its share's
/// code. Reduce::kMax and other dtypes are not encoded.
[[nodiscard]] std::unique_ptr<Communicator> make_coded_communicator(
    std::unique_ptr<Communicator> plain, const Codec& codec);

}  // namespace isthmus
