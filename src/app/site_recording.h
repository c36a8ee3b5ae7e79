// SPDX-License-Identifier: Apache-2.0
// `train --site NAME --record FILE`: what a site's links carry, written down.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "transport/network_transport.h"
#include "transport/recording_transport.h"

namespace isthmus::app {

/// RETURNS: null for no `file`. Borrows storage and clock. THROWS: as FrameRecorder.
[[nodiscard]] std::unique_ptr<FrameRecorder> open_recorder(Storage& storage, const Clock& clock,
                                                           const std::filesystem::path& file,
                                                           Rank self,
                                                           std::vector<std::string> sites,
                                                           bool hub);

/// Connections tell it of each frame from now on. Borrows `recorder`; null: nothing.
void record_connections(MemberOptions& options, FrameRecorder* recorder);

}  // namespace isthmus::app
