// SPDX-License-Identifier: Apache-2.0
// Mean of one vector over the workers with error feedback at both ends: the compressed all-reduce
// of 1-bit Adam (Tang et al. 2021, arXiv:2102.02888). Worker i sends Enc(u_i + e_i) and keeps what
// that lost in e_i; the owner of a chunk sends Enc(mean + s) and keeps what that lost in s. A
// gather has no second encoding, so no s. Feedback is there where the codec asks for it (`:ef`).
// Memory: e_i one fp32 a value and worker, s one fp32 a value over all workers. One thread.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "isthmus/outer.h"
#include "outer/contribution_sample.h"
#include "quant/error_feedback.h"

namespace isthmus::outer {

class CompressedMean {
 public:
  struct Options {
    std::shared_ptr<const Codec> codec;  // co-owned by the rounds in flight
    ReductionKind kind = ReductionKind::kAuto;
    Duration patience{0};
  };
  /// The vector comes in buckets of so many values, one round each. Borrows the exchange.
  CompressedMean(std::vector<std::size_t> buckets, Options options, Exchange& exchange);

  /// Writes values [begin, begin + tile.size()) of a bucket.
  using Fill = std::function<void(std::size_t bucket, std::size_t begin, std::span<float> tile)>;
  /// Takes a bucket's mean.
  using Take = std::function<void(std::size_t bucket, std::span<const float> mean)>;
  /// The mean after step t. A worker that is not `fit` gives nothing, keeps its residual and takes
  /// the others' mean. Where nobody gives, and where a bucket's mean is not finite, `take` is not
  /// called for it, on any worker, and what its encodings have lost is forgotten. `commit`: the
  /// last round commits. THROWS: PeerError when a round fails.
  std::vector<RoundReport> run(StepIndex t, bool fit, bool commit, const Fill& fill,
                               const Take& take);

  /// Residuals at both ends start from zero.
  void forget();
  void save(StateWriter& writer) const;
  /// With another number of workers the owners' residuals start from zero: their chunks have moved.
  void load(StateReader& reader);

  /// This worker's residual of a bucket; empty without feedback.
  [[nodiscard]] std::span<const float> residual(std::size_t bucket) const;
  [[nodiscard]] std::span<const float> owner_residual(std::size_t bucket) const;

 private:
  [[nodiscard]] Encoded encode(std::size_t bucket, StepIndex t, bool fit, const Fill& fill,
                               ContributionSample& sample);

  std::vector<std::size_t> buckets_;
  Options options_;
  Exchange& exchange_;
  std::vector<ErrorFeedback> worker_;                  // by bucket; none without feedback
  std::vector<std::shared_ptr<OwnerResidual>> owner_;  // co-owned by the rounds in flight
};

}  // namespace isthmus::outer
