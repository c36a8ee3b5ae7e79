// SPDX-License-Identifier: Apache-2.0
// What sites must have alike before a run starts, and where the run starts. Pure functions of the
// sites' greetings: a session calls them, and a hub, and each site finds the same.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "isthmus/config.h"
#include "session/run/site_arguments.h"
#include "session/site/site_notes.h"

namespace isthmus::app {

/// Place of the site `name`. `called`: how its caller has named it. THROWS: ConfigError naming the
/// sites there are.
[[nodiscard]] WorkerId place_of_site(const Config& config, std::string_view name,
                                     std::string_view called);

/// The same of a site that is to run. THROWS: ConfigError naming the sites there are, and what
/// keeps the configuration from running over links: addresses, keys, a method that needs one
/// process.
[[nodiscard]] WorkerId site_of(const Config& config, const SiteArguments& arguments);

/// What all sites start from.
struct SiteStart {
  std::string run_id;
  std::optional<std::int64_t> resume_after;  // a checkpoint's step that every site has
  /// The run begins anew: not all sites have its first checkpoint, which is of this step.
  std::optional<std::int64_t> given_up = std::nullopt;
  /// Places of sites that hold nothing to go on from there: they join once the run has begun.
  std::vector<std::size_t> without = {};
  /// The run goes on already, and this site has fetched a worker's state to go on from.
  std::optional<OfferNote> joins = std::nullopt;
};
/// THROWS: ConfigError naming the keys that differ, with both values.
void check_alike(const std::vector<std::string>& sites, const std::vector<HelloNote>& facts);
/// Pure. `facts`: of every site, in order. `enough`: with how many, the first among them, the run
/// may begin where it goes on; nothing: with all. `interval`: steps between checkpoints, 0 where
/// they are not counted. Where the first one, after so many, is all that anybody has, and some have
/// none, the run begins anew. THROWS: ConfigError as check_alike, or that no checkpoint
/// is everywhere the same.
[[nodiscard]] SiteStart agree_on_start(const std::vector<std::string>& sites,
                                       const std::vector<HelloNote>& facts,
                                       std::optional<std::size_t> enough = std::nullopt,
                                       std::int64_t interval = 0);

/// Rounds sent by a step have ended at all sites once they have taken so many more.
[[nodiscard]] inline std::int64_t join_window(const Config& config) {
  return 2 * config.outer.H + 1;
}

/// What two sites do not have in common, by key, for people; empty: nothing.
[[nodiscard]] std::string differences(const std::string& site, const HelloNote& note,
                                      const std::string& other, const HelloNote& others);

}  // namespace isthmus::app
