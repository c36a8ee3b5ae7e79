// SPDX-License-Identifier: Apache-2.0
// Unpins a thread that has made pinned teams (thread_team.h).
#pragma once

namespace isthmus::kernels {

/// The calling thread may again run on all cores that it could use before its teams pinned it:
/// another thread drives them from now on. The calling thread must still destroy them.
void unpin_calling_thread();

}  // namespace isthmus::kernels
