// SPDX-License-Identifier: Apache-2.0
#include "sim/link.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/check.h"
#include "isthmus/errors.h"
#include "sim/wide.h"

namespace isthmus {
namespace {

// BBR probes for bandwidth and drains its queue; more streams fill each other's gaps. One constant
// fitted to nine measured cells, 75 to 100 % of the line: share = 1 - 0.11 / streams.
constexpr std::int64_t kBbrGapPerThousand = 110;

}  // namespace

void check_link(const DirectedLink& link, const std::string& label) {
  const auto require = [&](bool good, const char* what, double value, const char* rule) {
    if (!good) throw ConfigError(fmt::format("{}: {} = {}: {}", label, what, value, rule));
  };
  require(link.bits_per_s >= 0, "rate", static_cast<double>(link.bits_per_s), "must be >= 0 bit/s");
  require(link.one_way >= Duration::zero(), "rtt", 2 * in_seconds(link.one_way), "must be >= 0 s");
  require(link.jitter >= Duration::zero(), "jitter", in_seconds(link.jitter), "must be >= 0 s");
  require(link.loss >= 0 && link.loss < 1, "loss", link.loss,
          "must be in [0, 1), the share of packets lost");
  require(link.streams >= 1 && link.streams <= 1024, "streams", link.streams,
          "must be in 1..1024 connections");
}

std::int64_t mathis_bits_per_s(Duration rtt, double loss) {
  ISTHMUS_CHECK(rtt > Duration::zero(), rtt.count());
  ISTHMUS_CHECK(loss > 0, loss);
  const double seconds = in_seconds(rtt);
  return std::llround(1.22 * static_cast<double>(kSegmentBytes * 8) / (seconds * std::sqrt(loss)));
}

std::int64_t steady_goodput(const DirectedLink& link, LinkModel model) {
  ISTHMUS_CHECK(link.bits_per_s > 0, link.bits_per_s);
  std::int64_t rate = link.bits_per_s;
  if (model == LinkModel::kTcp) {
    rate = multiply_divide(rate, kSegmentBytes, kPacketBytes);
    if (link.congestion == Congestion::kBbr) {
      rate -= multiply_divide(rate, kBbrGapPerThousand, std::int64_t{1000} * link.streams);
    }
  }
  const bool limited =
      link.congestion == Congestion::kCubic && link.loss > 0 && link.rtt() > Duration::zero();
  if (!limited) return rate;
  return std::min(rate, link.streams * mathis_bits_per_s(link.rtt(), link.loss));
}

}  // namespace isthmus
