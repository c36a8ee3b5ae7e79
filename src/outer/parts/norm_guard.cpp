// SPDX-License-Identifier: Apache-2.0
#include "outer/parts/norm_guard.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "isthmus/errors.h"

namespace isthmus::outer {

bool NormGuard::accepts(FragmentId id, double norm) {
  if (!std::isfinite(norm)) {
    return false;
  }
  Past& past = past_.at(static_cast<std::size_t>(id.value()));
  Past sorted = past;
  std::ranges::sort(sorted, std::greater<>());
  const auto known =
      static_cast<std::size_t>(std::ranges::count_if(sorted, [](float each) { return each > 0; }));
  const bool outlier =
      limit_ > 0 && known >= kEnough && norm > limit_ * static_cast<double>(sorted[known / 2]);
  // An outlier enters the history too: norms that stay large are the new normal after half of the
  // history.
  std::rotate(past.begin(), past.end() - 1, past.end());
  past.front() =
      static_cast<float>(std::min(norm, static_cast<double>(std::numeric_limits<float>::max())));
  return !outlier;
}

void NormGuard::save(StateWriter& writer) const {
  for (std::size_t p = 0; p < past_.size(); ++p) {
    writer.tensor(fmt::format("norms/{}", p), past_[p]);
  }
}

void NormGuard::load(StateReader& reader) {
  for (std::size_t p = 0; p < past_.size(); ++p) {
    const std::string name = fmt::format("norms/{}", p);
    reader.tensor(name, past_[p]);
    for (const float norm : past_[p]) {
      if (!(norm >= 0) || !std::isfinite(norm)) {
        throw RunError(
            fmt::format("checkpoint: {} holds {}, which is no norm: resume from another "
                        "checkpoint",
                        name, norm));
      }
    }
  }
}

}  // namespace isthmus::outer
