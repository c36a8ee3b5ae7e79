// SPDX-License-Identifier: Apache-2.0
// A configured run, prepared to have its clock recomputed for other links (plan/retiming.h). The
// constructor records what the run sends and when; recomputing takes milliseconds. Any thread;
// immutable once made.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "isthmus/config.h"
#include "plan/retiming.h"

namespace isthmus::app {

/// Why a run of this configuration must be simulated again to learn its time over another link;
/// nothing if re-timing gives it. Pure.
[[nodiscard]] std::optional<std::string> retiming_obstacle(const Config& config);

class Retimer {
 public:
  /// REQUIRES: no retiming_obstacle. THROWS: ConfigError.
  explicit Retimer(Config config);

  /// Re-times over `links`, with `seed` for run.seed, from which jitter is drawn.
  [[nodiscard]] RetimedRun over(const std::vector<LinkConfig>& links, std::int64_t seed) const;
  /// Whether runs with other seeds have other clocks over `links`, because steps or links jitter.
  [[nodiscard]] bool seeds_differ(const std::vector<LinkConfig>& links) const;

  [[nodiscard]] double byte_scale() const { return byte_scale_; }
  [[nodiscard]] const Config& config() const { return config_; }

 private:
  [[nodiscard]] RetimingInput input(const Config& config) const;

  Config config_;
  double byte_scale_ = 1;
  double step_flops_ = 0;
  RunProgram program_;
};

/// The configuration of a finished run from its folder. THROWS: SystemError, ConfigErrors.
[[nodiscard]] Config config_of_run(const std::filesystem::path& folder);

}  // namespace isthmus::app
