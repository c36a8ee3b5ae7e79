// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/json_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "isthmus/errors.h"
#include "text/jinja/python_text.h"

namespace isthmus::jinja {
namespace {

constexpr std::size_t kMostLevels = 64;

/// Makes values as nlohmann's parser reads them; its own objects sort their keys.
class Builder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return put(Value()); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(std::int64_t value) override { return put(value); }
  bool number_unsigned(std::uint64_t value) override {
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return fail(fmt::format("the number {} is beyond 64 bits", value));
    }
    return put(static_cast<std::int64_t>(value));
  }
  bool number_float(double value, const std::string& text) override {
    if (text.find_first_of(".eE") == std::string::npos) {
      return fail(fmt::format("the number {} is beyond 64 bits", text));
    }
    return put(value);
  }
  bool string(std::string& value) override { return put(Value(std::move(value))); }
  bool binary(nlohmann::json::binary_t&) override { return fail("holds bytes"); }
  bool start_object(std::size_t) override { return open(true); }
  bool start_array(std::size_t) override { return open(false); }
  bool key(std::string& value) override {
    levels_.back().key = std::move(value);
    return true;
  }
  bool end_object() override {
    Level level = close();
    return put(Value::dict(std::move(level.pairs)));
  }
  bool end_array() override {
    Level level = close();
    return put(Value::list(std::move(level.items)));
  }
  bool parse_error(std::size_t, const std::string&,
                   const nlohmann::json::exception& error) override {
    std::string what = error.what();  // it repeats all that was read, which may be long or no text
    if (const std::size_t tag = what.find("] "); what.starts_with('[') && tag != what.npos) {
      what.erase(0, tag + 2);  // the parser's name and number of the error
    }
    const std::size_t read = what.find("; last read: '");
    const std::size_t after = what.rfind("'; ");
    if (read != std::string::npos) {
      what = what.substr(0, read) +
             (after > read && after != std::string::npos ? what.substr(after + 1) : std::string());
    }
    return fail(fmt::format("is not valid JSON: {}", what));
  }

  [[nodiscard]] const std::string& problem() const { return problem_; }
  [[nodiscard]] Value take() { return std::move(value_); }

 private:
  struct Level {
    bool object;
    std::string key = {};
    Values items = {};
    Items pairs = {};
  };
  bool fail(std::string problem) {
    problem_ = std::move(problem);
    return false;
  }
  bool open(bool object) {
    if (levels_.size() == kMostLevels) {
      return fail(fmt::format("is nested deeper than {} levels", kMostLevels));
    }
    levels_.push_back({object});
    return true;
  }
  Level close() {
    Level level = std::move(levels_.back());
    levels_.pop_back();
    return level;
  }
  bool put(Value value) {
    if (levels_.empty()) {
      value_ = std::move(value);
    } else if (levels_.back().object) {
      levels_.back().pairs.emplace_back(Value(levels_.back().key), std::move(value));
    } else {
      levels_.back().items.push_back(std::move(value));
    }
    return true;
  }

  std::vector<Level> levels_;
  Value value_;
  std::string problem_;
};

class Writer {
 public:
  explicit Writer(const JsonStyle& style) : style_(style) {}

  void write(const Value& value) {
    check_weight(std::ssize(text_));
    switch (value.kind()) {
      case Kind::kNone:
        text_ += "null";
        return;
      case Kind::kBool:
        text_ += value.truth() ? "true" : "false";
        return;
      case Kind::kInt:
        text_ += fmt::format("{}", value.whole());
        return;
      case Kind::kFloat:
        text_ += number(value.number());
        return;
      case Kind::kString:
        text_ += json_text(value.text(), style_.ascii);
        return;
      case Kind::kList:
      case Kind::kTuple:
        write_list(value.items());
        return;
      case Kind::kDict:
        write_dict(value.pairs());
        return;
      default:
        throw Refusal(fmt::format("Object of type {} is not JSON serializable", value.type_name()));
    }
  }
  [[nodiscard]] std::string take() {
    check_weight(std::ssize(text_));
    return std::move(text_);
  }

 private:
  static std::string number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
    return float_text(value);
  }
  static std::string key_text(const Value& key) {
    switch (key.kind()) {
      case Kind::kString:
        return key.text();
      case Kind::kNone:
        return "null";
      case Kind::kBool:
        return key.truth() ? "true" : "false";
      case Kind::kInt:
        return fmt::format("{}", key.whole());
      case Kind::kFloat:
        return number(key.number());
      default:
        throw Refusal(fmt::format("a {} as a key of JSON", key.type_name()));
    }
  }
  void line() {
    if (!style_.indent) return;
    text_ += '\n';
    check_weight(checked_product(level_, std::ssize(*style_.indent)) + std::ssize(text_));
    for (std::int64_t i = 0; i < level_; ++i) text_ += *style_.indent;
  }
  void write_list(std::span<const Value> items) {
    if (items.empty()) {
      text_ += "[]";
      return;
    }
    text_ += '[';
    ++level_;
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) text_ += style_.between_items;
      line();
      write(items[i]);
    }
    --level_;
    line();
    text_ += ']';
  }
  void write_dict(const Items& pairs) {
    if (pairs.empty()) {
      text_ += "{}";
      return;
    }
    std::vector<std::pair<std::string, const Value*>> members;
    for (const auto& [key, value] : pairs) members.emplace_back(key_text(key), &value);
    if (style_.sort_keys) {
      std::ranges::stable_sort(members, {}, [](const auto& member) { return member.first; });
    }
    text_ += '{';
    ++level_;
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (i > 0) text_ += style_.between_items;
      line();
      text_ += json_text(members[i].first, style_.ascii) + style_.behind_key;
      write(*members[i].second);
    }
    --level_;
    line();
    text_ += '}';
  }

  const JsonStyle& style_;
  std::string text_;
  std::int64_t level_ = 0;
};

}  // namespace

Value value_of_json(std::string_view json, const std::string& label) {
  Builder builder;
  try {
    if (nlohmann::json::sax_parse(json, &builder)) return builder.take();
  } catch (const Refusal& refusal) {
    throw SystemError(fmt::format("{}: {}", label, refusal.what()));
  }
  throw SystemError(fmt::format("{}: {}", label, builder.problem()));
}

std::string to_json(const Value& value, const JsonStyle& style) {
  Writer writer(style);
  writer.write(value);
  return writer.take();
}

}  // namespace isthmus::jinja
