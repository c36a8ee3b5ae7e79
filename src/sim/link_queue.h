// SPDX-License-Identifier: Apache-2.0
// The state of one directed link: when the next frame is sent and arrives. Pure integer arithmetic;
// one caller at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <variant>

#include "core/base/rng.h"
#include "isthmus/types.h"
#include "sim/link.h"
#include "sim/rate_profile.h"
#include "sim/wide.h"
#include "sim/windows.h"

namespace isthmus {

/// The times of a frame on a link.
struct Passage {
  TimePoint begin;      // its first bit is sent
  TimePoint departure;  // its last bit has been sent
  TimePoint arrival;    // its last bit has arrived
};

class LinkQueue {
 public:
  /// `number` distinguishes links with the same seed. REQUIRES: a link that `check_link` accepts.
  LinkQueue(const DirectedLink& link, const LinkOptions& options, std::uint64_t seed,
            std::uint32_t number);

  /// Sets the line's rate over time, in place of the constant one.
  void set_profile(RateProfile profile) { profile_ = std::move(profile); }

  /// Queues a frame at `now` behind earlier ones. REQUIRES: `now` never decreases.
  [[nodiscard]] Passage send(TimePoint now, std::uint64_t frame_bytes);
  /// Delays all later arrivals to at least `time`, so that order is kept.
  void delay_arrivals_to(TimePoint time) { last_arrival_ = std::max(last_arrival_, time); }
  /// The bytes that a frame of `frame_bytes` takes on the modelled link.
  [[nodiscard]] std::uint64_t modelled_bytes(std::uint64_t frame_bytes) const;
  [[nodiscard]] const DirectedLink& link() const { return link_; }

 private:
  TimePoint leave_steadily(TimePoint begin, std::int64_t bits);
  TimePoint leave_in_slices(TimePoint time, std::int64_t bits);
  /// A frame begins: applies idle time to the windows.
  void wake_windows(TimePoint begin);
  void end_round(TimePoint next_begin);
  [[nodiscard]] std::int64_t rate_at(TimePoint time) const;
  [[nodiscard]] std::int64_t round_bits() const;
  [[nodiscard]] bool windows_limit() const;

  const DirectedLink link_;
  const LinkOptions options_;
  const Rng rng_;
  const std::uint32_t number_;
  std::int64_t open_rate_ = 0;     // bits/s if no window limits it; 0: unlimited
  bool streams_modelled_ = false;  // windows model the loss
  const Duration restart_;
  bool paces_ = false;  // Linux does not restart such flows after idle time
  std::optional<RateProfile> profile_;
  std::variant<std::monostate, WindowRamp, CubicWindows> windows_;

  TimePoint free_at_{};
  TimePoint last_arrival_{};
  std::uint64_t frames_ = 0;
  // A busy period at one rate, without windows: its bits are sent exactly, without rounding a
  // frame.
  TimePoint steady_until_{};
  Int128 ahead_ = 0;  // billionths of a bit of the last nanosecond, left for the next frame
  std::int64_t busy_rate_ = 0;
  // The current round trip of the windows.
  TimePoint round_begin_{};
  std::int64_t round_used_ = 0;
};

}  // namespace isthmus
