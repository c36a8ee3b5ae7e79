// SPDX-License-Identifier: Apache-2.0
// The number of connections that a directed link should use, from TCP's counters on those in use.
//
// If packets are lost at random, loss and round trip bound a connection's throughput (Mathis: 1.22
// MSS / (RTT sqrt(p))) below the line's capacity, so more connections get more. If packets are lost
// because the line is full, or if congestion control ignores loss (BBR), more connections get
// nothing. The counters cannot tell these cases apart, so the policy tries: it doubles the number,
// and reverts that if the throughput has not grown. BBR is recognized by name: there more
// connections only fill the queue, so the policy does not try. Pure: no side effects; one task.
#pragma once

#include <optional>

#include "transport/links/link_gauge.h"

namespace isthmus {

class StreamPolicy {
 public:
  /// Share of retransmitted segments above which loss limits the connections, if at least kRepeated
  /// were retransmitted. Below it loss does not limit, so halving costs nothing.
  static constexpr double kLossy = 0.0002;
  static constexpr std::uint64_t kRepeated = 2;
  /// Fewest segments between two decisions, in total and for each connection: about 12 MB with the
  /// internet's segments, so that 0.1 % loss shows 8 retransmissions. After a change as many
  /// segments are ignored: new connections run too fast until loss has shrunk their windows.
  static constexpr std::uint64_t kSegments = 8192, kSegmentsEach = 1024;
  /// Factor by which a tried number must raise the throughput.
  static constexpr double kPays = 1.1;
  /// Decisions without another try after a failed one; the number doubles after each failure in a
  /// row, up to kLongestHold.
  static constexpr int kFirstHold = 8, kLongestHold = 64;
  /// Decisions without loss, in a row, before the number is halved.
  static constexpr int kCalm = 8;

  /// REQUIRES: 1 <= fewest <= most. Begins with the fewest.
  StreamPolicy(int fewest, int most) : fewest_(fewest), most_(most), streams_(fewest) {}

  [[nodiscard]] int streams() const { return streams_; }
  /// counted: on the first streams() connections since they opened; lower than before if one of
  /// them has reopened. waited: frames had to wait for a connection since the last call. RETURNS:
  /// the number to use from now on.
  int observe(const LinkCounters& counted, bool waited);

 private:
  struct Tried {
    int before = 0;
    double rate = 0;  // with `before` connections
  };
  /// loss_blind: congestion control that ignores loss.
  int decide(bool lossy, bool waited, double rate, bool loss_blind);
  int change_to(int streams);

  int fewest_, most_, streams_;
  std::optional<LinkCounters> begin_;  // counters at the start of the current interval
  bool waited_ = false;                // in the current interval
  bool settling_ = true;
  std::optional<Tried> tried_;  // the current number, not yet found worth it
  int calm_ = 0;
  int hold_ = 0, next_hold_ = kFirstHold;
};

}  // namespace isthmus
