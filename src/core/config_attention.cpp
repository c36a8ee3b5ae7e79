// SPDX-License-Identifier: Apache-2.0
// Rules of train.attention that need no device: whether cuDNN is there is asked where one is
// chosen.
#include <fmt/format.h>

#include "core/config_loader.h"
#include "core/device_request.h"

namespace isthmus::config {

void Loader::check_attention() {
  if (config.train.attention != "cudnn") return;
  const auto conflict = [&](std::string_view with, std::string_view why, std::string remedy) {
    refuse("E-CONFLICT", "train.attention",
           fmt::format("{} with {}: {}", quoted("train.attention"), quoted(with), why),
           std::move(remedy));
  };
  if (config.train.precision != "bf16") {
    conflict("train.precision", "attention by cuDNN is of bf16",
             "precision = \"bf16\", or attention = \"own\"");
  }
  const auto request = parse_device(config.train.device);
  if (request && request->kind == DeviceRequest::Kind::kCpu) {
    conflict("train.device", "cuDNN computes on CUDA devices",
             "device = \"cuda\", or attention = \"own\"");
  }
  // Its plans are of a micro-batch's windows; a sample's passes read its share of a step's.
  const std::int64_t samples = config.method == "spsa" ? config.outer.spsa.samples : 1;
  if (config.micro_batches.value_or(1) % samples != 0) {
    conflict("outer.samples", "a sample's passes have fewer windows than cuDNN is set up for",
             "parallel.micro_batches a multiple of outer.samples, or attention = \"own\"");
  }
}

}  // namespace isthmus::config
