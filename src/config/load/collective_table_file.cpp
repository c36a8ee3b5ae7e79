// SPDX-License-Identifier: Apache-2.0
#include "config/load/collective_table_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "config/load/config_load_diagnostics.h"
#include "config/load/config_load_text.h"
#include "config/schema/config_schema_values.h"
#include "core/base/hash.h"
#include "core/base/storage.h"
#include "core/base/suggest.h"
#include "core/base/units.h"

namespace isthmus {
namespace {

using config::Diagnostics;
using config::Place;
using config::SourceArray;
using config::SourceEntry;
using config::SourceTable;
using config::SourceValue;

constexpr std::size_t kMostSites = 4096;
constexpr std::string_view kRemedy = "`isthmus bench collectives CONFIG --out FILE` writes one";

/// Notes what is wrong and goes on, so that all of it is told at once.
class WaysReader {
 public:
  explicit WaysReader(Diagnostics& diagnostics) : diagnostics_(diagnostics) {}

  CollectiveTable read(const SourceTable& table) {
    for (const SourceEntry& entry : table) {
      if (entry.key == "sites") {
        read_sites(entry.value);
      } else if (entry.key == "way") {
        read_ways(entry.value);
      } else {
        diagnostics_.add("E-KEY-UNKNOWN", entry.place,
                         fmt::format("'{}' in a ways file", entry.key),
                         fmt::format("it holds 'sites' and [[way]] entries; {}", kRemedy));
      }
    }
    if (diagnostics_.empty()) check();
    return std::move(file_);
  }

 private:
  [[nodiscard]] static std::string shown(const SourceValue& value) { return config::shown(value); }

  void must_be(const std::string& key, const SourceValue& value, std::string_view what) {
    diagnostics_.add("E-TYPE", value.place,
                     fmt::format("'{} = {}': must be {}", key, shown(value), what));
  }

  void read_sites(const SourceValue& value) {
    const auto* names = std::get_if<SourceArray>(&value.data);
    sites_place_ = value.place;
    if (names == nullptr) return must_be("sites", value, "a list of the sites' names");
    for (const SourceValue& each : *names) {
      const auto* name = std::get_if<std::string>(&each.data);
      if (name == nullptr) return must_be("sites", each, "a list of the sites' names");
      file_.sites.push_back(*name);
    }
  }

  void read_ways(const SourceValue& value) {
    const auto* entries = std::get_if<SourceArray>(&value.data);
    if (entries == nullptr) return must_be("way", value, "[[way]] entries");
    for (const SourceValue& each : *entries) {
      const auto* table = std::get_if<SourceTable>(&each.data);
      if (table == nullptr) return must_be("way", each, "[[way]] entries");
      places_.push_back(each.place);
      file_.ways.push_back(read_way(*table, each.place));
    }
  }

  NotedWay read_way(const SourceTable& table, const Place& place) {
    NotedWay noted;
    for (const SourceEntry& entry : table) {
      const std::string key = "way." + entry.key;
      double* time = entry.key == "predicted_s" ? &noted.predicted_s
                     : entry.key == "played_s"  ? &noted.played_s
                     : entry.key == "even_s"    ? &noted.even_s
                                                : nullptr;
      if (entry.key == "bytes") {
        noted.way.bytes = integer(key, entry.value, 1, std::int64_t{1} << 50);
      } else if (entry.key == "shares") {
        noted.way.shares = shares(entry.value);
      } else if (entry.key == "name") {
        const auto* text = std::get_if<std::string>(&entry.value.data);
        if (text == nullptr) must_be(key, entry.value, "text");
        if (text != nullptr) noted.name = *text;
      } else if (time != nullptr) {
        *time = seconds(key, entry.value);
      } else {
        diagnostics_.add("E-KEY-UNKNOWN", entry.place, fmt::format("unknown key '{}'", key),
                         "keys of [[way]]: bytes, shares, name, predicted_s, played_s, even_s");
      }
    }
    if (std::ranges::find(table, "bytes", &SourceEntry::key) == table.end()) {
      diagnostics_.add("E-KEY-MISSING", place, "[[way]] without 'bytes'",
                       "bytes = 266240, of a vector as it travels");
    }
    return noted;
  }

  /// RETURNS: `least` where it is none.
  std::int64_t integer(const std::string& key, const SourceValue& value, std::int64_t least,
                       std::int64_t most) {
    const auto* number = std::get_if<std::int64_t>(&value.data);
    if (number == nullptr) {
      must_be(key, value, "an integer");
      return least;
    }
    if (*number < least || *number > most) {
      diagnostics_.add("E-RANGE", value.place,
                       fmt::format("'{} = {}': must be in [{}, {}]", key, *number, least, most));
      return least;
    }
    return *number;
  }

  double seconds(const std::string& key, const SourceValue& value) {
    double number = -1;
    if (const auto* real = std::get_if<double>(&value.data)) number = *real;
    if (const auto* whole = std::get_if<std::int64_t>(&value.data)) {
      number = static_cast<double>(*whole);
    }
    if (number >= 0 && std::isfinite(number)) return number;
    must_be(key, value, "seconds, 0 or more");
    return 0;
  }

  std::vector<std::uint32_t> shares(const SourceValue& value) {
    std::vector<std::uint32_t> read;
    const auto* numbers = std::get_if<SourceArray>(&value.data);
    if (numbers == nullptr) {
      must_be("way.shares", value, "a list of whole numbers, one a site");
      return read;
    }
    for (const SourceValue& each : *numbers) {
      // Sums of 4,096 of them, times tiles, stay far from the end of 64 bits.
      constexpr std::int64_t kMost = std::int64_t{1} << 20;
      read.push_back(static_cast<std::uint32_t>(integer("way.shares", each, 0, kMost)));
    }
    // Who waits for a round and owns nothing of it cannot tell who has not begun it, so an only
    // owner that stands still would go unnoticed.
    if (std::ranges::count_if(read, [](std::uint32_t each) { return each > 0; }) < 2) {
      diagnostics_.add("E-VALUE", value.place,
                       fmt::format("'way.shares = {}': fewer than two sites own a share, and an "
                                   "only owner that stands still is not noticed",
                                   shown(value)),
                       "give another site a small share");
    }
    return read;
  }

  void check() {
    if (file_.sites.empty() || file_.sites.size() > kMostSites) {
      diagnostics_.add("E-KEY-MISSING", sites_place_,
                       fmt::format("'sites' names {} sites: must be the run's, in its order",
                                   file_.sites.size()),
                       std::string(kRemedy));
    }
    if (std::set<std::string>(file_.sites.begin(), file_.sites.end()).size() !=
        file_.sites.size()) {
      diagnostics_.add("E-CONFLICT", sites_place_, "'sites' names one of them twice");
    }
    if (file_.ways.empty()) {
      diagnostics_.add("E-KEY-MISSING", {}, "no [[way]] in this ways file", std::string(kRemedy));
    }
    for (std::size_t i = 0; i < file_.ways.size(); ++i) {
      const WayConfig& way = file_.ways[i].way;
      if (!way.shares.empty() && way.shares.size() != file_.sites.size()) {
        diagnostics_.add("E-VALUE", places_[i],
                         fmt::format("'way.shares' has {} numbers for {} sites", way.shares.size(),
                                     file_.sites.size()),
                         "one for each of 'sites', in that order; none: all own as much");
      }
      if (i > 0 && way.bytes <= file_.ways[i - 1].way.bytes) {
        diagnostics_.add("E-CONFLICT", places_[i],
                         fmt::format("[[way]] of {} bytes behind one of {}", way.bytes,
                                     file_.ways[i - 1].way.bytes),
                         "sizes rise, each once");
      }
    }
  }

  Diagnostics& diagnostics_;
  CollectiveTable file_;
  Place sites_place_;
  std::vector<Place> places_;  // of the ways
};

}  // namespace

CollectiveTable read_ways_text(std::string_view text, const std::filesystem::path& name) {
  Diagnostics diagnostics(text, name.string());
  WaysReader reader(diagnostics);
  CollectiveTable file;
  if (const auto source = config::parse_source(text, diagnostics)) file = reader.read(*source);
  if (!diagnostics.empty()) throw ConfigErrors(diagnostics.take());
  return file;
}

CollectiveTable read_ways_file(const std::filesystem::path& file) {
  return read_ways_text(config::read_config_file(file), file);
}

std::string ways_toml(const CollectiveTable& ways, const std::string& how) {
  std::vector<std::string> names;
  for (const std::string& site : ways.sites) names.push_back(config::toml_quote(site));
  std::string text = fmt::format(
      "# Who owns how much of a mean, by its size. Use it at all sites alike, in [net]:\n"
      "# shares = \"table\", table = \"THIS\". {}\nsites = [{}]\n",
      config::toml_comment(how), fmt::join(names, ", "));
  for (const NotedWay& each : ways.ways) {
    text += fmt::format("\n[[way]]\nbytes = {}\n", each.way.bytes);
    if (!each.name.empty()) text += fmt::format("name = {}\n", config::toml_quote(each.name));
    if (!each.way.shares.empty()) {
      text += fmt::format("shares = [{}]\n", fmt::join(each.way.shares, ", "));
    }
    for (const auto& [key, seconds] :
         {std::pair("predicted_s", each.predicted_s), std::pair("played_s", each.played_s),
          std::pair("even_s", each.even_s)}) {
      if (seconds > 0) text += fmt::format("{} = {}\n", key, real_text(seconds));
    }
  }
  return text;
}

std::pair<std::string, std::string> shares_obstacle(const Config& config, const MethodInfo& info) {
  if (!info.takes("exchange") || config.outer.exchange == ReductionKind::kGather) {
    return {fmt::format("shares need a mean that sites compute for one another, and {}",
                        info.takes("exchange")
                            ? "outer.exchange = \"gather\" sends all to all"
                            : fmt::format("method '{}' sends all to all", info.name)),
            "remove it"};
  }
  if (info.name == "1bit-adam" || info.name == "01-adam") {
    return {fmt::format("method '{}' keeps what each encoding of a mean has lost where it was "
                        "encoded, and would go on without it under other shares",
                        info.name),
            "remove it, or choose another method"};
  }
  if (config.net.reduction == "groups") {
    return {
        "in groups the links inside a group and those between groups carry unlike shares, for "
        "which there is no form",
        "remove it, or net.reduction = \"groups\""};
  }
  return {};
}

std::string ways_digest(const std::vector<WayConfig>& ways) {
  constexpr std::size_t kDigits = 16;
  std::string text;
  for (const WayConfig& way : ways) {
    text += fmt::format("{}:{}\n", way.bytes, fmt::join(way.shares, ":"));
  }
  return xxh3_128(as_bytes(text)).hex().substr(0, kDigits);
}

}  // namespace isthmus
