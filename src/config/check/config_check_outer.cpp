// SPDX-License-Identifier: Apache-2.0
// Rules of [outer]: the method, its keys, and where the outer state lies.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "config/check/config_check.h"
#include "config/schema/device_request.h"
#include "core/base/suggest.h"

namespace isthmus::config {
namespace {

/// Methods of the family that later versions bring.
constexpr std::array<std::string_view, 3> kLaterMethods = {"demo", "sparta", "noloco"};

/// `name`: "lr" or "momentum".
void check_ramp(const std::string& name, const OuterRamp& ramp, CheckContext& check) {
  const std::string key = fmt::format("outer.{}_decay", name);
  const std::int64_t total = total_steps(check.config);
  if (ramp.decay > 0 && total == 0) {
    check.refuse("E-CONFLICT", key,
                 fmt::format("{}: the length of the run is unknown", check.quoted(key)),
                 "give train.steps, with which the decay ends");
  } else if (ramp.decay > 0 && ramp.warmup + ramp.decay > total) {
    check.refuse("E-RANGE", key,
                 fmt::format("{}: more than the {} steps that a warm-up of {} leaves of {}",
                             check.quoted(key), std::max<std::int64_t>(0, total - ramp.warmup),
                             ramp.warmup, total),
                 fmt::format("shorten outer.{0}_decay or outer.{0}_warmup", name));
  }
}

}  // namespace

void validate_method(const std::string& method, CheckContext& check) {
  if (check.schema.methods.empty() || check.method != nullptr) {
    return;
  }
  std::vector<std::string> names;
  for (const MethodInfo& info : check.schema.methods) {
    names.push_back(info.name);
  }
  if (std::find(kLaterMethods.begin(), kLaterMethods.end(), method) != kLaterMethods.end()) {
    check.refuse("E-NOT-YET", "outer.method",
                 fmt::format("method '{}' is not available in this version", method),
                 fmt::format("methods: {}", join(names)));
    return;
  }
  const auto near = closest(method, names);
  check.refuse("E-VALUE", "outer.method", fmt::format("unknown method '{}'", method),
               (near ? fmt::format("did you mean '{}'?   ", *near) : std::string()) +
                   fmt::format("methods: {}", join(names)));
}

void validate_outer(const OuterOptions& outer, CheckContext& check) {
  const MethodInfo* info = check.method;
  if (info != nullptr && info->one_worker && check.config.workers() > 1) {
    check.refuse("E-CONFLICT", "outer.method",
                 fmt::format("{} with {} workers: the method trains one and exchanges nothing",
                             check.quoted("outer.method"), check.config.workers()),
                 "run.workers = 1, or a method with rounds (isthmus methods)");
  }
  if (info != nullptr && info->by_arrival && outer.merge.quorum > check.config.workers()) {
    check.refuse("E-RANGE", "outer.quorum",
                 fmt::format("{}: more than the {} workers", check.quoted("outer.quorum"),
                             check.config.workers()),
                 "a quorum of all workers waits for the slowest, as diloco does");
  }
  if (info != nullptr && info->by_arrival && outer.overlap > 0 && !outer.merge.grace) {
    check.refuse("E-CONFLICT", "outer.overlap",
                 fmt::format("{} without 'outer.grace': no worker waits for a merge then",
                             check.quoted("outer.overlap")),
                 "give outer.grace a time, or remove overlap");
  }
  const bool overlaps = info == nullptr || info->takes("overlap");
  if (overlaps && outer.overlap > 0 && outer.overlap >= outer.H) {
    check.refuse(
        "E-RANGE", check.given("outer.overlap") ? "outer.overlap" : "outer.H",
        fmt::format("outer.overlap = {}: must be less than outer.H = {}", outer.overlap, outer.H));
  }
  if (outer.late == LateRound::kSlip && info != nullptr && info->takes("late") &&
      outer.overlap == 0) {
    check.refuse("E-CONFLICT", "outer.late",
                 fmt::format("{} without 'outer.overlap': results are due in the step that sends",
                             check.quoted("outer.late")),
                 "give results some steps, for example overlap = 1, or remove late");
  }
  if (const auto* offsets = std::get_if<std::vector<std::int64_t>>(&outer.offsets)) {
    for (const std::int64_t offset : *offsets) {
      if (offset >= outer.H) {
        check.refuse(
            "E-RANGE", "outer.offsets",
            fmt::format("outer.offsets holds {}: must be less than outer.H = {}", offset, outer.H));
        break;
      }
    }
  }
  if (outer.outlier > 0 && outer.outlier <= 1) {
    check.refuse("E-RANGE", "outer.outlier",
                 fmt::format("{}: must be 0 (never) or > 1", check.quoted("outer.outlier")));
  }
  if (info != nullptr && info->round_behind && outer.carry == LostContribution::kStay) {
    check.refuse(
        "E-VALUE", "outer.carry",
        fmt::format("{}: method '{}' has left the local values of a round when it learns that "
                    "they were lost",
                    check.quoted("outer.carry"), info->name),
        "use \"carry\" or \"rollback\"");
  }
  check_ramp("lr", outer.lr_ramp, check);
  check_ramp("momentum", outer.momentum_ramp, check);
  if (outer.momentum_ramp.moves() && outer.momentum == 0.0) {
    const char* const key =
        outer.momentum_ramp.warmup > 0 ? "outer.momentum_warmup" : "outer.momentum_decay";
    check.refuse("E-CONFLICT", key, fmt::format("{} with 'outer.momentum = 0'", check.quoted(key)),
                 "give outer.momentum, of which it is a share, or remove the key");
  }
  if (outer.fragments > check.config.model.layers) {
    check.refuse("E-RANGE", "outer.fragments",
                 fmt::format("{}: more fragments than the model's {} layers",
                             check.quoted("outer.fragments"), check.config.model.layers));
  }
  if (std::abs(outer.spsa.scale_log2) > 64) {
    check.refuse("E-RANGE", "outer.code_scale",
                 fmt::format("{}: must be a power of two from 2^-64 to 2^64",
                             check.quoted("outer.code_scale")),
                 "code_scale = 1 covers slopes from 0.0043 to 234; 8 those from 0.034 to 1872");
  }
  const bool divides = check.config.workers() > 0 && check.config.train.context > 0;
  const std::int64_t sequences = divides ? check.config.train.global_batch_tokens /
                                               check.config.train.context / check.config.workers()
                                         : 0;
  if (check.given("outer.samples") && sequences > 0 && sequences % outer.spsa.samples != 0) {
    check.refuse(
        "E-DIVISIBLE", "outer.samples",
        fmt::format("{}: must divide the {} sequences of one worker and step, each sample reads "
                    "its share of them",
                    check.quoted("outer.samples"), sequences));
  }
  const auto takes = [&](const char* key) {
    return info == nullptr ? check.given(fmt::format("outer.{}", key)) : info->takes(key);
  };
  if (takes("codec")) check.refuse_unknown_codec("outer.codec", outer.codec);
  if (takes("warmup_codec")) {
    check.refuse_unknown_codec("outer.warmup_codec", outer.one_bit_adam.warmup_codec);
  }
  if (!outer_is_on_device(check.config) && !outer_is_on_ranks(check.config)) return;
  if (const auto obstacle = placement_obstacle(check.config)) {
    check.refuse("E-CONFLICT", "outer.placement",
                 fmt::format("{} with {}: {}", check.quoted("outer.placement"), obstacle->setting,
                             obstacle->why),
                 obstacle->remedy);
  }
}

}  // namespace isthmus::config
