// SPDX-License-Identifier: Apache-2.0
// Shares of the owners that move while the run goes on (measured_shares.h): what members report
// with DONE, what COMMIT tells of the fragment's next round.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "core/check.h"
#include "transport/peer_exchange_engine.h"

namespace isthmus {

void ExchangeEngine::start_measuring() {
  if (!options_.moves_shares) return;
  ISTHMUS_CHECK(options_.groups.empty());
  gauge_.emplace(options_.members, options_.connections);
  if (coordinates()) measured_.emplace(options_.members, options_.shares);
}

/// Of the round of that name: as the last committed one of its fragment has told, or as at the
/// start where that was in another epoch.
std::span<const std::uint32_t> ExchangeEngine::shares_for(const SyncId& id) const {
  const auto told = next_shares_.find(id.fragment);
  const bool holds =
      told != next_shares_.end() && told->second.epoch == membership_.epoch_of(id.sent);
  return holds ? told->second.shares : options_.shares;
}

/// Whether the fragment's former round is through here, so that what it has told is known.
bool ExchangeEngine::knows_shares(const SyncId& id) const {
  return !options_.moves_shares || std::ranges::none_of(rounds_, [&](const auto& entry) {
    const auto& [other, open] = entry;
    return other.fragment == id.fragment && !open.closed && !open.failure;
  });
}

/// What this member has measured goes to the coordinator, once a round.
void ExchangeEngine::report_rates(OpenRound& open) {
  if (!options_.moves_shares) return;
  const std::vector<std::uint64_t> rates = gauge_->take(open.round.id());
  if (coordinates()) {
    measured_->report(options_.self, rates);
  } else {
    open.report = write_rates(rates);
  }
}

// A frame that has come whole and does not fit is of a member whose configuration differs: dropped,
// it would be said again for ever.
void ExchangeEngine::read_done(Rank from, const Frame& frame, Outbox& out) {
  if (!coordinates()) return;
  const SyncId& id = frame.header.id;
  Digest128 digest;
  const bool whole = frame.payload.size() >= digest.bytes.size();
  if (!whole || !take_report(from, id, frame.payload.subspan(digest.bytes.size()))) {
    refuse_done(from, frame, out);
    return;
  }
  std::memcpy(digest.bytes.data(), frame.payload.data(), digest.bytes.size());
  take_done(from, id, digest, out);
}

/// RETURNS: whether a DONE with these bytes behind its digest is one of this run.
bool ExchangeEngine::take_report(Rank from, const SyncId& id, std::span<const std::byte> bytes) {
  if (!options_.moves_shares) return bytes.empty();
  const auto rates = read_rates(bytes, options_.members);
  if (!rates) return false;
  const auto digests = dones_.find(id);
  const bool again =
      verdicts_.contains(id) || (digests != dones_.end() && digests->second.contains(from));
  if (!again) measured_->report(from, *rates);
  return true;
}

/// Its round ends with the reason, for all, unless it has ended.
void ExchangeEngine::refuse_done(Rank from, const Frame& frame, Outbox& out) {
  const SyncId& id = frame.header.id;
  if (const auto verdict = verdicts_.find(id); verdict != verdicts_.end()) {
    tell(from, id, Verdict(verdict->second), out);
  } else if (!through_everywhere(id)) {
    judge(id,
          ExchangeError{
              ExchangeError::Kind::kCorrupt, from,
              fmt::format("worker {} has ended fragment {} of step {} with a DONE of {} bytes, {}",
                          from.value(), id.fragment.value(), id.sent.value(), frame.payload.size(),
                          of_unlike_files())},
          out);
  }
}

/// Why what has come cannot be read.
std::string ExchangeEngine::of_unlike_files() const {
  return fmt::format(
      "which cannot be where shares {}: net.shares = \"measured\" must be in the files of all, or "
      "of none",
      options_.moves_shares ? "move" : "do not move");
}

/// At the coordinator: a round is committed.
void ExchangeEngine::choose_next_shares(const SyncId& id) {
  if (!options_.moves_shares) return;
  told_shares_[id] = options_.choose_shares
                         ? options_.choose_shares(id)
                         : measured_->after_commit(membership_.members_of(id.sent));
}

std::vector<std::byte> ExchangeEngine::shares_told(const SyncId& id) const {
  const auto told = told_shares_.find(id);
  return told == told_shares_.end() ? std::vector<std::byte>() : write_shares(told->second);
}

void ExchangeEngine::take_commit(const SyncId& id, std::span<const std::byte> payload,
                                 Outbox& out) {
  const auto found = rounds_.find(id);
  if (found == rounds_.end() || !found->second.said_done || found->second.closed ||
      found->second.failure) {
    return;  // it has come before, or nobody can have committed it
  }
  auto shares = read_shares(payload, options_.members);
  if (options_.moves_shares ? !shares.has_value() : !payload.empty()) {
    give_up(fmt::format("fragment {} of step {} was committed with {} bytes, {}",
                        id.fragment.value(), id.sent.value(), payload.size(), of_unlike_files()),
            out);
    return;
  }
  if (options_.moves_shares) told_shares_[id] = *std::move(shares);
  take_verdict(id, std::nullopt);
}

/// A round is through: from now on its fragment's next one is cut as its COMMIT has said.
void ExchangeEngine::adopt_shares(const OpenRound& open) {
  const auto told = told_shares_.find(open.round.id());
  if (told == told_shares_.end()) return;
  next_shares_[open.round.id().fragment] = {open.round.epoch(), told->second};
  if (!coordinates()) told_shares_.erase(told);  // it tells whoever missed it
}

void ExchangeEngine::forget_shares() {
  if (coordinates()) {
    std::erase_if(told_shares_, [&](const auto& each) { return !verdicts_.contains(each.first); });
  }
}

void ExchangeEngine::restore_shares(const HubRecord& record, const SyncId& id) {
  if (!options_.moves_shares) return;
  const auto shares = read_shares(shares_of_commit(record), options_.members);
  if (!shares) return;
  told_shares_[id] = *shares;
}

/// From what the last commit has told. The records may be in another order than the commits were.
void ExchangeEngine::go_on_with_shares() {
  const auto last =
      std::ranges::max_element(told_shares_, {}, [](const auto& each) { return each.first.sent; });
  if (last != told_shares_.end()) measured_->restore(last->second);
}

std::optional<ShareMove> ExchangeEngine::take_share_move() {
  return measured_ ? measured_->take_move() : std::nullopt;
}

}  // namespace isthmus
