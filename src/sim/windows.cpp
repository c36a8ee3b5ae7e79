// SPDX-License-Identifier: Apache-2.0
#include "sim/windows.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/base/check.h"
#include "sim/wide.h"

namespace isthmus {
namespace {

using std::chrono::microseconds;

constexpr std::int64_t kSegmentBits = kSegmentBytes * 8;
constexpr std::int64_t kSecondOfWindows = 1'000'000'000;
// A lone stream meets its first loss early in slow start and never gets far above its steady
// window. Calibrated on the two measured cells of one stream at 0.1 % loss; with a first loss after
// half an interval the model would move 25 MB in 14.5 s where 25.9 s were measured.
constexpr std::int64_t kLoneStreamFirstLoss = 20;
constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max() / 4;

/// floor(cbrt(value)), exact.
std::int64_t cube_root(Int128 value) {
  std::int64_t root = 0;
  for (std::int64_t bit = std::int64_t{1} << 40; bit > 0; bit >>= 1) {
    const std::int64_t next = root + bit;
    if (static_cast<Int128>(next) * next * next <= value) root = next;
  }
  return root;
}

/// 0.4 packets/s^3 times the cube of `time`, in fixed point, signed.
std::int64_t cubic_term(Duration time) {
  const Int128 us = std::chrono::duration_cast<microseconds>(time).count();
  const Int128 cube = us * us * us * kOnePacket * 2 / 5;
  return static_cast<std::int64_t>(cube / 1'000'000'000'000'000'000);
}

/// K = cbrt((peak - floor) / 0.4 s^-3).
Duration plateau_time(std::int64_t peak, std::int64_t floor) {
  const Int128 cube = static_cast<Int128>(peak - floor) * 5 / 2 * 1'000'000'000'000'000'000;
  return microseconds(cube_root(cube / kOnePacket));
}

}  // namespace

Duration retransmission_timeout(Duration rtt) { return rtt + std::chrono::milliseconds(200); }

WindowRamp::WindowRamp(std::int64_t target_bits_per_s, Duration rtt, int streams)
    : target_round_bits_(std::max<std::int64_t>(
          1, multiply_divide(target_bits_per_s, rtt.count(), kSecondOfWindows))),
      initial_bits_(streams * kInitialWindowPackets * kSegmentBits),
      window_bits_(initial_bits_) {}

std::int64_t WindowRamp::round_bits() const { return std::min(window_bits_, target_round_bits_); }

void WindowRamp::end_round(std::int64_t used_bits) {
  // A window grows only while it limits the sender (RFC 7661).
  if (2 * used_bits < window_bits_ || open()) return;
  window_bits_ *= 2;
}

void WindowRamp::shrink_after_idle(std::int64_t times) {
  window_bits_ =
      std::max(std::min(window_bits_, target_round_bits_) >> std::min<std::int64_t>(times, 62),
               initial_bits_);
}

// Calibrated on exchanges over links of 10 to 200 ms (bench/results, predicted): such a start costs
// some 0.9 round trips, whatever the number of streams.
void WindowRamp::regain() {
  if (open()) window_bits_ = std::max(target_round_bits_ * 3 / 8, initial_bits_);
}

CubicWindows::CubicWindows(const DirectedLink& link)
    : rtt_(link.rtt()),
      line_packets_(
          std::max<std::int64_t>(1, multiply_divide(link.bits_per_s, rtt_.count() * kOnePacket,
                                                    kSecondOfWindows * kPacketBytes * 8))),
      queue_packets_(2 * line_packets_),
      loss_interval_(std::llround(static_cast<double>(kOnePacket) / link.loss)),
      streams_(static_cast<std::size_t>(link.streams)) {
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    Stream& stream = streams_[i];
    stream.window = kInitialWindowPackets * kOnePacket;
    stream.threshold = kUnlimited;
    stream.until_loss = streams_.size() == 1
                            ? loss_interval_ / kLoneStreamFirstLoss
                            : multiply_divide(loss_interval_, static_cast<std::int64_t>(2 * i + 1),
                                              static_cast<std::int64_t>(2 * streams_.size()));
  }
}

std::int64_t CubicWindows::active(const Stream& stream) const {
  const Duration still = std::min(stream.pause, rtt_);
  return multiply_divide(stream.window, (rtt_ - still).count(), rtt_.count());
}

std::int64_t CubicWindows::round_bits() const {
  const std::int64_t packets =
      std::accumulate(streams_.begin(), streams_.end(), std::int64_t{0},
                      [this](std::int64_t sum, const Stream& s) { return sum + active(s); });
  return std::min(packets, line_packets_) * kSegmentBits / kOnePacket;
}

void CubicWindows::end_round(std::int64_t used_bits) {
  std::int64_t total = 0;
  for (const Stream& stream : streams_) total += active(stream);
  const std::int64_t used = used_bits * kOnePacket / kSegmentBits;
  const bool limiting = 2 * used >= std::min(total, line_packets_);
  for (Stream& stream : streams_) {
    const std::int64_t sent = total == 0 ? 0 : multiply_divide(used, active(stream), total);
    stream.pause -= std::min(stream.pause, rtt_);
    if (stream.loss_pending) {
      lose(stream, true);
      stream.loss_pending = false;
      stream.until_loss = loss_interval_;
      continue;
    }
    stream.until_loss -= sent;
    if (stream.until_loss <= 0) {
      stream.loss_pending = true;
    } else if (limiting) {
      grow(stream);
    }
  }
  drain_queue();
}

void CubicWindows::lose(Stream& stream, bool timeouts) {
  const std::int64_t before = std::max(stream.window, kOnePacket);
  stream.peak = before;
  stream.window = std::max(before * 7 / 10, 2 * kOnePacket);
  stream.threshold = stream.window;
  enter_avoidance(stream);
  if (timeouts) {
    const std::int64_t rto = retransmission_timeout(rtt_).count();
    stream.pause += Duration(std::min(rto, multiply_divide(rto, 3 * kOnePacket, before)));
  }
}

void CubicWindows::enter_avoidance(Stream& stream) const {
  stream.peak = std::max(stream.peak, stream.window);
  stream.floor = stream.window;
  stream.growing = Duration::zero();
  stream.plateau = plateau_time(stream.peak, stream.floor);
}

void CubicWindows::grow(Stream& stream) const {
  if (stream.window < stream.threshold) {
    stream.window = std::min(2 * stream.window, stream.threshold);
    if (stream.window == stream.threshold) enter_avoidance(stream);
    return;
  }
  stream.growing += rtt_;
  const std::int64_t cubic = stream.peak + cubic_term(stream.growing - stream.plateau);
  // 3 (1 - 0.7) / (1 + 0.7) = 9/17 packet each round trip.
  const std::int64_t friendly =
      stream.floor + multiply_divide(9 * kOnePacket, stream.growing.count(), 17 * rtt_.count());
  const std::int64_t goal = std::min(std::max(cubic, friendly), stream.window * 3 / 2);
  stream.window = std::max(stream.window, goal);
}

void CubicWindows::drain_queue() {
  std::int64_t total = 0;
  bool starting = false;
  for (const Stream& stream : streams_) {
    total += stream.window;
    starting = starting || stream.window < stream.threshold;
  }
  if (total <= queue_packets_) return;
  if (!starting) {
    // The queue drops packets of the largest stream.
    lose(*std::max_element(streams_.begin(), streams_.end(),
                           [](const Stream& a, const Stream& b) { return a.window < b.window; }),
         false);
    return;
  }
  for (Stream& stream : streams_) {
    if (stream.window >= stream.threshold) continue;
    stream.window = multiply_divide(stream.window, queue_packets_, total);
    lose(stream, false);
  }
}

void CubicWindows::shrink_after_idle(std::int64_t times) {
  for (Stream& stream : streams_) {
    // Linux, tcp_cwnd_restart: slow start leads back to three quarters of the old window.
    stream.threshold = std::max(std::min(stream.threshold, stream.window), stream.window * 3 / 4);
    stream.window = std::max(stream.window >> std::min<std::int64_t>(times, 62),
                             std::min(stream.window, kInitialWindowPackets * kOnePacket));
  }
}

}  // namespace isthmus
