// SPDX-License-Identifier: Apache-2.0
// Rules of train.device.
#include <fmt/format.h>

#include <charconv>

#include "core/config_loader.h"
#include "core/device_request.h"

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

std::optional<DeviceObstacle> device_obstacle(const Config& config,
                                              std::span<const SiteConfig> sites) {
  if (config.inner.optimizer == "muon") {
    return DeviceObstacle{"inner.optimizer = \"muon\"", "a device's optimizers are adamw and sgd",
                          "optimizer = \"adamw\", or train.device = \"cpu\""};
  }
  if (config.method == "1bit-adam" || config.method == "01-adam") {
    return DeviceObstacle{
        fmt::format("outer.method = \"{}\"", config.method),
        "it reads and writes Adam's moments on the host, and a device keeps its own",
        "another outer.method, or train.device = \"cpu\""};
  }
  if (!config.train.offload.empty()) {
    return DeviceObstacle{fmt::format("train.offload = \"{}\"", config.train.offload),
                          "a device's state is in its memory, not in files",
                          "leave train.offload out, or train.device = \"cpu\""};
  }
  for (const SiteConfig& site : sites) {
    if (site.tp * site.pp * site.dp == 1) continue;
    return DeviceObstacle{fmt::format("a mesh of {} x {} x {} ranks at site {}", site.tp, site.pp,
                                      site.dp, site.name),
                          "one device computes a whole worker",
                          "leave [parallel] out, or train.device = \"cpu\""};
  }
  return std::nullopt;
}

namespace config {

// Meshes are looked at where it is known which sites a process computes.
void Loader::check_device() {
  const std::optional<DeviceRequest> request = parse_device(config.train.device);
  if (!request) {
    refuse("E-VALUE", "train.device", fmt::format("{}: no such device", quoted("train.device")),
           "\"auto\", \"cpu\", \"cuda\" or one of several, \"cuda:0\"");
  } else if (request->kind == DeviceRequest::Kind::kCuda) {
    if (const auto obstacle = device_obstacle(config, {})) {
      refuse(
          "E-CONFLICT", "train.device",
          fmt::format("{} with {}: {}", quoted("train.device"), obstacle->setting, obstacle->why),
          obstacle->remedy);
    }
  }
  if (config.outer_placement != "host") {
    refuse("E-NOT-YET", "outer.placement",
           fmt::format("{}: anchors and momentum are kept in host memory in this version",
                       quoted("outer.placement")),
           "leave it out; weights on a device are copied a fragment at a time");
  }
}

}  // namespace config
}  // namespace isthmus
