// SPDX-License-Identifier: Apache-2.0
// The model families that a Hugging Face folder may hold: a table of model_type, class and reader
// of config.json. Names, shapes and formulas of a family's layers are fields of ModelFamily.
// Private to the folder's config files.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "inner/hf/hf_config_reader.h"
#include "isthmus/config.h"

namespace isthmus {

/// Fills `model` from the keys of its family. What our models do not have becomes a defect of
/// `reader`, with its value and the reason.
void read_family(HfConfigReader& reader, ModelConfig& model);

/// The class of transformers that such a model is an instance of.
[[nodiscard]] std::string_view hf_model_class(std::string_view model_type);

/// Adds the spelling of rotary embedding that the file lacks, of transformers 4 (rope_theta,
/// rope_scaling) and 5 (rope_parameters): either version takes the defaults where it finds nothing.
void add_both_rope_spellings(const ModelConfig& model, nlohmann::json& settings);

}  // namespace isthmus
