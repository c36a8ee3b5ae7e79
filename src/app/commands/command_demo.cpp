// SPDX-License-Identifier: Apache-2.0
// `demo`: one small model, a real text, two pretend datacentres; data parallelism and DiLoCo race
// on the simulated clock of a large model; then a report and a sample of text.
#include <fmt/format.h>

#include <array>

#include "app/commands/demo_text.h"
#include "app/common/commands.h"
#include "app/common/signals.h"
#include "app/train/run_summary.h"
#include "app/train/training.h"
#include "core/base/units.h"
#include "core/state/checkpoint.h"
#include "inner/loop/generate.h"
#include "record/run_directory.h"
#include "report/page/report.h"

namespace isthmus::app {
namespace {

constexpr std::int64_t kSampleTokens = 240;

struct Contestant {
  const char* name;
  const char* outer;  // lines of [outer]
  double inner_lr;
};
constexpr std::array<Contestant, 2> kContestants = {
    {{"ddp", "method = \"ddp\"\ncodec = \"bf16\"", 4e-3},
     {"diloco",
      "method = \"diloco\"\nH = 20\nlr = 0.7\nmomentum = 0.6\ncodec = \"int8\"\nfinal_sync = "
      "\"full\"",
      4e-3}}};

std::string demo_toml(const Contestant& contestant, std::uint64_t seed) {
  return fmt::format(R"(# A contestant of `isthmus demo`. Run it again: isthmus simulate {0}.toml
[run]
name = "demo-{0}"
seed = {3}

[model]                     # this small model learns
arch = "gpt2"
layers = 4
d_model = 96
heads = 4

[surrogate]                 # the clock and the bytes are those of this one
params = "1B"
step_time = "1s"

[data]
source = "text:corpus.txt"

[train]
steps = 400
global_batch = "1024 tok"   # of both sites
context = 64

[inner]
lr = {2}
schedule = "cosine"
warmup = "5%"

[outer]
{1}

[eval]
every = 20
tokens = "8k"

[[site]]
name = "east"
[[site]]
name = "west"
[[link]]
between = ["east", "west"]
rate = "100Mbit/s"
rtt = "80ms"
)",
                     contestant.name, contestant.outer, contestant.inner_lr, seed);
}

std::string sample_text(const Storage& storage, const Config& config,
                        const std::filesystem::path& run) {
  const Checkpoint checkpoint = Checkpoint::open(storage, find_checkpoint(storage, run));
  const std::string prompt = "This ";
  const std::vector<std::int32_t> tokens =
      generate_text(config, checkpoint, prompt, kSampleTokens, config.run.seed);
  std::string text;
  for (const std::int32_t token : tokens) {
    const auto c = static_cast<char>(token);
    text += c == '\n' || (c >= ' ' && c < 0x7f) ? c : ' ';
  }
  return text;
}

std::string lane_text(const TrainingOutcome& outcome) {
  return fmt::format("loss {:.3f}   {} simulated", outcome.totals.eval_loss.value_or(0),
                     human_time(outcome.totals.clock_s));
}

}  // namespace

int command_demo(const DemoArguments& arguments, Session& session) {
  SystemStorage storage;
  const RunDirectoryOptions place{
      .out = arguments.out, .name = "demo", .run_id = make_manifest(Config{}, "demo", {}).run_id};
  const RunLock lock(run_folder(place), {.cells = true});
  const RunDirectory directory(storage, place, lock);
  const std::filesystem::path& folder = directory.path();
  write_atomically(storage, folder / "corpus.txt", std::string(kDemoText));

  const auto say = [&](const std::string& line) {
    if (!session.quiet && !session.json) {
      session.out.write(line + "\n");
    }
  };
  say(fmt::format(
      "Two pretend datacentres, joined by 100 Mbit/s and 80 ms, train one model together.\n"
      "A model of 0.5M parameters really learns, on {} of its own documentation;\n"
      "the clock and the bytes are those of a 1B model that takes 1 s a step (a surrogate).\n",
      human_bytes(static_cast<double>(kDemoText.size()))));

  std::vector<TrainingOutcome> outcomes;
  std::vector<LaneProgress> lanes;
  std::vector<std::filesystem::path> runs;
  Config config;
  for (const Contestant& contestant : kContestants) {
    const std::filesystem::path file = folder / fmt::format("{}.toml", contestant.name);
    write_atomically(storage, file, demo_toml(contestant, arguments.seed));
    config = load_config(file, {}, schema_context());
    outcomes.push_back(run_training(config,
                                    {.command = "demo",
                                     .out = folder / contestant.name,
                                     .simulated = true,
                                     .lane = contestant.name,
                                     .finished_lanes = lanes},
                                    session));
    const TrainingOutcome& outcome = outcomes.back();
    if (outcome.exit_code != ExitCode::kOk) {
      return static_cast<int>(outcome.exit_code);
    }
    if (SignalScope::wish() != StopWish::kNone) {  // it came as the run ended
      return static_cast<int>(ExitCode::kInterrupted);
    }
    runs.push_back(outcome.directory);
    lanes.push_back({contestant.name, 1.0, lane_text(outcome)});
    say(fmt::format(
        "  {:<8} val loss {:.3f}   {:>9} sent by each site   {:>14} simulated   {:.1f} % "
        "of it computing",
        contestant.name, outcome.totals.eval_loss.value_or(0),
        human_bytes(static_cast<double>(outcome.totals.wire_bytes.front())),
        human_time(outcome.totals.clock_s),
        100 * outcome.totals.compute_s.front() / outcome.totals.clock_s));
  }
  const RunTotals& ddp = outcomes[0].totals;
  const RunTotals& diloco = outcomes[1].totals;
  say(fmt::format(
      "\nOn this link DiLoCo took the same {} steps in {:.0f}x less simulated time and sent "
      "{:.0f}x fewer "
      "bytes;\nits loss differs by {:+.3f}. One seed, fixed rates: a demonstration, not "
      "a "
      "result.",
      diloco.steps, ddp.clock_s / diloco.clock_s,
      static_cast<double>(ddp.wire_bytes.front()) / static_cast<double>(diloco.wire_bytes.front()),
      diloco.eval_loss.value_or(0) - ddp.eval_loss.value_or(0)));

  const std::filesystem::path report = folder / "report.html";
  write_report(runs, report,
               {.title = "isthmus demo",
                .generated = utc_now(),
                .command = fmt::format("isthmus report {}", folder.string())});
  session.saved = fmt::format("the runs ended in order and are saved in '{}'", folder.string());
  say("\nThe trained model goes on from \"This \":\n\n" +
      sample_text(storage, config, runs.back()) + "\n");
  say(fmt::format("report   {}\nagain    isthmus simulate {}/diloco.toml --link 1Gbit/s,30ms",
                  report.string(), folder.string()));
  if (session.json) {
    session.out.write(JsonLine()
                          .add("report", report.string())
                          .add_raw("ddp", outcome_json(outcomes[0]))
                          .add_raw("diloco", outcome_json(outcomes[1]))
                          .str() +
                      "\n");
  }
  return 0;
}

}  // namespace isthmus::app
