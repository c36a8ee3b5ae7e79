// SPDX-License-Identifier: Apache-2.0
// Which tokens of a source are for training, and which for validation. Of data that never grew the
// last floor(N f) of N tokens are for validation (f: data.val_fraction). Data that were appended to
// while a run was at rest keep their validation part, the one that the run began with, token by
// token: losses before and after are of the same text. What was appended is for training alone; its
// tokens follow the training tokens of before.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/base/data_file.h"
#include "data/dataset.h"
#include "data/sample_order.h"
#include "isthmus/state.h"

namespace isthmus {

/// How a run's data came to be what they are. Neither steps nor tokens fall; empty: they never
/// grew.
using DataHistory = std::vector<DataGrowth>;

/// In a worker's state, where there is a history.
inline constexpr std::string_view kGrowthsEntry = "data/growths";
/// Beside a worker's state, where there is something to save. THROWS: RunError as StateReader has
/// it.
void save_history(const DataHistory& history, StateWriter& writer);
/// `tokens`: of the data; a history that does not end with them is refused by a RunError.
[[nodiscard]] DataHistory load_history(StateReader& reader, std::int64_t tokens);

class DataSplit {
 public:
  /// Of one of the data's sources. Borrows `data`. REQUIRES: no history where there are several.
  explicit DataSplit(const Dataset& data, DataHistory history = {}, std::size_t source = 0);

  [[nodiscard]] const DataHistory& history() const { return history_; }
  [[nodiscard]] const Dataset::Source& source() const { return data_.sources()[source_]; }
  [[nodiscard]] std::int64_t train_tokens() const { return source().tokens - validation_tokens_; }
  [[nodiscard]] std::int64_t validation_tokens() const { return validation_tokens_; }
  [[nodiscard]] std::vector<DataEra> eras() const;

  /// Tokens [begin, begin + out.size()) of the training part, or of the validation part. REQUIRES:
  /// in range. THROWS: as Dataset::read_checked.
  void read_training(std::int64_t begin, std::span<std::int32_t> out, std::int64_t vocab) const;
  void read_validation(std::int64_t begin, std::span<std::int32_t> out, std::int64_t vocab) const;
  /// The marks beside them, of conversations (data/packed_rows.h). REQUIRES: in range.
  void read_training_marks(std::int64_t begin, std::span<std::uint8_t> out) const;
  void read_validation_marks(std::int64_t begin, std::span<std::uint8_t> out) const;

 private:
  const Dataset& data_;
  DataHistory history_;
  std::size_t source_;
  std::int64_t validation_begin_ = 0;  // in tokens of the source
  std::int64_t validation_tokens_ = 0;
};

}  // namespace isthmus
