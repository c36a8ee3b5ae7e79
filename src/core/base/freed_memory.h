// SPDX-License-Identifier: Apache-2.0
// What the allocator does with memory that is freed. For programs, at their start.
#pragma once

#include <malloc.h>

namespace isthmus {

/// Keeps freed memory for the next round. By default glibc gives blocks from 128 KiB on back to the
/// system and takes them anew, so that every frame and vector of an exchange is cleared page by
/// page: half its time. Costs: the memory of the program stays at its peak. Call once, before
/// threads.
inline void keep_freed_memory() {
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_TOP_PAD, 64 << 20);
}

/// The reverse, for what counts pages: gives back what is free, and from now on blocks of a MiB and
/// more as they are freed, so that none lies where another has been.
inline void give_freed_memory_back() {
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
  malloc_trim(0);
}

}  // namespace isthmus
