// SPDX-License-Identifier: Apache-2.0
#include "session/run/trainer_facts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>

#include "core/base/storage.h"
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

void check_facts(const TrainerFacts& facts) {
  if (facts.parameters.empty()) throw ConfigError("the trainer has no parameters");
  if (facts.kind.empty() || facts.kind == kOwn) {
    throw ConfigError(
        fmt::format("kind \"{}\" of the trainer: \"own\" is the built-in one; name yours otherwise",
                    facts.kind));
  }
  std::set<std::string_view> names;
  std::int64_t begin = 0;
  for (const Parameter& each : facts.parameters) {
    const auto refuse = [&](const std::string& why) {
      throw ConfigError(fmt::format("parameter '{}' of the trainer: {}", each.name, why));
    };
    if (each.name.empty() || !names.insert(each.name).second) {
      refuse("each needs a name of its own");
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
