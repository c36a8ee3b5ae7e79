// SPDX-License-Identifier: Apache-2.0
#include "transport/exchange/moving_shares.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/base/check.h"

namespace isthmus {

MovingShares::MovingShares(const EngineOptions& options, const MemberView& members)
    : options_(options), members_(members) {
  restart();
}

void MovingShares::restart() {
  told_.clear();
  if (!moves()) return;
  ISTHMUS_CHECK(options_.exchange.groups.empty());
  gauge_.emplace(options_.members, options_.exchange.connections);
  if (members_.coordinates()) measured_.emplace(options_.members, options_.exchange.shares);
}

void MovingShares::took(WorkerId from, const SyncId& id, FrameKind kind, std::size_t bytes,
                        TimePoint now) {
  if (gauge_) gauge_->took(from, id, kind, bytes, now);
}

void MovingShares::forget(const SyncId& id) {
  if (gauge_) gauge_->forget(id);
}

void MovingShares::forget(WorkerId member) {
  if (measured_) measured_->forget(member);
}

std::span<const std::uint32_t> MovingShares::of(const SyncId& id) const {
  const auto told = next_.find(id.fragment);
  const bool holds =
      told != next_.end() && told->second.epoch == members_.membership().epoch_of(id.sent);
  return holds ? told->second.shares : options_.exchange.shares;
}

std::vector<std::byte> MovingShares::report(const SyncId& id) {
  if (!moves()) return {};
  const std::vector<std::uint64_t> rates = gauge_->take(id);
  if (!members_.coordinates()) return write_rates(rates);
  measured_->report(members_.self(), rates);
  return {};
}

bool MovingShares::take_report(WorkerId from, std::span<const std::byte> bytes, bool counts) {
  if (!moves()) return bytes.empty();
  const auto rates = read_rates(bytes, options_.members);
  if (!rates) return false;
  if (counts) measured_->report(from, *rates);
  return true;
}

void MovingShares::choose_next(const SyncId& id) {
  if (!moves()) return;
  told_[id] = options_.choose_shares
                  ? options_.choose_shares(id)
                  : measured_->after_commit(members_.membership().members_of(id.sent));
}

std::vector<std::byte> MovingShares::told_with(const SyncId& id) const {
  const auto told = told_.find(id);
  return told == told_.end() ? std::vector<std::byte>() : write_shares(told->second);
}

bool MovingShares::take_told(const SyncId& id, std::span<const std::byte> bytes) {
  if (!moves()) return bytes.empty();
  auto shares = read_shares(bytes, options_.members);
  if (!shares) return false;
  told_[id] = *std::move(shares);
  return true;
}

std::string MovingShares::of_unlike_files() const {
  return fmt::format(
      "which cannot be where shares {}: net.shares = \"measured\" must be in the files of all, or "
      "of none",
      moves() ? "move" : "do not move");
}

void MovingShares::adopt(const SyncId& id, std::uint32_t epoch) {
  const auto told = told_.find(id);
  if (told == told_.end()) return;
  next_[id.fragment] = {epoch, told->second};
  if (!members_.coordinates()) told_.erase(told);  // the coordinator tells members that missed it
}

void MovingShares::forget_told(const std::function<bool(const SyncId&)>& needed) {
  if (members_.coordinates()) {
    std::erase_if(told_, [&](const auto& each) { return !needed(each.first); });
  }
}

void MovingShares::restore(const HubRecord& record, const SyncId& id) {
  if (!moves()) return;
  const auto shares = read_shares(shares_of_commit(record), options_.members);
  if (!shares) return;
  told_[id] = *shares;
}

// The run goes on from what its last commit has told. The records may be in another order than the
// commits were.
void MovingShares::end_restore() {
  const auto last =
      std::ranges::max_element(told_, {}, [](const auto& each) { return each.first.sent; });
  if (last != told_.end()) measured_->restore(last->second);
}

std::optional<ShareMove> MovingShares::take_move() {
  return measured_ ? measured_->take_move() : std::nullopt;
}

}  // namespace isthmus
