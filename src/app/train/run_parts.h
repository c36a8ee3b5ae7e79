// SPDX-License-Identifier: Apache-2.0
// A configuration as the options of the language model's parts. Pure, but for reading initial
// weights.
#pragma once

#include <string>
#include <vector>

#include "app/train/training_plan.h"
#include "core/base/hash.h"
#include "core/base/storage.h"
#include "data/dataset.h"
#include "inner/loop/language_model_loop.h"
#include "inner/model/model_layout.h"
#include "isthmus/config.h"
#include "session/checks/data_notes.h"
#include "session/run/run_samples.h"
#include "session/run/run_settings.h"

namespace isthmus::app {

[[nodiscard]] LanguageModelOptions language_model_options(const Config& config,
                                                          const TrainingPlan& plan, WorkerId rank);

/// The model's tensors with names, shapes and element ids but no storage: what fragments and
/// predictions need.
[[nodiscard]] std::vector<Parameter> parameters_without_values(const ModelLayout& layout);

/// Of names, shapes and order: equal layouts, equal digests.
[[nodiscard]] Digest128 layout_digest(const ModelLayout& layout);

/// Bytes on the clock for each byte of the model that learns: those of a declared surrogate, whose
/// gradients are as many times larger. 1 for spsa: its entries are as many whatever the model.
[[nodiscard]] double surrogate_byte_scale(const Config& config, const ModelLayout& layout);

/// THROWS: ConfigError where the data are bytes and `model.init` has a tokenizer whose ids are not,
/// or where the data are tokenized with another one.
void check_tokenizer(const Storage& storage, const Config& config, const Dataset& data);

/// Whether `model.init`, and the adapter of lora.init, are what the run takes; reads every value
/// and keeps none. RETURNS: base_digest of a run with adapters, else "".
/// THROWS: Error naming the file, tensor or setting that does not fit.
std::string check_initial_weights(const Storage& storage, const Config& config);
/// Of the frozen weights that adapters stand beside: sites that train one adapter have one base.
/// THROWS: as check_initial_weights.
[[nodiscard]] std::string base_digest(const Storage& storage, const std::filesystem::path& folder,
                                      const ModelShape& base);
/// By this name sites compare it, and checkpoints keep it.
inline constexpr const char* kFrozenWeights = "frozen weights of model.init";

/// Fills the loop's parameters from `model.init`, or the frozen weights from it and the adapters
/// from lora.init or by the seed; nothing where `model.init` is not given. REQUIRES: checked by
/// check_initial_weights. THROWS: Error naming the file or tensor that does not fit.
void load_initial_weights(const Storage& storage, const Config& config, InnerLoop& inner);

}  // namespace isthmus::app
