// SPDX-License-Identifier: Apache-2.0
// Files of documents become a folder of token files: one shard a file, whole or absent, so that a
// work that was killed goes on at the first shard that is missing. The folder holds
//   shard-00000.bin    raw ids of 16 or 32 bits, little-endian, the end-of-text id behind each
//   document shard-00000.json   what the shard was made of: its settings, sizes and digests
//   tokenizer.json     the tokenizer, and files of its folder that belong to it
//   manifest.json      all of that, written last
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "core/base/storage.h"
#include "data/control_count.h"
#include "isthmus/runtime.h"
#include "text/tokenizer.h"

namespace isthmus {

struct TokenizeOptions {
  std::vector<std::filesystem::path> files;  // in the order of their shards
  std::filesystem::path tokenizer;           // a tokenizer.json or its folder
  std::filesystem::path out;                 // made where it is absent
  std::string field = "text";                // of JSON lines
  std::string end = {};                      // the end-of-text token; empty: the tokenizer's
  int jobs = 1;
  bool skip_bad = false;
};

struct TokenizeProgress {
  std::int64_t bytes = 0, of_bytes = 0;  // of the files as they lie
  std::int64_t tokens = 0;
};
/// Called between blocks; what it throws ends the work, and finished shards stay.
using TokenizeWatch = std::function<void(const TokenizeProgress&)>;

struct TokenizeSummary {
  std::size_t shards = 0, kept = 0;  // kept: those that were there before
  std::int64_t tokens = 0, documents = 0, skipped = 0;
  std::string first_skipped = {};  // of this call
  ControlCount controls = {};      // of the texts that this call has tokenized
  std::string source = {};         // for data.source: "tokens:OUT/*.bin:u16"
  std::string end_token = {};
  std::uint32_t end = 0, vocabulary = 0;
};

/// THROWS: SystemError of a file, ConfigError where `out` was made with other settings, or no
/// end-of-text token is known.
[[nodiscard]] TokenizeSummary tokenize_files(Storage& storage, Runtime& runtime,
                                             const TokenizeOptions& options,
                                             const TokenizeWatch& watch);

}  // namespace isthmus
