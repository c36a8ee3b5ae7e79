// SPDX-License-Identifier: Apache-2.0
// Frames in, rounds forward, who is missing. How rounds begin: peer_exchange_beginning.cpp; the
// commit protocol: peer_exchange_commit.cpp.
#include "transport/peer_exchange_engine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "core/check.h"

namespace isthmus {
namespace {

constexpr int kMaxProbeBackoff = 16;  // probes of a silent peer come at most this much slower

std::size_t index(Rank rank) { return static_cast<std::size_t>(rank.value()); }

std::vector<int> numbers(const std::vector<Rank>& ranks) {
  std::vector<int> result(ranks.size());
  std::ranges::transform(ranks, result.begin(), [](Rank rank) { return rank.value(); });
  return result;
}

}  // namespace

ExchangeEngine::ExchangeEngine(EngineOptions options)
    : options_(std::move(options)),
      gathers_(options_.gathers),
      membership_(options_.members, options_.epoch, true) {
  const auto processes = static_cast<std::size_t>(options_.members + (options_.hub ? 1 : 0));
  ISTHMUS_CHECK(options_.elastic || !options_.hub);
  ISTHMUS_CHECK(!gathers_ || (options_.elastic && !options_.hub));
  ISTHMUS_CHECK(options_.elastic || !options_.deadline);
  ISTHMUS_CHECK(options_.table.empty() || (options_.groups.empty() && !options_.moves_shares));
  ISTHMUS_CHECK(!options_.takes_back || options_.elastic);
  ISTHMUS_CHECK(!options_.takes_back || (!options_.deadline && !options_.moves_shares));
  peer_.resize(processes);
  for (Peer& peer : peer_) {
    peer.patience = options_.retry_interval;
    peer.lost = is_hub();  // until it comes
  }
  echoes_.resize(processes);
  start_measuring();
  returns_.resize(processes);
}

void ExchangeEngine::receive(Rank from, FrameBytes bytes, TimePoint now, Outbox& out) {
  ISTHMUS_CHECK(from.value() >= 0, from.value());
  ISTHMUS_CHECK(index(from) < peer_.size(), from.value());
  const Expected<Frame, FrameError> frame = parse_frame(*bytes);
  if (frame && hold(from, frame->header.kind, bytes)) {
    return;
  }
  if (!frame || from == options_.self || !belongs(from, frame->header, bytes, now, out)) {
    return;
  }
  Peer& peer = peer_[index(from)];
  if (speaks_of_now(frame->header)) {
    peer.closed_before = std::max(peer.closed_before, frame->header.closed_before);
  }
  if (is_values(frame->header.kind)) {
    receive_data(from, *frame, std::move(bytes), now, out);
  } else {
    answer_control(from, *frame, now, out);
  }
  progress(out);
  exclude_the_odd(now, out);
  forget_closed();
}

void ExchangeEngine::receive_data(Rank from, const Frame& frame, FrameBytes bytes, TimePoint now,
                                  Outbox& out) {
  const SyncId id = frame.header.id;
  // A round may be open still where a later one has begun.
  if (gauge_ && (rounds_.contains(id) || !over(id))) {
    gauge_->took(from, id, frame.header.kind, bytes->size(), now);
  }
  if (const auto found = rounds_.find(id); found != rounds_.end()) {
    feed(found->second, from, frame, std::move(bytes), now, out);
  } else if (!over(id)) {
    early_[id].emplace_back(from, std::move(bytes));
  }
}

void ExchangeEngine::feed(OpenRound& open, Rank from, const Frame& frame, FrameBytes bytes,
                          TimePoint now, Outbox& out) {
  if (open.failure || open.round.complete()) {
    return;
  }
  bool fresh = false;
  const auto ok = open.round.receive(from, frame, std::move(bytes), fresh, out);
  if (!ok) {
    fail(open, ok.error(), out);
  }
  if (fresh) {
    open.heard[index(from)] = now;
    peer_[index(from)].patience = options_.retry_interval;
  }
}

void ExchangeEngine::answer_control(Rank from, const Frame& frame, TimePoint now, Outbox& out) {
  const FrameHeader& head = frame.header;
  switch (head.kind) {
    case FrameKind::kDone:
      read_done(from, frame, out);
      return;
    case FrameKind::kCommit:
      if (from == coordinator()) take_commit(head.id, frame.payload, out);
      return;
    case FrameKind::kAbort:
      take_abort(from, frame, out);
      return;
    case FrameKind::kProbe:
      send({.kind = FrameKind::kEcho, .part = ++echoes_[index(from)]}, from, {}, out);
      return;
    case FrameKind::kEcho:
      request_missing(from, head.part, out);
      return;
    case FrameKind::kRequest:
      if (const auto found = rounds_.find(head.id); found != rounds_.end()) {
        if (const auto entries = read_request(frame.payload)) {
          // No echo beyond those sent here can have come to it.
          const std::uint32_t echo = std::min(head.part, echoes_[index(from)]);
          found->second.round.send_again(from, *entries, echo, out);
        }
      }
      return;
    case FrameKind::kBye:
      take_bye(from, now, out);
      return;
    case FrameKind::kNote:
      notes_.emplace_back(from, std::vector(frame.payload.begin(), frame.payload.end()));
      return;
    case FrameKind::kEpoch:
      take_epoch(from, frame, now, out);
      return;
    case FrameKind::kGone:
      take_gone(from, frame, now, out);
      return;
    case FrameKind::kBegun:
      take_begun(from, head);
      return;
    case FrameKind::kContribution:
    case FrameKind::kResult:
    case FrameKind::kPartial:
      return;
  }
}

void ExchangeEngine::note(Rank to, std::span<const std::byte> bytes, Outbox& out) {
  send({.kind = FrameKind::kNote}, to, bytes, out);
}

std::vector<std::pair<Rank, std::vector<std::byte>>> ExchangeEngine::take_notes() {
  return std::exchange(notes_, {});
}

void ExchangeEngine::request_missing(Rank from, std::uint32_t echo, Outbox& out) {
  if (from.value() >= options_.members) return;  // a hub has nothing of a round
  for (auto& [id, open] : rounds_) {
    if (open.failure || open.round.complete()) {
      continue;
    }
    const std::vector<RequestEntry> missing = open.round.missing_from(from);
    if (!missing.empty()) {
      send({.kind = FrameKind::kRequest, .id = id, .part = echo}, from, write_request(missing),
           out);
    }
  }
}

// A whole result still needs its verdict, which is given once every digest is there; a result
// that is not whole cannot become so without anyone who has not taken leave in order.
void ExchangeEngine::fail_what_needs(Rank peer, Outbox& out) {
  for (auto& [id, open] : rounds_) {
    if (open.closed || open.failure) {
      continue;
    }
    const bool needs_data =
        !open.round.complete() && (!peer_[index(peer)].left || open.round.owes(peer));
    const bool needs_digest = coordinates() && !dones_[id].contains(peer);
    const bool needs_verdict = peer == coordinator();
    if (needs_data || (open.round.complete() && (needs_digest || needs_verdict))) {
      fail(open,
           {ExchangeError::Kind::kPeerLost, peer,
            fmt::format("worker {} is gone, and fragment {} of step {} still needs it",
                        peer.value(), id.fragment.value(), id.sent.value())},
           out);
    }
  }
}

void ExchangeEngine::give_up(const std::string& why, Outbox& out) {
  given_up_ = why;
  for (auto& [id, open] : rounds_) {
    if (!open.closed && !open.failure) {
      fail(open, {ExchangeError::Kind::kCorrupt, options_.self, why}, out);
    }
  }
}

void ExchangeEngine::tick(TimePoint now, Outbox& out) {
  stand_in(now, out);
  if (now >= rifts_.due()) settle_rifts(now, out);
  if (now < next_repair()) {
    return;
  }
  last_tick_ = now;
  for (const Rank rank : peers()) {
    Peer& peer = peer_[index(rank)];
    const bool silent = std::ranges::any_of(rounds_, [&](const auto& entry) {
      const auto& [id, open] = entry;
      return !open.failure && now - open.heard[index(rank)] >= options_.retry_interval &&
             (open.round.owes(rank) || lacks_digest(open, rank));
    });
    if (silent && !peer.lost && now >= peer.probe_at) {
      send({.kind = FrameKind::kProbe}, rank, {}, out);
      peer.probe_at = now + peer.patience;
      peer.patience = std::min(2 * peer.patience, kMaxProbeBackoff * options_.retry_interval);
    }
  }
  for (const Rank rank : peers()) {
    if (options_.elastic && peer_[index(rank)].lost && any_open()) {
      lose_again(rank, now, out);  // the word may not have come
    }
  }
  for (auto& [id, open] : rounds_) {
    if (open.said_done && !open.closed && !open.failure && !coordinates()) {
      repeat_done(open, out);
    }
  }
  exclude_the_odd(now, out);
}

TimePoint ExchangeEngine::next_tick() const {
  return std::min({next_repair(), next_stand_in(), rifts_.due()});
}

TimePoint ExchangeEngine::next_repair() const {
  return any_open() ? last_tick_ + options_.retry_interval : kNever;
}

bool ExchangeEngine::any_open() const {
  return std::ranges::any_of(
      rounds_, [](const auto& entry) { return !entry.second.closed && !entry.second.failure; });
}

bool ExchangeEngine::ready(const SyncId& id) const {
  if (taken_back_.contains(id)) return true;
  const OpenRound& open = rounds_.at(id);
  return open.closed || open.failure;
}

Expected<Reduced, ExchangeError> ExchangeEngine::take(const SyncId& id) {
  if (taken_back_.erase(id) > 0) {
    return Unexpected<ExchangeError>(
        ExchangeError{ExchangeError::Kind::kTakenBack, options_.self, why_.value_or("")});
  }
  OpenRound& open = rounds_.at(id);
  ISTHMUS_CHECK(!open.taken, id.fragment.value(), id.sent.value());
  if (open.failure) {
    return Unexpected<ExchangeError>(*open.failure);
  }
  ISTHMUS_CHECK(open.closed, id.fragment.value(), id.sent.value());
  open.taken = true;
  taken_last_ = id;
  origin_ = {open.round.digest(), open.round.take_encoded()};
  Reduced reduced = open.round.take();
  forget_closed();
  return reduced;
}

std::vector<Rank> ExchangeEngine::waits_for(const OpenRound& open) const {
  std::vector<Rank> missing;
  const auto digests = dones_.find(open.round.id());
  for (const Rank rank : peers()) {
    if (!membership_.takes_part(rank, open.round.id().sent)) {
      continue;
    }
    const bool digest_missing = coordinates() && open.said_done && digests != dones_.end() &&
                                !digests->second.contains(rank);
    const bool verdict_missing = rank == coordinator() && open.said_done;
    if (open.round.owes(rank) || digest_missing || verdict_missing) {
      missing.push_back(rank);
    }
  }
  return missing;
}

void ExchangeEngine::ask(const SyncId& id, Outbox& out) {
  if (taken_back_.contains(id)) return;
  const OpenRound& open = rounds_.at(id);
  if (open.closed || open.failure) return;
  for (const Rank peer : waits_for(open)) send({.kind = FrameKind::kProbe}, peer, {}, out);
}

std::string ExchangeEngine::describe(const SyncId& id) const {
  if (taken_back_.contains(id)) return *why_;
  const OpenRound& open = rounds_.at(id);
  if (options_.hub && open.said_done) {
    return fmt::format("fragment {} of step {} waits for the hub{}", id.fragment.value(),
                       id.sent.value(), peer_[index(coordinator())].lost ? ", which is gone" : "");
  }
  return fmt::format(
      "fragment {} of step {} waits for {} from worker{} {}", id.fragment.value(), id.sent.value(),
      !open.round.complete() ? "data"
      : open.said_done       ? "confirmation"
                             : "earlier rounds",
      waits_for(open).size() == 1 ? "" : "s", fmt::join(numbers(waits_for(open)), ", "));
}

void ExchangeEngine::leave(Outbox& out) {
  leaving_ = true;
  for (const Rank peer : peers()) {
    send({.kind = FrameKind::kBye}, peer, {}, out);
  }
  if (options_.hub && !is_hub()) send({.kind = FrameKind::kBye}, coordinator(), {}, out);
}

bool ExchangeEngine::over(const SyncId& id) const {
  return id.sent < last_begun_ || finished_.contains(id) || (back_to_ && id.sent <= *back_to_);
}

std::int64_t ExchangeEngine::closed_before() const {
  std::int64_t step = last_begun_.value();
  for (const auto& [id, open] : rounds_) {
    if (!open.closed) {
      step = std::min(step, id.sent.value());
    }
  }
  return step;
}

void ExchangeEngine::send(FrameHeader head, Rank to, std::span<const std::byte> payload,
                          Outbox& out) {
  const bool of_round = head.kind == FrameKind::kDone || head.kind == FrameKind::kCommit ||
                        head.kind == FrameKind::kAbort || head.kind == FrameKind::kRequest ||
                        head.kind == FrameKind::kBegun;
  if (head.kind != FrameKind::kEpoch) {
    head.epoch = of_round ? membership_.epoch_of(head.id.sent) : membership_.number();
  }
  head.closed_before = closed_before();
  out.push_back({to, make_frame(head, payload), 0});
  if (const auto found = rounds_.find(head.id); found != rounds_.end() && !found->second.taken) {
    found->second.round.count_wire(out.back().frame->size());
  }
}

}  // namespace isthmus
