// SPDX-License-Identifier: Apache-2.0
#include "inner/mesh/mesh_rank.h"

#include <algorithm>

#include "core/base/check.h"
#include "inner/mesh/gradient_shares.h"
#include "inner/mesh/mesh_rules.h"
#include "inner/model/samples.h"

namespace isthmus {
namespace {

/// Most micro-batches of a chunk whose activations are held at a time.
std::size_t most_in_flight(const std::vector<PipelineOp>& operations, int chunk) {
  std::size_t held = 0;
  std::size_t most = 1;
  for (const PipelineOp& op : operations) {
    if (op.chunk != chunk) continue;
    if (op.kind == PipelineOpKind::kForward) most = std::max(most, ++held);
    if (op.kind == PipelineOpKind::kBackward || op.kind == PipelineOpKind::kBackwardWeight) --held;
  }
  return most;
}

/// The part of the model that chunk `k` of a rank holds.
RankShare chunk_share(const ModelShape& s, const MeshOptions& options,
                      const PipelineSchedule& schedule, const MeshPosition& at, int k) {
  const int stage = schedule.stage(at.pp, k);
  RankShare share;
  share.ranks = options.mesh.tp;
  share.rank = at.tp;
  share.layers =
      stage_layers(s.layers, schedule.stages(), head_layers(s))[static_cast<std::size_t>(stage)];
  share.first_stage = stage == 0;
  share.last_stage = stage + 1 == schedule.stages();
  share.sequence_parallel = options.mesh.sequence_parallel;
  return share;
}

/// Of a micro-batch.
std::int64_t rows_of(const MeshOptions& options) {
  return options.micro_batch_sequences() * options.context;
}

/// Room for all rows of a micro-batch's stream, where each rank holds its own.
std::int64_t gathered_bytes(const ModelLayout& canonical, const MeshOptions& options) {
  if (options.mesh.row_shares() == 1) return 0;
  return rows_of(options) * canonical.shape().d_model * static_cast<std::int64_t>(sizeof(float));
}

bool trains(const MeshOptions& options) {
  return options.purpose != LanguageModel<float>::Purpose::kInference;
}

/// Micro-batches whose activations chunk `k` has room for.
std::size_t slots_of(const MeshOptions& options, const PipelineSchedule& schedule,
                     const MeshPosition& at, int k) {
  if (!trains(options)) return 1;
  return most_in_flight(schedule.operations[static_cast<std::size_t>(at.pp)], k);
}

/// The purpose of a rank's models. REQUIRES: zb-h1 without recomputation.
LanguageModel<float>::Purpose purpose_of(const MeshOptions& options) {
  using Purpose = LanguageModel<float>::Purpose;
  const bool split = trains(options) && options.schedule == PipelineKind::kZbH1;
  if (split) ISTHMUS_CHECK(options.purpose == Purpose::kTraining, options.mesh.pp);
  return split ? Purpose::kSplitBackward : options.purpose;
}

/// Scratch of a chunk's models, whatever its depth.
std::int64_t working_bytes(const RankLayout& layout, const MeshOptions& options) {
  return LanguageModel<float>::working_bytes(layout.local(), rows_of(options), purpose_of(options),
                                             options.bf16, options.mesh.row_shares());
}

StageStateOptions state_options(const MeshOptions& options, const MeshPosition& at,
                                bool own_weights) {
  return {.zero = options.zero,
          .ranks = options.mesh.dp,
          .rank = at.dp,
          .own_weights = own_weights,
          .trains = trains(options),
          .inner = options.inner,
          .buckets = bucket_options(options),
          .tokens = rows_of(options) * options.micro_batches,
          .micro_batches = options.micro_batches};
}

}  // namespace

/// The activations of one micro-batch on their way through a chunk.
struct MeshRank::Slot {
  std::unique_ptr<LanguageModel<float>> model;
  int micro_batch = -1;           // none: free
  std::unique_ptr<Work> sending;  // of the output, or of the input's gradient
  void settle() {
    if (sending) sending->wait();
    sending.reset();
  }
};

/// One virtual stage of this rank.
struct MeshRank::Chunk {
  Chunk(RankLayout held, const RankShare& share, const StageStateOptions& options,
        const MeshGroups& groups)
      : layout(std::move(held)),
        first(share.first_stage),
        last(share.last_stage),
        awaits_rows(last && !first && layout.local().shape().tied),
        state(layout, options, groups) {}

  RankLayout layout;
  bool first, last;  // of all stages
  bool awaits_rows;  // its head is a table of which another stage has the embedding's gradient
  StageState state;
  std::vector<Slot> slots;
};

MeshRank::MeshRank(const ModelLayout& canonical, const MeshOptions& options, Communicator& world,
                   bool own_weights)
    : options_(options),
      at_(mesh_position(options.mesh, world.rank())),
      groups_(options.mesh, key_copies(canonical.shape(), options.mesh.tp), options.codecs, world),
      schedule_(MeshRank::schedule(options)),
      team_(options.threads),
      gathered_(static_cast<std::size_t>(gathered_bytes(canonical, options))) {
  make_chunks(canonical, own_weights);
}

MeshRank::~MeshRank() = default;

PipelineSchedule MeshRank::schedule(const MeshOptions& options) {
  return make_pipeline_schedule(options.schedule, options.mesh.pp,
                                static_cast<int>(options.micro_batches), options.virtual_stages);
}

std::size_t MeshRank::slots(const MeshOptions& options, int pp, int chunk) {
  return slots_of(options, schedule(options), {.pp = pp}, chunk);
}

void MeshRank::make_chunks(const ModelLayout& canonical, bool own_weights) {
  for (int k = 0; k < schedule_.chunks; ++k) {
    const RankShare share = chunk_share(canonical.shape(), options_, schedule_, at_, k);
    auto chunk = std::make_unique<Chunk>(RankLayout(canonical, share), share,
                                         state_options(options_, at_, own_weights), groups_);
    const ModelLayout& local = chunk->layout.local();
    chunk->slots.resize(slots_of(options_, schedule_, at_, k));
    if (k == 0) {
      working_ =
          kernels::AlignedBuffer(static_cast<std::size_t>(working_bytes(chunk->layout, options_)));
    }
    for (Slot& slot : chunk->slots) {
      slot.model = std::make_unique<LanguageModel<float>>(
          local, rows_of(options_), purpose_of(options_), options_.bf16, options_.mesh.row_shares(),
          working_.data());
      slot.model->hold_vocabulary(chunk->layout.vocabulary());
    }
    chunks_.push_back(std::move(chunk));
  }
}

std::vector<RankLayout> MeshRank::layouts(const ModelLayout& canonical, const MeshOptions& options,
                                          int rank) {
  const PipelineSchedule schedule = MeshRank::schedule(options);
  const MeshPosition at = mesh_position(options.mesh, rank);
  std::vector<RankLayout> layouts;
  for (int k = 0; k < schedule.chunks; ++k) {
    layouts.emplace_back(canonical, chunk_share(canonical.shape(), options, schedule, at, k));
  }
  return layouts;
}

std::int64_t MeshRank::bytes(const ModelLayout& canonical, const MeshOptions& options, int rank,
                             bool own_weights) {
  const PipelineSchedule schedule = MeshRank::schedule(options);
  const MeshPosition at = mesh_position(options.mesh, rank);
  std::int64_t bytes = gathered_bytes(canonical, options);
  for (int k = 0; k < schedule.chunks; ++k) {
    const RankLayout layout(canonical, chunk_share(canonical.shape(), options, schedule, at, k));
    const auto slots = static_cast<std::int64_t>(slots_of(options, schedule, at, k));
    const std::int64_t working = working_bytes(layout, options);
    const std::int64_t arena =
        LanguageModel<float>::arena_bytes(layout.local(), rows_of(options), purpose_of(options),
                                          options.bf16, options.mesh.row_shares());
    bytes += StageState::bytes(layout, state_options(options, at, own_weights)) +
             slots * (arena - working);
    if (k == 0) bytes += working;
  }
  return bytes;
}

std::int64_t MeshRank::stored_bytes(const ModelLayout& canonical, const MeshOptions& options,
                                    int rank, bool own_weights) {
  std::int64_t bytes = 0;
  const StageStateOptions state =
      state_options(options, mesh_position(options.mesh, rank), own_weights);
  for (const RankLayout& layout : layouts(canonical, options, rank)) {
    bytes += StageState::stored_bytes(layout, state);
  }
  return bytes;
}

bool MeshRank::has_head() const { return chunks_.back()->last; }

const RankLayout& MeshRank::layout(std::size_t chunk) const { return chunks_[chunk]->layout; }

StageState& MeshRank::state(std::size_t chunk) { return chunks_[chunk]->state; }

void MeshRank::use_weights(const float* canonical) {
  for (const auto& chunk : chunks_) chunk->state.use(canonical);
}

Pass MeshRank::pass_of(const TokenBatch& batch) {
  return pass_over(team_, batch, TensorGroup(groups_.tensor.get(), gathered_.data()));
}

MeshRank::Slot& MeshRank::slot_of(Chunk& chunk, int micro_batch) {
  for (Slot& slot : chunk.slots) {
    if (slot.micro_batch == micro_batch) return slot;
  }
  for (Slot& slot : chunk.slots) {
    if (slot.micro_batch != -1) continue;
    slot.settle();
    slot.micro_batch = micro_batch;
    return slot;
  }
  ISTHMUS_CHECK(false, micro_batch, chunk.slots.size());
  return chunk.slots.front();
}

void MeshRank::check(const TokenBatch& batch) const {
  ISTHMUS_CHECK(batch.length >= 1 && batch.length <= options_.context, batch.length);
  const auto tokens = static_cast<std::size_t>(batch.sequences * batch.length);
  ISTHMUS_CHECK(batch.inputs.size() == tokens, batch.inputs.size(), tokens);
  ISTHMUS_CHECK(batch.targets.size() == tokens, batch.targets.size(), tokens);
  ISTHMUS_CHECK(batch.document_starts.empty() || batch.document_starts.size() == tokens,
                batch.document_starts.size(), tokens);
}

LossSum MeshRank::train(const TokenBatch& batch, double gradient_scale) {
  ISTHMUS_CHECK(batch.sequences == options_.sequences, batch.sequences, options_.sequences);
  check(batch);
  for (const auto& chunk : chunks_) chunk->state.begin_step();
  const std::int64_t own = options_.sequences / options_.mesh.dp;
  const TokenBatch share = samples_of(batch, at_.dp * own, own);
  LossSum sum;
  for (const PipelineOp& op : schedule_.operations[static_cast<std::size_t>(at_.pp)]) {
    run(op, share, gradient_scale, sum);
  }
  const auto stage_at = [&](int pp) {
    return mesh_rank(options_.mesh, {.tp = at_.tp, .pp = pp, .dp = at_.dp});
  };
  if (chunks_.front()->layout.tied_embedding().size() > 0) {
    chunks_.front()->state.give_embedding_rows(stage_at(options_.mesh.pp - 1));
  }
  if (chunks_.back()->awaits_rows) {
    chunks_.back()->state.take_embedding_rows(team_, stage_at(0));
  }
  for (const auto& chunk : chunks_) {
    for (Slot& slot : chunk->slots) slot.settle();
  }
  return sum;
}

void MeshRank::run(const PipelineOp& op, const TokenBatch& share, double gradient_scale,
                   LossSum& sum) {
  Chunk& chunk = *chunks_[static_cast<std::size_t>(op.chunk)];
  Slot& slot = slot_of(chunk, op.micro_batch);
  LanguageModel<float>& model = *slot.model;
  const std::int64_t count = options_.micro_batch_sequences();
  const TokenBatch batch = samples_of(share, op.micro_batch * count, count);
  const Pass pass = pass_of(batch);
  const std::int64_t values = pass.own_rows() * chunk.layout.local().shape().d_model;
  Weights<float>& weights = chunk.state.weights();
  const bool last = op.micro_batch + 1 == options_.micro_batches;
  const BackwardOptions<float> backward = chunk.state.backward_options(gradient_scale, last);
  // Activations that a weight gradient reads stay until the gradient has been computed.
  const bool split = purpose_of(options_) == LanguageModel<float>::Purpose::kSplitBackward;
  Communicator& neighbours = *groups_.pipeline;
  const auto send = [&](const float* from) {
    slot.settle();
    const int tag = pipeline_message(schedule_, at_.pp, op);
    slot.sending = neighbours.start([from, values, peer = op.peer, tag](Communicator& ranks) {
      ranks.send({from, values, Dtype::kF32}, peer, tag);
    });
  };
  const auto receive = [&](float* into) {
    neighbours.receive({into, values, Dtype::kF32}, op.peer,
                       pipeline_message(schedule_, at_.pp, op));
  };
  switch (op.kind) {
    case PipelineOpKind::kReceiveForward:
      receive(model.stage_input());
      break;
    case PipelineOpKind::kForward:
      chunk.state.begin_forward();
      model.stage_forward(pass, weights, batch.inputs.data(), true);
      if (chunk.last) sum += model.stage_head(pass, weights, batch, &backward);
      break;
    case PipelineOpKind::kSendForward:
      send(model.stage_output());
      break;
    case PipelineOpKind::kReceiveBackward:
      receive(model.stage_gradient());
      break;
    case PipelineOpKind::kBackward:
    case PipelineOpKind::kBackwardInput:
      slot.settle();
      chunk.state.begin_backward();
      model.stage_backward(pass, weights, batch.inputs.data(), backward);
      if (!last || !chunk.awaits_rows) chunk.state.end_micro_batch();
      if (chunk.first && !split) slot.micro_batch = -1;
      break;
    case PipelineOpKind::kSendBackward:
      send(model.stage_gradient());
      if (!split) slot.micro_batch = -1;
      break;
    case PipelineOpKind::kBackwardWeight:
      model.stage_backward_weight(pass, backward);
      slot.micro_batch = -1;
      break;
  }
}

void MeshRank::sum_gradients() {
  for (const auto& chunk : chunks_) chunk->state.sum_gradients();
}

LossSum MeshRank::loss(const TokenBatch& batch) {
  check(batch);
  const CanonicalRange own = slice_of(batch.sequences, options_.mesh.dp, at_.dp);
  const std::int64_t at_once = rows_of(options_) / batch.length;
  ISTHMUS_CHECK(at_once >= 1, rows_of(options_), batch.length);
  Communicator& neighbours = *groups_.pipeline;
  const int ranks = neighbours.size();
  // Ranks whose samples end before those of others continue to gather weights with them.
  const bool together = chunks_.front()->state.gathers();  // all chunks do, or none
  const std::int64_t most = (batch.sequences + options_.mesh.dp - 1) / options_.mesh.dp;
  const std::int64_t end = together ? own.begin + most : own.end;
  LossSum sum;
  for (std::int64_t first = own.begin; first < end; first += at_once) {
    if (first >= own.end) {
      for (const auto& chunk : chunks_) chunk->state.walk_weights();
      continue;
    }
    const TokenBatch part = samples_of(batch, first, std::min(at_once, own.end - first));
    const Pass pass = pass_of(part);
    for (const auto& chunk : chunks_) {
      Slot& slot = chunk->slots.front();
      LanguageModel<float>& model = *slot.model;
      Weights<float>& weights = chunk->state.weights();
      const std::int64_t values = pass.own_rows() * chunk->layout.local().shape().d_model;
      chunk->state.begin_forward();
      slot.settle();
      if (!chunk->first) {
        neighbours.receive({model.stage_input(), values, Dtype::kF32}, (at_.pp + ranks - 1) % ranks,
                           0);
      }
      model.stage_forward(pass, weights, part.inputs.data(), false);
      if (chunk->last) {
        sum += model.stage_head(pass, weights, part, nullptr);
        continue;
      }
      slot.sending = neighbours.start(
          [from = model.stage_output(), values, to = (at_.pp + 1) % ranks](Communicator& all) {
            all.send({from, values, Dtype::kF32}, to, 0);
          });
    }
  }
  for (const auto& chunk : chunks_) chunk->slots.front().settle();
  return sum;
}

std::size_t MeshRank::held_bytes() const {
  std::size_t bytes = gathered_.bytes() + working_.bytes();
  for (const auto& chunk : chunks_) {
    bytes += chunk->state.held_bytes();
    for (const Slot& slot : chunk->slots) bytes += slot.model->held_bytes();
  }
  return bytes;
}

}  // namespace isthmus
