// SPDX-License-Identifier: Apache-2.0
// Splits a source's tokens into training and validation. If the data never grew, the last floor(N
// f) of N tokens are for validation (f: data.val_fraction). Data that were appended to between two
// sessions of a run keep the validation part that the run began with, token by token, so that
// losses before and after are on the same text. Appended tokens are only for training, after the
// earlier training tokens.
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

/// The extensions of a run's data, in order. Steps and tokens do not decrease; empty: the data
/// never grew.
using DataHistory = std::vector<DataGrowth>;

/// Name of the history in a worker's state, if there is one.
inline constexpr std::string_view kGrowthsEntry = "data/growths";
/// Saves a history with a worker's state, unless it is empty. THROWS: RunError as StateReader.
void save_history(const DataHistory& history, StateWriter& writer);
/// `tokens`: current size of the data. THROWS: RunError when the history does not end with it.
[[nodiscard]] DataHistory load_history(StateReader& reader, std::int64_t tokens);

class DataSplit {
 public:
  /// Splits one of the data's sources. Borrows `data`. REQUIRES: no history if there are several
  /// sources.
  explicit DataSplit(const Dataset& data, DataHistory history = {}, std::size_t source = 0);

  [[nodiscard]] const DataHistory& history() const { return history_; }
  [[nodiscard]] const Dataset::Source& source() const { return data_.sources()[source_]; }
  [[nodiscard]] std::int64_t train_tokens() const { return source().tokens - validation_tokens_; }
  [[nodiscard]] std::int64_t validation_tokens() const { return validation_tokens_; }
  [[nodiscard]] std::vector<DataEra> eras() const;

  /// Tokens [begin, begin + out.size()) of the training part, or of the validation part. REQUIRES:
  /// in range. THROWS: as Dataset::read_checked.
  void read_training(std::int64_t begin, std::span<std::int32_t> out,
                     const Vocabulary& vocab) const;
  void read_validation(std::int64_t begin, std::span<std::int32_t> out,
                       const Vocabulary& vocab) const;
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
