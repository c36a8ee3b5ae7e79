// SPDX-License-Identifier: Apache-2.0
// What the task that owns the sockets of a member shares with the member: orders one way, answers
// the other. The transport guards it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "transport/links/key_table.h"
#include "transport/links/link_gauge.h"
#include "transport/links/network_transport.h"

namespace isthmus {

struct ZmqShared {
  /// With how often the peer had come back, as far as the owner knew.
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
    bool last = false;  // to be answered whatever the answer is
  };
  struct Answer {
    bool joined = false;
    std::optional<JoinError> error = {};
    std::string missing = {};
    std::vector<WorkerId> absent = {};
  };

  std::vector<Submitted> submitted;
  std::vector<Taken> taken;
  std::size_t taken_bytes = 0;
  bool woken = false;
  bool closing = false;
  std::string failure;  // nothing is sent any more; empty: none
  std::optional<Question> question;
  std::optional<Answer> answer;
  std::map<int, Loss> why;                         // by lost peer
  std::map<int, std::uint64_t> returns;            // by peer, of those that the owner knows of
  std::map<int, int> streams;                      // to be used from now on, by peer
  std::optional<KeyTable> keys;                    // to be used from now on
  std::uint64_t keys_version = 0;                  // of the newest that was given
  std::optional<std::vector<WorkerId>> with_keys;  // once that is known
  std::optional<WorkerId> asks_counters;
  std::optional<std::optional<LinkCounters>> counted;  // the answer
};

}  // namespace isthmus
