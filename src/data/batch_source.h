// SPDX-License-Identifier: Apache-2.0
// The batches of one worker, in the order that data/sample_order.h defines, and the windows of
// evaluations. Of several sources data/source_mix.h says which one a sample is of, and each has an
// order of its own: sample b of step s is of number g = s B + pi(b), pi a permutation that the step
// has for itself, so that no worker keeps to one source. With partition shards each worker numbers
// its own samples, and has a sequence of sources of its own.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "data/data_split.h"
#include "data/dataset.h"
#include "data/sample_order.h"
#include "data/source_mix.h"
#include "isthmus/inner_loop.h"

namespace isthmus {

/// The batches of one worker. Owns one batch's buffers; one thread.
class BatchSource {
 public:
  /// `data` is borrowed. THROWS: ConfigError when B is no multiple of M, or the training part is
  /// too small: n >= T + 2 is needed, and with shards a window for each worker.
  BatchSource(const Dataset& data, BatchPlan plan, int worker, DataHistory history = {});

  /// The B / M samples of global step s >= 0. Valid until the next call.
  /// THROWS: ConfigError naming id, position and file when an id is not below plan.vocab, or where
  /// all documents of the step are of one token.
  [[nodiscard]] TokenBatch at(std::int64_t step);
  [[nodiscard]] const BatchPlan& plan() const { return plan_; }
  [[nodiscard]] const DataHistory& history() const { return splits_.front().history(); }

  /// Where sample b of global step s begins: in which source, and at which of its training tokens.
  struct Window {
    std::size_t source = 0;
    std::int64_t begin = 0;
  };
  [[nodiscard]] Window window(std::int64_t step, std::int64_t sample) const;

 private:
  /// A worker's: with partition shards each has its own, else all the first one's.
  struct Orders {
    std::vector<SampleOrder> sources;
    std::optional<SourceMix> mix;  // of several sources
  };
  void check_sizes(const DataSplit& split) const;
  [[nodiscard]] Orders orders_of(int worker) const;
  [[nodiscard]] const Orders& orders_for(std::int64_t sample) const;
  void read(const Window& window, std::int64_t more, std::span<std::int32_t> out) const;
  /// Targets of the other workers' samples of a step.
  [[nodiscard]] std::int64_t targets_of_others(std::int64_t step);

  std::vector<DataSplit> splits_;  // of the sources
  BatchPlan plan_;
  int worker_;
  std::vector<Orders> orders_;
  std::vector<std::int32_t> inputs_;
  std::vector<std::int32_t> targets_;
  std::vector<std::int32_t> starts_;  // with documents
  std::vector<std::int32_t> other_;   // a window of another worker's
  std::vector<std::uint8_t> marks_;   // of a window of conversations
};

/// Which of the validation part's windows: all W = floor((v - 1) / T) of v tokens, or floor(W / 2)
/// of them, from the start or from there on.
enum class ValidationPart { kWhole, kFirst, kSecond };
/// THROWS: ConfigError naming eval.part, the value and the choices.
[[nodiscard]] ValidationPart parse_validation_part(std::string_view text);
/// How many windows the part has.
[[nodiscard]] std::int64_t validation_windows(const DataSplit& split, std::int64_t context,
                                              ValidationPart part);

/// Which windows of the validation parts an evaluation takes.
struct ValidationPlan {
  std::int64_t context = 0;
  /// floor(tokens / T) windows; of several sources each has its share of them, to a window, and one
  /// at least. 0: as many as there are.
  std::int64_t tokens = 0;
  std::int64_t vocab = 0;
  ValidationPart part = ValidationPart::kWhole;
  bool documents = false;  // as BatchPlan has it
};

/// `windows` of an evaluation shared out among the sources as ValidationPlan says; more where each
/// has one already.
[[nodiscard]] std::vector<std::int64_t> windows_of_sources(const Dataset& data,
                                                           std::int64_t windows);

/// Evaluation windows [jT, jT+T) of the validation part, targets shifted by one; of several sources
/// those of one after another. Owns one batch's buffers; one thread.
class ValidationSource {
 public:
  /// THROWS: ConfigError with the numbers when there are fewer windows, or not one.
  ValidationSource(const Dataset& data, const ValidationPlan& plan, DataHistory history = {});
  [[nodiscard]] std::int64_t windows() const { return sources_.back().end; }
  /// Windows [first, first + count), count >= 1. Valid until the next call.
  [[nodiscard]] TokenBatch at(std::int64_t first, std::int64_t count);

  struct Source {
    DataSplit split;
    std::int64_t first = 0;           // window of its validation part where these begin
    std::int64_t begin = 0, end = 0;  // its windows here
  };
  [[nodiscard]] std::span<const Source> sources() const { return sources_; }

 private:
  ValidationPlan plan_;
  std::vector<Source> sources_;
  std::vector<std::int32_t> inputs_;
  std::vector<std::int32_t> targets_;
  std::vector<std::int32_t> starts_;  // with documents
  std::vector<std::uint8_t> marks_;   // of a window of conversations
};

}  // namespace isthmus
