// SPDX-License-Identifier: Apache-2.0
#include "transport/exchange/round_sending.h"

#include <algorithm>
#include <utility>

#include "transport/wire/contributor_bits.h"

namespace isthmus {
RoundSending::RoundSending(std::shared_ptr<const RoundRoutes> routes,
                           const std::vector<std::uint32_t>* echoes)
    : routes_(std::move(routes)), echoes_(echoes), kept_(routes_->parts()) {
  stamps_.resize(3 * routes_->parts() * static_cast<std::size_t>(routes_->members()));
}

// Each destination's parts go out in order, destinations in turn and starting after the sender, so
// that no link idles and not all members send to member 0 first. Parts that still have to reach
// another group go before parts that stay in this one.
void RoundSending::send_contributions(Outbox& out) {
  for (int hop = 1; hop < routes_->members(); ++hop) {
    const WorkerId to((routes_->self().value() + hop) % routes_->members());
    for (const bool stays : {false, true}) {
      for (std::size_t k = 0; routes_->takes_part(index(to)) && k < kept_.size(); ++k) {
        if (routes_->contribution_goes(k, to) && stays == routes_->stays_in_group(k)) {
          send(to, k, FrameKind::kContribution, kept_[k].own, out);
        }
      }
    }
  }
}

void RoundSending::send_partial(std::size_t k, FrameBytes frame, Outbox& out) {
  kept_[k].partial = std::move(frame);
  send(routes_->part(k).owner, k, FrameKind::kPartial, kept_[k].partial, out);
}

void RoundSending::send_result(std::size_t k, FrameBytes frame, Outbox& out) {
  kept_[k].result = std::move(frame);
  for (const WorkerId to : routes_->receivers(k)) {
    send(to, k, FrameKind::kResult, kept_[k].result, out);
  }
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
                              std::uint32_t echo, Outbox& out) {
  for (const RequestEntry& entry : entries) {
    const std::size_t end =
        std::min<std::size_t>(std::size_t{entry.first} + entry.count, kept_.size());
    for (std::size_t k = entry.first; k < end; ++k) {
      const bool result = entry.kind == FrameKind::kResult;
      const bool partial = entry.kind == FrameKind::kPartial;
      const FrameBytes& frame = result    ? kept_[k].result
                                : partial ? kept_[k].partial
                                          : kept_[k].own;
      const bool wanted = result || routes_->plan().all_to_all() ||
                          (partial ? routes_->part(k).owner : routes_->gatherer(k)) == to;
      if (frame == nullptr || !wanted || stamp(to, k, entry.kind) >= echo) {
        continue;
      }
      stamp(to, k, entry.kind) = (*echoes_)[index(to)];
      wire_bytes_ += frame->size();
      out.push_back({to, frame, 0});
    }
  }
}

void RoundSending::send_anew(WorkerId to, Outbox& out) {
  for (std::size_t k = 0; k < kept_.size(); ++k) {
    const Kept& kept = kept_[k];
    if (kept.own && routes_->contribution_goes(k, to)) {
      send(to, k, FrameKind::kContribution, kept.own, out);
    }
    if (kept.partial && routes_->part(k).owner == to) {
      send(to, k, FrameKind::kPartial, kept.partial, out);
    }
    if (!kept.result) continue;
    const std::vector<WorkerId> ranks = routes_->receivers(k);
    if (std::ranges::find(ranks, to) != ranks.end()) {
      send(to, k, FrameKind::kResult, kept.result, out);
    }
  }
}

void RoundSending::drop_frames() {
  for (Kept& kept : kept_) kept = {};
}

}  // namespace isthmus
