// SPDX-License-Identifier: Apache-2.0
// The state shared by a member and the task that owns its sockets. The member writes submitted,
// taken, question, streams, keys and asks_counters; the task writes near, failure, answer, why,
// with_keys and counted. Protected by the lock of the transport's wait queue.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/links/key_table.h"
#include "transport/links/link_gauge.h"
#include "transport/links/network_transport.h"

namespace isthmus {

struct ZmqShared {
  /// A frame to send. `returns`: how often the peer had been reported back to the member by then.
  struct Submitted {
    WorkerId to;
    FrameBytes frame;
    std::uint64_t returns = 0;
  };
  struct Taken {
    WorkerId from;
    std::size_t bytes = 0;
    std::uint64_t returns = 0;
  };
  struct Loss {
    std::string why;
    LossCause cause = LossCause::kGone;
  };
  struct Question {
    std::vector<WorkerId> these;
    bool last = false;  // answer at once, even if not all have joined
  };
  struct Answer {
    bool joined = false;
    std::optional<JoinError> error = {};
    std::string missing = {};
    std::vector<WorkerId> absent = {};
  };

  // By peer, as the task last found it; without lock.
  std::unique_ptr<std::atomic<bool>[]> within_machine;
  std::vector<Submitted> submitted;
  std::vector<Taken> taken;     // frames that the member has read
  std::size_t taken_bytes = 0;  // their charges; the task is woken at acknowledged_at_once()
  bool woken = false;           // the task has been woken and not run yet
  bool closing = false;         // the member has closed the transport
  std::string failure;          // of the sockets: nothing is sent any more; empty: none
  std::optional<Question> question;
  std::optional<Answer> answer;
  std::map<int, Loss> why;                             // by lost peer
  std::map<int, std::uint64_t> returns;                // by peer, as reported to the member
  std::map<int, int> streams;                          // number of connections to use, by peer
  std::optional<KeyTable> keys;                        // to be used from now on
  std::uint64_t keys_version = 0;                      // of the newest table
  std::optional<std::vector<WorkerId>> with_keys;      // members with a key, once known
  std::optional<WorkerId> asks_counters;               // a request for the counters of this peer
  std::optional<std::optional<LinkCounters>> counted;  // the answer; inner empty: no counters
};

}  // namespace isthmus
