// SPDX-License-Identifier: Apache-2.0
// Notes on the data of a run before it trains. Pure, except for reading the data.
#pragma once

#include <cstdint>
#include <string>
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

/// One sentence for a text source whose first bytes are not text; else empty.
[[nodiscard]] std::string binary_note(const Dataset& data);

/// The nonempty ones of both.
[[nodiscard]] std::vector<std::string> notes_on_data(const Config& config, const Dataset& data);

}  // namespace isthmus::app
