// SPDX-License-Identifier: Apache-2.0
// `train --site NAME --record FILE`: records the frames on a site's links.
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

/// One per process: a site that rejoins opens its links again and records into the same file.
class SiteRecording {
 public:
  /// Opens nothing yet.
  explicit SiteRecording(std::filesystem::path file) : file_(std::move(file)) {}

  /// The recorder lives as long as this object. THROWS: as FrameRecorder, until it has been opened
  /// once.
  [[nodiscard]] FrameRecorder& open(WorkerId self, std::vector<std::string> sites, bool hub);

 private:
  const std::filesystem::path file_;
  SystemStorage storage_;
  SystemRuntime runtime_;
  std::unique_ptr<FrameRecorder> recorder_;
};

/// Connections record each frame from now on. Borrows `recorder`; null: no effect.
void record_connections(MemberOptions& options, FrameRecorder* recorder);

}  // namespace isthmus::app
