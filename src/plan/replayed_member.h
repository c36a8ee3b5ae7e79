// SPDX-License-Identifier: Apache-2.0
// The timing of one member of the exchange: the frames that it sends after each received frame
// (transport/exchange/exchange_round.cpp and commit_protocol.cpp without values and loss). Rounds
// are counted in the order of their begin, which is the same on all members.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "plan/run_program.h"

namespace isthmus::plan {

struct ReplayedFrame {
  enum class Kind : std::uint8_t { kContribution, kResult, kDone, kCommit, kBye };
  Kind kind = Kind::kBye;
  std::size_t to = 0;
  int round = 0;
  int shape = 0;  // of the round: a member may not have begun it yet
  int part = 0;
  std::uint64_t payload = 0;  // encoded values in it
  std::uint64_t bytes = 0;    // in total
};

class ReplayedMember {
 public:
  /// Borrows `shapes`.
  ReplayedMember(std::size_t self, std::size_t members, std::span<const RoundShape> shapes)
      : self_(self), members_(members), shapes_(shapes) {}

  using Outbox = std::vector<ReplayedFrame>;
  void begin(int shape, Outbox& out);
  void receive(const ReplayedFrame& frame, Outbox& out);
  void leave(Outbox& out);

  [[nodiscard]] int begun() const { return begun_; }
  /// Whether a worker that waits for `round` may continue.
  [[nodiscard]] bool closed(int round) const { return rounds_.at(round).closed; }
  /// The worker has continued: nothing arrives for the round any more.
  void taken(int round) { rounds_.erase(round); }

 private:
  struct Part {
    std::size_t inputs = 0;  // contributions received, including this member's
    bool done = false;
  };
  struct Round {
    int shape = 0;
    std::size_t open_parts = 0;
    std::vector<Part> parts;
    std::vector<int> covers;  // rounds covered by its DONE
    bool closed = false;
  };

  [[nodiscard]] bool reduces(const RoundShape::Part& part) const {
    return part.owner < 0 || part.owner == static_cast<int>(self_);
  }
  void feed(int number, const ReplayedFrame& frame, Outbox& out);
  void add_input(int number, int part, Outbox& out);
  void finish_part(int number, int part);
  void finish_round(int number);
  void say_done_where_whole(Outbox& out);
  void take_done(int number, Outbox& out);
  void close(int number);
  void to_peers(const ReplayedFrame& frame, Outbox& out) const;

  std::size_t self_;
  std::size_t members_;
  std::span<const RoundShape> shapes_;
  int begun_ = 0;
  std::map<int, Round> rounds_;                      // begun and not taken
  std::map<int, std::vector<ReplayedFrame>> early_;  // of rounds not begun here yet
  std::vector<int> uncovered_;                       // begun, to be covered by a later round
  std::set<int> uncommitted_;                        // complete and not covered yet
  std::set<std::pair<int, int>> unsettled_;          // commit, no DONE: (fragment, round) by id
  std::map<int, std::size_t> dones_;                 // on member 0: members with the result
};

}  // namespace isthmus::plan
