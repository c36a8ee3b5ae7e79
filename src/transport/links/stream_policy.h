// SPDX-License-Identifier: Apache-2.0
// How many connections a directed link should use, from what TCP counts on those it uses.
//
// Where packets are lost at random, a connection gets what loss and round trip leave it
// (Mathis: 1.22 MSS / (RTT sqrt(p))), whatever the line could carry, so more of them get more.
// Where packets are lost because the line is full, or where congestion control does not mind (BBR),
// more get nothing. The counters cannot tell one from the other, so the policy tries: it doubles
// the number, and takes that back when what arrives has not grown. Only BBR is known by its name:
// there more connections fill the queue and bring nothing, so it does not try. Pure; one task.
#pragma once

#include <optional>

#include "transport/links/link_gauge.h"

namespace isthmus {

class StreamPolicy {
 public:
  /// Of sent segments: repeating more says that connections are held down by loss, if at least
  /// kRepeated were. Below, halving costs nothing, as loss does not bind.
  static constexpr double kLossy = 0.0002;
  static constexpr std::uint64_t kRepeated = 2;
  /// Segments between two decisions, at least, and for each connection: 12 MB over the internet, 8
  /// repetitions at 0.1 % loss. As many pass after a change before anything counts: connections
  /// that start have the line until loss has brought their windows down.
  static constexpr std::uint64_t kSegments = 8192, kSegmentsEach = 1024;
  /// A number that was tried must bring so much more than the one before.
  static constexpr double kPays = 1.1;
  /// Decisions without another try after one that was taken back; twice as many after the next.
  static constexpr int kFirstHold = 8, kLongestHold = 64;
  /// Decisions without loss, in a row, before the number is halved.
  static constexpr int kCalm = 8;

  /// REQUIRES: 1 <= fewest <= most. Begins with the fewest.
  StreamPolicy(int fewest, int most) : fewest_(fewest), most_(most), streams_(fewest) {}

  [[nodiscard]] int streams() const { return streams_; }
  /// counted: on the first streams() connections, since they stand; less than before when one of
  /// them stands anew. waited: frames had to wait for a connection since the last call.
  /// RETURNS: how many to use from now on.
  int observe(const LinkCounters& counted, bool waited);

 private:
  struct Tried {
    int before = 0;
    double rate = 0;  // that those before had brought
  };
  /// loss_blind: congestion control that does not slow down for it.
  int decide(bool lossy, bool waited, double rate, bool loss_blind);
  int change_to(int streams);

  int fewest_, most_, streams_;
  std::optional<LinkCounters> begin_;  // of what is decided on next
  bool waited_ = false;                // since then
  bool settling_ = true;
  std::optional<Tried> tried_;  // the present number, not yet found worth it
  int calm_ = 0;
  int hold_ = 0, next_hold_ = kFirstHold;
};

}  // namespace isthmus
