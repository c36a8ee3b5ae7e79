// SPDX-License-Identifier: Apache-2.0
#include "transport/exchange/result_builder.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "quant/codecs/error_feedback.h"
#include "transport/wire/contributor_bits.h"
#include "transport/wire/frame.h"

namespace isthmus {

ResultBuilder::ResultBuilder(std::shared_ptr<const RoundRoutes> routes, Options options)
    : routes_(std::move(routes)),
      options_(std::move(options)),
      done_(routes_->parts()),
      open_parts_(routes_->parts()) {
  const auto members = static_cast<std::size_t>(routes_->members());
  contributes_.assign(members, true);
  if (routes_->plan().kind == ReductionKind::kCollect) {
    collected_.resize(members);
  } else {
    values_.reserve(options_.values);
  }
  if (options_.keeps_encoded) reserve_encoded();
  if (open_parts_ == 0) begin_digest();
}

void ResultBuilder::reserve_encoded() {
  const ReductionPlan& plan = routes_->plan();
  std::size_t shares = 1;
  if (plan.kind == ReductionKind::kGather) {
    shares = 0;
    for (std::size_t m = 0; m < contributes_.size(); ++m) shares += routes_->takes_part(m) ? 1 : 0;
  }
  const std::size_t bytes = plan.parts.empty() ? 0 : encoded_bytes(codec(), options_.values);
  const bool smaller = shares * bytes < options_.values * sizeof(float);
  if (!smaller || plan.kind == ReductionKind::kCollect) return;
  const bool reduces = plan.kind == ReductionKind::kReduce;
  encoded_ = {plan.parts.size(), reduces ? bitmap_bytes(routes_->members()) : 0};
}

bool ResultBuilder::agree_on(const std::vector<bool>& contributes) {
  if (contributors_known_ && contributes != contributes_) return false;
  contributes_ = contributes;
  contributors_known_ = true;
  return true;
}

// Parts come about in their order, so the vector's zeros are overwritten while they are in the
// cache.
std::span<float> ResultBuilder::values_of(const Part& part) {
  values_.resize(std::max(values_.size(), part.first_value + part.values));
  return std::span(values_).subspan(part.first_value, part.values);
}

Expected<void, ReduceError> ResultBuilder::reduce(std::size_t k,
                                                  std::span<const WeightedBytes> inputs) {
  return reduce_tiles(codec(), inputs, values_of(routes_->part(k)));
}

void ResultBuilder::collect(std::size_t k, std::span<const FrameBytes> inputs) {
  const std::vector<Part>& parts = routes_->plan().parts;
  const std::size_t whole = parts.back().offset + parts.back().bytes;
  for (std::size_t m = 0; m < collected_.size(); ++m) {
    if (contributes_[m]) {
      collected_[m].resize(whole);
      std::ranges::copy(payload_of(inputs[m]),
                        std::span(collected_[m]).subspan(parts[k].offset).begin());
    }
  }
}

Expected<void, std::string> ResultBuilder::decode_part(std::size_t k,
                                                       std::span<const std::byte> bytes) {
  if (auto ok = decode(codec(), bytes, values_of(routes_->part(k))); !ok) {
    return Unexpected<std::string>(ok.error().what);
  }
  return {};
}

/// The residual of a part that this member owns. Empty without a residual, and if no member
/// contributes: such a mean is not used, so no part of the residual may leave with it.
std::span<float> ResultBuilder::owner_residual(const Part& part) {
  const std::shared_ptr<OwnerResidual>& residual = options_.owner_residual;
  if (residual == nullptr || std::ranges::find(contributes_, true) == contributes_.end()) {
    return {};
  }
  const std::vector<Part>& parts = routes_->plan().parts;
  const auto own = [&](const Part& each) { return each.owner == routes_->self(); };
  const auto first = std::ranges::find_if(parts, own);
  std::size_t owned = 0;
  for (const Part& each : parts) owned += own(each) ? each.values : 0;
  if (residual->values.size() != owned || residual->first != first->first_value) {
    residual->values.assign(owned, 0.0f);
    residual->first = first->first_value;
  }
  return std::span(residual->values).subspan(part.first_value - first->first_value, part.values);
}

/// The part's values as `worker`; a residual of as many values is added before they are encoded.
void ResultBuilder::encode_values(const Part& part, std::uint32_t worker, std::span<float> residual,
                                  std::span<std::byte> out) {
  const std::span<float> values = values_of(part);
  EncodeKey key = encode_key(options_.id, worker, options_.run_key);
  key.tile = part.first_value / kTileValues;
  std::size_t at = 0;
  for (std::size_t begin = 0; begin < values.size(); begin += kTileValues) {
    const std::size_t n = std::min(kTileValues, values.size() - begin);
    const std::size_t size = codec().encoded_bytes(n);
    const std::span<float> tile = values.subspan(begin, n);
    if (residual.empty()) {
      codec().encode(tile, out.subspan(at, size), key);
    } else {
      // A value that is not finite goes out as it is and leaves the residual alone.
      static_cast<void>(encode_with_feedback(codec(), residual.subspan(begin, n), 1, begin, tile,
                                             out.subspan(at, size), key));
    }
    at += size;
    ++key.tile;
  }
}

void ResultBuilder::encode_part(std::size_t k, std::uint32_t worker, std::span<std::byte> out) {
  encode_values(routes_->part(k), worker, {}, out);
}

// Everyone uses the decoded bytes, the owner too: the fp32 mean it has just computed is
// overwritten, but where decoding would bring the same bits.
Expected<void, std::string> ResultBuilder::encode_mean(std::size_t k, std::span<std::byte> out) {
  const std::span<float> residual = owner_residual(routes_->part(k));
  encode_values(routes_->part(k), kMeanWorker, residual, out);
  if (codec().lossless() && residual.empty()) return {};
  return decode_part(k, out);
}

// The digest follows the parts in their order, while their values are still in the cache.
void ResultBuilder::finish(std::size_t k) {
  done_[k] = true;
  --open_parts_;
  if (digested_ == 0 && k == 0) begin_digest();
  for (; digested_ < done_.size() && done_[digested_]; ++digested_) {
    if (routes_->plan().kind == ReductionKind::kCollect) continue;  // its order is that of members
    stream_.update(std::as_bytes(values_of(routes_->part(digested_))));
  }
  if (complete()) {
    for (const std::vector<std::byte>& bytes : collected_) stream_.update(bytes);
  }
}

// The contributors are known with the first part.
void ResultBuilder::begin_digest() {
  std::vector<std::byte> bits(bitmap_bytes(routes_->members()));
  write_bitmap(contributes_, bits);
  stream_.update(bits);
}

Digest128 ResultBuilder::digest() const {
  ISTHMUS_CHECK(complete(), open_parts_);
  return stream_.digest();
}

Reduced ResultBuilder::take() {
  ISTHMUS_CHECK(complete(), open_parts_);
  Reduced reduced{.values = std::move(values_),
                  .contributors = {},
                  .contributions = {},
                  .payload_bytes = 0,
                  .wire_bytes = 0};
  for (std::size_t m = 0; m < contributes_.size(); ++m) {
    if (contributes_[m]) {
      reduced.contributors.push_back(WorkerId(static_cast<int>(m)));
      if (routes_->plan().kind == ReductionKind::kCollect) {
        reduced.contributions.push_back({options_.values, std::move(collected_[m])});
      }
    }
  }
  return reduced;
}

}  // namespace isthmus
