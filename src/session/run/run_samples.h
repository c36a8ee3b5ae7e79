// SPDX-License-Identifier: Apache-2.0
// The samples of a run's file ([data], train.context, train.global_batch): which a worker trains on
// at a step, and which an evaluation uses. A caller's trainer that follows them trains on what the
// built-in trainer would have taken.
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

/// Windows that an evaluation takes at a time: one part of it. A constant, so that the sums do not
/// depend on the workers.
inline constexpr std::int64_t kEvaluationWindows = 8;

[[nodiscard]] BatchPlan batch_plan(const Config& config);
/// tokens: as eval_tokens gives them, not -1.
[[nodiscard]] ValidationPlan validation_plan(const Config& config, std::int64_t tokens);

/// Tokens to evaluate on: what is asked for, or by default what there is of it; 0: the whole
/// validation part; -1: there is not one window.
[[nodiscard]] std::int64_t eval_tokens(const Config& config, const Dataset& data,
                                       const DataHistory& history = {});

/// Parts of an evaluation: so many times kEvaluationWindows windows, the last part of each source
/// with fewer.
[[nodiscard]] std::int64_t evaluation_parts(const ValidationSource& windows);
struct EvaluationWindows {
  std::int64_t first = 0;
  std::int64_t count = 0;
};
/// Of part `part`. REQUIRES: 0 <= part < evaluation_parts.
[[nodiscard]] EvaluationWindows windows_of_part(const ValidationSource& windows, std::int64_t part);
/// Names of several sources and where each one's parts begin; empty where there is one.
[[nodiscard]] std::vector<EvaluationSource> evaluation_sources(const Config& config,
                                                               const Dataset& data);
/// The same of the data; 0: there is not one window.
[[nodiscard]] std::int64_t evaluation_parts(const Config& config, const Dataset& data);

/// One worker's. Owns a batch's buffers; one thread.
class RunSamples {
 public:
  /// Opens the files of [data]. THROWS: ConfigError where the file has no data.source or no
  /// train.global_batch, or as Dataset and BatchSource do.
  RunSamples(const Storage& storage, const Config& config, WorkerId worker);
  RunSamples(const RunSamples&) = delete;  // the batches borrow the data
  RunSamples& operator=(const RunSamples&) = delete;

  [[nodiscard]] const Dataset& data() const { return data_; }
  /// What the files are, for TrainerFacts::data. Reads and hashes them.
  [[nodiscard]] std::vector<DataFile> fingerprint() const { return data_.fingerprint(); }

  /// Samples of this worker at a step, and token ids of a sample.
  [[nodiscard]] std::int64_t samples() const;
  [[nodiscard]] std::int64_t context() const { return context_; }
  /// Of step t >= 1. Valid until the next call. THROWS: ConfigError for an id beyond model.vocab.
  [[nodiscard]] TokenBatch batch(StepIndex t) { return batches_.at(t.value() - 1); }

  /// Parts of a whole evaluation ([eval]); 0: there is not one window.
  [[nodiscard]] std::int64_t parts() const;
  /// Names of several sources and where each one's parts begin; empty where there is one.
  [[nodiscard]] std::vector<EvaluationSource> sources() const;
  /// Windows of part `part` (from 0): kEvaluationWindows, of a source's last part what is left.
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
