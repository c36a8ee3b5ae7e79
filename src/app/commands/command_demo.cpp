// SPDX-License-Identifier: Apache-2.0
// `demo`: one small model, a real text, two simulated sites; data parallelism, streaming DiLoCo
// and MuLoCo with two bits race on the simulated clock of a large model; then a report and a sample
// of text.
#include <fmt/format.h>

#include <array>

#include "app/commands/demo_text.h"
#include "app/common/commands.h"
#include "app/common/signals.h"
#include "app/common/text_table.h"
#include "app/train/run_summary.h"
#include "app/train/training.h"
#include "core/base/units.h"
#include "core/state/checkpoint.h"
#include "inner/loop/generate.h"
#include "record/run_directory.h"
#include "report/page/report.h"
#include "text/bpe_trainer.h"
#include "text/byte_level_files.h"
#include "text/tokenizer.h"

namespace isthmus::app {
namespace {

constexpr std::int64_t kVocabulary = 1024;
constexpr std::int64_t kSampleTokens = 120;
constexpr std::size_t kSampleWidth = 78;
constexpr const char* kPrompt = "A site that";
constexpr const char* kEndOfText = "<|endoftext|>";

struct Contestant {
  const char* name;
  const char* what;   // the data that it exchanges
  const char* inner;  // lines of [inner], beside the schedule
  const char* outer;  // lines of [outer]
};
// The inner rates are the best of 1e-3, 2e-3, 4e-3 and 8e-3 for ddp, whose rate streaming takes
// too, and of 0.01 and 0.02 for muloco: one seed of this text each.
constexpr std::array<Contestant, 3> kContestants = {
    {{"ddp", "gradients every step, in 16 bits", "lr = 2e-3", "method = \"ddp\"\ncodec = \"bf16\""},
     {"streaming", "DiLoCo in fragments, every 20 steps, in 4 bits", "lr = 2e-3",
      "method = \"streaming-diloco\"\nH = 20\nfragments = 2\noverlap = 1\nlr = 0.7\n"
      "momentum = 0.6\ncodec = \"fp4-e3m0\""},
     {"muloco", "DiLoCo with Muon inside, every 20 steps, in 2 bits", "lr = 0.02",
      "method = \"muloco\"\nH = 20\ncodec = \"lm2:ef\""}}};

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
vocab = {4}

[surrogate]                 # the clock and the bytes are those of this one
params = "1B"
step_time = "1s"

[data]
source = "text:corpus.txt:tokenizer=tokenizer"

[train]
steps = 400
global_batch = "1024 tok"   # of both sites
context = 64

[inner]
{2}
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
                     contestant.name, contestant.outer, contestant.inner, seed, kVocabulary);
}

/// Trained on the corpus: words and parts of words, so that the model's text can be read.
void write_tokenizer(Storage& storage, const std::filesystem::path& folder) {
  WordCounts words(WordPattern::kGpt2);
  words.add(kDemoText);
  const std::vector<std::string> special = {kEndOfText};
  const TrainedBpe trained =
      train_bpe(words, static_cast<std::size_t>(kVocabulary), special, [](std::int64_t) {});
  storage.create_directories(folder);
  write_atomically(storage, folder / "tokenizer.json",
                   tokenizer_json_of(trained, WordPattern::kGpt2, special));
}

/// Lines of documentation, Markdown's among them, as running text.
std::string in_one_paragraph(const std::string& text) {
  std::string joined;
  for (const char c : text) {
    const bool space = c == '\n' || c == ' ' || c == '`' || c == '*';
    if (!space) joined += c;
    if (space && !joined.empty() && joined.back() != ' ') joined += ' ';
  }
  return joined;
}

std::string sample_text(const Storage& storage, const Config& config, const Tokenizer& tokenizer,
                        const std::filesystem::path& run) {
  const Checkpoint checkpoint = Checkpoint::open(storage, find_checkpoint(storage, run));
  std::vector<std::uint32_t> prompt;
  TextEncoder(tokenizer).encode(kPrompt, {}, prompt);
  const std::vector<std::int32_t> ids(prompt.begin(), prompt.end());
  std::vector<std::uint32_t> found = prompt;
  for (const std::int32_t id :
       generate_from(config, checkpoint, ids,
                     {.tokens = kSampleTokens, .sampling = {.temperature = 0.5}, .seed = 1})) {
    found.push_back(static_cast<std::uint32_t>(id));
  }
  return in_one_paragraph(tokenizer.decode(found, true));
}

std::string lane_text(const TrainingOutcome& outcome) {
  return fmt::format("loss {:.3f}   {} simulated", outcome.totals.eval_loss.value_or(0),
                     human_time(outcome.totals.clock_s));
}

std::string result_line(const Contestant& contestant, const RunTotals& totals) {
  return fmt::format(
      "  {:<9} val loss {:.3f}   {:>7} sent by each site   {:>12} simulated   {:>4.1f} % computing",
      contestant.name, totals.eval_loss.value_or(0),
      human_bytes(static_cast<double>(totals.wire_bytes.front())), human_time(totals.clock_s),
      100 * totals.compute_s.front() / totals.clock_s);
}

/// One contestant beside data parallelism.
std::string against_ddp(const char* name, const RunTotals& ddp, const RunTotals& own) {
  return fmt::format(
      "{} took {:.0f}x less simulated time than ddp, sent {:.0f}x fewer bytes, and its loss "
      "differs by {:+.3f}.",
      name, ddp.clock_s / own.clock_s,
      static_cast<double>(ddp.wire_bytes.front()) / static_cast<double>(own.wire_bytes.front()),
      own.eval_loss.value_or(0) - ddp.eval_loss.value_or(0));
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
  write_tokenizer(storage, folder / "tokenizer");

  const auto say = [&](const std::string& line) {
    if (!session.quiet && !session.json) {
      session.out.write(line + "\n");
    }
  };
  say("Two simulated sites, joined by 100 Mbit/s and 80 ms, train one model together:");
  for (const Contestant& contestant : kContestants) {
    say(fmt::format("  {:<9} {}", contestant.name, contestant.what));
  }
  say(fmt::format(
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
    say(result_line(contestant, outcome.totals));
  }
  const RunTotals& ddp = outcomes[0].totals;
  say(fmt::format(
      "\nThe same {} steps on this link:\n  {}\n  {}\n"
      "Bytes and time are the outer loop's doing. The lower loss of muloco is Muon's, which ddp "
      "can\nhave too. One seed and fixed rates are a demonstration, not a result.",
      ddp.steps, against_ddp("streaming", ddp, outcomes[1].totals),
      against_ddp("muloco", ddp, outcomes[2].totals)));

  const std::filesystem::path report = folder / "report.html";
  write_report(runs, report,
               {.title = "isthmus demo",
                .generated = utc_now(),
                .command = fmt::format("isthmus report {}", folder.string())});
  session.saved = fmt::format("the runs ended in order and are saved in '{}'", folder.string());
  const Tokenizer tokenizer = Tokenizer::open(storage, folder / "tokenizer");
  say(fmt::format("\nThe model of muloco goes on from \"{}\":\n\n{}", kPrompt,
                  wrapped(sample_text(storage, config, tokenizer, runs.back()), 2, kSampleWidth)));
  say(fmt::format("report   {}\nagain    isthmus simulate {}/muloco.toml --link 1Gbit/s,30ms",
                  report.string(), folder.string()));
  if (session.json) {
    JsonLine line;
    line.add("report", report.string());
    for (std::size_t i = 0; i < kContestants.size(); ++i) {
      line.add_raw(kContestants[i].name, outcome_json(outcomes[i]));
    }
    session.answer(line);
  }
  return 0;
}

}  // namespace isthmus::app
