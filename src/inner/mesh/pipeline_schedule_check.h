// SPDX-License-Identifier: Apache-2.0
// Plays a pipeline schedule on all ranks without a model: is it complete, in a right order, free of
// deadlock, within its memory; how long does it take and who waits. Pure functions; any thread.
#pragma once

#include <string>
#include <vector>

#include "inner/mesh/pipeline_schedule.h"
#include "isthmus/expected.h"

namespace isthmus {

/// Of one chunk and one micro-batch. A backward pass that is not split takes both of the latter.
struct StageTimes {
  double forward = 1;
  double backward_input = 1;
  double backward_weight = 1;
};

enum class SendMode {
  kBuffered,   // a transfer begins when it is sent; the sender goes on
  kOnReceive,  // a transfer begins when its receive is reached; the sender goes on
  kBlocking,   // the same, and the sender waits for its end
};

struct PipelineTiming {
  std::vector<StageTimes> stages = {{}};  // of each stage, or one for all
  double message = 0;  // a message takes its link so long; those of a kind and pair one by one
  SendMode sends = SendMode::kBuffered;
};

struct PipelineFault {
  enum class Kind {
    kShape,     // an operation that this schedule has no place for: chunk, micro-batch, peer
    kMissing,   // a pass that is not there
    kRepeated,  // an operation that is there twice
    kMessage,   // a message that is not sent, not received, or received in another order than sent
    kOrder,     // a pass before what it reads, or weight gradients not ascending
    kMemory,    // more activations in flight than `pipeline_in_flight`
    kDeadlock,  // ranks that wait for one another
  };
  Kind kind = Kind::kShape;
  int rank = 0;
  std::string text;  // "rank 1: backward of micro-batch 2 comes before its forward"
};

struct PipelinePass {
  PipelineOp operation;
  double begin = 0, end = 0;
};

struct PipelineRankReport {
  double busy = 0;    // sum of its passes
  int in_flight = 0;  // most activations of one chunk and micro-batch at a time
  std::vector<PipelinePass> passes;
};

struct PipelineReport {
  double makespan = 0;
  double bubble = 0;  // idle time of the busiest rank until all are done
  std::vector<PipelineRankReport> ranks;
  [[nodiscard]] double bubble_share() const { return makespan > 0 ? bubble / makespan : 0; }
};

/// REQUIRES: timing.stages has one entry or one for each stage.
/// RETURNS: the first fault; one of the lists as they stand before one that shows in time.
[[nodiscard]] Expected<PipelineReport, PipelineFault> check_pipeline(
    const PipelineSchedule& schedule, const PipelineTiming& timing = {});

/// The time alone, for lists that are known to be right: counts no activations.
/// REQUIRES: as above, and lists without shape faults. RETURNS: kDeadlock alone.
[[nodiscard]] Expected<PipelineReport, PipelineFault> play_pipeline(
    const PipelineSchedule& schedule, const PipelineTiming& timing = {});

/// "backward of micro-batch 2, chunk 1"; the chunk where there are several.
[[nodiscard]] std::string describe(const PipelineSchedule& schedule, const PipelineOp& operation);

}  // namespace isthmus
