// SPDX-License-Identifier: Apache-2.0
#include "session/run/trainer_facts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "core/base/storage.h"
#include "core/base/utf8_text.h"
#include "core/state/checkpoint_names.h"
#include "isthmus/errors.h"
#include "outer/parts/start_check.h"

namespace isthmus::app {
namespace {

constexpr std::string_view kOwn = "own";
constexpr std::string_view kValue = "trainer.";

}  // namespace

Digest128 digest_of_layout(std::span<const Parameter> parameters) {
  std::string text;
  for (const Parameter& each : parameters) {
    text += fmt::format("{} {}\n", each.name, fmt::join(each.shape, "x"));
  }
  return xxh3_128(as_bytes(text));
}

std::string first_unlike_parameter(std::span<const Parameter> here,
                                   std::span<const Parameter> there) {
  const auto words = [](std::span<const Parameter> all, std::size_t i) {
    return i < all.size()
               ? fmt::format("'{}' of shape [{}]", all[i].name, fmt::join(all[i].shape, ", "))
               : std::string("absent");
  };
  std::size_t i = 0;
  while (i < std::min(here.size(), there.size()) && here[i].name == there[i].name &&
         here[i].shape == there[i].shape) {
    ++i;
  }
  return fmt::format("parameter {} is {} here and {} there", i, words(here, i), words(there, i));
}

namespace {

/// A name by which a worker's file, or another process, is to find something.
bool is_plain_name(std::string_view name) {
  return !name.empty() && invalid_utf8(name) == std::string_view::npos &&
         std::ranges::none_of(name, [](unsigned char c) { return c < 0x20 || c == 0x7F; });
}

void check_kind(const std::string& kind) {
  if (kind == kOwn) {
    throw ConfigError(fmt::format(
        "kind \"{}\" of the trainer: \"own\" is the built-in one; name yours otherwise", kind));
  }
  if (is_plain_name(kind)) return;
  throw ConfigError(fmt::format(
      "kind {} of the trainer: must be a name without control characters, such as \"numpy\"",
      json_quote(kind)));
}

/// The files beside a checkpoint's model: in its folder, and none of those that it has itself.
void check_files(const TrainerFacts& facts) {
  std::set<std::string_view> names;
  for (const auto& file : facts.files) {
    const std::string& name = file.first;
    const auto refuse = [&](const char* why) {
      throw ConfigError(
          fmt::format("TrainerFacts::files: {}: {}; name files that lie beside the model, such as "
                      "\"tokenizer.json\"",
                      json_quote(name), why));
    };
    if (!is_plain_name(name) || name.find('/') != std::string::npos || name == "." ||
        name == "..") {
      refuse("is no name of a file in a folder");
    }
    const bool state = name.ends_with(".safetensors") &&
                       (name.starts_with(kSharedPart) || name.starts_with("worker-"));
    if (state || name == kModelFile || name == kStateFile)
      refuse("is a file that each checkpoint has itself");
    if (!names.insert(name).second) refuse("is there twice");
  }
}

void check_numbers(const TrainerFacts& facts) {
  constexpr std::int64_t kMostParts = 1'000'000;
  if (facts.evaluation_parts < 0 || facts.evaluation_parts > kMostParts) {
    throw ConfigError(
        fmt::format("TrainerFacts::evaluation_parts = {}: must be a whole number from 0 to {}",
                    facts.evaluation_parts, kMostParts));
  }
  if (!std::isfinite(facts.step_flops) || facts.step_flops < 0) {
    throw ConfigError(
        fmt::format("TrainerFacts::step_flops = {}: must be 0 (not known) or more, and finite",
                    facts.step_flops));
  }
  if (!nlohmann::json::parse(facts.model, nullptr, false).is_object()) {
    throw ConfigError(fmt::format(
        "TrainerFacts::model = {}: must be a JSON object, such as {{\"layers\": 4}}; it goes into "
        "the run's manifest",
        json_quote(std::string_view(facts.model).substr(0, 60))));
  }
  std::set<std::string_view> names;
  for (const auto& [name, value] : facts.common) {
    if (names.insert(name).second) continue;
    throw ConfigError(fmt::format(
        "TrainerFacts::common: \"{}\" is there twice; a checkpoint would keep one of both", name));
  }
}

}  // namespace

void check_facts(const TrainerFacts& facts) {
  if (facts.parameters.empty()) throw ConfigError("the trainer has no parameters");
  check_kind(facts.kind);
  check_files(facts);
  check_numbers(facts);
  std::set<std::string_view> names;
  std::int64_t begin = 0;
  for (const Parameter& each : facts.parameters) {
    const auto refuse = [&](const std::string& why) {
      throw ConfigError(fmt::format("parameter '{}' of the trainer: {}", each.name, why));
    };
    if (each.name.empty() || !names.insert(each.name).second) {
      refuse("each needs a name of its own");
    }
    // Files of weights keep names as JSON, and this one for what is said of the file.
    if (each.name == "__metadata__" || invalid_utf8(each.name) != std::string_view::npos) {
      throw ConfigError(fmt::format(
          "parameter {} of the trainer: a file of weights can have no such name: {}; rename it",
          json_quote(each.name),
          each.name == "__metadata__" ? "it stands for the file's own notes" : "it is not UTF-8"));
    }
    if (each.layer < kNoLayer || each.layer >= kLayerLimit) refuse(outer::layer_rule(each.layer));
    if (const std::string fault = outer::layout_fault(each, begin); !fault.empty()) refuse(fault);
    begin += each.elements.size();
  }
}

std::string evaluation_in_words(const TrainerFacts& facts) {
  if (facts.evaluation_parts == 0) return "nothing";
  std::string text;
  for (const DataFile& each : facts.data) {
    text += fmt::format("{} {} {}\n", each.bytes, each.sha256, each.reading);
  }
  const std::string digest = xxh3_128(as_bytes(text)).hex().substr(0, 12);
  return fmt::format("{} parts{}", facts.evaluation_parts,
                     text.empty() ? std::string() : " of data " + digest);
}

std::vector<std::pair<std::string, std::string>> trainer_values(const TrainerFacts& facts) {
  std::vector<std::pair<std::string, std::string>> values;
  if (facts.kind != kOwn) values.emplace_back(kTrainerKind, facts.kind);
  for (const auto& [name, value] : facts.common) {
    values.emplace_back(std::string(kValue) + name, value);
  }
  return values;
}

bool is_of_trainer(std::string_view key) {
  constexpr std::array<std::string_view, 7> kSections = {kValue,  "model.", "lora.",    "inner.",
                                                         "data.", "data[",  "parallel."};
  constexpr std::array<std::string_view, 5> kKeys = {kTrainerKind, "data", "train.precision",
                                                     "train.context", "train.global_batch"};
  return std::ranges::find(kKeys, key) != kKeys.end() ||
         std::ranges::any_of(kSections, [&](auto section) { return key.starts_with(section); });
}

std::string trainer_kind(std::span<const std::pair<std::string, std::string>> common) {
  const auto found =
      std::ranges::find(common, kTrainerKind, &std::pair<std::string, std::string>::first);
  return found == common.end() ? std::string(kOwn) : found->second;
}

void check_same_trainer(const std::map<std::string, std::string>& settings,
                        const TrainerFacts& facts, const std::string& name) {
  std::map<std::string, std::string> before;
  for (const auto& [key, value] : settings) {
    if (key == kTrainerKind || key.starts_with(kValue)) before.emplace(key, value);
  }
  std::vector<std::string> changes;
  const auto values = trainer_values(facts);
  const std::map<std::string, std::string> now(values.begin(), values.end());
  for (const auto& [key, value] : now) {
    const auto found = before.find(key);
    if (found != before.end() && found->second == value) continue;
    changes.push_back(fmt::format("{} was {} and is {}", key,
                                  found == before.end() ? "absent" : found->second, value));
  }
  for (const auto& [key, value] : before) {
    if (!now.contains(key)) changes.push_back(fmt::format("{} was {} and is absent", key, value));
  }
  if (changes.empty()) return;
  throw ConfigError(fmt::format(
      "checkpoint {} was made with other values of the trainer ({}): resume with those, "
      "or start a new run",
      name, fmt::join(changes, "; ")));
}

}  // namespace isthmus::app
