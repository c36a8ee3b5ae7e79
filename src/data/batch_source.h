// SPDX-License-Identifier: Apache-2.0
// The batches of one worker, in the order that data/sample_order.h defines, and the windows of
// evaluations. With several sources data/source_mix.h assigns each sample to a source, and each
// source has a separate order: sample b of step s has number g = s B + pi(b), pi a permutation for
// the step, so that no worker always gets the same source. With partition shards each worker
// numbers its own samples and has a separate sequence of sources.
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
  /// `data` is borrowed. THROWS: ConfigError when B is no multiple of M, or when the training part
  /// is too small: it needs n >= T + 2 tokens, and with shards a window for each worker.
  BatchSource(const Dataset& data, BatchPlan plan, int worker, DataHistory history = {});

  /// The B / M samples of global step s >= 0. Valid until the next call.
  /// THROWS: ConfigError naming id, position and file when an id is not below plan.vocab, or when
  /// all documents of the step have only one token.
  [[nodiscard]] TokenBatch at(std::int64_t step);
  [[nodiscard]] const BatchPlan& plan() const { return plan_; }
  [[nodiscard]] const DataHistory& history() const { return splits_.front().history(); }

  /// Start of sample b of global step s: its source, and the index among the source's training
  /// tokens.
  struct Window {
    std::size_t source = 0;
    std::int64_t begin = 0;
  };
  [[nodiscard]] Window window(std::int64_t step, std::int64_t sample) const;

 private:
  /// The orders of one worker; without shards all workers use the first.
  struct Orders {
    std::vector<SampleOrder> sources;
    std::optional<SourceMix> mix;  // of several sources
  };
  void check_sizes(const DataSplit& split) const;
  [[nodiscard]] Orders orders_of(int worker) const;
  [[nodiscard]] const Orders& orders_for(std::int64_t sample) const;
  void read(const Window& window, std::int64_t more, std::span<std::int32_t> out) const;
  /// Number of targets in the other workers' samples of a step.
  [[nodiscard]] std::int64_t targets_of_others(std::int64_t step);

  std::vector<DataSplit> splits_;  // of the sources
  BatchPlan plan_;
  int worker_;
  std::vector<Orders> orders_;
  std::vector<std::int32_t> inputs_;
  std::vector<std::int32_t> targets_;
  std::vector<std::int32_t> starts_;  // with documents
  std::vector<std::int32_t> other_;   // a window of another worker
  std::vector<std::uint8_t> marks_;   // of a window of conversations
};

/// Windows of the validation part for an evaluation: of all W = floor((v - 1) / T) windows of v
/// tokens, all, the first floor(W / 2), or the next floor(W / 2).
enum class ValidationPart { kWhole, kFirst, kSecond };
/// THROWS: ConfigError naming eval.part, the value and the choices.
[[nodiscard]] ValidationPart parse_validation_part(std::string_view text);
/// Number of windows of the part.
[[nodiscard]] std::int64_t validation_windows(const DataSplit& split, std::int64_t context,
                                              ValidationPart part);

/// Selects the windows of the validation parts for an evaluation.
struct ValidationPlan {
  std::int64_t context = 0;
  /// floor(tokens / T) windows; with several sources each gets its share, rounded to windows, and
  /// at least one. 0: all windows.
  std::int64_t tokens = 0;
  Vocabulary vocab = 0;
  ValidationPart part = ValidationPart::kWhole;
  bool documents = false;  // as BatchPlan::documents
};

/// Splits `windows` of an evaluation among the sources as ValidationPlan::tokens says. The sum is
/// larger only if sources were raised to one window.
[[nodiscard]] std::vector<std::int64_t> windows_of_sources(const Dataset& data,
                                                           std::int64_t windows);

/// Evaluation windows [jT, jT+T) of the validation part, targets shifted by one; with several
/// sources, source after source. Owns one batch's buffers; one thread.
class ValidationSource {
 public:
  /// THROWS: ConfigError with the numbers when there are fewer windows than planned, or none.
  ValidationSource(const Dataset& data, const ValidationPlan& plan, DataHistory history = {});
  [[nodiscard]] std::int64_t windows() const { return sources_.back().end; }
  /// Windows [first, first + count), count >= 1. Valid until the next call.
  [[nodiscard]] TokenBatch at(std::int64_t first, std::int64_t count);

  struct Source {
    DataSplit split;
    std::int64_t first = 0;           // first window of its validation part that is used
    std::int64_t begin = 0, end = 0;  // its range of windows here
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
