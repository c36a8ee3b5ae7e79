// SPDX-License-Identifier: Apache-2.0
// A file of documents cut into blocks that can be encoded one by one: whole lines of a .jsonl file,
// of which each is a document, or stretches of a text file, which is one document. A text is cut
// where its tokenizer may be (Tokenizer::last_cut); where it has no such place the block grows.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "data/tokenize/text_stream.h"
#include "text/tokenizer.h"

namespace isthmus {

struct DocumentBlock {
  std::string text;
  std::int64_t first = 0;  // of .jsonl: the number of the first line, from 1; else its byte
  bool continues = false;  // the block goes on with the document of the block before
  bool last = false;       // no block follows; of a text: its document ends here
};

class DocumentBlocks {
 public:
  /// Borrows the tokenizer. THROWS: SystemError as TextStream does.
  DocumentBlocks(const std::filesystem::path& path, const Tokenizer& tokenizer);

  [[nodiscard]] bool lines() const { return lines_; }
  /// The next block; false once there are no more. A file has at least one, be it empty. Blocking.
  /// THROWS: SystemError as TextStream does, and for a line or document of more than 1 GiB.
  [[nodiscard]] bool next(DocumentBlock& block);
  [[nodiscard]] TextStream& stream() { return stream_; }

 private:
  [[nodiscard]] std::size_t cut() const;

  const std::filesystem::path path_;
  const Tokenizer& tokenizer_;
  const bool lines_;
  TextStream stream_;
  std::string rest_;  // read, and in no block yet
  std::int64_t place_ = 0;
  bool over_ = false, began_ = false;
};

/// Whether the name says one JSON document a line: .jsonl or .ndjson, also before .gz and .zst.
[[nodiscard]] bool names_json_lines(const std::filesystem::path& path);

}  // namespace isthmus
