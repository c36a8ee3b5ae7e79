// SPDX-License-Identifier: Apache-2.0
// The commands about links between sites: `bench link`, the commands that use its links file, and
// `doctor` of a site.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "app/common/commands.h"

namespace isthmus::app {

/// Measures the links between all sites of a file, one link at a time, or the link between two
/// machines without a file. Every site, or both machines, must run the command.
struct BenchLinkArguments {
  std::filesystem::path config;        // empty: --listen or --to
  std::vector<std::string> overrides;  // --set, for `config`
  SiteArguments site;                  // this site: named in `config`, or any name without a file
  std::string to;                      // HOST:PORT of the machine that listens
  bool plaintext = false;              // as net.plaintext
  double seconds = 6;                  // to measure in each direction
  int streams = 16;                    // the most to try
  std::filesystem::path out;           // links file to write; empty: none
};
/// Blocks until all links are measured. THROWS: UsageError for unfit arguments; PeerError when a
/// site is lost or does not come.
int command_bench_link(const BenchLinkArguments& arguments, Session& session);

/// `doctor CONFIG --site NAME`.
struct DoctorSiteArguments {
  std::filesystem::path config;
  std::vector<std::string> overrides;
  SiteArguments site;
  double seconds = 10;  // timeout for answers of the other sites
};
int command_doctor_site(const DoctorSiteArguments& arguments, Session& session);

// Like the versions without `links`; if `links` is not empty, its links replace the config's.
int command_simulate(const SimulateArguments& arguments, const std::filesystem::path& links,
                     Session& session);
int command_plan_utilisation(const PlanUtilisationArguments& arguments,
                             const std::filesystem::path& links, Session& session);

}  // namespace isthmus::app
