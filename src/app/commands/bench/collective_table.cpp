// SPDX-License-Identifier: Apache-2.0
#include "app/commands/bench/collective_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "app/commands/bench/simulated_algorithms.h"
#include "app/common/text_table.h"
#include "app/train/config_to_options.h"
#include "core/base/storage.h"
#include "core/base/units.h"
#include "isthmus/errors.h"
#include "record/build_info.h"
#include "record/json_line.h"
#include "record/wall_clock.h"
#include "session/run/owner_shares.h"

namespace isthmus::app {
namespace {

/// Of a run with net.shares = "table". THROWS: ConfigError where it would be refused.
void check(const Config& config) {
  const auto with_table = std::make_unique<Config>(config);  // large
  with_table->net.shares = "table";
  std::string why = shares_obstacle(*with_table, info_of(config.method)).first;
  const std::vector<std::uint32_t> even = even_shares(config);
  if (std::ranges::count(even, std::uint32_t{1}) == 1) {
    why =
        "one site alone has an address and would own all, and an only owner that stands still is "
        "not noticed";
  }
  if (!why.empty()) {
    throw ConfigError(fmt::format("{}: no run of this file takes a table of ways: {}",
                                  config.file.string(), why));
  }
  static_cast<void>(owner_shares(*with_table));
}

NotedWay tuned(const Config& config, std::int64_t values) {
  const Question question = question_of(config, values);
  std::vector<Way> ways = ways_of_reduce(question, config);
  const TimedWay even = timed(question, ways.front());
  std::vector<std::pair<double, std::size_t>> by_prediction;
  for (std::size_t i = 1; i < ways.size(); ++i) {
    by_prediction.emplace_back(predicted_s(question, ways[i]), i);
  }
  std::ranges::sort(by_prediction);
  constexpr std::size_t kPlayed = 3;  // predictions are within a few hundredths of what is played
  by_prediction.resize(std::min(by_prediction.size(), kPlayed));
  TimedWay best = even;
  constexpr double kWorthIt = 0.99;
  for (const auto& [seconds, i] : by_prediction) {
    const TimedWay other = timed(question, ways[i]);
    const double most =
        best.way.shares == even.way.shares ? kWorthIt * even.simulated_s : best.simulated_s;
    if (other.simulated_s < most) best = other;
  }
  const std::size_t bytes =
      encoded_bytes(*question.round.codec, static_cast<std::size_t>(question.values));
  return {.way = {.bytes = static_cast<std::int64_t>(bytes), .shares = best.way.shares},
          .name = best.way.name,
          .predicted_s = best.predicted_s,
          .played_s = best.simulated_s,
          .even_s = even.simulated_s};
}

void print(const CollectiveTable& ways, const std::filesystem::path& out, Session& session) {
  TextTable table({"bytes", "way", "predicted", "simulated", "even shares"});
  for (const NotedWay& each : ways.ways) {
    if (session.json) {
      JsonLine line;
      line.add("bench", "ways").add("bytes", each.way.bytes).add("way", each.name);
      line.add("shares", words_of_shares(each.way.shares));
      line.add("predicted_s", each.predicted_s).add("simulated_s", each.played_s);
      session.out.write(line.add("even_s", each.even_s).str() + "\n");
    }
    table.add({human_bytes(static_cast<double>(each.way.bytes)), each.name,
               human_time(each.predicted_s), human_time(each.played_s), human_time(each.even_s)});
  }
  if (!session.json) session.out.write(table.text(session.out));
  session.err.write(fmt::format(
      "{}: written. A run takes it with shares = \"table\" and table = \"{}\" in [net], at all "
      "sites alike.\n",
      out.string(), out.string()));
}

}  // namespace

std::vector<std::int64_t> size_classes(std::span<const std::int64_t> exchanged) {
  constexpr std::size_t kFew = 16;
  if (exchanged.size() <= kFew) return {exchanged.begin(), exchanged.end()};
  std::vector<std::int64_t> sizes;
  const std::int64_t largest = exchanged.back();
  for (auto size = static_cast<std::int64_t>(kTileValues); size < largest; size *= 2) {
    sizes.push_back(size);
  }
  sizes.push_back(largest);
  return sizes;
}

CollectiveTable tuned_ways(const Config& config, std::span<const std::int64_t> sizes) {
  check(config);
  CollectiveTable file;
  for (const SiteConfig& site : config.sites) file.sites.push_back(site.name);
  for (const std::int64_t values : sizes) {
    if (values > 0) file.ways.push_back(tuned(config, values));
  }
  return file;
}

void write_collective_table(const Config& config, std::span<const std::int64_t> exchanged,
                            const std::filesystem::path& out, Session& session) {
  const CollectiveTable ways = tuned_ways(config, size_classes(exchanged));
  const std::string how =
      fmt::format("Written {} by isthmus {} for {}, over its links in virtual time.", utc_now(),
                  program_version(), config.file.string());
  SystemStorage storage;
  write_atomically(storage, out, ways_toml(ways, how));
  print(ways, out, session);
}

}  // namespace isthmus::app
