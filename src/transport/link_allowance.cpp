// SPDX-License-Identifier: Apache-2.0
#include "transport/link_allowance.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include "isthmus/errors.h"
#include "transport/relayed_links.h"

namespace isthmus {

LinkAllowance link_allowance(const MemberOptions& options) {
  constexpr long kSockets = 3, kFiles = 4, kOtherSockets = 16, kOtherFiles = 64;
  constexpr long kMostSockets = 65535;  // of a ZeroMQ context
  const long links = (options.members - 1L) * (options.readmits ? 2 : 1);
  const long trying = options.detours ? options.members - 1L : 0;
  const long besides = links * most_streams(options) + passed_on_files(options);
  const auto sockets = [&](long streams) {
    return kSockets * (links * streams + trying) + kOtherSockets;
  };
  const auto files = [&](long streams) {
    return kFiles * (links * streams + trying) + besides + kOtherFiles;
  };
  rlimit limit{};
  const bool limited = ::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  const auto fit = [&](long streams) {
    return sockets(streams) <= kMostSockets &&
           (!limited || static_cast<rlim_t>(files(streams)) <= limit.rlim_cur);
  };
  if (!fit(options.streams)) {
    throw ConfigError(fmt::format(
        "{} members with net.streams = {} need {} open files and {} sockets here; this process may "
        "have {} (ulimit -n) and {}: raise ulimit -n, or set fewer streams",
        options.members, options.most_streams == 0 ? std::to_string(options.streams) : "\"auto\"",
        files(options.streams), sockets(options.streams),
        limited ? std::to_string(limit.rlim_cur) : "any number", kMostSockets));
  }
  long streams = most_streams(options);
  while (!fit(streams)) --streams;
  return {.streams = static_cast<int>(streams), .sockets = static_cast<int>(sockets(streams))};
}

}  // namespace isthmus
