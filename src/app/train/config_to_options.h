// SPDX-License-Identifier: Apache-2.0
// A configuration as options of the language model's parts. Pure, except for reading initial
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

/// The model's tensors with names, shapes and element ids but no storage, for fragments and
/// predictions.
[[nodiscard]] std::vector<Parameter> parameters_without_values(const ModelLayout& layout);

/// Digest of names, shapes and order.
[[nodiscard]] Digest128 layout_digest(const ModelLayout& layout);

/// Bytes on the clock for each byte of the trained model: those of a declared surrogate, whose
/// gradients are larger by this factor. 1 for spsa, whose entries do not depend on the model.
[[nodiscard]] double surrogate_byte_scale(const Config& config, const ModelLayout& layout);

/// Checks the ids, batches and evaluation windows of the data, and the exchange. THROWS:
/// ConfigError naming what does not fit.
void check_data_and_exchange(const Config& config, const TrainingPlan& plan,
                             const ModelLayout& layout, const Dataset& data);

/// Compares the tokenizers of the data with each other and with that of `model.init`; a run that
/// goes on may keep what a new one is refused for. RETURNS: what to say of a source whose tokenizer
/// has tokens that the one of `model.init` lacks; empty: there is none. THROWS: ConfigError when
/// the data are bytes and `model.init` has a tokenizer, or an id is one token here and another
/// there.
[[nodiscard]] std::string check_tokenizer(const Storage& storage, const Config& config,
                                          const Dataset& data, bool goes_on);
/// The tokenizer whose tokens the ids of all sources are: a tokenizer.json or its folder; nothing
/// for bytes, and for token files that do not say.
[[nodiscard]] std::optional<std::filesystem::path> tokenizer_of_data(const Storage& storage,
                                                                     const Config& config,
                                                                     const Dataset& data);

/// What a check of `model.init` has found.
struct InitialWeights {
  std::vector<std::string> not_read = {};  // tensors that are not read, as check_hf_weights
  std::string base_digest = {};            // of a run with adapters; otherwise empty
};
/// Checks that `model.init`, and the adapter of lora.init, fit the run; reads every value and keeps
/// none. THROWS: Error naming the file, tensor or setting that does not fit.
InitialWeights check_initial_weights(const Storage& storage, const Config& config);
/// Digest of the frozen weights below adapters: sites that train one adapter need the same ones.
/// THROWS: as check_initial_weights.
[[nodiscard]] std::string base_digest(const Storage& storage, const std::filesystem::path& folder,
                                      const ModelShape& base);
/// The name of this digest among the values that sites compare and checkpoints keep.
inline constexpr const char* kFrozenWeights = "frozen weights of model.init";

/// Fills the loop's parameters from `model.init`, or the frozen weights from it and the adapters
/// from lora.init or by the seed; does nothing without `model.init`. REQUIRES: checked by
/// check_initial_weights. THROWS: Error naming the file or tensor that does not fit.
void load_initial_weights(const Storage& storage, const Config& config, InnerLoop& inner);

}  // namespace isthmus::app
