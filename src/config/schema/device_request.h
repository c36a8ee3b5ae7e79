// SPDX-License-Identifier: Apache-2.0
// The device settings `train.device` and `outer.placement`: which runs cannot compute on a device,
// and which outer states can be neither on a device nor sharded over ranks. Pure: whether a device
// exists is checked elsewhere.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "isthmus/config.h"

namespace isthmus {

struct DeviceRequest {
  enum class Kind { kAuto, kCpu, kCuda };
  Kind kind = Kind::kAuto;
  std::optional<int> ordinal;  // of kCuda: only this device
};

/// "auto", "cpu", "cuda" or "cuda:N"; nothing for any other text.
[[nodiscard]] std::optional<DeviceRequest> parse_device(std::string_view text);

struct DeviceObstacle {
  std::string setting;  // "train.recompute = \"selective\""
  std::string why;
  std::string remedy;
};
/// Why the inner loop of such a run cannot be on a device; nothing if it can. `sites`: those with
/// the workers concerned.
[[nodiscard]] std::optional<DeviceObstacle> device_obstacle(const Config& config,
                                                            std::span<const SiteConfig> sites);
/// Whether parallel.communicators names the back end for sums between ranks on devices, "nccl" or
/// "threads" (through host memory), instead of a table.
[[nodiscard]] inline bool names_device_sums(const Config& config) {
  return config.rank_communicators == "nccl" || config.rank_communicators == "threads";
}
/// Whether the outer state of a worker with weights on a device is there too.
[[nodiscard]] inline bool outer_is_on_device(const Config& config) {
  return config.outer_placement == "device";
}
/// Whether a site's outer state is sharded over the processes that are its ranks.
[[nodiscard]] inline bool outer_is_on_ranks(const Config& config) {
  return config.outer_placement == "ranks";
}
/// Why the outer state of such a run cannot be on a device, or on the ranks, as it requests.
[[nodiscard]] std::optional<DeviceObstacle> placement_obstacle(const Config& config);

}  // namespace isthmus
