// SPDX-License-Identifier: Apache-2.0
// OuterOptions after checks, with the method's defaults filled in, and the values that must agree
// with a checkpoint.
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

/// Checks ranges, and that keys which the method does not use have their defaults. THROWS:
/// ConfigError naming key, value and rule.
void validate(const MethodInfo& method, const OuterOptions& options);

/// Every key of [outer] with its effective value: equal on all workers of a run.
[[nodiscard]] StartTerms start_terms(const MethodInfo& method, const OuterOptions& options);

/// The codec of the options, or the method's default.
[[nodiscard]] const std::string& codec_of(const MethodInfo& method, const OuterOptions& options);

/// The resolved settings of a method over fragments.
struct FragmentedSettings {
  std::string method;
  std::vector<Fragment> fragments;
  Schedule schedule;
  std::vector<std::int64_t> former_H;  // as OuterOptions::former_H
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

/// The resolved settings of a method that exchanges at every step, bucket by bucket.
struct BucketSettings {
  std::string method;
  std::shared_ptr<const Codec> codec;  // co-owned by the rounds in flight
  ReductionKind exchange = ReductionKind::kAuto;
  std::int64_t commit_every = 1;  // steps
  Duration patience{0};
};
[[nodiscard]] BucketSettings resolve_buckets(const MethodInfo& method, const OuterOptions& options);

/// Values that must equal those of a checkpoint to resume from it, as (key of [outer], value).
using Identity = std::vector<std::pair<std::string, std::string>>;
[[nodiscard]] Identity identity_of(const FragmentedSettings& settings,
                                   std::span<const Parameter> parameters);
void save_identity(const Identity& identity, StateWriter& writer);
/// former_H: values of H that the state may also have. THROWS: ConfigError naming the first key
/// that differs, both values and the remedy.
void check_identity(const Identity& identity, StateReader& reader,
                    std::span<const std::int64_t> former_H = {});

/// A saved integer in lowest .. highest. THROWS: RunError naming it.
[[nodiscard]] std::int64_t saved_number(StateReader& reader, const std::string& name,
                                        std::int64_t lowest, std::int64_t highest);
/// A saved tensor of finite values. THROWS: RunError naming it.
void saved_finite(StateReader& reader, const std::string& name, std::span<float> values);

/// THROWS for a failed round of worker `self`: PeerError naming the peer, the operation ("outer
/// sync"), cause and remedy; TakenBackError if the round was taken back.
[[noreturn]] void throw_round_failure(WorkerId self, std::string_view what,
                                      const ExchangeError& error);

}  // namespace isthmus::outer
