// SPDX-License-Identifier: Apache-2.0
// What a run compares of its trainers (TrainerFacts, isthmus/session.h): with what a checkpoint was
// made of, and with what other sites have. Pure.
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

/// What a site evaluates, among its values.
inline constexpr std::string_view kEvaluation = "evaluation";
/// "12 parts of data 0123456789ab", equal where sites evaluate the same parts; "nothing".
[[nodiscard]] std::string evaluation_in_words(const TrainerFacts& facts);

/// Digest of names and shapes in canonical order.
[[nodiscard]] Digest128 digest_of_layout(std::span<const Parameter> parameters);

/// The first parameter whose name or shape is another one, in words: "parameter 1 is 'b' of shape 3
/// here and 'c' of shape 3 there".
[[nodiscard]] std::string first_unlike_parameter(std::span<const Parameter> here,
                                                 std::span<const Parameter> there);

/// Of a caller's trainer. THROWS: ConfigError for the built-in trainer's kind, or naming the
/// parameter whose name, shape or elements cannot be.
void check_facts(const TrainerFacts& facts);

/// The kind of a trainer and its common values, by key: "trainer", "trainer.NAME". The built-in
/// trainer has none: its values are keys of the configuration.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> trainer_values(
    const TrainerFacts& facts);

/// Whether sites compare `key` only where their trainers are of one kind.
[[nodiscard]] bool is_of_trainer(std::string_view key);

/// The kind of trainer that a site with these values has.
[[nodiscard]] std::string trainer_kind(std::span<const std::pair<std::string, std::string>> common);

/// `settings`: of the checkpoint `name`. THROWS: ConfigError naming the values that another trainer
/// had.
void check_same_trainer(const std::map<std::string, std::string>& settings,
                        const TrainerFacts& facts, const std::string& name);

}  // namespace isthmus::app
