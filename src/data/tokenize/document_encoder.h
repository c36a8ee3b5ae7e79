// SPDX-License-Identifier: Apache-2.0
// Encodes a block of documents to ids, with the end-of-text id after each document. Each thread has
// its own encoder.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/tokenize/document_blocks.h"
#include "text/tokenizer.h"

namespace isthmus {

struct DocumentOptions {
  std::string field = "text";  // of a JSON line
  std::uint32_t end = 0;       // id after each document
  bool skip_bad = false;       // count malformed lines and continue
};

/// The result of a block.
struct EncodedBlock {
  std::vector<std::uint32_t> ids;
  std::int64_t documents = 0;
  std::int64_t skipped = 0;        // malformed lines
  std::string first_skipped = {};  // the error of the first of them
};

class DocumentEncoder {
 public:
  /// Borrows the tokenizer. `label` of errors is the file's name.
  DocumentEncoder(const Tokenizer& tokenizer, DocumentOptions options);

  /// lines: of JSON. THROWS: SystemError "FILE:LINE: ..." for a malformed line without skip_bad,
  /// and "FILE: byte N is not UTF-8" for a text.
  [[nodiscard]] EncodedBlock encode(const DocumentBlock& block, bool lines,
                                    const std::string& label);

 private:
  void encode_line(std::string_view line, EncodedBlock& encoded);

  DocumentOptions options_;
  TextEncoder encoder_;
};

/// The text of a JSON line's field. THROWS: SystemError saying what is malformed, without a place.
[[nodiscard]] std::string text_of_line(std::string_view line, const std::string& field);

}  // namespace isthmus
