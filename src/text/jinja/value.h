// SPDX-License-Identifier: Apache-2.0
// A value of a template with the types of Python: none, booleans, integers, floats, texts, lists,
// tuples, dicts, and objects such as macros. Texts and containers are immutable and shared, so a
// copy of a value is cheap. Any thread may read a value.
//
// A template may come from an untrusted source. Every container therefore knows its depth and its
// weight (texts count by their bytes), and a container beyond the limits cannot be created: code
// that traverses a value needs no limit.
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

/// An operation that a template may not make, in words, without a place: the renderer adds file and
/// line.
class Refusal : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline constexpr std::int64_t kMostWeight = std::int64_t{1} << 26;
inline constexpr int kMostDepth = 100;
/// THROWS: Refusal when a text or list of `weight` bytes or values is too large.
void check_weight(std::int64_t weight);
/// RETURNS: a * b. THROWS: Refusal when a result of that size is too large. REQUIRES: neither is
/// negative.
std::int64_t checked_product(std::int64_t a, std::int64_t b);

enum class Kind {
  kUndefined,  // a missing name, item or attribute
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kRange,      // range(...)
  kView,       // view of a dict: items(), keys(), values()
  kGenerator,  // result of a filter such as map; can be iterated once
  kDict,
  kObject,  // a namespace, macro, method, function or loop
};

/// An object of the renderer that a template can call or read attributes of.
class Object {
 public:
  virtual ~Object() = default;
  /// Name of the Python type, for messages.
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
  /// THROWS: Refusal when the text is too large, as all functions that make a text or container.
  Value(std::string text);                                    // NOLINT
  Value(const char* text) : Value(std::string(text)) {}       // NOLINT
  Value(std::string_view text) : Value(std::string(text)) {}  // NOLINT
  /// Text marked by `safe`: text joined to it is escaped.
  [[nodiscard]] static Value markup(std::string text);
  /// why: "'x' is undefined".
  [[nodiscard]] static Value undefined(std::string why);
  /// kind: kList to kGenerator.
  [[nodiscard]] static Value sequence(Kind kind, Values items);
  [[nodiscard]] static Value list(Values items) { return sequence(Kind::kList, std::move(items)); }
  [[nodiscard]] static Value tuple(Values items) {
    return sequence(Kind::kTuple, std::move(items));
  }
  /// Of equal keys the last value counts, at the position of the first.
  [[nodiscard]] static Value dict(Items items);
  [[nodiscard]] static Value object(std::shared_ptr<Object> object);

  [[nodiscard]] Kind kind() const { return kind_; }
  [[nodiscard]] bool is_undefined() const { return kind_ == Kind::kUndefined; }
  [[nodiscard]] bool is_none() const { return kind_ == Kind::kNone; }
  [[nodiscard]] bool is_string() const { return kind_ == Kind::kString; }
  [[nodiscard]] bool is_markup() const { return markup_; }
  [[nodiscard]] bool is_dict() const { return kind_ == Kind::kDict; }
  /// True for a bool too, which is a number in Python.
  [[nodiscard]] bool is_whole() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }
  [[nodiscard]] bool is_number() const { return is_whole() || kind_ == Kind::kFloat; }
  /// kList to kGenerator.
  [[nodiscard]] bool is_sequence() const {
    return kind_ >= Kind::kList && kind_ <= Kind::kGenerator;
  }
  /// True if items have indices: a list, tuple or range.
  [[nodiscard]] bool is_indexed() const { return kind_ >= Kind::kList && kind_ <= Kind::kRange; }

  // REQUIRES (each function): a value of the right kind.
  [[nodiscard]] std::int64_t whole() const;
  [[nodiscard]] double number() const;  // also of integers
  [[nodiscard]] const std::string& text() const;
  [[nodiscard]] const std::string& why_undefined() const { return *std::get<Text>(data_); }
  /// The items; of a generator those that are left.
  [[nodiscard]] std::span<const Value> items() const;
  [[nodiscard]] const Items& pairs() const;
  [[nodiscard]] Object& as_object() const;

  /// Removes the next `count` items of a generator.
  void use_up(std::size_t count) const;
  /// The value of a dict's key, or null.
  [[nodiscard]] const Value* find(const Value& key) const;
  [[nodiscard]] const Value* find_text(std::string_view key) const;

  /// Python's truth. A generator is true.
  [[nodiscard]] bool truth() const;
  /// Total bytes of texts and number of values.
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

/// The items over which a loop iterates: of a list, the keys of a dict, the characters of a text,
/// none of an undefined value. Uses up a generator. THROWS: Refusal for a value that cannot be
/// iterated.
[[nodiscard]] Values walked(const Value& value);

}  // namespace isthmus::jinja
