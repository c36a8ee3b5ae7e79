// SPDX-License-Identifier: Apache-2.0
// The commands about links between sites: `bench link`, those that read what it writes, and
// `doctor` of a site.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "app/common/commands.h"

namespace isthmus::app {

/// One site of a file, or one of two machines without one.
struct BenchLinkArguments {
  std::filesystem::path config;        // empty: --listen or --to
  std::vector<std::string> overrides;  // --set, of that
  SiteArguments site;                  // name: with a file one of its, otherwise any
  std::string to;                      // HOST:PORT of the machine that listens
  bool plaintext = false;              // as net.plaintext
  double seconds = 6;                  // of each direction
  int streams = 16;                    // the most to be tried
  std::filesystem::path out;           // links file to write; empty: none
};
int command_bench_link(const BenchLinkArguments& arguments, Session& session);

/// `doctor CONFIG --site NAME`.
struct DoctorSiteArguments {
  std::filesystem::path config;
  std::vector<std::string> overrides;
  SiteArguments site;
  double seconds = 10;  // for the others to answer
};
int command_doctor_site(const DoctorSiteArguments& arguments, Session& session);

// As the commands without `links`, over the links of a links file; empty: none given.
int command_simulate(const SimulateArguments& arguments, const std::filesystem::path& links,
                     Session& session);
int command_plan_utilisation(const PlanUtilisationArguments& arguments,
                             const std::filesystem::path& links, Session& session);

}  // namespace isthmus::app
