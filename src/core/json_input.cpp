// SPDX-License-Identifier: Apache-2.0
#include "core/json_input.h"

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "isthmus/errors.h"

namespace isthmus {
namespace {

constexpr int kMaxDepth = 64;

}  // namespace

nlohmann::json parse_json(std::string_view text, const std::string& label) {
  using nlohmann::json;
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
    // "[json.exception.parse_error.101] parse error at line 1, column 2: ..." without its tag.
    const std::string what = error.what();
    const auto tag = what.find("] ");
    throw SystemError(
        label + ": not valid JSON: " + (tag == std::string::npos ? what : what.substr(tag + 2)));
  }
}

}  // namespace isthmus
