// SPDX-License-Identifier: Apache-2.0
// From the log to weights: what every member of an spsa run does each step, and what a late one
// does for all the steps it missed. Pure but for the weights it changes; one thread drives it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/spsa.h"
#include "outer/parts/spsa_log.h"

namespace isthmus::outer {

/// Names, sizes, element ids and decay of the tensors.
[[nodiscard]] Digest128 layout_digest(std::span<const Parameter> parameters);
/// The raw bits of all values in canonical order.
[[nodiscard]] Digest128 weights_digest(std::span<const Parameter> parameters);

/// A record as arithmetic. Every number comes from the log through operations that IEEE 754 rounds
/// to one result.
struct SpsaUpdate {
  std::vector<kernels::SpsaEntry> entries;
  std::uint32_t step = 0;
  float c = 0;
  float decay = 1;

  /// Of parameters that decay, or do not. Borrows the entries.
  [[nodiscard]] kernels::SpsaStep on(bool decays) const {
    return {.step = step, .entries = entries, .c = c, .decay = decays ? decay : 1.0f};
  }
};
[[nodiscard]] SpsaUpdate spsa_update(const SpsaLogHeader& header, const SpsaRecord& record);

/// Applies one record to all parameters, from its bytes alone.
void apply_record(const SpsaLogHeader& header, const SpsaRecord& record,
                  std::span<const Parameter> parameters, kernels::ThreadTeam& team);

/// Applies the records (from, to] of `log` to parameters that are those after step `from`. The
/// result has the same bits as theirs who applied step by step, whatever the team's size and
/// `at_once`, the steps that share a pass over memory. RETURNS: SpsaLogError when the log is of
/// another model, does not cover (from, to], or a digest of the weights in it does not hold; the
/// parameters are then unspecified.
[[nodiscard]] Expected<void, SpsaLogError> replay(const SpsaLog& log, StepIndex from, StepIndex to,
                                                  std::span<const Parameter> parameters,
                                                  kernels::ThreadTeam& team,
                                                  std::size_t at_once = SpsaLog::kWeightsEvery);

}  // namespace isthmus::outer
