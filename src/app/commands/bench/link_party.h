// SPDX-License-Identifier: Apache-2.0
// One site of a file that opens its links without training: to measure them, or to check that they
// can be opened.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "app/common/commands.h"
#include "isthmus/config.h"
#include "transport/links/network_transport.h"

namespace isthmus::app {

/// The site's parameters for meeting the others.
struct LinkParty {
  MemberOptions options;
  std::vector<SiteConfig> sites;       // of the file; empty: no file
  std::vector<std::string> endpoints;  // tcp://HOST:PORT; with `sites` they come from SiteRoutes
  std::vector<std::string> names;
  std::string hub;  // HOST:PORT of the file; empty: no hub
  Duration gather = std::chrono::minutes(10);
};

/// `purpose`: sites with the same purpose meet; a run has another one. THROWS: ConfigErrors;
/// ConfigError naming the existing sites, and why this site cannot open links, or two sites cannot
/// reach each other.
[[nodiscard]] LinkParty link_party(const std::filesystem::path& config,
                                   const std::vector<std::string>& overrides,
                                   const SiteArguments& site, const std::string& purpose);

/// Links of `purpose` between members that agree on `run`.
[[nodiscard]] RunIdentity link_identity(const std::string& purpose, const std::string& run);

}  // namespace isthmus::app
