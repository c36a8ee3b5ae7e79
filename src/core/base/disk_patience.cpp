// SPDX-License-Identifier: Apache-2.0
#include "core/base/disk_patience.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/base/log.h"

namespace isthmus {

void DiskPatience::write(const std::string& what, const std::function<void()>& write) const {
  constexpr Duration kBetweenWords = std::chrono::minutes(1);
  constexpr Duration kLook = std::chrono::milliseconds(250);  // at the wish
  const TimePoint begin = runtime_.clock().now();
  TimePoint end = begin + kInAll;
  TimePoint next_word = begin;
  bool hurries = false;
  const auto goes_on = [&](TimePoint now) {
    const DiskWish wish = wish_ ? wish_() : DiskWish::kTryOn;
    if (wish == DiskWish::kGiveUp) end = std::min(end, now);
    if (wish == DiskWish::kHurry && !std::exchange(hurries, true)) {
      end = std::min(end, now + kHurried);
    }
    return now < end;
  };
  const auto seconds = [](Duration time) {
    return std::chrono::duration_cast<std::chrono::seconds>(time).count();
  };
  while (true) {
    try {
      write();
      break;
    } catch (const DiskFullError& error) {
      TimePoint now = runtime_.clock().now();
      if (!goes_on(now)) {
        throw DiskFullError(fmt::format("{} could not be written, tried for {} s: {}", what,
                                        seconds(now - begin), error.what()));
      }
      if (now >= next_word) {
        log_error("{} cannot be written, and is tried again for {} s: {}", what, seconds(end - now),
                  error.what());
        next_word = now + kBetweenWords;
      }
      const TimePoint next = now + kBetween;
      while (now < next && goes_on(now)) {
        const TimePoint look = std::min(next, now + kLook);
        runtime_.sleep_until(look);
        now = runtime_.clock().now();
      }
    }
  }
  if (next_word != begin) log_info("{} is written", what);
}

void append_patiently(WritableFile& file, std::span<const std::byte> bytes,
                      const DiskPatience* patience, const std::string& what,
                      const std::function<void()>& before) {
  const auto append = [&] {
    if (before) before();
    try {
      file.append(bytes);
    } catch (const DiskFullError& error) {
      bytes = bytes.subspan(error.written());
      throw;
    }
  };
  if (patience == nullptr) {
    append();
  } else {
    patience->write(what, append);
  }
}

}  // namespace isthmus
