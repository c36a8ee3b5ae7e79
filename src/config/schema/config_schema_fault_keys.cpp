// SPDX-License-Identifier: Apache-2.0
// The keys of [[fault]]: temporary faults of a simulated run.
#include "config/schema/config_schema.h"

namespace isthmus::config {
namespace {

constexpr double kLatest = 1e9;  // seconds; times are whole nanoseconds in 64 bits

constexpr Field<FaultConfig> kFaultBetween = {
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
constexpr Field<FaultConfig> kFaultRate = {
    [](FaultConfig& fault, const Value& value) { from_value(fault.bits_per_s, value); },
    [](const FaultConfig& fault) {
      return fault.bits_per_s == 0 ? Value{} : Value(fault.bits_per_s);
    }};
constexpr Field<FaultConfig> kPace = {
    [](FaultConfig& fault, const Value& value) { from_value(fault.pace, value); },
    [](const FaultConfig& fault) { return fault.kind == "slow" ? Value(fault.pace) : Value{}; }};

// clang-format off
constexpr KeyRow<FaultConfig> kFaultRows[] = {
    {"fault.kind", Type::kChoice, {}, "cut|rate|pause|slow", field<&FaultConfig::kind>(),
     "Under simulate. cut: nothing leaves on a link. rate: its line has another rate. pause: a site neither computes nor sends nor is sent anything. slow: it computes at a share of its speed.",
     "\"cut\""},
    {"fault.between", Type::kPairOfTexts, {}, "", kFaultBetween,
     "Of cut and rate: the sites whose link it is, both directions; \"*\" for every site.", "[\"east\", \"west\"]"},
    {"fault.site", Type::kText, {}, "", kSite,
     "Of pause and slow: the site.", "\"east\""},
    {"fault.at", Type::kTime, between(0, kLatest), "", field<&FaultConfig::at>(),
     "When it begins, on the simulated clock of the whole run.", "\"20min\""},
    {"fault.lasts", Type::kTime, Range{0, kLatest, true}, "", field<&FaultConfig::lasts>(),
     "How long it lasts.", "\"5min\""},
    {"fault.rate", Type::kRate, between(1, 1e15), "", kFaultRate,
     "Of rate: the line's rate meanwhile; of several the lowest.", "\"5Mbit/s\""},
    {"fault.pace", Type::kFraction, Range{0, 1, true}, "", kPace,
     "Of slow: share of its speed at which the site computes; of several the lowest.", "0.25"},
};
// clang-format on

}  // namespace

std::span<const KeyRow<FaultConfig>> fault_rows() { return kFaultRows; }

}  // namespace isthmus::config
