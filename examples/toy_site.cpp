// SPDX-License-Identifier: Apache-2.0
// A trainer of your own as a site of a run: checkpoints, resuming, encrypted links, joining a run
// that goes on, all from a TOML file. It uses only the installed headers.
//
//   toy_site toy_site.toml --site east --out runs/east     one site, the others elsewhere
//   toy_site toy_site.toml --out runs/here                 all sites in this process
//   toy_site toy_site.toml --simulate --out runs/virtual   the same over the declared links
//
// Ctrl+C stops all sites after one step, with a checkpoint; `--resume auto` goes on from it.
#include <csignal>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "isthmus/session.h"
#include "sine_net.h"

namespace {

using namespace isthmus;
using examples::SineNet;

constexpr std::int64_t kParts = 8;  // of an evaluation
constexpr float kMomentum = 0.5f;

class SineTrainer final : public Trainer {
 public:
  explicit SineTrainer(const WorkerContext& worker)
      : net_(worker.rank.value(), worker.workers, kMomentum) {}

  [[nodiscard]] InnerLoop& loop() override { return net_; }
  [[nodiscard]] std::optional<std::int64_t> evaluation_parts() const override { return kParts; }
  [[nodiscard]] std::vector<EvalPart> evaluate(InnerLoop&, const ParameterSource& source,
                                               std::span<const std::int64_t> parts) override {
    std::vector<EvalPart> losses;
    for (const std::int64_t part : parts) {
      const std::int64_t points = SineNet::kPoints / kParts;
      const double error = net_.error_of(source, part, kParts);
      losses.push_back(
          {.batch = part, .loss_sum = error * static_cast<double>(points), .tokens = points});
    }
    return losses;
  }

 private:
  SineNet net_;
};

TrainerFacts facts() {
  const SineNet net(0, 1);
  TrainerFacts facts{.parameters = {net.parameters().begin(), net.parameters().end()},
                     .kind = "sine net",
                     .common = {{"momentum", std::to_string(kMomentum)}}};
  for (Parameter& each : facts.parameters) each.values = {};  // those of a net that ends here
  return facts;
}

class Told final : public RunListener {
 public:
  void waiting(const std::string& what) override {
    std::fprintf(stderr, "toy_site: %s\n", what.c_str());
  }
};

Wishes wishes;

void on_signal(int number) {
  if (number == SIGUSR1) wishes.checkpoint();
  if (number == SIGUSR2) wishes.leave();
  if (number == SIGTERM) wishes.requeue();
  if (number == SIGINT) wishes.interrupt();
}

struct Arguments {
  std::string file;
  std::vector<std::string> overrides;
  RunArguments run;
};

constexpr const char* kUsage =
    "usage: toy_site RUN.toml [--site NAME | --simulate] [--out DIR] [--resume never|auto|PATH]\n"
    "    [--force] [--set KEY=VALUE]...\n";

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 0; i < argc; ++i) arguments.run.argv.emplace_back(argv[i]);
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--simulate") {
      arguments.run.simulated = true;
    } else if (word == "--force") {
      arguments.run.force = true;
    } else if (!word.starts_with("--")) {
      arguments.file = word;
    } else {
      if (i + 1 == argc) throw std::invalid_argument(word + ": needs a value\n" + kUsage);
      const std::string value = argv[++i];
      if (word == "--site")
        arguments.run.site = value;
      else if (word == "--out")
        arguments.run.out = value;
      else if (word == "--resume")
        arguments.run.resume = value;
      else if (word == "--set")
        arguments.overrides.push_back(value);
      else
        throw std::invalid_argument(word + ": no such flag\n" + kUsage);
    }
  }
  if (arguments.file.empty()) throw std::invalid_argument(kUsage);
  return arguments;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Arguments arguments = parse(argc, argv);
    for (const int number : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2}) std::signal(number, on_signal);
    const Config config = load_run(arguments.file, arguments.overrides);
    Told told;
    const RunEnd end = run_session(
        config, arguments.run, facts(),
        [](const WorkerContext& worker) { return std::make_unique<SineTrainer>(worker); }, wishes,
        &told);
    std::printf("%s after %lld steps: %s\n", end.status.c_str(), static_cast<long long>(end.steps),
                end.directory.c_str());
    return static_cast<int>(end.exit_code);
  } catch (const Error& error) {
    std::fprintf(stderr, "toy_site: %s\n", error.what());
    return static_cast<int>(error.exit_code());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
