// SPDX-License-Identifier: Apache-2.0
// Notes on the data of a run before it trains. Pure, except for reading the data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "data/dataset.h"
#include "isthmus/config.h"

namespace isthmus::app {

/// How often the run reads the training tokens of one of its sources.
struct SourcePasses {
  std::string name;  // empty if there is one source
  double share = 1;  // of the samples
  std::int64_t train_tokens = 0;
  double passes = 0;
};
[[nodiscard]] std::vector<SourcePasses> passes_by_source(const Config& config, const Dataset& data);
/// Passes over the source that is read most often.
[[nodiscard]] double epochs(const Config& config, const Dataset& data);
/// "3.4", "1,200".
[[nodiscard]] std::string passes_text(double passes);
/// One sentence for a run that reads its data so often that it learns little more; else empty.
[[nodiscard]] std::string epochs_note(const Config& config, const Dataset& data);

/// Bytes of all texts together at which binary_note looks, and 128 KiB of each file beyond: data
/// that do not fit in memory are not read once more for a note.
inline constexpr std::size_t kMostLookedAtForNuls = std::size_t{256} << 20;

/// One sentence for a text source whose first bytes are not text, or that has NULs; else empty.
[[nodiscard]] std::string binary_note(const Dataset& data);

/// One sentence for JSON lines that are trained on as texts; else empty.
[[nodiscard]] std::string json_lines_note(const Dataset& data);

/// By the names of their sources, "" if there is one; empty if the data are no conversations.
using NamedConversations = std::vector<std::pair<std::string, ConversationFacts>>;
[[nodiscard]] NamedConversations packed_sources(const Dataset& data);
/// A line on the conversations of each source.
[[nodiscard]] std::vector<std::string> conversations_texts(const Dataset& data);
/// One sentence for conversations that were cut or left out; else empty.
[[nodiscard]] std::string conversations_warning(const Dataset& data);

/// The nonempty ones of all warnings.
[[nodiscard]] std::vector<std::string> notes_on_data(const Config& config, const Dataset& data);

}  // namespace isthmus::app
