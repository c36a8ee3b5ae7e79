// SPDX-License-Identifier: Apache-2.0
#include "app/commands/plan/link_question.h"

#include <fmt/format.h>

#include <algorithm>

#include "config/links_file.h"
#include "core/base/suggest.h"
#include "core/base/units.h"
#include "session/run/usage_error.h"
#include "sim/topology.h"

namespace isthmus::app {
namespace {

std::vector<std::string> site_names_in(const LinksFile& file) {
  std::vector<std::string> names;
  for (const LinkConfig& link : file.links) {
    for (const std::string& name : {link.a, link.b}) {
      if (name != "*" && std::ranges::find(names, name) == names.end()) names.push_back(name);
    }
  }
  return names;
}

void check_asked_sites(std::string_view command, const std::filesystem::path& file,
                       const std::vector<std::string>& asked,
                       const std::vector<std::string>& known) {
  for (const std::string& site : asked) {
    // A file whose entries say "*" alone holds for sites of any name.
    if (known.empty() || std::ranges::find(known, site) != known.end()) continue;
    const auto near = closest(site, known);
    throw UsageError(fmt::format(
        "{}: --sites {}: no [[link]] of {} names that site{}; its sites: {}", command, site,
        file.string(), near ? fmt::format("; did you mean '{}'?", *near) : "", join(known)));
  }
  for (std::size_t i = 0; i < asked.size(); ++i) {
    if (std::ranges::count(asked, asked[i]) > 1) {
      throw UsageError(fmt::format("{}: --sites names '{}' twice", command, asked[i]));
    }
  }
}

void check_link_rates(std::string_view command, const LinkQuestion& question) {
  const std::size_t sites = question.sites.size();
  for (std::size_t from = 0; from < sites; ++from) {
    for (std::size_t to = 0; to < sites; ++to) {
      if (from == to || question.links[from * sites + to].bits_per_s > 0) continue;
      throw UsageError(
          fmt::format("{}: the link {} -> {} of {} has a rate of 0 bit/s: nothing ever crosses it; "
                      "give its rate, or leave the site out with --sites",
                      command, question.sites[from], question.sites[to], question.origin));
    }
  }
}

std::string slowest_link_of(const LinkQuestion& question) {
  const std::size_t sites = question.sites.size();
  std::string words;
  std::int64_t slowest = 0;
  for (std::size_t from = 0; from < sites; ++from) {
    for (std::size_t to = 0; to < sites; ++to) {
      const DirectedLink& link = question.links[from * sites + to];
      if (from == to || (!words.empty() && link.bits_per_s >= slowest)) continue;
      slowest = link.bits_per_s;
      words = fmt::format("{} -> {}, {}, {} round trip", question.sites[from], question.sites[to],
                          human_rate(static_cast<double>(link.bits_per_s)),
                          human_time(in_seconds(link.rtt())));
    }
  }
  return words;
}

}  // namespace

LinkQuestion links_of_file(std::string_view command, const std::filesystem::path& file,
                           const std::vector<std::string>& asked) {
  LinkQuestion question;
  // Pairs are asked about below: of the sites that are meant alone.
  const LinksFile read = read_links_file(file, {});
  const std::vector<std::string> known = site_names_in(read);
  check_asked_sites(command, file, asked, known);
  question.sites = asked.empty() ? known : asked;
  if (question.sites.size() < 2) {
    throw UsageError(fmt::format(
        "{}: {} {}: two at least are needed; name sites in its [[link]] entries, or give --sites "
        "east,west",
        command, file.string(),
        question.sites.empty() ? "names no sites" : "is asked about one site"));
  }
  std::vector<LinkConfig> links;
  for (const LinkConfig& link : read.links) {
    const auto meant = [&](const std::string& name) {
      return name == "*" || std::ranges::find(question.sites, name) != question.sites.end();
    };
    if (!meant(link.a) || !meant(link.b)) continue;
    links.push_back(link);
    question.has_traces = question.has_traces || !link.trace.empty();
  }
  if (links.empty()) {
    throw UsageError(fmt::format("{}: no [[link]] of {} joins {}", command, file.string(),
                                 join(question.sites)));
  }
  question.links = link_matrix(links, question.sites);
  question.origin = read.origin;
  check_link_rates(command, question);
  question.slowest = slowest_link_of(question);
  return question;
}

LinkModel link_model_of(const std::string& word) {
  if (word == "ideal") return LinkModel::kPlain;
  if (word == "goodput") return LinkModel::kTcp;
  throw UsageError(fmt::format("--link-model {}: must be ideal or goodput", word));
}

}  // namespace isthmus::app
