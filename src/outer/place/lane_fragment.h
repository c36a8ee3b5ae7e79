// SPDX-License-Identifier: Apache-2.0
// Fragments whose anchors, momenta and residuals the ranks of a site share out, each its lane
// (outer/parts/lanes.h); this is what the first rank has of them. Local values go to the lanes
// before they are looked at and come back when they are written; of an outer gradient come back the
// codes, end to end those of the whole fragment, and the squared norm of each tile, so norms,
// encoded bytes, anchors and checkpoints have the bits of FragmentState. One case apart: where a
// value plus its residual overflows, that rank's residuals begin anew, not all (the contribution is
// withheld by all either way). Memory at the first rank, beside its lanes: 4 bytes a value of a
// fragment's anchor once somebody has asked for it, until it changes or the next step begins; as
// much for one tensor at a time while a checkpoint is written or read; in pages that go back to the
// system (core/state/own_pages.h). That is taken, and a checkpoint read and checked, before the
// ranks are asked: what fails there fails at the first rank alone.
#pragma once

#include <functional>
#include <memory>

#include "outer/parts/outer_fragment.h"
#include "outer/place/lane_service.h"

namespace isthmus::outer {

/// Has all ranks of the site take part in something: the first runs what it is given with a
/// communicator over all, the others meanwhile `Lanes::serve`.
using RanksCall = std::function<void(const std::function<void(Communicator&)>& part)>;

/// As the settings say, in the lanes of all ranks of the site. Borrows `inner` for the life of what
/// it makes. Called on the first rank.
[[nodiscard]] FragmentMaker fragments_on_ranks(const FragmentedSettings& settings, InnerLoop& inner,
                                               RanksCall call);

}  // namespace isthmus::outer
