// SPDX-License-Identifier: Apache-2.0
// SPSA: zeroth-order training from shared random directions, with one byte a sample. MeZO:
// arXiv:2305.17333 Alg. 1; many machines over few bytes: Zelikman et al. 2023, "Just One Byte".
// Each worker measures, for each of its samples, the slope g of the loss along a direction z that
// all workers can generate. All slopes' bytes are sent to all workers; every worker, also the
// sender, updates the weights with the decoded slopes. The log of these bytes (spsa_log.h) defines
// the run: with a base checkpoint it gives the weights bit for bit.
//
// Beyond the papers: Rademacher directions from counters, a logarithmic code of one byte that
// includes zero, integer sums, and no perturbation that is undone by arithmetic
// (docs/internals/spsa.md). Sealing a step's record is its commit, so every round commits; every 64
// steps the members compare the hash chain, which covers the weights. One thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "isthmus/outer.h"
#include "outer/parts/settings.h"
#include "outer/parts/spsa_log.h"
#include "outer/parts/spsa_weights.h"

namespace isthmus::outer {

class Spsa final : public OuterStrategy {
 public:
  /// `weights`: the weights of `inner`.
  Spsa(const MethodInfo& method, const OuterOptions& options, InnerLoop& inner, Exchange& exchange,
       std::unique_ptr<SpsaWeights> weights);

  StepReport step() override;
  std::vector<RoundReport> finish() override { return {}; }
  [[nodiscard]] StepIndex steps() const override { return steps_; }
  [[nodiscard]] std::span<const float> values(std::size_t parameter) const override;
  void save(StateWriter& writer) const override;
  /// If the number of workers has changed, a new log begins at the checkpoint and continues the
  /// hash chain.
  void load(StateReader& reader) override;
  void forget_own_work() override {}  // nothing to forget: all workers have the same weights
  [[nodiscard]] std::span<const std::byte> log() const override { return log_.bytes(); }

  /// Bytes of perturbed copies in use.
  [[nodiscard]] std::size_t scratch_bytes() const { return weights_->scratch_bytes(); }

 private:
  [[nodiscard]] std::vector<std::byte> measure(StepIndex t, InnerStep& inner);
  [[nodiscard]] std::uint8_t encode(double slope, double limit) const;
  [[nodiscard]] double slope_limit() const;
  [[nodiscard]] SpsaRecord exchange_entries(StepIndex t, std::vector<std::byte> mine,
                                            StepReport& report);
  void seal(SpsaRecord record, StepReport& report);
  void compare_chains(StepIndex t, StepReport& report);
  [[nodiscard]] Reduced collect(SyncId id, std::vector<std::byte> bytes);
  [[nodiscard]] SpsaLogHeader header_at(StepIndex step) const;
  [[nodiscard]] Identity identity() const;

  std::string method_;
  SpsaOptions options_;
  InnerLoop& inner_;
  Exchange& exchange_;
  Duration patience_;
  std::unique_ptr<SpsaWeights> weights_;
  SpsaLog log_;
  StepIndex steps_;
};

}  // namespace isthmus::outer
