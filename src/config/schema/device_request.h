// SPDX-License-Identifier: Apache-2.0
// What `train.device` and `outer.placement` ask for, which runs no device computes, and whose outer
// state can be neither on a device nor shared out by ranks. Pure: whether there is a device at all
// is another question.
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
  std::optional<int> ordinal;  // of kCuda: this device alone
};

/// "auto", "cpu", "cuda" or "cuda:N"; nothing for any other text.
[[nodiscard]] std::optional<DeviceRequest> parse_device(std::string_view text);

struct DeviceObstacle {
  std::string setting;  // "train.recompute = \"selective\""
  std::string why;
  std::string remedy;
};
/// What keeps the inner loop of such a run off a device; nothing where it can be on one. `sites`:
/// those whose workers are meant.
[[nodiscard]] std::optional<DeviceObstacle> device_obstacle(const Config& config,
                                                            std::span<const SiteConfig> sites);
/// Whether parallel.communicators names what sums between ranks on devices go over, "nccl" or
/// "threads" (by way of host memory), in the place of a table.
[[nodiscard]] inline bool names_device_sums(const Config& config) {
  return config.rank_communicators == "nccl" || config.rank_communicators == "threads";
}
/// Whether a worker whose weights are on a device has its outer state there too.
[[nodiscard]] inline bool outer_is_on_device(const Config& config) {
  return config.outer_placement == "device";
}
/// Whether processes that are the ranks of a site share its outer state out.
[[nodiscard]] inline bool outer_is_on_ranks(const Config& config) {
  return config.outer_placement == "ranks";
}
/// What keeps the outer state of such a run off a device, or off the ranks, as it asks for either.
[[nodiscard]] std::optional<DeviceObstacle> placement_obstacle(const Config& config);

}  // namespace isthmus
