// SPDX-License-Identifier: Apache-2.0
#include "session/site/site_start.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "isthmus/errors.h"
#include "isthmus/outer.h"
#include "session/run/trainer_facts.h"
#include "session/site/site_links.h"
#include "session/site/site_routes.h"
#include "session/site/site_session.h"

namespace isthmus::app {
std::string differences(const std::string& mine, const HelloNote& a, const std::string& theirs,
                        const HelloNote& b) {
  const std::map<std::string, std::string> left(a.common.begin(), a.common.end());
  const std::map<std::string, std::string> right(b.common.begin(), b.common.end());
  const bool one_kind = trainer_kind(a.common) == trainer_kind(b.common);
  std::vector<std::string> found;
  // Sites of before said nothing of evaluations.
  const bool both_say =
      left.contains(std::string(kEvaluation)) == right.contains(std::string(kEvaluation));
  const auto compared = [&](const std::string& what) {
    return (one_kind || !is_of_trainer(what)) && (both_say || what != kEvaluation);
  };
  for (const auto& [what, value] : left) {
    if (!compared(what)) continue;
    const auto other = right.find(what);
    if (other == right.end() || other->second != value) {
      found.push_back(fmt::format("{} is {} at {} and {} at {}", what, value, mine,
                                  other == right.end() ? "absent" : other->second, theirs));
    }
  }
  for (const auto& [what, value] : right) {
    if (!compared(what)) continue;
    if (!left.contains(what)) {
      found.push_back(fmt::format("{} is absent at {} and {} at {}", what, mine, value, theirs));
    }
  }
  // Its default has changed once: a run may have been begun under the old one.
  if (std::ranges::any_of(
          found, [](const std::string& text) { return text.starts_with("outer.final_sync "); })) {
    found.emplace_back(
        "say outer.final_sync in the file of every site, as the run was begun: \"drain\" was the "
        "default before \"full\"");
  }
  const auto differs = [&](std::string_view what) {
    return std::ranges::any_of(found, [&](const std::string& text) {
      return text.starts_with(fmt::format("{} is ", what));
    });
  };
  if (differs("net.start")) {
    found.emplace_back(
        "say net.start in the file of every site: its default is \"first\" at a trainer that is a "
        "program of its own, and \"same\" at the built-in one");
  }
  if (differs(kEvaluation)) {
    found.emplace_back(
        "each site evaluates its share of the same parts: give every trainer as many (in Python "
        "evaluate=... and evaluation_parts=..., which \"file\" takes from the data of the file)");
  }
  return fmt::format("{}", fmt::join(found, "; "));
}

namespace {

std::string steps_of(const std::vector<HeldCheckpoint>& held) {
  std::vector<std::int64_t> steps;
  for (const HeldCheckpoint& each : held) steps.push_back(each.step);
  std::ranges::sort(steps);
  return steps.empty() ? "none" : fmt::format("steps {}", fmt::join(steps, ", "));
}

/// RETURNS: the run's first checkpoint, one interval after the start, if sites hold only this one
/// and the start itself, a checkpoint of step 0. Sites that lack it were cut off earlier, and the
/// start is the only step that all know. If no site holds it: the start, which some sites have
/// written. A stop or a run's end writes a checkpoint too, at another step. Otherwise null.
const HeldCheckpoint* first_alone(const std::vector<HelloNote>& facts, std::int64_t interval) {
  const HeldCheckpoint* first = nullptr;
  const HeldCheckpoint* start = nullptr;
  for (const HelloNote& site : facts) {
    if (site.unreadable) return nullptr;  // perhaps later ones
    for (const HeldCheckpoint& held : site.held) {
      const HeldCheckpoint*& same = held.step == 0 ? start : first;
      const bool known = held.step == 0 || held.step == interval;
      if (!known || (same != nullptr && held != *same)) return nullptr;
      same = &held;
    }
  }
  return first != nullptr ? first : start;
}

/// Sites that offer contributions need a hub, which merges them.
void check_merges(const Config& config, const SiteArguments& arguments) {
  if (arguments.mpi) {
    throw ConfigError(fmt::format(
        "outer.method = \"{}\" under MPI: a hub merges what its sites offer, and an MPI job has "
        "none; train over TCP, each site by --site NAME, with a [hub] in {}",
        config.method, config.file.string()));
  }
  if (!has_hub(config, arguments)) {
    throw ConfigError(fmt::format(
        "outer.method = \"{}\" with sites that are processes of their own: a hub merges what they "
        "offer, and {} has no [hub]: add one with its address, and start `isthmus hub` there (or "
        "hub.site = NAME, a site's process that contains it)",
        config.method, config.file.string()));
  }
}

}  // namespace

WorkerId place_of_site(const Config& config, std::string_view name, std::string_view called) {
  std::vector<std::string> names;
  for (const SiteConfig& each : config.sites) {
    if (each.name == name) return WorkerId(static_cast<int>(names.size()));
    names.push_back(each.name);
  }
  throw ConfigError(fmt::format("{}: no such site; sites: {}", called, fmt::join(names, ", ")));
}

WorkerId site_of(const Config& config, const SiteArguments& arguments) {
  if (!arguments.mpi && !config.origins.contains("site[0].name")) {
    throw ConfigError(fmt::format(
        "--site {}: {} has no [[site]]: add one for each cluster, with name and address",
        arguments.name, config.file.string()));
  }
  const WorkerId self =
      place_of_site(config, arguments.name, fmt::format("--site {}", arguments.name));
  if (!arguments.mpi && (config.net.transport == "inproc" || config.net.transport == "mpi")) {
    throw ConfigError(fmt::format(
        "net.transport = \"{}\" together with --site: sites that are processes of their own need "
        "\"zmq\" (or leave the key out)",
        config.net.transport));
  }
  for (const MethodInfo& method : methods()) {
    if (method.name == config.method && method.by_arrival) {
      check_merges(config, arguments);
    } else if (method.name == config.method && !method.shared_anchors) {
      throw ConfigError(fmt::format(
          "outer.method = \"{}\" with sites that are processes of their own: its workers have "
          "anchors of their own, "
          "whose "
          "mean an evaluation would have to gather from all sites; run it in one process",
          config.method));
    }
  }
  if (!arguments.mpi) {
    check_addresses(config);
  }
  return self;
}

void append_data(std::span<const DataFile> files,
                 std::vector<std::pair<std::string, std::string>>& common) {
  constexpr std::size_t kFewFiles = 32;
  std::string all;
  for (std::size_t i = 0; i < files.size(); ++i) {
    std::string_view reading = files[i].reading;
    if (reading.ends_with(kAsItLies)) reading.remove_suffix(kAsItLies.size());
    const std::string value =
        fmt::format("{} bytes of SHA-256 {}{}{}", files[i].bytes, files[i].sha256,
                    reading.empty() ? "" : ", read as ", reading);
    all += value + "\n";
    if (files.size() <= kFewFiles) {
      common.emplace_back(
          fmt::format("data[{}] {}", i, std::filesystem::path(files[i].path).filename().string()),
          value);
    }
  }
  common.emplace_back(
      "data", fmt::format("{} files of SHA-256 {}", files.size(), sha256_hex(as_bytes(all))));
}

void check_alike(const std::vector<std::string>& sites, const std::vector<HelloNote>& facts) {
  const auto compare = [&](std::size_t a, std::size_t b) {
    if (const std::string text = differences(sites[a], facts[a], sites[b], facts[b]);
        !text.empty()) {
      throw ConfigError(fmt::format("the sites' configurations differ: {}", text));
    }
  };
  for (std::size_t m = 1; m < facts.size(); ++m) {
    compare(0, m);
    const std::string kind = trainer_kind(facts[m].common);
    std::size_t first = 0;  // of its kind
    while (trainer_kind(facts[first].common) != kind) ++first;
    if (first > 0 && first < m) compare(first, m);
  }
}

SiteStart agree_on_start(const std::vector<std::string>& sites, const std::vector<HelloNote>& facts,
                         std::optional<std::size_t> enough, std::int64_t interval) {
  check_alike(sites, facts);
  // A site that was restarted before the run had begun has nothing to resume from. A site that
  // holds the start alone has nothing to set against the others' later checkpoints.
  const auto is_later = [](const HeldCheckpoint& held) { return held.step > 0; };
  const bool later = std::ranges::any_of(
      facts, [&](const HelloNote& f) { return std::ranges::any_of(f.held, is_later); });
  const auto has_some = [&](const HelloNote& f) {
    return later ? std::ranges::any_of(f.held, is_later) : !f.held.empty();
  };
  const bool any = std::ranges::any_of(facts, has_some);
  std::vector<std::size_t> without;
  for (std::size_t m = 0; m < facts.size(); ++m) {
    if (!has_some(facts[m])) without.push_back(m);
  }
  // The first site tells which sites are present, and gives its state.
  if (!enough || !has_some(facts[0]) || facts.size() - without.size() < *enough) without.clear();
  const auto begins = [&](std::size_t m) { return std::ranges::find(without, m) == without.end(); };
  for (std::size_t m = 1; m < facts.size(); ++m) {
    if (any && begins(m) && facts[m].resumes != facts[0].resumes) {
      throw ConfigError(
          fmt::format("site {} was started with --resume and site {} without it: give it to all "
                      "sites or to none",
                      sites[facts[m].resumes ? m : 0], sites[facts[m].resumes ? 0 : m]));
    }
  }
  if (!any) {
    return {.run_id = facts[0].run_id, .resume_after = std::nullopt};
  }
  std::optional<HeldCheckpoint> newest;
  for (const HeldCheckpoint& candidate : facts[0].held) {
    bool everywhere = true;
    for (std::size_t m = 0; m < facts.size(); ++m) {
      const std::vector<HeldCheckpoint>& held = facts[m].held;
      const bool has_it = std::ranges::find(held, candidate) != held.end();
      everywhere = everywhere && (has_it || !begins(m));
    }
    if (everywhere && (!newest || candidate.step > newest->step)) newest = candidate;
  }
  std::string what;
  for (std::size_t m = 0; m < facts.size(); ++m) {
    what += fmt::format("{}{}: {}", m == 0 ? "" : "; ", sites[m], steps_of(facts[m].held));
    if (facts[m].unreadable) what += " and some that cannot be read";
  }
  if (newest && newest->step == 0) {
    // The start is worth going back to within the first interval; it costs all later checkpoints.
    const auto is_beyond = [&](const HeldCheckpoint& held) { return held.step > interval; };
    const bool costs = std::ranges::any_of(
        facts, [&](const HelloNote& f) { return std::ranges::any_of(f.held, is_beyond); });
    if (costs) newest.reset();
  }
  if (const HeldCheckpoint* const first = first_alone(facts, interval); first && !newest) {
    return {.run_id = first->run_id, .resume_after = std::nullopt, .given_up = first->step};
  }
  if (!newest) {
    throw ConfigError(
        fmt::format("--resume: no checkpoint that all sites have with the same outer parameters "
                    "({}): bring the missing ones back; or give the sites that lack them empty "
                    "folders, where net.min_sites others have one in common and there is no hub; "
                    "or start anew with --force",
                    what));
  }
  return {.run_id = newest->run_id, .resume_after = newest->step, .without = std::move(without)};
}

}  // namespace isthmus::app
