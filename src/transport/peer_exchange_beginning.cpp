// SPDX-License-Identifier: Apache-2.0
// How a round begins at this member: with its contribution, or in its name, by the engine itself.
#include <algorithm>
#include <string>
#include <utility>

#include "core/check.h"
#include "transport/peer_exchange_engine.h"

namespace isthmus {
namespace {

std::size_t index(Rank rank) { return static_cast<std::size_t>(rank.value()); }

}  // namespace

RoundPlace ExchangeEngine::place(const SyncId& id) const {
  const std::span<const std::uint32_t> shares = shares_for(id);
  return {.self = options_.self,
          .members = options_.members,
          .epoch = membership_.epoch_of(id.sent),
          .closed_before = closed_before(),
          .shares = {shares.begin(), shares.end()},
          .table = options_.table,
          .groups = options_.groups,
          .chunk_bytes = options_.chunk_bytes,
          .live = membership_.members_of(id.sent),
          .run_key = options_.run_key,
          .keeps_encoded = options_.keeps_encoded,
          .echoes = &echoes_};
}

void ExchangeEngine::begin(Round round, bool commit, std::optional<Contribution> retained,
                           TimePoint now, Outbox& out) {
  const SyncId id = round.id();
  ISTHMUS_CHECK(!gathers_);
  ISTHMUS_CHECK(retained.has_value() == options_.elastic);
  ISTHMUS_CHECK(commit || !options_.elastic || options_.takes_back);
  if (meet(id, now)) return;
  if (options_.deadline) keep_form(*retained, now);
  open(std::move(round), commit, std::move(retained), std::nullopt, now, out);
}

void ExchangeEngine::open(Round round, bool commit, std::optional<Contribution> retained,
                          std::optional<TimePoint> in_its_name, TimePoint now, Outbox& out) {
  const SyncId id = round.id();
  if (why_) {
    taken_back_.insert(id);
    return;
  }
  // One that has failed before rounds were taken back has failed for good: the first word on it
  // stands at who coordinates, so whoever has not heard it yet will.
  if (const auto found = rounds_.find(id); options_.takes_back && found != rounds_.end()) {
    ISTHMUS_CHECK(found->second.failure.has_value(), id.fragment.value(), id.sent.value());
    return;
  }
  ISTHMUS_CHECK(over_ || membership_.takes_part(options_.self, id.sent), id.sent.value());
  if (retained && round.epoch() != membership_.epoch_of(id.sent)) {  // changed since it was made
    round = Round(*retained, place(id));
  }
  if (options_.takes_back) retained.reset();  // no round is begun again here
  ISTHMUS_CHECK(!rounds_.contains(id), id.fragment.value(), id.sent.value());
  ISTHMUS_CHECK(!over(id), id.fragment.value(), id.sent.value());
  ISTHMUS_CHECK(knows_shares(id), id.fragment.value(), id.sent.value());
  if (next_repair() == kNever) {
    last_tick_ = now;
  }
  if (id.sent > last_begun_) {
    last_begun_ = id.sent;
    finished_.clear();
  }
  ahead_of_here_.erase(id);
  OpenRound& open = rounds_
                        .emplace(id, OpenRound{.round = std::move(round),
                                               .commit = commit,
                                               .failure = {},
                                               .covers = {},
                                               .heard = {},
                                               .retained = std::move(retained),
                                               .before = std::exchange(begun_last_, id),
                                               .in_its_name = in_its_name,
                                               .begun = now})
                        .first->second;
  if (open.retained && open.retained->owner_residual) {
    open.residual = *open.retained->owner_residual;
  }
  open.heard.assign(peer_.size(), now);
  if (commit) {
    open.covers = std::exchange(uncovered_, {});
  } else {
    uncovered_.push_back(id);
  }
  if (over_) {
    open.failure = over_;
    return;
  }
  announce(open, peers(), out);
  if (auto ok = open.round.launch(out); !ok) {
    fail(open, ok.error(), out);
  }
  if (given_up_ && !open.failure) {
    fail(open, {ExchangeError::Kind::kCorrupt, options_.self, *given_up_}, out);
  }
  take_early(open, now, out);
  progress(out);
  for (const Rank peer : peers()) {
    if (peer_[index(peer)].lost) {
      lose_again(peer, now, out);
    }
  }
  exclude_the_odd(now, out);
}

void ExchangeEngine::take_early(OpenRound& open, TimePoint now, Outbox& out) {
  if (auto early = early_.extract(open.round.id())) {
    for (auto& [from, bytes] : early.mapped()) {
      const Frame frame = accepted_frame(bytes);  // when it came
      feed(open, from, frame, std::move(bytes), now, out);
    }
  }
}

}  // namespace isthmus
