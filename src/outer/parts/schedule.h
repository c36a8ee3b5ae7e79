// SPDX-License-Identifier: Apache-2.0
// Send and apply steps of each fragment: a pure function of (F, H, offsets, overlap), so every
// worker computes it without communication (arXiv:2501.18512 Alg. 2; t counts from 1, and the code
// has t = offset (mod H) where the paper has t + t_p = 0).
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "isthmus/outer.h"

namespace isthmus::outer {

/// One reduction of one fragment: sent after inner step `sent`, applied after inner step `apply`.
struct Sync {
  FragmentId fragment;
  StepIndex sent;
  StepIndex apply;
  auto operator<=>(const Sync&) const = default;
};

/// Immutable; any thread.
class Schedule {
 public:
  /// REQUIRES: H >= 1, every offset in [0, H), 0 <= overlap < H.
  Schedule(std::int64_t H, std::vector<std::int64_t> offsets, std::int64_t overlap);

  /// Syncs launched after inner step t >= 1, in fragment order.
  [[nodiscard]] std::vector<Sync> due_to_send(StepIndex t) const;
  /// The first step from `from` >= 1 on after which a sync is launched; from + H without fragments.
  [[nodiscard]] StepIndex next_send(StepIndex from) const;

  // The paper's symbol. NOLINTNEXTLINE(readability-identifier-naming)
  [[nodiscard]] std::int64_t H() const { return h_; }
  [[nodiscard]] std::int64_t overlap() const { return overlap_; }
  [[nodiscard]] const std::vector<std::int64_t>& offsets() const { return offsets_; }

 private:
  std::int64_t h_;
  std::vector<std::int64_t> offsets_;
  std::int64_t overlap_;
};

/// Offsets of F fragments: spread = floor(p H / F), zero, or the list as given.
/// THROWS: ConfigError when a list has another length than F or a value outside 0 .. H-1.
[[nodiscard]] std::vector<std::int64_t> resolve_offsets(const Offsets& offsets, std::int64_t H,
                                                        std::int64_t fragments);

}  // namespace isthmus::outer
