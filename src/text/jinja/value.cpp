// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "text/jinja/python_text.h"

namespace isthmus::jinja {

struct Sequence {
  Values items;
  std::int64_t weight = 0;
  int depth = 0;
  mutable std::size_t used = 0;  // of a generator
};

struct Dict {
  Items items;
  std::unordered_map<std::string_view, std::size_t> texts;  // keys that are texts, of large dicts
  std::int64_t weight = 0;
  int depth = 0;
};

namespace {

constexpr std::size_t kSearched = 8;  // items that are looked through one by one

void check_depth(int depth) {
  if (depth > kMostDepth) {
    throw Refusal(fmt::format("makes a value of more than {} levels", kMostDepth));
  }
}

bool equal_sequences(const Value& a, const Value& b) {
  const auto x = a.items(), y = b.items();
  return std::ranges::equal(x, y, equal);
}

bool equal_dicts(const Value& a, const Value& b) {
  if (a.pairs().size() != b.pairs().size()) return false;
  return std::ranges::all_of(a.pairs(), [&](const auto& pair) {
    const Value* const other = b.find(pair.first);
    return other != nullptr && equal(pair.second, *other);
  });
}

template <typename Range, typename Write>
std::string joined(const Range& range, const Write& write) {
  std::string text;
  for (const auto& each : range) {
    if (!text.empty()) text += ", ";
    text += write(each);
  }
  return text;
}

}  // namespace

void check_weight(std::int64_t weight) {
  if (weight > kMostWeight) {
    throw Refusal(fmt::format("makes a value of more than {} bytes", kMostWeight));
  }
}

std::int64_t checked_product(std::int64_t a, std::int64_t b) {
  if (a > 0 && b > kMostWeight / a) check_weight(kMostWeight + 1);
  return a * b;
}

Value::Value(std::string text) : kind_(Kind::kString) {
  check_weight(std::ssize(text));
  data_ = std::make_shared<const std::string>(std::move(text));
}

Value Value::markup(std::string text) {
  Value value(std::move(text));
  value.markup_ = true;
  return value;
}

Value Value::undefined(std::string why) {
  Value value(std::move(why));
  value.kind_ = Kind::kUndefined;
  return value;
}

Value Value::sequence(Kind kind, Values items) {
  Sequence sequence{.items = std::move(items)};
  for (const Value& item : sequence.items) {
    sequence.weight += item.weight();
    sequence.depth = std::max(sequence.depth, item.depth());
    check_weight(sequence.weight);
  }
  ++sequence.weight;
  check_depth(++sequence.depth);
  Value value;
  value.kind_ = kind;
  value.data_ = std::make_shared<const Sequence>(std::move(sequence));
  return value;
}

Value Value::dict(Items items) {
  auto dict = std::make_shared<Dict>();
  dict->items.reserve(items.size());  // keys are looked up by views of their texts
  for (auto& given : items) {
    auto& key = given.first;
    auto& item = given.second;
    const bool plain =
        key.is_string() || key.is_number() || key.is_none() || key.kind() == Kind::kTuple;
    if (!plain) throw Refusal(fmt::format("a {} as the key of a dict", key.type_name()));
    std::size_t place = dict->items.size();
    if (key.is_string()) {
      const auto found = dict->texts.find(key.text());
      if (found != dict->texts.end()) place = found->second;
    } else {
      const auto found = std::ranges::find_if(
          dict->items, [&](const auto& pair) { return equal(pair.first, key); });
      place = static_cast<std::size_t>(found - dict->items.begin());
      check_weight(static_cast<std::int64_t>(place) * 1024);  // each such key looks through all
    }
    dict->weight += key.weight() + item.weight();
    dict->depth = std::max(dict->depth, std::max(item.depth(), key.depth()));
    check_weight(dict->weight);
    if (place < dict->items.size()) {
      dict->items[place].second = std::move(item);
      continue;
    }
    dict->items.emplace_back(std::move(key), std::move(item));
    const Value& kept = dict->items.back().first;
    if (kept.is_string()) dict->texts.emplace(kept.text(), place);
  }
  ++dict->weight;
  check_depth(++dict->depth);
  if (dict->items.size() <= kSearched) dict->texts.clear();
  Value value;
  value.kind_ = Kind::kDict;
  value.data_ = std::shared_ptr<const Dict>(std::move(dict));
  return value;
}

Value Value::object(std::shared_ptr<Object> object) {
  Value value;
  value.kind_ = Kind::kObject;
  value.data_ = std::move(object);
  return value;
}

std::int64_t Value::whole() const {
  return kind_ == Kind::kBool ? (std::get<bool>(data_) ? 1 : 0) : std::get<std::int64_t>(data_);
}

double Value::number() const {
  return kind_ == Kind::kFloat ? std::get<double>(data_) : static_cast<double>(whole());
}

const std::string& Value::text() const { return *std::get<Text>(data_); }

std::span<const Value> Value::items() const {
  const Sequence& sequence = *std::get<std::shared_ptr<const Sequence>>(data_);
  return std::span(sequence.items).subspan(sequence.used);
}

void Value::use_up(std::size_t count) const {
  if (kind_ != Kind::kGenerator) return;
  const Sequence& sequence = *std::get<std::shared_ptr<const Sequence>>(data_);
  sequence.used = std::min(sequence.used + count, sequence.items.size());
}

const Items& Value::pairs() const { return std::get<std::shared_ptr<const Dict>>(data_)->items; }

Object& Value::as_object() const { return *std::get<std::shared_ptr<Object>>(data_); }

const Value* Value::find_text(std::string_view key) const {
  const Dict& dict = *std::get<std::shared_ptr<const Dict>>(data_);
  if (dict.items.size() > kSearched) {
    const auto found = dict.texts.find(key);
    return found == dict.texts.end() ? nullptr : &dict.items[found->second].second;
  }
  for (const auto& [each, value] : dict.items) {
    if (each.is_string() && each.text() == key) return &value;
  }
  return nullptr;
}

const Value* Value::find(const Value& key) const {
  if (key.is_string()) return find_text(key.text());
  for (const auto& [each, value] : pairs()) {
    if (equal(each, key)) return &value;
  }
  return nullptr;
}

bool Value::truth() const {
  switch (kind_) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return whole() != 0;
    case Kind::kFloat:
      return number() != 0;
    case Kind::kString:
      return !text().empty();
    case Kind::kDict:
      return !pairs().empty();
    case Kind::kGenerator:
    case Kind::kObject:
      return true;
    default:
      return !items().empty();
  }
}

std::int64_t Value::weight() const {
  if (kind_ == Kind::kString) return 1 + std::ssize(text());
  if (is_sequence()) return std::get<std::shared_ptr<const Sequence>>(data_)->weight;
  if (kind_ == Kind::kDict) return std::get<std::shared_ptr<const Dict>>(data_)->weight;
  return 1;
}

int Value::depth() const {
  if (is_sequence()) return std::get<std::shared_ptr<const Sequence>>(data_)->depth;
  return kind_ == Kind::kDict ? std::get<std::shared_ptr<const Dict>>(data_)->depth : 0;
}

std::string_view Value::type_name() const {
  switch (kind_) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kRange:
      return "range";
    case Kind::kView:
      return "view of a dict";
    case Kind::kGenerator:
      return "generator";
    case Kind::kDict:
      return "dict";
    case Kind::kObject:
      return as_object().type_name();
  }
  return "";
}

bool equal(const Value& a, const Value& b) {
  if (a.is_whole() && b.is_whole()) return a.whole() == b.whole();
  if (a.is_number() && b.is_number()) return a.number() == b.number();
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      return a.text() == b.text();
    case Kind::kDict:
      return equal_dicts(a, b);
    case Kind::kObject:
      return &a.as_object() == &b.as_object();
    case Kind::kGenerator:
      return false;
    default:
      return equal_sequences(a, b);
  }
}

std::string to_repr(const Value& value) {
  switch (value.kind()) {
    case Kind::kString:
      return repr_of_text(value.text());
    case Kind::kList:
      return "[" + joined(value.items(), to_repr) + "]";
    case Kind::kTuple:
      return "(" + joined(value.items(), to_repr) + (value.items().size() == 1 ? ",)" : ")");
    case Kind::kDict:
      return "{" +
             joined(value.pairs(),
                    [](const auto& pair) {
                      return to_repr(pair.first) + ": " + to_repr(pair.second);
                    }) +
             "}";
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "None";
    case Kind::kBool:
      return value.truth() ? "True" : "False";
    case Kind::kInt:
      return fmt::format("{}", value.whole());
    case Kind::kFloat:
      return float_text(value.number());
    default:
      throw Refusal(fmt::format("writes out a {}", value.type_name()));
  }
}

std::string to_text(const Value& value) {
  if (value.is_string()) return value.text();
  if (value.is_undefined()) return {};
  return to_repr(value);
}

Values walked(const Value& value) {
  Values items;
  if (value.is_sequence()) {
    const auto all = value.items();
    items.assign(all.begin(), all.end());
    value.use_up(items.size());
  } else if (value.is_dict()) {
    for (const auto& [key, item] : value.pairs()) items.push_back(key);
  } else if (value.is_string()) {
    const std::string& text = value.text();
    check_weight(checked_product(std::ssize(text), 64));  // a value for each character
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t length = character_bytes(text, at);
      items.emplace_back(text.substr(at, length));
      at += length;
    }
  } else if (!value.is_undefined()) {
    throw Refusal(fmt::format("'{}' object is not iterable", value.type_name()));
  }
  return items;
}

}  // namespace isthmus::jinja
