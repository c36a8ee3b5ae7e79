// SPDX-License-Identifier: Apache-2.0
// Real time and true randomness, for people and files: progress, stamps, run ids. No result of a
// run depends on them. Any thread.
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
/// Minute of this machine's local day: 0 to 1439.
[[nodiscard]] int local_minute_of_day();
/// 12 random hexadecimal digits, unique for each run. THROWS: SystemError when the kernel gives
/// none.
[[nodiscard]] std::string random_id();

}  // namespace isthmus::app
