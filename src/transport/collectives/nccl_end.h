// SPDX-License-Identifier: Apache-2.0
// The end of NCCL's communicators. ncclCommDestroy and ncclCommAbort, and with some versions
// ncclCommFinalize, may block the calling thread until the other ranks call them too, also when
// `blocking = 0`. So a task that owns the handle makes these calls, with a bounded wait for it.
#pragma once

#include <functional>
#include <memory>

#include "isthmus/runtime.h"
#include "transport/collectives/nccl_calls.h"

namespace isthmus {

/// Ends `comm`, which the caller must not use again. Blocks meanwhile. `orderly`, called repeatedly
/// on the calling thread: whether it may still be finalized, for at most `patience` and some
/// seconds; else it is aborted. RETURNS: whether NCCL has returned within a second after that. If
/// not, the task is leaked, and NCCL may still access stream, memory and the address of `comm`.
[[nodiscard]] bool end_nccl(const NcclCalls& calls, const std::shared_ptr<Runtime>& runtime,
                            ncclComm_t comm, int device, Duration patience,
                            const std::function<bool()>& orderly) noexcept;

}  // namespace isthmus
