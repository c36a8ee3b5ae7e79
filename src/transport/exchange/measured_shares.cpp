// SPDX-License-Identifier: Apache-2.0
#include "transport/exchange/measured_shares.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/base/check.h"
#include "transport/wire/byte_fields.h"

namespace isthmus {
namespace {

/// Fewer bytes behind the first frame tell of the machine, not of the line,
constexpr std::uint64_t kFewestBytes = std::uint64_t{32} << 10;
/// and in a shorter time only that it takes no longer.
constexpr Duration kShortestBurst = std::chrono::milliseconds(10);
/// Connections bring their first frames all at once, after as long as those took together: of fewer
/// rounds of them than this the rate comes out too high by half and more.
constexpr int kFramesAConnection = 2;
/// Of a run's open rounds; a peer that is far ahead may have sent for as many.
constexpr std::size_t kMostRounds = 256;
/// A new figure counts for half. Of times, not of rates: what gets slower shows at once.
constexpr double kNewPart = 0.5;
/// Shares move where a round takes this much longer than with others,
constexpr double kLeastGain = 0.1;
/// and so many commits after they have moved, or the run has begun.
constexpr int kCommitsBetween = 4;
/// Everybody who may own something owns this part of an even share at least: what comes to who owns
/// nothing does not tell how fast it could.
constexpr double kLeastPart = 1.0 / 16;

double parts_of(std::size_t members) {
  return std::max(4096.0, 64.0 * static_cast<double>(members));  // a mean share is 64 at least
}

/// Of those who may own something, among `members` that take part: the others only send theirs and
/// get the result, so what their lines are does not matter.
std::vector<std::uint32_t> best_shares(std::vector<double> lines, std::size_t members) {
  const std::size_t owners = lines.size();
  lines.resize(members, *std::ranges::max_element(lines));
  std::vector<std::uint32_t> may_own(owners, 1);
  may_own.resize(members, 0);
  std::vector<std::uint32_t> best = shares_by_lines(lines, may_own);
  if (best.empty()) best.assign(members, 64);
  best.resize(owners);
  const double sum = std::accumulate(best.begin(), best.end(), 0.0);
  const auto least =
      static_cast<std::uint32_t>(std::ceil(kLeastPart * sum / static_cast<double>(owners)));
  for (std::uint32_t& share : best) share = std::max(share, least);
  return best;
}

/// As time_of_shares has it, for the same.
double time_of_owners(std::vector<double> lines, std::vector<std::uint32_t> shares,
                      std::size_t members) {
  const bool nobody = std::ranges::all_of(shares, [](std::uint32_t share) { return share == 0; });
  if (nobody) shares.assign(shares.size(), 1);  // as a round has it
  lines.resize(members, 0);
  shares.resize(members, 0);
  return time_of_shares(lines, shares);
}

}  // namespace

std::vector<std::uint32_t> shares_by_lines(std::span<const double> lines,
                                           std::span<const std::uint32_t> owners) {
  const std::size_t members = lines.size();
  ISTHMUS_CHECK(owners.empty() || owners.size() == members, owners.size(), members);
  if (members <= 2) return {};
  const double best = *std::ranges::max_element(lines);
  // f_i at a time T of vectors over the best line.
  const auto share = [&](std::size_t i, double T) {
    if (!owners.empty() && owners[i] == 0) return 0.0;
    return std::max(0.0, (T * lines[i] / best - 1) / (static_cast<double>(members) - 2));
  };
  double low = 0;
  double high = static_cast<double>(members) * best / *std::ranges::min_element(lines);
  constexpr int kHalvings = 60;
  for (int i = 0; i < kHalvings; ++i) {
    const double T = (low + high) / 2;
    double sum = 0;
    for (std::size_t m = 0; m < members; ++m) sum += share(m, T);
    (sum < 1 ? low : high) = T;
  }
  std::vector<std::uint32_t> shares;
  for (std::size_t m = 0; m < members; ++m) {
    shares.push_back(static_cast<std::uint32_t>(std::lround(share(m, high) * parts_of(members))));
  }
  const bool even =
      std::ranges::all_of(shares, [&](std::uint32_t each) { return each == shares.front(); });
  return even ? std::vector<std::uint32_t>() : shares;
}

double time_of_shares(std::span<const double> lines, std::span<const std::uint32_t> shares) {
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  const auto others = static_cast<double>(lines.size()) - 2;
  double time = 0;
  for (std::size_t m = 0; m < lines.size(); ++m) {
    if (lines[m] > 0) time = std::max(time, (1 + others * shares[m] / sum) / lines[m]);
  }
  return time;
}

void ArrivalGauge::took(WorkerId from, const SyncId& id, FrameKind kind, std::size_t bytes,
                        TimePoint now) {
  std::uint64_t& came = came_[index(from)];
  came += bytes;
  if (kind != FrameKind::kContribution) return;
  auto [burst, fresh] = bursts_[id].try_emplace(from.value());
  if (fresh) {
    burst->second.first = now;
    burst->second.before = came;
  }
  ++burst->second.frames;
  burst->second.last = now;
  burst->second.after = came;
  if (bursts_.size() > kMostRounds) bursts_.erase(bursts_.begin());
}

std::vector<std::uint64_t> ArrivalGauge::take(const SyncId& id) {
  std::vector<std::uint64_t> rates(came_.size(), 0);
  if (const auto found = bursts_.find(id); found != bursts_.end()) {
    for (const auto& [peer, burst] : found->second) {
      const std::uint64_t bytes = burst.after - burst.before;
      const Duration lasted = burst.last - burst.first;
      if (bytes < kFewestBytes || burst.frames <= kFramesAConnection * connections_) continue;
      const double seconds = in_seconds(std::max(lasted, kShortestBurst));
      const double rate = static_cast<double>(bytes) / seconds;
      rates[static_cast<std::size_t>(peer)] =
          static_cast<std::uint64_t>(std::clamp(rate, 1.0, 1e15)) |
          (lasted < kShortestBurst ? kAtLeast : 0);
    }
  }
  std::erase_if(bursts_, [&](const auto& entry) {
    return entry.first == id || (entry.first.fragment == id.fragment && entry.first.sent < id.sent);
  });
  return rates;
}

MeasuredShares::MeasuredShares(int members, std::span<const std::uint32_t> first)
    : members_(static_cast<std::size_t>(members)),
      owners_(members_, 1),
      shares_(first.begin(), first.end()),
      seconds_per_byte_(members_ * members_, 0) {
  ISTHMUS_CHECK(first.empty() || first.size() == members_, first.size(), members);
  if (shares_.empty()) shares_.assign(members_, 1);
  for (std::size_t m = 0; m < members_; ++m) owners_[m] = shares_[m] > 0 ? 1 : 0;
}

void MeasuredShares::report(WorkerId to, std::span<const std::uint64_t> bytes_per_s) {
  ISTHMUS_CHECK(bytes_per_s.size() == members_, bytes_per_s.size(), members_);
  for (std::size_t from = 0; from < members_; ++from) {
    if (from == index(to) || bytes_per_s[from] == 0) continue;
    double& known = seconds_per_byte_[index(to) * members_ + from];
    const double now = 1 / static_cast<double>(bytes_per_s[from] & ~kAtLeast);
    const bool at_most = (bytes_per_s[from] & kAtLeast) != 0;  // so long a byte takes
    if (known > 0 && at_most && known <= now) continue;
    known = known == 0 ? now : known + kNewPart * (now - known);
  }
}

void MeasuredShares::forget(WorkerId member) {
  for (std::size_t other = 0; other < members_; ++other) {
    seconds_per_byte_[index(member) * members_ + other] = 0;
    seconds_per_byte_[other * members_ + index(member)] = 0;
  }
}

std::vector<double> MeasuredShares::lines(const std::vector<bool>& live) const {
  std::vector<double> lines(members_, 0);
  for (std::size_t m = 0; m < members_; ++m) {
    double out = 0, in = 0;
    int outs = 0, ins = 0;
    for (std::size_t other = 0; other < members_; ++other) {
      if (other == m || !live[m] || !live[other]) continue;
      const double to = seconds_per_byte_[other * members_ + m];
      const double from = seconds_per_byte_[m * members_ + other];
      out += to > 0 ? 1 / to : 0;
      in += from > 0 ? 1 / from : 0;
      outs += to > 0 ? 1 : 0;
      ins += from > 0 ? 1 : 0;
    }
    if (outs > 0 && ins > 0) lines[m] = std::min(out / outs, in / ins);
  }
  return lines;
}

const std::vector<std::uint32_t>& MeasuredShares::after_commit(const std::vector<bool>& live) {
  const auto taking_part = static_cast<std::size_t>(std::ranges::count(live, true));
  if (++commits_ < kCommitsBetween || taking_part <= 2) return shares_;
  const std::vector<double> known = lines(live);
  std::vector<std::size_t> owners;
  std::vector<double> owner_lines;
  std::vector<std::uint32_t> now;
  for (std::size_t m = 0; m < members_; ++m) {
    if (!live[m] || owners_[m] == 0) continue;
    if (known[m] == 0) return shares_;  // not before all are
    owners.push_back(m);
    owner_lines.push_back(known[m]);
    now.push_back(shares_[m]);
  }
  if (owners.size() <= 1) return shares_;
  const std::vector<std::uint32_t> best = best_shares(owner_lines, taking_part);
  const double before = time_of_owners(owner_lines, std::move(now), taking_part);
  const double after = time_of_owners(owner_lines, best, taking_part);
  if (before < (1 + kLeastGain) * after) return shares_;
  ShareMove move{.before = shares_, .shares = {}, .lines = known, .gain = 1 - after / before};
  const std::uint64_t sum = std::accumulate(best.begin(), best.end(), std::uint64_t{0});
  for (std::size_t m = 0; m < members_;
       ++m) {  // who is away begins with an even one when it is back
    shares_[m] = owners_[m] == 0 ? 0 : static_cast<std::uint32_t>(sum / best.size());
  }
  for (std::size_t i = 0; i < owners.size(); ++i) shares_[owners[i]] = best[i];
  move.shares = shares_;
  move_ = std::move(move);
  commits_ = 0;
  return shares_;
}

std::optional<ShareMove> MeasuredShares::take_move() { return std::exchange(move_, std::nullopt); }

std::vector<std::byte> write_rates(std::span<const std::uint64_t> bytes_per_s) {
  std::vector<std::byte> bytes(bytes_per_s.size_bytes());
  FieldWriter out(bytes);
  for (const std::uint64_t rate : bytes_per_s) out.put(rate);
  return bytes;
}

std::vector<std::byte> write_shares(std::span<const std::uint32_t> shares) {
  std::vector<std::byte> bytes(shares.size_bytes());
  FieldWriter out(bytes);
  for (const std::uint32_t share : shares) out.put(share);
  return bytes;
}

std::optional<std::vector<std::uint64_t>> read_rates(std::span<const std::byte> bytes,
                                                     int members) {
  std::vector<std::uint64_t> rates(static_cast<std::size_t>(members));
  if (bytes.size() != rates.size() * sizeof(std::uint64_t)) return std::nullopt;
  FieldReader in(bytes);
  for (std::uint64_t& rate : rates) rate = in.get<std::uint64_t>();
  return rates;
}

std::optional<std::vector<std::uint32_t>> read_shares(std::span<const std::byte> bytes,
                                                      int members) {
  std::vector<std::uint32_t> shares(static_cast<std::size_t>(members));
  if (bytes.size() != shares.size() * sizeof(std::uint32_t)) return std::nullopt;
  FieldReader in(bytes);
  for (std::uint32_t& share : shares) share = in.get<std::uint32_t>();
  const bool some = std::ranges::any_of(shares, [](std::uint32_t share) { return share > 0; });
  return some ? std::optional(std::move(shares)) : std::nullopt;
}

}  // namespace isthmus
