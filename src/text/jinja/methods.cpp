// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/methods.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "text/jinja/filters.h"
#include "text/jinja/operators.h"
#include "text/jinja/python_text.h"
#include "text/unicode.h"

namespace isthmus::jinja {
namespace {

using Method = Value (*)(const Value&, const Arguments&);
using Entry = std::pair<std::string_view, Method>;

template <Side side>
Value strip_method(const Value& value, const Arguments& arguments) {
  const Parameters p("strip", arguments, {"chars"}, 0);
  if (!p.has(0) || p.at(0).is_none()) return Value(stripped(value.text(), side));
  return Value(stripped(value.text(), side, p.text(0, "")));
}

template <bool from_right>
Value split_method(const Value& value, const Arguments& arguments) {
  const Parameters p("split", arguments, {"sep", "maxsplit"}, 0);
  const std::int64_t most = p.whole(1, -1);
  std::vector<std::string> parts;
  if (p.has(0) && !p.at(0).is_none()) {
    const std::string separator = p.text(0, "");
    if (separator.empty()) throw Refusal("empty separator");
    parts = split_at(value.text(), separator, most, from_right);
  } else if (from_right && most >= 0) {
    throw Refusal("rsplit by whitespace with a limit is not supported");
  } else {
    parts = split_at_spaces(value.text(), most);
  }
  return Value::list(Values(parts.begin(), parts.end()));
}

Value splitlines_method(const Value& value, const Arguments& arguments) {
  const Parameters p("splitlines", arguments, {"keepends"}, 0);
  const std::vector<std::string> lines = split_lines(value.text(), p.flag(0, false));
  return Value::list(Values(lines.begin(), lines.end()));
}

/// startswith and endswith: a text, or any of a tuple.
template <bool at_end>
Value affix_method(const Value& value, const Arguments& arguments) {
  constexpr std::string_view kName = at_end ? "endswith" : "startswith";
  const Parameters p(kName, arguments, {"affix", "start"}, 1);
  const std::int64_t start = p.whole(1, 0);
  if (start < 0) throw Refusal(fmt::format("{} from a negative place is not supported", kName));
  if (start > length(value.text())) return false;
  const std::string_view text = std::string_view(value.text()).substr(byte_of(value.text(), start));
  const auto matches = [&](const Value& affix) {
    if (!affix.is_string()) {
      throw Refusal(fmt::format("{} first arg must be str or a tuple of str, not {}", kName,
                                affix.type_name()));
    }
    return at_end ? text.ends_with(affix.text()) : text.starts_with(affix.text());
  };
  if (p.at(0).kind() != Kind::kTuple) return matches(p.at(0));
  return std::ranges::any_of(p.at(0).items(), matches);
}

template <std::string (*change)(std::string_view)>
Value changed(const Value& value, const Arguments& arguments) {
  static_cast<void>(Parameters("the method", arguments, {}, 0));
  return Value(change(value.text()));
}

Value replace_method(const Value& value, const Arguments& arguments) {
  const Parameters p("replace", arguments, {"old", "new", "count"}, 2);
  return Value(replaced(value.text(), p.text(0, ""), p.text(1, ""), p.whole(2, -1)));
}

std::int64_t place_of(const Value& value, const Parameters& p, bool from_right) {
  const std::string_view text = value.text();
  const std::string wanted = p.text(0, "");
  const std::int64_t start = p.whole(1, 0);
  if (start < 0) throw Refusal("a search from a negative place is not supported");
  if (start > length(text)) return -1;
  const std::size_t from = byte_of(text, start);
  std::size_t at = from_right ? text.rfind(wanted) : text.find(wanted, from);
  if (at != std::string_view::npos && at < from) at = std::string_view::npos;
  return at == std::string_view::npos ? -1 : length(text.substr(0, at));
}

template <bool from_right, bool must>
Value find_method(const Value& value, const Arguments& arguments) {
  const Parameters p("find", arguments, {"sub", "start"}, 1);
  const std::int64_t at = place_of(value, p, from_right);
  if (must && at < 0) throw Refusal("substring not found");
  return at;
}

Value count_method(const Value& value, const Arguments& arguments) {
  const Parameters p("count", arguments, {"sub"}, 1);
  const std::string wanted = p.text(0, "");
  if (wanted.empty()) return length(value.text()) + 1;
  return static_cast<std::int64_t>(split_at(value.text(), wanted, -1, false).size()) - 1;
}

Value join_method(const Value& value, const Arguments& arguments) {
  const Parameters p("join", arguments, {"iterable"}, 1);
  std::string text;
  bool first = true;
  for (const Value& item : walked(p.at(0))) {
    if (!item.is_string()) {
      throw Refusal(fmt::format("join: expected str instance, {} found", item.type_name()));
    }
    if (!first) text += value.text();
    first = false;
    text += item.text();
    check_weight(std::ssize(text));
  }
  return Value(std::move(text));
}

template <bool suffix>
Value remove_method(const Value& value, const Arguments& arguments) {
  const Parameters p(suffix ? "removesuffix" : "removeprefix", arguments, {"affix"}, 1);
  const std::string affix = p.text(0, "");
  std::string_view text = value.text();
  if (suffix && text.ends_with(affix)) text.remove_suffix(affix.size());
  if (!suffix && text.starts_with(affix)) text.remove_prefix(affix.size());
  return Value(text);
}

template <bool from_right>
Value partition_method(const Value& value, const Arguments& arguments) {
  const Parameters p("partition", arguments, {"sep"}, 1);
  const std::string separator = p.text(0, "");
  if (separator.empty()) throw Refusal("empty separator");
  const std::vector<std::string> parts = split_at(value.text(), separator, 1, from_right);
  if (parts.size() == 2) return Value::tuple({Value(parts[0]), Value(separator), Value(parts[1])});
  return from_right ? Value::tuple({Value(""), Value(""), value})
                    : Value::tuple({value, Value(""), Value("")});
}

enum class CharacterKind { kSpace, kDigit, kAlpha, kAlnum };

/// isspace, isdigit, isalpha, isalnum: of every character, and there is one.
template <CharacterKind kind>
Value all_are(const Value& value, const Arguments& arguments) {
  static_cast<void>(Parameters("the method", arguments, {}, 0));
  const std::string& text = value.text();
  if (kind != CharacterKind::kSpace && !is_ascii(text)) {
    throw Refusal("kinds of characters beyond ASCII are not supported");
  }
  for (std::size_t at = 0; at < text.size(); at += character_bytes(text, at)) {
    const char c = text[at];
    const bool digit = c >= '0' && c <= '9';
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    const bool is = kind == CharacterKind::kSpace   ? space_at(text, at) > 0
                    : kind == CharacterKind::kDigit ? digit
                    : kind == CharacterKind::kAlpha ? letter
                                                    : digit || letter;
    if (!is) return false;
  }
  return !text.empty();
}

template <bool upper_case>
Value is_case(const Value& value, const Arguments& arguments) {
  static_cast<void>(Parameters("the method", arguments, {}, 0));
  const std::string own = upper_case ? upper(value.text()) : lower(value.text());
  return own == value.text() && (upper_case ? lower(own) : upper(own)) != own;
}

Value get_method(const Value& value, const Arguments& arguments) {
  const Parameters p("get", arguments, {"key", "default"}, 1);
  const Value* const found = value.find(p.at(0));
  return found != nullptr ? *found : p.at(1, Value());
}

enum class Part { kItems, kKeys, kValues };
template <Part part>
Value view_method(const Value& value, const Arguments& arguments) {
  static_cast<void>(Parameters("the view of a dict", arguments, {}, 0));
  Values items;
  for (const auto& [key, item] : value.pairs()) {
    items.push_back(part == Part::kItems  ? Value::tuple({key, item})
                    : part == Part::kKeys ? key
                                          : item);
  }
  return Value::sequence(Kind::kView, std::move(items));
}

Value copy_method(const Value& value, const Arguments& arguments) {
  static_cast<void>(Parameters("copy", arguments, {}, 0));
  return value;
}

Value list_index_method(const Value& value, const Arguments& arguments) {
  const Parameters p("index", arguments, {"value"}, 1);
  const auto items = value.items();
  const auto at = std::ranges::find_if(items, [&](const Value& v) { return equal(v, p.at(0)); });
  if (at == items.end()) throw Refusal(fmt::format("{} is not in list", to_repr(p.at(0))));
  return static_cast<std::int64_t>(at - items.begin());
}

Value list_count_method(const Value& value, const Arguments& arguments) {
  const Parameters p("count", arguments, {"value"}, 1);
  return static_cast<std::int64_t>(
      std::ranges::count_if(value.items(), [&](const Value& v) { return equal(v, p.at(0)); }));
}

constexpr std::array<Entry, 29> kOfText = {{
    {"capitalize", changed<capitalized>},
    {"count", count_method},
    {"endswith", affix_method<true>},
    {"find", find_method<false, false>},
    {"index", find_method<false, true>},
    {"isalnum", all_are<CharacterKind::kAlnum>},
    {"isalpha", all_are<CharacterKind::kAlpha>},
    {"isdigit", all_are<CharacterKind::kDigit>},
    {"islower", is_case<false>},
    {"isspace", all_are<CharacterKind::kSpace>},
    {"isupper", is_case<true>},
    {"join", join_method},
    {"lower", changed<lower>},
    {"lstrip", strip_method<Side::kLeft>},
    {"partition", partition_method<false>},
    {"removeprefix", remove_method<false>},
    {"removesuffix", remove_method<true>},
    {"replace", replace_method},
    {"rfind", find_method<true, false>},
    {"rindex", find_method<true, true>},
    {"rpartition", partition_method<true>},
    {"rsplit", split_method<true>},
    {"rstrip", strip_method<Side::kRight>},
    {"split", split_method<false>},
    {"splitlines", splitlines_method},
    {"startswith", affix_method<false>},
    {"strip", strip_method<Side::kBoth>},
    {"title", changed<titled>},
    {"upper", changed<upper>},
}};
constexpr std::array<Entry, 5> kOfDict = {{
    {"copy", copy_method},
    {"get", get_method},
    {"items", view_method<Part::kItems>},
    {"keys", view_method<Part::kKeys>},
    {"values", view_method<Part::kValues>},
}};
constexpr std::array<Entry, 3> kOfList = {{
    {"copy", copy_method},
    {"count", list_count_method},
    {"index", list_index_method},
}};
// Python has these too.
constexpr std::array<std::string_view, 18> kOtherOfText = {
    "casefold", "center",    "encode",       "expandtabs", "format",      "format_map",
    "isascii",  "isdecimal", "isidentifier", "isnumeric",  "isprintable", "istitle",
    "ljust",    "maketrans", "rjust",        "swapcase",   "translate",   "zfill"};
constexpr std::array<std::string_view, 6> kOtherOfDict = {"clear",   "fromkeys",   "pop",
                                                          "popitem", "setdefault", "update"};
constexpr std::array<std::string_view, 8> kOtherOfList = {"append", "clear",  "extend",  "insert",
                                                          "pop",    "remove", "reverse", "sort"};

struct Methods {
  std::span<const Entry> known;
  std::span<const std::string_view> others;
};

Methods methods_of(const Value& value) {
  if (value.is_string()) return {kOfText, kOtherOfText};
  if (value.is_dict()) return {kOfDict, kOtherOfDict};
  if (value.kind() == Kind::kList) return {kOfList, kOtherOfList};
  if (value.kind() == Kind::kTuple) return {std::span(kOfList).subspan(1), {}};
  return {};
}

const Entry* method_entry(std::span<const Entry> entries, std::string_view name) {
  const auto at = std::ranges::find(entries, name, [](const Entry& entry) { return entry.first; });
  return at == entries.end() ? nullptr : &*at;
}

}  // namespace

bool has_method(const Value& value, std::string_view name) {
  const Methods methods = methods_of(value);
  return method_entry(methods.known, name) != nullptr ||
         std::ranges::find(methods.others, name) != methods.others.end();
}

Value call_method(const Value& value, std::string_view name, const Arguments& arguments) {
  if (const Entry* const entry = method_entry(methods_of(value).known, name)) {
    return entry->second(value, arguments);
  }
  throw Refusal(fmt::format("{}.{}() is not supported{}", value.type_name(), name,
                            value.is_string() ? "" : ": a template changes no list and no dict"));
}

std::int64_t method_cost(const Value& value, const Arguments& arguments) {
  std::int64_t weights = 1;
  for (const Value& each : arguments.values) weights += each.weight();
  const std::int64_t size = shallow_size(value);
  std::int64_t cost = 0;
  if (__builtin_mul_overflow(size, 1 + weights / 64, &cost)) {
    return std::numeric_limits<std::int64_t>::max() / 4;
  }
  return cost + weights;
}

}  // namespace isthmus::jinja
