// SPDX-License-Identifier: Apache-2.0
// Settings of the allocator for freed memory. For programs, at their start.
#pragma once

#include <malloc.h>

namespace isthmus {

/// Keeps freed memory for the next round. By default glibc returns blocks from 128 KiB on to the
/// system and requests them anew, so that the kernel clears every frame and vector of an exchange
/// page by page: half of its time. Cost: the program's memory stays at its peak. Call once, before
/// threads start.
inline void keep_freed_memory() {
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_TOP_PAD, 64 << 20);
}

/// The reverse, for code that counts pages: returns free memory, and from now on blocks of at least
/// 1 MiB as they are freed, so that no block reuses the place of another.
inline void give_freed_memory_back() {
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
  malloc_trim(0);
}

/// For code that counts what is held beside vectors: blocks of at least 1 MiB go back as they are
/// freed, smaller ones stay, so the memory that is left shows the most that these have taken.
inline void keep_freed_small_blocks() {
  give_freed_memory_back();
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
}

}  // namespace isthmus
