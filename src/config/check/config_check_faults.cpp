// SPDX-License-Identifier: Apache-2.0
// Rules of [[fault]].
#include <fmt/format.h>

#include <algorithm>

#include "config/check/config_check.h"
#include "core/base/suggest.h"

namespace isthmus::config {
namespace {

/// A key that this kind needs, or has no use for.
struct KeyOfKind {
  std::string_view key, kind, other_kind, example;
};
constexpr KeyOfKind kKeysOfKinds[] = {
    {"fault.between", "cut", "rate", "between = [\"east\", \"west\"]"},
    {"fault.site", "pause", "slow", "site = \"east\""},
    {"fault.rate", "rate", "rate", "rate = \"5Mbit/s\""},
    {"fault.pace", "slow", "slow", "pace = 0.25"},
};

}  // namespace

void validate_faults(std::span<const FaultConfig> faults, const std::vector<std::string>& names,
                     CheckContext& check) {
  for (std::size_t i = 0; i < check.faults().places.size(); ++i) {
    const FaultConfig& fault = faults[i];
    const GivenKeys& given_keys = check.faults().keys[i];
    const auto needs = [&](std::string_view key, std::string_view example) {
      if (given_keys.contains(key)) return;
      const std::string_view word = key.substr(key.find('.') + 1);
      check.refuse_at("E-KEY-MISSING", check.faults().places[i],
                      fmt::format("[[fault]] without '{}'", word), std::string(example));
    };
    needs("fault.kind", "kind = \"cut\", \"rate\", \"pause\" or \"slow\"");
    needs("fault.at", "at = \"20min\": when it begins");
    needs("fault.lasts", "lasts = \"5min\"");
    if (fault.kind.empty()) continue;
    for (const KeyOfKind& row : kKeysOfKinds) {
      const bool wanted = fault.kind == row.kind || fault.kind == row.other_kind;
      if (wanted) {
        needs(row.key, row.example);
      } else if (const auto found = given_keys.find(row.key); found != given_keys.end()) {
        check.refuse_at("E-KEY-UNUSED", found->second.key,
                        fmt::format("'{}' is not used by kind = \"{}\"", row.key, fault.kind),
                        "remove it");
      }
    }
    const auto must_exist = [&](std::string_view key, const std::string& name) {
      const bool given = given_keys.contains(key);
      if (!given || std::ranges::find(names, name) != names.end()) return;
      const auto near = closest(name, names);
      check.refuse_at(
          "E-VALUE", given_keys.find(key)->second.value,
          fmt::format("{} names '{}', which is no site", key, name),
          near ? fmt::format("did you mean '{}'?", *near) : fmt::format("sites: {}", join(names)));
    };
    must_exist("fault.site", fault.site);
    if (fault.a != "*") must_exist("fault.between", fault.a);
    if (fault.b != "*") must_exist("fault.between", fault.b);
    const bool itself = !fault.a.empty() && fault.a == fault.b && fault.a != "*";
    if (itself || (!fault.a.empty() && names.size() < 2)) {
      check.refuse_at("E-CONFLICT", given_keys.find("fault.between")->second.value,
                      itself ? fmt::format("a link between '{}' and itself", fault.a)
                             : "a link's fault in a run of one site");
    }
  }
}

}  // namespace isthmus::config
