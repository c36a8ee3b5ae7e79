// SPDX-License-Identifier: Apache-2.0
// Where a thread may run that has made pinned teams (thread_team.h).
#pragma once

namespace isthmus::kernels {

/// The calling thread may run wherever it might before its teams pinned it: another thread drives
/// them from now on. It still is the one to destroy them.
void unpin_calling_thread();

}  // namespace isthmus::kernels
