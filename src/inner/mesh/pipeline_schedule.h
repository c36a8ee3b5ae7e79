// SPDX-License-Identifier: Apache-2.0
// Pipeline schedules as data: for each pipeline rank, what it does in which order, from reading the
// first micro-batch to the last gradient. A runtime executes the list; `check_pipeline` plays all
// ranks without a model. Pure functions; any thread.
//
// The model is cut into ranks * chunks virtual stages, one after another; stage s is chunk s /
// ranks of rank s % ranks, so one chunk a rank is the plain pipeline and more are interleaved.
//
// How a list is meant to be executed:
// - a send is *started* where it stands and not waited for: its buffer is free again when it has
//   completed. So nothing stops whether sends are buffered or complete only once received;
// - a receive is *waited for* where it stands, just before what reads it. It may be posted as much
//   earlier as there are buffers, which hides the transfer where sends are not buffered;
// - messages of one kind (forward, backward) between two ranks are received in the order in which
//   they are sent. With two ranks and chunks both kinds run the same way: keep them apart by tag or
//   channel (`pipeline_message`).
// Sends that block until received would stop everything but gpipe (pipeline_schedule_check.h).
//
// In every schedule a chunk's weight gradients come in ascending micro-batch order, so that sums
// have the bits of one rank that accumulates the micro-batches.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "isthmus/config.h"

namespace isthmus {

enum class PipelineKind {
  kGpipe,        // all forwards, then all backwards (Huang et al. arXiv:1811.06965)
  k1F1B,         // one forward, one backward (PipeDream-flush, Narayanan et al. arXiv:2006.09503)
  kInterleaved,  // several chunks a rank, m % p == 0 (Narayanan et al. arXiv:2104.04473 §2.2)
  kZbH1,         // input and weight gradients apart (Qi et al. arXiv:2401.10241 §2.3)
};

/// "gpipe", "1f1b", "interleaved-1f1b", "zb-h1".
[[nodiscard]] std::string_view pipeline_name(PipelineKind kind);
[[nodiscard]] std::span<const PipelineKind> pipeline_kinds();
/// THROWS: ConfigError naming the schedules there are.
[[nodiscard]] PipelineKind parse_pipeline_kind(std::string_view name);

enum class PipelineOpKind : std::uint8_t {
  kForward,
  kBackward,        // gradients of input and weights
  kBackwardInput,   // the gradient of the input alone; the weights' follows as
  kBackwardWeight,  // which reads what the forward and backward-input passes kept
  kSendForward,     // this chunk's output, to the rank of the next stage
  kReceiveForward,  // this chunk's input
  kSendBackward,    // the gradient of this chunk's input, to the rank of the stage before
  kReceiveBackward  // the gradient of this chunk's output
};

[[nodiscard]] constexpr bool is_compute(PipelineOpKind kind) {
  return kind <= PipelineOpKind::kBackwardWeight;
}

struct PipelineOp {
  PipelineOpKind kind = PipelineOpKind::kForward;
  int chunk = 0;        // of this rank
  int micro_batch = 0;  // 0 .. m - 1
  int peer = -1;        // the other pipeline rank of a message
  bool operator==(const PipelineOp&) const = default;
};

struct PipelineSchedule {
  PipelineKind kind = PipelineKind::kGpipe;
  int ranks = 1;
  int chunks = 1;  // virtual stages of a rank
  int micro_batches = 1;
  std::vector<std::vector<PipelineOp>> operations;  // of each rank, in its order

  [[nodiscard]] int stages() const { return ranks * chunks; }
  [[nodiscard]] int stage(int rank, int chunk) const { return chunk * ranks + rank; }
  [[nodiscard]] int rank_of(int stage) const { return stage % ranks; }
  [[nodiscard]] int chunk_of(int stage) const { return stage / ranks; }
};

/// What distinguishes a message from all others of its kind (forward or backward) in a step: the
/// stage whose output it is, or whose output's gradient, times m, plus the micro-batch. The same
/// at both ends. REQUIRES: a send or a receive.
[[nodiscard]] int pipeline_message(const PipelineSchedule& schedule, int rank,
                                   const PipelineOp& operation);

/// Micro-batch activations of one chunk that a rank may hold at a time, counted from the start of a
/// forward to the end of that micro-batch's last gradient: gpipe m; 1f1b min(m, p - r); interleaved
/// min(v m, 2 (p - r - 1) + (v - 1) p + 1); zb-h1 min(m, p), what 1f1b holds on rank 0.
[[nodiscard]] int pipeline_in_flight(const PipelineSchedule& schedule, int rank);

/// Idle time of every rank in a step, where each chunk takes `forward`, `backward_input` and
/// `backward_weight` and messages no time: (p - 1) (F + B + W), for zb-h1
/// (p - 1) (F + B) - (min(m, p) - 1) min(F, B, W), which for m >= p and W no longer than the others
/// is the published (p - 1) (F + B - W).
[[nodiscard]] double pipeline_bubble(const PipelineSchedule& schedule, double forward,
                                     double backward_input, double backward_weight);

/// REQUIRES: nothing; every combination is either made or refused.
/// THROWS: ConfigError naming the key, its value, the rule and the nearest values that work:
/// interleaved needs at least 2 chunks and m % p == 0, the others 1 chunk.
[[nodiscard]] PipelineSchedule make_pipeline_schedule(PipelineKind kind, int ranks,
                                                      int micro_batches, int chunks = 1);

/// THROWS: ConfigError: zb-h1 with recomputation. Its weight gradients read activations that a full
/// one does not keep; a selective one would save nothing: by then gradients lie over all it could
/// make them from.
void check_recompute(PipelineKind kind, Recompute recompute);

/// Layers [begin, end) of the model.
struct LayerSpan {
  std::int64_t begin = 0, end = 0;
  [[nodiscard]] std::int64_t size() const { return end - begin; }
  bool operator==(const LayerSpan&) const = default;
};

/// Layers to stages so that the heaviest stage is as light as can be, the last one also bearing
/// `head_layers` (what the output head costs in layers), each with at least one layer. Of equal
/// choices the one that is nearest to even, with more layers to later stages: earlier ones keep
/// more activations. THROWS: ConfigError when there are more stages than layers.
[[nodiscard]] std::vector<LayerSpan> stage_layers(std::int64_t layers, int stages,
                                                  double head_layers);

}  // namespace isthmus
