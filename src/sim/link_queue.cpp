// SPDX-License-Identifier: Apache-2.0
#include "sim/link_queue.h"

#include <algorithm>
#include <cmath>

#include "core/base/check.h"
#include "sim/wide.h"

namespace isthmus {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;
// Below this round trip windows open within microseconds, and rounds would cost more than they
// tell.
constexpr Duration kShortestWindowedRtt = std::chrono::microseconds(100);

/// Bits per second that leave when no window limits them.
std::int64_t open_rate(const DirectedLink& link, const LinkOptions& options,
                       bool streams_modelled) {
  if (link.bits_per_s == 0) return 0;
  DirectedLink wide = link;
  if (streams_modelled) wide.loss = 0;  // The windows bring the loss in.
  std::int64_t rate = steady_goodput(wide, options.model);
  if (options.model != LinkModel::kPlain) {
    rate -= multiply_divide(rate, kAcknowledgementBytes, 2 * kPacketBytes);
  }
  return std::max(rate, std::int64_t{1});  // 0 would mean a line without a limit
}

}  // namespace

LinkQueue::LinkQueue(const DirectedLink& link, const LinkOptions& options, std::uint64_t seed,
                     std::uint32_t number)
    : link_(link),
      options_(options),
      rng_(seed, Stream::kSim),
      number_(number),
      restart_(options.idle_restart > Duration::zero() ? options.idle_restart
                                                       : retransmission_timeout(link.rtt())) {
  const bool windowed = link.bits_per_s > 0 && link.rtt() >= kShortestWindowedRtt;
  const bool tcp = options.model == LinkModel::kTcp;
  const bool cubic = tcp && link.congestion == Congestion::kCubic && link.loss > 0;
  streams_modelled_ = windowed && cubic;
  open_rate_ = open_rate(link, options, streams_modelled_);
  paces_ = tcp && link.congestion == Congestion::kBbr;
  if (!windowed) return;
  if (cubic) {
    windows_.emplace<CubicWindows>(link);
  } else if (tcp || options.slow_start) {
    windows_.emplace<WindowRamp>(open_rate_, link.rtt(), link.streams);
  }
}

std::uint64_t LinkQueue::modelled_bytes(std::uint64_t frame_bytes) const {
  if (options_.byte_scale == 1) return frame_bytes;
  return static_cast<std::uint64_t>(
      std::llround(static_cast<double>(frame_bytes) * options_.byte_scale));
}

std::int64_t LinkQueue::rate_at(TimePoint time) const {
  if (!profile_) return open_rate_;
  const std::int64_t line = profile_->rate_at(time);
  if (link_.bits_per_s == 0 || line == 0) return line;
  if (line == link_.bits_per_s) return open_rate_;
  DirectedLink meanwhile = link_;
  meanwhile.bits_per_s = line;
  return open_rate(meanwhile, options_, streams_modelled_);
}

bool LinkQueue::windows_limit() const {
  if (const auto* ramp = std::get_if<WindowRamp>(&windows_)) return !ramp->open();
  return std::holds_alternative<CubicWindows>(windows_);
}

std::int64_t LinkQueue::round_bits() const {
  if (const auto* ramp = std::get_if<WindowRamp>(&windows_)) return ramp->round_bits();
  return std::get<CubicWindows>(windows_).round_bits();
}

void LinkQueue::end_round(TimePoint next_begin) {
  if (auto* ramp = std::get_if<WindowRamp>(&windows_)) {
    ramp->end_round(round_used_);
  } else {
    std::get<CubicWindows>(windows_).end_round(round_used_);
  }
  round_begin_ = next_begin;
  round_used_ = 0;
}

void LinkQueue::wake_windows(TimePoint begin) {
  if (std::holds_alternative<std::monostate>(windows_)) return;
  if (frames_ == 0) {
    round_begin_ = begin;
    return;
  }
  const Duration idle = begin - free_at_;
  if (idle == Duration::zero() || begin < round_begin_ + link_.rtt()) return;
  end_round(begin);
  if (paces_) {
    if (idle >= link_.rtt()) std::get<WindowRamp>(windows_).regain();
    return;
  }
  if (idle < restart_) return;
  const std::int64_t times = idle / restart_;
  if (auto* ramp = std::get_if<WindowRamp>(&windows_)) {
    ramp->shrink_after_idle(times);
  } else {
    std::get<CubicWindows>(windows_).shrink_after_idle(times);
  }
}

TimePoint LinkQueue::leave_steadily(TimePoint begin, std::int64_t bits) {
  if (!profile_ && open_rate_ == 0) return begin;
  // In billionths of a bit, of which a nanosecond at any rate carries a whole number: nothing is
  // rounded where the rate changes, and a line at any rate above 0 gets on.
  Int128 left = Int128{bits} * kSecond;
  std::int64_t rate = rate_at(begin);
  if (begin != steady_until_ || rate != busy_rate_) ahead_ = 0;
  while (true) {
    const TimePoint change = profile_ ? profile_->next_change(begin) : kNever;
    if (rate > 0) {
      const Int128 short_of = std::max(left - ahead_, Int128{0});
      const Int128 carried = Int128{rate} * (change - begin).count();
      if (change == kNever || short_of <= carried) {
        const auto busy = static_cast<std::int64_t>((short_of + rate - 1) / rate);
        ahead_ += Int128{rate} * busy - left;
        busy_rate_ = rate;
        steady_until_ = begin + Duration(busy);
        return steady_until_;
      }
      left = short_of - carried;
      ahead_ = 0;
    }
    ISTHMUS_CHECK(change != kNever, link_.bits_per_s);
    begin = change;
    rate = rate_at(begin);
  }
}

TimePoint LinkQueue::leave_in_slices(TimePoint time, std::int64_t bits) {
  const Duration rtt = link_.rtt();
  Int128 part = 0;  // of the next bit, in billionths, that left in the slices before
  while (true) {
    std::int64_t rate = rate_at(time);
    const TimePoint change = profile_ ? profile_->next_change(time) : kNever;
    TimePoint slice_end = change;
    if (windows_limit()) {
      const TimePoint round_end = round_begin_ + rtt;
      if (time >= round_end) {
        end_round(time >= round_end + rtt ? time : round_end);
        continue;
      }
      if (rate > 0) slice_end = std::min(slice_end, round_end);  // else nothing opens them
      rate = std::min(rate, multiply_divide(round_bits(), kSecond, rtt.count()));
    }
    if (rate > 0) {
      const Int128 carried = part + Int128{rate} * (slice_end - time).count();
      const Int128 left = Int128{bits} * kSecond;
      if (slice_end == kNever || left <= carried) {
        round_used_ += bits;
        const Int128 short_of = std::max(left - part, Int128{0});
        return time + Duration(static_cast<std::int64_t>((short_of + rate - 1) / rate));
      }
      const auto sent = static_cast<std::int64_t>(carried / kSecond);
      // Rounds of a steady line give whole bits, where they give one at all.
      part = slice_end == change || sent == 0 ? carried % kSecond : Int128{0};
      bits -= std::min(sent, bits);
      round_used_ += sent;
    }
    ISTHMUS_CHECK(slice_end != kNever, link_.bits_per_s);
    time = slice_end;
  }
}

Passage LinkQueue::send(TimePoint now, std::uint64_t frame_bytes) {
  const auto bits = static_cast<std::int64_t>(modelled_bytes(frame_bytes) * 8);
  Passage passage;
  passage.begin = std::max(now, free_at_);
  wake_windows(passage.begin);
  passage.departure =
      windows_limit() ? leave_in_slices(passage.begin, bits) : leave_steadily(passage.begin, bits);
  free_at_ = passage.departure;
  passage.arrival = passage.departure + link_.one_way;
  if (link_.jitter > Duration::zero()) {
    const auto bound = static_cast<std::uint64_t>(link_.jitter.count()) + 1;
    passage.arrival += Duration(static_cast<std::int64_t>(rng_.below(bound, frames_, number_)));
  }
  ++frames_;
  passage.arrival = std::max(passage.arrival, last_arrival_);
  last_arrival_ = passage.arrival;
  return passage;
}

}  // namespace isthmus
