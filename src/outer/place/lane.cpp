// SPDX-License-Identifier: Apache-2.0
#include "outer/place/lane.h"

#include <fmt/format.h>

#include <stdexcept>

#include "core/base/check.h"

namespace isthmus::outer {

Lane::LocalValues::LocalValues(const Fragment& fragment, std::span<float> local)
    : lane_{.name = fmt::format("fragment {}", fragment.id.value()),
            .shape = {static_cast<std::int64_t>(local.size())},
            .elements = {0, static_cast<std::int64_t>(local.size())},
            .values = local} {}

InnerStep Lane::LocalValues::train_step(StepIndex) {
  throw std::logic_error("a lane holds outer state and does not train");
}

Lane::Lane(const FragmentedSettings& settings, const Fragment& fragment, LaneRange range,
           std::span<float> local)
    : whole_(static_cast<std::size_t>(fragment.elements)),
      range_(range),
      inner_(fragment, local),
      state_(
          {.id = fragment.id, .parameters = {0}, .elements = inner_.parameters()[0].elements.end},
          inner_, settings.optimizer, settings.codec->error_feedback()) {
  ISTHMUS_CHECK(local.size() == range.size(), local.size(), range.size());
}

}  // namespace isthmus::outer
