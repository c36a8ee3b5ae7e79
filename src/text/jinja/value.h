// SPDX-License-Identifier: Apache-2.0
// A value of a template, as Python has it: none, booleans, whole numbers, floats, texts, lists,
// tuples, dicts, and objects such as macros. Texts and containers are immutable and shared, so a
// copy of a value is cheap. Any thread may read one.
//
// A template may come from anybody. Every container therefore knows how deep it is and how much it
// weighs (texts by their bytes), and one that is too deep or too heavy is not made: what walks
// through a value needs no limit of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace isthmus::jinja {

/// What a template may not do, in words, without its place: the renderer adds file and line.
class Refusal : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline constexpr std::int64_t kMostWeight = std::int64_t{1} << 26;
inline constexpr int kMostDepth = 100;
/// THROWS: Refusal where a text or list of so many bytes or values is too large.
void check_weight(std::int64_t weight);
/// a * b. THROWS: Refusal where a result of that size is too large. REQUIRES: neither is negative.
std::int64_t checked_product(std::int64_t a, std::int64_t b);

enum class Kind {
  kUndefined,  // a name, item or attribute that is not there
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kRange,      // range(...)
  kView,       // of a dict: items(), keys(), values()
  kGenerator,  // of a filter such as map: can be walked once
  kDict,
  kObject,  // a namespace, macro, method, function or loop
};

/// What a template can call or ask for attributes; the renderer's.
class Object {
 public:
  virtual ~Object() = default;
  /// Of Python's type, for messages.
  [[nodiscard]] virtual std::string_view type_name() const = 0;
  [[nodiscard]] virtual bool callable() const { return true; }
};

class Value;
struct Sequence;
struct Dict;
using Values = std::vector<Value>;
using Items = std::vector<std::pair<Value, Value>>;

class Value {
 public:
  /// none.
  Value() = default;
  Value(bool value) : kind_(Kind::kBool), data_(value) {}         // NOLINT
  Value(std::int64_t value) : kind_(Kind::kInt), data_(value) {}  // NOLINT
  Value(double value) : kind_(Kind::kFloat), data_(value) {}      // NOLINT
  /// THROWS: Refusal where it is too large, as all that make a text or container.
  Value(std::string text);                                    // NOLINT
  Value(const char* text) : Value(std::string(text)) {}       // NOLINT
  Value(std::string_view text) : Value(std::string(text)) {}  // NOLINT
  /// Text that `safe` has marked: what is joined to it is escaped.
  [[nodiscard]] static Value markup(std::string text);
  /// why: "'x' is undefined".
  [[nodiscard]] static Value undefined(std::string why);
  /// kind: kList to kGenerator.
  [[nodiscard]] static Value sequence(Kind kind, Values items);
  [[nodiscard]] static Value list(Values items) { return sequence(Kind::kList, std::move(items)); }
  [[nodiscard]] static Value tuple(Values items) {
    return sequence(Kind::kTuple, std::move(items));
  }
  /// Of equal keys the last value counts, at the place of the first.
  [[nodiscard]] static Value dict(Items items);
  [[nodiscard]] static Value object(std::shared_ptr<Object> object);

  [[nodiscard]] Kind kind() const { return kind_; }
  [[nodiscard]] bool is_undefined() const { return kind_ == Kind::kUndefined; }
  [[nodiscard]] bool is_none() const { return kind_ == Kind::kNone; }
  [[nodiscard]] bool is_string() const { return kind_ == Kind::kString; }
  [[nodiscard]] bool is_markup() const { return markup_; }
  [[nodiscard]] bool is_dict() const { return kind_ == Kind::kDict; }
  /// A bool too, which is a number in Python.
  [[nodiscard]] bool is_whole() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }
  [[nodiscard]] bool is_number() const { return is_whole() || kind_ == Kind::kFloat; }
  /// kList to kGenerator.
  [[nodiscard]] bool is_sequence() const {
    return kind_ >= Kind::kList && kind_ <= Kind::kGenerator;
  }
  /// Has items by number: a list, tuple or range.
  [[nodiscard]] bool is_indexed() const { return kind_ >= Kind::kList && kind_ <= Kind::kRange; }

  // REQUIRES of each: the kind.
  [[nodiscard]] std::int64_t whole() const;
  [[nodiscard]] double number() const;  // of whole ones too
  [[nodiscard]] const std::string& text() const;
  [[nodiscard]] const std::string& why_undefined() const { return *std::get<Text>(data_); }
  /// Of a generator: what it has left.
  [[nodiscard]] std::span<const Value> items() const;
  [[nodiscard]] const Items& pairs() const;
  [[nodiscard]] Object& as_object() const;
  [[nodiscard]] const std::shared_ptr<Object>& shared_object() const;

  /// A generator gives up its next `count` items.
  void use_up(std::size_t count) const;
  /// The value of a dict's key, or null.
  [[nodiscard]] const Value* find(const Value& key) const;
  [[nodiscard]] const Value* find_text(std::string_view key) const;

  /// Python's truth. A generator is true.
  [[nodiscard]] bool truth() const;
  /// Bytes of texts and number of values, all told.
  [[nodiscard]] std::int64_t weight() const;
  [[nodiscard]] int depth() const;
  /// Python's name of the type.
  [[nodiscard]] std::string_view type_name() const;

 private:
  using Text = std::shared_ptr<const std::string>;
  using Data = std::variant<std::monostate, bool, std::int64_t, double, Text,
                            std::shared_ptr<const Sequence>, std::shared_ptr<const Dict>,
                            std::shared_ptr<Object>>;
  Kind kind_ = Kind::kNone;
  bool markup_ = false;
  Data data_;
};

/// Python's ==, within all kinds. THROWS: nothing.
[[nodiscard]] bool equal(const Value& a, const Value& b);

/// str(value): "None", "True", "[1, 'a']". THROWS: Refusal for objects.
[[nodiscard]] std::string to_text(const Value& value);
/// repr(value).
[[nodiscard]] std::string to_repr(const Value& value);

/// The items that a loop walks through: of a list, the keys of a dict, the characters of a text,
/// nothing of what is undefined. Uses up a generator. THROWS: Refusal for what cannot be walked.
[[nodiscard]] Values walked(const Value& value);

}  // namespace isthmus::jinja
