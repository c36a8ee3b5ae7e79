// SPDX-License-Identifier: Apache-2.0
#include "app/compare/tuning.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <set>

#include "core/base/units.h"
#include "report/data/statistics.h"

namespace isthmus::app {
namespace {

/// A value that is a number: 4e-3, 20, or "16k tok" with the same unit on the whole axis.
struct Number {
  double value = 0;
  bool integer = false;
  std::string unit;  // "k tok", within quotes; empty for a plain number
};

std::optional<Number> number_of(const std::string& toml) {
  const bool quoted = toml.size() >= 2 && toml.front() == '"' && toml.back() == '"';
  const std::string text = quoted ? toml.substr(1, toml.size() - 2) : toml;
  Number number;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number.value);
  if (error != std::errc() || !std::isfinite(number.value)) {
    return std::nullopt;
  }
  number.unit.assign(end, text.data() + text.size());
  number.integer = text.find_first_not_of("0123456789-") == text.size() - number.unit.size() ||
                   text.find_first_not_of("0123456789-") == std::string::npos;
  return quoted == number.unit.empty() ? std::nullopt : std::optional(number);
}

/// Four digits are finer than any grid and read well.
double rounded(double value) {
  if (value == 0) {
    return 0;
  }
  const double scale = std::pow(10.0, 3 - std::floor(std::log10(std::abs(value))));
  return std::round(value * scale) / scale;
}

/// The trials seen along one axis.
class Axis {
 public:
  Axis(const std::vector<Trial>& trials, const Trial& best, std::size_t index)
      : index_(index), best_(best) {
    for (const Trial& trial : trials) {
      const auto number = number_of(trial.point[index].value);
      if (!number || (!values_.empty() && number->unit != unit_)) {
        numeric_ = false;
        return;
      }
      unit_ = number->unit;
      integer_ = integer_ && number->integer;
      values_.insert(number->value);
      if (trial.point[index].value == best.point[index].value) {
        here_ = number->value;
      }
    }
  }

  /// Whether there is a beyond at all: numbers, more than one of them.
  [[nodiscard]] bool has_edges() const { return numeric_ && values_.size() > 1; }
  [[nodiscard]] bool at_smallest() const { return here_ == *values_.begin(); }
  [[nodiscard]] bool at_largest() const { return here_ == *values_.rbegin(); }
  [[nodiscard]] double here() const { return here_; }

  /// The best point, with `value` on this axis.
  [[nodiscard]] Point moved_to(double value) const {
    Point point = best_.point;
    // Adding zero makes -0, which would count as another value than 0, into it.
    const std::string text =
        integer_ ? fmt::format("{:.0f}", std::round(value) + 0.0) : real_text(rounded(value));
    point[index_] = {.key = point[index_].key,
                     .value = unit_.empty() ? text : fmt::format("\"{}{}\"", text, unit_),
                     .origin = "follow-up trial of the comparison"};
    return point;
  }

  /// Beyond the edge by as much as to the neighbour, or by less where that is not allowed.
  [[nodiscard]] std::optional<Point> beyond(
      const std::function<bool(const Point&)>& allowed) const {
    constexpr int kAttempts = 4;
    double share = 1;
    for (int attempt = 0; attempt < kAttempts; ++attempt, share /= 2) {
      const Point point = moved_to(away_from(neighbour(at_largest()), share));
      if (point[index_].value != best_.point[index_].value && allowed(point)) {
        return point;
      }
    }
    return std::nullopt;
  }

  /// Values tried next to the best one, below and above.
  [[nodiscard]] std::vector<double> neighbours() const {
    std::vector<double> found;
    const auto at = values_.find(here_);
    if (at != values_.begin()) {
      found.push_back(*std::prev(at));
    }
    if (std::next(at) != values_.end()) {
      found.push_back(*std::next(at));
    }
    return found;
  }
  [[nodiscard]] double middle_towards(double other) const { return away_from(other, -0.5); }
  /// How far apart, as a ratio's logarithm where both are positive.
  [[nodiscard]] double gap_to(double other) const {
    return positive() ? std::abs(std::log(other / here_))
                      : std::abs(other - here_) / (*values_.rbegin() - *values_.begin());
  }

 private:
  [[nodiscard]] bool positive() const { return *values_.begin() > 0; }
  [[nodiscard]] double neighbour(bool below) const {
    const auto at = values_.find(here_);
    return below ? *std::prev(at) : *std::next(at);
  }
  /// From the best value away from `other`, by `share` of their distance.
  [[nodiscard]] double away_from(double other, double share) const {
    return positive() ? here_ * std::pow(here_ / other, share) : here_ + (here_ - other) * share;
  }

  std::size_t index_;
  const Trial& best_;
  std::set<double> values_;
  std::string unit_;
  double here_ = 0;
  bool numeric_ = true;
  bool integer_ = true;
};

std::string values_of(const Point& point) {
  std::string text;
  for (const Setting& setting : point) {
    text += setting.value + "\n";
  }
  return text;
}

bool tried(const std::vector<Trial>& trials, const Point& point) {
  return std::any_of(trials.begin(), trials.end(), [&](const Trial& trial) {
    return values_of(trial.point) == values_of(point);
  });
}

/// Loss of the trial that differs from `best` on this axis alone, or infinite.
double loss_at(const std::vector<Trial>& trials, const Point& point) {
  for (const Trial& trial : trials) {
    if (values_of(trial.point) == values_of(point)) {
      return trial.loss;
    }
  }
  return std::numeric_limits<double>::infinity();
}

struct Gap {
  double width = 0;
  double loss = 0;  // at its far end
  Point middle;
};

/// Gaps of about one width are judged by the loss at their far ends.
bool better(const Gap& a, const Gap& b) {
  constexpr double kSame = 1.05;
  if (a.width > b.width * kSame || b.width > a.width * kSame) {
    return a.width > b.width;
  }
  return a.loss < b.loss;
}

std::optional<Point> into_a_gap(const std::vector<Trial>& trials, const Trial& best,
                                const std::function<bool(const Point&)>& allowed) {
  std::optional<Gap> widest;
  for (std::size_t i = 0; i < best.point.size(); ++i) {
    const Axis axis(trials, best, i);
    if (!axis.has_edges()) {
      continue;
    }
    for (const double other : axis.neighbours()) {
      const Gap gap{axis.gap_to(other), loss_at(trials, axis.moved_to(other)),
                    axis.moved_to(axis.middle_towards(other))};
      const bool fresh = !tried(trials, gap.middle) && allowed(gap.middle);
      if (fresh && (!widest || better(gap, *widest))) {
        widest = gap;
      }
    }
  }
  return widest ? std::optional(widest->middle) : std::nullopt;
}

}  // namespace

std::vector<Point> grid_of(const std::vector<TuneAxis>& space) {
  std::vector<Point> points = {{}};
  for (const TuneAxis& axis : space) {
    std::vector<Point> longer;
    for (const Point& point : points) {
      for (const Setting& value : axis.values) {
        longer.push_back(point);
        longer.back().push_back(value);
      }
    }
    points = std::move(longer);
  }
  return points;
}

Trial trial_of(Point point, std::span<const double> losses) {
  const report::Spread spread = report::spread_of(losses);
  const bool finite = std::ranges::all_of(losses, [](double loss) { return std::isfinite(loss); });
  return {.point = std::move(point),
          .loss = finite ? spread.mean : std::numeric_limits<double>::infinity(),
          .spread = finite ? spread.deviation : 0};
}

// With two seeds a deviation is |a - b| / sqrt(2), a rough measure: of 4 to 8 equal normal points,
// one tuning in ten passes one over by chance, which then is rarely the best.
bool unsteady(const std::vector<Trial>& trials, const Trial& trial) {
  constexpr double kTimes = 4;
  constexpr std::size_t kFewest = 3;
  std::vector<double> spreads;
  for (const Trial& each : trials) {
    if (each.spread > 0) spreads.push_back(each.spread);
  }
  return spreads.size() >= kFewest && trial.spread > kTimes * report::median_of(spreads);
}

const Trial* best_of(const std::vector<Trial>& trials) {
  const Trial* best = nullptr;
  for (const Trial& trial : trials) {
    if (std::isfinite(trial.loss) && (best == nullptr || trial.loss < best->loss) &&
        !unsteady(trials, trial)) {
      best = &trial;
    }
  }
  return best;
}

std::optional<Point> follow_up(const std::vector<Trial>& trials,
                               const std::function<bool(const Point&)>& allowed) {
  const Trial* best = best_of(trials);
  if (best == nullptr) {
    return std::nullopt;
  }
  for (std::size_t i = 0; i < best->point.size(); ++i) {
    const Axis axis(trials, *best, i);
    if (axis.has_edges() && (axis.at_smallest() || axis.at_largest())) {
      const auto point = axis.beyond(allowed);
      if (point && !tried(trials, *point)) {
        return point;
      }
    }
  }
  return into_a_gap(trials, *best, allowed);
}

std::vector<GridEdge> edges_of(const std::vector<Trial>& trials,
                               const std::function<bool(const Point&)>& allowed) {
  std::vector<GridEdge> edges;
  const Trial* best = best_of(trials);
  for (std::size_t i = 0; best != nullptr && i < best->point.size(); ++i) {
    const Axis axis(trials, *best, i);
    if (axis.has_edges() && (axis.at_smallest() || axis.at_largest()) && axis.beyond(allowed)) {
      edges.push_back({best->point[i].key, best->point[i].value, axis.at_largest()});
    }
  }
  return edges;
}

}  // namespace isthmus::app
