// SPDX-License-Identifier: Apache-2.0
// Extended grapheme clusters (Unicode Standard Annex 29, with the rule GB9c for Indic conjuncts):
// what a reader takes for one character. The normalizer Precompiled replaces whole clusters. Pure.
#pragma once

#include <cstddef>
#include <string_view>

namespace isthmus {

/// Bytes of the cluster that begins at `at`. REQUIRES: `text` is UTF-8, and a cluster begins at
/// `at` inside it.
[[nodiscard]] std::size_t cluster_length(std::string_view text, std::size_t at);

}  // namespace isthmus
