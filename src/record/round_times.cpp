// SPDX-License-Identifier: Apache-2.0
#include "record/round_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

namespace isthmus {
namespace {

constexpr std::size_t kMostPairs = 400;    // points of a chart, and lines of JSON
constexpr std::size_t kMostFragments = 8;  // lines of a terminal

/// The end of splitmix64 (Steele, Lea and Flood 2014): neighbouring numbers come out unrelated.
std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

bool stays(std::int64_t step, std::uint64_t mask) {
  return (mixed(static_cast<std::uint64_t>(step)) & mask) == 0;
}

RoundQuantiles quantiles_of(std::vector<double> seconds) {
  std::ranges::sort(seconds);
  const auto rank = [&](double q) {
    const auto place = static_cast<std::size_t>(std::ceil(q * static_cast<double>(seconds.size())));
    return seconds[std::max<std::size_t>(place, 1) - 1];
  };
  return {rank(0.5), rank(0.95)};
}

RoundsCompared compared(int fragment, const std::vector<RoundPair>& pairs) {
  if (pairs.empty()) return {.fragment = fragment};
  std::vector<double> predicted;
  std::vector<double> measured;
  for (const RoundPair& pair : pairs) {
    predicted.push_back(pair.predicted_s);
    measured.push_back(pair.measured_s);
  }
  return {fragment, pairs.size(), quantiles_of(std::move(predicted)),
          quantiles_of(std::move(measured))};
}

std::vector<RoundPair> pairs_of(int fragment, const RoundTimes::Kept& predicted,
                                const RoundTimes::Kept& measured) {
  std::vector<RoundPair> pairs;
  for (const auto& [sent, seconds] : predicted.at) {
    const auto found = measured.at.find(sent);
    if (found != measured.at.end()) pairs.push_back({fragment, sent, seconds, found->second});
  }
  return pairs;
}

/// Evenly chosen by place: the fragments of a step take turns.
std::vector<RoundPair> thinned(const std::vector<RoundPair>& pairs) {
  const std::size_t count = std::min(pairs.size(), kMostPairs);
  std::vector<RoundPair> kept;
  for (std::size_t i = 0; i < count; ++i) kept.push_back(pairs[i * pairs.size() / count]);
  return kept;
}

}  // namespace

void RoundTimes::add(FragmentId fragment, StepIndex sent, double seconds) {
  Kept& kept = by_fragment_[fragment.value()];
  if (!stays(sent.value(), kept.mask)) return;
  kept.at[sent.value()] = seconds;
  while (kept.at.size() > kMost) {
    kept.mask = 2 * kept.mask + 1;
    std::erase_if(kept.at, [&](const auto& round) { return !stays(round.first, kept.mask); });
  }
}

void RoundTimes::add(const RoundTimes& others) {
  for (const auto& [fragment, kept] : others.by_fragment_) {
    for (const auto& [sent, seconds] : kept.at) {
      add(FragmentId(fragment), StepIndex(sent), seconds);
    }
  }
}

double RoundsCompared::error() const {
  if (predicted.median_s == measured.median_s) return 0;  // both zero over free links
  return measured.median_s > 0 ? predicted.median_s / measured.median_s - 1
                               : std::numeric_limits<double>::quiet_NaN();
}

RoundComparison compare_rounds(const RoundTimes& predicted, const RoundTimes& measured) {
  RoundComparison comparison;
  std::vector<RoundPair> all;
  for (const auto& [fragment, kept] : predicted.by_fragment()) {
    const auto found = measured.by_fragment().find(fragment);
    if (found == measured.by_fragment().end()) continue;
    const std::vector<RoundPair> pairs = pairs_of(fragment, kept, found->second);
    if (pairs.empty()) continue;
    comparison.fragments.push_back(compared(fragment, pairs));
    all.insert(all.end(), pairs.begin(), pairs.end());
  }
  std::ranges::sort(all, {},
                    [](const RoundPair& pair) { return std::pair(pair.sent, pair.fragment); });
  comparison.all = compared(-1, all);
  comparison.pairs = thinned(all);
  return comparison;
}

std::string render_rounds(const RoundComparison& comparison, const std::string& whose) {
  if (comparison.all.rounds == 0) return "";
  std::vector<RoundsCompared> rows = comparison.fragments;
  const std::size_t left_out = rows.size() - std::min(rows.size(), kMostFragments);
  std::ranges::stable_sort(rows, std::ranges::greater(),
                           [](const RoundsCompared& row) { return row.measured.median_s; });
  rows.resize(rows.size() - left_out);
  std::ranges::sort(rows, {}, &RoundsCompared::fragment);
  if (comparison.fragments.size() > 1) rows.push_back(comparison.all);

  std::string text = fmt::format("rounds at {}, seconds from begin to final result\n", whose);
  const auto out = std::back_inserter(text);
  fmt::format_to(out, "  {:<13} {:>7}  {:>21}  {:>21}\n", "", "", "predicted", "measured");
  fmt::format_to(out, "  {:<13} {:>7}  {:>10} {:>10}  {:>10} {:>10}  {:>9}\n", "", "rounds",
                 "median", "95 %", "median", "95 %", "error");
  for (const RoundsCompared& row : rows) {
    const std::string name =
        row.fragment < 0 ? "all fragments" : fmt::format("fragment {}", row.fragment);
    const double error = row.error();
    fmt::format_to(out, "  {:<13} {:>7}  {:>10.6f} {:>10.6f}  {:>10.6f} {:>10.6f}  {:>9}\n", name,
                   row.rounds, row.predicted.median_s, row.predicted.p95_s, row.measured.median_s,
                   row.measured.p95_s,
                   std::isnan(error) ? "?" : fmt::format("{:+.2f} %", 100 * error));
  }
  if (left_out > 0) {
    fmt::format_to(out, "  ({} fragments with shorter rounds: in summary.json)\n", left_out);
  }
  return text;
}

}  // namespace isthmus
