// SPDX-License-Identifier: Apache-2.0
#include "config/schema/config_schema_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "config/schema/config_schema_value_errors.h"
#include "core/base/suggest.h"
#include "core/base/units.h"

namespace isthmus::config {
namespace {

using Result = Expected<Value, ValueError>;

/// A number or a text with a unit, read as `dimension`.
Expected<Quantity, ValueError> quantity_of(const SourceValue& source, const ValueRule& rule,
                                           Dimension dimension) {
  std::string text;
  if (const auto* integer = std::get_if<std::int64_t>(&source.data)) {
    text = fmt::format("{}", *integer);
  } else if (const auto* real = std::get_if<double>(&source.data)) {
    if (!std::isfinite(*real)) {
      return fail(source, "E-RANGE", fmt::format("{}: must be finite", quoted(source, rule)));
    }
    text = fmt::format("{}", *real);
  } else if (const auto* given = std::get_if<std::string>(&source.data)) {
    text = *given;
  } else {
    return wrong_type(source, rule);
  }
  const auto quantity = parse_quantity(text, dimension);
  if (!quantity) {
    return unit_error(source, rule, quantity.error());
  }
  return *quantity;
}

/// "every:16" as 16.
Result parse_every(const SourceValue& source, const ValueRule& rule) {
  constexpr std::string_view kEvery = "every:";
  const auto* text = std::get_if<std::string>(&source.data);
  if (text == nullptr) {
    return wrong_type(source, rule);
  }
  std::int64_t count = 0;
  const char* begin = text->data() + std::min(kEvery.size(), text->size());
  const char* end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(begin, end, count);
  if (!text->starts_with(kEvery) || begin == end || stop != end || error != std::errc()) {
    return fail(source, "E-VALUE", fmt::format("{}: must be \"every:K\"", quoted(source, rule)),
                "for example \"every:16\"");
  }
  return checked_integer(source, rule, static_cast<double>(count));
}

/// Whole bytes.
Result parse_bytes(const SourceValue& source, const ValueRule& rule) {
  const auto quantity = quantity_of(source, rule, Dimension::kBytes);
  if (!quantity) {
    return Unexpected<ValueError>(quantity.error());
  }
  return checked_integer(source, rule, quantity->value);
}

Result parse_tokens(const SourceValue& source, const ValueRule& rule) {
  const auto* text = std::get_if<std::string>(&source.data);
  if (rule.type == Type::kTokensOrAll && text != nullptr && *text == "all") {
    return Value(*text);
  }
  const auto quantity = quantity_of(source, rule, Dimension::kTokens);
  if (!quantity) {
    return Unexpected<ValueError>(quantity.error());
  }
  if (rule.type == Type::kTokensUnit && !quantity->unit) {
    return fail(source, "E-UNIT-MISSING", fmt::format("{} needs a unit", quoted(source, rule)),
                fmt::format("write {}", unit_examples(Dimension::kTokens)));
  }
  return checked_integer(source, rule, quantity->value);
}

Result parse_steps(const SourceValue& source, const ValueRule& rule) {
  const auto quantity = quantity_of(source, rule, Dimension::kSteps);
  if (!quantity) {
    return Unexpected<ValueError>(quantity.error());
  }
  StepCount count;
  if (quantity->percent) {
    if (!(quantity->value >= 0 && quantity->value <= 1)) {
      return fail(source, "E-RANGE",
                  fmt::format("{}: must be in [0%, 100%]", quoted(source, rule)));
    }
    count.fraction = quantity->value;
    return Value(count);
  }
  const auto whole = checked_integer(source, rule, quantity->value);
  if (!whole) {
    return whole;
  }
  count.steps = std::get<std::int64_t>(*whole);
  return Value(count);
}

Result parse_dimensioned(const SourceValue& source, const ValueRule& rule, Dimension dimension) {
  const auto quantity = quantity_of(source, rule, dimension);
  if (!quantity) {
    return Unexpected<ValueError>(quantity.error());
  }
  const auto value = checked_real(source, rule, quantity->value);
  if (!value || dimension != Dimension::kTime) {
    return value;
  }
  const auto duration = to_duration(quantity->value);
  if (!duration) {
    return unit_error(source, rule, duration.error());
  }
  if (duration->count() == 0 && quantity->value > 0) {
    return fail(source, "E-RANGE", fmt::format("{}: less than a nanosecond", quoted(source, rule)));
  }
  return Value(*duration);
}

/// "10min", "100 steps" or "5%"; the unit decides.
Result parse_steps_or_time(const SourceValue& source, const ValueRule& rule) {
  const auto* text = std::get_if<std::string>(&source.data);
  if (text == nullptr || text->find("step") != std::string::npos ||
      text->find('%') != std::string::npos) {
    ValueRule steps = rule;
    steps.range = at_least(0, 1e12);
    return parse_steps(source, steps);
  }
  ValueRule time = rule;
  time.range = at_least(0);
  const auto duration = parse_dimensioned(source, time, Dimension::kTime);
  if (!duration && duration.error().code.starts_with("E-UNIT")) {
    ValueError error = duration.error();
    error.hint = "write a time (\"10min\") or steps (\"100 steps\", \"5%\")";
    return Unexpected<ValueError>(error);
  }
  return duration;
}

Result parse_text(const SourceValue& source, const ValueRule& rule) {
  const auto* text = std::get_if<std::string>(&source.data);
  if (text == nullptr) {
    return wrong_type(source, rule);
  }
  for (const char c : *text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      return fail(source, "E-VALUE",
                  fmt::format("{}: must hold no control characters", quoted(source, rule)));
    }
  }
  constexpr std::size_t kLongestText = 4096;
  if (text->size() > kLongestText) {
    return fail(source, "E-RANGE",
                fmt::format("{}: longer than {} bytes", quoted(source, rule), kLongestText));
  }
  if (rule.type != Type::kChoice) {
    return Value(*text);
  }
  const auto choices = split_choices(rule.choices);
  for (const std::string& choice : choices) {
    if (choice == *text) {
      return Value(*text);
    }
  }
  const auto near = closest(*text, choices);
  return fail(source, "E-VALUE",
              fmt::format("{}: must be one of {}", quoted(source, rule), join(choices)),
              near ? fmt::format("did you mean '{}'?", *near) : "");
}

template <typename Element, typename Parse>
Result parse_list(const SourceValue& source, const ValueRule& rule, std::size_t exactly,
                  const Parse& parse) {
  const auto* array = std::get_if<SourceArray>(&source.data);
  if (array == nullptr) {
    return wrong_type(source, rule);
  }
  if (exactly != 0 && array->size() != exactly) {
    return fail(
        source, "E-TYPE",
        fmt::format("'{}' must hold exactly {} values, not {}", rule.name, exactly, array->size()));
  }
  constexpr std::size_t kLongestList = 65536;
  if (array->size() > kLongestList) {
    return fail(source, "E-RANGE",
                fmt::format("'{}' holds more than {} values", rule.name, kLongestList));
  }
  std::vector<Element> elements;
  for (const SourceValue& element : *array) {
    auto value = parse(element);
    if (!value) {
      return Unexpected<ValueError>(value.error());
    }
    elements.push_back(std::get<Element>(*value));
  }
  return Value(std::move(elements));
}

Result parse_real(const SourceValue& source, const ValueRule& rule) {
  if (const auto* integer = std::get_if<std::int64_t>(&source.data)) {
    return checked_real(source, rule, static_cast<double>(*integer));
  }
  if (const auto* real = std::get_if<double>(&source.data)) {
    return checked_real(source, rule, *real);
  }
  return wrong_type(source, rule);
}

Result parse_offsets(const SourceValue& source, const ValueRule& rule) {
  if (std::holds_alternative<std::string>(source.data)) {
    return parse_text(source, {rule.name, Type::kChoice, {}, "spread|zero"});
  }
  const ValueRule element{rule.name, Type::kStepsNow, rule.range, {}};
  return parse_list<StepCount>(source, rule, 0,
                               [&](const SourceValue& each) { return parse_steps(each, element); });
}

/// A list in which no element stands twice. quote: stands around an element in the error.
template <typename Element, typename Parse>
Result parse_distinct(const SourceValue& source, const ValueRule& rule, std::string_view quote,
                      const Parse& parse) {
  auto list = parse_list<Element>(source, rule, 0, parse);
  if (!list) return list;
  std::vector<Element> sorted = std::get<std::vector<Element>>(*list);
  std::ranges::sort(sorted);
  const auto twice = std::ranges::adjacent_find(sorted);
  if (twice == sorted.end()) return list;
  return fail(source, "E-CONFLICT",
              fmt::format("'{}' holds {}{}{} twice", rule.name, quote, *twice, quote));
}

/// Seeds 1 to n for an integer n.
Result parse_seeds(const SourceValue& source, const ValueRule& rule) {
  constexpr double kMostSeeds = 10'000;
  if (const auto* count = std::get_if<std::int64_t>(&source.data)) {
    const ValueRule how_many{rule.name, Type::kInteger, between(1, kMostSeeds), {}};
    if (!how_many.range.contains(static_cast<double>(*count))) {
      return out_of_range(source, how_many);
    }
    std::vector<std::int64_t> seeds;
    for (std::int64_t seed = 1; seed <= *count; ++seed) {
      seeds.push_back(seed);
    }
    return Value(std::move(seeds));
  }
  const ValueRule element{rule.name, Type::kInteger, rule.range, {}};
  auto list = parse_distinct<std::int64_t>(
      source, rule, "", [&](const SourceValue& each) { return parse_value(each, element); });
  if (list && std::get<std::vector<std::int64_t>>(*list).empty()) {
    return fail(source, "E-RANGE", fmt::format("'{}' holds no seed", rule.name));
  }
  return list;
}

/// Distinct texts, each one of the choices; a text alone is a list of it.
Result parse_choices(const SourceValue& source, const ValueRule& rule) {
  const ValueRule element{rule.name, Type::kChoice, {}, rule.choices};
  if (std::holds_alternative<std::string>(source.data)) {
    Result one = parse_text(source, element);
    if (!one) return one;
    return Value(std::vector<std::string>{std::get<std::string>(*one)});
  }
  return parse_distinct<std::string>(
      source, rule, "'", [&](const SourceValue& each) { return parse_text(each, element); });
}

/// Elements of a table, by name in the order of names.
template <typename Element, typename Parse>
Result parse_named(const SourceValue& source, const ValueRule& rule, const Parse& parse) {
  const auto* table = std::get_if<SourceTable>(&source.data);
  if (table == nullptr) {
    return wrong_type(source, rule);
  }
  constexpr std::size_t kMostNames = 256;
  if (table->empty() || table->size() > kMostNames) {
    return fail(source, "E-RANGE",
                fmt::format("'{}' holds {} names; 1 to {} are possible", rule.name, table->size(),
                            kMostNames));
  }
  std::vector<std::pair<std::string, Element>> elements;
  for (const SourceEntry& entry : *table) {
    const std::string name = fmt::format("{}.{}", rule.name, entry.key);
    const bool plain = entry.key.size() <= 64 && std::ranges::all_of(entry.key, [](char c) {
                         return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                                (c >= '0' && c <= '9') || c == '-' || c == '_';
                       });
    if (!plain || entry.key.empty()) {
      return fail(entry.value, "E-VALUE",
                  fmt::format("'{}': a name has 1 to 64 letters, digits, '-' and '_'", name));
    }
    const auto value = parse(entry.value, ValueRule{name, rule.type, rule.range, {}});
    if (!value) {
      return Unexpected<ValueError>(value.error());
    }
    elements.emplace_back(entry.key, std::get<Element>(*value));
  }
  std::ranges::sort(elements);
  return Value(std::move(elements));
}

}  // namespace

Expected<Value, ValueError> parse_value(const SourceValue& source, const ValueRule& rule) {
  switch (rule.type) {
    case Type::kBool:
      if (const auto* flag = std::get_if<bool>(&source.data)) {
        return Value(*flag);
      }
      return wrong_type(source, rule);
    case Type::kIntegerOrAuto:
      if (const auto* text = std::get_if<std::string>(&source.data);
          text != nullptr && *text == "auto") {
        return Value(std::int64_t{0});
      }
      [[fallthrough]];
    case Type::kInteger:
      if (const auto* integer = std::get_if<std::int64_t>(&source.data)) {
        if (!rule.range.contains(static_cast<double>(*integer))) {
          return out_of_range(source, rule);
        }
        return Value(*integer);
      }
      return wrong_type(source, rule);
    case Type::kReal:
      return parse_real(source, rule);
    case Type::kText:
    case Type::kChoice:
      return parse_text(source, rule);
    case Type::kFalseOrChoice:
      if (const auto* flag = std::get_if<bool>(&source.data); flag != nullptr && !*flag) {
        return Value(std::string("false"));
      }
      return parse_text(source, {rule.name, Type::kChoice, {}, rule.choices});
    case Type::kBoolOrChoice:
      if (const auto* flag = std::get_if<bool>(&source.data)) {
        const auto choices = split_choices(rule.choices);
        return Value(*flag ? choices.back() : choices.front());
      }
      if (!std::holds_alternative<std::string>(source.data)) return wrong_type(source, rule);
      return parse_text(source, {rule.name, Type::kChoice, {}, rule.choices});
    case Type::kEvery:
      return parse_every(source, rule);
    case Type::kBytes:
      return parse_bytes(source, rule);
    case Type::kTokens:
    case Type::kTokensUnit:
    case Type::kTokensOrAll:
      return parse_tokens(source, rule);
    case Type::kSteps:
    case Type::kStepsNow:
      return parse_steps(source, rule);
    case Type::kStepsOrTime:
      return parse_steps_or_time(source, rule);
    case Type::kStepList:
      return parse_list<StepCount>(
          source, rule, 0, [&](const SourceValue& each) { return parse_steps(each, rule); });
    case Type::kTimeOrChoice:
      if (const auto* text = std::get_if<std::string>(&source.data);
          text != nullptr && std::ranges::count(split_choices(rule.choices), *text) > 0) {
        return Value(*text);
      }
      [[fallthrough]];
    case Type::kTime:
      return parse_dimensioned(source, rule, Dimension::kTime);
    case Type::kRate:
      return parse_dimensioned(source, rule, Dimension::kRate);
    case Type::kFraction:
      return parse_dimensioned(source, rule, Dimension::kFraction);
    case Type::kFlops:
      return parse_dimensioned(source, rule, Dimension::kFlops);
    case Type::kParameters:
      return parse_dimensioned(source, rule, Dimension::kParameters);
    case Type::kPairOfReals:
      return parse_list<double>(source, rule, 2,
                                [&](const SourceValue& each) { return parse_real(each, rule); });
    case Type::kPairOfTexts:
      return parse_list<std::string>(
          source, rule, 2, [&](const SourceValue& each) { return parse_text(each, rule); });
    case Type::kOffsets:
      return parse_offsets(source, rule);
    case Type::kSeeds:
      return parse_seeds(source, rule);
    case Type::kTexts:
      return parse_list<std::string>(
          source, rule, 0, [&](const SourceValue& each) { return parse_text(each, rule); });
    case Type::kChoices:
      return parse_choices(source, rule);
    case Type::kNamedTexts:
      return parse_named<std::string>(source, rule, parse_text);
    case Type::kNamedReals:
      return parse_named<double>(source, rule, parse_real);
    case Type::kSpace:
      break;
  }
  return wrong_type(source, rule);
}

}  // namespace isthmus::config
