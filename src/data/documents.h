// SPDX-License-Identifier: Apache-2.0
// Documents inside windows of a stream of tokens, for `[data] pack = "documents"`: where each
// token's document begins, and which tokens have nothing to predict. A document ends behind its
// end-of-text id, so the borders of a window follow from its tokens alone, and no list of documents
// is kept. Called by the batch sources. Pure functions, but for `document_end_beside`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>

#include "core/base/storage.h"

namespace isthmus {

/// Whether attention stays inside documents (true), or runs over the whole window.
/// THROWS: ConfigError naming data.pack, the value and the choices.
[[nodiscard]] bool parse_data_pack(std::string_view text);

/// What PyTorch's cross_entropy leaves out by default; any target below zero does not count here.
inline constexpr std::int32_t kNoTarget = -100;

/// Of a window's tokens `inputs` (T,): starts (T,) := the first place of each token's document in
/// the window, where a document that the window cuts begins with the window; targets (T,) :=
/// kNoTarget for the last token of a document, whose successor is of another one. `end`: the id
/// that ends a document. RETURNS: targets that are left.
std::int64_t mark_documents(std::int32_t end, std::span<const std::int32_t> inputs,
                            std::span<std::int32_t> targets, std::span<std::int32_t> starts);

/// Targets that `mark_documents` leaves of a window.
[[nodiscard]] std::int64_t targets_inside_documents(std::int32_t end,
                                                    std::span<const std::int32_t> inputs);

/// The id that ends a document of the token file `bin`, as the record says that
/// `isthmus data tokenize` wrote beside it; nothing where there is none.
/// THROWS: SystemError for a record that is damaged.
[[nodiscard]] std::optional<std::int32_t> document_end_beside(const Storage& storage,
                                                              const std::filesystem::path& bin);

}  // namespace isthmus
