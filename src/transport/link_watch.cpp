// SPDX-License-Identifier: Apache-2.0
#include "transport/link_watch.h"

namespace isthmus {

void LinkWatch::look(TimePoint now) {
  if (now < next_look_) return;
  next_look_ = now + options_.heartbeat;
  for (int place = 0; place < options_.members; ++place) {
    const Rank peer(place);
    if (peer == options_.self || engine_.is_lost(peer)) continue;
    const bool passed_on = is_relayed(options_, peer) || dialling_.goes_around(peer);
    engine_.moved(peer, progress_[place].observe(sockets_.each_counter(peer), passed_on), now);
  }
}

}  // namespace isthmus
