// SPDX-License-Identifier: Apache-2.0
// Rules of [train]: length, batch, context, pinned threads, device, attention.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "config/check/config_check.h"
#include "config/schema/device_request.h"

namespace isthmus::config {
namespace {

/// The least number by which the samples of every site's worker can be divided among its
/// data-parallel ranks.
std::int64_t dp_of_all_sites(const Config& config) {
  std::int64_t dp = 1;
  constexpr std::int64_t kMost = 1'000'000;  // more divides no batch, and products stay small
  for (const SiteConfig& site : config.sites) {
    dp = std::min(std::lcm(dp, std::int64_t{site.dp}), kMost);
  }
  return dp;
}

void check_length(CheckContext& check) {
  const bool steps = check.given("train.steps");
  const bool tokens = check.given("train.tokens");
  if (steps && tokens) {
    check.refuse("E-CONFLICT", "train.tokens", "'train.steps' together with 'train.tokens'",
                 "give one of them; the other follows");
  } else if (!steps && !tokens) {
    check.refuse("E-KEY-MISSING", "train.steps",
                 "neither 'train.steps' nor 'train.tokens' is given", "steps = 2000 in [train]");
  }
}

void check_batch(const TrainConfig& train, CheckContext& check) {
  if (!check.given("train.global_batch")) {
    if (train.trainer == "external") return;
    check.refuse("E-KEY-MISSING", "train.global_batch", "'train.global_batch' is missing",
                 "global_batch = \"16k tok\" in [train]: tokens of all workers in one inner step");
    return;
  }
  const std::int64_t batch = train.global_batch_tokens;
  if (batch <= 0) {
    return;  // refused already
  }
  const std::int64_t dp = dp_of_all_sites(check.config);
  const std::int64_t unit = train.context * check.config.workers() * dp;
  if (batch % unit != 0) {
    const std::int64_t below = batch / unit * unit;
    const std::int64_t nearest =
        below > 0 && batch - below <= below + unit - batch ? below : below + unit;
    const std::int64_t other = nearest == below ? below + unit : below;
    check.refuse(
        "E-DIVISIBLE", "train.global_batch",
        fmt::format("{}: must be a multiple of context x workers x dp = {} x {} x {} = {} tokens; "
                    "the nearest working value is \"{} tok\"",
                    check.quoted("train.global_batch"), train.context, check.config.workers(), dp,
                    unit, nearest),
        other > 0 ? fmt::format("or \"{} tok\"", other) : "");
    return;
  }
  if (train.tokens && *train.tokens < batch) {
    check.refuse("E-RANGE", "train.tokens",
                 fmt::format("{}: less than one global batch of {} tokens",
                             check.quoted("train.tokens"), batch));
  }
}

void check_context(const TrainConfig& train, CheckContext& check) {
  const ModelConfig& model = check.config.model;
  if (!heads_divide_width(model)) return;
  // "dynamic" rotary scaling follows the length of a pass beyond what the model knows.
  if (model.context > 0 && train.context > model.context &&
      model.family.rope.type != RopeType::kDynamic) {
    check.refuse("E-RANGE", check.given("train.context") ? "train.context" : "model.context",
                 fmt::format("train.context = {} is longer than the model's {} positions",
                             train.context, model.context));
  }
}

void check_pin(const TrainConfig& train, CheckContext& check) {
  for (const SiteConfig& site : check.config.sites) {
    if (train.pin && (site.tp > 1 || site.pp > 1 || site.dp > 1)) {
      check.refuse(
          "E-CONFLICT", "train.pin",
          fmt::format("{} with a mesh of ranks at site {}", check.quoted("train.pin"), site.name),
          "leave train.pin out");
      return;
    }
  }
}

// Meshes are checked where it is known which sites a process computes.
void check_device(const TrainConfig& train, CheckContext& check) {
  const std::optional<DeviceRequest> request = parse_device(train.device);
  if (!request) {
    check.refuse("E-VALUE", "train.device",
                 fmt::format("{}: no such device", check.quoted("train.device")),
                 "\"auto\", \"cpu\", \"cuda\" or one of several, \"cuda:0\"");
  } else if (request->kind == DeviceRequest::Kind::kCuda) {
    if (const auto obstacle = device_obstacle(check.config, {})) {
      check.refuse("E-CONFLICT", "train.device",
                   fmt::format("{} with {}: {}", check.quoted("train.device"), obstacle->setting,
                               obstacle->why),
                   obstacle->remedy);
    }
  }
}

// Whether cuDNN is there is asked where a device is chosen.
void check_attention(const TrainConfig& train, CheckContext& check) {
  if (train.attention != "cudnn") return;
  const auto conflict = [&](std::string_view with, std::string_view why, std::string remedy) {
    check.refuse(
        "E-CONFLICT", "train.attention",
        fmt::format("{} with {}: {}", check.quoted("train.attention"), check.quoted(with), why),
        std::move(remedy));
  };
  if (train.precision != "bf16") {
    conflict("train.precision", "attention by cuDNN is of bf16",
             "precision = \"bf16\", or attention = \"own\"");
  }
  const auto request = parse_device(train.device);
  if (request && request->kind == DeviceRequest::Kind::kCpu) {
    conflict("train.device", "cuDNN computes on CUDA devices",
             "device = \"cuda\", or attention = \"own\"");
  }
  // cuDNN's plans are for the windows of a micro-batch; the passes of one spsa sample read only the
  // sample's share of a step's windows.
  const std::int64_t samples = check.config.method == "spsa" ? check.config.outer.spsa.samples : 1;
  if (check.config.micro_batches.value_or(1) % samples != 0) {
    conflict("outer.samples", "a sample's passes have fewer windows than cuDNN is set up for",
             "parallel.micro_batches a multiple of outer.samples, or attention = \"own\"");
  }
}

}  // namespace

std::optional<std::int64_t> samples_of_one_rank(const Config& config) {
  const std::int64_t batch = config.train.global_batch_tokens;
  const std::int64_t unit = config.train.context * config.workers() * dp_of_all_sites(config);
  if (batch <= 0 || batch % unit != 0) return std::nullopt;
  return batch / unit;
}

void validate_train(const TrainConfig& train, CheckContext& check) {
  check_length(check);
  check_batch(train, check);
  check_context(train, check);
  check_pin(train, check);
  check_device(train, check);
  check_attention(train, check);
}

}  // namespace isthmus::config
