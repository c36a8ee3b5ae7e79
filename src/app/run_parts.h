// SPDX-License-Identifier: Apache-2.0
// A configuration as the options of the parts it is made of. Pure, but for reading initial weights.
#pragma once

#include <vector>

#include "app/training_plan.h"
#include "core/hash.h"
#include "core/rng.h"
#include "core/storage.h"
#include "inner/data/batch_source.h"
#include "inner/language_model_loop.h"
#include "inner/model_layout.h"
#include "isthmus/config.h"

namespace isthmus::app {

[[nodiscard]] BatchPlan batch_plan(const Config& config, const TrainingPlan& plan);
[[nodiscard]] LanguageModelOptions language_model_options(const Config& config,
                                                          const TrainingPlan& plan, Rank rank);

/// Of a method that there is, as configurations are loaded with.
[[nodiscard]] MethodInfo info_of(const std::string& method);
/// How many bytes of results a site that is a process of its own retains at most, so that it can be
/// healed (net.heal); 0: none.
[[nodiscard]] std::uint64_t retained_bytes(const Config& config);
[[nodiscard]] inline bool retains_results(const Config& config) {
  return retained_bytes(config) > 0;
}

/// Whether the run's method takes forward passes alone (MethodInfo::forward_only).
[[nodiscard]] bool forward_only(const Config& config);
/// Whether it exchanges the gradients of every step, which a mesh then collects whole.
[[nodiscard]] bool takes_gradients(const Config& config);
/// Whether it reads and writes the inner optimizer's moments.
[[nodiscard]] bool takes_adam_moments(const Config& config);
/// Whether neither file nor --set gives this key.
[[nodiscard]] bool by_default(const Config& config, const std::string& key);
/// What a part of the run draws its random bits from besides its own counters.
[[nodiscard]] std::uint64_t run_key(std::uint64_t seed, Stream stream);

/// The model's tensors with names, shapes and element ids but no storage: what fragments and
/// predictions need.
[[nodiscard]] std::vector<Parameter> parameters_without_values(const ModelLayout& layout);

/// Of names, shapes and order: equal layouts, equal digests.
[[nodiscard]] Digest128 layout_digest(const ModelLayout& layout);

/// Bytes on the clock for each byte of the model that learns: those of a declared surrogate, whose
/// gradients are as many times larger. 1 for spsa: its entries are as many whatever the model.
[[nodiscard]] double surrogate_byte_scale(const Config& config, const ModelLayout& layout);

/// Tokens to evaluate on: what is asked for, or by default what there is of it; 0: the whole
/// validation part; -1: there is not one window.
[[nodiscard]] std::int64_t eval_tokens(const Config& config, const Dataset& data);

/// `net.patience`; without end in a simulation that does not set it, since a simulated link is slow
/// but loses nothing.
[[nodiscard]] Duration round_patience(const Config& config, bool simulated);

/// Fills the loop's parameters from `model.init`; nothing where it is not given.
/// THROWS: Error naming the file or tensor that does not fit.
void load_initial_weights(const Storage& storage, const Config& config, InnerLoop& inner);

}  // namespace isthmus::app
