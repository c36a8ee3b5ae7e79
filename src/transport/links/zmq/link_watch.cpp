// SPDX-License-Identifier: Apache-2.0
#include "transport/links/zmq/link_watch.h"

#include <algorithm>

namespace isthmus {

void LinkWatch::look(TimePoint now) {
  if (now < next_look_) return;
  next_look_ = now + options_.heartbeat;
  for (int place = 0; place < options_.members; ++place) {
    const WorkerId peer(place);
    if (peer == options_.self || engine_.is_lost(peer)) continue;
    const bool passed_on = is_relayed(options_, peer) || dialling_.goes_around(peer);
    sockets_.judge_again(peer);
    const auto each = sockets_.each_counter(peer);
    engine_.moved(peer, progress_[place].observe(each, passed_on), now);
    Duration round_trip{0};
    for (const auto& counters : each) {
      if (counters) round_trip = std::max(round_trip, counters->rtt);
    }
    if (!passed_on && round_trip > Duration{0}) engine_.measured(peer, round_trip);
  }
}

}  // namespace isthmus
