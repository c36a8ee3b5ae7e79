// SPDX-License-Identifier: Apache-2.0
// Pipeline schedules as data: for each pipeline rank the operations of a step in order, from
// reading the first micro-batch to the last gradient. A runtime executes the list; `check_pipeline`
// simulates all ranks without a model. Pure functions; any thread.
//
// The model is cut into ranks * chunks consecutive virtual stages; stage s is chunk s / ranks of
// rank s % ranks. One chunk a rank is the plain pipeline; more chunks are interleaved.
//
// Rules for executing a list:
// - a send is *started* at its position and not waited for: its buffer is free again once the send
//   has completed. So no deadlock occurs, whether sends are buffered or complete only once
//   received;
// - a receive is *waited for* at its position, just before the pass that reads it. It may be posted
//   earlier, as far as there are buffers, which hides the transfer if sends are not buffered;
// - messages of one kind (forward, backward) between two ranks are received in the order in which
//   they are sent. With two ranks and several chunks both kinds go in the same direction: separate
//   them by tag or channel (`pipeline_message`).
// With sends that block until received, every schedule except gpipe deadlocks
// (pipeline_schedule_check.h).
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
  kZbH1,         // input and weight gradients in separate passes (Qi et al. arXiv:2401.10241 §2.3)
};

/// "gpipe", "1f1b", "interleaved-1f1b", "zb-h1".
[[nodiscard]] std::string_view pipeline_name(PipelineKind kind);
[[nodiscard]] std::span<const PipelineKind> pipeline_kinds();
/// THROWS: ConfigError naming the schedules there are.
[[nodiscard]] PipelineKind parse_pipeline_kind(std::string_view name);

enum class PipelineOpKind : std::uint8_t {
  kForward,
  kBackward,        // gradients of input and weights
  kBackwardInput,   // the gradient of the input only; the weights' gradients are
  kBackwardWeight,  // computed later, from what forward and backward-input kept
  kSendForward,     // this chunk's output, to the rank of the next stage
  kReceiveForward,  // this chunk's input
  kSendBackward,    // the gradient of this chunk's input, to the rank of the previous stage
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

/// Identifies a message among those of its kind (forward or backward) in a step: s * m +
/// micro-batch, s the stage whose output, or whose output's gradient, is sent. The same at both
/// ends. REQUIRES: a send or a receive.
[[nodiscard]] int pipeline_message(const PipelineSchedule& schedule, int rank,
                                   const PipelineOp& operation);

/// Bound of the micro-batch activations of one chunk that rank r of p holds at a time, from the
/// start of a forward to the end of that micro-batch's last gradient, with m micro-batches and v
/// chunks:
///   gpipe        m
///   1f1b         min(m, p - r)
///   interleaved  min(v m, 2 (p - r - 1) + (v - 1) p + 1)
///   zb-h1        min(m, p), as 1f1b on rank 0
[[nodiscard]] int pipeline_in_flight(const PipelineSchedule& schedule, int rank);

/// Idle time of every rank in a step, if each chunk takes F = `forward`, B = `backward_input` and W
/// = `backward_weight`, and messages take no time:
///   zb-h1   (p - 1) (F + B) - (min(m, p) - 1) min(F, B, W)
///   others  (p - 1) (F + B + W)
/// With m >= p and W at most F and B the former is the published (p - 1) (F + B - W).
[[nodiscard]] double pipeline_bubble(const PipelineSchedule& schedule, double forward,
                                     double backward_input, double backward_weight);

/// REQUIRES: nothing; every combination is either made or refused.
/// THROWS: ConfigError naming the key, its value, the rule and the nearest values that work:
/// interleaved needs at least 2 chunks and m % p == 0, the others 1 chunk.
[[nodiscard]] PipelineSchedule make_pipeline_schedule(PipelineKind kind, int ranks,
                                                      int micro_batches, int chunks = 1);

/// THROWS: ConfigError: zb-h1 with recomputation. Its weight gradients read activations that full
/// recomputation does not keep. Selective recomputation would save nothing, since gradients have by
/// then overwritten the inputs that it needs.
void check_recompute(PipelineKind kind, Recompute recompute);

/// Layers [begin, end) of the model.
struct LayerSpan {
  std::int64_t begin = 0, end = 0;
  [[nodiscard]] std::int64_t size() const { return end - begin; }
  bool operator==(const LayerSpan&) const = default;
};

/// Assigns layers to stages so that the heaviest stage is as light as possible; each stage has at
/// least one layer, and the last also carries `head_layers` (cost of the output head, in layers).
/// Among equal choices it takes the most even one, with more layers in later stages, since earlier
/// stages keep more activations. THROWS: ConfigError when there are more stages than layers.
[[nodiscard]] std::vector<LayerSpan> stage_layers(std::int64_t layers, int stages,
                                                  double head_layers);

}  // namespace isthmus
