// SPDX-License-Identifier: Apache-2.0
// Rules of [data].
#include <fmt/format.h>

#include <algorithm>

#include "config/check/config_check.h"
#include "core/base/suggest.h"

namespace isthmus::config {

void validate_data(const DataConfig& data, CheckContext& check) {
  if (data.source.empty()) {
    if (check.config.train.trainer == "external") return;
    check.refuse("E-KEY-MISSING", "data.source", "'data.source' is missing",
                 "source = \"text:FILE\", \"tokens:GLOB\" or \"synth:NAME\" in [data]");
  } else {
    const std::vector<std::string> kinds = {"text:", "tokens:", "synth:"};
    const bool known = std::any_of(kinds.begin(), kinds.end(), [&](const std::string& kind) {
      return data.source.starts_with(kind) && data.source.size() > kind.size();
    });
    if (!known) {
      const std::string& source = data.source;
      const auto near = closest(source.substr(0, source.find(':') + 1), kinds);
      check.refuse(
          "E-VALUE", "data.source",
          fmt::format("{}: must begin with text:, tokens: or synth: and name something",
                      check.quoted("data.source")),
          near ? fmt::format("did you mean \"{}...\"?", *near) : "for example \"text:input.txt\"");
    }
  }
}

}  // namespace isthmus::config
