// SPDX-License-Identifier: Apache-2.0
#include "inner/model/model.h"

#include <algorithm>
#include <cmath>

#include "core/base/check.h"
#include "inner/model/copy_values.h"
#include "inner/model/gpt2.h"
#include "inner/model/key_value_cache.h"
#include "inner/model/llama.h"
#include "inner/model/model_embedding.h"
#include "kernels/cross_entropy.h"
#include "kernels/gemm.h"
#include "kernels/norm.h"

namespace isthmus {
namespace {

template <typename T>
std::unique_ptr<Block<kernels::RealOf<T>>> make_block_on(const ModelShape& shape,
                                                         LayerKeeps keeps) {
  return shape.architecture == Architecture::kGpt2 ? make_gpt2_block<T>(shape, keeps)
                                                   : make_llama_block<T>(shape, keeps);
}

template <typename Real>
std::unique_ptr<Block<Real>> make_block(const ModelShape& shape, bool bf16,
                                        typename LanguageModel<Real>::Purpose purpose) {
  const auto keeps = purpose == LanguageModel<Real>::Purpose::kSelective ? LayerKeeps::kProducts
                                                                         : LayerKeeps::kAll;
  if constexpr (std::is_same_v<Real, float>) {
    if (bf16) return make_block_on<kernels::Bf16>(shape, keeps);
  }
  ISTHMUS_CHECK(!bf16, shape.d_model);
  return make_block_on<Real>(shape, keeps);
}

/// Each token's softmax over the rows of all ranks, from one gather: every rank joins the same
/// numbers in rank order and so holds the same bits.
void join_softmax(const TensorGroup& group, std::span<kernels::TokenSoftmax> tokens) {
  static_assert(sizeof(kernels::TokenSoftmax) == 3 * sizeof(double));
  const auto ranks = static_cast<std::size_t>(group.ranks().size());
  const auto own = static_cast<std::int64_t>(3 * tokens.size());
  const std::vector<std::int64_t> counts(ranks, own);
  std::vector<kernels::TokenSoftmax> all(ranks * tokens.size());
  group.ranks().all_gather({tokens.data(), own, Dtype::kF64}, counts,
                           {all.data(), own * static_cast<std::int64_t>(ranks), Dtype::kF64});
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    kernels::TokenSoftmax joined{.top = all[t].top};
    for (std::size_t r = 1; r < ranks; ++r) {
      joined.top = std::max(joined.top, all[r * tokens.size() + t].top);
    }
    for (std::size_t r = 0; r < ranks; ++r) {
      const kernels::TokenSoftmax& part = all[r * tokens.size() + t];
      joined.total += part.total * std::exp(part.top - joined.top);
      joined.target_logit += part.target_logit;
    }
    tokens[t] = joined;
  }
}

/// The embedded tokens, or the gradient of their embeddings, times the family's factor.
template <typename Real>
void scale_embedding(const Pass& pass, const ModelShape& s, Real* stream) {
  constexpr std::int64_t kAtOnce = std::int64_t{1} << 14;
  const Real factor = static_cast<Real>(s.family.embedding_scale);
  if (factor == Real{1}) return;
  pass.team.for_blocks(pass.own_rows() * s.d_model, kAtOnce,
                       [=](std::int64_t begin, std::int64_t end) {
                         for (std::int64_t i = begin; i < end; ++i) stream[i] *= factor;
                       });
}

}  // namespace

LossSum& LossSum::operator+=(const LossSum& other) {
  loss += other.loss;
  z_loss += other.z_loss;
  targets += other.targets;
  return *this;
}

/// For training `stream` holds the residual stream before each layer and after the last one, and
/// each layer has its memory, or all layers share one that is filled again. For inference two rows
/// of `stream` take turns over one memory. In a split backward pass the gradient of each layer's
/// output takes the output's place in `stream`.
template <typename Real>
struct LanguageModel<Real>::Arena {
  static BackwardPart part_of(Purpose purpose) {
    return purpose == Purpose::kSplitBackward ? BackwardPart::kInput : BackwardPart::kAll;
  }

  std::vector<Real*> stream;   // each (own rows, d_model)
  std::vector<void*> memory;   // one a layer, or one
  Real *hidden, *mean, *rstd;  // of the final norm; `hidden` becomes the gradient of the stream
  Real* tables;                // of the block
  Real* other;                 // backward only, and of no use after a call
  void* scratch;               // of no use after a call either

  Arena(ArenaLayout& arena_layout, ArenaLayout& working, const ModelShape& s,
        const Block<Real>& block, std::int64_t rows, Purpose purpose, int row_shares) {
    const std::int64_t own = (rows + row_shares - 1) / row_shares;
    const bool training = purpose != Purpose::kInference;
    const bool keeps = training && purpose != Purpose::kRecompute;
    const std::int64_t layers = training ? s.layers : 1;
    const std::int64_t memories = keeps ? s.layers : 1;
    for (std::int64_t i = 0; i <= layers; ++i)
      stream.push_back(arena_layout.take<Real>(own * s.d_model));
    for (std::int64_t i = 0; i < memories; ++i) {
      memory.push_back(arena_layout.take<std::byte>(block.memory_bytes(rows, own)));
    }
    hidden = arena_layout.take<Real>(own * s.d_model);
    mean = arena_layout.take<Real>(own);
    rstd = arena_layout.take<Real>(own);
    tables = arena_layout.take<Real>(block.table_values());
    other = working.take<Real>(training ? own * s.d_model : 0);
    scratch = working.take<std::byte>(training ? block.scratch_bytes(rows, part_of(purpose)) : 0);
  }
};

template <typename Real>
std::int64_t LanguageModel<Real>::arena_bytes(const ModelLayout& layout, std::int64_t rows,
                                              Purpose purpose, bool bf16, int row_shares) {
  const auto block = make_block<Real>(layout.shape(), bf16, purpose);
  ArenaLayout counter;
  static_cast<void>(Arena(counter, counter, layout.shape(), *block, rows, purpose, row_shares));
  return counter.bytes();
}

template <typename Real>
std::int64_t LanguageModel<Real>::working_bytes(const ModelLayout& layout, std::int64_t rows,
                                                Purpose purpose, bool bf16, int row_shares) {
  const auto block = make_block<Real>(layout.shape(), bf16, purpose);
  ArenaLayout kept, working;
  static_cast<void>(Arena(kept, working, layout.shape(), *block, rows, purpose, row_shares));
  return working.bytes();
}

template <typename Real>
LanguageModel<Real>::LanguageModel(const ModelLayout& layout, std::int64_t rows, Purpose purpose,
                                   bool bf16, int row_shares, void* working)
    : layout_(layout),
      rows_(rows),
      purpose_(purpose),
      bf16_(bf16),
      part_(Arena::part_of(purpose)),
      vocabulary_{0, layout.shape().vocab, layout.shape().vocab},
      block_(make_block<Real>(layout.shape(), bf16, purpose)),
      memory_(static_cast<std::size_t>(
          arena_bytes(layout, rows, purpose, bf16, row_shares) -
          (working == nullptr ? 0 : working_bytes(layout, rows, purpose, bf16, row_shares)))) {
  ArenaLayout own(memory_.data()), borrowed(working);
  arena_ = std::make_unique<const Arena>(own, working == nullptr ? own : borrowed, layout.shape(),
                                         *block_, rows, purpose, row_shares);
  block_->use_tables(arena_->tables);
}

template <typename Real>
LanguageModel<Real>::~LanguageModel() = default;

template <typename Real>
void LanguageModel<Real>::train_adapters(Adapters<Real>* adapters) {
  ISTHMUS_CHECK(block_->has_adapters() && part_ == BackwardPart::kAll);
  adapters_ = adapters;
}

template <typename Real>
void LanguageModel<Real>::enter_layer(std::int64_t layer) {
  if (adapters_ != nullptr) block_->use_adapters(&adapters_->layer(layer));
}

template <typename Real>
void LanguageModel<Real>::check(const TokenBatch& batch) const {
  const std::int64_t tokens = batch.sequences * batch.length;
  ISTHMUS_CHECK(batch.sequences >= 1 && batch.length >= 1, batch.sequences, batch.length);
  ISTHMUS_CHECK(batch.length <= layout_.shape().longest, batch.length, layout_.shape().longest);
  ISTHMUS_CHECK(tokens <= rows_, tokens, rows_);
  ISTHMUS_CHECK(static_cast<std::int64_t>(batch.inputs.size()) == tokens, batch.inputs.size());
  ISTHMUS_CHECK(static_cast<std::int64_t>(batch.targets.size()) == tokens, batch.targets.size());
  const auto starts = static_cast<std::int64_t>(batch.document_starts.size());
  ISTHMUS_CHECK(starts == 0 || starts == tokens, starts, tokens);
}

template <typename Real>
void LanguageModel<Real>::final_norm(const Pass& pass, Weights<Real>& weights, const Real* x) {
  const ModelShape& s = layout_.shape();
  kernels::NormForward<Real> norm{.rows = pass.own_rows(),
                                  .channels = s.d_model,
                                  .eps = s.norm_eps,
                                  .x = x,
                                  .weight_offset = s.family.norm_weight_offset,
                                  .y = arena_->hidden,
                                  .rstd = arena_->rstd};
  norm.weight = weights.tensor(layout_.final_norm_weight());
  if (s.layer_norm()) {
    norm.bias = weights.tensor(layout_.final_norm_bias());
    norm.mean = arena_->mean;
    kernels::layer_norm_forward(pass.team, norm);
  } else {
    kernels::rms_norm_forward(pass.team, norm);
  }
}

template <typename Real>
void LanguageModel<Real>::final_norm_backward(const Pass& pass, Weights<Real>& weights,
                                              const BackwardOptions<Real>& options) {
  const ModelShape& s = layout_.shape();
  kernels::NormBackward<Real> norm{.rows = pass.own_rows(),
                                   .channels = s.d_model,
                                   .dy = arena_->other,
                                   .s = arena_->stream.back(),
                                   .weight = weights.tensor(layout_.final_norm_weight()),
                                   .weight_offset = s.family.norm_weight_offset,
                                   .rstd = arena_->rstd,
                                   .ds = arena_->hidden};
  norm.d_weight = options.tensor(layout_, layout_.final_norm_weight());
  if (s.layer_norm()) {
    norm.mean = arena_->mean;
    norm.d_bias = options.tensor(layout_, layout_.final_norm_bias());
    kernels::layer_norm_backward(pass.team, norm);
  } else {
    kernels::rms_norm_backward(pass.team, norm);
  }
}

template <typename Real>
void LanguageModel<Real>::hold_vocabulary(const VocabularyShare& share) {
  ISTHMUS_CHECK(share.first_row >= 0, share.first_row);
  ISTHMUS_CHECK(share.first_row + layout_.shape().vocab <= share.all_rows, share.first_row);
  vocabulary_ = share;
}

template <typename Real>
Pass LanguageModel<Real>::of_layer(const Pass& pass, std::int64_t layer) const {
  return pass.at(layout_.part().first_layer + layer);
}

template <typename Real>
Real* LanguageModel<Real>::stage_input() const {
  return arena_->stream[0];
}

template <typename Real>
Real* LanguageModel<Real>::stage_gradient() const {
  return arena_->hidden;
}

template <typename Real>
void LanguageModel<Real>::stage_forward(const Pass& pass, Weights<Real>& weights,
                                        const std::int32_t* ids, bool keep) {
  const ModelShape& s = layout_.shape();
  if (layout_.part().embedding) {
    embed(pass, layout_, vocabulary_, weights, ids, arena_->stream[0]);
    scale_embedding(pass, s, arena_->stream[0]);
  }
  const Real* x = arena_->stream[0];
  for (std::int64_t layer = 0; layer < s.layers; ++layer) {
    const auto slot = static_cast<std::size_t>(keep ? layer : 0);
    Real* y = arena_->stream[keep ? slot + 1 : static_cast<std::size_t>(layer + 1) % 2];
    void* memory = arena_->memory[arena_->memory.size() > 1 ? slot : 0];
    enter_layer(layer);
    block_->forward(of_layer(pass, layer), weights.layer(layer), x, memory, arena_->scratch, y);
    x = y;
  }
  output_ = x;
}

template <typename Real>
const Real* LanguageModel<Real>::run_layers(const Pass& pass, Weights<Real>& weights,
                                            const std::int32_t* ids) {
  stage_forward(pass, weights, ids, false);
  final_norm(pass, weights, output_);
  return arena_->hidden;
}

template <typename Real>
LossSum LanguageModel<Real>::stage_head(const Pass& pass, Weights<Real>& weights,
                                        const TokenBatch& batch,
                                        const BackwardOptions<Real>* backward) {
  const ModelShape& s = layout_.shape();
  final_norm(pass, weights, output_);
  kernels::CrossEntropy<Real> ce{
      .tokens = pass.rows(),
      .channels = s.d_model,
      .vocab = s.vocab,
      .hidden = pass.tensor.all_rows<Real>(arena_->hidden, pass.rows(), s.d_model),
      .targets = batch.targets.data()};
  if (weights.by_rows() && backward == nullptr) {
    ce.weight_rows = [&](std::int64_t first, std::int64_t count) {
      return weights.rows(layout_.head(), first, count);
    };
  } else {
    ce.weight = weights.tensor(layout_.head());
  }
  ce.cap = s.family.logit_cap;
  ce.z_loss = s.z_loss;
  ce.bf16 = bf16_;
  if (s.vocab != vocabulary_.all_rows) {
    ce.first_row = vocabulary_.first_row;
    ce.all_rows = vocabulary_.all_rows;
    ce.largest_share = vocabulary_.largest;
    ce.join = [&](std::span<kernels::TokenSoftmax> tokens) { join_softmax(pass.tensor, tokens); };
  }
  if (backward != nullptr) {
    ce.gradient_scale = backward->gradient_scale;
    ce.d_hidden = pass.tensor.summand(arena_->other);  // over `hidden` where rows are split
    ce.d_weight = backward->tensor(layout_, layout_.head());
  }
  const kernels::CrossEntropySum sum = kernels::cross_entropy(pass.team, ce);
  if (backward != nullptr) {
    if (s.vocab != vocabulary_.all_rows) pass.tensor.sum(arena_->other, pass.rows(), s.d_model);
    final_norm_backward(pass, weights, *backward);
  }
  return {.loss = sum.loss, .z_loss = sum.z_loss, .targets = sum.counted};
}

template <typename Real>
void LanguageModel<Real>::stage_backward(const Pass& pass, Weights<Real>& weights,
                                         const std::int32_t* ids,
                                         const BackwardOptions<Real>& options) {
  const ModelShape& s = layout_.shape();
  if (pass.tensor.split()) {
    ISTHMUS_CHECK(pass.rows() % pass.tensor.ranks().size() == 0, pass.rows());
  }
  const auto ready = [&](std::size_t tensor) {
    if (options.on_ready) options.on_ready(tensor);
  };
  if (layout_.part().head) {
    if (!s.tied) ready(layout_.head());
    if (s.layer_norm()) ready(layout_.final_norm_bias());
    ready(layout_.final_norm_weight());
  }
  Real* d_stream = arena_->hidden;
  for (std::int64_t layer = s.layers - 1; layer >= 0; --layer) {
    const auto slot = static_cast<std::size_t>(layer);
    const bool shared = arena_->memory.size() == 1;
    void* memory = arena_->memory[shared ? 0 : slot];
    enter_layer(layer);
    if (shared && layer + 1 != s.layers) {  // the last layer's is still there
      block_->forward(of_layer(pass, layer), weights.layer(layer), arena_->stream[slot], memory,
                      arena_->scratch, arena_->other);
    }
    if (part_ == BackwardPart::kInput) {
      copy_values(pass.team, pass.own_rows() * s.d_model, d_stream, arena_->stream[slot + 1]);
    }
    const std::size_t first = layout_.first_tensor(layer);
    const auto ready_from = [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = end; i-- > begin;) ready(first + i);
    };
    block_->backward(of_layer(pass, layer), part_, weights.layer(layer), arena_->stream[slot],
                     memory, arena_->scratch, arena_->other, d_stream,
                     options.layer(layout_, layer),
                     [&] { ready_from(layout_.upper_half(), layout_.tensors_per_layer()); });
    if (part_ == BackwardPart::kAll) ready_from(0, layout_.upper_half());
  }
  if (adapters_ != nullptr) return;  // frozen
  if (!layout_.part().embedding) {
    if (layout_.part().head && s.tied && !options.last) ready(layout_.head());
    return;
  }
  scale_embedding(pass, s, d_stream);
  const bool gpt2 = s.architecture == Architecture::kGpt2;
  Real* const positions = gpt2 ? options.tensor(layout_, layout_.positions()) : nullptr;
  Real* const table = options.tensor(layout_, layout_.embedding());
  if (EmbeddingRows<Real>* const rows = options.embedding_rows) {
    rows->add(pass, layout_, vocabulary_, d_stream, ids, positions);
    if (options.last && layout_.part().head) rows->add_to(pass.team, table);
  } else {
    add_embedding_gradients(pass, layout_, vocabulary_, d_stream, ids, table, positions);
  }
  if (gpt2) ready(layout_.positions());
  ready(layout_.embedding());
}

template <typename Real>
void LanguageModel<Real>::stage_backward_weight(const Pass& pass,
                                                const BackwardOptions<Real>& options) {
  ISTHMUS_CHECK(part_ == BackwardPart::kInput);
  for (std::int64_t layer = layout_.shape().layers - 1; layer >= 0; --layer) {
    const auto slot = static_cast<std::size_t>(layer);
    block_->backward_weight(of_layer(pass, layer), arena_->memory[slot], arena_->stream[slot + 1],
                            options.layer(layout_, layer));
    if (!options.on_ready) continue;
    const std::size_t first = layout_.first_tensor(layer);
    for (std::size_t i = layout_.tensors_per_layer(); i-- > 0;) options.on_ready(first + i);
  }
}

template <typename Real>
LossSum LanguageModel<Real>::loss(kernels::ThreadTeam& team, Weights<Real>& weights,
                                  const TokenBatch& batch) {
  check(batch);
  const Pass pass = pass_over(team, batch);
  stage_forward(pass, weights, batch.inputs.data(), false);
  return stage_head(pass, weights, batch, nullptr);
}

template <typename Real>
LossSum LanguageModel<Real>::loss_and_gradients(kernels::ThreadTeam& team, Weights<Real>& weights,
                                                const TokenBatch& batch,
                                                const BackwardOptions<Real>& options) {
  ISTHMUS_CHECK(purpose_ != Purpose::kInference);
  check(batch);
  const auto begin = [&](PassPart part) {
    if (options.on_part) options.on_part(part);
  };
  const Pass pass = pass_over(team, batch);
  begin(PassPart::kForward);
  stage_forward(pass, weights, batch.inputs.data(), true);
  begin(PassPart::kHead);
  const LossSum sum = stage_head(pass, weights, batch, &options);
  begin(PassPart::kBackward);
  stage_backward(pass, weights, batch.inputs.data(), options);
  if (part_ == BackwardPart::kInput) stage_backward_weight(pass, options);
  begin(PassPart::kEnd);
  return sum;
}

template <typename Real>
void LanguageModel<Real>::next_token_logits(kernels::ThreadTeam& team, Weights<Real>& weights,
                                            std::span<const std::int32_t> tokens, Real* logits) {
  const auto length = static_cast<std::int64_t>(tokens.size());
  ISTHMUS_CHECK(length >= 1 && length <= layout_.shape().longest && length <= rows_, length);
  const Pass pass{team, 1, length};
  const Real* const hidden = run_layers(pass, weights, tokens.data());
  head_logits(team, weights, hidden + (length - 1) * layout_.shape().d_model, logits);
}

template <typename Real>
void LanguageModel<Real>::next_token_logits(kernels::ThreadTeam& team, Weights<Real>& weights,
                                            KeyValueCache& cache,
                                            std::span<const std::int32_t> tokens, Real* logits) {
  const auto all = static_cast<std::int64_t>(tokens.size());
  ISTHMUS_CHECK(all >= 1 && cache.seen() + all <= layout_.shape().longest, cache.seen(), all);
  for (std::int64_t begin = 0; begin < all; begin += rows_) {
    const Pass pass{.team = team,
                    .sequences = 1,
                    .length = std::min(rows_, all - begin),
                    .cache = &cache,
                    .before = cache.seen()};
    stage_forward(pass, weights, tokens.data() + begin, false);
    cache.add_seen(pass.length);
    if (begin + pass.length < all) continue;
    final_norm({team, 1, 1}, weights, output_ + (pass.length - 1) * layout_.shape().d_model);
    head_logits(team, weights, arena_->hidden, logits);
  }
}

template <typename Real>
void LanguageModel<Real>::head_logits(kernels::ThreadTeam& team, Weights<Real>& weights,
                                      const Real* hidden, Real* logits) const {
  const std::int64_t d = layout_.shape().d_model;
  kernels::gemm<Real>(team, {.m = 1,
                             .n = layout_.shape().vocab,
                             .k = d,
                             .a = hidden,
                             .lda = d,
                             .b = weights.tensor(layout_.head()),
                             .ldb = d,
                             .b_transposed = true,
                             .c = logits,
                             .ldc = layout_.shape().vocab,
                             .bf16 = bf16_});
  const Real cap = static_cast<Real>(layout_.shape().family.logit_cap);
  for (std::int64_t i = 0; cap > 0 && i < layout_.shape().vocab; ++i) {
    logits[i] = cap * std::tanh(logits[i] / cap);
  }
}

template class LanguageModel<float>;
template class LanguageModel<double>;

}  // namespace isthmus
