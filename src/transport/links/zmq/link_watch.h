// SPDX-License-Identifier: Apache-2.0
// Checks at each heartbeat, from TCP's counters, the progress of values given to the connections of
// each peer, and tells the engine. Belongs to the task that owns all of them.
#pragma once

#include <map>

#include "transport/links/link_engine.h"
#include "transport/links/link_progress.h"
#include "transport/links/zmq/link_dialling.h"
#include "transport/links/zmq/zmq_sockets.h"

namespace isthmus {

class LinkWatch {
 public:
  /// Borrows all.
  LinkWatch(const MemberOptions& options, LinkEngine& engine, ZmqSockets& sockets,
            const LinkDialling& dialling)
      : options_(options), engine_(engine), sockets_(sockets), dialling_(dialling) {}

  /// Call in every turn.
  void look(TimePoint now);

 private:
  const MemberOptions& options_;
  LinkEngine& engine_;
  ZmqSockets& sockets_;
  const LinkDialling& dialling_;
  std::map<int, LinkProgress> progress_;  // by peer
  TimePoint next_look_{};
};

}  // namespace isthmus
