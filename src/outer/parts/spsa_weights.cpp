// SPDX-License-Identifier: Apache-2.0
#include "outer/parts/spsa_weights.h"

#include "core/base/all_elements.h"
#include "outer/parts/perturbed_source.h"
#include "outer/parts/spsa_replay.h"

namespace isthmus::outer {
namespace {

class HostWeights final : public SpsaWeights {
 public:
  HostWeights(InnerLoop& inner, std::uint64_t run_key, int threads)
      : inner_(inner), team_(threads), perturbed_(inner.parameters(), run_key, team_) {}

  [[nodiscard]] const ParameterSource& perturbed(const kernels::SpsaDirection& z,
                                                 float eps) override {
    inner_.read_values(all_elements(inner_));
    perturbed_.set(z, eps);
    return perturbed_;
  }
  void apply(const SpsaLogHeader& header, const SpsaRecord& record) override {
    inner_.read_values(all_elements(inner_));
    apply_record(header, record, inner_.parameters(), team_);
    inner_.wrote_values(all_elements(inner_));
  }
  [[nodiscard]] std::size_t scratch_bytes() const override { return perturbed_.scratch_bytes(); }

 private:
  InnerLoop& inner_;
  kernels::ThreadTeam team_;
  PerturbedSource perturbed_;
};

}  // namespace

std::unique_ptr<SpsaWeights> spsa_weights_on_host(InnerLoop& inner, std::uint64_t run_key,
                                                  int threads) {
  return std::make_unique<HostWeights>(inner, run_key, threads);
}

}  // namespace isthmus::outer
