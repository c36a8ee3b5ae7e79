// SPDX-License-Identifier: Apache-2.0
#include "outer/parts/offline_delta.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/all_elements.h"
#include "core/base/check.h"

namespace isthmus::outer {

OfflineDelta::OfflineDelta(UncommittedDelta work, std::span<const Fragment> fragments,
                           InnerLoop& inner)
    : work_(std::move(work)), fragments_(fragments.begin(), fragments.end()), inner_(inner) {
  ISTHMUS_CHECK(work_.parts.size() == fragments_.size(), work_.parts.size(), fragments_.size());
}

template <typename Change>
void OfflineDelta::for_each(std::size_t part, const Change& change) {
  std::vector<float>& values = work_.parts[part].beyond;
  std::size_t at = 0;
  for (const std::size_t i : fragments_[part].parameters) {
    for (const float local : inner_.parameters()[i].values) change(values[at++], local);
  }
}

// The local values without their part beyond the anchor: the anchor or, if no work may be
// contributed, the local values unchanged. Steps that can fail come first, so that the work is
// complete until no step can fail.
void OfflineDelta::begin() {
  inner_.read_values(all_elements(inner_));
  for (std::size_t p = 0; p < fragments_.size(); ++p) {
    work_.parts[p].beyond.reserve(static_cast<std::size_t>(fragments_[p].elements));
  }
  for (std::size_t p = 0; p < fragments_.size(); ++p) {
    work_.parts[p].beyond.resize(static_cast<std::size_t>(fragments_[p].elements));
    for_each(p, [](float& value, float local) { value = local - value; });
  }
  begun_ = true;
}

InnerStep OfflineDelta::step() {
  if (!begun_) begin();
  const InnerStep taken = inner_.train_step(next());
  work_.trained = next();
  ++work_.alone_steps;
  work_.alone_tokens += taken.tokens;
  for (UncommittedDelta::Part& part : work_.parts) {
    part.tokens += taken.tokens;
    ++part.steps;
  }
  return taken;
}

// Without a step the local values are still those of `begin`, and a part that had nothing to give
// still has nothing.
UncommittedDelta OfflineDelta::take() {
  const bool gained = begun_ && work_.alone_steps > 0;
  if (gained) inner_.read_values(all_elements(inner_));
  for (std::size_t p = 0; begun_ && p < fragments_.size(); ++p) {
    for_each(p, [](float& value, float local) { value = local - value; });
    UncommittedDelta::Part& part = work_.parts[p];
    if (part.steps == 0) {
      part.beyond.clear();
    } else if (!std::ranges::all_of(part.beyond, [](float x) { return std::isfinite(x); })) {
      part.lose();
    }
  }
  return std::move(work_);
}

UncommittedDelta OfflineDelta::lose() {
  for (UncommittedDelta::Part& part : work_.parts) part.lose();
  return std::move(work_);
}

}  // namespace isthmus::outer
