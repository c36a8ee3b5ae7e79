// SPDX-License-Identifier: Apache-2.0
// A tokenizer.json of Hugging Face `tokenizers`: encodes texts to ids and decodes ids, with the
// same results (checked against version 0.23.3). Reading a file throws for components that isthmus
// does not support. The fields `truncation` and `padding` are not used. A Tokenizer is immutable
// and may be used from any thread; each thread encodes with its own TextEncoder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/storage.h"
#include "text/added_tokens.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"
#include "text/text_model.h"
#include "text/token_decoder.h"

namespace isthmus {

class Tokenizer {
 public:
  /// Reads the text of a tokenizer.json; `label` names it in errors. Fuzzed. THROWS: SystemError
  /// naming the malformed or unsupported component.
  Tokenizer(std::string_view json, const std::string& label);
  /// Reads a tokenizer.json, or that of a folder. THROWS: SystemError.
  [[nodiscard]] static Tokenizer open(const Storage& storage, const std::filesystem::path& path);

  /// All ids are below this number.
  [[nodiscard]] std::uint32_t vocabulary() const { return vocabulary_; }
  [[nodiscard]] std::optional<std::uint32_t> id_of(std::string_view token) const;
  /// A token in the file's spelling; absent for an unknown id.
  [[nodiscard]] std::optional<std::string> token_of(std::uint32_t id) const;
  /// The text of ids; unknown ids are left out, as in `tokenizers`.
  [[nodiscard]] std::string decode(std::span<const std::uint32_t> ids, bool skip_special) const;

  /// Special tokens that the post-processor puts before and after a text.
  [[nodiscard]] std::span<const std::uint32_t> before() const { return before_; }
  [[nodiscard]] std::span<const std::uint32_t> behind() const { return behind_; }

  /// Offset after the last newline of `text` at which the text may be cut: encoding both parts, the
  /// second with `continues`, gives the ids of the whole. Absent: there is no such place.
  [[nodiscard]] std::optional<std::size_t> last_cut(std::string_view text) const;

 private:
  friend class TextEncoder;
  void read_post_processor(const TokenizerPart& part);
  void add_template(const TokenizerPart& part);
  /// The id that `part` gives for `token`. THROWS: SystemError for one beyond the vocabulary.
  [[nodiscard]] std::uint32_t known_id(const TokenizerPart& part, const std::string& token) const;

  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  std::unique_ptr<const TextModel> model_;
  AddedTokens added_;
  TokenDecoder decoder_;
  std::vector<std::uint32_t> before_, behind_;  // around a text, with special tokens
  std::uint32_t vocabulary_ = 0;
  bool may_be_cut_ = false;
};

struct EncodeOptions {
  bool special_tokens = false;  // add the special tokens that the post-processor puts around a text
  bool continues = false;       // the text continues a text that was encoded before
};

/// The encoder of one thread: buffers, and a cache of words. The tokenizer must outlive it.
class TextEncoder {
 public:
  explicit TextEncoder(const Tokenizer& tokenizer);
  ~TextEncoder();
  TextEncoder(TextEncoder&&) noexcept;

  /// Appends the ids of `text` to `ids`. THROWS: SystemError when `text` is not UTF-8, naming the
  /// offset, or has a character that the tokenizer cannot encode.
  void encode(std::string_view text, const EncodeOptions& options, std::vector<std::uint32_t>& ids);

 private:
  struct State;
  void encode_raw(std::string_view text, bool at_start, bool continues,
                  std::vector<std::uint32_t>& ids);
  void encode_piece(const TextPiece& piece, bool continues, std::vector<std::uint32_t>& ids);
  void encode_words(std::string_view text, WordPattern pattern, std::vector<std::uint32_t>& ids);
  void encode_word(std::string_view word, std::vector<std::uint32_t>& ids);

  const Tokenizer& tokenizer_;
  std::unique_ptr<State> state_;
};

}  // namespace isthmus
