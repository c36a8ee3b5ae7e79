// SPDX-License-Identifier: Apache-2.0
// The batches of one worker, in the order that data/sample_order.h defines, and the windows of
// evaluations.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "data/data_split.h"
#include "data/dataset.h"
#include "data/sample_order.h"
#include "isthmus/inner_loop.h"

namespace isthmus {

/// The batches of one worker. Owns one batch's buffers; one thread.
class BatchSource {
 public:
  /// `data` is borrowed. THROWS: ConfigError when B is no multiple of M, or the training part is
  /// too small: n >= T + 2 is needed, and with shards a window for each worker.
  BatchSource(const Dataset& data, BatchPlan plan, int worker, DataHistory history = {});

  /// The B / M samples of global step s >= 0. Valid until the next call.
  /// THROWS: ConfigError naming id, position and file when an id is not below plan.vocab.
  [[nodiscard]] TokenBatch at(std::int64_t step);
  [[nodiscard]] const BatchPlan& plan() const { return plan_; }
  [[nodiscard]] const DataHistory& history() const { return split_.history(); }

 private:
  DataSplit split_;
  BatchPlan plan_;
  int worker_;
  std::optional<SampleOrder> order_;
  std::vector<std::int32_t> inputs_;
  std::vector<std::int32_t> targets_;
};

/// Which of the validation part's windows: all W = floor((v - 1) / T) of v tokens, or floor(W / 2)
/// of them, from the start or from there on.
enum class ValidationPart { kWhole, kFirst, kSecond };
/// THROWS: ConfigError naming eval.part, the value and the choices.
[[nodiscard]] ValidationPart parse_validation_part(std::string_view text);
/// How many windows the part has.
[[nodiscard]] std::int64_t validation_windows(const DataSplit& split, std::int64_t context,
                                              ValidationPart part);

/// Evaluation windows [jT, jT+T) of the validation part, targets shifted by one. Owns one batch's
/// buffers; one thread.
class ValidationSource {
 public:
  /// `tokens`: floor(tokens / T) windows; 0: as many as the part has.
  /// THROWS: ConfigError with the numbers when there are fewer, or not one.
  ValidationSource(const Dataset& data, std::int64_t context, std::int64_t tokens,
                   std::int64_t vocab, ValidationPart part = ValidationPart::kWhole,
                   DataHistory history = {});
  [[nodiscard]] std::int64_t windows() const { return windows_; }
  /// Windows [first, first + count), count >= 1. Valid until the next call.
  [[nodiscard]] TokenBatch at(std::int64_t first, std::int64_t count);

 private:
  DataSplit split_;
  std::int64_t context_;
  std::int64_t vocab_;
  std::int64_t windows_ = 0;
  std::int64_t first_ = 0;  // window of the validation part where these begin
  std::vector<std::int32_t> inputs_;
  std::vector<std::int32_t> targets_;
};

}  // namespace isthmus
