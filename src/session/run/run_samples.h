// SPDX-License-Identifier: Apache-2.0
// The samples of a run's file ([data], train.context, train.global_batch): those that a worker
// trains on at a step, and those of an evaluation. A caller's trainer that uses them trains on the
// same samples as the built-in trainer.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/storage.h"
#include "data/batch_source.h"
#include "data/data_split.h"
#include "data/dataset.h"
#include "isthmus/config.h"
#include "isthmus/inner_loop.h"
#include "isthmus/types.h"

namespace isthmus::app {

/// Windows in one part of an evaluation. A constant, so that the sums do not depend on the number
/// of workers.
inline constexpr std::int64_t kEvaluationWindows = 8;

/// The number of ids of the run's model: of model.init, if that has set the sizes.
[[nodiscard]] Vocabulary vocabulary_of(const Config& config);
[[nodiscard]] BatchPlan batch_plan(const Config& config);
/// tokens: as eval_tokens gives them, not -1.
[[nodiscard]] ValidationPlan validation_plan(const Config& config, std::int64_t tokens);

/// Tokens to evaluate on: the configured number, by default at most as many as there are; 0: the
/// whole validation part; -1: less than one window.
[[nodiscard]] std::int64_t eval_tokens(const Config& config, const Dataset& data,
                                       const DataHistory& history = {});

/// Parts of an evaluation: kEvaluationWindows windows each, fewer in the last part of each source.
[[nodiscard]] std::int64_t evaluation_parts(const ValidationSource& windows);
struct EvaluationWindows {
  std::int64_t first = 0;
  std::int64_t count = 0;
};
/// The windows of part `part`. REQUIRES: 0 <= part < evaluation_parts.
[[nodiscard]] EvaluationWindows windows_of_part(const ValidationSource& windows, std::int64_t part);
/// Names of several sources and the first part of each; empty if there is one source.
[[nodiscard]] std::vector<EvaluationSource> evaluation_sources(const Config& config,
                                                               const Dataset& data);
/// As above, from the data; 0: less than one window.
[[nodiscard]] std::int64_t evaluation_parts(const Config& config, const Dataset& data);

/// One worker's samples. Owns a batch's buffers; one thread.
class RunSamples {
 public:
  /// Opens the files of [data]. THROWS: ConfigError when the file has no data.source or no
  /// train.global_batch, or as Dataset and BatchSource do.
  RunSamples(const Storage& storage, const Config& config, WorkerId worker);
  RunSamples(const RunSamples&) = delete;  // the batches borrow the data
  RunSamples& operator=(const RunSamples&) = delete;

  [[nodiscard]] const Dataset& data() const { return data_; }
  /// The identity of the files, for TrainerFacts::data. Reads and hashes them.
  [[nodiscard]] std::vector<DataFile> fingerprint() const { return data_.fingerprint(); }

  /// Samples of this worker in a step. `context`: token ids of a sample.
  [[nodiscard]] std::int64_t samples() const;
  [[nodiscard]] std::int64_t context() const { return context_; }
  /// The batch of step t >= 1. Valid until the next call. THROWS: ConfigError for an id beyond
  /// model.vocab.
  [[nodiscard]] TokenBatch batch(StepIndex t) { return batches_.at(t.value() - 1); }

  /// Parts of a whole evaluation ([eval]); 0: less than one window.
  [[nodiscard]] std::int64_t parts() const;
  /// Names of several sources and the first part of each; empty if there is one source.
  [[nodiscard]] std::vector<EvaluationSource> sources() const;
  /// Windows of part `part` (from 0): kEvaluationWindows, or the rest of a source in its last part.
  [[nodiscard]] std::int64_t windows(std::int64_t part) const;
  /// REQUIRES: 0 <= part < parts(). Valid until the next call.
  [[nodiscard]] TokenBatch part(std::int64_t part);

 private:
  std::int64_t context_;
  Dataset data_;
  BatchSource batches_;
  std::optional<ValidationSource> validation_;
};

}  // namespace isthmus::app
