// SPDX-License-Identifier: Apache-2.0
#include "core/base/disk_patience.h"

#include <fmt/format.h>

#include "core/base/log.h"
#include "core/base/storage.h"

namespace isthmus {

void DiskPatience::write(const std::string& what, const std::function<void()>& write) const {
  const TimePoint begin = runtime_.clock().now();
  constexpr Duration kBetweenWords = std::chrono::minutes(1);
  TimePoint next_word = begin;
  while (true) {
    try {
      write();
      break;
    } catch (const DiskFullError& error) {
      const TimePoint now = runtime_.clock().now();
      const auto seconds = [](Duration time) {
        return std::chrono::duration_cast<std::chrono::seconds>(time).count();
      };
      if (now - begin >= kInAll || (gives_up_ && gives_up_())) {
        throw DiskFullError(fmt::format("{} could not be written, tried for {} s: {}", what,
                                        seconds(now - begin), error.what()));
      }
      if (now >= next_word) {
        log_error("{} cannot be written, and is tried again for {} s: {}", what,
                  seconds(kInAll - (now - begin)), error.what());
        next_word = now + kBetweenWords;
      }
      runtime_.sleep_until(now + kBetween);
    }
  }
  if (next_word != begin) log_info("{} is written", what);
}

}  // namespace isthmus
