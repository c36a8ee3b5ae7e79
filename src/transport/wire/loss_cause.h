// SPDX-License-Identifier: Apache-2.0
// What the loss of a peer says about the peer.
#pragma once

namespace isthmus {

enum class LossCause {
  kGone,     // that it is not there, or of no use
  kStalled,  // nothing: it is heard and takes nothing, and the fault may be at either end
  kGivenUp,  // that it counts this member as lost: as it may say of a stalled one
};

}  // namespace isthmus
