// SPDX-License-Identifier: Apache-2.0
#include "transport/exchange/round_table.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"

namespace isthmus {

OpenRound* RoundTable::find(const SyncId& id) {
  const auto found = rounds_.find(id);
  return found == rounds_.end() ? nullptr : &found->second;
}

const OpenRound* RoundTable::find(const SyncId& id) const {
  const auto found = rounds_.find(id);
  return found == rounds_.end() ? nullptr : &found->second;
}

bool RoundTable::any_pending() const {
  return std::ranges::any_of(rounds_, [](const auto& entry) { return entry.second.pending(); });
}

RoundPlace RoundTable::place(const SyncId& id) const {
  const PeerExchangeOptions& exchange = options_.exchange;
  std::vector<std::size_t> most_unused;
  for (int m = 0; options_.most_unused && m < options_.members; ++m) {
    most_unused.push_back(WorkerId(m) == options_.self ? kNoBound
                                                       : options_.most_unused(WorkerId(m)));
  }
  return {.self = options_.self,
          .members = options_.members,
          .epoch = members_.membership().epoch_of(id.sent),
          .closed_before = closed_before(),
          .shares = exchange.shares,
          .groups = exchange.groups,
          .chunk_bytes = exchange.chunk_bytes,
          .live = members_.membership().members_of(id.sent),
          .run_key = exchange.run_key,
          .keeps_encoded = exchange.keeps_encoded,
          .most_unused = std::move(most_unused),
          .echoes = &members_.echoes()};
}

OpenRound& RoundTable::open(OpenRound round) {
  const SyncId id = round.round.id();
  ISTHMUS_CHECK(!rounds_.contains(id), id.fragment.value(), id.sent.value());
  ISTHMUS_CHECK(!over(id), id.fragment.value(), id.sent.value());
  if (id.sent > last_begun_) {
    last_begun_ = id.sent;
    finished_.clear();
  }
  round.number = ++begun_;
  return rounds_.emplace(id, std::move(round)).first->second;
}

bool RoundTable::over(const SyncId& id) const {
  return id.sent < last_begun_ || finished_.contains(id) || (back_to_ && id.sent <= *back_to_);
}

std::int64_t RoundTable::closed_before() const {
  std::int64_t step = last_begun_.value();
  for (const auto& [id, open] : rounds_) {
    if (!open.closed) {
      step = std::min(step, id.sent.value());
    }
  }
  return step;
}

void RoundTable::keep_early(const SyncId& id, WorkerId from, FrameBytes bytes) {
  early_[id].emplace_back(from, std::move(bytes));
}

RoundTable::Early RoundTable::take_early(const SyncId& id) {
  auto early = early_.extract(id);
  return early ? std::move(early.mapped()) : Early();
}

void RoundTable::drop_outdated_early() {
  std::erase_if(early_, [&](const auto& entry) {
    return parse_frame(*entry.second.front().second)->header.epoch <
           members_.membership().epoch_of(entry.first.sent);
  });
}

Expected<Reduced, ExchangeError> RoundTable::take(const SyncId& id) {
  OpenRound& open = rounds_.at(id);
  ISTHMUS_CHECK(!open.taken, id.fragment.value(), id.sent.value());
  if (open.failure) {
    return Unexpected<ExchangeError>(*open.failure);
  }
  ISTHMUS_CHECK(open.closed, id.fragment.value(), id.sent.value());
  open.taken = true;
  taken_last_ = id;
  origin_ = {open.round.digest(), open.round.take_encoded()};
  return open.round.take();
}

std::optional<std::pair<Digest128, EncodedResult>> RoundTable::origin_of(const SyncId& id) const {
  return taken_last_ == id ? std::optional(origin_) : std::nullopt;
}

void RoundTable::forget_taken() {
  std::erase_if(rounds_, [&](const auto& entry) {
    const auto& [id, open] = entry;
    const bool unneeded = open.commit || open.covered || members_.all_closed(id.sent);
    if (!open.taken || !open.closed || !unneeded) {
      return false;
    }
    if (id.sent == last_begun_) {
      finished_.insert(id);
    }
    return true;
  });
}

void RoundTable::roll_back_to(StepIndex step) {
  // Rounds of before the first step, which each commit by themselves: those that are over stay so.
  if (step == StepIndex(0) && last_begun_ == step) return;
  finished_.clear();
  last_begun_ = step;
  back_to_ = step;
}

void RoundTable::begin_without_round() { last_begun_ = std::max(last_begun_, StepIndex(1)); }

void RoundTable::end_all(const ExchangeError& error) {
  ended_ = error;
  for (auto& [id, open] : rounds_) {
    if (open.pending()) open.failure = error;
  }
}

}  // namespace isthmus
