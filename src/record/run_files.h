// SPDX-License-Identifier: Apache-2.0
// Names of files in a run's folder that others than the record write.
#pragma once

namespace isthmus::app {

/// What a site that joins has of the state (session/run/saved_pieces.h); the second one while the
/// first is written anew.
inline constexpr const char* kPiecesFile = "joining.pieces";
inline constexpr const char* kPiecesTemporaryFile = ".joining.pieces.tmp";

}  // namespace isthmus::app
