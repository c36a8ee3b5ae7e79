// SPDX-License-Identifier: Apache-2.0
// Rules of [data].
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "config/check/config_check.h"
#include "core/base/suggest.h"

namespace isthmus::config {

namespace {

constexpr const char* kExample = "sources = { web = \"tokens:web/*.bin\", code = \"text:a.txt\" }";

/// A source, at its key.
void check_source(const std::string& source, std::string_view key, const std::string& given,
                  CheckContext& check) {
  const std::vector<std::string> kinds = {"text:", "tokens:", "synth:"};
  const bool known = std::any_of(kinds.begin(), kinds.end(), [&](const std::string& kind) {
    return source.starts_with(kind) && source.size() > kind.size();
  });
  if (known) return;
  const auto near = closest(source.substr(0, source.find(':') + 1), kinds);
  check.refuse(
      "E-VALUE", key,
      fmt::format("{}: must begin with text:, tokens: or synth: and name something", given),
      near ? fmt::format("did you mean \"{}...\"?", *near) : "for example \"text:input.txt\"");
}

template <typename Named>
std::vector<std::string> names_of(const Named& elements) {
  std::vector<std::string> names;
  for (const auto& element : elements) names.push_back(element.first);
  return names;
}

void check_mix(const DataConfig& data, CheckContext& check) {
  if (!data.source.empty()) {
    check.refuse("E-CONFLICT", "data.sources", "'data.sources' together with 'data.source'",
                 "give one source, or several by name in data.sources");
    return;
  }
  for (const auto& [name, source] : data.sources) {
    check_source(source, "data.sources", fmt::format("'data.sources.{} = \"{}\"'", name, source),
                 check);
  }
  if (data.sources.size() == 1) {
    check.refuse(
        "E-RANGE", "data.sources",
        fmt::format("'data.sources' names one source, '{}'", data.sources.front().first),
        fmt::format("write source = \"{}\" in [data], without mix", data.sources.front().second));
    return;
  }
  const std::vector<std::string> sources = names_of(data.sources);
  const std::vector<std::string> shares = names_of(data.mix);
  if (data.mix.empty()) {
    if (check.given("data.mix")) return;  // refused already
    check.refuse("E-KEY-MISSING", "data.mix",
                 "'data.mix' is missing: it says the share of each of data.sources",
                 fmt::format("mix = {{ {} = 1 }} in [data] reads each as often",
                             fmt::join(sources, " = 1, ")));
    return;
  }
  for (const std::string& name : shares) {
    if (std::ranges::find(sources, name) != sources.end()) continue;
    const auto near = closest(name, sources);
    check.refuse("E-VALUE", "data.mix",
                 fmt::format("'data.mix' names '{}', which is no source", name),
                 near ? fmt::format("did you mean '{}'?", *near)
                      : fmt::format("data.sources has {}", fmt::join(sources, ", ")));
  }
  for (const std::string& name : sources) {
    if (std::ranges::find(shares, name) != shares.end()) continue;
    check.refuse("E-VALUE", "data.mix", fmt::format("'data.mix' has no share of source '{}'", name),
                 "give it one, or remove the source");
  }
}

void check_eos(const DataConfig& data, CheckContext& check) {
  if (!data.eos || *data.eos < check.config.model.vocab) return;
  const bool of_folder = !check.config.model.init.empty() && !check.given("model.vocab");
  const std::string vocab =
      of_folder
          ? fmt::format("the vocab_size of {}", (check.config.model.init / "config.json").string())
          : "model.vocab";
  check.refuse("E-RANGE", "data.eos",
               fmt::format("{}: {} = {} has no such id", check.quoted("data.eos"), vocab,
                           check.config.model.vocab),
               fmt::format("the id that ends a document, below {}", vocab));
}

void check_objective(const DataConfig& data, CheckContext& check) {
  if (check.config.train.objective != "sft") return;
  if (check.config.model.init.empty()) {
    check.refuse("E-CONFLICT", "train.objective",
                 fmt::format("{} without 'model.init'", check.quoted("train.objective")),
                 "tokenizer and chat template are those of a model: name its folder");
  }
  if (data.pack == "stream") {
    check.refuse(
        "E-CONFLICT", "data.pack",
        fmt::format("{} together with {}", check.quoted("data.pack"),
                    check.quoted("train.objective")),
        "conversations are packed whole, and each attends to itself alone: leave data.pack out");
  }
}

}  // namespace

void validate_data(const DataConfig& data, CheckContext& check) {
  check_eos(data, check);
  check_objective(data, check);
  if (!data.sources.empty()) {
    check_mix(data, check);
  } else if (check.given("data.sources")) {
    return;  // refused already
  } else if (!data.mix.empty()) {
    check.refuse("E-KEY-MISSING", "data.mix", "'data.mix' without 'data.sources'",
                 fmt::format("{} in [data]", kExample));
  } else if (data.source.empty()) {
    if (check.config.train.trainer == "external") return;
    check.refuse("E-KEY-MISSING", "data.source", "'data.source' is missing",
                 "source = \"text:FILE\", \"tokens:GLOB\" or \"synth:NAME\" in [data]");
  } else {
    check_source(data.source, "data.source", check.quoted("data.source"), check);
  }
}

}  // namespace isthmus::config
