// SPDX-License-Identifier: Apache-2.0
// Converts files of documents into a folder of token files: one shard per file, whole or absent, so
// that an interrupted conversion continues at the first missing shard. The folder holds
//   shard-00000.bin    little-endian ids, 16 or 32 bits, an end-of-text id after each document
//   shard-00000.json   record of the shard: its settings, sizes and digests
//   tokenizer.json     the tokenizer, and files of its folder that belong to it
//   manifest.json      all of that, written last
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "core/base/storage.h"
#include "isthmus/runtime.h"
#include "text/tokenizer.h"

namespace isthmus {

struct TokenizeOptions {
  std::vector<std::filesystem::path> files;  // in the order of their shards
  std::filesystem::path tokenizer;           // a tokenizer.json or its folder
  std::filesystem::path out;                 // created if absent
  std::string field = "text";                // of JSON lines
  std::string end = {};                      // the end-of-text token; empty: the tokenizer's
  int jobs = 1;
  bool skip_bad = false;
};

struct TokenizeProgress {
  std::int64_t bytes = 0, of_bytes = 0;  // bytes of the files, compressed or not
  std::int64_t tokens = 0;
};
/// Called between blocks; its exception ends the conversion, and complete shards stay.
using TokenizeWatch = std::function<void(const TokenizeProgress&)>;

struct TokenizeSummary {
  std::size_t shards = 0, kept = 0;  // kept: shards that existed before
  std::int64_t tokens = 0, documents = 0, skipped = 0;
  std::string first_skipped = {};  // of this call
  std::string source = {};         // for data.source: "tokens:OUT/*.bin:u16"
  std::string end_token = {};
  std::uint32_t end = 0, vocabulary = 0;
};

/// THROWS: SystemError of a file; ConfigError when `out` was made with other settings, or no
/// end-of-text token is known.
[[nodiscard]] TokenizeSummary tokenize_files(Storage& storage, Runtime& runtime,
                                             const TokenizeOptions& options,
                                             const TokenizeWatch& watch);

}  // namespace isthmus
