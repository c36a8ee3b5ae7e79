// SPDX-License-Identifier: Apache-2.0
// The values that must be equal at all sites before a run starts, and where the run starts. Pure
// functions of the sites' greetings: sessions and a hub call them with equal results.
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

/// Place of the site `name`. `called`: the caller's word for it. THROWS: ConfigError naming the
/// existing sites.
[[nodiscard]] WorkerId place_of_site(const Config& config, std::string_view name,
                                     std::string_view called);

/// The same for a site that is to run. THROWS: ConfigError naming the existing sites, and settings
/// that do not allow a run over links: addresses, keys, a method that needs one process.
[[nodiscard]] WorkerId site_of(const Config& config, const SiteArguments& arguments);

/// The common start of all sites.
struct SiteStart {
  std::string run_id;
  std::optional<std::int64_t> resume_after;  // a checkpoint's step that every site has
  /// The run begins anew: some site lacks the run's first checkpoint, of this step.
  std::optional<std::int64_t> given_up = std::nullopt;
  /// Places of sites without that checkpoint: they join once the run has begun.
  std::vector<std::size_t> without = {};
  /// The run is running, and this site has fetched a worker's state to continue from.
  std::optional<OfferNote> joins = std::nullopt;
};
/// Values of the trainer are compared among sites of one kind of trainer. THROWS: ConfigError
/// naming the keys that differ, with both values.
void check_alike(const std::vector<std::string>& sites, const std::vector<HelloNote>& facts);
/// `facts`: of every site, in order; at least one. `enough`: the number of sites, including the
/// first, with which the run may continue; nothing: all. `interval`: steps between checkpoints, 0
/// if not counted in steps. The run begins anew if its first checkpoint, of that step, is the only
/// one that exists and some sites lack it. THROWS: ConfigError as check_alike, when only some sites
/// were told to resume, or when no checkpoint is the same at all sites.
[[nodiscard]] SiteStart agree_on_start(const std::vector<std::string>& sites,
                                       const std::vector<HelloNote>& facts,
                                       std::optional<std::size_t> enough = std::nullopt,
                                       std::int64_t interval = 0);

/// Rounds sent by a step have ended at all sites once they have taken this many more steps.
[[nodiscard]] inline std::int64_t join_window(const Config& config) {
  return 2 * config.outer.H + 1;
}

/// The values in which two sites differ, by key, with the remedies of some, for people; empty:
/// none. As in check_alike.
[[nodiscard]] std::string differences(const std::string& site, const HelloNote& note,
                                      const std::string& other, const HelloNote& others);

}  // namespace isthmus::app
