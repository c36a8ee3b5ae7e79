// SPDX-License-Identifier: Apache-2.0
#include "core/base/fault_point.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <csignal>

#include "core/base/check.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {

static_assert(kFaultPoints.size() == static_cast<std::size_t>(FaultPoint::kServes) + 1);
constexpr int kNowhere = -1;

// Of the process: points are reached in every layer, and only a test's run is armed.
std::atomic<int> armed_at{kNowhere};
std::atomic<int> times_left{0};

}  // namespace

Fault parse_fault(std::string_view text) {
  constexpr std::string_view kBegin = "kill@";
  const std::size_t colon = text.rfind(':');
  if (text.starts_with(kBegin) && colon != std::string_view::npos) {
    const std::string_view name = text.substr(kBegin.size(), colon - kBegin.size());
    const std::string_view number = text.substr(colon + 1);
    const auto found = std::ranges::find(kFaultPoints, name);
    int nth = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), nth);
    if (found != kFaultPoints.end() && error == std::errc() &&
        end == number.data() + number.size() && nth >= 1) {
      return {static_cast<FaultPoint>(found - kFaultPoints.begin()), nth};
    }
  }
  throw ConfigError(
      fmt::format("ISTHMUS_FAULT = '{}': must be kill@POINT:N, which kills this process when it "
                  "reaches that point for the Nth time, or unset; points: {}",
                  text, fmt::join(kFaultPoints, ", ")));
}

void arm(const Fault& fault) {
  ISTHMUS_CHECK(!is_armed());
  times_left = fault.nth;
  armed_at = static_cast<int>(fault.at);
}

bool is_armed() { return armed_at != kNowhere; }

void reach(FaultPoint point) {
  if (armed_at != static_cast<int>(point) || --times_left != 0) return;
  (void)std::raise(SIGKILL);
}

}  // namespace isthmus
