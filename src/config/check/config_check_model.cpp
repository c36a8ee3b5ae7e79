// SPDX-License-Identifier: Apache-2.0
// Rules of [model].
#include <fmt/format.h>

#include <algorithm>

#include "config/check/config_check.h"

namespace isthmus::config {

bool heads_divide_width(const ModelConfig& model) {
  return model.head_dim != 0 || model.d_model % model.heads == 0;
}

namespace {

void validate_lora(const ModelConfig& model, CheckContext& check) {
  const LoraConfig& lora = model.lora;
  if (lora.rank == 0) return;
  if (model.init.empty()) {
    check.refuse("E-CONFLICT", "lora.r",
                 fmt::format("{} without 'model.init'", check.quoted("lora.r")),
                 "adapters are trained beside a model that exists: name its folder");
  }
  if (model.arch == "gpt2") {
    check.refuse("E-CONFLICT", "lora.r",
                 fmt::format("{} with a model of arch gpt2", check.quoted("lora.r")),
                 "adapters are for models of arch llama; leave [lora] out to train all weights");
  }
  if (lora.dropout != 0) {
    check.refuse("E-RANGE", "lora.dropout",
                 fmt::format("{}: adapters have no dropout here", check.quoted("lora.dropout")),
                 "set it to 0");
  }
  for (const SiteConfig& site : check.config.sites) {
    if (site.tp * site.pp * site.dp == 1) continue;
    check.refuse("E-CONFLICT", "lora.r",
                 fmt::format("{} with a mesh of {} x {} x {} ranks at site '{}'",
                             check.quoted("lora.r"), site.tp, site.pp, site.dp, site.name),
                 "adapters are trained on one rank a site: leave tp, pp and dp out");
    break;
  }
  if (!check.config.train.offload.empty()) {
    check.refuse(
        "E-CONFLICT", "train.offload",
        fmt::format("{} together with {}", check.quoted("train.offload"), check.quoted("lora.r")),
        "lora.base = \"nf4\" keeps the frozen weights small in memory");
  }
  const bool all = std::ranges::find(lora.targets, "all-linear") != lora.targets.end();
  if (lora.targets.empty() || (all && lora.targets.size() > 1)) {
    check.refuse("E-CONFLICT", "lora.targets", check.quoted("lora.targets"),
                 "name one target at least, or \"all-linear\" alone");
  }
}

}  // namespace

void validate_model(const ModelConfig& model, CheckContext& check) {
  validate_lora(model, check);
  if (!heads_divide_width(model)) {
    check.refuse("E-DIVISIBLE", check.given("model.n_heads") ? "model.n_heads" : "model.d_model",
                 fmt::format("model.d_model = {} is not a multiple of model.n_heads = {}",
                             model.d_model, model.heads));
    return;
  }
  if (model.arch == "llama") {
    if (model.kv_heads > 0 && model.heads % model.kv_heads != 0) {
      check.refuse("E-DIVISIBLE", "model.n_kv_heads",
                   fmt::format("{}: must divide model.n_heads = {}",
                               check.quoted("model.n_kv_heads"), model.heads));
    }
    const std::int64_t head = model.head_dim > 0 ? model.head_dim : model.d_model / model.heads;
    if (head % 2 != 0) {
      check.refuse("E-DIVISIBLE",
                   check.given("model.head_dim") ? "model.head_dim" : "model.n_heads",
                   fmt::format("a head of {} values: rotary positions need an even width", head));
    }
  }
}

}  // namespace isthmus::config
