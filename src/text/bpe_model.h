// SPDX-License-Identifier: Apache-2.0
// Byte pair encoding (Sennrich et al., arXiv:1508.07909), over bytes as in GPT-2, or over
// characters with bytes as a fallback as in SentencePiece. Of all neighbours with a merge the
// earliest merge is applied first, and of equal merges the leftmost.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "text/text_model.h"
#include "text/tokenizer_json.h"

namespace isthmus {

class BpeModel final : public TextModel {
 public:
  /// byte_level: the pre-tokenizer's words are bytes. THROWS: SystemError naming the malformed or
  /// unsupported part.
  BpeModel(const TokenizerPart& part, bool byte_level);

  [[nodiscard]] std::unique_ptr<Scratch> make_scratch() const override;
  void encode(std::string_view word, Scratch& scratch,
              std::vector<std::uint32_t>& ids) const override;
  [[nodiscard]] std::size_t independent_prefix(std::string_view word) const override;
  [[nodiscard]] bool parts_at_newline(char32_t next) const override;
  [[nodiscard]] std::optional<std::uint32_t> id_of(std::string_view token) const override;
  [[nodiscard]] const std::string* token_of(std::uint32_t id) const override;
  [[nodiscard]] std::size_t tokens() const override { return vocabulary_.size(); }
  [[nodiscard]] std::uint32_t id_bound() const override { return id_bound_; }

 private:
  struct Merge {
    std::uint64_t pair = 0;
    std::uint32_t rank = 0;  // kNoMerge: the slot is free
    std::uint32_t id = 0;
  };
  struct Symbols;
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;

  void read_vocabulary(const TokenizerPart& part);
  void read_merges(const TokenizerPart& part);
  void add_merge(const TokenizerPart& part, const std::string& left, const std::string& right,
                 std::uint32_t rank);
  void read_symbols(const TokenizerPart& part);
  void read_unknown(const TokenizerPart& part);
  void note_joint(std::string_view left, std::string_view right);
  void reserve_merges(std::size_t count);
  [[nodiscard]] bool writes_all_bytes() const;
  [[nodiscard]] const Merge* merge_of(std::uint32_t left, std::uint32_t right) const;
  void first_symbols(std::string_view word, Symbols& symbols) const;
  bool add_fallback(std::string_view character, Symbols& symbols) const;
  void merge_few(Symbols& symbols, std::vector<std::uint32_t>& ids) const;
  void merge_many(Symbols& symbols, std::vector<std::uint32_t>& ids) const;

  bool byte_level_;
  bool byte_fallback_ = false, fuse_unknown_ = false, ignore_merges_ = false;
  std::optional<std::uint32_t> unknown_;
  std::unordered_map<std::string, std::uint32_t> vocabulary_;
  std::unordered_map<std::uint32_t, std::string> tokens_;
  std::unordered_map<std::string, std::uint32_t> whole_words_;  // with ignore_merges, by word
  std::array<std::uint32_t, 256> bytes_{};                      // ids of bytes, or of <0x..>; kNone
  std::unordered_map<char32_t, std::uint32_t> characters_;
  std::vector<Merge> merges_;  // open addressing
  std::uint32_t id_bound_ = 0;
  /// Characters that some merge joins with a metaspace after them, and with a newline before them.
  std::unordered_set<char32_t> joined_to_mark_, joined_to_newline_;
  bool splits_at_mark_ = false;
  std::string newline_;  // the token of a newline, as merges write it
};

}  // namespace isthmus
