// SPDX-License-Identifier: Apache-2.0
// Simulates a pipeline schedule on all ranks without a model. Checks that it is complete, in a
// valid order, free of deadlock and within its memory bound; computes its duration and each rank's
// idle time. Pure functions; any thread.
#pragma once

#include <string>
#include <vector>

#include "inner/mesh/pipeline_schedule.h"
#include "isthmus/expected.h"

namespace isthmus {

/// Times of one chunk and one micro-batch. An unsplit backward pass takes backward_input +
/// backward_weight.
struct StageTimes {
  double forward = 1;
  double backward_input = 1;
  double backward_weight = 1;
};

enum class SendMode {
  kBuffered,   // a transfer begins at the send; the sender continues
  kOnReceive,  // a transfer begins when the receiver reaches its receive; the sender continues
  kBlocking,   // as kOnReceive, and the sender waits for the end
};

struct PipelineTiming {
  std::vector<StageTimes> stages = {{}};  // of each stage, or one for all
  double message = 0;  // time of a message on its link; messages of one kind and pair are
                       // serialized
  SendMode sends = SendMode::kBuffered;
};

struct PipelineFault {
  enum class Kind {
    kShape,     // an invalid operation of this schedule: chunk, micro-batch, peer
    kMissing,   // a missing pass
    kRepeated,  // a repeated operation
    kMessage,   // a message not sent, not received, or received in another order than sent
    kOrder,     // a pass before one whose result it reads, or weight gradients not ascending
    kMemory,    // more activations in flight than `pipeline_in_flight`
    kDeadlock,  // ranks wait for one another
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
  double busy = 0;    // sum of the durations of its passes
  int in_flight = 0;  // most activations held at a time, in units of one chunk and micro-batch
  std::vector<PipelinePass> passes;
};

struct PipelineReport {
  double makespan = 0;
  double bubble = 0;  // idle time of the busiest rank until all ranks are done
  std::vector<PipelineRankReport> ranks;
  [[nodiscard]] double bubble_share() const { return makespan > 0 ? bubble / makespan : 0; }
};

/// REQUIRES: timing.stages has one entry, or one per stage.
/// RETURNS: the first fault; faults of the lists themselves come before kDeadlock.
[[nodiscard]] Expected<PipelineReport, PipelineFault> check_pipeline(
    const PipelineSchedule& schedule, const PipelineTiming& timing = {});

/// Only the timing, for lists known to be valid: counts no activations. REQUIRES: as above, and
/// lists without shape faults. RETURNS: kDeadlock is the only fault.
[[nodiscard]] Expected<PipelineReport, PipelineFault> play_pipeline(
    const PipelineSchedule& schedule, const PipelineTiming& timing = {});

/// "backward of micro-batch 2, chunk 1"; the chunk is named if there are several.
[[nodiscard]] std::string describe(const PipelineSchedule& schedule, const PipelineOp& operation);

}  // namespace isthmus
