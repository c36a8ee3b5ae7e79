// SPDX-License-Identifier: Apache-2.0
// Mapped files that shrink while they are read: the kernel then sends SIGBUS, which ends a process
// without a message. A program requests a message once; a library leaves signals to its caller.
// Thread-safe.
#pragma once

#include <cstddef>
#include <string_view>

namespace isthmus {

/// Registers that file `path` is mapped at [begin, begin + size), until `forget_mapping`. Beyond a
/// thousand mappings further ones are not named in the message.
void note_mapping(const std::byte* begin, std::size_t size, std::string_view path);
void forget_mapping(const std::byte* begin);

/// From now on a read beyond the end of a mapped file ends the process with exit code 4 and one
/// line on stderr that names the file. Files are then as after a kill: checkpoints are whole, and
/// the run can continue with --resume.
void end_with_words_at_shortened_files();

}  // namespace isthmus
