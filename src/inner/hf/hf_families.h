// SPDX-License-Identifier: Apache-2.0
// The model families that a Hugging Face folder may hold: a table of model_type, class and reader
// of config.json. Names, shapes and formulas of a family's layers are fields of ModelFamily.
// Private to the folder's config files.
#pragma once

#include <string_view>

#include "isthmus/config.h"

namespace isthmus {

class HfConfigReader;

/// Fills `model` from the keys of its family. Unsupported settings become defects of `reader`, with
/// value and reason.
void read_family(HfConfigReader& reader, ModelConfig& model);

/// The class of transformers for such a model.
[[nodiscard]] std::string_view hf_model_class(std::string_view model_type);

}  // namespace isthmus
