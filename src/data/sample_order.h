// SPDX-License-Identifier: Apache-2.0
// Which tokens each worker sees in each step: a pure function of (seed, slot, step), so that a run
// resumes anywhere and no sample is repeated or skipped.
//
// A global step s (s = 0 is inner step t = 1) has B samples of T tokens; worker m of M takes
// samples b = m (mod M) in ascending order. Sample b of step s has inputs [i, i+T) and targets
// [i+1, i+T+1) of the n training tokens, where with partition iid
//   sequential   i = ((s B + b) T) mod (n - T - 1)
//   shuffle      i = T * window, window = permutation(epoch, k): sample number g = s B + b is
//                number k = g mod W of epoch floor(g / W), W = floor((n - 1) / T) whole windows
// With partition shards worker m reads only its own run of W' whole windows, from floor(m W / M) to
// floor((m+1) W / M), and counts its own samples k = 0, 1, ...: sequential starts at (k T) mod ((W'
// - 1) T) of it (W' = 1: at 0), shuffle permutes its windows. The permutation is a Feistel network
// over Philox, keyed (seed, worker or 0, epoch).
//
// Data that have grown (DataEra): the windows of earlier eras keep their numbers, and the added
// windows follow; with shards each worker also has its share of the added windows. Shuffled, the
// current epoch then reads its remaining windows and the added ones, permuted anew, each once;
// later epochs read all windows. In sequence the reading continues at its position, to the new end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "data/vocabulary.h"

namespace isthmus {

enum class DataOrder { kShuffle, kSequential };
enum class DataPartition { kIid, kShards };
/// THROWS: ConfigError naming data.order or data.partition, the value and the choices.
[[nodiscard]] DataOrder parse_data_order(std::string_view text);
[[nodiscard]] DataPartition parse_data_partition(std::string_view text);

struct BatchPlan {
  std::int64_t context = 128;  // T
  std::int64_t samples = 1;    // B: samples of all workers in one inner step
  int workers = 1;             // M: planned workers; B % M == 0
  DataOrder order = DataOrder::kShuffle;
  DataPartition partition = DataPartition::kIid;
  std::uint64_t seed = 0;
  Vocabulary vocab = 256;  // of the model; every id must be below it
  bool documents = false;  // attention and loss stay inside documents (data/documents.h)
  /// With documents: a batch's loss is averaged over the targets of all workers
  /// (TokenBatch::mean_targets), for methods that average the gradients in each step.
  bool one_mean = false;
};

/// Seeded permutation of 0 .. size-1, evaluated at `index` < size.
[[nodiscard]] std::uint64_t permuted(std::uint64_t index, std::uint64_t size, std::uint64_t seed,
                                     std::uint32_t slot, std::uint32_t epoch);

/// Number of whole windows of `train_tokens` with a target for each token.
[[nodiscard]] std::int64_t window_count(std::int64_t train_tokens, std::int64_t context);

/// Training tokens of a run from global step `first_step` on; the tokens of the previous era are
/// the first of them.
struct DataEra {
  std::int64_t first_step = 0;
  std::int64_t train_tokens = 0;
};

/// The order in which one worker reads its windows.
class SampleOrder {
 public:
  /// REQUIRES: the first era begins at step 0, steps and tokens do not decrease, and the worker has
  /// at least one window.
  SampleOrder(const BatchPlan& plan, std::span<const DataEra> eras, int worker);

  /// First input token of sample b of global step s, in tokens of the training part.
  /// REQUIRES: b is the worker's (b mod M).
  [[nodiscard]] std::int64_t begin(std::int64_t step, std::int64_t sample) const;
  /// The same for a sample by its number: among all of the run, or with shards among the worker's.
  [[nodiscard]] std::int64_t begin_of(std::int64_t index) const;

 private:
  /// Sample k of an epoch (pass) over windows.
  struct Place {
    std::int64_t pass = 0;
    std::int64_t k = 0;
    std::int64_t size = 0;   // number of windows of the pass
    bool of_growth = false;  // the pass that was running when the era began
  };
  struct Era {
    std::int64_t start = 0;         // number of the worker's first sample in it
    std::int64_t train_tokens = 0;  // of all workers
    std::int64_t windows = 0;       // number of the worker's windows
    std::int64_t first_added = 0;   // number of the first added window
    Place under_way = {};           // shuffle: position at the end of the previous era
    std::int64_t position = 0;      // sequential: the same, in tokens or windows
  };
  [[nodiscard]] bool shards() const { return plan_.partition == DataPartition::kShards; }
  [[nodiscard]] std::int64_t samples_by(std::int64_t step) const;
  [[nodiscard]] Place place(std::size_t era, std::int64_t index) const;
  [[nodiscard]] std::int64_t shuffled(std::size_t era, const Place& place) const;
  [[nodiscard]] std::int64_t in_sequence(std::size_t era, std::int64_t index) const;
  [[nodiscard]] std::int64_t window_begin(std::int64_t own) const;

  BatchPlan plan_;
  int worker_;
  std::vector<Era> eras_;
};

/// SampleOrder::begin for data that never grew.
[[nodiscard]] std::int64_t window_begin(const BatchPlan& plan, std::int64_t train_tokens,
                                        std::int64_t step, std::int64_t sample);

}  // namespace isthmus
