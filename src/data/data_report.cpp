// SPDX-License-Identifier: Apache-2.0
#include "data/data_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace isthmus {
namespace {

constexpr std::int64_t kChunk = std::int64_t{1} << 20;
// Ids below this are counted in a table; a corrupt file may name any of 2^31, which no table holds.
constexpr std::int32_t kTableIds = 1 << 20;

std::map<std::string, DataFile> by_name(std::span<const DataFile> files) {
  std::map<std::string, DataFile> result;
  for (const DataFile& file : files) result.emplace(file.path, file);
  return result;
}

}  // namespace

TokenCensus take_census(const Dataset& data, const DataProgress& progress) {
  std::vector<std::int64_t> table(
      static_cast<std::size_t>(std::min<std::int64_t>(kTableIds, data.vocab_bound())));
  std::map<std::int32_t, std::int64_t> beyond;
  std::vector<std::int32_t> ids;
  TokenCensus census;
  while (census.tokens < data.tokens()) {
    ids.resize(static_cast<std::size_t>(std::min(kChunk, data.tokens() - census.tokens)));
    data.read(census.tokens, ids);
    const auto [low, high] = std::minmax_element(ids.begin(), ids.end());
    census.smallest = census.tokens == 0 ? *low : std::min(census.smallest, *low);
    census.largest = std::max(census.largest, *high);
    for (const std::int32_t id : ids) {
      const auto at = static_cast<std::size_t>(id);
      ++(at < table.size() ? table[at] : beyond[id]);
    }
    census.tokens += static_cast<std::int64_t>(ids.size());
    if (progress) progress(census.tokens, data.tokens());
  }
  const auto add = [&](std::int64_t count) {
    if (count == 0) return;
    const double p = static_cast<double>(count) / static_cast<double>(census.tokens);
    census.unigram_entropy -= p * std::log(p);
    ++census.distinct;
  };
  for (const std::int64_t count : table) add(count);
  for (const auto& [id, count] : beyond) add(count);
  return census;
}

std::vector<std::string> data_changes(std::span<const DataFile> expected,
                                      std::span<const DataFile> found) {
  std::vector<std::string> changes;
  std::map<std::string, DataFile> left = by_name(found);
  for (const auto& [name, before] : by_name(expected)) {
    const auto now = left.find(name);
    if (now == left.end()) {
      changes.push_back(fmt::format("{}: is gone", name));
      continue;
    }
    if (now->second.bytes != before.bytes) {
      changes.push_back(
          fmt::format("{}: has {} bytes, had {}", name, now->second.bytes, before.bytes));
    } else if (now->second.sha256 != before.sha256) {
      changes.push_back(
          fmt::format("{}: sha256 is {}, was {}", name, now->second.sha256, before.sha256));
    } else if (!is_same_reading(now->second.reading, before.reading)) {
      changes.push_back(fmt::format("{}: is read as {}, was read as {} (data.source)", name,
                                    now->second.reading, before.reading));
    }
    left.erase(now);
  }
  for (const auto& [name, file] : left) changes.push_back(fmt::format("{}: is new", name));
  return changes;
}

}  // namespace isthmus
