// SPDX-License-Identifier: Apache-2.0
#include "inner/cuda/cuda_mesh_rank.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "inner/mesh/mesh_rules.h"
#include "inner/model/samples.h"
#include "kernels/cuda/embedding.h"

namespace isthmus {
namespace {

constexpr int kTableTag = 1002;  // of messages between first and last stage

CudaChunkOptions chunk_options(const CudaMeshRankOptions& options, const MeshPosition& at, int k) {
  using Purpose = CudaModelOptions::Purpose;
  const MeshOptions& mesh = options.mesh;
  const bool again = mesh.purpose == LanguageModel<float>::Purpose::kRecompute;
  return {.model = {.sequences = mesh.micro_batch_sequences(),
                    .length = mesh.context,
                    .purpose = again ? Purpose::kRecompute : Purpose::kTraining,
                    .bf16 = mesh.bf16,
                    .attention = options.attention,
                    .logits_bytes = options.logits_bytes},
          .inner = mesh.inner,
          .slots = MeshRank::slots(mesh, at.pp, k)};
}

std::unique_ptr<CudaGroup> group_of(Communicator& world, int ranks, int color, int key, int device,
                                    const DeviceSums& sums) {
  std::unique_ptr<Communicator> group = world.split(color, key);
  if (ranks == 1) return nullptr;
  return std::make_unique<CudaGroup>(std::move(group), device, sums);
}

}  // namespace

/// Samples of a pass on the device.
class CudaMeshRank::Tokens {
 public:
  Tokens(std::int64_t most, std::int64_t vocab)
      : most_(most), vocab_(vocab), host_(3 * size()), device_(3 * size()) {}
  [[nodiscard]] static std::int64_t bytes(std::int64_t most) {
    return 3 * most * static_cast<std::int64_t>(sizeof(std::int32_t));
  }

  /// Queues the copy of all of `batch`, of which micro-batches are `parts` equal ones; sorted: with
  /// their order. REQUIRES: work that reads the earlier batch has ended.
  void put(cuda::Stream& stream, const TokenBatch& batch, std::int64_t parts, bool sorted) {
    const std::int64_t all = batch.sequences * batch.length;
    ISTHMUS_CHECK(all <= most_, all, most_);
    const auto no_id = [&](std::int32_t id) { return id < 0 || id >= vocab_; };
    const auto beyond = [&](std::int32_t id) { return id >= vocab_; };
    ISTHMUS_CHECK(std::ranges::none_of(batch.inputs, no_id), vocab_);
    ISTHMUS_CHECK(std::ranges::none_of(batch.targets, beyond), vocab_);
    part_ = {.sequences = batch.sequences / parts, .length = batch.length};
    std::int32_t* const ids = host_.data();
    std::ranges::copy(batch.inputs, ids);
    std::ranges::copy(batch.targets, ids + most_);
    for (std::int64_t at = 0; sorted && at < all; at += part_.rows()) {
      cuda::embedding_order(part_.rows(), vocab_, ids + at, ids + 2 * most_ + at);
    }
    cuda::copy<std::int32_t>(stream, device_.data(), ids, 3 * size());
  }
  [[nodiscard]] std::size_t pinned_bytes() const { return host_.bytes(); }
  [[nodiscard]] CudaTokens part(std::int64_t index) const {
    CudaTokens tokens = part_;
    tokens.ids = device_.data() + index * part_.rows();
    tokens.targets = tokens.ids + most_;
    tokens.order = tokens.targets + most_;
    return tokens;
  }

 private:
  [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(most_); }

  std::int64_t most_, vocab_;
  cuda::PinnedArray<std::int32_t> host_;
  cuda::DeviceArray<std::int32_t> device_;
  CudaTokens part_;
};

CudaMeshRank::CudaMeshRank(const ModelLayout& canonical, const CudaMeshRankOptions& options,
                           Communicator& world, int device, const DeviceSums& sums)
    : options_(options),
      at_(mesh_position(options.mesh.mesh, world.rank())),
      world_(world),
      schedule_(MeshRank::schedule(options.mesh)),
      totals_(1),
      host_totals_(1) {
  const MeshShape& mesh = options.mesh.mesh;
  const int copies = key_copies(canonical.shape(), mesh.tp);
  tensor_ = group_of(world, mesh.tp, at_.pp * mesh.dp + at_.dp, at_.tp, device, sums);
  data_ = group_of(world, mesh.dp, at_.pp * mesh.tp + at_.tp, at_.dp, device, sums);
  copies_ = group_of(world, copies, world.rank() / copies, at_.tp, device, sums);
  pipeline_ = world.split(at_.dp * mesh.tp + at_.tp, at_.pp);
  const std::int64_t message = rows() * canonical.shape().d_model;
  if (mesh.pp > 1) message_ = cuda::PinnedArray<float>(static_cast<std::size_t>(message));
  tokens_ = std::make_unique<Tokens>(rows() * options.mesh.micro_batches, canonical.shape().vocab);
  std::vector<RankLayout> layouts = MeshRank::layouts(canonical, options.mesh, world.rank());
  for (std::size_t k = 0; k < layouts.size(); ++k) {
    chunks_.push_back(std::make_unique<CudaChunk>(std::move(layouts[k]),
                                                  chunk_options(options, at_, static_cast<int>(k)),
                                                  tensor(), blas_, stream_));
  }
}

CudaMeshRank::~CudaMeshRank() = default;

MemoryEstimate CudaMeshRank::memory(const ModelLayout& canonical,
                                    const CudaMeshRankOptions& options, int rank) {
  const MeshOptions& mesh = options.mesh;
  const MeshPosition at = mesh_position(mesh.mesh, rank);
  MemoryEstimate sum;
  const std::vector<RankLayout> layouts = MeshRank::layouts(canonical, mesh, rank);
  for (std::size_t k = 0; k < layouts.size(); ++k) {
    sum += CudaChunk::memory(layouts[k], chunk_options(options, at, static_cast<int>(k)),
                             mesh.mesh.tp);
  }
  sum.update += Tokens::bytes(mesh.sequences / mesh.mesh.dp * mesh.context) +
                static_cast<std::int64_t>(sizeof(Totals));
  return sum;
}

int CudaMeshRank::stage_rank(int pp) const {
  return mesh_rank(options_.mesh.mesh, {.tp = at_.tp, .pp = pp, .dp = at_.dp});
}

std::int64_t CudaMeshRank::rows() const {
  return options_.mesh.micro_batch_sequences() * options_.mesh.context;
}

void CudaMeshRank::use(const float* canonical) {
  for (const auto& chunk : chunks_) chunk->use(canonical);
}

void CudaMeshRank::use_own() {
  for (const auto& chunk : chunks_) chunk->use_own();
}

void CudaMeshRank::collect(RankValues what, TensorRange tensors, float* canonical) {
  for (const auto& chunk : chunks_) chunk->collect(what, tensors, canonical);
}

void CudaMeshRank::hand_out(RankValues what, TensorRange tensors, const float* canonical) {
  for (const auto& chunk : chunks_) chunk->hand_out(what, tensors, canonical);
}

void CudaMeshRank::write_squares(TensorSquares& squares) {
  for (const auto& chunk : chunks_) chunk->write_squares(squares);
}

void CudaMeshRank::reset_optimizer(std::int64_t updates) {
  for (const auto& chunk : chunks_) chunk->reset_optimizer(updates);
}

void CudaMeshRank::check(const TokenBatch& batch) const {
  ISTHMUS_CHECK(batch.length >= 1 && batch.length <= options_.mesh.context, batch.length);
  const auto tokens = static_cast<std::size_t>(batch.sequences * batch.length);
  ISTHMUS_CHECK(batch.inputs.size() == tokens, batch.inputs.size(), tokens);
  ISTHMUS_CHECK(batch.targets.size() == tokens, batch.targets.size(), tokens);
}

void CudaMeshRank::begin_losses() { cuda::fill_zero(stream_, &totals_.data()->losses, 1); }

LossSum CudaMeshRank::losses() {
  cuda::copy<cuda::LossTotals>(stream_, &host_totals_.data()->losses, &totals_.data()->losses, 1);
  stream_.synchronize();
  const cuda::LossTotals& sum = host_totals_.data()->losses;
  return {.loss = sum.loss, .z_loss = sum.z_loss, .targets = sum.targets};
}

LossSum CudaMeshRank::train(const TokenBatch& batch, double gradient_scale) {
  ISTHMUS_CHECK(batch.sequences == options_.mesh.sequences, batch.sequences);
  check(batch);
  const std::int64_t own = batch.sequences / options_.mesh.mesh.dp;
  tokens_->put(stream_, samples_of(batch, at_.dp * own, own), options_.mesh.micro_batches,
               chunks_.front()->first());
  begin_losses();
  host_totals_.data()->gradient_scale = gradient_scale;
  cuda::copy<double>(stream_, &totals_.data()->gradient_scale, &host_totals_.data()->gradient_scale,
                     1);
  for (const auto& chunk : chunks_) chunk->clear_gradients();
  for (const PipelineOp& op : schedule_.operations[static_cast<std::size_t>(at_.pp)]) {
    run(op);
  }
  stream_.synchronize();
  give_table_gradients();
  sum_gradients();
  return losses();
}

void CudaMeshRank::run(const PipelineOp& op) {
  CudaChunk& chunk = *chunks_[static_cast<std::size_t>(op.chunk)];
  CudaChunk::Slot& slot = chunk.slot_of(op.micro_batch);
  CudaModel& model = *slot.model;
  const CudaTokens tokens = tokens_->part(op.micro_batch);
  const CudaGradients gradients{.flat = chunk.gradients(),
                                .scale = &totals_.data()->gradient_scale};
  const std::int64_t values = tokens.rows() * chunk.layout().local().shape().d_model;
  const auto tag = [&] { return pipeline_message(schedule_, at_.pp, op); };
  switch (op.kind) {
    case PipelineOpKind::kReceiveForward:
      receive(model.stage_input(), values, op.peer, tag());
      break;
    case PipelineOpKind::kForward:
      model.stage_forward(stream_, chunk.values(), tokens, true);
      if (!chunk.last()) break;
      model.stage_head(stream_, chunk.values(), tokens, &gradients, &totals_.data()->losses);
      break;
    case PipelineOpKind::kSendForward:
      send(model.stage_output(), values, op.peer, tag());
      break;
    case PipelineOpKind::kReceiveBackward:
      receive(model.stage_gradient(), values, op.peer, tag());
      break;
    case PipelineOpKind::kBackward:
      model.stage_backward(stream_, chunk.values(), tokens, gradients);
      if (chunk.first()) slot.micro_batch = -1;
      break;
    case PipelineOpKind::kSendBackward:
      send(model.stage_gradient(), values, op.peer, tag());
      slot.micro_batch = -1;
      break;
    case PipelineOpKind::kBackwardInput:
    case PipelineOpKind::kBackwardWeight:
      ISTHMUS_CHECK(false, static_cast<int>(op.kind));  // refused: no split backward pass here
  }
}

void CudaMeshRank::send(const float* from, std::int64_t values, int peer, int tag) {
  cuda::copy<float>(stream_, message_.data(), from, static_cast<std::size_t>(values));
  stream_.synchronize();
  pipeline_->send({message_.data(), values, Dtype::kF32}, peer, tag);
}

void CudaMeshRank::receive(float* into, std::int64_t values, int peer, int tag) {
  pipeline_->receive({message_.data(), values, Dtype::kF32}, peer, tag);
  cuda::copy<float>(stream_, into, message_.data(), static_cast<std::size_t>(values));
  stream_.synchronize();
}

void CudaMeshRank::sum_gradients() {
  stream_.synchronize();
  for (const auto& chunk : chunks_) {
    if (tensor_) sum_over_tensor_ranks(*chunk);
    if (!data_) continue;
    const RankLayout& layout = chunk->layout();
    const std::int64_t first = layout.tied_embedding().end;
    data_->sum(chunk->gradients() + first, layout.local().elements() - first);
  }
}

void CudaMeshRank::sum_over_tensor_ranks(CudaChunk& chunk) {
  for (const CanonicalRange& partial : chunk.layout().partial()) {
    tensor_->sum(chunk.gradients() + partial.begin, partial.size());
  }
  for (const CanonicalRange& copied : chunk.layout().copied()) {
    copies_->sum(chunk.gradients() + copied.begin, copied.size());
  }
}

void CudaMeshRank::give_table_gradients() {
  CudaChunk& lowest = *chunks_.front();
  CudaChunk& highest = *chunks_.back();
  const auto values_of = [](CudaChunk& chunk) {
    return Values{chunk.host_table(), chunk.table().size(), Dtype::kF32};
  };
  if (lowest.first() && lowest.table().size() > 0) {
    lowest.read_table(RankValues::kGradients);
    const Values table = values_of(lowest);
    world_.send({table.data, table.count, table.dtype}, stage_rank(options_.mesh.mesh.pp - 1),
                kTableTag);
  }
  if (highest.last() && highest.table().size() > 0) {
    world_.receive(values_of(highest), stage_rank(0), kTableTag);
    highest.add_table_gradients();
  }
}

void CudaMeshRank::give_table() {
  CudaChunk& lowest = *chunks_.front();
  CudaChunk& highest = *chunks_.back();
  if (highest.last() && highest.table().size() > 0) {
    highest.read_table(RankValues::kWeights);
    world_.send({highest.host_table(), highest.table().size(), Dtype::kF32}, stage_rank(0),
                kTableTag);
  }
  if (lowest.first() && lowest.table().size() > 0) {
    world_.receive({lowest.host_table(), lowest.table().size(), Dtype::kF32},
                   stage_rank(options_.mesh.mesh.pp - 1), kTableTag);
    lowest.take_table();
  }
}

void CudaMeshRank::update(double lr, double gradient_scale) {
  for (const auto& chunk : chunks_) chunk->update(lr, gradient_scale);
  give_table();
}

LossSum CudaMeshRank::loss(const TokenBatch& batch) {
  check(batch);
  const MeshShape& mesh = options_.mesh.mesh;
  const CanonicalRange own = slice_of(batch.sequences, mesh.dp, at_.dp);
  const std::int64_t at_once = rows() / batch.length;
  begin_losses();
  for (std::int64_t first = own.begin; first < own.end; first += at_once) {
    const TokenBatch part = samples_of(batch, first, std::min(at_once, own.end - first));
    tokens_->put(stream_, part, 1, false);
    const CudaTokens tokens = tokens_->part(0);
    for (const auto& chunk : chunks_) {
      CudaModel& model = *chunk->slots().front().model;
      const std::int64_t values = tokens.rows() * chunk->layout().local().shape().d_model;
      if (!chunk->first()) {
        receive(model.stage_input(), values, (at_.pp + mesh.pp - 1) % mesh.pp, 0);
      }
      model.stage_forward(stream_, chunk->values(), tokens, false);
      if (chunk->last()) {
        model.stage_head(stream_, chunk->values(), tokens, nullptr, &totals_.data()->losses);
      } else {
        send(model.stage_output(), values, (at_.pp + 1) % mesh.pp, 0);
      }
    }
    stream_.synchronize();  // then the next samples may be put
  }
  return losses();
}

std::size_t CudaMeshRank::pinned_bytes() const {
  std::size_t bytes = message_.bytes() + tokens_->pinned_bytes();
  for (const auto* group : {tensor_.get(), data_.get(), copies_.get()}) {
    if (group != nullptr) bytes += group->pinned_bytes();
  }
  for (const auto& chunk : chunks_) bytes += chunk->pinned_bytes();
  return bytes;
}

}  // namespace isthmus
