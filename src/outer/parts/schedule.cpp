// SPDX-License-Identifier: Apache-2.0
#include "outer/parts/schedule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "isthmus/errors.h"

namespace isthmus::outer {

Schedule::Schedule(std::int64_t H, std::vector<std::int64_t> offsets, std::int64_t overlap)
    : h_(H), offsets_(std::move(offsets)), overlap_(overlap) {
  ISTHMUS_CHECK(h_ >= 1, h_);
  ISTHMUS_CHECK(overlap_ >= 0, overlap_);
  ISTHMUS_CHECK(overlap_ < h_, overlap_, h_);
  for (const std::int64_t offset : offsets_) {
    ISTHMUS_CHECK(offset >= 0, offset);
    ISTHMUS_CHECK(offset < h_, offset, h_);
  }
}

std::vector<Sync> Schedule::due_to_send(StepIndex t) const {
  std::vector<Sync> due;
  if (t.value() < 1) {
    return due;
  }
  for (std::size_t p = 0; p < offsets_.size(); ++p) {
    if (t.value() % h_ == offsets_[p]) {
      due.push_back({FragmentId(static_cast<int>(p)), t, StepIndex(t.value() + overlap_)});
    }
  }
  return due;
}

StepIndex Schedule::next_send(StepIndex from) const {
  std::int64_t soonest = h_;
  for (const std::int64_t offset : offsets_) {
    soonest = std::min(soonest, ((offset - from.value()) % h_ + h_) % h_);
  }
  return StepIndex(from.value() + soonest);
}

std::vector<std::int64_t> resolve_offsets(const Offsets& offsets, std::int64_t H,
                                          std::int64_t fragments) {
  if (const auto* list = std::get_if<std::vector<std::int64_t>>(&offsets)) {
    if (static_cast<std::int64_t>(list->size()) != fragments) {
      throw ConfigError(fmt::format(
          "outer.offsets = [{}]: must have {} values, one a fragment (layer fragments first, then "
          "the one of embeddings, final norm and head where there is one)",
          fmt::join(*list, ", "), fragments));
    }
    for (const std::int64_t offset : *list) {
      if (offset < 0 || offset >= H) {
        throw ConfigError(fmt::format(
            "outer.offsets = [{}]: {} must be in 0 .. {} (a fragment is sent when t = offset "
            "modulo H = {})",
            fmt::join(*list, ", "), offset, H - 1, H));
      }
    }
    return *list;
  }
  std::vector<std::int64_t> result(static_cast<std::size_t>(fragments), 0);
  if (std::holds_alternative<OffsetsSpread>(offsets)) {
    for (std::int64_t p = 0; p < fragments; ++p) {
      result[static_cast<std::size_t>(p)] = p * H / fragments;
    }
  }
  return result;
}

}  // namespace isthmus::outer
