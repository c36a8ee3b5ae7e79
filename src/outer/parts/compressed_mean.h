// SPDX-License-Identifier: Apache-2.0
// Mean of one vector over the workers with error feedback at both ends: the compressed all-reduce
// of 1-bit Adam (Tang et al. 2021, arXiv:2102.02888). Worker i sends Enc(u_i + e_i) and keeps the
// error of the encoding in e_i; the owner of a chunk sends Enc(mean + s) and keeps that error in s.
// A gather has no second encoding, so no s. Feedback applies if the codec asks for it (`:ef`).
// Memory: e_i one fp32 per value and worker, s one fp32 per value over all workers. One thread.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "isthmus/outer.h"
#include "outer/parts/contribution_sample.h"
#include "outer/parts/settings.h"
#include "quant/codecs/error_feedback.h"

namespace isthmus::outer {

/// A worker's end: its contribution to each bucket and, with feedback, the residual of its
/// encodings.
class WorkerEnd {
 public:
  virtual ~WorkerEnd() = default;
  struct Sent {
    Encoded encoded;
    ContributionSample sample;
  };
  /// Encodes the bucket's contribution. Not `fit`: encodes zeros, and the residual does not change.
  [[nodiscard]] virtual Sent encode(std::size_t bucket, const EncodeKey& key, bool fit) = 0;
  /// Sets the bucket's residual to zero.
  virtual void forget(std::size_t bucket) = 0;
  /// The residual: one value per value of the bucket, or empty without feedback. Valid until the
  /// next call.
  [[nodiscard]] virtual std::span<const float> residual(std::size_t bucket) const = 0;
  /// REQUIRES: feedback; as many finite values as the bucket has.
  virtual void restore(std::size_t bucket, std::span<const float> residual) = 0;
};

/// Writes values [begin, begin + tile.size()) of a bucket.
using FillBucket =
    std::function<void(std::size_t bucket, std::size_t begin, std::span<float> tile)>;

/// The worker's end for values on the host.
class HostWorkerEnd final : public WorkerEnd {
 public:
  HostWorkerEnd(std::vector<std::size_t> buckets, std::shared_ptr<const Codec> codec);
  /// Sets the source of the values that `encode` reads.
  void set_fill(FillBucket fill) { fill_ = std::move(fill); }

  [[nodiscard]] Sent encode(std::size_t bucket, const EncodeKey& key, bool fit) override;
  void forget(std::size_t bucket) override;
  [[nodiscard]] std::span<const float> residual(std::size_t bucket) const override;
  void restore(std::size_t bucket, std::span<const float> residual) override;

 private:
  std::vector<std::size_t> buckets_;
  std::shared_ptr<const Codec> codec_;   // co-owned by the rounds in flight
  std::vector<ErrorFeedback> residual_;  // by bucket; none without feedback
  FillBucket fill_;
};

class CompressedMean {
 public:
  /// The vector is split into buckets of these sizes, one round each. Borrows the exchange and the
  /// worker's end.
  CompressedMean(std::vector<std::size_t> buckets, BucketSettings settings, Exchange& exchange,
                 WorkerEnd& worker);

  /// Receives a bucket's mean.
  using Take = std::function<void(std::size_t bucket, std::span<const float> mean)>;
  /// The mean after step t. Blocks until all rounds are done, each for at most the patience. A
  /// worker that is not `fit` contributes nothing, keeps its residual and receives the mean of the
  /// others. If a bucket has no contributors or its mean is not finite, no worker calls `take` for
  /// it, and its residuals are set to zero. `commit`: the last round commits. THROWS: PeerError
  /// when a round fails.
  std::vector<RoundReport> run(StepIndex t, bool fit, bool commit, const Take& take);

  /// Sets the residuals at both ends to zero.
  void forget();
  void save(StateWriter& writer) const;
  /// If the number of workers has changed, the owners' residuals start from zero, since their
  /// chunks have moved. THROWS: RunError for a state that does not fit.
  void load(StateReader& reader);

  /// This worker's residual of a bucket; empty without feedback.
  [[nodiscard]] std::span<const float> residual(std::size_t bucket) const {
    return worker_.residual(bucket);
  }
  [[nodiscard]] std::span<const float> owner_residual(std::size_t bucket) const;

 private:
  std::vector<std::size_t> buckets_;
  BucketSettings settings_;
  Exchange& exchange_;
  WorkerEnd& worker_;
  std::vector<std::shared_ptr<OwnerResidual>> owner_;  // co-owned by the rounds in flight
};

}  // namespace isthmus::outer
