// SPDX-License-Identifier: Apache-2.0
// Comparison of trainers (TrainerFacts, isthmus/session.h) with those of a checkpoint and of other
// sites. Pure.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/hash.h"
#include "isthmus/session.h"

namespace isthmus::app {

/// The key of a trainer's kind among a site's values.
inline constexpr std::string_view kTrainerKind = "trainer";

/// The key of a site's evaluation among its values.
inline constexpr std::string_view kEvaluation = "evaluation";
/// "12 parts of data 0123456789ab", equal if sites evaluate the same parts; "nothing".
[[nodiscard]] std::string evaluation_in_words(const TrainerFacts& facts);

/// Digest of names and shapes in canonical order.
[[nodiscard]] Digest128 digest_of_layout(std::span<const Parameter> parameters);

/// The first parameter whose name or shape differs, in words: "parameter 1 is 'b' of shape 3 here
/// and 'c' of shape 3 there".
[[nodiscard]] std::string first_unlike_parameter(std::span<const Parameter> here,
                                                 std::span<const Parameter> there);

/// Checks the facts of a caller's trainer. THROWS: ConfigError for the built-in trainer's kind, or
/// naming the parameter with an invalid name, shape or elements.
void check_facts(const TrainerFacts& facts);

/// The kind of a trainer and its common values, by key: "trainer", "trainer.NAME". Empty for the
/// built-in trainer: its values are keys of the configuration.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> trainer_values(
    const TrainerFacts& facts);

/// Whether sites compare `key` only if their trainers are of one kind.
[[nodiscard]] bool is_of_trainer(std::string_view key);

/// The kind of trainer of a site with these values.
[[nodiscard]] std::string trainer_kind(std::span<const std::pair<std::string, std::string>> common);

/// `settings`: of the checkpoint `name`. THROWS: ConfigError naming the values in which the
/// checkpoint's trainer differs.
void check_same_trainer(const std::map<std::string, std::string>& settings,
                        const TrainerFacts& facts, const std::string& name);

}  // namespace isthmus::app
