// SPDX-License-Identifier: Apache-2.0
// One site of a file that opens its links without training: to measure them, or to see whether they
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

/// How this site meets the others.
struct LinkParty {
  MemberOptions options;
  std::vector<SiteConfig> sites;       // of the file; empty: there is none
  std::vector<std::string> endpoints;  // tcp://HOST:PORT; with `sites` to be had from SiteRoutes
  std::vector<std::string> names;
  std::string hub;  // HOST:PORT of the file's; empty: it has none
  Duration gather = std::chrono::minutes(10);
};

/// `purpose`: those who open links for the same one meet; a run, and other purposes, are told
/// apart. THROWS: ConfigErrors; ConfigError naming the sites there are, and what keeps this one
/// from opening links, or two of them from reaching each other.
[[nodiscard]] LinkParty link_party(const std::filesystem::path& config,
                                   const std::vector<std::string>& overrides,
                                   const SiteArguments& site, const std::string& purpose);

/// Links of `purpose` between members that agree on `run`.
[[nodiscard]] RunIdentity link_identity(const std::string& purpose, const std::string& run);

}  // namespace isthmus::app
