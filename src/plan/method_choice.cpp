// SPDX-License-Identifier: Apache-2.0
#include "plan/method_choice.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/base/check.h"
#include "outer/parts/buckets.h"

namespace isthmus {
namespace {

constexpr ChoiceEvidence kDdp[] = {
    {"isthmus methods", "sends every gradient: the loss that the others are held against"}};
constexpr ChoiceEvidence kDdpInt8[] = {
    {"experiments/bytes-to-target",
     "of what is sent every step, int8 with error feedback is among the nearest in loss, at about "
     "a quarter of the bytes of fp32 (0.06M parameters)"}};
constexpr ChoiceEvidence kDiloco[] = {
    {"arXiv:2503.09799",
     "at 10B parameters DiLoCo with two sites ends at 2.086 against data parallelism's 2.090; with "
     "four at 2.096"},
    {"experiments/diloco-vs-ddp",
     "at 0.06M parameters it ends above data parallelism, more so with H and sites"}};
constexpr ChoiceEvidence kStreaming[] = {
    {"arXiv:2501.18512", "at 1B parameters and H = 30 it ends at 2.48, data parallelism at 2.49"},
    {"experiments/streaming-diloco",
     "fragments and mixing end below blocking DiLoCo at the same H (0.06M parameters)"}};
constexpr ChoiceEvidence kStreaming4[] = {
    {"arXiv:2501.18512", "4-bit outer gradients (E3M0, no error feedback) show no loss of quality"},
    {"experiments/streaming-diloco",
     "-0.15 % in the mean against 32 bits, interval about +-2 % (0.06M parameters)"}};
constexpr ChoiceEvidence kStreaming100[] = {
    {"arXiv:2501.18512", "at 4B parameters and H = 100 it ends at 2.26, data parallelism at 2.25"},
    {"experiments/streaming-diloco",
     "a longer window costs: H = 50 ends 0.073 above H = 10 (0.06M parameters)"}};
constexpr ChoiceEvidence kMuLoCo[] = {
    {"arXiv:2505.23725",
     "with Muon inside it ends below DiLoCo with AdamW for 1 to 16 sites, at 150M to 3.1B "
     "parameters (read in its summary)"},
    {"experiments/muloco",
     "two sites end 0.13 nats below data parallelism with AdamW; against that with Muon nothing is "
     "claimed, since the momentum found is the largest tried (H = 20, 0.06M parameters)"},
    {"arXiv:2503.09799",
     "diloco with AdamW inside takes as long and sends as much: at 10B parameters two sites end at "
     "2.086 against data parallelism's 2.090"}};
constexpr ChoiceEvidence kMuLoCo2Bits[] = {
    {"arXiv:2505.23725",
     "two bits with error feedback cost it next to nothing (read in its summary)"},
    {"experiments/muloco",
     "two sites end 0.13 nats below data parallelism with AdamW, at 32 bits (H = 20, 0.06M "
     "parameters)"}};
constexpr ChoiceEvidence kSparse[] = {
    {"arXiv:2508.15706",
     "published with 1 to 3 % of the values in 2 bits and error feedback, H = 30; a 72B model was "
     "trained so (arXiv:2603.08163)"},
    {"experiments/bytes-to-target",
     "goes furthest of the methods with rounds, and its loss is shown to be higher than that of "
     "the best data parallelism (0.06M parameters)"}};
constexpr ChoiceEvidence kTwoBits[] = {
    {"experiments/streaming-diloco",
     "two bits with error feedback cost 2.2 % of the loss (0.06M parameters)"}};
constexpr ChoiceEvidence kDiloco500[] = {
    {"arXiv:2311.08105",
     "H = 1000 against 50 costs 2.9 % of the perplexity at 400M parameters or fewer; H = 500 lies "
     "between"},
    {"arXiv:2503.09799", "larger models bear larger H"}};

// No row takes on every link as long as one before it, or it would never be chosen: muloco's first
// stands for diloco too.
constexpr std::array kCandidates = {
    MethodCandidate{"ddp", "bf16", 1, false, kDdp},
    MethodCandidate{"ddp", "int8:ef", 1, false, kDdpInt8},
    MethodCandidate{"streaming-diloco", "bf16", 30, true, kStreaming},
    MethodCandidate{"muloco", "bf16", 30, false, kMuLoCo},
    MethodCandidate{"streaming-diloco", "fp4-e3m0", 30, true, kStreaming4},
    MethodCandidate{"muloco", "lm2:ef", 30, false, kMuLoCo2Bits},
    MethodCandidate{"diloco", "bf16", 100, false, kDiloco},
    MethodCandidate{"streaming-diloco", "fp4-e3m0", 100, true, kStreaming100},
    MethodCandidate{"sparseloco", "topk:64:value=2bit:ef", 30, false, kSparse},
    MethodCandidate{"streaming-diloco", "lm2:ef", 100, true, kTwoBits},
    MethodCandidate{"diloco", "int8", 500, false, kDiloco500},
};

constexpr int kFragmentLayers = 3;

/// As many values as are walked through in the place of the model's: so many buckets of gradients,
/// fewer where there are many pairs of members.
std::int64_t modelled_values(const ChoiceQuestion& question) {
  constexpr int kMostBuckets = 16, kFewestBuckets = 2, kPairsOfBuckets = 128;
  const int buckets = std::clamp(kPairsOfBuckets / question.members, kFewestBuckets, kMostBuckets);
  const double most = static_cast<double>(outer::kBucketValues) * buckets;
  return std::max<std::int64_t>(question.layers, std::llround(std::min(question.parameters, most)));
}

/// Tensors of equal layers that end at `values`.
std::vector<Parameter> layer_parameters(std::int64_t values, int layers) {
  std::vector<Parameter> parameters;
  for (int layer = 0; layer < layers; ++layer) {
    Parameter each;
    each.name = "layer." + std::to_string(layer);
    each.layer = layer;
    each.elements = {.begin = values * layer / layers, .end = values * (layer + 1) / layers};
    each.shape = {each.elements.size()};
    parameters.push_back(std::move(each));
  }
  return parameters;
}

Prediction predicted(const ChoiceQuestion& question, std::string_view method,
                     const OuterOptions& options, std::int64_t steps) {
  ISTHMUS_CHECK(question.members >= 2, question.members);
  ISTHMUS_CHECK(question.parameters > 0, question.parameters);
  ISTHMUS_CHECK(question.layers >= 1, question.layers);
  ISTHMUS_CHECK(question.step_s > 0, question.step_s);
  const std::int64_t values = modelled_values(question);
  PredictionInput input = prediction_input(
      method, options, layer_parameters(values, question.layers), question.members, steps);
  const Duration step(std::llround(question.step_s * 1e9));
  input.step_time = [step](WorkerId, StepIndex) { return step; };
  input.links = question.links;
  input.link = question.link;
  input.link.byte_scale = question.parameters / static_cast<double>(values);
  input.processor_bits_per_s = question.processor_bits_per_s;
  return predict(input);
}

MethodTime of_steps(const ChoiceQuestion& question, double seconds, double bytes,
                    std::int64_t steps) {
  const double step_s = seconds / static_cast<double>(steps);
  return {.step_s = step_s,
          .computing = question.step_s / step_s,
          .step_bytes = bytes / static_cast<double>(steps)};
}

}  // namespace

std::span<const MethodCandidate> method_candidates() { return kCandidates; }

OuterOptions options_of(const MethodCandidate& candidate, int layers) {
  OuterOptions options;
  options.H = candidate.H;
  options.codec = candidate.codec;
  if (candidate.streaming) {
    const int fragments = std::max(1, layers / kFragmentLayers);
    options.fragments = static_cast<int>(std::min<std::int64_t>(fragments, candidate.H));
    options.overlap = 1;
  }
  return options;
}

MethodTime time_method(const ChoiceQuestion& question, std::string_view method,
                       const OuterOptions& options) {
  // Between two ends of a whole number of periods: what begins and ends a run is not in it.
  OuterOptions repeating = options;
  if (options.H > 1) repeating.final_sync = FinalSync::kNone;
  const std::int64_t period =
      std::max<std::int64_t>(options.H, options.H == 1 ? options.commit_every : 1);
  const Prediction first = predicted(question, method, repeating, 2 * period);
  const Prediction both = predicted(question, method, repeating, 4 * period);
  return of_steps(question, both.predicted_s - first.predicted_s,
                  static_cast<double>(both.payload_bytes - first.payload_bytes), 2 * period);
}

MethodTime time_run(const ChoiceQuestion& question, std::string_view method,
                    const OuterOptions& options, std::int64_t steps) {
  const Prediction whole = predicted(question, method, options, steps);
  return of_steps(question, whole.predicted_s, static_cast<double>(whole.payload_bytes), steps);
}

MethodChoice choose_method(const ChoiceQuestion& question, double least_computing) {
  ISTHMUS_CHECK(least_computing > 0, least_computing);
  ISTHMUS_CHECK(least_computing < 1, least_computing);
  MethodChoice choice;
  for (const MethodCandidate& candidate : method_candidates()) {
    TimedCandidate timed{.candidate = &candidate};
    timed.time = time_method(question, candidate.method, options_of(candidate, question.layers));
    timed.enough = timed.time.computing >= least_computing;
    choice.candidates.push_back(timed);
  }
  const auto first = std::ranges::find_if(choice.candidates, &TimedCandidate::enough);
  const auto fastest = std::ranges::min_element(
      choice.candidates, {}, [](const TimedCandidate& each) { return each.time.step_s; });
  choice.chosen = static_cast<std::size_t>((first != choice.candidates.end() ? first : fastest) -
                                           choice.candidates.begin());
  return choice;
}

}  // namespace isthmus
