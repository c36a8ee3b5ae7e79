// SPDX-License-Identifier: Apache-2.0
// `train --site NAME --record FILE`: what a site's links carry, written down.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/base/storage.h"
#include "core/base/system_runtime.h"
#include "transport/links/network_transport.h"
#include "transport/wire/recording_transport.h"

namespace isthmus::app {

/// Of one process: a site that comes back opens its links anew, and its frames go on into the same
/// file.
class SiteRecording {
 public:
  /// Opens nothing yet.
  explicit SiteRecording(std::filesystem::path file) : file_(std::move(file)) {}

  /// Lives as long as this. THROWS: as FrameRecorder, until it has been opened once.
  [[nodiscard]] FrameRecorder& open(WorkerId self, std::vector<std::string> sites, bool hub);

 private:
  const std::filesystem::path file_;
  SystemStorage storage_;
  SystemRuntime runtime_;
  std::unique_ptr<FrameRecorder> recorder_;
};

/// Connections tell it of each frame from now on. Borrows `recorder`; null: nothing.
void record_connections(MemberOptions& options, FrameRecorder* recorder);

}  // namespace isthmus::app
