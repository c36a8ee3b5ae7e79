// SPDX-License-Identifier: Apache-2.0
// The schema: one row per key. Parsing, `explain`, `inspect`, resolved files and digests all read
// these rows, so a key exists in one place.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "config/schema/config_schema_source.h"
#include "config/schema/experiment.h"
#include "isthmus/config.h"

namespace isthmus::config {

enum class Type {
  kBool,
  kInteger,
  kIntegerOrAuto,  // or "auto", which is 0
  kReal,
  kText,
  kChoice,         // one of KeyRow::choices, separated by '|'
  kFalseOrChoice,  // the same, or false
  kBoolOrChoice,   // the same, or false for the first of them and true for the last
  kEvery,          // "every:16", which is 16
  kBytes,          // "256KiB"; unit required
  kTokens,         // "3M", 192, "192 tok"
  kTokensUnit,     // the same, unit required
  kTokensOrAll,    // the same without unit, or "all"
  kSteps,          // 20, "20 steps", "5%"; a StepCount
  kStepsNow,       // the same into an integer: a percentage is resolved while loading
  kStepsOrTime,    // "10min", "100 steps" or "5%"; a percentage is resolved while loading
  kStepList,       // [100, "50%"]
  kTime,
  kTimeOrChoice,  // "20s", or one of KeyRow::choices
  kRate,
  kFraction,  // 0.1 or "10%"
  kFlops,
  kParameters,
  kPairOfReals,  // [0.9, 0.95]
  kPairOfTexts,  // ["east", "west"]
  kOffsets,      // "spread", "zero", [0, 5, "10%"]; percentages are resolved while loading
  kSeeds,        // 8 (1 to 8) or [11, 12, 13]
  kTexts,        // ["100Mbit/s,80ms", "1Gbit/s,30ms"]
  kChoices,      // ["jsonl", "tensorboard"]: each one of KeyRow::choices, none twice
  kSpace,        // { "inner.lr" = [1e-3, 2e-3] }: read by the comparison's loader
  kNamedTexts,   // { web = "tokens:web/*.bin" }, or a separate section
  kNamedReals,   // { web = 0.8, code = 0.2 }
};

using Value =
    std::variant<std::monostate, bool, std::int64_t, double, std::string, Duration, StepCount,
                 std::vector<double>, std::vector<std::string>, std::vector<StepCount>,
                 std::vector<std::int64_t>, NamedTexts, NamedReals>;

struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_open = false;
  bool high_open = false;
  [[nodiscard]] bool contains(double value) const;
  /// "> 0", ">= 1", "in [0, 1)"; empty without bounds.
  [[nodiscard]] std::string text() const;
};
[[nodiscard]] constexpr Range at_least(double low, double high = 1e15) { return {low, high}; }
[[nodiscard]] constexpr Range above(double low) {
  return {low, std::numeric_limits<double>::infinity(), true};
}
[[nodiscard]] constexpr Range between(double low, double high) { return {low, high}; }
[[nodiscard]] constexpr Range half_open(double low, double high) {
  return {low, high, false, true};
}

/// Reads and writes one field of `Target` as a Value.
template <typename Target>
struct Field {
  void (*set)(Target&, const Value&) = nullptr;
  Value (*get)(const Target&) = nullptr;
};

template <typename Target>
struct KeyRow {
  std::string_view name;  // "outer.H"
  Type type = Type::kText;
  Range range;
  std::string_view choices;  // of kChoice and kChoices: "a|b"
  Field<Target> field;
  std::string_view text;                  // what it does, one sentence or two
  std::string_view example;               // as TOML, after "key = "
  std::string_view used_by = {};          // for people: "inner.optimizer = adamw"
  bool (*used)(const Config&) = nullptr;  // null: always
  bool steers = true;                     // part of config_digest: it can change the trajectory
};

template <typename T>
[[nodiscard]] Value to_value(const T& member) {
  if constexpr (std::is_same_v<T, bool>) {
    return member;
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<std::int64_t>(member);
  } else if constexpr (std::is_same_v<T, std::filesystem::path>) {
    return member.string();
  } else {
    return member;
  }
}
template <typename T>
[[nodiscard]] Value to_value(const std::optional<T>& member) {
  return member ? to_value(*member) : Value{};
}

template <typename T>
void from_value(T& member, const Value& value) {
  if constexpr (std::is_same_v<T, bool>) {
    member = std::get<bool>(value);
  } else if constexpr (std::is_integral_v<T>) {
    member = static_cast<T>(std::get<std::int64_t>(value));
  } else if constexpr (std::is_same_v<T, std::filesystem::path>) {
    member = std::get<std::string>(value);
  } else {
    member = std::get<T>(value);
  }
}
template <typename T>
void from_value(std::optional<T>& member, const Value& value) {
  T inner{};
  from_value(inner, value);
  member = inner;
}

/// The field `Member` of Target: field<&SiteConfig::tp>().
template <auto Member, typename Target, typename T>
[[nodiscard]] constexpr Field<Target> member_field(T Target::*) {
  return {[](Target& target, const Value& value) { from_value(target.*Member, value); },
          [](const Target& target) { return to_value(target.*Member); }};
}
template <auto Member>
[[nodiscard]] constexpr auto field() {
  return member_field<Member>(Member);
}
/// The field `Member` of section `Section` of Config: field<&Config::inner, &InnerConfig::lr>().
template <auto Section, auto Member>
[[nodiscard]] constexpr Field<Config> field() {
  return {[](Config& config, const Value& value) { from_value(config.*Section.*Member, value); },
          [](const Config& config) { return to_value(config.*Section.*Member); }};
}

/// Rows of the whole file, and of one [[site]], [[link]] and [[fault]], in the order of the
/// documentation.
[[nodiscard]] std::span<const KeyRow<Config>> config_rows();
[[nodiscard]] std::span<const KeyRow<SiteConfig>> site_rows();
[[nodiscard]] std::span<const KeyRow<LinkConfig>> link_rows();
[[nodiscard]] std::span<const KeyRow<FaultConfig>> fault_rows();

/// The row of a key; null for an unknown key.
template <typename Target>
[[nodiscard]] const KeyRow<Target>* find_row(std::span<const KeyRow<Target>> rows,
                                             std::string_view name) {
  for (const KeyRow<Target>& row : rows) {
    if (row.name == name) {
      return &row;
    }
  }
  return nullptr;
}

/// Rows of [compare], [target] and [budget].
[[nodiscard]] std::span<const KeyRow<ExperimentSettings>> experiment_rows();

struct SectionRow {
  std::string_view name;
  std::string_view text;
};
[[nodiscard]] std::span<const SectionRow> sections();

/// A name reserved for later versions: "net.chunk" or a whole section "compare"; and its purpose.
struct LaterRow {
  std::string_view name;
  std::string_view text;
};
[[nodiscard]] std::span<const LaterRow> later_names();

/// A key of an earlier version that a file may still have, or one value of a key: it is passed
/// over, or read as another value, with a note to the user. No result depends on it.
struct GoneRow {
  std::string_view name;
  std::string_view value;    // empty: every value of the key
  std::string_view instead;  // the value that is read in its place; empty: the key is passed over
  std::string_view text;     // what has gone
};
[[nodiscard]] std::span<const GoneRow> gone_rows();

/// Other spellings of a key: "model.layers" for "model.n_layers".
[[nodiscard]] std::string_view canonical_name(std::string_view name);

/// `text` split at '|'.
[[nodiscard]] std::vector<std::string> split_choices(std::string_view text);

}  // namespace isthmus::config
