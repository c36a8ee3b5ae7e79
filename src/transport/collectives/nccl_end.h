// SPDX-License-Identifier: Apache-2.0
// The end of NCCL's communicators. ncclCommDestroy and ncclCommAbort, and with some versions
// ncclCommFinalize, may hold the calling thread until the other ranks have come too, also when
// `blocking = 0`. So a task that owns the handle makes these calls, and is waited for so long.
#pragma once

#include <functional>
#include <memory>

#include "isthmus/runtime.h"
#include "transport/collectives/nccl_calls.h"

namespace isthmus {

/// Ends `comm`, which the caller must not touch again. `orderly`, asked from the calling thread
/// again and again: whether it may still be finalized, for `patience` and some seconds at most;
/// else it is aborted. RETURNS: whether NCCL has let go of it within a second after that. If not,
/// its task is left behind for good, and NCCL may touch stream, memory and where it wrote `comm`.
[[nodiscard]] bool end_nccl(const NcclCalls& calls, const std::shared_ptr<Runtime>& runtime,
                            ncclComm_t comm, int device, Duration patience,
                            const std::function<bool()>& orderly) noexcept;

}  // namespace isthmus
