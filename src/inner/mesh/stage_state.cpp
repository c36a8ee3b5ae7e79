// SPDX-License-Identifier: Apache-2.0
#include "inner/mesh/stage_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "core/base/check.h"
#include "inner/mesh/tensor_sums.h"
#include "isthmus/codec.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {
constexpr auto kFloatBytes = static_cast<std::int64_t>(sizeof(float));
constexpr int kRowsTag = 1001;  // of messages between first and last stage

CanonicalRange all_of(const RankLayout& layout) { return {0, layout.local().elements()}; }

CanonicalRange own_slice(const RankLayout& layout, const StageStateOptions& options) {
  return slice_of(layout.local().elements(), options.ranks, options.rank);
}

/// The range whose weights the rank has memory for.
CanonicalRange weights_held(const RankLayout& layout, const StageStateOptions& options) {
  if (layout.whole() && !options.own_weights) return {0, 0};
  return options.trains && options.zero == 3 ? own_slice(layout, options) : all_of(layout);
}

CanonicalRange gradients_held(const RankLayout& layout, const StageStateOptions& options) {
  if (!options.trains) return {0, 0};
  return options.zero >= 2 ? own_slice(layout, options) : all_of(layout);
}

void add_decoded(const Codec& codec, std::span<const std::byte> codes, std::span<float> values) {
  const auto added = decode_add(codec, codes, values);
  if (added) return;
  throw RunError(
      fmt::format("what an update changes is no {} ({}): the run has diverged; lower inner.lr or "
                  "set inner.clip",
                  codec.name(), added.error().what));
}

/// A tied table's gradient has two parts, and this stage adds the embedding's.
bool has_tied_embedding(const RankLayout& layout, const StageStateOptions& options) {
  return options.trains && layout.local().part().embedding && layout.local().shape().tied;
}

EmbeddingRowsSize rows_size(const RankLayout& layout, const StageStateOptions& options) {
  return embedding_rows_size(layout.local(), options.tokens, options.micro_batches);
}

StateArray array_of(CanonicalRange range) {
  return StateArray::unfilled(static_cast<std::size_t>(range.size()));
}
}  // namespace

StageState::StageState(const RankLayout& layout, const StageStateOptions& options,
                       const MeshGroups& groups)
    : layout_(layout),
      groups_(groups),
      options_(options),
      weights_memory_(array_of(weights_held(layout, options))),
      gradients_memory_(array_of(gradients_held(layout, options))),
      own_weights_{weights_memory_.data(), weights_held(layout, options)},
      gradients_{gradients_memory_.data(), gradients_held(layout, options)} {
  if (own_weights_.range.size() == 0) own_weights_.values = nullptr;
  if (own_weights_.values != nullptr) {
    flat_weights_.emplace(layout.local(), own_weights_.values, true, flat_gradients());
  }
  if (has_tied_embedding(layout, options)) embedding_rows_.emplace(rows_size(layout, options));
  if (options.trains && options.zero <= 1 && options.ranks > 1) {
    reduction_.emplace(layout, options.buckets, groups, gradients_.values);
  }
  if (options.zero == 0 || !options.trains) return;
  optimizer_.emplace(options.inner, layout.local(), owned());
  if (options.zero < 3 && !groups.state_codec->lossless()) change_codec_ = groups.state_codec.get();
  if (options.zero == 1) return;
  buckets_.emplace(layout.local());
  reduced_.emplace(layout, *buckets_, groups, gradients_);
  if (options.zero == 3 && own_weights_.values != nullptr) {
    flat_weights_.reset();
    gathered_.emplace(*buckets_, *groups.data, own_weights_);
  }
}

std::int64_t StageState::stored_bytes(const RankLayout& layout, const StageStateOptions& options) {
  std::int64_t values =
      weights_held(layout, options).size() + gradients_held(layout, options).size();
  if (options.zero >= 1 && options.trains) {
    values += InnerOptimizer::moment_values(options.inner, owned(layout, options).size());
  }
  return values * kFloatBytes;
}

std::int64_t StageState::bytes(const RankLayout& layout, const StageStateOptions& options) {
  std::int64_t bytes = stored_bytes(layout, options);
  if (options.zero >= 2 && options.trains) {
    const std::int64_t buffers = ParameterBuckets(layout.local()).memory_values() * kFloatBytes;
    const bool gathers = options.zero == 3 && (options.own_weights || !layout.whole());
    bytes += gathers ? 2 * buffers : buffers;
  }
  if (has_tied_embedding(layout, options)) {
    bytes += EmbeddingRows<float>::bytes(rows_size(layout, options));
  }
  return bytes;
}

std::size_t StageState::held_bytes() const {
  return (weights_memory_.size() + gradients_memory_.size()) * sizeof(float) +
         (optimizer_ ? optimizer_->held_bytes() : 0) + (gathered_ ? gathered_->held_bytes() : 0) +
         (reduced_ ? reduced_->held_bytes() : 0) +
         static_cast<std::size_t>(embedding_rows_ ? embedding_rows_->held_bytes() : 0);
}

CanonicalRange StageState::slice() const { return own_slice(layout_, options_); }

CanonicalRange StageState::owned(const RankLayout& layout, const StageStateOptions& options) {
  return common(own_slice(layout, options),
                {layout.tied_embedding().end, layout.local().elements()});
}

std::span<const float> StageState::flat_gradients() const {
  return options_.zero >= 2 ? std::span<const float>() : gradients_memory_.span();
}

void StageState::use(const float* canonical) {
  if (own_weights_.values != nullptr) {
    forget_gathered();
    layout_.take(canonical, own_weights_.range, own_weights_.values);
    wrote_weights();
  } else {
    flat_weights_.emplace(layout_.local(), canonical, false, flat_gradients());
  }
}

Weights<float>& StageState::weights() {
  if (gathered_) return *gathered_;
  ISTHMUS_CHECK(flat_weights_.has_value());
  return *flat_weights_;
}

void StageState::wrote_weights() const { state_done(weights_memory_.span(), StateUse::kWrite); }

void StageState::forget_gathered() {
  if (gathered_) gathered_->forget();
}

void StageState::walk_weights() {
  if (gathered_) gathered_->walk();
}

BackwardOptions<float> StageState::backward_options(double gradient_scale, bool last) {
  BackwardOptions<float> options{.gradient_scale = gradient_scale,
                                 .gradients = gradients_.values,
                                 .embedding_rows = embedding_rows_ ? &*embedding_rows_ : nullptr,
                                 .last = last};
  if (reduced_) {
    options.places = &*reduced_;
    options.on_ready = [this](std::size_t tensor) { reduced_->ready(tensor); };
  } else if (reduction_ && last) {
    options.on_ready = [this](std::size_t tensor) { reduction_->ready(tensor); };
  }
  return options;
}

void StageState::begin_step() {
  first_of_step_ = true;
  if (embedding_rows_) embedding_rows_->begin();
  if (reduction_) reduction_->begin();
  if (!reduced_) gradients_memory_.fill_zero();
}

void StageState::begin_forward() {
  if (gathered_) gathered_->forward();
  if (flat_weights_) flat_weights_->forward();
}

void StageState::begin_backward() {
  if (gathered_) gathered_->backward();
  if (flat_weights_) flat_weights_->backward();
  if (reduced_) reduced_->begin(std::exchange(first_of_step_, false));
}

void StageState::end_micro_batch() {
  if (reduced_) reduced_->finish();
}

void StageState::give_embedding_rows(int to) const {
  ISTHMUS_CHECK(embedding_rows_.has_value());
  const std::span<const std::int32_t> tokens = embedding_rows_->tokens();
  const std::span<const float> values = embedding_rows_->values();
  groups_.world.send({tokens.data(), static_cast<std::int64_t>(tokens.size()), Dtype::kI32}, to,
                     kRowsTag);
  groups_.world.send({values.data(), static_cast<std::int64_t>(values.size()), Dtype::kF32}, to,
                     kRowsTag);
}

void StageState::take_embedding_rows(kernels::ThreadTeam& team, int from) {
  const ModelLayout& local = layout_.local();
  const EmbeddingRowsSize size = rows_size(layout_, options_);
  const std::int64_t count = size.most() * size.channels;
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(size.most()));
  const kernels::AlignedBuffer values(static_cast<std::size_t>(count) * sizeof(float));
  groups_.world.receive({tokens.data(), size.most(), Dtype::kI32}, from, kRowsTag);
  groups_.world.receive({values.data(), count, Dtype::kF32}, from, kRowsTag);
  const BackwardOptions<float> options = backward_options(1, true);
  add_rows(team, tokens, static_cast<const float*>(values.data()), size.channels,
           options.tensor(local, local.head()));
  if (options.on_ready) options.on_ready(local.head());
  end_micro_batch();
}

void StageState::sum_gradients() {
  if (reduced_) return;  // done by now
  if (reduction_) {
    reduction_->finish();
  } else {
    sum_over_tensor_ranks(layout_, groups_, gradients_.range, gradients_.values);
  }
}

LocalValues StageState::owned_values(RankValues what) const {
  const CanonicalRange own = owned();
  switch (what) {
    case RankValues::kWeights:
      return {own_weights_.at(own.begin), own};
    case RankValues::kGradients:
      return {gradients_.at(own.begin), own};
    case RankValues::kMoment1:
    case RankValues::kMoment2:
      break;
  }
  ISTHMUS_CHECK(optimizer_.has_value());
  const std::span<float> moment = optimizer_->moment(what == RankValues::kMoment1 ? 0 : 1);
  ISTHMUS_CHECK(static_cast<std::int64_t>(moment.size()) == own.size(), moment.size());
  return {moment.data(), own};
}

void StageState::update(kernels::ThreadTeam& team, double lr, double gradient_scale,
                        float* canonical) {
  ISTHMUS_CHECK(optimizer_.has_value());
  const CanonicalRange own = owned();
  const auto count = static_cast<std::size_t>(own.size());
  float* const values =
      own_weights_.values != nullptr ? own_weights_.at(own.begin) : canonical + own.begin;
  std::vector<float> before;
  if (gives_changes()) before.assign(values, values + count);
  optimizer_->update(team, lr, gradient_scale, {values, count}, {gradients_.at(own.begin), count});
  if (gives_changes()) {
    change_ = round_change(std::move(before), {values, count});
    if (canonical != nullptr) change_ = {};  // where all ranks see the weights
  }
  if (own_weights_.values != nullptr && canonical != nullptr) {
    layout_.give(values, own, canonical);
  }
  forget_gathered();
}

CanonicalRange StageState::owned_by(int dp) const {
  StageStateOptions options = options_;
  options.rank = dp;
  return owned(layout_, options);
}

std::int64_t StageState::change_bytes(int dp) const {
  return static_cast<std::int64_t>(
      encoded_bytes(*change_codec_, static_cast<std::size_t>(owned_by(dp).size())));
}

std::vector<std::byte> StageState::round_change(std::vector<float> before,
                                                std::span<float> values) const {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float updated = std::exchange(values[i], before[i]);
    before[i] = updated - before[i];
  }
  Encoded code = encode(*change_codec_, before);
  add_decoded(*change_codec_, code.bytes, values);
  return std::move(code.bytes);
}

void StageState::add_change(int dp, std::span<const std::byte> codes) {
  const CanonicalRange range = owned_by(dp);
  if (range.size() == 0) return;
  add_decoded(*change_codec_, codes,
              {own_weights_.at(range.begin), static_cast<std::size_t>(range.size())});
}

void StageState::reset_optimizer(std::int64_t updates) {
  ISTHMUS_CHECK(optimizer_.has_value());
  optimizer_->reset(updates);
}

}  // namespace isthmus
