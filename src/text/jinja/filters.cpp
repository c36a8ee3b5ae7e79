// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/filters.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "text/jinja/json_values.h"
#include "text/jinja/operators.h"
#include "text/jinja/python_text.h"
#include "text/jinja/value_tests.h"
#include "text/unicode.h"

namespace isthmus::jinja {
namespace {

using Filter = Value (*)(const Value&, const Arguments&);

constexpr Kind kGenerator = Kind::kGenerator;

std::int64_t size_of(const Value& value) {
  if (value.is_undefined()) return 0;
  if (value.is_string()) return length(value.text());
  if (value.is_dict()) return std::ssize(value.pairs());
  if (value.is_sequence() && value.kind() != kGenerator) return std::ssize(value.items());
  throw Refusal(fmt::format("object of type '{}' has no len()", value.type_name()));
}

/// "a.b.0" of a value, as attribute= has it. Only items: attributes of texts and dicts are methods.
Value attribute_of(Value value, const std::string& path) {
  for (const std::string& part : split_at(path, ".", -1, false)) {
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), number);
    const bool whole = error == std::errc() && end == part.data() + part.size() && number >= 0;
    value = item_of(value, whole ? Value(number) : Value(part));
  }
  return value;
}

std::string path_of(const Value& attribute) {
  if (attribute.is_whole() || attribute.is_string()) return to_text(attribute);
  throw Refusal(fmt::format("an attribute must be a text, not a {}", attribute.type_name()));
}

/// A value by which sort and unique compare: texts in lower case, unless told otherwise.
Value sort_key(const Value& value, const std::optional<std::string>& path, bool case_sensitive) {
  Value key = path ? attribute_of(value, *path) : value;
  return key.is_string() && !case_sensitive ? Value(lower(key.text())) : key;
}

std::optional<std::string> optional_path(const Parameters& parameters, std::size_t index) {
  if (!parameters.has(index) || parameters.at(index).is_none()) return {};
  return path_of(parameters.at(index));
}

Value default_of(const Value& value, const Arguments& arguments) {
  const Parameters p("default", arguments, {"default_value", "boolean"}, 0);
  const bool replaces = value.is_undefined() || (p.flag(1, false) && !value.truth());
  return replaces ? p.at(0, Value("")) : value;
}

Value length_of(const Value& value, const Arguments& arguments) {
  static_cast<void>(Parameters("length", arguments, {}, 0));
  return size_of(value);
}

Value first_of(const Value& value, const Arguments& arguments) {
  static_cast<void>(Parameters("first", arguments, {}, 0));
  if (value.is_string() && !value.text().empty()) return item_of(value, Value(std::int64_t{0}));
  if (value.is_sequence() && !value.items().empty()) {
    Value first = value.items().front();
    value.use_up(1);
    return first;
  }
  if (value.is_dict() && !value.pairs().empty()) return value.pairs().front().first;
  static_cast<void>(walked(value));
  return Value::undefined("No first item, sequence was empty.");
}

Value last_of(const Value& value, const Arguments& arguments) {
  static_cast<void>(Parameters("last", arguments, {}, 0));
  if (value.kind() == kGenerator) throw Refusal("'generator' object is not reversible");
  if (value.is_string() && !value.text().empty()) return item_of(value, Value(std::int64_t{-1}));
  if (value.is_sequence() && !value.items().empty()) return value.items().back();
  if (value.is_dict() && !value.pairs().empty()) return value.pairs().back().first;
  static_cast<void>(walked(value));
  return Value::undefined("No last item, sequence was empty.");
}

Value list_of(const Value& value, const Arguments& arguments) {
  static_cast<void>(Parameters("list", arguments, {}, 0));
  return Value::list(walked(value));
}

Value items_of(const Value& value, const Arguments& arguments) {
  static_cast<void>(Parameters("items", arguments, {}, 0));
  Values items;
  if (!value.is_undefined()) {
    if (!value.is_dict()) throw Refusal("Can only get item pairs from a mapping.");
    for (const auto& [key, item] : value.pairs()) items.push_back(Value::tuple({key, item}));
  }
  return Value::sequence(kGenerator, std::move(items));
}

Value join_of(const Value& value, const Arguments& arguments) {
  const Parameters p("join", arguments, {"d", "attribute"}, 0);
  const std::string between = to_text(p.at(0, Value("")));
  const auto path = optional_path(p, 1);
  std::string text;
  bool first = true;
  for (const Value& item : walked(value)) {
    if (!first) text += between;
    first = false;
    text += to_text(path ? attribute_of(item, *path) : item);
    check_weight(std::ssize(text));
  }
  return Value(std::move(text));
}

Value trim_of(const Value& value, const Arguments& arguments) {
  const Parameters p("trim", arguments, {"chars"}, 0);
  const std::string text = to_text(value);
  if (!p.has(0) || p.at(0).is_none()) return Value(stripped(text, Side::kBoth));
  return Value(stripped(text, Side::kBoth, p.text(0, "")));
}

Value replace_of(const Value& value, const Arguments& arguments) {
  const Parameters p("replace", arguments, {"old", "new", "count"}, 2);
  const bool all = !p.has(2) || p.at(2).is_none();
  return Value(
      replaced(to_text(value), to_text(p.at(0)), to_text(p.at(1)), all ? -1 : p.whole(2, -1)));
}

Value indent_of(const Value& value, const Arguments& arguments) {
  const Parameters p("indent", arguments, {"width", "first", "blank"}, 0);
  const Value width = p.at(0, Value(std::int64_t{4}));
  check_weight(width.is_whole() ? width.whole() : 0);
  const std::string by =
      width.is_string()
          ? width.text()
          : std::string(static_cast<std::size_t>(std::max<std::int64_t>(p.whole(0, 4), 0)), ' ');
  const std::vector<std::string> lines = split_lines(to_text(value) + "\n", false);
  std::string text;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) text += '\n';
    const bool indents = i == 0 ? p.flag(1, false) : p.flag(2, false) || !lines[i].empty();
    if (indents) text += by;
    text += lines[i];
    check_weight(std::ssize(text));
  }
  return Value(std::move(text));
}

/// int(text): digits with a sign, and whitespace around.
std::optional<std::int64_t> whole_of_text(std::string_view text, int base) {
  text = stripped(text, Side::kBoth);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  if (text.size() > 2 && text[0] == '0') {
    const char kind = text[1] == 'X' || text[1] == 'O' || text[1] == 'B'
                          ? static_cast<char>(text[1] + 32)
                          : text[1];
    const int says = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
    if (says == base) text.remove_prefix(2);
  }
  std::string digits(text);
  std::erase(digits, '_');
  std::int64_t value = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (error == std::errc::result_out_of_range) throw Refusal("a whole number beyond 64 bits");
  const bool sound =
      error == std::errc() && end == digits.data() + digits.size() && !digits.starts_with('-');
  if (!sound) return {};
  return negative ? -value : value;
}

std::optional<double> float_of_text(std::string_view text) {
  text = stripped(text, Side::kBoth);
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool sound = error == std::errc() && end == text.data() + text.size() && !text.empty();
  return sound ? std::optional(value) : std::nullopt;
}

std::optional<std::int64_t> whole_of_float(double value) {
  if (!(std::abs(value) < 9e18)) return {};
  return static_cast<std::int64_t>(value);
}

Value int_of(const Value& value, const Arguments& arguments) {
  const Parameters p("int", arguments, {"default", "base"}, 0);
  const Value otherwise = p.at(0, Value(std::int64_t{0}));
  check_defined(value);
  std::optional<std::int64_t> whole;
  if (value.is_string()) {
    const std::int64_t base = p.whole(1, 10);
    if (base < 2 || base > 36) throw Refusal("int: 'base' must be 2 to 36");
    whole = whole_of_text(value.text(), static_cast<int>(base));
    const auto number = whole ? std::nullopt : float_of_text(value.text());
    if (number) whole = whole_of_float(*number);
  } else if (value.is_number()) {
    whole = value.is_whole() ? value.whole() : whole_of_float(value.number());
  }
  return whole ? Value(*whole) : otherwise;
}

Value float_of(const Value& value, const Arguments& arguments) {
  const Parameters p("float", arguments, {"default"}, 0);
  check_defined(value);
  std::optional<double> number;
  if (value.is_string()) number = float_of_text(value.text());
  if (value.is_number()) number = value.number();
  return number ? Value(*number) : p.at(0, Value(0.0));
}

Value abs_of(const Value& value, const Arguments& arguments) {
  static_cast<void>(Parameters("abs", arguments, {}, 0));
  check_defined(value);
  return value.is_number() && value.number() >= 0 ? value : negative(value);
}

Value round_of(const Value& value, const Arguments& arguments) {
  const Parameters p("round", arguments, {"precision", "method"}, 0);
  if (!value.is_number()) throw Refusal(fmt::format("round of a {}", value.type_name()));
  const std::int64_t places = p.whole(0, 0);
  const std::string method = p.text(1, "common");
  if (places < 0 || places > 15) throw Refusal("round: 'precision' must be 0 to 15");
  const double scale = std::pow(10.0, static_cast<double>(places));
  if (method == "ceil") return std::ceil(value.number() * scale) / scale;
  if (method == "floor") return std::floor(value.number() * scale) / scale;
  if (method != "common") throw Refusal("round: 'method' must be common, ceil or floor");
  if (value.is_whole()) return value;
  return float_of_literal(fmt::format("{:.{}f}", value.number(), places));
}

Value upper_of(const Value& value, const Arguments& arguments) {
  static_cast<void>(Parameters("upper", arguments, {}, 0));
  return Value(upper(to_text(value)));
}
Value lower_of(const Value& value, const Arguments& arguments) {
  static_cast<void>(Parameters("lower", arguments, {}, 0));
  return Value(lower(to_text(value)));
}
Value capitalize_of(const Value& value, const Arguments& arguments) {
  static_cast<void>(Parameters("capitalize", arguments, {}, 0));
  return Value(capitalized(to_text(value)));
}

/// Jinja's own: words begin behind "-", whitespace, "(", "{", "[" and "<".
Value title_of(const Value& value, const Arguments& arguments) {
  static_cast<void>(Parameters("title", arguments, {}, 0));
  const std::string text = to_text(value);
  std::string result;
  bool begins = true;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t bytes = character_bytes(text, at);
    const std::string character = text.substr(at, bytes);
    const bool splits = space_at(text, at) > 0 ||
                        std::string_view("-({[<").find(text[at]) != std::string_view::npos;
    result += splits ? character : begins ? upper(character) : lower(character);
    begins = splits;
    at += bytes;
  }
  return Value(std::move(result));
}

Value string_of(const Value& value, const Arguments& arguments) {
  static_cast<void>(Parameters("string", arguments, {}, 0));
  return value.is_string() ? value : Value(to_text(value));
}
Value safe_of(const Value& value, const Arguments& arguments) {
  static_cast<void>(Parameters("safe", arguments, {}, 0));
  return Value::markup(to_text(value));
}
Value escape_of(const Value& value, const Arguments& arguments) {
  static_cast<void>(Parameters("escape", arguments, {}, 0));
  return value.is_markup() ? value : Value::markup(html_escaped(to_text(value)));
}

Value tojson_of(const Value& value, const Arguments& arguments) {
  const Parameters p("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"}, 0);
  JsonStyle style{.ascii = p.flag(0, false), .sort_keys = p.flag(3, false)};
  if (p.has(1) && !p.at(1).is_none()) {
    const Value& indent = p.at(1);
    check_weight(indent.is_whole() ? indent.whole() : 0);
    style.indent =
        indent.is_string()
            ? indent.text()
            : std::string(static_cast<std::size_t>(std::max<std::int64_t>(p.whole(1, 0), 0)), ' ');
    style.between_items = ",";
  }
  if (p.has(2) && !p.at(2).is_none()) {
    const Value& separators = p.at(2);
    const bool sound = separators.is_indexed() && separators.items().size() == 2 &&
                       separators.items()[0].is_string() && separators.items()[1].is_string();
    if (!sound) throw Refusal("tojson: 'separators' must be two texts");
    style.between_items = separators.items()[0].text();
    style.behind_key = separators.items()[1].text();
  }
  return Value(to_json(value, style));
}

Arguments rest_of(const Arguments& arguments, std::size_t from) {
  Arguments rest;
  rest.values.assign(arguments.values.begin() + static_cast<std::ptrdiff_t>(from),
                     arguments.values.end());
  return rest;
}

Value map_of(const Value& value, const Arguments& arguments) {
  Values mapped;
  if (!value.truth()) return Value::sequence(kGenerator, {});  // none too, as in Jinja
  if (arguments.values.empty()) {
    const Parameters p("map", arguments, {"attribute", "default"}, 1);
    const std::string path = path_of(p.at(0));
    for (const Value& item : walked(value)) {
      Value attribute = attribute_of(item, path);
      if (attribute.is_undefined() && p.has(1)) attribute = p.at(1);
      mapped.push_back(std::move(attribute));
    }
    return Value::sequence(kGenerator, std::move(mapped));
  }
  const Value& name = arguments.values.front();
  if (!name.is_string() || !is_filter(name.text())) {
    throw Refusal(fmt::format("map: the filter {} is not supported", to_repr(name)));
  }
  if (name.text() == "map" || name.text() == "select" || name.text() == "reject") {
    throw Refusal(fmt::format("map of {} is not supported", name.text()));
  }
  Arguments rest = rest_of(arguments, 1);
  rest.named = arguments.named;
  for (const Value& item : walked(value)) mapped.push_back(filtered(name.text(), item, rest));
  return Value::sequence(kGenerator, std::move(mapped));
}

/// select, reject, selectattr and rejectattr.
Value selected(const Value& value, const Arguments& arguments, bool by_attribute, bool keeps) {
  std::size_t at = 0;
  std::optional<std::string> path;
  if (by_attribute) {
    if (arguments.values.empty()) throw Refusal("selectattr: the attribute is missing");
    path = path_of(arguments.values[at++]);
  }
  std::optional<std::string> test;
  if (at < arguments.values.size()) {
    const Value& name = arguments.values[at++];
    if (!name.is_string() || !is_test(name.text())) {
      throw Refusal(fmt::format("the test {} is not supported", to_repr(name)));
    }
    test = name.text();
  }
  if (!arguments.named.empty()) throw Refusal("a test with a named value");
  const Arguments rest = rest_of(arguments, at);
  if (!value.truth()) return Value::sequence(kGenerator, {});  // none too, as in Jinja
  Values kept;
  for (const Value& item : walked(value)) {
    const Value tested = path ? attribute_of(item, *path) : item;
    if ((test ? passes_test(*test, tested, rest) : tested.truth()) == keeps) kept.push_back(item);
  }
  return Value::sequence(kGenerator, std::move(kept));
}

Values sorted(Values items, bool reverse, const std::optional<std::string>& path,
              bool case_sensitive) {
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& item : items) {
    Value key = sort_key(item, path, case_sensitive);
    keyed.emplace_back(std::move(key), std::move(item));
  }
  const auto before = [](const auto& a, const auto& b) { return less(a.first, b.first); };
  if (reverse) {  // equal ones keep their order
    std::ranges::stable_sort(keyed, [&](const auto& a, const auto& b) { return before(b, a); });
  } else {
    std::ranges::stable_sort(keyed, before);
  }
  Values result;
  for (auto& pair : keyed) result.push_back(std::move(pair.second));
  return result;
}

Value sort_of(const Value& value, const Arguments& arguments) {
  const Parameters p("sort", arguments, {"reverse", "case_sensitive", "attribute"}, 0);
  const auto path = optional_path(p, 2);
  if (path && path->find(',') != std::string::npos) {
    throw Refusal("sort by several attributes is not supported");
  }
  return Value::list(sorted(walked(value), p.flag(0, false), path, p.flag(1, false)));
}

Value dictsort_of(const Value& value, const Arguments& arguments) {
  const Parameters p("dictsort", arguments, {"case_sensitive", "by", "reverse"}, 0);
  const std::string by = p.text(1, "key");
  if (!value.is_dict()) throw Refusal(fmt::format("dictsort of a {}", value.type_name()));
  if (by != "key" && by != "value") throw Refusal("dictsort: 'by' must be key or value");
  Values pairs;
  for (const auto& [key, item] : value.pairs()) pairs.push_back(Value::tuple({key, item}));
  return Value::list(
      sorted(std::move(pairs), p.flag(2, false), by == "key" ? "0" : "1", p.flag(0, false)));
}

Value unique_of(const Value& value, const Arguments& arguments) {
  const Parameters p("unique", arguments, {"case_sensitive", "attribute"}, 0);
  const auto path = optional_path(p, 1);
  Values kept, keys;
  for (const Value& item : walked(value)) {
    Value key = sort_key(item, path, p.flag(0, false));
    const bool seen = std::ranges::any_of(keys, [&](const Value& k) { return equal(k, key); });
    if (seen) continue;
    keys.push_back(std::move(key));
    kept.push_back(item);
  }
  return Value::sequence(kGenerator, std::move(kept));
}

Value reverse_of(const Value& value, const Arguments& arguments) {
  static_cast<void>(Parameters("reverse", arguments, {}, 0));
  Values items = walked(value);
  std::ranges::reverse(items);
  return value.is_string() ? concatenated(items) : Value::sequence(kGenerator, std::move(items));
}

Value extreme(std::string_view name, const Value& value, const Arguments& arguments, bool largest) {
  const Parameters p(name, arguments, {"case_sensitive", "attribute"}, 0);
  const Values items = walked(value);
  if (items.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  const auto path = optional_path(p, 1);
  const auto key = [&](const Value& item) { return sort_key(item, path, p.flag(0, false)); };
  const Value* best = &items.front();
  for (const Value& item : items) {
    if (largest ? less(key(*best), key(item)) : less(key(item), key(*best))) best = &item;
  }
  return *best;
}

Value sum_of(const Value& value, const Arguments& arguments) {
  const Parameters p("sum", arguments, {"attribute", "start"}, 0);
  const auto path = optional_path(p, 0);
  Value total = p.at(1, Value(std::int64_t{0}));
  for (const Value& item : walked(value)) {
    const Value part = path ? attribute_of(item, *path) : item;
    if (!part.is_number() || !total.is_number()) throw Refusal("a sum of what are no numbers");
    total = computed(Op::kAdd, total, part);
  }
  return total;
}

Value wordcount_of(const Value& value, const Arguments& arguments) {
  static_cast<void>(Parameters("wordcount", arguments, {}, 0));
  const std::string text = to_text(value);
  std::int64_t words = 0;  // runs of \w
  bool inside = false;
  for (std::size_t at = 0; at < text.size();) {
    const DecodedCharacter c = decoded_at(text, at);
    const bool word =
        c.value == U'_' || (UnicodeTables::get().classes(c.value) & (kLetter | kNumber)) != 0;
    if (word && !inside) ++words;
    inside = word;
    at += c.bytes;
  }
  return words;
}

constexpr std::array<std::pair<std::string_view, Filter>, 38> kFilters = {{
    {"abs", abs_of},
    {"capitalize", capitalize_of},
    {"count", length_of},
    {"d", default_of},
    {"default", default_of},
    {"dictsort", dictsort_of},
    {"e", escape_of},
    {"escape", escape_of},
    {"first", first_of},
    {"float", float_of},
    {"indent", indent_of},
    {"int", int_of},
    {"items", items_of},
    {"join", join_of},
    {"last", last_of},
    {"length", length_of},
    {"list", list_of},
    {"lower", lower_of},
    {"map", map_of},
    {"max", [](const Value& v, const Arguments& a) { return extreme("max", v, a, true); }},
    {"min", [](const Value& v, const Arguments& a) { return extreme("min", v, a, false); }},
    {"reject", [](const Value& v, const Arguments& a) { return selected(v, a, false, false); }},
    {"rejectattr", [](const Value& v, const Arguments& a) { return selected(v, a, true, false); }},
    {"replace", replace_of},
    {"reverse", reverse_of},
    {"round", round_of},
    {"safe", safe_of},
    {"select", [](const Value& v, const Arguments& a) { return selected(v, a, false, true); }},
    {"selectattr", [](const Value& v, const Arguments& a) { return selected(v, a, true, true); }},
    {"sort", sort_of},
    {"string", string_of},
    {"sum", sum_of},
    {"title", title_of},
    {"tojson", tojson_of},
    {"trim", trim_of},
    {"unique", unique_of},
    {"upper", upper_of},
    {"wordcount", wordcount_of},
}};

const std::pair<std::string_view, Filter>* filter_entry(std::string_view name) {
  const auto at = std::ranges::find(kFilters, name, [](const auto& each) { return each.first; });
  return at == kFilters.end() ? nullptr : &*at;
}

std::int64_t cost_product(std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  constexpr std::int64_t kEnough = std::numeric_limits<std::int64_t>::max() / 4;
  return __builtin_mul_overflow(a, b, &result) ? kEnough : std::min(result, kEnough);
}

}  // namespace

bool is_filter(std::string_view name) { return !name.empty() && filter_entry(name) != nullptr; }

Value filtered(std::string_view name, const Value& value, const Arguments& arguments) {
  return filter_entry(name)->second(value, arguments);
}

std::int64_t shallow_size(const Value& value) {
  if (value.is_string()) return 1 + std::ssize(value.text());
  if (value.is_sequence()) return 1 + std::ssize(value.items());
  return value.is_dict() ? 1 + std::ssize(value.pairs()) : 1;
}

std::int64_t filter_cost(std::string_view name, const Value& value, const Arguments& arguments) {
  std::int64_t weights = 1;
  for (const Value& each : arguments.values) weights += each.weight();
  for (const auto& each : arguments.named) weights += each.second.weight();
  const std::int64_t size = shallow_size(value);
  constexpr std::array kDeep = {"tojson", "string", "join",   "trim",     "upper", "lower",
                                "safe",   "title",  "indent", "escape",   "e",     "capitalize",
                                "sum",    "max",    "min",    "wordcount"};
  if (name == "unique") return cost_product(size, value.weight());
  if (name == "sort" || name == "dictsort") return cost_product(value.weight(), 32);
  if (name == "map")
    return cost_product(value.weight(), 1 + weights / 64) + cost_product(size, weights);
  if (name == "select" || name == "reject" || name == "selectattr" || name == "rejectattr") {
    return cost_product(size, weights);
  }
  if (name == "replace") return cost_product(value.weight(), 1 + weights / 64);
  const bool deep = std::ranges::find(kDeep, name) != kDeep.end();
  return (deep ? value.weight() : size) + weights;
}

}  // namespace isthmus::jinja
