// SPDX-License-Identifier: Apache-2.0
// Shares of the owners in a reduce by the rates of members' lines; and such that follow what links
// carry while a run goes on (net.shares = "measured"). Pure.
//
// Every member gauges how fast contributions come from each peer, and says so with DONE. The
// coordinator keeps what it has been told, smoothed, and where a round
// takes a tenth longer than it need it moves them. Its COMMIT of a fragment's round carries the
// shares of that fragment's next one: nobody begins that before it has the result of this one, so
// all members cut every round alike, without a word more. Shares so told hold within the epoch of
// the round; the first rounds after somebody has come or gone, and open ones that begin again, are
// cut as at the start of the run, so that who joins needs to know nothing. No bit depends on
// shares.
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

/// In parts of their sum. A member with b_i bit/s to all others, each way, moves V (1 + (M - 2)
/// f_i) bytes each way of a vector of V, so the f_i of sum 1 that give the least T = max V (1 + (M
/// - 2) f_i) / b_i are max(0, (T b_i / V - 1) / (M - 2)). Even shares, or two members: nothing.
/// lines: b by member, in any unit, above 0 and finite. owners: by member, 0 for who may own
/// nothing; none: all may. Additions, products and quotients of doubles alone, so the same on all
/// machines.
[[nodiscard]] std::vector<std::uint32_t> shares_by_lines(std::span<const double> lines,
                                                         std::span<const std::uint32_t> owners);

/// T above in vectors over a line of 1, of members that own these shares: what takes longest.
/// `lines` as above, or 0: not known, left out.
[[nodiscard]] double time_of_shares(std::span<const double> lines,
                                    std::span<const std::uint32_t> shares);

/// Set in a rate where the link may well be faster: what came was there in a moment.
inline constexpr std::uint64_t kAtLeast = std::uint64_t{1} << 63;

/// How fast contributions to a round come from each peer. They are all queued at once when it
/// begins the round, so from the first one to the last the link is busy, whatever others do.
class ArrivalGauge {
 public:
  /// `connections`: of a link; so many frames may be under way at once.
  ArrivalGauge(int members, int connections)
      : came_(static_cast<std::size_t>(members), 0), connections_(connections) {}

  /// A frame of values, whole and of a round that is not through.
  void took(WorkerId from, const SyncId& id, FrameKind kind, std::size_t bytes, TimePoint now);
  /// Bytes per second by peer, frames of other rounds on the same link counted in; 0: too few have
  /// come to tell; with kAtLeast where they have come too fast to tell more. The round, and those
  /// sent before it, are forgotten.
  [[nodiscard]] std::vector<std::uint64_t> take(const SyncId& id);
  /// It begins again: what has come so far is of a pause, too.
  void forget(const SyncId& id) { bursts_.erase(id); }

 private:
  struct Burst {
    TimePoint first, last;
    std::uint64_t before = 0, after = 0;  // bytes of all values from that peer
    int frames = 0;                       // of the round
  };
  std::vector<std::uint64_t> came_;  // by peer
  const int connections_;
  std::map<SyncId, std::map<int, Burst>> bursts_;
};

/// Shares that have been moved, for people.
struct ShareMove {
  std::vector<std::uint32_t> before, shares;  // by member
  std::vector<double> lines;                  // bytes/s each way, by member; 0: not known
  double gain = 0;                            // of a round's time, [0, 1)
};

/// At the coordinator.
class MeasuredShares {
 public:
  /// `first`: the shares that a run begins with, one a member, 0 for who may own nothing; empty:
  /// all own as much.
  MeasuredShares(int members, std::span<const std::uint32_t> first);

  /// What has come to `to`, as ArrivalGauge has it: by peer.
  void report(WorkerId to, std::span<const std::uint64_t> bytes_per_s);
  /// A member has gone, or another process has taken its place: what was known of it counts no
  /// more.
  void forget(WorkerId member);
  /// A round of the members `live` has been committed. RETURNS: the shares from now on.
  [[nodiscard]] const std::vector<std::uint32_t>& after_commit(const std::vector<bool>& live);
  /// Since the last call.
  [[nodiscard]] std::optional<ShareMove> take_move();

  /// The next process of a hub goes on with what the last one had decided.
  void restore(std::vector<std::uint32_t> shares) { shares_ = std::move(shares); }

 private:
  /// By member, bytes/s: the mean of what is known of its links, the worse of both ways.
  [[nodiscard]] std::vector<double> lines(const std::vector<bool>& live) const;

  const std::size_t members_;
  std::vector<std::uint32_t> owners_;  // 0: may own nothing
  std::vector<std::uint32_t> shares_;
  std::vector<double> seconds_per_byte_;  // [to][from], smoothed; 0: not known
  int commits_ = 0;                       // since shares were moved
  std::optional<ShareMove> move_;
};

/// Behind the digest of a DONE, and in a COMMIT: one number a member.
[[nodiscard]] std::vector<std::byte> write_rates(std::span<const std::uint64_t> bytes_per_s);
[[nodiscard]] std::vector<std::byte> write_shares(std::span<const std::uint32_t> shares);
/// RETURNS: nothing where the bytes are not those of so many members; of shares, also where nobody
/// would own anything.
[[nodiscard]] std::optional<std::vector<std::uint64_t>> read_rates(std::span<const std::byte> bytes,
                                                                   int members);
[[nodiscard]] std::optional<std::vector<std::uint32_t>> read_shares(
    std::span<const std::byte> bytes, int members);

}  // namespace isthmus
