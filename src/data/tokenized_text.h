// SPDX-License-Identifier: Apache-2.0
// A text that is tokenized when it is opened, for small sets: "text:FILE:tokenizer=DIR". Larger
// sets should be converted to token files once, by `isthmus data tokenize`.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/storage.h"
#include "data/token_file.h"

namespace isthmus {

struct TokenizedSource {
  std::string_view name;       // file or pattern
  std::string_view tokenizer;  // a tokenizer.json or its folder
};
/// The parts of "FILE:tokenizer=DIR"; absent if the name has no tokenizer.
[[nodiscard]] std::optional<TokenizedSource> tokenized_source(std::string_view name);

/// True if `format` is that of a text tokenized here.
[[nodiscard]] bool is_tokenized(std::string_view format);

/// Tokenizes texts; each text is one document, followed by the end-of-text id.
class TextTokenizing {
 public:
  /// THROWS: SystemError of the tokenizer; ConfigError when no token ends a text.
  TextTokenizing(const Storage& storage, const std::filesystem::path& tokenizer);
  ~TextTokenizing();
  TextTokenizing(const TextTokenizing&) = delete;
  TextTokenizing& operator=(const TextTokenizing&) = delete;

  /// The largest id plus one.
  [[nodiscard]] std::int64_t vocabulary() const;
  /// A text, plain or of gzip or zstd. Its format names the tokenizer by digest.
  /// THROWS: SystemError as open_text_file does, and for a text that is not UTF-8 or is JSON lines.
  [[nodiscard]] TokenFile open(const std::filesystem::path& path, std::int64_t most_inflated) const;

 private:
  struct State;
  const Storage& storage_;
  std::unique_ptr<const State> state_;
};

}  // namespace isthmus
