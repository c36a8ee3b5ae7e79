// SPDX-License-Identifier: Apache-2.0
// The order of the checks, and the helpers that several sections share.
#include "config/check/config_check.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/suggest.h"
#include "isthmus/errors.h"

namespace isthmus::config {

void validate(Draft& draft) {
  const Config& config = draft.config;
  CheckContext check(draft);
  validate_method(config.method, check);
  validate_unused(check);
  validate_run(config.run, check);
  validate_data(config.data, check);
  validate_train(config.train, check);
  validate_inner(config.inner, check);
  validate_model(config.model, check);
  validate_eval(config.eval, check);
  validate_outer(config.outer, check);
  validate_surrogate(check);
  validate_parallel(config, check);
  validate_sites(config.sites, check);
  validate_net(config.net, check);
  validate_hub(config.hub, check);
  std::vector<std::string> names;
  for (const SiteConfig& site : config.sites) names.push_back(site.name);
  validate_links(config.links, names, check);
  validate_faults(config.faults, names, check);
}

void CheckContext::refuse_unknown_codec(std::string_view name, const std::string& spelling) {
  if (!schema.check_codec) return;
  try {
    schema.check_codec(spelling);
  } catch (const Error& error) {
    std::vector<std::string> names;
    for (const CodecInfo& codec : schema.codecs) names.push_back(codec.name);
    const std::string word = spelling.substr(0, spelling.find(':'));
    const bool known = std::ranges::find(names, word) != names.end();
    const auto near = known ? std::nullopt : closest(word, names);
    refuse("E-VALUE", name, fmt::format("{}: {}", quoted(name), error.what()),
           (near ? fmt::format("did you mean '{}'?   ", *near) : std::string()) +
               fmt::format("codecs: {}", join(names)));
  }
}

bool is_plain_name(std::string_view name) {
  return !name.empty() && name.size() <= 64 && name.front() != '.' && name.front() != '-' &&
         std::ranges::all_of(name, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '-' || c == '_' || c == '.';
         });
}

}  // namespace isthmus::config
