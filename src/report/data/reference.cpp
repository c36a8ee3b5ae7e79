// SPDX-License-Identifier: Apache-2.0
#include "report/data/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "core/base/check.h"

namespace isthmus::report {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

/// Losses of one variant's runs by step.
using Curves = std::map<std::int64_t, std::vector<double>>;

Curves curves_of(const std::vector<CellResult>& cells, const std::string& variant) {
  Curves curves;
  for (const CellResult& cell : cells) {
    if (cell.variant == variant) {
      for (const CellEval& eval : cell.evals) {
        curves[eval.step].push_back(eval.loss);
      }
    }
  }
  return curves;
}

/// Of the mean of `fresh` more draws.
Interval band_of(const Spread& reference, int fresh, double level) {
  const double t = student_t_quantile(1 - level / 2, reference.n - 1);
  const double half = t * reference.deviation * std::sqrt(1.0 / reference.n + 1.0 / fresh);
  return {reference.mean - half, reference.mean + half};
}

}  // namespace

bool CurveCheck::normal() const {
  return std::all_of(points.begin(), points.end(), [](const CurvePoint& p) { return p.normal(); });
}

double distance(const CurvePoint& point) {
  const double half = (point.band.high - point.band.low) / 2;
  const double off = std::abs(point.loss - point.reference.mean);
  return off == 0 ? 0 : off / half;
}

const CurvePoint& CurveCheck::furthest() const {
  return *std::max_element(
      points.begin(), points.end(),
      [](const CurvePoint& a, const CurvePoint& b) { return distance(a) < distance(b); });
}

std::vector<CurveCheck> check_curves(const std::vector<CellResult>& reference,
                                     const std::vector<CellResult>& fresh, double false_alarm) {
  std::vector<CurveCheck> checks;
  for (const CellResult& cell : fresh) {
    if (checks.empty() || checks.back().variant != cell.variant) {
      checks.push_back({.variant = cell.variant, .method = cell.method});
    }
    CurveCheck& check = checks.back();
    ++check.seeds;
    if (cell.status == CellStatus::kFailed && check.cause.empty()) {
      check.cause = cell.cause;
    }
  }
  std::size_t tests = 0;
  for (CurveCheck& check : checks) {
    const Curves found = curves_of(fresh, check.variant);
    for (const auto& [step, losses] : curves_of(reference, check.variant)) {
      const auto now = found.find(step);
      const bool whole =
          now != found.end() && now->second.size() == static_cast<std::size_t>(check.seeds);
      CurvePoint point{.step = step, .reference = spread_of(losses)};
      point.loss = whole ? spread_of(now->second).mean : kInfinite;
      ISTHMUS_CHECK(point.reference.n > 1, check.variant, step);
      check.points.push_back(point);
    }
    ISTHMUS_CHECK(!check.points.empty(), check.variant);
    tests += check.points.size();
  }
  for (CurveCheck& check : checks) {
    for (CurvePoint& point : check.points) {
      point.band = band_of(point.reference, check.seeds, false_alarm / static_cast<double>(tests));
    }
  }
  return checks;
}

}  // namespace isthmus::report
