// SPDX-License-Identifier: Apache-2.0
#include "record/wall_clock.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/random.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>

#include "isthmus/errors.h"

namespace isthmus::app {
namespace {

std::tm utc() { return fmt::gmtime(std::chrono::system_clock::now()); }

}  // namespace

double monotonic_now() { return in_seconds(std::chrono::steady_clock::now().time_since_epoch()); }

double unix_now() { return in_seconds(std::chrono::system_clock::now().time_since_epoch()); }

std::string utc_now() { return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", utc()); }

std::string utc_words() { return fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", utc()); }

std::string utc_stamp() { return fmt::format("{:%Y%m%d-%H%M%S}", utc()); }

int local_minute_of_day() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  return local.tm_hour * 60 + local.tm_min;
}

std::string random_id() {
  std::array<unsigned char, 6> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    throw SystemError(fmt::format("no random bytes for a run id: {}", std::strerror(errno)));
  }
  std::string id;
  for (const unsigned char byte : bytes) {
    id += fmt::format("{:02x}", byte);
  }
  return id;
}

}  // namespace isthmus::app
