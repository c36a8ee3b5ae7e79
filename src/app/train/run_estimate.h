// SPDX-License-Identifier: Apache-2.0
// What a run would need, before it runs: parameters, memory, bytes, and (simulated) time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/train/checkpoint_room.h"
#include "app/train/resume_preview.h"
#include "app/train/run_parts.h"
#include "core/base/data_file.h"
#include "isthmus/config.h"
#include "outer/place/lane_memory.h"
#include "plan/prediction.h"

namespace isthmus::app {

/// Outer state of a site's ranks, where these are processes.
struct LaneEstimate {
  outer::LaneMemory first;
  outer::LaneMemory last;  // where lanes are unlike the last is the largest
};

struct RunEstimate {
  std::int64_t parameters = 0;
  std::int64_t steps = 0;
  std::int64_t tokens = 0;
  double step_flops = 0;                    // of one worker
  std::uint64_t memory_bytes = 0;           // of all workers in this process
  std::uint64_t round_bytes = 0;            // beside those, while rounds are under way
  std::uint64_t checkpoint_copy_bytes = 0;  // and while a checkpoint is written
  std::uint64_t program_bytes = 0;  // beside those: code, libraries, what a run has without a model
  std::uint64_t copy_bytes = 0;     // of those: of the last committed step (outer.commit)
  std::uint64_t offload_bytes = 0;  // in files (train.offload), of all of them
  std::int64_t outer_bytes_per_parameter = 0;  // of one worker: anchors, momentum
  std::optional<LaneEstimate> lanes;           // outer.placement = "ranks"
  double epochs = 0;                           // passes over the training tokens
  std::vector<SourcePasses> sources;           // of several sources, else empty
  std::string data_note;                       // on too many of them, or empty
  std::vector<std::string> conversations;      // a line for each source of conversations
  NamedConversations packed;                   // the same as numbers
  std::uint64_t payload_bytes = 0;             // sent by one worker over the run
  std::uint64_t wire_bytes = 0;
  ClosingCost closing;                // of that, the closing round; its time where one is predicted
  std::string closing_window;         // "the last 4 of 9 steps"; empty: there is no closing round
  std::vector<std::string> warnings;  // of steps that no round carries, and the like
  std::optional<CheckpointRoom> checkpoints;  // where the run's folder is known
  std::optional<Prediction> prediction;       // simulated runs whose step time is declared
  std::optional<ResumePreview> goes_on;       // with --resume
};

/// What a run is asked of beside its configuration.
struct EstimateOf {
  std::optional<WorkerId> only;                     // the worker of this process, else all
  std::optional<std::filesystem::path> out;         // the run's folder, empty for a new one below
                                                    // runs/; nothing: room is not asked for
  std::optional<std::vector<DataFile>> begun_with;  // the data files of a run that goes on
  std::string resume = "never";                     // as SessionOptions has it
  RunChanges changes = {};                          // of a run that goes on
};

/// Checks the configuration, opens the data, trains nothing. of.only: the one worker whose files
/// (train.offload) are here; else all are. THROWS: as run_training's checks.
[[nodiscard]] RunEstimate estimate_run(const Config& config, bool simulated,
                                       const EstimateOf& of = {});

/// Floating-point operations a second of one core, from a few training steps of one worker taken
/// now. THROWS: as above.
[[nodiscard]] double measured_speed(Config config);

[[nodiscard]] std::string render_estimate(const Config& config, const RunEstimate& estimate);
[[nodiscard]] std::string estimate_json(const RunEstimate& estimate);

}  // namespace isthmus::app
