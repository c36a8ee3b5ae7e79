// SPDX-License-Identifier: Apache-2.0
// Real time and real chance, for what concerns people and files: progress, stamps, run ids. Nothing
// that a run computes depends on them. Any thread.
#pragma once

#include <string>

namespace isthmus::app {

/// Seconds since some fixed point; never goes back.
[[nodiscard]] double monotonic_now();
/// Seconds since 1970.
[[nodiscard]] double unix_now();
/// UTC, "2026-11-20T15:30:00Z".
[[nodiscard]] std::string utc_now();
/// UTC for people, "2026-11-20 15:30:00 UTC".
[[nodiscard]] std::string utc_words();
/// UTC for file names, "20261120-153000".
[[nodiscard]] std::string utc_stamp();
/// Of this machine's own time of day: 0 to 1439.
[[nodiscard]] int local_minute_of_day();
/// 12 hexadecimal digits that no other run has. THROWS: SystemError when the kernel gives none.
[[nodiscard]] std::string random_id();

}  // namespace isthmus::app
