// SPDX-License-Identifier: Apache-2.0
// Documents inside windows of a stream of tokens, for `[data] pack = "documents"`: the start of
// each token's document, and the tokens without a target. A document ends after its end-of-text id,
// so its borders in a window follow from the tokens alone, and no list of documents is kept. Called
// by the batch sources. Pure functions, except those that look beside a file. Here too: whether ids
// of two tokenizers mean the same.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/base/storage.h"

namespace isthmus {

class Tokenizer;

/// True: attention stays inside documents. False: it covers the whole window.
/// THROWS: ConfigError naming data.pack, the value and the choices.
[[nodiscard]] bool parse_data_pack(std::string_view text);

/// The index that PyTorch's cross_entropy ignores by default; here every negative target is
/// ignored.
inline constexpr std::int32_t kNoTarget = -100;

/// For a window's tokens `inputs` (T,): starts (T,) := the index in the window of the first token
/// of each token's document (0 for a document that began earlier); targets (T,) := kNoTarget for
/// the last token of a document, whose successor is in another one. `end`: the id that ends a
/// document. RETURNS: the number of remaining targets.
std::int64_t mark_documents(std::int32_t end, std::span<const std::int32_t> inputs,
                            std::span<std::int32_t> targets, std::span<std::int32_t> starts);

/// The number of targets that `mark_documents` leaves in a window.
[[nodiscard]] std::int64_t targets_inside_documents(std::int32_t end,
                                                    std::span<const std::int32_t> inputs);

/// The id that ends a document of the token file `bin`, from the record that `isthmus data
/// tokenize` wrote beside it; absent without a record. THROWS: SystemError for a damaged record.
[[nodiscard]] std::optional<std::int32_t> document_end_beside(const Storage& storage,
                                                              const std::filesystem::path& bin);

/// The tokenizer.json in the folder of the token file `bin`, if a record beside that file says that
/// its ids were made with it. THROWS: SystemError for a damaged record.
[[nodiscard]] std::optional<std::filesystem::path> tokenizer_beside(
    const Storage& storage, const std::filesystem::path& bin);

/// The first id below `vocab` that is another token in `theirs` than in `ours`, added tokens
/// included: "id 5 is "x" here and "y" there"; empty: there is none. Ids of one tokenizer alone are
/// no difference, nor is how a token is found in a text: ids of both mean the same texts.
[[nodiscard]] std::string unlike_token(const Tokenizer& ours, const Tokenizer& theirs,
                                       std::int64_t vocab);
/// The first id below `vocab` of a token in `ours` that `theirs` has no token for.
[[nodiscard]] std::optional<std::uint32_t> further_token(const Tokenizer& ours,
                                                         const Tokenizer& theirs,
                                                         std::int64_t vocab);

}  // namespace isthmus
