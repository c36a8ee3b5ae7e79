// SPDX-License-Identifier: Apache-2.0
// Fragments whose anchors, momenta and residuals are sharded over the ranks of a site, one lane per
// rank (outer/parts/lanes.h): the first rank's side. Local values are sent to the lanes before they
// are read, and return after they are written. For an outer gradient the lanes return their codes,
// which concatenated are the whole fragment's, and the squared norm of each tile. So norms, encoded
// bytes, anchors and checkpoints have the bits of FragmentState. One exception: if a value plus its
// residual overflows, only that rank's residuals start from zero, not all (every worker withholds
// Memory at the first rank, in addition to its lanes: 4 bytes a value of a fragment's anchor from a
// call of anchor() until the anchor changes or the next step begins; 4 bytes a value of one tensor
// at a time while a checkpoint is written or read. This memory is in pages that return to the
// system (core/state/own_pages.h). It is allocated, and a checkpoint is read and checked, before
// the ranks are asked: such a failure affects the first rank alone.
// alone.
#pragma once

#include <functional>
#include <memory>

#include "outer/parts/outer_fragment.h"
#include "outer/place/lane_service.h"

namespace isthmus::outer {

/// Runs a part on all ranks of the site: the first rank runs the given function with a communicator
/// over all ranks, while the other ranks run `Lanes::serve`.
using RanksCall = std::function<void(const std::function<void(Communicator&)>& part)>;

/// A maker of such fragments, with these settings. Borrows `inner` for the lifetime of the
/// fragments. Called on the first rank.
[[nodiscard]] FragmentMaker fragments_on_ranks(const FragmentedSettings& settings, InnerLoop& inner,
                                               RanksCall call);

}  // namespace isthmus::outer
