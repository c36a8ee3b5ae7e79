// SPDX-License-Identifier: Apache-2.0
#include "outer/parts/settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "core/base/hash.h"
#include "isthmus/errors.h"

namespace isthmus::outer {
namespace {

constexpr const char* kFinalSyncKey = "final_sync";

const OuterRamp kLrRamp = OuterOptions().lr_ramp;
const OuterRamp kMomentumRamp = OuterOptions().momentum_ramp;
constexpr SpsaOptions kSpsa;  // the defaults: a key at its default counts as absent
const OneBitAdamOptions kOneBitAdam;
constexpr ZeroOneAdamOptions kZeroOne;

struct GivenKey {
  const char* name;
  bool given;  // differs from absent
  std::string value;
};

std::string offsets_text(const Offsets& offsets) {
  if (std::holds_alternative<OffsetsZero>(offsets)) return "zero";
  const auto* list = std::get_if<std::vector<std::int64_t>>(&offsets);
  return list == nullptr ? "spread" : fmt::format("[{}]", fmt::join(*list, ", "));
}

std::vector<GivenKey> given_keys(const OuterOptions& o) {
  const auto text = [](const auto& option) {
    return option ? fmt::format("{}", *option) : std::string();
  };
  const auto number = [](auto value) { return fmt::format("{}", value); };
  // A decay counts from the end, so it is another one in a run of another length.
  const auto decay = [&](const OuterRamp& ramp) {
    return fmt::format("{} of {} steps", ramp.decay, o.run_steps);
  };
  return {
      {"H", o.H != 1, fmt::format("{}", o.H)},
      {"lr", o.lr.has_value(), text(o.lr)},
      {"momentum", o.momentum.has_value(), text(o.momentum)},
      {"nesterov", o.nesterov.has_value(), text(o.nesterov)},
      {"lr_warmup", o.lr_ramp.warmup != 0, number(o.lr_ramp.warmup)},
      {"lr_decay", o.lr_ramp.decay != 0, decay(o.lr_ramp)},
      {"lr_floor", o.lr_ramp.floor != kLrRamp.floor, number(o.lr_ramp.floor)},
      {"momentum_warmup", o.momentum_ramp.warmup != 0, number(o.momentum_ramp.warmup)},
      {"momentum_decay", o.momentum_ramp.decay != 0, decay(o.momentum_ramp)},
      {"momentum_floor", o.momentum_ramp.floor != kMomentumRamp.floor,
       number(o.momentum_ramp.floor)},
      {"fragments", o.fragments != 1, fmt::format("{}", o.fragments)},
      {"pattern", o.pattern != FragmentPattern::kStrided,
       o.pattern == FragmentPattern::kBalanced ? "balanced" : "sequential"},
      {"embeddings", o.embeddings_own, "own"},
      {"offsets", !std::holds_alternative<OffsetsSpread>(o.offsets), offsets_text(o.offsets)},
      {"overlap", o.overlap != 0, fmt::format("{}", o.overlap)},
      {"alpha", o.alpha.has_value(), text(o.alpha)},
      {kFinalSyncKey, o.final_sync != OuterOptions{}.final_sync,
       std::string(final_sync_name(o.final_sync))},
      {"codec", !o.codec.empty() && o.codec != "fp32", o.codec},
      {"exchange", o.exchange != ReductionKind::kAuto, "not auto"},
      {"carry", o.carry != LostContribution::kCarry,
       o.carry == LostContribution::kStay ? "stay" : "rollback"},
      {"commit", o.commit_every != OuterOptions{}.commit_every,
       fmt::format("every:{}", o.commit_every)},
      {"late", o.late != LateRound::kWait, "slip"},
      {"outlier", o.outlier != OuterOptions{}.outlier, fmt::format("{}", o.outlier)},
      {"staleness_penalty", o.staleness_penalty != StalenessPenalty::kNone,
       o.staleness_penalty == StalenessPenalty::kConstant ? "constant" : "gap-aware"},
      {"staleness_constant", o.staleness_constant != 1, fmt::format("{}", o.staleness_constant)},
      {"momentum_every", o.momentum_every != 1, fmt::format("{}", o.momentum_every)},
      {"momentum_clip", o.momentum_clip.has_value(), text(o.momentum_clip)},
      {"error_decay", o.error_decay != OuterOptions{}.error_decay,
       fmt::format("{}", o.error_decay)},
      {"quorum", o.merge.quorum != 1, number(o.merge.quorum)},
      {"grace", o.merge.grace.has_value(),
       o.merge.grace ? fmt::format("{} s", in_seconds(*o.merge.grace)) : ""},
      {"mu_x", o.mu_x != OuterOptions{}.mu_x, number(o.mu_x)},
      {"mu_y", o.mu_y != OuterOptions{}.mu_y, number(o.mu_y)},
      {"eps", o.spsa.eps != kSpsa.eps, fmt::format("{}", o.spsa.eps)},
      {"samples", o.spsa.samples != kSpsa.samples, fmt::format("{}", o.spsa.samples)},
      {"divisor", o.spsa.divide_by_sqrt, "sqrt"},
      {"sign_only", o.spsa.sign_only, "true"},
      {"clip", o.spsa.clip != kSpsa.clip, fmt::format("{}", o.spsa.clip)},
      {"weight_decay", o.spsa.weight_decay != 0, fmt::format("{}", o.spsa.weight_decay)},
      {"code_scale", o.spsa.scale_log2 != 0, fmt::format("2^{}", o.spsa.scale_log2)},
      {"freeze", o.one_bit_adam.freeze.has_value(), text(o.one_bit_adam.freeze)},
      {"bias_correction", !o.one_bit_adam.bias_correction, "false"},
      {"warmup_codec", o.one_bit_adam.warmup_codec != kOneBitAdam.warmup_codec,
       o.one_bit_adam.warmup_codec},
      {"variance_floor", o.one_bit_adam.variance_floor != kOneBitAdam.variance_floor,
       fmt::format("{}", o.one_bit_adam.variance_floor)},
      {"var_freeze_step", o.zero_one_adam.var_freeze_step != kZeroOne.var_freeze_step,
       fmt::format("{}", o.zero_one_adam.var_freeze_step)},
      {"var_update_scaler", o.zero_one_adam.var_update_scaler != kZeroOne.var_update_scaler,
       fmt::format("{}", o.zero_one_adam.var_update_scaler)},
      {"local_step_scaler", o.zero_one_adam.local_step_scaler != kZeroOne.local_step_scaler,
       fmt::format("{}", o.zero_one_adam.local_step_scaler)},
      {"local_step_clipper", o.zero_one_adam.local_step_clipper != kZeroOne.local_step_clipper,
       fmt::format("{}", o.zero_one_adam.local_step_clipper)}};
}

void require(bool holds, const char* key, const std::string& value, const std::string& rule) {
  if (!holds) {
    throw ConfigError(fmt::format("outer.{} = {}: must be {}", key, value, rule));
  }
}

void require_real(const std::optional<double>& value, const char* key, const std::string& rule,
                  bool (*holds)(double)) {
  require(!value || holds(*value), key, value ? fmt::format("{}", *value) : "", rule);
}

kernels::OuterStep optimizer_of(const MethodInfo& method, const OuterOptions& options) {
  using kernels::OuterStepRule;
  if (method.default_lr == 0) {
    return {.rule = OuterStepRule::kSgd, .eta = 1, .mu = 0};
  }
  const double momentum = options.momentum.value_or(method.default_momentum);
  const bool nesterov = method.takes("nesterov") && options.nesterov.value_or(true);
  const OuterStepRule rule = momentum == 0 ? OuterStepRule::kSgd
                             : nesterov    ? OuterStepRule::kNesterov
                                           : OuterStepRule::kHeavyBall;
  return {.rule = rule,
          .eta = static_cast<float>(options.lr.value_or(method.default_lr)),
          .mu = static_cast<float>(momentum),
          .every = options.momentum_every};
}

/// `name`: "lr" or "momentum". `least`: a floor must be above it or, at 0, may be it.
void validate_ramp(const std::string& name, const OuterRamp& ramp, std::int64_t run_steps,
                   bool floor_may_be_zero) {
  const auto refuse_unless = [&](bool holds, const char* end, const std::string& value,
                                 const std::string& rule) {
    require(holds, (name + end).c_str(), value, rule);
  };
  refuse_unless(ramp.warmup >= 0, "_warmup", fmt::format("{}", ramp.warmup),
                ">= 0 (steps from the run's start)");
  refuse_unless(ramp.decay >= 0, "_decay", fmt::format("{}", ramp.decay),
                ">= 0 (steps up to the run's end)");
  refuse_unless(ramp.decay == 0 || run_steps > 0, "_decay", fmt::format("{}", ramp.decay),
                "absent where the run's length is not known (OuterOptions::run_steps)");
  refuse_unless(
      ramp.decay == 0 || ramp.warmup + ramp.decay <= run_steps, "_decay",
      fmt::format("{}", ramp.decay),
      fmt::format("at most the {} steps that the warm-up of {} leaves of {}",
                  std::max<std::int64_t>(0, run_steps - ramp.warmup), ramp.warmup, run_steps));
  refuse_unless(ramp.floor <= 1 && (floor_may_be_zero ? ramp.floor >= 0 : ramp.floor > 0), "_floor",
                fmt::format("{}", ramp.floor),
                floor_may_be_zero
                    ? "in 0 .. 1 (share of the momentum at the run's end)"
                    : "in 0 < lr_floor <= 1 (share of the rate at the run's end; at 0 "
                      "the last round would be lost)");
}

}  // namespace

void validate(const MethodInfo& method, const OuterOptions& options) {
  for (const GivenKey& key : given_keys(options)) {
    if (key.given && !method.takes(key.name)) {
      throw ConfigError(
          fmt::format("outer.{} = {}: method {} does not use it (its keys: {}); "
                      "remove it or choose another outer.method",
                      key.name, key.value, method.name, fmt::join(method.keys, ", ")));
    }
  }
  require(options.H >= 1, "H", fmt::format("{}", options.H),
          ">= 1 (inner steps between outer syncs)");
  validate_ramp("lr", options.lr_ramp, options.run_steps, false);
  validate_ramp("momentum", options.momentum_ramp, options.run_steps, true);
  require(!options.momentum_ramp.moves() || optimizer_of(method, options).mu > 0, "momentum", "0",
          "> 0 with momentum_warmup or momentum_decay, which are shares of it");
  require_real(options.lr, "lr", "> 0 and finite (outer learning rate)",
               [](double x) { return std::isfinite(x) && x > 0; });
  require_real(options.momentum, "momentum", "in 0 <= momentum < 1 (outer momentum)",
               [](double x) { return x >= 0 && x < 1; });
  require_real(options.alpha, "alpha", "in 0 <= alpha <= 1 (share of the local value kept)",
               [](double x) { return x >= 0 && x <= 1; });
  const bool nesterov = method.takes("nesterov") && options.nesterov.value_or(true) &&
                        options.momentum.value_or(method.default_momentum) > 0;
  require(options.momentum_every >= 1 && (options.momentum_every == 1 || nesterov),
          "momentum_every", fmt::format("{}", options.momentum_every),
          ">= 1, and 1 without Nesterov momentum (rounds that the momentum takes in at a time)");
  require(options.overlap >= 0 && options.overlap < options.H, "overlap",
          fmt::format("{}", options.overlap),
          fmt::format("in 0 .. {} (H - 1; inner steps between send and apply)", options.H - 1));
  require(options.commit_every >= 1, "commit", fmt::format("every:{}", options.commit_every),
          "every:1 or more (steps whose digests are compared together)");
  require(options.late == LateRound::kWait || options.overlap > 0, "late", "slip",
          "wait without overlap (results are then due in the step that sends)");
  require(options.outlier == 0 || (std::isfinite(options.outlier) && options.outlier > 1),
          "outlier", fmt::format("{}", options.outlier),
          "0 (never) or > 1 and finite (times the median norm of this worker's outer gradients)");
  require(std::isfinite(options.staleness_constant) && options.staleness_constant >= 1,
          "staleness_constant", fmt::format("{}", options.staleness_constant),
          ">= 1 and finite (what an outer gradient of one round ago is divided by)");
  require(
      options.staleness_constant == 1 || options.staleness_penalty == StalenessPenalty::kConstant,
      "staleness_constant", fmt::format("{}", options.staleness_constant),
      "absent unless outer.staleness_penalty = \"constant\"");
  require_real(options.momentum_clip, "momentum_clip",
               "> 0 and finite (bound of each element of the momentum; leave it out for none)",
               [](double x) { return std::isfinite(x) && x > 0; });
  require(options.error_decay > 0 && options.error_decay <= 1, "error_decay",
          fmt::format("{}", options.error_decay),
          "in 0 < error_decay <= 1 (share of the residual that comes back; without error feedback, "
          "leave :ef out of outer.codec)");
  require(options.merge.quorum >= 1, "quorum", fmt::format("{}", options.merge.quorum),
          ">= 1 (workers whose offers begin the grace window)");
  require(!options.merge.grace || *options.merge.grace >= Duration{0}, "grace",
          options.merge.grace ? fmt::format("{} s", in_seconds(*options.merge.grace)) : "",
          ">= 0 (absent: a quarter of the time since a worker's last offer)");
  require(!method.by_arrival || options.overlap == 0 || options.merge.grace, "overlap",
          fmt::format("{}", options.overlap),
          "0 without grace: a worker then waits for no merge, and overlap is when it would");
  require(options.mu_x >= 0 && options.mu_x < 1, "mu_x", fmt::format("{}", options.mu_x),
          "in 0 <= mu_x < 1 (what the average keeps of itself at a step; 0: no average)");
  require(options.mu_y > 0 && options.mu_y <= 1, "mu_y", fmt::format("{}", options.mu_y),
          "in 0 < mu_y <= 1 (the average's weight where gradients are taken)");
  if (method.round_behind && options.carry == LostContribution::kStay) {
    throw ConfigError(fmt::format(
        "outer.carry = stay: method {} has left the local values of a round when it learns that "
        "they were lost; use carry or rollback",
        method.name));
  }
  const SpsaOptions& spsa = options.spsa;
  require(std::isfinite(spsa.eps) && spsa.eps >= 1e-30 && spsa.eps <= 1, "eps",
          fmt::format("{}", spsa.eps), "in 1e-30 .. 1 (size of the perturbation)");
  require(spsa.samples >= 1 && spsa.samples <= 65535, "samples", fmt::format("{}", spsa.samples),
          "in 1 .. 65535 (spsa samples per worker and step)");
  require(std::isfinite(spsa.clip) && spsa.clip >= 0, "clip", fmt::format("{}", spsa.clip),
          ">= 0 (medians of recent slopes; 0: off)");
  require(std::isfinite(spsa.weight_decay) && spsa.weight_decay >= 0, "weight_decay",
          fmt::format("{}", spsa.weight_decay), ">= 0 and finite");
  require(std::abs(spsa.scale_log2) <= 64, "code_scale", fmt::format("2^{}", spsa.scale_log2),
          "a power of two from 2^-64 to 2^64");
  const OneBitAdamOptions& one_bit = options.one_bit_adam;
  require(!one_bit.freeze || *one_bit.freeze >= 1, "freeze",
          fmt::format("{}", one_bit.freeze.value_or(0)), ">= 1 (last step of the warm-up)");
  require(!make_codec(one_bit.warmup_codec)->error_feedback(), "warmup_codec", one_bit.warmup_codec,
          "a codec without error feedback (the warm-up keeps no residual over a checkpoint)");
  require(one_bit.variance_floor >= 0 && one_bit.variance_floor <= 1, "variance_floor",
          fmt::format("{}", one_bit.variance_floor), "in 0 .. 1 (share of the tensor's mean)");
  const ZeroOneAdamOptions& zero_one = options.zero_one_adam;
  require(zero_one.var_freeze_step >= 1, "var_freeze_step",
          fmt::format("{}", zero_one.var_freeze_step),
          ">= 1 (last step at which the variance may change)");
  require(zero_one.var_update_scaler >= 1, "var_update_scaler",
          fmt::format("{}", zero_one.var_update_scaler),
          ">= 1 (updates of the variance until their spacing doubles)");
  require(zero_one.local_step_scaler >= 1, "local_step_scaler",
          fmt::format("{}", zero_one.local_step_scaler),
          ">= 1 (local steps until the spacing of the syncs doubles)");
  require(zero_one.local_step_clipper >= 1, "local_step_clipper",
          fmt::format("{}", zero_one.local_step_clipper), ">= 1 (largest spacing of the syncs)");
  require(options.patience > Duration{0}, "patience",
          fmt::format("{} s", in_seconds(options.patience)), "> 0");
}

StartTerms start_terms(const MethodInfo& method, const OuterOptions& options) {
  const kernels::OuterStep step = optimizer_of(method, options);
  StartTerms terms = {
      {"outer.method", method.name},
      {"outer.lr", fmt::format("{}", step.eta)},
      {"outer.momentum", fmt::format("{}", step.mu)},
      {"outer.nesterov", step.rule == kernels::OuterStepRule::kNesterov ? "true" : "false"},
      {"outer.alpha", fmt::format("{}", options.alpha.value_or(method.default_alpha))},
      {"outer.codec", codec_of(method, options)}};
  for (const GivenKey& key : given_keys(options)) {
    const std::string name = std::string("outer.") + key.name;
    const bool resolved =
        std::ranges::any_of(terms, [&](const auto& term) { return term.first == name; });
    if (!resolved) terms.emplace_back(name, key.given ? key.value : "the default");
  }
  if (method.name == "spsa")
    terms.emplace_back("SpsaOptions::run_key", fmt::format("{:#x}", options.spsa.run_key));
  return terms;
}

const std::string& codec_of(const MethodInfo& method, const OuterOptions& options) {
  return options.codec.empty() ? method.default_codec : options.codec;
}

BucketSettings resolve_buckets(const MethodInfo& method, const OuterOptions& options) {
  return {.method = method.name,
          .codec = make_codec(codec_of(method, options)),
          .exchange = options.exchange,
          .commit_every = options.commit_every,
          .patience = options.patience};
}

FragmentedSettings resolve(const MethodInfo& method, const OuterOptions& options,
                           std::span<const Parameter> parameters) {
  std::vector<Fragment> fragments =
      make_fragments(parameters, options.fragments, options.pattern, options.embeddings_own);
  std::vector<std::int64_t> offsets =
      resolve_offsets(options.offsets, options.H, static_cast<std::int64_t>(fragments.size()));
  return {.method = method.name,
          .fragments = std::move(fragments),
          .schedule = Schedule(options.H, std::move(offsets), options.overlap),
          .former_H = options.former_H,
          .optimizer = optimizer_of(method, options),
          .rates = {.top = optimizer_of(method, options),
                    .lr = options.lr_ramp,
                    .momentum = options.momentum_ramp,
                    .run_steps = options.run_steps},
          .alpha = static_cast<float>(options.alpha.value_or(method.default_alpha)),
          .codec = make_codec(codec_of(method, options)),
          .exchange = options.exchange,
          .final_sync = options.final_sync,
          .carry = options.carry,
          .late = options.late,
          .outlier = options.outlier,
          .patience = options.patience};
}

Identity identity_of(const FragmentedSettings& settings, std::span<const Parameter> parameters) {
  std::string map;
  for (const Fragment& fragment : settings.fragments) {
    map += fmt::format("fragment {}\n", fragment.id.value());
    for (const std::size_t i : fragment.parameters) {
      map += fmt::format("{} {}\n", parameters[i].name, parameters[i].elements.size());
    }
  }
  const std::string digest = xxh3_128(std::as_bytes(std::span(map))).hex();
  Identity identity = {
      {"method", settings.method},
      {"H", fmt::format("{}", settings.schedule.H())},
      {"overlap", fmt::format("{}", settings.schedule.overlap())},
      {"offsets", fmt::format("[{}]", fmt::join(settings.schedule.offsets(), ", "))},
      {"fragments", fmt::format("{} (map {})", settings.fragments.size(), digest)},
      {"codec", settings.codec->name()},
      {kFinalSyncKey, std::string(final_sync_name(settings.final_sync))}};
  if (settings.optimizer.every > 1) {
    identity.emplace_back("momentum_every", fmt::format("{}", settings.optimizer.every));
  }
  return identity;
}

void save_identity(const Identity& identity, StateWriter& writer) {
  for (const auto& [key, value] : identity) {
    writer.text("outer/" + key, value);
  }
}

void check_identity(const Identity& identity, StateReader& reader,
                    std::span<const std::int64_t> former_H) {
  const auto is_former = [&](const std::string& h) {
    return std::ranges::any_of(former_H,
                               [&](std::int64_t each) { return fmt::format("{}", each) == h; });
  };
  for (const auto& [key, value] : identity) {
    // Older states do not hold the value: the caller knows how their run began.
    if (key == kFinalSyncKey && !reader.contains("outer/" + key)) continue;
    const std::string saved = reader.text("outer/" + key);
    if (saved != value && !(key == "H" && is_former(saved))) {
      throw ConfigError(
          fmt::format("outer.{} = {}: the checkpoint was written with {}; resume with "
                      "that value, or start a new run from its model",
                      key, value, saved));
    }
  }
}

std::int64_t saved_number(StateReader& reader, const std::string& name, std::int64_t lowest,
                          std::int64_t highest) {
  const std::int64_t value = reader.integer(name);
  if (value < lowest || value > highest) {
    throw RunError(
        fmt::format("checkpoint: {} is {}; {} to {} is possible: the file is damaged or "
                    "of another program; resume from another one",
                    name, value, lowest, highest));
  }
  return value;
}

void saved_finite(StateReader& reader, const std::string& name, std::span<float> values) {
  reader.tensor(name, values);
  const auto bad = std::ranges::find_if_not(values, [](float v) { return std::isfinite(v); });
  if (bad != values.end()) {
    throw RunError(
        fmt::format("checkpoint: {} holds {} at {}: the file is damaged; resume from "
                    "another one",
                    name, *bad, bad - values.begin()));
  }
}

void throw_round_failure(WorkerId self, std::string_view what, const ExchangeError& error) {
  if (error.kind == ExchangeError::Kind::kTakenBack) throw TakenBackError(error.what);
  const bool late = error.kind == ExchangeError::Kind::kDeadlineExceeded;
  throw PeerError(fmt::format("worker {}: {} failed: {}{}", self.value(), what, error.what,
                              late ? "; where rounds take that long, raise OuterOptions::patience "
                                     "(of a configuration file: net.patience)"
                                   : ""));
}

}  // namespace isthmus::outer
