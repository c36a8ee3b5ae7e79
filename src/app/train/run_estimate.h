// SPDX-License-Identifier: Apache-2.0
// The needs of a run, before it runs: parameters, memory, bytes, and (simulated) time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/train/checkpoint_room.h"
#include "app/train/config_to_options.h"
#include "app/train/resume_preview.h"
#include "core/base/data_file.h"
#include "isthmus/config.h"
#include "outer/place/lane_memory.h"
#include "plan/prediction.h"

namespace isthmus::app {

/// Outer state of a site's ranks, if these are processes.
struct LaneEstimate {
  outer::LaneMemory first;
  outer::LaneMemory last;  // the largest, if lanes differ
};

struct RunEstimate {
  std::int64_t parameters = 0;
  std::int64_t steps = 0;
  std::int64_t tokens = 0;
  double step_flops = 0;                    // of one worker
  std::uint64_t memory_bytes = 0;           // of all workers in this process
  std::uint64_t round_bytes = 0;            // in addition, while rounds are in flight
  std::uint64_t checkpoint_copy_bytes = 0;  // in addition, while a checkpoint is written
  std::uint64_t program_bytes = 0;          // in addition: code, libraries, memory without a model
  std::uint64_t program_anonymous_bytes = 0;  // of these, what is no page of a file
  std::uint64_t copy_bytes = 0;     // included: copy of the last committed step (outer.commit)
  std::uint64_t offload_bytes = 0;  // in files (train.offload), of all workers
  std::int64_t outer_bytes_per_parameter = 0;  // of one worker: anchors, momentum
  std::optional<LaneEstimate> lanes;           // outer.placement = "ranks"
  double epochs = 0;                           // passes over the training tokens
  std::vector<SourcePasses> sources;           // if there are several, else empty
  std::string data_note;                       // on too many passes, or empty
  std::vector<std::string> conversations;      // a line for each source of conversations
  NamedConversations packed;                   // the same as numbers
  std::uint64_t payload_bytes = 0;             // sent by one worker over the run
  std::uint64_t wire_bytes = 0;
  ClosingCost closing;                // included: the closing round; its time if predicted
  std::string closing_window;         // "the last 4 of 9 steps"; empty: no closing round
  std::vector<std::string> left_out;  // tensors, settings and files of model.init that are not used
  std::vector<std::string> data_warnings;     // about data and model.init; among `warnings`, too
  std::vector<std::string> warnings;          // about steps that no round covers, and the like
  std::optional<CheckpointRoom> checkpoints;  // if the run's folder is known
  std::optional<Prediction> prediction;       // simulated runs with a declared step time
  std::optional<ResumePreview> goes_on;       // with --resume
};

/// Options of an estimate beside the configuration.
struct EstimateOf {
  std::optional<WorkerId> only;                     // the worker of this process; else all
  std::optional<std::filesystem::path> out;         // the run's folder, empty for a new one below
                                                    // runs/; nothing: disk space is not checked
  std::optional<std::vector<DataFile>> begun_with;  // the data files of a resumed run
  std::string resume = "never";                     // as SessionOptions has it
  RunChanges changes = {};                          // of a resumed run
};

/// Checks the configuration and opens the data; trains nothing. of.only: the one worker with files
/// (train.offload) here; else all. THROWS: as run_training's checks.
[[nodiscard]] RunEstimate estimate_run(const Config& config, bool simulated,
                                       const EstimateOf& of = {});

/// Floating-point operations per second of one core, measured now in a few training steps of one
/// worker. THROWS: as above.
[[nodiscard]] double measured_speed(Config config);

[[nodiscard]] std::string render_estimate(const Config& config, const RunEstimate& estimate);
[[nodiscard]] std::string estimate_json(const RunEstimate& estimate);

}  // namespace isthmus::app
