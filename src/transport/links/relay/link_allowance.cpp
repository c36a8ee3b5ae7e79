// SPDX-License-Identifier: Apache-2.0
#include "transport/links/relay/link_allowance.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <optional>
#include <string>

#include "core/base/log.h"
#include "isthmus/errors.h"
#include "transport/links/relay/relay.h"
#include "transport/links/relay/relayed_links.h"

namespace isthmus {

namespace {

constexpr long kMostSockets = 65535;  // of a ZeroMQ context

/// The files and sockets that links take with this many connections to each peer.
class Needs {
 public:
  explicit Needs(const MemberOptions& options)
      : others_(options.members - 1L),
        processes_(options.readmits ? 2 : 1),
        trying_(options.detours ? others_ : 0),
        besides_(others_ * processes_ * most_streams(options) + passed_on_files(options) +
                 relay_files(options)) {}

  [[nodiscard]] long files(long streams) const {
    constexpr long kFiles = 4, kOther = 64;
    return kFiles * (others_ * processes_ * streams + trying_) + besides_ + kOther;
  }
  [[nodiscard]] long sockets(long streams) const {
    constexpr long kSockets = 3, kOther = 16;
    const long times = trying_ > 0 ? 2 : processes_;  // they end when ZeroMQ has time
    return kSockets * times * (others_ * streams + trying_) + kOther;
  }
  [[nodiscard]] bool fit(long streams, const std::optional<rlim_t>& limit) const {
    return sockets(streams) <= kMostSockets &&
           (!limit || static_cast<rlim_t>(files(streams)) <= *limit);
  }

 private:
  const long others_, processes_, trying_, besides_;
};

/// Open files of this process; nothing: any number.
std::optional<rlim_t> file_limit() {
  rlimit limit{};
  const bool limited = ::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return limited ? std::optional(limit.rlim_cur) : std::nullopt;
}

}  // namespace

LinkAllowance link_allowance(const MemberOptions& options) {
  const Needs needs(options);
  const std::optional<rlim_t> limit = file_limit();
  if (!needs.fit(options.streams, limit)) {
    throw ConfigError(fmt::format(
        "{} members with net.streams = {} need {} open files and {} sockets here; this process may "
        "have {} (ulimit -n) and {}: raise ulimit -n, or set fewer streams{}",
        options.members, options.most_streams == 0 ? std::to_string(options.streams) : "\"auto\"",
        needs.files(options.streams), needs.sockets(options.streams),
        limit ? std::to_string(*limit) : "any number", kMostSockets,
        options.detours ? ", or net.detour = false" : ""));
  }
  long streams = most_streams(options);
  while (!needs.fit(streams, limit)) --streams;
  return {.streams = static_cast<int>(streams),
          .sockets = static_cast<int>(needs.sockets(streams))};
}

void spare_detours(MemberOptions& options) {
  const std::optional<rlim_t> limit = file_limit();
  const Needs with(options);
  if (!options.detours || with.fit(options.streams, limit)) return;
  MemberOptions direct = options;
  direct.detours = false;
  if (!Needs(direct).fit(options.streams, limit)) return;  // refused when links are made
  options.detours = false;
  log_warning(
      "net.detour: no way round a broken pair from here, since that needs {} open files and this "
      "process may have {} (ulimit -n): raise ulimit -n, or set net.detour = false",
      with.files(options.streams), limit ? std::to_string(*limit) : "any number");
}

}  // namespace isthmus
