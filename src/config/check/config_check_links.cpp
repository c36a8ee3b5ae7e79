// SPDX-License-Identifier: Apache-2.0
// Rules of [[link]].
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "config/check/config_check.h"
#include "core/base/suggest.h"

namespace isthmus::config {

void validate_links(std::span<const LinkConfig> links, const std::vector<std::string>& names,
                    CheckContext& check) {
  std::set<std::pair<std::string, std::string>> joined;
  for (std::size_t i = 0; i < links.size(); ++i) {
    const LinkConfig& link = links[i];
    const GivenKeys& given_keys = check.links().keys[i];
    const auto between = given_keys.find("link.between");
    if (between == given_keys.end()) {
      check.refuse_at("E-KEY-MISSING", check.links().places[i], "[[link]] without 'between'",
                      "between = [\"east\", \"west\"]");
    } else if (!link.a.empty()) {
      for (const std::string& end : {link.a, link.b}) {
        if (end != "*" && std::ranges::find(names, end) == names.end()) {
          const auto near = closest(end, names);
          check.refuse_at("E-VALUE", between->second.value,
                          fmt::format("link.between names '{}', which is no site", end),
                          near ? fmt::format("did you mean '{}'?", *near)
                               : fmt::format("sites: {}", join(names)));
        }
      }
      if (link.a == link.b && link.a != "*") {
        check.refuse_at("E-CONFLICT", between->second.value,
                        fmt::format("a link between '{}' and itself", link.a));
      } else if (!joined.insert(std::minmax(link.a, link.b)).second) {
        check.refuse_at("E-CONFLICT", between->second.value,
                        fmt::format("two links between '{}' and '{}'", link.a, link.b));
      }
    }
    const bool both = given_keys.contains("link.rate");
    const bool up = given_keys.contains("link.rate_up");
    const bool down = given_keys.contains("link.rate_down");
    const auto trace = given_keys.find("link.trace");
    if (trace != given_keys.end()) {
      if (both || up || down) {
        check.refuse_at("E-CONFLICT", trace->second.key, "'link.trace' together with a rate",
                        "the trace says the rates; give one of them");
      }
    } else if (both && (up || down)) {
      check.refuse_at("E-CONFLICT", given_keys.find("link.rate")->second.key,
                      "'link.rate' together with 'link.rate_up' or 'link.rate_down'",
                      "rate is for both directions");
    } else if (!both && !(up && down)) {
      check.refuse_at("E-KEY-MISSING", check.links().places[i], "[[link]] without a rate",
                      "rate = \"100Mbit/s\", both rate_up and rate_down, or trace = \"day.csv\"");
    }
  }
}

}  // namespace isthmus::config
