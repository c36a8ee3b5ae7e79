// SPDX-License-Identifier: Apache-2.0
// The methods of this build. A new method is a new strategy, or a configuration of an existing one,
// and one row of the table.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "isthmus/errors.h"
#include "isthmus/outer.h"
#include "outer/methods/co2.h"
#include "outer/methods/ddp.h"
#include "outer/methods/decoupled.h"
#include "outer/methods/delayed.h"
#include "outer/methods/eager.h"
#include "outer/methods/gpa.h"
#include "outer/methods/method_table.h"
#include "outer/methods/one_bit_adam.h"
#include "outer/methods/sparseloco.h"
#include "outer/methods/spsa.h"
#include "outer/methods/streaming_diloco.h"
#include "outer/methods/zero_one_adam.h"
#include "outer/parts/fragment_state.h"
#include "outer/parts/settings.h"
#include "outer/parts/start_check.h"
#include "outer/place/device_fragment.h"
#include "outer/place/lane_fragment.h"

namespace isthmus {
namespace {

std::unique_ptr<OuterStrategy> make_ddp(const MethodInfo& method, const OuterOptions& options,
                                        InnerLoop& inner, Exchange& exchange) {
  return std::make_unique<outer::Ddp>(method, options, inner, exchange);
}

std::unique_ptr<OuterStrategy> make_gpa(const MethodInfo& method, const OuterOptions& options,
                                        InnerLoop& inner, Exchange& exchange) {
  if (exchange.members() > 1) {
    throw ConfigError(
        fmt::format("outer.method = \"{}\": trains one worker, and there are {}; set run.workers = "
                    "1, or choose a method that exchanges (isthmus methods)",
                    method.name, exchange.members()));
  }
  return std::make_unique<outer::Gpa>(method, options, inner);
}

std::unique_ptr<OuterStrategy> make_fragmented(const MethodInfo& method,
                                               const OuterOptions& options, InnerLoop& inner,
                                               Exchange& exchange) {
  outer::FragmentedSettings settings = outer::resolve(method, options, inner.parameters());
  const outer::FragmentMaker make = outer::fragments_on_host(settings, inner);
  return std::make_unique<outer::StreamingDiLoCo>(std::move(settings), inner, exchange, make);
}

std::unique_ptr<OuterStrategy> make_fragmented_on_device(const MethodInfo& method,
                                                         const OuterOptions& options,
                                                         InnerLoop& inner, Exchange& exchange,
                                                         cuda::ResidentValues& values,
                                                         outer::KeptIn kept) {
  outer::FragmentedSettings settings = outer::resolve(method, options, inner.parameters());
  const outer::FragmentMaker make =
      outer::fragments_on_device(settings, inner.parameters(), values, kept);
  return std::make_unique<outer::StreamingDiLoCo>(std::move(settings), inner, exchange, make,
                                                  &values);
}

std::unique_ptr<OuterStrategy> make_fragmented_on_ranks(const MethodInfo& method,
                                                        const OuterOptions& options,
                                                        InnerLoop& inner, Exchange& exchange,
                                                        outer::RanksCall call) {
  outer::FragmentedSettings settings = outer::resolve(method, options, inner.parameters());
  const outer::FragmentMaker make = outer::fragments_on_ranks(settings, inner, std::move(call));
  return std::make_unique<outer::StreamingDiLoCo>(std::move(settings), inner, exchange, make);
}

template <typename Method>
std::unique_ptr<OuterStrategy> make_round_behind(const MethodInfo& method,
                                                 const OuterOptions& options, InnerLoop& inner,
                                                 Exchange& exchange) {
  return std::make_unique<Method>(outer::resolve(method, options, inner.parameters()), inner,
                                  exchange);
}

std::unique_ptr<OuterStrategy> make_co2(const MethodInfo& method, const OuterOptions& options,
                                        InnerLoop& inner, Exchange& exchange) {
  return std::make_unique<outer::Co2>(
      outer::resolve(method, options, inner.parameters()),
      outer::Co2::Options{.penalty = options.staleness_penalty,
                          .constant = static_cast<float>(options.staleness_constant),
                          .clip = static_cast<float>(options.momentum_clip.value_or(0))},
      inner, exchange);
}

std::unique_ptr<OuterStrategy> make_decoupled(const MethodInfo& method, const OuterOptions& options,
                                              InnerLoop& inner, Exchange& exchange) {
  return std::make_unique<outer::Decoupled>(outer::resolve(method, options, inner.parameters()),
                                            options.merge, inner, exchange);
}

std::unique_ptr<OuterStrategy> make_sparseloco(const MethodInfo& method,
                                               const OuterOptions& options, InnerLoop& inner,
                                               Exchange& exchange) {
  return std::make_unique<outer::SparseLoCo>(outer::resolve(method, options, inner.parameters()),
                                             static_cast<float>(options.error_decay), inner,
                                             exchange);
}

std::unique_ptr<OuterStrategy> make_spsa(const MethodInfo& method, const OuterOptions& options,
                                         InnerLoop& inner, Exchange& exchange) {
  return std::make_unique<outer::Spsa>(
      method, options, inner, exchange,
      outer::spsa_weights_on_host(inner, options.spsa.run_key, options.spsa.threads));
}

std::unique_ptr<OuterStrategy> make_spsa_on_device(const MethodInfo& method,
                                                   const OuterOptions& options, InnerLoop& inner,
                                                   Exchange& exchange, cuda::ResidentValues& values,
                                                   outer::KeptIn) {
  return std::make_unique<outer::Spsa>(
      method, options, inner, exchange,
      outer::spsa_weights_on_device(inner, options.spsa.run_key, values));
}

std::unique_ptr<OuterStrategy> make_one_bit_adam(const MethodInfo& method,
                                                 const OuterOptions& options, InnerLoop& inner,
                                                 Exchange& exchange) {
  return std::make_unique<outer::OneBitAdam>(method, options, inner, exchange);
}

std::unique_ptr<OuterStrategy> make_one_bit_adam_beside_device(const MethodInfo& method,
                                                               const OuterOptions& options,
                                                               InnerLoop& inner, Exchange& exchange,
                                                               cuda::ResidentValues& values,
                                                               outer::KeptIn) {
  return std::make_unique<outer::OneBitAdam>(method, options, inner, exchange, outer::kBucketValues,
                                             dynamic_cast<cuda::ResidentAdam*>(&values));
}

std::unique_ptr<OuterStrategy> make_zero_one_adam(const MethodInfo& method,
                                                  const OuterOptions& options, InnerLoop& inner,
                                                  Exchange& exchange) {
  return std::make_unique<outer::ZeroOneAdam>(method, options, inner, exchange);
}

/// `keys`, and the warm-up and decay of the outer rates.
std::vector<std::string> with_ramps(std::vector<std::string> keys) {
  keys.insert(keys.end(), {"lr_warmup", "lr_decay", "lr_floor", "momentum_warmup", "momentum_decay",
                           "momentum_floor"});
  return keys;
}

// The text of `explain` about outer rates, with sources. M sites, R rounds.
constexpr const char* kRatesOfDiLoCo =
    "Outer rates: 0.7 and 0.9 are published for 128 rounds from a trained model, M = 8, H = 500 "
    "(arXiv:2311.08105 Table 5). At momentum 0.9 the best lr grows with M and with H, and does not "
    "depend on the size of large models (arXiv:2503.09799, lr 0.2 to 1). MuLoCo's authors use 0.7 "
    "and 0.8 with AdamW at M = 1, and 1.0 and 0.9 at M = 16 (their code and summary). A momentum "
    "of 0.9 remembers ten rounds, so it suits hundreds of them: with 20 and 80 rounds of two small "
    "sites and inner.lr at 8e-3 and 16e-3, 0.3 and 0.6 end below 0.9, which may want a lower "
    "inner.lr (experiments/outer-rates). With 48 rounds of 1, 2 and 4 small sites that share one "
    "batch 0.6 ended lowest, beside inner.lr = 0.016, 0.011 and 0.008 (experiments/muloco). With "
    "fewer than about 100 rounds try 0.3 and 0.6, and tune momentum beside inner.lr.";
constexpr const char* kRatesOfStreaming =
    "Outer rates: 0.4 and 0.9 are published for all sizes, M = 2, H = 30 and 100 "
    "(arXiv:2501.18512), over hundreds of rounds. With fewer than about 100 rounds what `isthmus "
    "explain diloco` says holds: try a momentum of 0.3 and 0.6.";
constexpr const char* kRatesOfMuLoCo =
    "Outer rates: 0.7 and 0.6 with H = 30 are published for M = 1, from 150M to 15B parameters "
    "(MuLoCo-1's code and summary of arXiv:2505.23725); for M = 16 the authors' launcher has 1.0 "
    "and 0.9. Inner rates that they found lie from 0.016 to 0.063 and fall with size. "
    "With 20 and 80 rounds of two small sites 0.3 ended lowest, 0.6 close to it and 0.9 far above "
    "(experiments/outer-rates). With 48 rounds of 1, 2 and 4 small sites that share one batch "
    "inner.lr = 0.01 ended lowest, where plain Muon takes 0.017, with the one momentum tried "
    "there. 0.3 and 0.6 were within 0.04 nats of each other at inner.lr = 0.02 and 0.04; at 0.08 "
    "0.6 ended 0.10 to 0.16 nats higher (experiments/muloco).";
constexpr const char* kRatesOfDecoupled =
    "Outer rates: the public code on the paper takes DiLoCo's 0.7 and 0.9; what `isthmus explain "
    "diloco` says of few rounds holds. With quorum = 1 and a short grace window a merge may hold "
    "one worker's work, so that M merges and M outer steps take the place of one: in the paper "
    "quorum 1 without grace trains all the time and ends far worse (51.4 on text, 55.3 with the "
    "grace window; second-hand). H = 24 with 24 fragments is published, one fragment a step.";
constexpr const char* kRatesOfGpa =
    "mu_x = 0.9^(1 / H) averages about as DiLoCo with H steps and momentum 0.9: 0.9869 for 8, "
    "0.9934 for 16, 0.9967 for 32, 0.9984 for 64 (Table 4 of the paper, in its code's README). The "
    "authors begin with 0.9934, 0.9967 or 0.9984, and with 0.7 for mu_y. An average that is longer "
    "than the run still holds its beginning: 1 / (1 - mu_x) steps should be few of the run's.";

/// A method of StreamingDiLoCo: on the host, on a device, on the ranks of a site.
outer::MethodRow fragmented(MethodInfo info) {
  return {std::move(info), make_fragmented, make_fragmented_on_device, make_fragmented_on_device,
          make_fragmented_on_ranks};
}

}  // namespace

const std::vector<outer::MethodRow>& outer::method_table() {
  static const std::vector<outer::MethodRow> rows = {
      outer::MethodRow{
          {.name = "ddp",
           .summary = "Data parallel: mean gradient every step, in buckets that overlap backward.",
           .source = "Li et al. 2020, arXiv:2006.15704 section 3.2",
           .deviations = "digests of results are compared every 16 steps (outer.commit)",
           .keys = {"codec", "exchange", "commit"},
           .commits_rounds = false},
          make_ddp},
      fragmented(
          {.name = "localsgd",
           .summary = "Local SGD / FedAvg: H inner steps, then the mean of the parameters.",
           .source = "McMahan et al. 2017, arXiv:1602.05629 Alg. 1; Stich 2019, arXiv:1805.09767",
           .deviations =
               "averages differences from the anchor, which is the same in exact arithmetic",
           .keys = {"H", "codec", "exchange", "final_sync", "carry", "outlier"},
           .state_values = 1}),
      fragmented(
          {.name = "diloco",
           .summary = "DiLoCo: H inner steps, then one Nesterov step on the mean outer gradient.",
           .source = "Douillard et al. 2023, arXiv:2311.08105 Alg. 1",
           .deviations = "",
           .keys = with_ramps({"H", "lr", "momentum", "nesterov", "momentum_every", "codec",
                               "exchange", "final_sync", "carry", "outlier"}),
           .default_lr = 0.7,
           .default_momentum = 0.9,
           .rates = kRatesOfDiLoCo,
           .state_values = 2}),
      fragmented(
          {.name = "streaming-diloco",
           .summary =
               "Streaming DiLoCo: fragments in turn, sent while inner steps go on, mixed in.",
           .source = "Douillard et al. 2025, arXiv:2501.18512 Alg. 2",
           .deviations = "outer gradients are against the shared outer result before mixing; "
                         "default codec is fp32, not the paper's 4-bit E3M0",
           .keys = with_ramps({"H", "lr", "momentum", "nesterov", "momentum_every", "fragments",
                               "pattern", "embeddings", "offsets", "overlap", "alpha", "codec",
                               "exchange", "final_sync", "carry", "outlier", "late"}),
           .default_lr = 0.4,
           .default_momentum = 0.9,
           .default_alpha = 0.5,
           .rates = kRatesOfStreaming,
           .state_values = 2}),
      fragmented(
          {.name = "muloco",
           .summary = "DiLoCo with Muon inside; its authors report a gain for one site alone too.",
           .source = "Therien et al. 2025, arXiv:2505.23725 Alg. 1; the authors' code (MuLoCo-1)",
           .deviations =
               "read in the authors' code and summary, not in the paper; Muon's polynomial is "
               "Jordan's, five times, where theirs has five triples of coefficients; the momentum "
               "takes in the outer gradient before the rate, as PyTorch, which is the same while "
               "the rate is constant; default codec is fp32 (2 bits: lm2:ef)",
           .keys = with_ramps({"H", "lr", "momentum", "nesterov", "momentum_every", "fragments",
                               "pattern", "embeddings", "offsets", "overlap", "alpha", "codec",
                               "exchange", "final_sync", "carry", "outlier", "late"}),
           .default_lr = 0.7,
           .default_momentum = 0.6,
           .default_H = 30,
           .inside = {.optimizer = "muon",
                      .lr = 0.02,
                      .weight_decay = 0.01,
                      .momentum = 0.95,
                      .nesterov = false,
                      .adjust_lr = "spectral_norm"},
           .rates = kRatesOfMuLoCo,
           .state_values = 2}),
      outer::MethodRow{
          {.name = "gpa",
           .summary = "One worker: gradients beside a running average of the parameters.",
           .source = "Defazio et al. 2025, arXiv:2512.17131; the authors' gpa/gpa_adamw.py",
           .deviations =
               "read in the authors' code and its README, not in the paper; any inner optimizer; "
               "its weight decay acts where gradients are taken and moves the optimizer's "
               "sequence; the average is kept beside it, not worked out; no schedule-free mode",
           .keys = {"mu_x", "mu_y"},
           .rates = kRatesOfGpa,
           .state_values = 2,
           .one_worker = true},
          make_gpa},
      outer::MethodRow{
          {.name = "decoupled",
           .summary =
               "DiLoCo whose workers wait for nobody: a quorum, a grace window, token weights.",
           .source = "Douillard et al. 2026, arXiv:2604.21428 (notes and public code on it)",
           .deviations =
               "read in third-party notes and code that give the formulas, not in the paper; every "
               "worker steps the anchors by the same merges, not the coordinator; work that no "
               "merge holds yet stays in the local values; the mean is plain, not "
               "radial-directional; the default grace window is a quarter of the time since the "
               "last offer, not worked out from the slack",
           .keys =
               with_ramps({"H", "lr", "momentum", "nesterov", "fragments", "pattern", "embeddings",
                           "offsets", "overlap", "codec", "outlier", "quorum", "grace"}),
           .default_lr = 0.7,
           .default_momentum = 0.9,
           .default_H = 24,
           .rates = kRatesOfDecoupled,
           .state_values = 2,
           .shared_anchors = false,
           .by_arrival = true},
          make_decoupled},
      outer::MethodRow{
          {.name = "delayed",
           .summary =
               "DiLoCo one round behind: the mean travels during the next round, all hidden.",
           .source = "Kale et al. 2025, arXiv:2502.12996 (delayed outer gradients)",
           .deviations = "read in third-party notes that give the formula, not in the paper; a "
                         "round that is lost is added to the next one sent",
           .keys = {"H", "lr", "momentum", "nesterov", "momentum_every", "codec", "exchange",
                    "final_sync", "carry", "outlier"},
           .default_lr = 0.4,
           .default_momentum = 0.9,
           .state_values = 2,
           .round_behind = true},
          make_round_behind<outer::Delayed>},
      outer::MethodRow{
          {.name = "eager",
           .summary = "As delayed, with each worker's own stale part replaced by its fresh one.",
           .source = "Kale et al. 2025, arXiv:2502.12996 (eager updates)",
           .deviations =
               "read in third-party notes that give the formula, not in the paper; the own part is "
               "taken out as it entered the mean, after the codec; contributions weigh the same "
               "whatever their tokens",
           .keys = {"H", "lr", "momentum", "nesterov", "momentum_every", "codec", "exchange",
                    "final_sync", "carry", "outlier"},
           .default_lr = 0.4,
           .default_momentum = 0.9,
           .state_values = 2,
           .round_behind = true,
           .drains = false,
           .shared_anchors = false},
          make_round_behind<outer::Eager>},
      outer::MethodRow{
          {.name = "co2",
           .summary = "CO2: local steps, averaged one round late, with a clipped outer heavy ball.",
           .source = "Sun et al. 2024, arXiv:2401.16265 (its reviews and its code)",
           .deviations =
               "averages differences from the anchor, so that codecs apply; the paper's staleness "
               "penalty (Eq. 3) is not verified, ours are named rules, off by default; the first "
               "round returns to the start; the clip clips (in the public code its result is "
               "dropped); momentum defaults to the public code's for up to 16 workers, 0",
           .keys = {"H", "lr", "momentum", "codec", "exchange", "final_sync", "carry", "outlier",
                    "staleness_penalty", "staleness_constant", "momentum_clip"},
           .default_lr = 1,
           .default_momentum = 0,
           .state_values = 2,
           .round_behind = true},
          make_co2},
      outer::MethodRow{
          {.name = "sparseloco",
           .summary =
               "DiLoCo with top-k values of two bits; fading error feedback is its momentum.",
           .source = "Sarfi et al. 2025, arXiv:2508.15706 Alg. 1; Templar's public code",
           .deviations =
               "read in the public code and its constants, not in the paper; lr stands at the "
               "step, "
               "not before the error feedback, which is the same while it is constant; blocks are "
               "4,096 values of all tensors end to end; the table of four means travels with every "
               "block (960 bits, not 896); the median norm is over whole contributions and, of an "
               "even number, the lower one; what was sent and not counted goes back into the error",
           .keys = {"H", "lr", "error_decay", "codec", "final_sync", "outlier"},
           .default_lr = 1,
           .default_momentum = 0,
           .default_codec = "topk:64:value=2bit:ef",
           .default_H = 30,
           .state_values = 1},
          make_sparseloco},
      outer::MethodRow{
          {.name = "1bit-adam",
           .summary = "Adam, then momentum under its frozen variance, exchanged as signs.",
           .source = "Tang et al. 2021, arXiv:2102.02888 Alg. 1; DeepSpeed's onebit/adam.py",
           .deviations =
               "scales by blocks of 4,096 values, not by tensor; lanes without variance are masked "
               "at the freeze and stay so; the smallest variances are lifted (variance_floor); "
               "each "
               "worker clips its own gradient once the exchange is compressed; gathers, for two "
               "workers, have no server encoding and so no server error",
           .keys = {"freeze", "bias_correction", "warmup_codec", "variance_floor", "codec",
                    "exchange", "commit"},
           .default_codec = "1bit:4096:norm=l2:ef",
           .state_values = 0,
           .commits_rounds = false},
          make_one_bit_adam,
          nullptr,
          make_one_bit_adam_beside_device},
      outer::MethodRow{
          {.name = "01-adam",
           .summary = "Adam with a variance ever more rarely updated, then local steps in signs.",
           .source = "Lu et al. 2022, arXiv:2202.06009; DeepSpeed's onebit/zoadam.py",
           .deviations =
               "read in the public code, not in the paper; without bias correction, as there; the "
               "point of the last sync is kept and returned to, where the public code subtracts; "
               "weight decay acts at the syncs, outside the momentum; lanes without variance do "
               "not "
               "move; the smallest variances are lifted at the freeze (variance_floor); each "
               "worker "
               "clips its own gradient where no mean exists; local_step_scaler is 32768 (32678 "
               "there "
               "is a typo); the schedule goes on after a resume; one worker's momentum moves too; "
               "scales by blocks of 4,096 values, not by tensor",
           .keys = {"var_freeze_step", "var_update_scaler", "local_step_scaler",
                    "local_step_clipper", "warmup_codec", "variance_floor", "codec", "exchange",
                    "commit"},
           .default_codec = "1bit:4096:norm=l2:ef",
           .state_values = 2,
           .commits_rounds = false},
          make_zero_one_adam},
      outer::MethodRow{
          {.name = "spsa",
           .summary = "Zeroth-order: slopes along shared random directions, one byte a sample.",
           .source = "Malladi et al. 2023, arXiv:2305.17333 Alg. 1 (MeZO); Zelikman et al. 2023, "
                     "Just One Byte",
           .deviations =
               "directions of +1 and -1 from counters, not normal; a code of one whole byte with "
               "a zero (the paper's has 510 symbols and none); mean over the samples unless "
               "divisor = \"sqrt\"; perturbed copies of one layer, nothing undone by arithmetic; "
               "late joiners replay the log; the lr is inner.lr with its schedule",
           .keys = {"eps", "samples", "divisor", "sign_only", "clip", "weight_decay", "code_scale"},
           .forward_only = true},
          make_spsa,
          nullptr,
          make_spsa_on_device},
  };
  return rows;
}

const outer::MethodRow& outer::checked_method(std::string_view name, const OuterOptions& options) {
  const auto row = std::ranges::find_if(outer::method_table(), [&](const outer::MethodRow& entry) {
    return entry.info.name == name;
  });
  if (row == outer::method_table().end()) {
    std::vector<std::string> names;
    for (const outer::MethodRow& entry : outer::method_table()) {
      names.push_back(entry.info.name);
    }
    throw ConfigError(fmt::format("outer.method = \"{}\": no such method; there are {}", name,
                                  fmt::join(names, ", ")));
  }
  outer::validate(row->info, options);
  return *row;
}

std::vector<MethodInfo> methods() {
  std::vector<MethodInfo> infos;
  for (const outer::MethodRow& row : outer::method_table()) {
    infos.push_back(row.info);
  }
  return infos;
}

int outer_state_values(std::string_view method, const OuterOptions& options) {
  const auto row = std::ranges::find_if(outer::method_table(), [&](const outer::MethodRow& entry) {
    return entry.info.name == method;
  });
  if (row == outer::method_table().end()) {
    return 0;
  }
  const MethodInfo& info = row->info;
  const bool without_momentum =
      info.takes("momentum") && options.momentum.value_or(info.default_momentum) == 0;
  const bool with_residual =
      info.takes("codec") && make_codec(outer::codec_of(info, options))->error_feedback();
  const bool with_sum = options.momentum_every > 1;
  return info.state_values - (without_momentum ? 1 : 0) + (with_sum ? 1 : 0) +
         (with_residual ? 1 : 0);
}

std::unique_ptr<OuterStrategy> make_outer_strategy(std::string_view name,
                                                   const OuterOptions& options, InnerLoop& inner,
                                                   Exchange& exchange) {
  const outer::MethodRow& row = outer::checked_method(name, options);
  outer::check_parameters(inner.parameters());
  exchange.agree_on_start([&] { return outer::start_terms(row.info, options); });
  return row.make(row.info, options, inner, exchange);
}

}  // namespace isthmus
