// SPDX-License-Identifier: Apache-2.0
#include "kernels/spsa.h"

#include <algorithm>

#include "core/base/check.h"
#include "kernels/fast_kernels.h"

namespace isthmus::kernels {
namespace {

// A multiple of the block of spsa_fast.h, cut on canonical borders, so that no two members of a
// team draw the same signs.
constexpr std::int64_t kSpan = std::int64_t{1} << 16;
constexpr std::int64_t kMostElements = std::int64_t{1} << 47;
constexpr std::size_t kMostEntries = std::size_t{1} << 24;
constexpr std::int64_t kMostScalar = std::int64_t{1} << 39;

/// body(first, offset, n) for the pieces of elements [first, first + n) between multiples of kSpan.
template <typename Body>
void for_spans(ThreadTeam& team, std::int64_t first, std::int64_t n, const Body& body) {
  if (n == 0) return;
  const std::int64_t low = first / kSpan;
  const std::int64_t high = (first + n - 1) / kSpan + 1;
  team.for_each(high - low, [&](std::int64_t index, int) {
    const std::int64_t begin = std::max(first, (low + index) * kSpan);
    const std::int64_t end = std::min(first + n, (low + index + 1) * kSpan);
    body(begin, begin - first, end - begin);
  });
}

}  // namespace

void spsa_perturb(ThreadTeam& team, std::uint64_t run_key, const SpsaDirection& z, float eps,
                  std::int64_t first, std::span<const float> w, std::span<float> out) {
  const auto n = static_cast<std::int64_t>(w.size());
  ISTHMUS_CHECK(out.size() == w.size(), out.size(), n);
  ISTHMUS_CHECK(first >= 0 && first + n <= kMostElements, first, n);
  ISTHMUS_CHECK(z.sample < kMostEntries, z.sample);
  for_spans(team, first, n, [&](std::int64_t begin, std::int64_t at, std::int64_t size) {
    fast_kernels().spsa_perturb_span(run_key, z, eps, begin, size, w.data() + at, out.data() + at);
  });
}

void spsa_apply(ThreadTeam& team, std::uint64_t run_key, std::span<const SpsaStep> steps,
                std::int64_t first, std::span<float> w) {
  const auto n = static_cast<std::int64_t>(w.size());
  ISTHMUS_CHECK(first >= 0 && first + n <= kMostElements, first, n);
  for (const SpsaStep& step : steps) {
    ISTHMUS_CHECK(step.entries.size() < kMostEntries, step.entries.size());
    for (const SpsaEntry& entry : step.entries) {
      ISTHMUS_CHECK(entry.d < kMostScalar && entry.d > -kMostScalar, entry.d);
      ISTHMUS_CHECK(entry.sample < kMostEntries, entry.sample);
    }
  }
  for_spans(team, first, n, [&](std::int64_t begin, std::int64_t at, std::int64_t size) {
    fast_kernels().spsa_apply_span(run_key, steps.data(), steps.size(), begin, size, w.data() + at);
  });
}

}  // namespace isthmus::kernels
