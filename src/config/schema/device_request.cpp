// SPDX-License-Identifier: Apache-2.0
#include "config/schema/device_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string>
#include <tuple>

namespace isthmus {

std::optional<DeviceRequest> parse_device(std::string_view text) {
  constexpr std::string_view kOne = "cuda:";
  constexpr int kMost = 1023;
  if (text == "auto") return DeviceRequest{};
  if (text == "cpu") return DeviceRequest{.kind = DeviceRequest::Kind::kCpu, .ordinal = {}};
  DeviceRequest request{.kind = DeviceRequest::Kind::kCuda, .ordinal = {}};
  if (text == "cuda") return request;
  if (!text.starts_with(kOne)) return std::nullopt;
  const std::string_view number = text.substr(kOne.size());
  int ordinal = 0;
  const auto [end, error] = std::from_chars(number.begin(), number.end(), ordinal);
  if (error != std::errc() || end != number.end() || ordinal < 0 || ordinal > kMost) {
    return std::nullopt;
  }
  request.ordinal = ordinal;
  return request;
}

namespace {
std::string mesh_text(const SiteConfig& site) {
  return fmt::format("a mesh of {} x {} x {} ranks at site {}", site.tp, site.pp, site.dp,
                     site.name);
}

/// For a site's mesh: the exchanges that ranks on devices do not support.
std::optional<DeviceObstacle> ranks_obstacle(const Config& config, const SiteConfig& site) {
  const std::string mesh = mesh_text(site);
  if (site.tp * site.pp * site.dp == 1) return std::nullopt;
  if (config.method == "spsa") {
    return DeviceObstacle{fmt::format("{} and outer.method = \"spsa\"", mesh),
                          "a device takes all forward passes of a worker",
                          "tp = pp = dp = 1, or train.device = \"cpu\""};
  }
  if (outer_is_on_device(config) && site.tp * site.pp > 1) {
    return DeviceObstacle{fmt::format("outer.placement = \"device\" and {}", mesh),
                          "no device has all weights", "placement = \"host\", or tp = pp = 1"};
  }
  if (config.sequence_parallel && site.tp > 1) {
    return DeviceObstacle{fmt::format("parallel.sequence_parallel = true and {}", mesh),
                          "ranks on devices have all tokens of their layers",
                          "leave sequence_parallel out, or train.device = \"cpu\""};
  }
  if (config.inner.optimizer == "muon" && site.tp * site.pp > 1) {
    return DeviceObstacle{fmt::format("inner.optimizer = \"muon\" and {}", mesh),
                          "devices that share the layers have moments of all values alike",
                          "tp = pp = 1, or train.device = \"cpu\""};
  }
  if ((config.method == "1bit-adam" || config.method == "01-adam") && site.tp * site.pp > 1) {
    return DeviceObstacle{fmt::format("outer.method = \"{}\" and {}", config.method, mesh),
                          "it reads and writes Adam's moments, and no device has all of them",
                          "another outer.method, tp = pp = 1, or train.device = \"cpu\""};
  }
  if (config.pipeline_schedule == "zb-h1" && site.pp > 1) {
    return DeviceObstacle{fmt::format("parallel.schedule = \"zb-h1\" and {}", mesh),
                          "a device computes gradients of inputs and weights together",
                          "schedule = \"1f1b\", or train.device = \"cpu\""};
  }
  if (config.zero > 0 && site.dp > 1) {
    return DeviceObstacle{fmt::format("parallel.zero = {} and {}", config.zero, mesh),
                          "ranks on devices share nothing out but layers and samples",
                          "zero = 0, or train.device = \"cpu\""};
  }
  const CodecByDimension& codecs = config.rank_codecs;
  const std::tuple<const char*, const std::string&, int> all[] = {
      {"codec_data", codecs.data, site.dp},
      {"codec_tensor", codecs.tensor, site.tp},
      {"codec_pipeline", codecs.pipeline, site.pp}};
  for (const auto& [key, codec, ranks] : all) {
    if (codec == "fp32" || ranks == 1) continue;
    return DeviceObstacle{fmt::format("parallel.{} = \"{}\" and {}", key, codec, mesh),
                          "between devices values go as they are",
                          fmt::format("{} = \"fp32\", or train.device = \"cpu\"", key)};
  }
  return std::nullopt;
}
}  // namespace

std::optional<DeviceObstacle> device_obstacle(const Config& config,
                                              std::span<const SiteConfig> sites) {
  if (config.model.lora.rank > 0) {
    return DeviceObstacle{fmt::format("lora.r = {}", config.model.lora.rank),
                          "adapters are trained on the CPU",
                          "leave [lora] out, or train.device = \"cpu\""};
  }
  if (!config.train.offload.empty()) {
    return DeviceObstacle{fmt::format("train.offload = \"{}\"", config.train.offload),
                          "a device's state is in its memory, not in files",
                          "leave train.offload out, or train.device = \"cpu\""};
  }
  if (config.train.objective == "sft") {
    return DeviceObstacle{"train.objective = \"sft\"",
                          "a device's attention runs over whole windows, not inside conversations",
                          "train.device = \"cpu\""};
  }
  if (config.data.pack == "documents") {
    return DeviceObstacle{"data.pack = \"documents\"",
                          "a device's attention runs over whole windows",
                          "pack = \"stream\", or train.device = \"cpu\""};
  }
  const bool passes_back = config.method != "spsa";  // forward only: nothing is made again
  if (passes_back && config.train.recompute == Recompute::kSelective) {
    return DeviceObstacle{"train.recompute = \"selective\"",
                          "a device's layers keep all of their activations, or none",
                          "recompute = \"full\" or \"none\", or train.device = \"cpu\""};
  }
  // Its products have other bits on other devices, and nothing brings the workers' weights
  // together.
  if (config.inner.optimizer == "muon" && config.method == "ddp" && config.sites.size() > 1) {
    return DeviceObstacle{
        "inner.optimizer = \"muon\" and outer.method = \"ddp\"",
        "workers on unlike devices would update the same weights to other bits",
        "optimizer = \"adamw\", another outer.method, or train.device = \"cpu\" at all sites"};
  }
  for (const SiteConfig& site : sites) {
    if (auto obstacle = ranks_obstacle(config, site)) return obstacle;
  }
  return std::nullopt;
}

namespace {
// An all-to-all over MPI tells the counts of all ranks in one block
// (transport/collectives/mpi_group.h).
constexpr std::int64_t kMostRanksThatShare = 256;

std::optional<DeviceObstacle> too_many_ranks(const Config& config) {
  for (const SiteConfig& site : config.sites) {
    if (std::int64_t{site.tp} * site.pp * site.dp <= kMostRanksThatShare) continue;
    return DeviceObstacle{mesh_text(site),
                          fmt::format("at most {} ranks share outer state", kMostRanksThatShare),
                          "placement = \"host\", or fewer ranks"};
  }
  return std::nullopt;
}
}  // namespace

std::optional<DeviceObstacle> placement_obstacle(const Config& config) {
  constexpr std::array<std::string_view, 4> kMethods = {"localsgd", "diloco", "streaming-diloco",
                                                        "muloco"};
  const bool ranks = outer_is_on_ranks(config);
  if (std::ranges::find(kMethods, config.method) == kMethods.end()) {
    return DeviceObstacle{
        fmt::format("outer.method = \"{}\"", config.method),
        ranks ? "its outer state is whole at one process of a site"
              : "its outer state is on the host",
        "method = \"diloco\", \"muloco\", \"streaming-diloco\" or \"localsgd\", or "
        "placement = \"host\""};
  }
  if (ranks && !config.train.offload.empty()) {
    return DeviceObstacle{fmt::format("train.offload = \"{}\"", config.train.offload),
                          "files hold the outer state of a whole site",
                          "leave train.offload out, or placement = \"host\""};
  }
  if (ranks) return too_many_ranks(config);
  if (config.train.device == "cpu") {
    return DeviceObstacle{"train.device = \"cpu\"", "the outer state is kept where the weights are",
                          "train.device = \"cuda\", or placement = \"host\""};
  }
  return std::nullopt;
}

}  // namespace isthmus
