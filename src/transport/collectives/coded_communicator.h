// SPDX-License-Identifier: Apache-2.0
// A communicator whose sums and messages of floats are sent as a codec's bytes (compression by
// dimension, arXiv:2409.02423; spec: defaults by dimension). All other calls pass unchanged.
//
// A rank's own share passes the codec too, so all ranks sum the same decoded values in rank order
// and hold the same bits. There is no error feedback: an activation's element does not occur again,
// and gradients are averaged.
#pragma once

#include <memory>
#include <string_view>

#include "isthmus/codec.h"
#include "transport/collectives/communicator.h"

namespace isthmus {

/// Over `plain`, which it owns. `codec` is borrowed; with fp32 the result is `plain` itself.
/// all_reduce gathers all ranks' codes: each rank sends (n - 1) codes; reduce_scatter sends each
/// rank the code of its share. Reduce::kMax and other dtypes are not encoded.
[[nodiscard]] std::unique_ptr<Communicator> make_coded_communicator(
    std::unique_ptr<Communicator> plain, const Codec& codec);

}  // namespace isthmus
