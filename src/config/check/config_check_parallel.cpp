// SPDX-License-Identifier: Apache-2.0
// Rules of [parallel]: micro-batches, codecs between ranks, the pipeline, ZeRO.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "config/check/config_check.h"

namespace isthmus::config {
namespace {

void check_zero(const Config& config, CheckContext& check) {
  if (config.zero == 0) return;
  const auto clash = [&](const std::string& with, const std::string& why, const char* remedy) {
    check.refuse("E-CONFLICT", "parallel.zero",
                 fmt::format("{} with {}: {}", check.quoted("parallel.zero"), with, why), remedy);
  };
  const MethodInfo* info = check.method;
  if (info != nullptr && info->forward_only) {
    clash(fmt::format("outer.method = \"{}\"", config.method),
          "it keeps neither gradients nor moments to share out", "leave zero out");
  } else if (config.method == "1bit-adam" || config.method == "01-adam") {
    clash(fmt::format("outer.method = \"{}\"", config.method),
          "it reads and writes Adam's moments, which the ranks would keep",
          "leave zero out, or choose another outer.method");
  }
  if (config.inner.optimizer == "muon") {
    clash("inner.optimizer = \"muon\"",
          "its updates need whole matrices, and ranks have slices cut anywhere",
          "leave zero out, or optimizer = \"adamw\"");
  }
  const bool several = config.pipeline_schedule == "gpipe" || config.pipeline_schedule == "zb-h1";
  const bool shared =
      std::ranges::any_of(config.sites, [](const auto& s) { return s.dp > 1 && s.pp > 1; });
  if (config.zero >= 2 && several && shared) {
    clash(fmt::format("schedule = \"{}\"", config.pipeline_schedule),
          "it has gradients of several micro-batches at once, and zero >= 2 has room for one's",
          "schedule = \"1f1b\" or \"interleaved-1f1b\", or zero = 1");
  }
}

}  // namespace

// The sizes that the model's own defaults fill in are checked when the mesh is made.
void validate_parallel(const Config& config, CheckContext& check) {
  const std::optional<std::int64_t> samples = samples_of_one_rank(config);
  if (samples && config.micro_batches && *samples % *config.micro_batches != 0) {
    check.refuse("E-DIVISIBLE", "parallel.micro_batches",
                 fmt::format("{}: must divide the {} samples of one rank",
                             check.quoted("parallel.micro_batches"), *samples));
  }
  for (const auto& [name, spelling] : {std::pair{"parallel.codec_data", config.rank_codecs.data},
                                       {"parallel.codec_pipeline", config.rank_codecs.pipeline},
                                       {"parallel.codec_tensor", config.rank_codecs.tensor},
                                       {"parallel.codec_state", config.rank_codecs.state}}) {
    if (check.given(name)) check.refuse_unknown_codec(name, spelling);
  }
  if (config.virtual_stages > 1 && config.pipeline_schedule != "interleaved-1f1b") {
    check.refuse("E-CONFLICT", "parallel.virtual_stages",
                 fmt::format("{} with schedule \"{}\"", check.quoted("parallel.virtual_stages"),
                             config.pipeline_schedule),
                 "schedule = \"interleaved-1f1b\" in [parallel]");
  }
  check_zero(config, check);
}

}  // namespace isthmus::config
