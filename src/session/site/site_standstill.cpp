// SPDX-License-Identifier: Apache-2.0
#include "session/site/site_standstill.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>

#include "core/base/log.h"
#include "core/base/units.h"
#include "isthmus/errors.h"
#include "session/run/wishes.h"

namespace isthmus::app {
namespace {

constexpr Duration kLook = std::chrono::milliseconds(100);

}  // namespace

std::string SiteStandstill::too_few() const {
  std::vector<std::string> missing;
  for (std::size_t site = 0; site < stands_with_->size(); ++site) {
    if (!(*stands_with_)[site]) missing.push_back(all_.options.sites[site]);
  }
  return fmt::format("{} of {} sites are fewer than net.min_sites = {} ({} {} gone)",
                     stands_with_->size() - missing.size(), stands_with_->size(),
                     all_.options.min_sites, fmt::join(missing, ", "),
                     missing.size() == 1 ? "is" : "are");
}

// The wait is short, since signals and returning sites need the worker now and then. The time
// counts from the moment at which this site stands, since open rounds may take long to end, and
// anew whenever a site comes. A site that gives up before others does not lengthen the time.
void SiteStandstill::wait(StepIndex t) {
  std::vector<bool> live;
  all_.queue->update([&] { live = all_.live; });
  const TimePoint at = all_.now();
  const bool came =
      !stands_with_ || std::ranges::count(live, true) > std::ranges::count(*stands_with_, true);
  if (came || (all_.options.takes_in && all_.options.takes_in())) since_ = at;
  if (stands_with_ != live) {
    stands_with_ = live;
    if (all_.options.on_wait) all_.options.on_wait(too_few());
    log_warning("{}: waiting after step {}, for net.gather = {} at most", too_few(), t.value() - 1,
                human_time(in_seconds(all_.options.gather)));
  }
  if (at - since_ >= all_.options.gather) {
    // Not a PeerError: an attempt to come back would be of no use.
    throw Error(ExitCode::kPeer,
                fmt::format("{}, and have been so for net.gather: start again with --resume auto",
                            too_few()));
  }
  // The process that a signal is told may be gone as well; all lines up to here are on the disk.
  if (const StopWish wish = all_.wishes.stop(); wish != StopWish::kNone) {
    if (!stop_asked_) stop_asked_ = at;
    if (at - *stop_asked_ >= all_.options.patience) {
      throw Error(exit_code_of(wish),
                  fmt::format("stopped after step {}, where the run stood, by a signal that the "
                              "hub has not answered within net.patience",
                              t.value() - 1));
    }
  }
  (void)all_.queue->wait([&] { return !all_.agreement.waits(t) || all_.lost || all_.failure; },
                         all_.now() + kLook);
}

void SiteStandstill::end() {
  int here = 0;
  all_.queue->update([&] { here = static_cast<int>(std::ranges::count(all_.live, true)); });
  log_info("{}", here < all_.options.min_sites
                     ? "continuing for a while, to admit sites that have come back"
                     : "enough sites are connected again: continuing");
  if (all_.options.on_wait) all_.options.on_wait("");
  stands_with_.reset();
}

}  // namespace isthmus::app
