// SPDX-License-Identifier: Apache-2.0
// Quantities that must not be mixed up, and the time base of a run.
// Value types; safe to use from any thread.
#pragma once

#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace isthmus {

/// An integer that converts to and from its representation only by name.
template <typename Tag, typename Rep>
class Index {
 public:
  using rep = Rep;
  constexpr Index() = default;
  constexpr explicit Index(Rep value) : value_(value) {}
  [[nodiscard]] constexpr Rep value() const { return value_; }
  constexpr auto operator<=>(const Index&) const = default;  // NOLINT(modernize-use-nullptr)
  constexpr Index& operator++() {
    ++value_;
    return *this;
  }

 private:
  Rep value_ = 0;
};

/// Inner step on the shared step clock; the first step of a run is 1, 0 means "before any".
using StepIndex = Index<struct StepTag, std::int64_t>;
/// Member of an exchange: worker m of M, counted from 0.
using WorkerId = Index<struct WorkerIdTag, int>;
/// Fragment of the model, counted from 0 in the fragment table's order.
using FragmentId = Index<struct FragmentTag, int>;

/// `of` as an index into a container.
template <typename Tag, typename Rep>
[[nodiscard]] constexpr std::size_t index(const Index<Tag, Rep>& of) {
  return static_cast<std::size_t>(of.value());
}

/// Time of a run: nanoseconds since its start, real or virtual (the seam decides).
struct RunClock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<RunClock>;
  static constexpr bool is_steady = true;
};
using Duration = RunClock::duration;
using TimePoint = RunClock::time_point;
inline constexpr TimePoint kNever = TimePoint::max();
[[nodiscard]] constexpr double in_seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

/// Half-open range of canonical element ids: positions in the flat, mesh-independent order of all
/// parameters.
struct CanonicalRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  [[nodiscard]] constexpr std::int64_t size() const { return end - begin; }
  constexpr bool operator==(const CanonicalRange&) const = default;
};

}  // namespace isthmus

template <typename Tag, typename Rep>
struct std::hash<isthmus::Index<Tag, Rep>> {
  std::size_t operator()(const isthmus::Index<Tag, Rep>& index) const noexcept {
    return std::hash<Rep>{}(index.value());
  }
};
