// SPDX-License-Identifier: Apache-2.0
// OuterOptions, checked and with the method's defaults filled in, and what a checkpoint must agree
// on.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "isthmus/errors.h"
#include "isthmus/outer.h"
#include "kernels/outer_step.h"
#include "outer/parts/outer_rates.h"
#include "outer/parts/schedule.h"

namespace isthmus::outer {

/// Checks ranges, and that keys the method does not use are absent (at their defaults).
/// THROWS: ConfigError naming key, value and rule.
void validate(const MethodInfo& method, const OuterOptions& options);

/// Every key of [outer] with the value that takes effect: equal on all workers of a run.
[[nodiscard]] StartTerms start_terms(const MethodInfo& method, const OuterOptions& options);

/// The codec asked for, or the method's own.
[[nodiscard]] const std::string& codec_of(const MethodInfo& method, const OuterOptions& options);

/// Everything a method over fragments needs, resolved.
struct FragmentedSettings {
  std::string method;
  std::vector<Fragment> fragments;
  Schedule schedule;
  std::vector<std::int64_t> former_H;  // as OuterOptions
  kernels::OuterStep optimizer;
  OuterRates rates;  // of `optimizer`, round by round
  float alpha = 0;
  std::shared_ptr<const Codec> codec;  // co-owned by the rounds in flight
  ReductionKind exchange = ReductionKind::kAuto;
  FinalSync final_sync = FinalSync::kFull;
  LostContribution carry = LostContribution::kCarry;
  LateRound late = LateRound::kWait;
  double outlier = 0;
  Duration patience{0};
};
[[nodiscard]] FragmentedSettings resolve(const MethodInfo& method, const OuterOptions& options,
                                         std::span<const Parameter> parameters);

/// Values that must be equal to go on from a checkpoint, as (key of [outer], value).
using Identity = std::vector<std::pair<std::string, std::string>>;
[[nodiscard]] Identity identity_of(const FragmentedSettings& settings,
                                   std::span<const Parameter> parameters);
void save_identity(const Identity& identity, StateWriter& writer);
/// former_H: may be the state's H, too. THROWS: ConfigError naming the first key that differs, both
/// values and the remedy.
void check_identity(const Identity& identity, StateReader& reader,
                    std::span<const std::int64_t> former_H = {});

/// A saved integer in lowest .. highest. THROWS: RunError naming it.
[[nodiscard]] std::int64_t saved_number(StateReader& reader, const std::string& name,
                                        std::int64_t lowest, std::int64_t highest);
/// A saved tensor of finite values. THROWS: RunError naming it.
void saved_finite(StateReader& reader, const std::string& name, std::span<float> values);

/// THROWS: for a round of worker `self` that has failed: PeerError with who, what ("outer sync"),
/// cause, remedy; TakenBackError where it was taken back.
[[noreturn]] void throw_round_failure(WorkerId self, std::string_view what,
                                      const ExchangeError& error);

}  // namespace isthmus::outer
