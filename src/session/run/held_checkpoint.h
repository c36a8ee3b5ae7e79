// SPDX-License-Identifier: Apache-2.0
// What a site tells the others about a checkpoint on its disk, so that all agree on one to resume
// from.
#pragma once

#include <cstdint>
#include <string>

namespace isthmus::app {

/// A checkpoint that a site could continue from.
struct HeldCheckpoint {
  std::int64_t step = 0;
  std::string run_id;
  /// SHA-256 of model.safetensors, the outer parameters; empty where each site has its own.
  std::string model;
  bool operator==(const HeldCheckpoint&) const = default;
};

}  // namespace isthmus::app
