// SPDX-License-Identifier: Apache-2.0
// Replays an spsa log into weights (SPSA: training from random perturbations). Every member of an
// spsa run does so for each step, and a late member for all steps it missed. Pure except for the
// weights it changes; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/spsa.h"
#include "outer/parts/spsa_log.h"

namespace isthmus::outer {

/// Digest of the tensors' names, sizes, element ids and weight-decay flags.
[[nodiscard]] Digest128 layout_digest(std::span<const Parameter> parameters);
/// Digest of the raw bits of all values in canonical order.
[[nodiscard]] Digest128 weights_digest(std::span<const Parameter> parameters);

/// The numbers for applying one log record. Each comes from the log through operations that IEEE
/// 754 rounds to one result.
struct SpsaUpdate {
  std::vector<kernels::SpsaEntry> entries;
  std::uint32_t step = 0;
  float c = 0;      // update scale, see kernels/spsa.h
  float decay = 1;  // factor on weights with weight decay

  /// The step for parameters with weight decay if `decays`, else without. Borrows the entries.
  [[nodiscard]] kernels::SpsaStep on(bool decays) const {
    return {.step = step, .entries = entries, .c = c, .decay = decays ? decay : 1.0f};
  }
};
[[nodiscard]] SpsaUpdate spsa_update(const SpsaLogHeader& header, const SpsaRecord& record);

/// Applies one record to all parameters, from its bytes alone.
void apply_record(const SpsaLogHeader& header, const SpsaRecord& record,
                  std::span<const Parameter> parameters, kernels::ThreadTeam& team);

/// Applies the records (from, to] of `log` to parameters that are those after step `from`. The
/// result has the same bits as applying each record live, for any team size and any `at_once`, the
/// number of steps that share a pass over memory. RETURNS: SpsaLogError when the log is of another
/// model, does not cover (from, to], or contains a digest of the weights that does not match; the
/// parameters are then unspecified.
[[nodiscard]] Expected<void, SpsaLogError> replay(const SpsaLog& log, StepIndex from, StepIndex to,
                                                  std::span<const Parameter> parameters,
                                                  kernels::ThreadTeam& team,
                                                  std::size_t at_once = SpsaLog::kWeightsEvery);

}  // namespace isthmus::outer
