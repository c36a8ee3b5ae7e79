// SPDX-License-Identifier: Apache-2.0
// What `train.device` asks for, and which runs no device computes. Pure: whether there is a device
// at all is another question.
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
  std::string setting;  // "inner.optimizer = \"muon\""
  std::string why;
  std::string remedy;
};
/// What keeps the inner loop of such a run off a device; nothing where it can be on one. `sites`:
/// those whose workers are meant.
[[nodiscard]] std::optional<DeviceObstacle> device_obstacle(const Config& config,
                                                            std::span<const SiteConfig> sites);

}  // namespace isthmus
