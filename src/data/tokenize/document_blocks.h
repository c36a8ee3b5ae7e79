// SPDX-License-Identifier: Apache-2.0
// Splits a file of documents into blocks that can be encoded separately: whole lines of a .jsonl
// file, each a document, or parts of a text file, which is one document. A text is cut where its
// tokenizer permits it (Tokenizer::last_cut); a block grows until there is such a place.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/base/storage.h"
#include "data/tokenize/text_stream.h"
#include "text/tokenizer.h"

namespace isthmus {

struct DocumentBlock {
  std::string text;
  std::int64_t first = 0;  // for .jsonl the number of the first line, from 1; else the first byte's
                           // offset
  bool continues = false;  // the block continues the document of the previous block
  bool last = false;       // no block follows; of a text: its document ends here
};

class DocumentBlocks {
 public:
  /// Borrows the tokenizer. THROWS: SystemError as TextStream does.
  DocumentBlocks(const std::filesystem::path& path, const Tokenizer& tokenizer);

  [[nodiscard]] bool lines() const { return lines_; }
  /// Reads the next block; false at the end. Even an empty file has one block. Blocks. THROWS:
  /// SystemError as TextStream, and for a line or document of more than 1 GiB.
  [[nodiscard]] bool next(DocumentBlock& block);
  [[nodiscard]] TextStream& stream() { return stream_; }

 private:
  [[nodiscard]] std::size_t cut() const;

  const std::filesystem::path path_;
  const Tokenizer& tokenizer_;
  const bool lines_;
  TextStream stream_;
  std::string rest_;  // bytes read that are in no block yet
  std::int64_t place_ = 0;
  bool over_ = false, began_ = false;
};

/// True if the name means one JSON document a line: .jsonl or .ndjson, also before .gz and .zst.
[[nodiscard]] bool names_json_lines(const std::filesystem::path& path);

/// The files of a path or pattern, sorted. THROWS: SystemError when none matches, or one is a
/// folder.
[[nodiscard]] std::vector<std::filesystem::path> document_files(const Storage& storage,
                                                                const std::string& pattern);

}  // namespace isthmus
