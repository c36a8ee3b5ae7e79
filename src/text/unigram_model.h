// SPDX-License-Identifier: Apache-2.0
// The unigram language model of SentencePiece (Kudo, arXiv:1804.10959): of all splits of a word
// into tokens the one with the largest sum of scores. Scores are summed from left to right in
// double precision as in `tokenizers`, so ties are broken alike.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/text_model.h"
#include "text/tokenizer_json.h"

namespace isthmus {

class UnigramModel final : public TextModel {
 public:
  /// THROWS: SystemError naming the malformed part.
  explicit UnigramModel(const TokenizerPart& part);

  [[nodiscard]] std::unique_ptr<Scratch> make_scratch() const override;
  void encode(std::string_view word, Scratch& scratch,
              std::vector<std::uint32_t>& ids) const override;
  /// False: a sum of scores with another start would round differently.
  [[nodiscard]] bool parts_at_newline(char32_t /*next*/) const override { return false; }
  [[nodiscard]] std::optional<std::uint32_t> id_of(std::string_view token) const override;
  [[nodiscard]] const std::string* token_of(std::uint32_t id) const override;
  [[nodiscard]] std::size_t tokens() const override { return tokens_.size(); }
  [[nodiscard]] std::uint32_t id_bound() const override {
    return static_cast<std::uint32_t>(tokens_.size());
  }

 private:
  struct Paths;
  /// An edge of the tree of all tokens' bytes, in an open-addressing table.
  struct Edge {
    std::uint64_t key = 0;   // node and byte
    std::uint32_t node = 0;  // the edge's target; 0: the slot is free
    std::uint32_t id = kNone;
  };
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;

  void add_to_tree(std::string_view token, std::uint32_t id);
  [[nodiscard]] std::size_t edge_slot(std::uint32_t node, unsigned char byte) const;
  void best_path(std::string_view word, Paths& paths) const;
  void append_piece(std::string_view piece, std::vector<std::uint32_t>& ids) const;

  std::vector<std::string> tokens_;
  std::vector<double> scores_;
  std::unordered_map<std::string, std::uint32_t> ids_;
  std::vector<Edge> edges_;
  std::uint32_t nodes_ = 1;
  double unknown_score_ = 0;
  std::optional<std::uint32_t> unknown_;
  bool byte_fallback_ = false;
  std::array<std::uint32_t, 256> bytes_{};
};

}  // namespace isthmus
