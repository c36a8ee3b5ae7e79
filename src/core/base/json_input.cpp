// SPDX-License-Identifier: Apache-2.0
#include "core/base/json_input.h"

#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <vector>

#include "core/base/git_pointer.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {

using nlohmann::json;

constexpr int kMaxDepth = 64;

/// "[json.exception.parse_error.101] parse error at line 1, column 2: ..." without its tag.
std::string without_tag(const std::string& what) {
  const auto tag = what.find("] ");
  return tag == std::string::npos ? what : what.substr(tag + 2);
}

/// Ends a parse at input that is nested too deep: the parser of binary forms calls itself for each
/// level.
class DepthLimit final : public nlohmann::json_sax<json> {
 public:
  bool start_object(std::size_t) override { return ++depth_ <= kMaxDepth; }
  bool start_array(std::size_t) override { return ++depth_ <= kMaxDepth; }
  bool end_object() override { return --depth_ >= 0; }
  bool end_array() override { return --depth_ >= 0; }
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool key(string_t&) override { return true; }
  bool parse_error(std::size_t, const std::string&, const json::exception& error) override {
    what_ = without_tag(error.what());
    return false;
  }
  [[nodiscard]] std::string why() const {
    return depth_ > kMaxDepth ? "nested deeper than " + std::to_string(kMaxDepth) + " levels"
                              : what_;
  }

 private:
  int depth_ = 0;
  std::string what_;
};

}  // namespace

nlohmann::json parse_json(std::string_view text, const std::string& label) {
  std::vector<std::set<std::string>> keys;  // of the objects open at this point
  const auto check = [&](int depth, json::parse_event_t event, json& parsed) {
    switch (event) {
      case json::parse_event_t::object_start:
        keys.emplace_back();
        [[fallthrough]];
      case json::parse_event_t::array_start:
        if (depth >= kMaxDepth) {
          throw SystemError(label + ": not valid JSON: nested deeper than " +
                            std::to_string(kMaxDepth) + " levels");
        }
        break;
      case json::parse_event_t::object_end:
        keys.pop_back();
        break;
      case json::parse_event_t::key: {
        const auto& name = parsed.get_ref<const std::string&>();
        if (!keys.back().insert(name).second) {
          throw SystemError(label + ": not valid JSON: key \"" + name + "\" appears twice");
        }
        break;
      }
      default:
        break;
    }
    return true;
  };
  try {
    return json::parse(text.begin(), text.end(), check);
  } catch (const json::exception& error) {
    refuse_git_pointer(text, label);
    throw SystemError(label + ": not valid JSON: " + without_tag(error.what()));
  }
}

json read_json(std::string_view text) {
  return json::parse(text.begin(), text.end(), nullptr, false);
}

std::string indented_json(std::string_view text, const std::string& label) {
  try {
    return nlohmann::ordered_json::parse(text.begin(), text.end()).dump(2);
  } catch (const json::exception& error) {
    throw SystemError(label + ": not valid JSON: " + without_tag(error.what()));
  }
}

json parse_cbor(std::span<const std::byte> bytes, const std::string& label) {
  const auto* first = reinterpret_cast<const std::uint8_t*>(bytes.data());
  const auto* last = first + bytes.size();
  DepthLimit check;
  if (!json::sax_parse(first, last, &check, json::input_format_t::cbor)) {
    throw SystemError(label + ": not valid CBOR: " + check.why());
  }
  return json::from_cbor(first, last);
}

std::uint64_t whole_number_bits(const json& value, std::int64_t least, std::uint64_t most) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<std::uint64_t>();
    if (number <= most) return number;
  } else if (value.is_number_integer()) {
    const auto number = value.get<std::int64_t>();
    if (number >= least && (number < 0 || static_cast<std::uint64_t>(number) <= most)) {
      return static_cast<std::uint64_t>(number);
    }
  } else {
    throw std::out_of_range(std::string("a ") + value.type_name() + " for a whole number");
  }
  throw std::out_of_range("a number out of range: " + value.dump());
}

}  // namespace isthmus
