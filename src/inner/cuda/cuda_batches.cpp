// SPDX-License-Identifier: Apache-2.0
#include "inner/cuda/cuda_batches.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "core/base/check.h"
#include "inner/mesh/training_step.h"
#include "kernels/cuda/embedding.h"

namespace isthmus {
namespace {
constexpr std::int64_t kArrays = 3;  // ids, targets, order
}  // namespace

CudaBatches::CudaBatches(const Shape& shape, std::function<TokenBatch(StepIndex)> batches)
    : shape_(shape),
      batches_(std::move(batches)),
      pinned_(static_cast<std::size_t>(kArrays * rows())),
      ahead_(pinned_.size()),
      place_(pinned_.size()) {}

std::int64_t CudaBatches::device_bytes(const Shape& shape) {
  return 2 * kArrays * shape.sequences * shape.context *
         static_cast<std::int64_t>(sizeof(std::int32_t));
}

void CudaBatches::check_ids(const TokenBatch& batch) const {
  // Whole windows alone: device_obstacle (config/schema/device_request.h) refuses data.pack.
  ISTHMUS_CHECK(batch.document_starts.empty(), batch.document_starts.size());
  const auto beyond = [&](std::int32_t id) { return id >= shape_.vocab; };
  const auto no_id = [&](std::int32_t id) { return id < 0 || id >= shape_.vocab; };
  ISTHMUS_CHECK(std::ranges::none_of(batch.inputs, no_id), shape_.vocab);
  ISTHMUS_CHECK(std::ranges::none_of(batch.targets, beyond), shape_.vocab);
}

void CudaBatches::read(StepIndex t) {
  read_step_.reset();
  const TokenBatch batch = batches_(t);
  ISTHMUS_CHECK(batch.sequences == shape_.sequences, batch.sequences, shape_.sequences);
  ISTHMUS_CHECK(batch.length >= 1 && batch.length <= shape_.context, batch.length);
  const std::int64_t all = batch.sequences * batch.length;
  ISTHMUS_CHECK(static_cast<std::int64_t>(batch.inputs.size()) == all, batch.inputs.size());
  ISTHMUS_CHECK(static_cast<std::int64_t>(batch.targets.size()) == all, batch.targets.size());
  check_ids(batch);
  copied_.synchronize();  // then pinned_ may be written
  std::int32_t* const ids = pinned_.data();
  std::ranges::copy(batch.inputs, ids);
  std::ranges::copy(batch.targets, ids + rows());
  const std::int64_t part = all / shape_.micro_batches;
  for (std::int64_t at = 0; at < all; at += part) {
    cuda::embedding_order(part, shape_.vocab, ids + at, ids + 2 * rows() + at);
  }
  copies_.wait(taken_);
  cuda::copy(copies_, ahead_.data(), pinned_.data(), pinned_.size());
  copied_.record(copies_);
  step_ = {.length = batch.length, .targets = counted_targets(batch)};
  read_step_ = t.value();
}

CudaBatches::Step CudaBatches::take(cuda::Stream& compute, StepIndex t) {
  if (read_step_ != t.value()) read(t);
  compute.wait(copied_);
  cuda::copy(compute, place_.data(), ahead_.data(), ahead_.size());
  taken_.record(compute);
  return step_;
}

void CudaBatches::read_ahead(StepIndex t) {
  if (t.value() >= shape_.last_step) return;
  try {
    read(StepIndex(t.value() + 1));
  } catch (const std::exception&) {
    read_step_.reset();  // it comes again when the step does, if it does
  }
}

CudaTokens CudaBatches::part(const Step& step, std::int64_t part) const {
  const std::int64_t sequences = shape_.sequences / shape_.micro_batches;
  const std::int32_t* const ids = place_.data() + part * sequences * step.length;
  return {.ids = ids,
          .targets = ids + rows(),
          .order = ids + 2 * rows(),
          .sequences = sequences,
          .length = step.length};
}

CudaTokens CudaBatches::put(cuda::Stream& compute, const TokenBatch& samples) {
  ISTHMUS_CHECK(samples.sequences * samples.length <= rows_of_part(), samples.sequences,
                samples.length);
  check_ids(samples);
  std::int32_t* const ids = place_.data();
  cuda::copy(compute, ids, samples.inputs.data(), samples.inputs.size());
  cuda::copy(compute, ids + rows(), samples.targets.data(), samples.targets.size());
  compute.synchronize();
  return {.ids = ids,
          .targets = ids + rows(),
          .sequences = samples.sequences,
          .length = samples.length};
}

}  // namespace isthmus
