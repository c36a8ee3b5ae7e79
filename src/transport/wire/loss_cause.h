// SPDX-License-Identifier: Apache-2.0
// What the loss of a peer tells about the peer.
#pragma once

namespace isthmus {

enum class LossCause {
  kGone,     // it is absent, or unusable
  kStalled,  // nothing: it is heard and reads nothing; either end may be at fault
  kGivenUp,  // it counts this member as lost: as it may say of a stalled one
};

}  // namespace isthmus
