// SPDX-License-Identifier: Apache-2.0
#include "transport/exchange/round_sending.h"

#include <algorithm>
#include <utility>

#include "transport/wire/contributor_bits.h"

namespace isthmus {
RoundSending::RoundSending(std::shared_ptr<const RoundRoutes> routes, const RoundPlace& place)
    : routes_(std::move(routes)),
      echoes_(place.echoes),
      kept_(routes_->parts()),
      done_(routes_->parts()),
      ahead_(static_cast<std::size_t>(routes_->members())) {
  stamps_.resize(3 * routes_->parts() * static_cast<std::size_t>(routes_->members()));
  for (std::size_t m = 0; m < place.most_unused.size(); ++m) {
    ahead_[m].most = place.most_unused[m];
  }
}

// Each destination's parts go out in order, destinations in turn and starting after the sender, so
// that no link idles and not all members send to member 0 first. Parts that still have to reach
// another group go before parts that stay in this one; a part of two levels is used only once the
// groups have met, so contributions of such a round wait for nothing.
void RoundSending::send_contributions(Outbox& out) {
  for (int hop = 1; hop < routes_->members(); ++hop) {
    const WorkerId to((routes_->self().value() + hop) % routes_->members());
    if (!routes_->takes_part(index(to))) continue;
    if (!routes_->plan().two_levels()) {
      while (send_next(to, out)) {
      }
      continue;
    }
    for (const bool stays : {false, true}) {
      for (std::size_t k = 0; k < kept_.size(); ++k) {
        if (routes_->contribution_goes(k, to) && stays == routes_->stays_in_group(k)) {
          send(to, k, FrameKind::kContribution, kept_[k].own, out);
        }
      }
    }
    ahead_[index(to)].next = kept_.size();
  }
}

bool RoundSending::send_next(WorkerId to, Outbox& out) {
  Ahead& ahead = ahead_[index(to)];
  if (ahead.next == kept_.size()) return false;
  const std::size_t k = ahead.next;
  const std::size_t bytes = routes_->part(k).bytes;
  // A part whose result is here is no longer kept, or it is used as soon as it arrives.
  const bool waits = routes_->contribution_goes(k, to) && kept_[k].own && !done_[k];
  if (waits && ahead.unused > 0 && bytes > ahead.most - std::min(ahead.most, ahead.unused)) {
    return false;
  }
  ++ahead.next;
  if (waits) ahead.unused += bytes;
  if (routes_->contribution_goes(k, to) && kept_[k].own) {
    send(to, k, FrameKind::kContribution, kept_[k].own, out);
  }
  return true;
}

void RoundSending::part_done(std::size_t k, Outbox& out) {
  done_[k] = true;
  if (routes_->plan().two_levels()) return;
  for (int hop = 1; hop < routes_->members(); ++hop) {
    const WorkerId to((routes_->self().value() + hop) % routes_->members());
    Ahead& ahead = ahead_[index(to)];
    if (!routes_->takes_part(index(to)) || !routes_->contribution_goes(k, to)) continue;
    if (k < ahead.next) ahead.unused -= std::min(ahead.unused, routes_->part(k).bytes);
    if (ahead.unused > ahead.most / 2) continue;  // frames that go together make long rows
    while (send_next(to, out)) {
    }
  }
}

void RoundSending::send_partial(std::size_t k, FrameBytes frame, Outbox& out) {
  kept_[k].partial = std::move(frame);
  send(routes_->part(k).owner, k, FrameKind::kPartial, kept_[k].partial, out);
}

void RoundSending::send_result(std::size_t k, const FrameBytes& frame, bool keep, Outbox& out) {
  kept_[k].answered = true;
  if (keep) kept_[k].result = frame;
  for (const WorkerId to : routes_->receivers(k)) {
    send(to, k, FrameKind::kResult, frame, out);
  }
}

FrameBytes RoundSending::result_of(std::size_t k, const MakeResult& make_result) const {
  if (kept_[k].result || !kept_[k].answered) return kept_[k].result;
  return make_result(k);
}

void RoundSending::drop_inputs_of(std::size_t k) {
  kept_[k].own.reset();
  kept_[k].partial.reset();
}

void RoundSending::send(WorkerId to, std::size_t k, FrameKind kind, const FrameBytes& frame,
                        Outbox& out) {
  const std::size_t encoded =
      payload_of(frame).size() -
      (kind == FrameKind::kContribution ? 0 : bitmap_bytes(routes_->members()));
  payload_bytes_ += encoded;
  wire_bytes_ += frame->size();
  stamp(to, k, kind) = (*echoes_)[index(to)];
  out.push_back({to, frame, encoded});
}

std::uint32_t& RoundSending::stamp(WorkerId to, std::size_t k, FrameKind kind) {
  const std::size_t rows = kind == FrameKind::kContribution ? 0
                           : kind == FrameKind::kResult     ? 1
                                                            : 2;
  const auto members = static_cast<std::size_t>(routes_->members());
  return stamps_[(rows * kept_.size() + k) * members + index(to)];
}

void RoundSending::send_again(WorkerId to, std::span<const RequestEntry> entries,
                              std::uint32_t echo, const MakeResult& make_result, Outbox& out) {
  for (const RequestEntry& entry : entries) {
    const std::size_t end =
        std::min<std::size_t>(std::size_t{entry.first} + entry.count, kept_.size());
    for (std::size_t k = entry.first; k < end; ++k) {
      const bool result = entry.kind == FrameKind::kResult;
      const bool partial = entry.kind == FrameKind::kPartial;
      const bool wanted = result || routes_->plan().all_to_all() ||
                          (partial ? routes_->part(k).owner : routes_->gatherer(k)) == to;
      const bool held_back = !result && !partial && k >= ahead_[index(to)].next;
      if (!wanted || held_back || stamp(to, k, entry.kind) >= echo) continue;
      const FrameBytes frame = result    ? result_of(k, make_result)
                               : partial ? kept_[k].partial
                                         : kept_[k].own;
      if (frame == nullptr) continue;
      stamp(to, k, entry.kind) = (*echoes_)[index(to)];
      wire_bytes_ += frame->size();
      out.push_back({to, frame, 0});
    }
  }
}

void RoundSending::send_anew(WorkerId to, const MakeResult& make_result, Outbox& out) {
  const bool in_order = !routes_->plan().two_levels();
  Ahead& ahead = ahead_[index(to)];
  if (in_order) ahead = {.most = ahead.most};
  for (std::size_t k = 0; k < kept_.size(); ++k) {
    const Kept& kept = kept_[k];
    if (in_order) {
      if (ahead.next == k) (void)send_next(to, out);
    } else if (kept.own && routes_->contribution_goes(k, to)) {
      send(to, k, FrameKind::kContribution, kept.own, out);
    }
    if (kept.partial && routes_->part(k).owner == to) {
      send(to, k, FrameKind::kPartial, kept.partial, out);
    }
    if (!kept.answered) continue;
    const std::vector<WorkerId> ranks = routes_->receivers(k);
    if (std::ranges::find(ranks, to) == ranks.end()) continue;
    if (const FrameBytes result = result_of(k, make_result)) {
      send(to, k, FrameKind::kResult, result, out);
    }
  }
}

void RoundSending::drop_frames() {
  for (Kept& kept : kept_) kept = {};
}

}  // namespace isthmus
