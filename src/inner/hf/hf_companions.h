// SPDX-License-Identifier: Apache-2.0
// The small files of a model folder other than its weights and config.json: tokenizer, chat
// template, generation settings, licence. Import, checkpoints, export and merge copy them with a
// model that was initialised from such a folder, and name the files that they leave out.
#pragma once

#include <cstdint>
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

/// The companions of a folder of transformers, or of a checkpoint. THROWS: SystemError.
[[nodiscard]] HfCompanions companions_in(const Storage& storage,
                                         const std::filesystem::path& folder);

/// The files in `folder` that belong to its tokenizer; left_out: a text for each that is damaged.
[[nodiscard]] HfCompanions tokenizer_files_in(const Storage& storage,
                                              const std::filesystem::path& folder);

/// config.json, generation_config.json and all other files that accompany the weights of a model; a
/// checkpoint with them is a folder that transformers loads. A model initialised from the folder
/// `init` keeps its settings and companions; otherwise `bytes` requests the byte-level tokenizer
/// (written if there are at least 256 ids). THROWS: SystemError or ConfigError when `init` is given
/// and unreadable.
[[nodiscard]] HfCompanions hf_companions(const Storage& storage, const ModelShape& shape,
                                         const std::filesystem::path& init, bool bytes);

/// Token ids of special tokens in config.json and generation_config.json of `folder` (keys ending
/// in _token_id or _token_ids, suppressed tokens) that a model of `vocab` ids does not have, as
/// texts with file, key and ids. Such files are common (a small model that keeps the 50256 of a
/// large one's configuration), so they are carried; who reads them must be told.
[[nodiscard]] std::vector<std::string> ids_outside_vocabulary(const Storage& storage,
                                                              const std::filesystem::path& folder,
                                                              std::int64_t vocab);

/// True for names of files that belong to one model and would mislead beside the weights of
/// another; writing a model into a folder replaces or removes them.
[[nodiscard]] bool is_written_companion(const std::string& name);

/// A file that shows that the folder's model has a tokenizer whose ids are not bytes; absent for
/// the byte-level tokenizer that isthmus writes, and for a folder without a tokenizer.
[[nodiscard]] std::optional<std::string> own_tokenizer(const Storage& storage,
                                                       const std::filesystem::path& folder);

}  // namespace isthmus
