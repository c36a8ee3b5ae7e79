// SPDX-License-Identifier: Apache-2.0
// `plan sync`: the time of one synchronization on given links, and the share of computing that
// remains.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "app/commands/plan/flag_quantity.h"
#include "app/commands/plan/link_plans.h"
#include "app/commands/plan/link_question.h"
#include "core/base/suggest.h"
#include "core/base/units.h"
#include "isthmus/errors.h"
#include "plan/sync_time.h"
#include "record/json_line.h"
#include "sim/network.h"

namespace isthmus::app {
namespace {

constexpr double kMostSyncValues = 2e10;  // a ring of them is walked part by part
constexpr double kSyncNanoseconds = 1e9;
constexpr double kSyncValueBits = 32;
constexpr double kMostSyncRate = 1e15;
constexpr double kMostSyncSeconds = 1e6;
constexpr int kMostSyncSites = 64;
constexpr std::int64_t kMostSyncSteps = 1'000'000'000;

void take_sync_links(const PlanSyncArguments& a, SyncQuestion& question) {
  if (!a.links.empty()) {
    if (!a.rate.empty() || !a.rtt.empty() || a.sites) {
      throw UsageError(
          "plan sync: --links says sites, rates and round trips; leave out --sites, --rate and "
          "--rtt");
    }
    const LinkQuestion links = links_of_file("plan sync", a.links, {});
    question.members = static_cast<int>(links.sites.size());
    question.links = links.links;
    return;
  }
  if (a.rate.empty()) {
    throw UsageError(
        "plan sync: give the links by --sites 4 --rate 200Mbit/s, or by --links links.toml");
  }
  question.members = a.sites.value_or(2);
  if (question.members < 2 || question.members > kMostSyncSites) {
    throw UsageError(
        fmt::format("plan sync: --sites {}: must be in 2 .. {}", question.members, kMostSyncSites));
  }
  DirectedLink link;
  link.bits_per_s = std::llround(flag_quantity("--rate", a.rate, Dimension::kRate, kMostSyncRate));
  link.congestion = Congestion::kCubic;  // TCP's default; a links file may say otherwise
  if (!a.rtt.empty()) {
    link.one_way = Duration(std::llround(
        kSyncNanoseconds / 2 * flag_quantity("--rtt", a.rtt, Dimension::kTime, kMostSyncSeconds)));
  }
  question.links = uniform_links(question.members, link);
}

SyncWay sync_way_of(const std::string& word) {
  const auto names = sync_way_names();
  const auto found = std::ranges::find(names, word);
  if (found == names.end()) {
    throw UsageError(fmt::format("plan sync: --way {}: must be one of {}", word,
                                 join(std::vector<std::string>(names.begin(), names.end()))));
  }
  return static_cast<SyncWay>(found - names.begin());
}

SyncQuestion sync_question(const PlanSyncArguments& a) {
  SyncQuestion question;
  if (a.params.empty()) {
    throw UsageError(
        "plan sync: give the vector by --params 30.8M; see `isthmus plan sync --help`");
  }
  question.values = std::max<std::int64_t>(
      1,
      std::llround(flag_quantity("--params", a.params, Dimension::kParameters, kMostSyncValues)));
  try {
    question.codec = make_codec(a.codec);
  } catch (const ConfigError& error) {
    throw UsageError(fmt::format("plan sync: --codec {}: {}", a.codec, error.what()));
  }
  question.way = sync_way_of(a.way);
  if (question.codec->sparse()) {
    throw UsageError(fmt::format(
        "plan sync: --codec {}: keeps some of the values only, which all members send to all; {} "
        "takes codecs of every value: {}",
        a.codec, a.way, "fp32, bf16, int8, int4"));
  }
  if (!(a.link_share > 0 && a.link_share <= 1)) {
    throw UsageError(
        fmt::format("plan sync: --link-share {:g}: must be above 0 and at most 1, the share of "
                    "each link's rate "
                    "that frames get",
                    a.link_share));
  }
  if (!a.processor.empty()) {
    if (question.way != SyncWay::kReduce) {
      throw UsageError(fmt::format(
          "plan sync: --processor {}: says how fast a site's processor exchanges as runs do, and a "
          "{} is another program's; give --way reduce",
          a.processor, a.way));
    }
    question.processor_bits_per_s =
        flag_quantity("--processor", a.processor, Dimension::kRate, kMostSyncRate);
  }
  take_sync_links(a, question);
  question.link.model = link_model_of(a.link_model);
  for (DirectedLink& link : question.links) {
    if (link.bits_per_s == 0) continue;  // of a site to itself
    link.bits_per_s = std::llround(static_cast<double>(link.bits_per_s) * a.link_share);
    if (link.bits_per_s < 1) {
      throw UsageError(fmt::format("plan sync: --link-share {:g}: leaves a link less than 1 bit/s",
                                   a.link_share));
    }
  }
  return question;
}

BlockingRun blocking_run(const PlanSyncArguments& a) {
  BlockingRun run{
      .H = a.H, .steps = a.steps.value_or(std::max<std::int64_t>(a.H, 1)), .skip = a.skip};
  const auto require = [](bool good, const char* flag, std::int64_t value,
                          const std::string& rule) {
    if (!good) throw UsageError(fmt::format("plan sync: {} {}: must be {}", flag, value, rule));
  };
  require(run.H >= 1 && run.H <= kMostSyncSteps, "--H", run.H,
          fmt::format("in 1 .. {}", kMostSyncSteps));
  require(run.steps >= 1 && run.steps <= kMostSyncSteps, "--steps", run.steps,
          fmt::format("in 1 .. {}", kMostSyncSteps));
  require(run.skip >= 0 && run.skip < run.steps, "--skip", run.skip,
          fmt::format("at least 0 and below --steps {}", run.steps));
  run.step_s = flag_quantity("--step-time", a.step_time, Dimension::kTime, kMostSyncSeconds);
  return run;
}

}  // namespace

int command_plan_sync(const PlanSyncArguments& a, Session& session) {
  const SyncQuestion question = sync_question(a);
  const double seconds = sync_seconds(question);
  JsonLine line;
  line.add("values", question.values)
      .add("codec", question.codec->name())
      .add("sites", question.members)
      .add("way", a.way)
      .add("link_model", a.link_model)
      .add("link_share", a.link_share)
      .add("sync_s", seconds);
  std::string text =
      fmt::format("{} of {} values in {} among {} sites: {}\n", a.way, question.values,
                  question.codec->name(), question.members, human_time(seconds));
  if (question.processor_bits_per_s > 0) {
    SyncQuestion free = question;
    free.processor_bits_per_s = 0;
    const double links_s = sync_seconds(free);
    const double processor_s =
        kSyncValueBits * static_cast<double>(question.values) / question.processor_bits_per_s;
    const char* const bound = seconds > links_s ? "processor" : "links";
    line.add("links_s", links_s).add("processor_s", processor_s).add("bound", bound);
    text += fmt::format("the links alone: {}, each site's processor: {}; the {} this sync\n",
                        human_time(links_s), human_time(processor_s),
                        seconds > links_s ? "processor bounds" : "links bound");
  }
  if (!a.step_time.empty()) {
    const BlockingRun run = blocking_run(a);
    const ComputingShare share = computing_share(run, seconds);
    line.add("steps", share.steps)
        .add("syncs", share.syncs)
        .add("compute_s", share.compute_s)
        .add("blocked_s", share.sync_s)
        .add("computing", share.share);
    text += fmt::format("{} steps of {} with {} syncs: {:.2f} % of the time computing\n",
                        share.steps, human_time(run.step_s), share.syncs, 100 * share.share);
  } else if (a.steps || a.skip > 0 || a.H > 1) {
    throw UsageError("plan sync: --H, --steps and --skip are of a run: give --step-time too");
  }
  session.out.write(session.json ? line.str() + "\n" : text);
  return 0;
}

}  // namespace isthmus::app
