// SPDX-License-Identifier: Apache-2.0
#include "report/page/axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/base/units.h"
#include "report/data/text.h"

namespace isthmus::report {
namespace {

constexpr int kMaxTicks = 24;

/// Distance between ticks: 1, 2 or 5 times a power of ten; whole minutes, hours, days for seconds.
double tick_distance(double span, int wanted, AxisUnit unit) {
  const double rough = span / std::max(1, wanted);
  if (unit == AxisUnit::kSeconds && rough > 10) {
    constexpr std::array<double, 15> kClock = {15,   30,   60,    120,   300,   600,   900,   1800,
                                               3600, 7200, 14400, 21600, 43200, 86400, 172800};
    for (const double step : kClock) {
      if (step >= rough) {
        return step;
      }
    }
    return tick_distance(span / 86400, wanted, AxisUnit::kPlain) * 86400;
  }
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough * 0.999) {
      return factor * power;
    }
  }
  return 10 * power;
}

/// Up to `digits` after the point, trailing zeros dropped.
std::string plain_label(double value, double distance) {
  if (std::abs(value) >= 10000) {
    return format_short_count(value);
  }
  const int digits =
      distance >= 1 ? 0 : std::min(9, static_cast<int>(std::ceil(-std::log10(distance) - 1e-9)));
  return fmt::format("{:.{}f}", value == 0 ? 0.0 : value, digits);
}

std::string clock_label(double seconds, double distance) {
  if (seconds == 0) {
    return "0";
  }
  const auto in = [&](double unit, const char* name) {
    return fmt::format("{} {}", plain_label(seconds / unit, std::min(1.0, distance / unit)), name);
  };
  if (seconds < 1e-3) {
    return in(1e-6, "µs");
  }
  if (seconds < 1) {
    return in(1e-3, "ms");
  }
  return distance < 60      ? in(1, "s")
         : distance < 3600  ? in(60, "min")
         : distance < 86400 ? in(3600, "h")
                            : in(86400, "d");
}

std::string log_label(double value, AxisUnit unit) {
  switch (unit) {
    case AxisUnit::kBytes:
      return human_bytes(value);
    case AxisUnit::kRate:
      return format_rate(value);
    case AxisUnit::kSeconds:
    case AxisUnit::kPlain:
      return value >= 1000 ? format_short_count(value) : fmt::format("{:.3g}", value);
  }
  return {};
}

/// Round times of a clock; powers of ten of a second would read "16.7 min".
std::vector<Tick> log_clock_ticks(const Axis& axis, int wanted) {
  struct Mark {
    double seconds;
    bool major;
  };
  constexpr std::array<Mark, 22> kMarks = {
      {{1e-6, true},     {1e-5, false},  {1e-4, false}, {1e-3, true},    {1e-2, false},
       {0.1, false},     {1, true},      {3, false},    {10, false},     {30, false},
       {60, true},       {180, false},   {600, false},  {1800, false},   {3600, true},
       {10800, false},   {36000, false}, {86400, true}, {259200, false}, {864000, true},
       {2592000, false}, {8640000, true}}};
  std::vector<Tick> all;
  std::vector<Tick> major;
  for (const Mark& mark : kMarks) {
    if (mark.seconds >= axis.low * 0.999 && mark.seconds <= axis.high * 1.001) {
      const double unit = mark.seconds >= 86400  ? 86400
                          : mark.seconds >= 3600 ? 3600
                          : mark.seconds >= 60   ? 60
                                                 : 1;
      const Tick tick{axis.position(mark.seconds), clock_label(mark.seconds, unit)};
      all.push_back(tick);
      if (mark.major) {
        major.push_back(tick);
      }
    }
  }
  const bool roomy = all.size() <= static_cast<std::size_t>(2 * wanted);
  return roomy || major.size() < 2 ? all : major;
}

std::vector<Tick> log_ticks(const Axis& axis, int wanted) {
  std::vector<Tick> ticks;
  const double decades = std::log10(axis.high / axis.low);
  const bool fine = decades < 0.6 * wanted;
  const int skip = std::max(1, static_cast<int>(std::ceil(decades / wanted)));
  int exponent = static_cast<int>(std::floor(std::log10(axis.low)));
  for (; ticks.size() < kMaxTicks && std::pow(10, exponent) <= axis.high; exponent += skip) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double value = factor * std::pow(10, exponent);
      const bool inside = value >= axis.low * 0.999 && value <= axis.high * 1.001;
      const bool shown = factor == 1.0 || (fine && (factor == 2.0 || decades < 0.35 * wanted));
      if (inside && shown) {
        ticks.push_back({axis.position(value), log_label(value, axis.unit)});
      }
    }
  }
  return ticks;
}

}  // namespace

const char* axis_unit_name(AxisUnit unit) {
  switch (unit) {
    case AxisUnit::kPlain:
      return "plain";
    case AxisUnit::kBytes:
      return "bytes";
    case AxisUnit::kSeconds:
      return "seconds";
    case AxisUnit::kRate:
      return "rate";
  }
  return "";
}

double Axis::position(double value) const {
  if (log) {
    return value > 0 ? std::log(value / low) / std::log(high / low) : -1;
  }
  return (value - low) / (high - low);
}

std::vector<Tick> Axis::ticks(int wanted) const {
  if (log) {
    return unit == AxisUnit::kSeconds ? log_clock_ticks(*this, wanted) : log_ticks(*this, wanted);
  }
  std::vector<Tick> ticks;
  const double distance = tick_distance(high - low, wanted, unit);
  const double first = std::ceil(low / distance - 1e-9);
  for (int i = 0; i < kMaxTicks; ++i) {
    const double value = (first + i) * distance;
    if (value > high + distance * 1e-9) {
      break;
    }
    const std::string label = unit == AxisUnit::kSeconds ? clock_label(value, distance)
                              : unit == AxisUnit::kBytes ? human_bytes(value)
                              : unit == AxisUnit::kRate  ? format_rate(value)
                                                         : plain_label(value, distance);
    ticks.push_back({position(value), label});
  }
  return ticks;
}

Axis make_axis(const std::vector<double>& values, bool log, AxisUnit unit, bool air) {
  Axis axis{.log = log, .unit = unit};
  bool any = false;
  for (const double value : values) {
    // Beyond 1e30 nothing of ours is meant, and the range must stay a finite double.
    if (!std::isfinite(value) || std::abs(value) > 1e30 || (log && !(value > 1e-30))) {
      continue;
    }
    axis.low = any ? std::min(axis.low, value) : value;
    axis.high = any ? std::max(axis.high, value) : value;
    any = true;
  }
  if (!any) {
    axis.low = log ? 1 : 0;
    axis.high = log ? 10 : 1;
    return axis;
  }
  if (log) {
    const double share = air ? std::pow(axis.high / axis.low, 0.03) : 1;
    axis.low /= share;
    axis.high *= share;
    if (axis.high < axis.low * 1.5) {
      axis.low /= 1.3;
      axis.high *= 1.3;
    }
    return axis;
  }
  const double span = axis.high - axis.low;
  if (span <= 1e-9 * std::max(std::abs(axis.high), 1e-9)) {
    const double pad = std::max(std::abs(axis.high) * 0.05, 1e-6);
    axis.low -= pad;
    axis.high += pad;
  } else if (air) {
    axis.low -= 0.04 * span;
    axis.high += 0.04 * span;
  }
  return axis;
}

}  // namespace isthmus::report
