// SPDX-License-Identifier: Apache-2.0
// The small files of a model folder beside its weights and config.json: tokenizer, chat template,
// settings of generation, licence. A model that began from such a folder takes them along, through
// import, checkpoints, export and merge. What does not come along is named.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/storage.h"
#include "inner/model/model_shape.h"

namespace isthmus {

struct HfCompanions {
  std::vector<std::pair<std::string, std::string>> files;  // name, content
  std::vector<std::string> left_out;  // names in the folder, and keys of its config.json
};

/// The companions of a folder of transformers, or of a checkpoint of ours. THROWS: SystemError.
[[nodiscard]] HfCompanions companions_in(const Storage& storage,
                                         const std::filesystem::path& folder);

/// config.json, generation_config.json and every other file that goes beside the weights of a
/// model; a checkpoint with them is a folder that transformers loads. A model that began from the
/// folder `init` keeps its settings and companions; otherwise `bytes` asks for the byte-level
/// tokenizer (written when there are at least 256 ids). THROWS: SystemError or ConfigError when
/// `init` is given and unreadable.
[[nodiscard]] HfCompanions hf_companions(const Storage& storage, const ModelShape& shape,
                                         const std::filesystem::path& init, bool bytes);

/// True for names that belong to one model and would mislead beside the weights of another, so that
/// writing a model into a folder replaces or removes them.
[[nodiscard]] bool is_written_companion(const std::string& name);

/// The file that shows that the folder's model has a tokenizer whose ids are not bytes; nothing for
/// the byte-level tokenizer that isthmus writes, and for a folder without a tokenizer.
[[nodiscard]] std::optional<std::string> own_tokenizer(const Storage& storage,
                                                       const std::filesystem::path& folder);

}  // namespace isthmus
