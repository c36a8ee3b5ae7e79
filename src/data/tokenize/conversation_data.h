// SPDX-License-Identifier: Apache-2.0
// The data of a run as its configuration says: token files and texts, or with `[train] objective =
// "sft"` conversations, which become tokens by the tokenizer and chat template of `model.init` when
// they are opened. Called by whoever opens a run's data.
#pragma once

#include "core/base/storage.h"
#include "data/dataset.h"
#include "isthmus/config.h"

namespace isthmus {

/// Conversations are held in memory whole, as ids. Blocking. THROWS: as Dataset::open; of
/// conversations also ConfigError where the model's folder has no tokenizer or chat template, or
/// where no conversation is left to learn from, and SystemError "FILE:LINE: ..." for a line that is
/// no conversation or that the template refuses, unless data.skip_bad.
[[nodiscard]] Dataset open_data(const Storage& storage, const Config& config,
                                ReadingRules rules = ReadingRules::kOfToday);

}  // namespace isthmus
