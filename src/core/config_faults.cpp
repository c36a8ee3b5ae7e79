// SPDX-License-Identifier: Apache-2.0
// [[fault]]: what goes wrong for a time in a simulated run. Its keys, and the rules across them.
#include <fmt/format.h>

#include <algorithm>

#include "core/config_loader.h"
#include "core/suggest.h"

namespace isthmus::config {
namespace {

constexpr double kLatest = 1e9;  // seconds; times are whole nanoseconds in 64 bits

constexpr Field<FaultConfig> kBetween = {
    [](FaultConfig& fault, const Value& value) {
      const auto& pair = std::get<std::vector<std::string>>(value);
      fault.a = pair[0];
      fault.b = pair[1];
    },
    [](const FaultConfig& fault) {
      return fault.a.empty() ? Value{} : Value(std::vector<std::string>{fault.a, fault.b});
    }};
constexpr Field<FaultConfig> kSite = {
    [](FaultConfig& fault, const Value& value) { from_value(fault.site, value); },
    [](const FaultConfig& fault) { return fault.site.empty() ? Value{} : Value(fault.site); }};
constexpr Field<FaultConfig> kRate = {
    [](FaultConfig& fault, const Value& value) { from_value(fault.bits_per_s, value); },
    [](const FaultConfig& fault) {
      return fault.bits_per_s == 0 ? Value{} : Value(fault.bits_per_s);
    }};
constexpr Field<FaultConfig> kPace = {
    [](FaultConfig& fault, const Value& value) { from_value(fault.pace, value); },
    [](const FaultConfig& fault) { return fault.kind == "slow" ? Value(fault.pace) : Value{}; }};

// clang-format off
constexpr KeyRow<FaultConfig> kRows[] = {
    {"fault.kind", Type::kChoice, {}, "cut|rate|pause|slow", field<&FaultConfig::kind>(),
     "Under simulate. cut: nothing leaves on a link. rate: its line has another rate. pause: a site neither computes nor sends nor is sent anything. slow: it computes at a share of its speed.",
     "\"cut\""},
    {"fault.between", Type::kPairOfTexts, {}, "", kBetween,
     "Of cut and rate: the sites whose link it is, both directions; \"*\" for every site.", "[\"east\", \"west\"]"},
    {"fault.site", Type::kText, {}, "", kSite,
     "Of pause and slow: the site.", "\"east\""},
    {"fault.at", Type::kTime, between(0, kLatest), "", field<&FaultConfig::at>(),
     "When it begins, on the simulated clock of the whole run.", "\"20min\""},
    {"fault.lasts", Type::kTime, Range{0, kLatest, true}, "", field<&FaultConfig::lasts>(),
     "How long it lasts.", "\"5min\""},
    {"fault.rate", Type::kRate, between(1, 1e15), "", kRate,
     "Of rate: the line's rate meanwhile; of several the lowest.", "\"5Mbit/s\""},
    {"fault.pace", Type::kFraction, Range{0, 1, true}, "", kPace,
     "Of slow: share of its speed at which the site computes; of several the lowest.", "0.25"},
};
// clang-format on

/// A key that this kind needs, or has no use for.
struct KeyOfKind {
  std::string_view key, kind, other_kind, example;
};
constexpr KeyOfKind kKeysOfKinds[] = {
    {"fault.between", "cut", "rate", "between = [\"east\", \"west\"]"},
    {"fault.site", "pause", "slow", "site = \"east\""},
    {"fault.rate", "rate", "rate", "rate = \"5Mbit/s\""},
    {"fault.pace", "slow", "slow", "pace = 0.25"},
};

}  // namespace

std::span<const KeyRow<FaultConfig>> fault_rows() { return kRows; }

void Loader::check_faults(const std::vector<std::string>& names) {
  for (std::size_t i = 0; i < fault_places.size(); ++i) {
    const FaultConfig& fault = config.faults[i];
    const GivenKeys& given_keys = fault_keys[i];
    const auto needs = [&](std::string_view key, std::string_view example) {
      if (given_keys.contains(key)) return;
      const std::string_view word = key.substr(key.find('.') + 1);
      diagnostics.add("E-KEY-MISSING", fault_places[i], fmt::format("[[fault]] without '{}'", word),
                      std::string(example));
    };
    needs("fault.kind", "kind = \"cut\", \"rate\", \"pause\" or \"slow\"");
    needs("fault.at", "at = \"20min\": when it begins");
    needs("fault.lasts", "lasts = \"5min\"");
    if (fault.kind.empty()) continue;
    for (const KeyOfKind& row : kKeysOfKinds) {
      const bool wanted = fault.kind == row.kind || fault.kind == row.other_kind;
      if (wanted) {
        needs(row.key, row.example);
      } else if (const auto found = given_keys.find(row.key); found != given_keys.end()) {
        diagnostics.add("E-KEY-UNUSED", found->second.key,
                        fmt::format("'{}' is not used by kind = \"{}\"", row.key, fault.kind),
                        "remove it");
      }
    }
    const auto must_exist = [&](std::string_view key, const std::string& name) {
      const bool given = given_keys.contains(key);
      if (!given || std::ranges::find(names, name) != names.end()) return;
      const auto near = closest(name, names);
      diagnostics.add(
          "E-VALUE", given_keys.find(key)->second.value,
          fmt::format("{} names '{}', which is no site", key, name),
          near ? fmt::format("did you mean '{}'?", *near) : fmt::format("sites: {}", join(names)));
    };
    must_exist("fault.site", fault.site);
    if (fault.a != "*") must_exist("fault.between", fault.a);
    if (fault.b != "*") must_exist("fault.between", fault.b);
    const bool itself = !fault.a.empty() && fault.a == fault.b && fault.a != "*";
    if (itself || (!fault.a.empty() && names.size() < 2)) {
      diagnostics.add("E-CONFLICT", given_keys.find("fault.between")->second.value,
                      itself ? fmt::format("a link between '{}' and itself", fault.a)
                             : "a link's fault in a run of one site");
    }
  }
}

}  // namespace isthmus::config
