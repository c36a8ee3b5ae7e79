// SPDX-License-Identifier: Apache-2.0
#include "transport/collectives/mix_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <utility>

#include "core/base/check.h"
#include "core/base/json_input.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {

using Json = nlohmann::json;

constexpr std::pair<std::string_view, Operation> kOperations[] = {
    {"all_reduce", Operation::kAllReduce}, {"reduce_scatter", Operation::kReduceScatter},
    {"all_gather", Operation::kAllGather}, {"broadcast", Operation::kBroadcast},
    {"all_to_all", Operation::kAllToAll},  {"barrier", Operation::kBarrier},
    {"message", Operation::kSend}};

auto place(const MeasuredCall& call) {
  return std::tuple(call.ranks, call.operation, call.bytes, std::string_view(call.backend));
}

std::string_view table_name(Operation operation) {
  for (const auto& [name, each] : kOperations) {
    if (each == operation) return name;
  }
  ISTHMUS_CHECK(false, operation_name(operation));
  return {};
}

/// Reads the keys of one object: each exactly once, none that is not asked for.
class TableFields {
 public:
  TableFields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object_.is_object()) fail("must be an object");
  }
  [[noreturn]] void fail(const std::string& why) const {
    throw SystemError(
        fmt::format("{}: {}; write the table with isthmus bench collectives --inner "
                    "--out FILE",
                    where_, why));
  }
  const Json& at(const char* key) {
    known_.insert(key);
    const auto found = object_.find(key);
    if (found == object_.end()) fail(fmt::format("'{}' is missing", key));
    return *found;
  }
  std::string text(const char* key) {
    const Json& value = at(key);
    if (!value.is_string()) fail(fmt::format("'{}' must be a text", key));
    return value.get<std::string>();
  }
  std::int64_t integer(const char* key, std::int64_t least, std::int64_t most) {
    const Json& value = at(key);
    if (!value.is_number_integer()) fail(fmt::format("'{}' must be an integer", key));
    const bool huge = value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX;
    const std::int64_t number = huge ? INT64_MAX : value.get<std::int64_t>();
    if (huge || number < least || number > most) {
      fail(fmt::format("'{}' is {}: must be in [{}, {}]", key, value.dump(), least, most));
    }
    return number;
  }
  void end() const {
    for (const auto& [key, value] : object_.items()) {
      if (!known_.contains(key)) fail(fmt::format("there is no key '{}'", key));
    }
  }

 private:
  const Json& object_;
  std::string where_;
  std::set<std::string> known_;
};

/// ranks: of the largest group.
MeasuredCall measured_of(const Json& json, const std::string& where, std::int64_t version,
                         int ranks) {
  TableFields fields(json, where);
  MeasuredCall call;
  call.ranks = version == 1 ? ranks : static_cast<int>(fields.integer("ranks", 1, ranks));
  const std::string name = fields.text("operation");
  for (const auto& [known, operation] : kOperations) {
    if (name == known) call.operation = operation;
  }
  if (call.operation == Operation::kNothing) {
    fields.fail(fmt::format("there is no operation '{}'", name));
  }
  call.backend = fields.text("backend");
  if (call.backend.empty()) fields.fail("'backend' is empty");
  call.bytes = fields.integer("bytes", 0, std::int64_t{1} << 50);
  const Json& us = fields.at("us");
  if (!us.is_number()) fields.fail("'us' must be a number");
  call.us = us.get<double>();
  if (!(call.us > 0) || !std::isfinite(call.us)) fields.fail("'us' must be above 0");
  fields.end();
  return call;
}

constexpr double kNotMeasured = std::numeric_limits<double>::infinity();

/// How far apart two sizes are: the quotient of the larger by the smaller.
double distance(std::int64_t a, std::int64_t b) {
  const auto least = static_cast<double>(std::min(a, b)) + 1;
  return (static_cast<double>(std::max(a, b)) + 1) / least;
}

std::size_t fastest_of(const std::vector<double>& times) {
  return static_cast<std::size_t>(std::min_element(times.begin(), times.end()) - times.begin());
}

}  // namespace

std::int64_t call_bytes(const Call& call, int ranks) {
  const std::int64_t values =
      call.operation == Operation::kAllToAll ? call.count / ranks : call.count;
  return values * static_cast<std::int64_t>(dtype_bytes(call.dtype));
}

MixTable::MixTable(int ranks, std::vector<MeasuredCall> measured) : ranks_(ranks) {
  ISTHMUS_CHECK(ranks >= 1, ranks);
  for (const MeasuredCall& each : measured) add(each);
}

void MixTable::add(const MeasuredCall& call) {
  ISTHMUS_CHECK(call.ranks >= 1 && call.ranks <= ranks_, call.ranks, ranks_);
  ISTHMUS_CHECK(call.bytes >= 0 && call.us > 0 && std::isfinite(call.us), call.bytes, call.us);
  const auto found = std::lower_bound(
      measured_.begin(), measured_.end(), call,
      [](const MeasuredCall& a, const MeasuredCall& b) { return place(a) < place(b); });
  if (found != measured_.end() && place(*found) == place(call)) {
    *found = call;
  } else {
    measured_.insert(found, call);
  }
}

bool MixTable::has_times_of(int ranks) const {
  return std::ranges::any_of(measured_,
                             [&](const MeasuredCall& each) { return each.ranks == ranks; });
}

std::vector<std::string> MixTable::backends() const {
  std::set<std::string> names;
  for (const MeasuredCall& each : measured_) names.insert(each.backend);
  return {names.begin(), names.end()};
}

MixChoices MixTable::choices(int ranks, const std::vector<std::string>& backends) const {
  ISTHMUS_CHECK(!backends.empty());
  const auto place_in = [&](const MeasuredCall& call) {
    return static_cast<std::size_t>(std::find(backends.begin(), backends.end(), call.backend) -
                                    backends.begin());
  };
  const auto usable = [&](const MeasuredCall& call) { return place_in(call) < backends.size(); };
  MixChoices choices;
  for (const auto& [name, operation] : kOperations) {
    int group = 0;                                // the nearest that was measured
    for (const MeasuredCall& each : measured_) {  // of rising ranks
      if (each.operation != operation || !usable(each)) continue;
      if (group == 0 || distance(each.ranks, ranks) < distance(group, ranks)) group = each.ranks;
    }
    std::map<std::int64_t, std::vector<double>> us;  // by size, of each back end or kNotMeasured
    for (const MeasuredCall& each : measured_) {
      if (each.operation != operation || each.ranks != group || !usable(each)) continue;
      us.try_emplace(each.bytes, backends.size(), kNotMeasured).first->second[place_in(each)] =
          each.us;
    }
    choices.kinds_[static_cast<std::size_t>(operation)] = MixChoices::kind_of(us);
  }
  return choices;
}

// Sums, products and quotients alone, no logarithms: all ranks find the same bytes.
MixChoices::Kind MixChoices::kind_of(const std::map<std::int64_t, std::vector<double>>& times) {
  Kind kind;
  if (times.empty()) return kind;
  std::vector<double> behind(times.begin()->second.size(), 0.0);
  for (auto here = times.begin(); here != times.end(); ++here) {
    const std::size_t best = fastest_of(here->second);
    kind.stretches.push_back({here->first, best});
    const std::vector<double>& us = here->second;
    for (std::size_t i = 0; i < us.size(); ++i) behind[i] += us[i] / us[best];
    if (const auto next = std::next(here); next != times.end()) cross(*here, *next, kind.stretches);
  }
  kind.fastest = fastest_of(behind);
  return kind;
}

void MixChoices::cross(const Times& from, const Times& to, std::vector<Stretch>& stretches) {
  const std::int64_t begin = from.first, end = to.first;
  const std::vector<double>&first = from.second, &last = to.second;
  std::vector<double> both = first;  // of those that were measured at both
  for (std::size_t i = 0; i < both.size(); ++i) {
    if (last[i] == kNotMeasured) both[i] = kNotMeasured;
  }
  std::size_t fastest = fastest_of(both);
  if (both[fastest] == kNotMeasured) return;
  const auto begins = [&](double at) {
    const std::int64_t bytes =
        begin + 1 + static_cast<std::int64_t>(at * static_cast<double>(end - begin));
    if (bytes < end) stretches.push_back({bytes, fastest});
  };
  if (fastest != stretches.back().fastest) begins(0);
  double at = 0;  // of the way
  for (bool crossed = true; crossed;) {
    crossed = false;
    const std::size_t before = fastest;
    double nearest = 1;
    for (std::size_t i = 0; i < both.size(); ++i) {
      if (both[i] == kNotMeasured) continue;
      const double behind = first[i] - first[before];
      // From differences, so that the next candidate rises less than all before, however it rounds.
      const double gained = (first[i] - last[i]) - (first[before] - last[before]);
      if (gained <= 0 || std::max(behind, at * gained) >= nearest * gained) continue;
      nearest = std::max(behind / gained, at);
      fastest = i;
      crossed = true;
    }
    if (crossed) begins(at = nearest);
  }
}

std::size_t MixChoices::of(Operation operation, std::int64_t bytes) const {
  const std::vector<Stretch>& stretches = kind(operation).stretches;
  if (stretches.empty()) return 0;
  const auto after = std::upper_bound(stretches.begin(), stretches.end(), bytes,
                                      [](std::int64_t a, const Stretch& b) { return a < b.begin; });
  return after == stretches.begin() ? after->fastest : (after - 1)->fastest;
}

std::size_t MixChoices::of_kind(Operation operation) const { return kind(operation).fastest; }

std::string MixTable::json() const {
  std::string text = fmt::format(
      "{{\"isthmus\": \"collectives\", \"version\": 2, \"ranks\": {},\n"
      " \"measured\": [",
      ranks_);
  for (const MeasuredCall& each : measured_) {
    text += fmt::format(
        "{}\n  {{\"ranks\": {}, \"operation\": {}, \"backend\": {}, "
        "\"bytes\": {}, \"us\": {}}}",
        &each == measured_.data() ? "" : ",", each.ranks,
        Json(std::string(table_name(each.operation))).dump(), Json(each.backend).dump(), each.bytes,
        each.us);
  }
  return text + "]}\n";
}

std::uint64_t MixTable::digest() const {
  std::vector<std::int64_t> bytes;
  for (const char each : json()) bytes.push_back(each);
  return layout_digest(bytes);
}

MixTable parse_mix_table(std::string_view text, const std::string& label) {
  const Json json = parse_json(text, label);
  TableFields fields(json, label);
  if (fields.text("isthmus") != "collectives") {
    fields.fail("'isthmus' must be \"collectives\": this is no table of back ends");
  }
  const std::int64_t version = fields.integer("version", 1, 2);
  MixTable table(static_cast<int>(fields.integer("ranks", 1, 1 << 20)), {});
  const Json& measured = fields.at("measured");
  if (!measured.is_array()) fields.fail("'measured' must be a list");
  for (std::size_t i = 0; i < measured.size(); ++i) {
    const MeasuredCall call =
        measured_of(measured[i], fmt::format("{}: measured[{}]", label, i), version, table.ranks());
    const std::size_t before = table.measured().size();
    table.add(call);
    if (table.measured().size() == before) {
      fields.fail(fmt::format("measured[{}] was measured before in this file", i));
    }
  }
  fields.end();
  return table;
}

}  // namespace isthmus
