// SPDX-License-Identifier: Apache-2.0
#include "transport/exchange/round_repair.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace isthmus {
namespace {

constexpr int kMaxProbeBackoff = 16;  // probes of a silent peer come at most this much slower

std::vector<int> numbers(const std::vector<WorkerId>& ranks) {
  std::vector<int> result(ranks.size());
  std::ranges::transform(ranks, result.begin(), [](WorkerId rank) { return rank.value(); });
  return result;
}

}  // namespace

void RoundRepair::begins(TimePoint now) {
  if (due() == kNever) last_ = now;
}

TimePoint RoundRepair::due() const {
  return rounds_.any_pending() ? last_ + options_.exchange.retry_interval : kNever;
}

void RoundRepair::probe_silent(TimePoint now, Outbox& out) {
  const Duration interval = options_.exchange.retry_interval;
  last_ = now;
  for (const WorkerId rank : members_.peers()) {
    Peer& peer = members_.peer(rank);
    const bool silent = std::ranges::any_of(rounds_.all(), [&](const auto& entry) {
      const auto& [id, open] = entry;
      const bool wanted = open.commit || options_.exchange.takes_back;
      return !open.failure &&
             now - open.heard[static_cast<std::size_t>(rank.value())] >= interval &&
             (open.round.owes(rank) || commit_.waits_for_digest(open, rank, wanted));
    });
    if (silent && !peer.lost && now >= peer.probe_at) {
      sender_.send({.kind = FrameKind::kProbe}, rank, {}, out);
      peer.probe_at = now + peer.patience;
      peer.patience = std::min(2 * peer.patience, kMaxProbeBackoff * interval);
    }
  }
}

void RoundRepair::answer_probe(WorkerId from, Outbox& out) {
  sender_.send({.kind = FrameKind::kEcho, .part = members_.count_echo(from)}, from, {}, out);
}

void RoundRepair::take_echo(WorkerId from, std::uint32_t echo, Outbox& out) {
  if (from.value() >= options_.members) return;  // a hub has nothing of a round
  for (auto& [id, open] : rounds_.all()) {
    if (open.failure || open.round.complete()) {
      continue;
    }
    const std::vector<RequestEntry> missing = open.round.missing_from(from);
    if (!missing.empty()) {
      sender_.send({.kind = FrameKind::kRequest, .id = id, .part = echo}, from,
                   write_request(missing), out);
    }
  }
}

void RoundRepair::answer_request(WorkerId from, const Frame& frame, Outbox& out) {
  OpenRound* open = rounds_.find(frame.header.id);
  if (open == nullptr) return;
  if (const auto entries = read_request(frame.payload)) {
    // No echo beyond those sent here can have come to it.
    const std::uint32_t sent = members_.echoes()[static_cast<std::size_t>(from.value())];
    open->round.send_again(from, *entries, std::min(frame.header.part, sent), out);
  }
}

std::vector<WorkerId> RoundRepair::waits_for(const OpenRound& open) const {
  std::vector<WorkerId> missing;
  for (const WorkerId rank : members_.peers()) {
    if (!members_.membership().takes_part(rank, open.round.id().sent)) {
      continue;
    }
    const bool digest_missing =
        members_.coordinates() && open.said_done && commit_.lacks_digest(open.round.id(), rank);
    const bool verdict_missing = rank == members_.coordinator() && open.said_done;
    if (open.round.owes(rank) || digest_missing || verdict_missing) {
      missing.push_back(rank);
    }
  }
  return missing;
}

void RoundRepair::ask(const OpenRound& open, Outbox& out) {
  if (!open.pending()) return;
  for (const WorkerId peer : waits_for(open))
    sender_.send({.kind = FrameKind::kProbe}, peer, {}, out);
}

std::string RoundRepair::describe(const OpenRound& open) const {
  const SyncId& id = open.round.id();
  if (options_.exchange.hub && open.said_done) {
    const bool lost = members_.peer(members_.coordinator()).lost;
    return fmt::format("fragment {} of step {} waits for the hub{}", id.fragment.value(),
                       id.sent.value(), lost ? ", which is gone" : "");
  }
  const std::vector<WorkerId> missing = waits_for(open);
  return fmt::format("fragment {} of step {} waits for {} from worker{} {}", id.fragment.value(),
                     id.sent.value(),
                     !open.round.complete() ? "data"
                     : open.said_done       ? "confirmation"
                                            : "earlier rounds",
                     missing.size() == 1 ? "" : "s", fmt::join(numbers(missing), ", "));
}

}  // namespace isthmus
