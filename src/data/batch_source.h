// SPDX-License-Identifier: Apache-2.0
// Which tokens each worker sees in each step: a pure function of (seed, slot, step), so that a run
// resumes anywhere and no sample is repeated or skipped.
//
// A global step s (s = 0 is inner step t = 1) has B samples of T tokens; worker m of M takes
// samples b = m (mod M) in ascending order. Sample b of step s has inputs [i, i+T) and targets
// [i+1, i+T+1) of the n training tokens, where with partition iid
//   sequential   i = ((s B + b) T) mod (n - T - 1)
//   shuffle      i = T * window, window = permutation(epoch, k): the g = s B + b-th sample is
//   number
//                k = g mod W of epoch floor(g / W), W = floor((n - 1) / T) whole windows
// With partition shards worker m reads only its own run of W' whole windows, from floor(m W / M) to
// floor((m+1) W / M), and counts its own samples k = 0, 1, ...: sequential starts at
// (k T) mod ((W' - 1) T) of it (W' = 1: at 0), shuffle permutes its windows.
// The permutation is a Feistel network over Philox, keyed (seed, worker or 0, epoch).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "data/dataset.h"
#include "isthmus/inner_loop.h"

namespace isthmus {

enum class DataOrder { kShuffle, kSequential };
enum class DataPartition { kIid, kShards };
/// THROWS: ConfigError naming data.order or data.partition, the value and the choices.
[[nodiscard]] DataOrder parse_data_order(std::string_view text);
[[nodiscard]] DataPartition parse_data_partition(std::string_view text);

struct BatchPlan {
  std::int64_t context = 128;  // T
  std::int64_t samples = 1;    // B: of all workers in one inner step
  int workers = 1;             // M: planned workers; B % M == 0
  DataOrder order = DataOrder::kShuffle;
  DataPartition partition = DataPartition::kIid;
  std::uint64_t seed = 0;
  std::int64_t vocab = 256;  // of the model; every id must be below
};

/// Seeded permutation of 0 .. size-1, evaluated at `index` < size.
[[nodiscard]] std::uint64_t permuted(std::uint64_t index, std::uint64_t size, std::uint64_t seed,
                                     std::uint32_t slot, std::uint32_t epoch);

/// First input token of sample b of global step s, in tokens of the training part.
[[nodiscard]] std::int64_t window_begin(const BatchPlan& plan, std::int64_t train_tokens,
                                        std::int64_t step, std::int64_t sample);

/// The batches of one worker. Owns one batch's buffers; one thread.
class BatchSource {
 public:
  /// `data` is borrowed. THROWS: ConfigError when B is no multiple of M, or the training part is
  /// too small: n >= T + 2 is needed, and with shards a window for each worker.
  BatchSource(const Dataset& data, BatchPlan plan, int worker);

  /// The B / M samples of global step s >= 0. Valid until the next call.
  /// THROWS: ConfigError naming id, position and file when an id is not below plan.vocab.
  [[nodiscard]] TokenBatch at(std::int64_t step);
  [[nodiscard]] const BatchPlan& plan() const { return plan_; }

 private:
  const Dataset& data_;
  BatchPlan plan_;
  int worker_;
  std::vector<std::int32_t> inputs_;
  std::vector<std::int32_t> targets_;
};

/// Which of the validation part's windows: all W = floor((v - 1) / T) of v tokens, or floor(W / 2)
/// of them, from the start or from there on.
enum class ValidationPart { kWhole, kFirst, kSecond };
/// THROWS: ConfigError naming eval.part, the value and the choices.
[[nodiscard]] ValidationPart parse_validation_part(std::string_view text);
/// How many windows the part has.
[[nodiscard]] std::int64_t validation_windows(const Dataset& data, std::int64_t context,
                                              ValidationPart part);

/// Evaluation windows [jT, jT+T) of the validation part, targets shifted by one. Owns one batch's
/// buffers; one thread.
class ValidationSource {
 public:
  /// `tokens`: floor(tokens / T) windows; 0: as many as the part has.
  /// THROWS: ConfigError with the numbers when there are fewer, or not one.
  ValidationSource(const Dataset& data, std::int64_t context, std::int64_t tokens,
                   std::int64_t vocab, ValidationPart part = ValidationPart::kWhole);
  [[nodiscard]] std::int64_t windows() const { return windows_; }
  /// Windows [first, first + count), count >= 1. Valid until the next call.
  [[nodiscard]] TokenBatch at(std::int64_t first, std::int64_t count);

 private:
  const Dataset& data_;
  std::int64_t context_;
  std::int64_t vocab_;
  std::int64_t windows_ = 0;
  std::int64_t first_ = 0;  // window of the validation part where these begin
  std::vector<std::int32_t> inputs_;
  std::vector<std::int32_t> targets_;
};

}  // namespace isthmus
