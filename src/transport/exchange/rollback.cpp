// SPDX-License-Identifier: Apache-2.0
#include "transport/exchange/rollback.h"

#include <fmt/format.h>

#include <algorithm>

namespace isthmus {

bool Rollback::uncommitted() const {
  if (!options_.exchange.takes_back) return false;
  return why_ || commit_.any_uncovered() ||
         std::ranges::any_of(rounds_.all(), [](const auto& entry) {
           return !entry.second.closed && !entry.second.covers.empty();
         });
}

StepIndex Rollback::go_back() {
  why_.reset();
  taken_back_.clear();
  return commit_.committed_after();
}

bool Rollback::absorbs(const SyncId& id) {
  if (!why_) return false;
  taken_back_.insert(id);
  return true;
}

std::optional<ExchangeError> Rollback::take(const SyncId& id) {
  if (taken_back_.erase(id) == 0) return std::nullopt;
  return ExchangeError{ExchangeError::Kind::kTakenBack, options_.self, why()};
}

bool Rollback::speaks_of_now(const FrameHeader& head) const {
  return (!options_.exchange.takes_back && !members_.is_hub()) ||
         (head.kind != FrameKind::kEpoch && head.epoch >= members_.membership().whole());
}

// Rounds that other members have closed may have to begin again there, so each member reports its
// progress anew.
void Rollback::take_back() {
  commit_.forget_digests();
  if (!options_.exchange.takes_back && !members_.is_hub()) {
    return;  // open rounds begin again by themselves
  }
  members_.forget_closed();
  bool any = commit_.any_uncovered();
  std::erase_if(rounds_.all(), [&](const auto& entry) {
    const auto& [id, open] = entry;
    if (open.failure || open.is_committed()) return false;
    if (!open.taken) taken_back_.insert(id);
    any = true;
    return true;
  });
  if (!any) return;  // if no round has begun since, no member goes back
  commit_.forget_uncovered();
  const StepIndex step = commit_.committed_after();
  rounds_.roll_back_to(step);
  why_ = fmt::format("what has been exchanged since step {} is not committed, and a member is gone",
                     step.value());
}

}  // namespace isthmus
