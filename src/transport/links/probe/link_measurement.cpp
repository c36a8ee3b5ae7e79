// SPDX-License-Identifier: Apache-2.0
#include "transport/links/probe/link_measurement.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "core/base/check.h"

namespace isthmus {
namespace {

constexpr Duration kLongest = std::chrono::hours(1);
// bit/s. A configuration's links have rates of 1 to 1e15, and the line that gives a measured rate
// is up to a fifth faster.
constexpr double kSlowest = 1, kFastest = 1e14;
constexpr std::uint32_t kMostMeasuredStreams = 64;
constexpr std::size_t kMostScanned = 16;
constexpr std::size_t kLongestName = 16;

bool is_time(Duration duration) { return duration >= Duration{0} && duration <= kLongest; }
bool is_rate(double bits_per_s) {  // not NaN
  return bits_per_s >= kSlowest && bits_per_s <= kFastest;
}

bool is_word(const std::string& text) {
  return text.size() <= kLongestName && std::ranges::all_of(text, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
         });
}

}  // namespace

Duration quantile(std::span<const Duration> samples, double q) {
  ISTHMUS_CHECK(!samples.empty());
  ISTHMUS_CHECK(q > 0 && q <= 1, q);
  std::vector<Duration> sorted(samples.begin(), samples.end());
  std::ranges::sort(sorted);
  const auto rank =
      static_cast<std::size_t>(std::ceil(q * static_cast<double>(sorted.size()) - 1e-9));
  return sorted[std::max<std::size_t>(rank, 1) - 1];
}

EchoSummary summarise_echoes(std::span<const Duration> samples) {
  const Duration spread = quantile(samples, 0.9) - quantile(samples, 0.1);
  const double of_jitter = 2 - 2 * std::sqrt(0.2);
  return {.samples = static_cast<std::uint32_t>(samples.size()),
          .least = *std::ranges::min_element(samples),
          .p50 = quantile(samples, 0.5),
          .p99 = quantile(samples, 0.99),
          .jitter = Duration(std::llround(static_cast<double>(spread.count()) / of_jitter))};
}

std::optional<double> steady_rate(const Arrivals& arrivals) {
  if (arrivals.steady <= Duration{0} || arrivals.steady_bytes == 0) return std::nullopt;
  return static_cast<double>(arrivals.steady_bytes) * 8 / in_seconds(arrivals.steady);
}

void ArrivalSeries::add(TimePoint at, std::uint64_t bytes) {
  ISTHMUS_CHECK(seen_ == 0 || at >= last_.at, at.time_since_epoch().count());
  total_ += bytes;
  last_ = {.at = at, .total = total_};
  if (seen_++ % every_ != 0) return;
  points_.push_back(last_);
  if (points_.size() == kMostPoints) {
    for (std::size_t i = 1; 2 * i < points_.size(); ++i) points_[i] = points_[2 * i];
    points_.resize(kMostPoints / 2);
    every_ *= 2;
  }
}

Arrivals ArrivalSeries::summary() const {
  Arrivals arrivals{.bytes = total_};
  if (points_.empty()) return arrivals;
  arrivals.elapsed = last_.at - points_.front().at;
  // Bytes that came with the arrival that begins the second half were on their way in the first.
  const TimePoint middle = points_.front().at + arrivals.elapsed / 2;
  const auto after =
      std::ranges::upper_bound(points_, middle, {}, [](const Point& point) { return point.at; });
  const Point& begin = *(after - 1);
  arrivals.steady_bytes = total_ - begin.total;
  arrivals.steady = last_.at - begin.at;
  return arrivals;
}

std::uint32_t enough_streams(std::span<const StreamRate> rates) {
  ISTHMUS_CHECK(!rates.empty());
  double best = 0;
  for (const StreamRate& each : rates) best = std::max(best, each.bits_per_s);
  std::optional<std::uint32_t> fewest;
  for (const StreamRate& each : rates) {
    if (each.bits_per_s >= kEnoughOfBest * best) {
      fewest = std::min(fewest.value_or(each.streams), each.streams);
    }
  }
  return fewest.value_or(rates.front().streams);
}

bool more_streams_may_help(std::span<const StreamRate> rates) {
  constexpr double kBetter = 1.1;
  constexpr int kOften = 2;
  double best = 0;
  int in_vain = 0;
  for (const StreamRate& each : rates) {
    in_vain = each.bits_per_s > kBetter * best ? 0 : in_vain + 1;
    best = std::max(best, each.bits_per_s);
  }
  return in_vain < kOften;
}

std::string fault_of(const EchoSummary& echo) {
  const bool ordered = echo.least <= echo.p50 && echo.p50 <= echo.p99;
  if (echo.samples == 0 || !is_time(echo.least) || !is_time(echo.p99) || !is_time(echo.jitter) ||
      !ordered) {
    return fmt::format("{} echoes of {}, {} and {} ns, jitter {} ns", echo.samples,
                       echo.least.count(), echo.p50.count(), echo.p99.count(), echo.jitter.count());
  }
  return {};
}

std::string fault_of(const DirectionMeasurement& direction) {
  if (!is_rate(direction.bits_per_s)) {
    return fmt::format("a rate of {} bit/s", direction.bits_per_s);
  }
  if (direction.streams > kMostMeasuredStreams || direction.scan.size() > kMostScanned) {
    return fmt::format("{} streams, {} of them tried", direction.streams, direction.scan.size());
  }
  for (const StreamRate& each : direction.scan) {
    if (!is_rate(each.bits_per_s) || each.streams < 1 || each.streams > kMostMeasuredStreams) {
      return fmt::format("a rate of {} bit/s with {} streams", each.bits_per_s, each.streams);
    }
  }
  if (direction.retransmits && direction.retransmits->repeated > direction.retransmits->segments) {
    return fmt::format("{} of {} segments sent again", direction.retransmits->repeated,
                       direction.retransmits->segments);
  }
  if (direction.loaded_rtt && !is_time(*direction.loaded_rtt)) {
    return fmt::format("a round trip of {} ns under load", direction.loaded_rtt->count());
  }
  return is_word(direction.congestion) ? "" : "a congestion control that is no word";
}

std::string fault_of(const PairMeasurement& pair) {
  for (const std::string& fault : {fault_of(pair.echo), fault_of(pair.up), fault_of(pair.down)}) {
    if (!fault.empty()) return fault;
  }
  return {};
}

std::string fault_of(const Arrivals& arrivals, std::uint64_t bytes, Duration took) {
  // Clocks run at slightly unlike speeds.
  const Duration most = took + took / 100 + std::chrono::milliseconds(1);
  if (arrivals.bytes != bytes) {
    return fmt::format("{} bytes of {} sent", arrivals.bytes, bytes);
  }
  if (arrivals.elapsed < Duration{0} || arrivals.elapsed > most) {
    return fmt::format("{} ns for a transfer that took {} ns here", arrivals.elapsed.count(),
                       took.count());
  }
  if (arrivals.steady < Duration{0} || arrivals.steady > arrivals.elapsed ||
      arrivals.steady_bytes > arrivals.bytes) {
    return fmt::format("{} bytes in {} ns as a part of {} bytes in {} ns", arrivals.steady_bytes,
                       arrivals.steady.count(), arrivals.bytes, arrivals.elapsed.count());
  }
  if (const auto rate = steady_rate(arrivals); rate && !is_rate(*rate)) {
    return fmt::format("{} bytes in {} ns, a rate of {:.3g} bit/s", arrivals.steady_bytes,
                       arrivals.steady.count(), *rate);
  }
  return {};
}

}  // namespace isthmus
