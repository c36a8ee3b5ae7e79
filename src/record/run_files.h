// SPDX-License-Identifier: Apache-2.0
// Names of files in a run's folder that other modules write.
#pragma once

namespace isthmus::app {

/// Pieces of the state that a joiner has received (session/run/partial_state_file.h); the second
/// one while the first is rewritten.
inline constexpr const char* kPiecesFile = "joining.pieces";
inline constexpr const char* kPiecesTemporaryFile = ".joining.pieces.tmp";

}  // namespace isthmus::app
