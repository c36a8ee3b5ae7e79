// SPDX-License-Identifier: Apache-2.0
// Shares of the owners in a reduce, computed from the rates of members' lines, and shares that
// follow the measured rates of links during a run (net.shares = "measured"). Pure.
//
// Every member measures how fast contributions arrive from each peer, and reports the rates in
// DONE. The coordinator smooths the reported rates and moves the shares when a round takes 10 %
// longer than necessary. Its COMMIT of a fragment's round carries the shares of the fragment's next
// round. No member begins that round before it has this result, so all members cut every round
// alike without further messages. Such shares hold only within the membership number of the round:
// the first rounds after a join or leave, and open rounds that begin again, use the shares of the
// start of the run, so a joiner needs no extra information. Shares change no bit of a result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "isthmus/transport.h"
#include "transport/wire/frame.h"

namespace isthmus {

/// Shares as integers, in proportion. A member with b_i bit/s to all others, each way, moves V (1 +
/// (M - 2) f_i) bytes each way of a vector of V bytes. The f_i of sum 1 with the least T = max V (1
/// + (M - 2) f_i) / b_i are max(0, (T b_i / V - 1) / (M - 2)). Empty for even shares or two
/// members. lines: b by member, in any unit, above 0 and finite. owners: by member, 0 for a member
/// that may own nothing; empty: all may. Only sums, products and quotients of doubles, so the
/// result is the same on all machines.
[[nodiscard]] std::vector<std::uint32_t> shares_by_lines(std::span<const double> lines,
                                                         std::span<const std::uint32_t> owners);

/// T above for members with these `shares`, for a vector of 1 and `lines` in vectors per second:
/// the time of the slowest member. A line of 0 is unknown and left out.
[[nodiscard]] double time_of_shares(std::span<const double> lines,
                                    std::span<const std::uint32_t> shares);

/// Flag in a rate: the link may be faster, since the values arrived too fast to be measured.
inline constexpr std::uint64_t kAtLeast = std::uint64_t{1} << 63;

/// Measures how fast the contributions to a round arrive from each peer. A peer queues them all at
/// once when it begins the round, so its link is busy from the first frame to the last.
class ArrivalGauge {
 public:
  /// `connections`: of a link; as many frames may be in flight at once.
  ArrivalGauge(int members, int connections)
      : came_(static_cast<std::size_t>(members), 0), connections_(connections) {}

  /// A valid frame with values, of a round that is not final here.
  void took(WorkerId from, const SyncId& id, FrameKind kind, std::size_t bytes, TimePoint now);
  /// Bytes per second by peer, including frames of other rounds on the same link. 0: too few frames
  /// to measure; with kAtLeast: they arrived too fast to measure. Forgets the round and the earlier
  /// rounds of its fragment.
  [[nodiscard]] std::vector<std::uint64_t> take(const SyncId& id);
  /// The round begins again: what has arrived so far includes a pause.
  void forget(const SyncId& id) { bursts_.erase(id); }

 private:
  struct Burst {
    TimePoint first, last;
    std::uint64_t before = 0, after = 0;  // bytes of all values from this peer
    int frames = 0;                       // of the round
  };
  std::vector<std::uint64_t> came_;  // by peer
  const int connections_;
  std::map<SyncId, std::map<int, Burst>> bursts_;
};

/// A change of the shares, for people.
struct ShareMove {
  std::vector<std::uint32_t> before, shares;  // by member
  std::vector<double> lines;                  // bytes/s each way, by member; 0: not known
  double gain = 0;                            // share of a round's time that is saved, [0, 1)
};

/// At the coordinator.
class MeasuredShares {
 public:
  /// `first`: the shares at the start of a run, one a member, 0 for a member that may own nothing;
  /// empty: even shares.
  MeasuredShares(int members, std::span<const std::uint32_t> first);

  /// The rates at which values came to `to`, by peer, as ArrivalGauge measured them.
  void report(WorkerId to, std::span<const std::uint64_t> bytes_per_s);
  /// A member has left, or a new process has replaced it: forgets its measured rates.
  void forget(WorkerId member);
  /// A round of the members `live` has been committed. RETURNS: the shares from now on.
  [[nodiscard]] const std::vector<std::uint32_t>& after_commit(const std::vector<bool>& live);
  /// The last move since the last call.
  [[nodiscard]] std::optional<ShareMove> take_move();

  /// At a restarted hub: continues with the shares that the previous process chose.
  void restore(std::vector<std::uint32_t> shares) { shares_ = std::move(shares); }

 private:
  /// By member, bytes/s: the mean over its measured links, the slower direction of each.
  [[nodiscard]] std::vector<double> lines(const std::vector<bool>& live) const;

  const std::size_t members_;
  std::vector<std::uint32_t> owners_;  // 0: may own nothing
  std::vector<std::uint32_t> shares_;
  std::vector<double> seconds_per_byte_;  // [to][from], smoothed; 0: not known
  int commits_ = 0;                       // since shares were moved
  std::optional<ShareMove> move_;
};

/// The bytes after the digest in a DONE (rates) and in a COMMIT (shares): one number a member.
[[nodiscard]] std::vector<std::byte> write_rates(std::span<const std::uint64_t> bytes_per_s);
[[nodiscard]] std::vector<std::byte> write_shares(std::span<const std::uint32_t> shares);
/// RETURNS: nothing when `bytes` do not hold one number a member; for shares also when no member
/// would own anything.
[[nodiscard]] std::optional<std::vector<std::uint64_t>> read_rates(std::span<const std::byte> bytes,
                                                                   int members);
[[nodiscard]] std::optional<std::vector<std::uint32_t>> read_shares(
    std::span<const std::byte> bytes, int members);

}  // namespace isthmus
