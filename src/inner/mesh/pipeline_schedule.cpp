// SPDX-License-Identifier: Apache-2.0
#include "inner/mesh/pipeline_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

#include "config/schema/recompute.h"
#include "core/base/check.h"
#include "core/base/names.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {
using Op = PipelineOpKind;

constexpr int kMostRanks = 4096;
constexpr int kMostChunks = 1024;
constexpr std::int64_t kMostPasses = std::int64_t{1} << 24;  // p v m: a list of some 500 MB

void check_shape(PipelineKind kind, int ranks, int micro_batches, int chunks) {
  const std::string_view name = pipeline_name(kind);
  if (ranks < 1 || ranks > kMostRanks) {
    throw ConfigError(fmt::format("parallel.pp = {}: must be between 1 and {}", ranks, kMostRanks));
  }
  if (micro_batches < 1) {
    throw ConfigError(
        fmt::format("parallel.micro_batches = {}: must be at least 1", micro_batches));
  }
  if (kind != PipelineKind::kInterleaved && chunks != 1) {
    throw ConfigError(fmt::format(
        "parallel.virtual_stages = {}: {} has 1; more need interleaved-1f1b", chunks, name));
  }
  if (kind == PipelineKind::kInterleaved && (chunks < 2 || chunks > kMostChunks)) {
    throw ConfigError(
        fmt::format("parallel.virtual_stages = {}: {} needs 2 to {}; with one it is 1f1b", chunks,
                    name, kMostChunks));
  }
  if (kind == PipelineKind::kInterleaved && micro_batches % ranks != 0) {
    const int below = micro_batches / ranks * ranks;
    throw ConfigError(fmt::format(
        "parallel.micro_batches = {}: {} needs a multiple of parallel.pp = {}; {} nearest, or 1f1b",
        micro_batches, name, ranks,
        below == 0 ? fmt::format("{} is the", ranks)
                   : fmt::format("{} and {} are the", below, below + ranks)));
  }
  const std::int64_t passes = std::int64_t{ranks} * chunks * micro_batches;
  if (passes > kMostPasses) {
    throw ConfigError(fmt::format(
        "parallel.micro_batches = {}: {} stages x micro-batches are more than a schedule lists "
        "({}); the most is {}",
        micro_batches, passes, kMostPasses,
        std::max<std::int64_t>(kMostPasses / ranks / chunks / ranks * ranks, 1)));
  }
}

/// Appends a rank's computations with their messages: those that it needs from a neighbour just
/// before, those that a neighbour needs just after.
class RankList {
 public:
  RankList(PipelineSchedule& schedule, int rank)
      : schedule_(schedule),
        rank_(rank),
        list_(schedule.operations[static_cast<std::size_t>(rank)]) {}

  void forward(int chunk, int micro_batch) {
    const int stage = schedule_.stage(rank_, chunk);
    message(Op::kReceiveForward, chunk, micro_batch, stage - 1);
    list_.push_back({Op::kForward, chunk, micro_batch});
    message(Op::kSendForward, chunk, micro_batch, stage + 1);
  }
  /// kind: kBackward or kBackwardInput.
  void backward(Op kind, int chunk, int micro_batch) {
    const int stage = schedule_.stage(rank_, chunk);
    message(Op::kReceiveBackward, chunk, micro_batch, stage + 1);
    list_.push_back({kind, chunk, micro_batch});
    message(Op::kSendBackward, chunk, micro_batch, stage - 1);
  }
  void weight(int chunk, int micro_batch) {
    list_.push_back({Op::kBackwardWeight, chunk, micro_batch});
  }

 private:
  /// Nothing when there is no such stage, or this rank holds it too.
  void message(Op kind, int chunk, int micro_batch, int other_stage) {
    if (other_stage < 0 || other_stage >= schedule_.stages()) return;
    const int peer = schedule_.rank_of(other_stage);
    if (peer != rank_) list_.push_back({kind, chunk, micro_batch, peer});
  }

  PipelineSchedule& schedule_;
  int rank_;
  std::vector<PipelineOp>& list_;
};

void fill_gpipe(RankList& list, const PipelineSchedule& s) {
  for (int i = 0; i < s.micro_batches; ++i) list.forward(0, i);
  for (int i = 0; i < s.micro_batches; ++i) list.backward(Op::kBackward, 0, i);
}

void fill_1f1b(RankList& list, const PipelineSchedule& s, int rank) {
  const int warm_up = std::min(s.micro_batches, s.ranks - rank - 1);
  for (int i = 0; i < warm_up; ++i) list.forward(0, i);
  for (int i = 0; i < s.micro_batches; ++i) {
    if (warm_up + i < s.micro_batches) list.forward(0, warm_up + i);
    list.backward(Op::kBackward, 0, i);
  }
}

/// Passes go in rounds: p micro-batches through chunk 0, the same through chunk 1, and so on.
/// arXiv:2104.04473 §2.2; the warm-up is that of Megatron-LM.
void fill_interleaved(RankList& list, const PipelineSchedule& s, int rank) {
  const int round = s.ranks * s.chunks;
  const int passes = s.chunks * s.micro_batches;
  const auto micro_batch = [&](int pass) { return pass / round * s.ranks + pass % s.ranks; };
  const auto chunk = [&](int pass) { return pass % round / s.ranks; };
  const auto forward = [&](int pass) { list.forward(chunk(pass), micro_batch(pass)); };
  const int warm_up = std::min(passes, 2 * (s.ranks - rank - 1) + (s.chunks - 1) * s.ranks);
  for (int i = 0; i < warm_up; ++i) forward(i);
  for (int i = 0; i < passes; ++i) {
    if (warm_up + i < passes) forward(warm_up + i);
    list.backward(Op::kBackward, s.chunks - 1 - chunk(i), micro_batch(i));
  }
}

/// 1f1b in which rank r delays weight gradients by r micro-batches: they fill the idle time at the
/// end, and every rank holds as many activations as rank 0 does under 1f1b.
void fill_zb_h1(RankList& list, const PipelineSchedule& s, int rank) {
  const int warm_up = std::min(s.micro_batches, s.ranks - rank - 1);
  for (int i = 0; i < warm_up; ++i) list.forward(0, i);
  for (int i = 0; i < s.micro_batches; ++i) {
    if (warm_up + i < s.micro_batches) list.forward(0, warm_up + i);
    list.backward(Op::kBackwardInput, 0, i);
    if (i >= rank) list.weight(0, i - rank);
  }
  for (int i = std::max(0, s.micro_batches - rank); i < s.micro_batches; ++i) list.weight(0, i);
}

constexpr std::string_view name_of_kind(PipelineKind kind) {
  switch (kind) {
    case PipelineKind::kGpipe:
      return "gpipe";
    case PipelineKind::k1F1B:
      return "1f1b";
    case PipelineKind::kInterleaved:
      return "interleaved-1f1b";
    case PipelineKind::kZbH1:
      return "zb-h1";
  }
  return "";
}
constexpr std::array kKinds = values_named_by<PipelineKind, name_of_kind>();

}  // namespace

std::string_view pipeline_name(PipelineKind kind) { return name_of_kind(kind); }

std::span<const PipelineKind> pipeline_kinds() { return kKinds; }

PipelineKind parse_pipeline_kind(std::string_view name) {
  std::string names;
  for (const PipelineKind kind : kKinds) {
    if (name == pipeline_name(kind)) return kind;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", pipeline_name(kind));
  }
  throw ConfigError(fmt::format("parallel.schedule = \"{}\": must be one of {}", name, names));
}

int pipeline_message(const PipelineSchedule& schedule, int rank, const PipelineOp& operation) {
  ISTHMUS_CHECK(!is_compute(operation.kind), static_cast<int>(operation.kind));
  const bool of_own_output =
      operation.kind == Op::kSendForward || operation.kind == Op::kReceiveBackward;
  const int stage = schedule.stage(rank, operation.chunk) - (of_own_output ? 0 : 1);
  return stage * schedule.micro_batches + operation.micro_batch;
}

int pipeline_in_flight(const PipelineSchedule& s, int rank) {
  switch (s.kind) {
    case PipelineKind::kGpipe:
      return s.micro_batches;
    case PipelineKind::k1F1B:
      return std::min(s.micro_batches, s.ranks - rank);
    case PipelineKind::kInterleaved:
      return std::min(s.chunks * s.micro_batches,
                      2 * (s.ranks - rank - 1) + (s.chunks - 1) * s.ranks + 1);
    case PipelineKind::kZbH1:
      return std::min(s.micro_batches, s.ranks);
  }
  return 0;
}

double pipeline_bubble(const PipelineSchedule& s, double forward, double backward_input,
                       double backward_weight) {
  const double others = s.ranks - 1;
  if (s.kind != PipelineKind::kZbH1) {
    return others * (forward + backward_input + backward_weight);
  }
  // A weight gradient fills the time of one pass at most.
  const double filled = std::min({forward, backward_input, backward_weight});
  return others * (forward + backward_input) - (std::min(s.micro_batches, s.ranks) - 1) * filled;
}

PipelineSchedule make_pipeline_schedule(PipelineKind kind, int ranks, int micro_batches,
                                        int chunks) {
  check_shape(kind, ranks, micro_batches, chunks);
  PipelineSchedule schedule{.kind = kind,
                            .ranks = ranks,
                            .chunks = chunks,
                            .micro_batches = micro_batches,
                            .operations = {}};
  schedule.operations.resize(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    RankList list(schedule, rank);
    switch (kind) {
      case PipelineKind::kGpipe:
        fill_gpipe(list, schedule);
        break;
      case PipelineKind::k1F1B:
        fill_1f1b(list, schedule, rank);
        break;
      case PipelineKind::kInterleaved:
        fill_interleaved(list, schedule, rank);
        break;
      case PipelineKind::kZbH1:
        fill_zb_h1(list, schedule, rank);
        break;
    }
  }
  return schedule;
}

void check_recompute(PipelineKind kind, Recompute recompute) {
  if (kind != PipelineKind::kZbH1 || recompute == Recompute::kNone) return;
  const bool full = recompute == Recompute::kFull;
  throw ConfigError(fmt::format(
      "parallel.schedule = \"zb-h1\" with train.recompute = \"{}\": its weight gradients read {}; "
      "leave train.recompute out, or take 1f1b",
      recompute_name(recompute),
      full ? "what recomputation does not keep"
           : "the outputs of norms and of the activation when gradients lie over all that these "
             "could be made from, so they are kept"));
}

std::vector<LayerSpan> stage_layers(std::int64_t layers, int stages, double head_layers) {
  if (stages < 1 || stages > layers) {
    throw ConfigError(fmt::format(
        "parallel.pp x virtual stages = {}: the model has {} layers and every stage needs one; the "
        "most is {}",
        stages, layers, layers));
  }
  // Layers cost the same, so giving each one to the lightest stage in turn is optimal.
  std::vector<std::int64_t> count(static_cast<std::size_t>(stages), 1);
  const auto last = count.size() - 1;
  for (std::int64_t left = layers - stages; left > 0; --left) {
    std::size_t lightest = last;
    double least = static_cast<double>(count[last]) + head_layers;
    for (std::size_t stage = last; stage-- > 0;) {
      if (static_cast<double>(count[stage]) < least) {
        least = static_cast<double>(count[stage]);
        lightest = stage;
      }
    }
    ++count[lightest];
  }
  std::vector<LayerSpan> spans;
  std::int64_t begin = 0;
  for (const std::int64_t size : count) {
    spans.push_back({begin, begin + size});
    begin += size;
  }
  return spans;
}

}  // namespace isthmus
