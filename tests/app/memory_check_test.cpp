// SPDX-License-Identifier: Apache-2.0
// What runs are sure to need, and those that are sure not to fit.
#include "app/train/memory_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <regex>
#include <string>
#include <vector>

#include "app/common/commands.h"
#include "app/train/config_to_options.h"
#include "app/train/site_lanes.h"
#include "core/base/freed_memory.h"
#include "core/base/system_runtime.h"
#include "core/base/units.h"
#include "isthmus/errors.h"
#include "transport/collectives/thread_communicator.h"

namespace isthmus::app::this_file {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr std::string_view kFile = R"(schema = 1
[model]
arch = "llama"
layers = 2
d_model = 64
heads = 2
vocab = 256
[data]
source = "synth:zipf:vocab=256,tokens=9k"
[train]
steps = 10
global_batch = "512 tok"
context = 32
)";

struct Job {
  explicit Job(const std::string& more, const std::vector<std::string>& overrides = {},
               std::optional<WorkerId> only = std::nullopt)
      : config(
            load_config_text(std::string(kFile) + more, "run.toml", overrides, schema_context())),
        layout(model_shape(config.model, config.train.context)),
        plan(make_training_plan(config, std::vector<int>{0, 1}, only)) {}
  [[nodiscard]] CertainMemory certain() const { return certain_memory(config, plan, layout); }
  [[nodiscard]] std::string refusal(std::uint64_t bytes, bool sites_can_part = true) const {
    try {
      check_memory(config, plan, layout, {.bytes = bytes, .what = "this machine has"},
                   sites_can_part);
    } catch (const SystemError& error) {
      return error.what();
    }
    return "accepted";
  }
  Config config;
  ModelLayout layout;
  TrainingPlan plan;
};

TEST(CertainMemory, IsSixteenBytesAParameterAndAnchors) {
  const Job one("");
  const std::int64_t values = one.layout.elements();
  EXPECT_EQ(one.certain().state, 16 * values);  // ddp keeps no anchors
  EXPECT_GT(one.certain().activations, 512 * 64 * 4);
  EXPECT_EQ(Job("[outer]\nmethod = \"diloco\"\n").certain().state, 20 * values);
  EXPECT_EQ(Job("[inner]\noptimizer = \"sgd\"\nmomentum = 0\n").certain().state, 8 * values);
  EXPECT_EQ(Job("[outer]\nmethod = \"spsa\"\n").certain().state, 4 * values);
}

// By hand: docs/internals/mesh.md has what a layer keeps of a token.
TEST(CertainMemory, GrowsByWhatALayerHas) {
  const auto with = [](int layers, const std::string& mesh) {
    return Job("[parallel]\nmicro_batches = 1\n" + mesh,
               {"model.arch=gpt2", "model.layers=" + std::to_string(layers)})
        .certain();
  };
  constexpr std::int64_t d = 64, heads = 2, rows = 512;
  for (const std::int64_t tp : {1, 2}) {
    const std::string mesh = "tp = " + std::to_string(tp) + "\n";
    const CertainMemory two = with(2, mesh), five = with(5, mesh);
    const std::int64_t stream = d;  // between layers
    const std::int64_t values_of_a_rank = stream + (3 + 12 / tp) * d + heads / tp + 4;
    EXPECT_EQ(five.activations - two.activations, 3 * rows * 4 * values_of_a_rank * tp) << tp;
    if (tp > 1) continue;
    EXPECT_EQ(five.state - two.state, 3 * 16 * (12 * d * d + 13 * d));
  }
}

TEST(CertainMemory, IsOfTheWorkersInThisProcess) {
  const std::string sites = "[[site]]\nname = \"a\"\n[[site]]\nname = \"b\"\n";
  const Job both(sites), second(sites, {}, WorkerId(1));
  EXPECT_EQ(both.certain().state, 32 * both.layout.elements());
  EXPECT_EQ(second.certain().state, 16 * both.layout.elements());
}

// No more than a loop holds that has not evaluated yet, the logits of a pass and one set of
// anchors.
TEST(CertainMemory, IsNoMoreThanALoopHolds) {
  for (const std::string more :
       {"", "[parallel]\ntp = 2\ndp = 2\n", "[parallel]\ndp = 2\nzero = 3\n",
        "[parallel]\npp = 2\nmicro_batches = 4\n", "[parallel]\ndp = 2\nzero = 1\n"}) {
    const Job run(more + "[outer]\nmethod = \"localsgd\"\n");
    const LanguageModelOptions options = language_model_options(run.config, run.plan, WorkerId(0));
    LanguageModelLoop loop(options, [](StepIndex) { return TokenBatch{}; });
    const auto held = static_cast<std::int64_t>(loop.held_bytes()) +
                      loop_memory(run.layout, options).logits + 4 * run.layout.elements();
    constexpr double kAlignment = 1.001;  // each buffer ends with a cache line
    EXPECT_LE(static_cast<double>(run.certain().total()), kAlignment * static_cast<double>(held))
        << more;
    EXPECT_GE(static_cast<double>(run.certain().total()), 0.7 * static_cast<double>(held)) << more;
  }
}

/// Bytes of /proc/self/status.
std::int64_t own_bytes(const std::string& name) {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;) {
    std::int64_t kib = 0;
    if (word == name + ":" && file >> kib) return kib * 1024;
  }
  return 0;
}

class WrittenMemory : public testing::TestWithParam<const char*> {};

// What the machine itself counts.
TEST_P(WrittenMemory, OfOneStepAndAnchorsIsNoLess) {
  const Job run(GetParam() + std::string("[outer]\nmethod = \"localsgd\"\n"),
                {"model.d_model=384", "model.layers=4", "model.heads=6"});
  const LanguageModelOptions options = language_model_options(run.config, run.plan, WorkerId(0));
  const std::vector<std::int32_t> tokens(
      static_cast<std::size_t>(options.sequences * options.context), 3);
  const TokenBatch batch{tokens, tokens, options.sequences, options.context};
  give_freed_memory_back();
  if (!(std::ofstream("/proc/self/clear_refs") << 5 << std::flush)) {
    GTEST_SKIP() << "the peak of this process cannot be set back";
  }
  const std::int64_t before = own_bytes("VmHWM") + own_bytes("VmSwap");
  LanguageModelLoop loop(options, [&](StepIndex) { return batch; });
  const std::vector<float> anchors(static_cast<std::size_t>(run.layout.elements()), 1.0f);
  (void)loop.train_step(StepIndex(1));
  const std::int64_t written = own_bytes("VmHWM") + own_bytes("VmSwap") - before;
  const auto certain = static_cast<std::int64_t>(run.certain().total());
  EXPECT_GT(certain, 16 * run.layout.elements());
  // Its counts are some 100 kB a core behind, and pages of before may be used again.
  EXPECT_LE(certain, written + written / 20);
}
INSTANTIATE_TEST_SUITE_P(Meshes, WrittenMemory,
                         testing::Values("", "[parallel]\ntp = 2\ndp = 2\n",
                                         "[parallel]\ndp = 2\nzero = 3\n",
                                         "[parallel]\npp = 2\nmicro_batches = 4\n"));

TEST(MemoryCheck, RefusesWhatIsSureNotToFitAndNothingElse) {
  const Job run("[parallel]\ndp = 2\n");
  const std::uint64_t needed = run.certain().total();
  EXPECT_EQ(run.refusal(needed), "accepted");
  EXPECT_EQ(run.refusal(0), "accepted");  // not known
  EXPECT_THAT(run.refusal(needed - 1), AllOf(HasSubstr(std::to_string(needed) + " bytes"),
                                             HasSubstr(std::to_string(needed - 1) + " bytes"),
                                             HasSubstr("this machine has")));
}

/// Keys of a refusal with their values, and what it says is then certain.
std::map<std::string, std::string> remedies_of(const std::string& refusal) {
  static const std::regex kRemedy(R"(([a-z]+\.[a-z_]+ = [^ ]+) \(then ([^)]*)\))");
  std::map<std::string, std::string> found;
  for (std::sregex_iterator at(refusal.begin(), refusal.end(), kRemedy), end; at != end; ++at) {
    found[(*at)[1]] = (*at)[2];
  }
  return found;
}

// Each file is read again with the key that is offered: it is one that works, and needs what was
// said.
TEST(MemoryCheck, OffersWhatWorksAtEverySite) {
  struct Offer {
    std::string file;
    std::vector<std::string> keys;
  };
  const std::string a_and_b = "[[site]]\nname = \"a\"\n[[site]]\nname = \"b\"\n";
  const std::string offload = "train.offload = \"DIR\"";
  const std::string selective = "train.recompute = \"selective\"",
                    full = "train.recompute = \"full\"";
  for (const auto& [file, keys] : std::vector<Offer>{
           {"", {offload, selective, full, "parallel.micro_batches = 16"}},
           {"[parallel]\ndp = 2\nmicro_batches = 1\n",
            {offload, selective, full, "parallel.micro_batches = 8"}},
           {"[parallel]\ndp = 2\nmicro_batches = 8\nzero = 2\n", {offload, selective, full}},
           {"[inner]\noptimizer = \"muon\"\n[parallel]\ndp = 2\nmicro_batches = 8\n",
            {offload, selective, full}},
           {"[outer]\nmethod = \"spsa\"\n[parallel]\nmicro_batches = 1\n",
            {"parallel.micro_batches = 16"}},
           // Samples divide otherwise at b, and its passes cannot be taken again.
           {a_and_b + "dp = 2\n", {offload, selective, full, "parallel.micro_batches = 4"}},
           {a_and_b + "pp = 2\n[parallel]\nschedule = \"zb-h1\"\n",
            {offload, "parallel.micro_batches = 8"}},
       }) {
    for (const std::optional<WorkerId> only :
         {std::optional<WorkerId>(), std::optional(WorkerId(0))}) {
      const Job run(file, {}, only);
      const auto found = remedies_of(run.refusal(1));
      if (!only) {
        std::vector<std::string> named;
        for (const auto& [key, then] : found) named.push_back(key);
        EXPECT_THAT(named, testing::UnorderedElementsAreArray(keys)) << file;
      }
      for (const auto& [key, then] : found) {
        EXPECT_THAT(keys, testing::Contains(key)) << file;
        std::string setting = key;
        setting.erase(setting.find(' '), 1).erase(setting.find('=') + 1, 1);
        const Job better(file, {setting}, only);
        EXPECT_EQ(human_bytes(static_cast<double>(better.certain().total())), then) << file << key;
        EXPECT_LT(better.certain().total(), run.certain().total()) << file << key;
        for (const WorkerId rank : better.plan.workers_here()) {
          (void)checked_options(language_model_options(better.config, better.plan, rank));
        }
      }
    }
  }
}

// As little as fits, else what saves most. Ranks that are threads hold as much together, whoever
// holds what.
TEST(MemoryCheck, OffersToShareOutWhereRanksAreProcesses) {
  const auto self = make_self_communicator();
  const SystemRuntime runtime;
  RankProcesses ranks{
      .passes = *self, .orders = *self, .roll_call = *self, .clock = runtime.clock()};
  const auto offered = [](const Job& run, std::uint64_t bytes) {
    std::map<std::string, std::string> zeros = remedies_of(run.refusal(bytes));
    std::erase_if(zeros, [](const auto& each) { return !each.first.starts_with("parallel.zero"); });
    return zeros;
  };
  EXPECT_TRUE(offered(Job("[parallel]\ndp = 2\n"), 1).empty());
  const auto job = [&](const std::string& more, int zero) {
    Job processes("[parallel]\ndp = 2\nzero = " + std::to_string(zero) + "\n" + more,
                  {"model.layers=16"});
    processes.plan.processes = &ranks;
    return processes;
  };
  std::vector<std::uint64_t> needs;
  for (const int zero : {0, 1, 2, 3}) needs.push_back(job("", zero).certain().total());
  ASSERT_TRUE(needs[0] > needs[1] && needs[1] > needs[2] && needs[2] > needs[3]);
  for (const std::size_t zero : {1U, 2U, 3U}) {
    const auto offer = [&](std::size_t z) {
      return std::map<std::string, std::string>{
          {"parallel.zero = " + std::to_string(z), human_bytes(static_cast<double>(needs[z]))}};
    };
    EXPECT_EQ(offered(job("", 0), needs[zero]), offer(zero));
    EXPECT_EQ(offered(job("", 0), needs[zero] - 1), offer(std::min<std::size_t>(zero + 1, 3)));
    if (zero == 1) continue;
    EXPECT_EQ(offered(job("", 1), needs[zero]), offer(zero));
  }
  // It needs whole gradients.
  const auto whole = offered(job("pp = 2\nmicro_batches = 4\nschedule = \"gpipe\"\n", 0), 1);
  EXPECT_EQ(whole.size(), 1U);
  EXPECT_EQ(whole.count("parallel.zero = 1"), 1U);
}

// By hand: a rank that is a process has weights and gradients of its stages, and with ZeRO its part
// of these and of the moments; the last stage has the logits.
TEST(MemoryCheck, EveryRankThatIsAProcessIsChecked) {
  const auto self = make_self_communicator();
  const SystemRuntime runtime;
  RankProcesses ranks{
      .passes = *self, .orders = *self, .roll_call = *self, .clock = runtime.clock()};
  const auto certain = [&](Job& job, int rank) {
    job.plan.processes = &ranks;
    return certain_memory_of_rank(job.config, job.plan, job.layout, WorkerId(0), rank);
  };
  Job plain("[parallel]\ndp = 2\n"), shared("[parallel]\ndp = 2\nzero = 3\n");
  const std::int64_t values = plain.layout.elements();
  for (const int rank : {0, 1}) {
    EXPECT_EQ(certain(plain, rank).state, 8 * values);
    EXPECT_LE(std::abs(certain(shared, rank).state - 16 * values / 2), 16);
  }
  // Anchors that they share out, and what they have of an outer gradient; the first has all anchors
  // for a moment, and no others.
  Job lanes("[parallel]\ndp = 2\n",
            {"outer.method=\"diloco\"", "outer.placement=\"ranks\"", "outer.codec=\"fp32\""});
  constexpr std::int64_t kTileBytes = 4 * 4096;
  for (const int rank : {0, 1}) {
    const outer::LaneMemory lane =
        outer::lane_memory(*lanes_of(lanes.config, lanes.layout), 2, rank);
    EXPECT_EQ(certain(lanes, rank).state, 8 * values + 4 * lane.values + lane.scratch());
    EXPECT_LE(std::abs(4 * lane.values - 4 * values / 2), kTileBytes);
  }
  const auto of_first = [](Job& job) { return certain_memory(job.config, job.plan, job.layout); };
  Job whole("[parallel]\ndp = 2\n", {"outer.method=\"diloco\""});
  whole.plan.processes = &ranks;
  EXPECT_EQ(of_first(lanes).state - certain(lanes, 0).state,
            of_first(whole).state - certain(plain, 0).state - 4 * values);
  Job wide("[parallel]\npp = 2\nmicro_batches = 4\n", {"model.tied=false", "model.vocab=20000"});
  const std::int64_t table = 20000 * 64;
  const std::int64_t layer = (wide.layout.elements() - 2 * table - 64) / 2;
  EXPECT_EQ(certain(wide, 0).state, 8 * (table + layer));
  EXPECT_EQ(certain(wide, 1).state, 8 * (table + 64 + layer));
  EXPECT_GT(certain(wide, 1).activations, certain(wide, 0).activations);
  const std::uint64_t needed = certain(wide, 1).total();
  const auto refusal = [&](int rank, std::uint64_t bytes) -> std::string {
    try {
      check_rank_memory(wide.config, wide.plan, wide.layout, WorkerId(0), rank,
                        {.bytes = bytes, .what = "this machine has"});
    } catch (const SystemError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(refusal(1, needed), "accepted");
  EXPECT_EQ(refusal(0, needed - 1), "accepted");
  EXPECT_THAT(
      refusal(1, needed - 1),
      AllOf(HasSubstr("rank 1 of the mesh of site "), HasSubstr(std::to_string(needed) + " bytes"),
            HasSubstr("this machine has"), HasSubstr("train.offload")));
}

TEST(MemoryCheck, OffersMoreMachinesWhereSitesCanHaveThem) {
  const std::string sites = "[[site]]\nname = \"a\"\n[[site]]\nname = \"b\"\ntp = 2\n";
  const Job both(sites), second(sites, {}, WorkerId(1));
  const std::string most = human_bytes(static_cast<double>(second.certain().total()));
  EXPECT_THAT(both.refusal(1), HasSubstr("(mpirun, or train --site) (then " + most + ")"));
  EXPECT_THAT(both.refusal(1, false), Not(HasSubstr("machine for each")));
  EXPECT_THAT(second.refusal(1), Not(HasSubstr("machine for each")));
}

TEST(MemoryCheck, NamesNoKeyThatIsSetAlready) {
  const Job run("[parallel]\ndp = 2\nzero = 3\nmicro_batches = 8\n",
                {"train.recompute=true", "train.offload=state"});
  EXPECT_EQ(run.certain().state, 0);  // it lies in files
  EXPECT_THAT(run.refusal(1), AllOf(HasSubstr("train.global_batch"), Not(HasSubstr("recompute")),
                                    Not(HasSubstr("offload")), Not(HasSubstr("zero")),
                                    Not(HasSubstr("micro_batches"))));
}

}  // namespace
}  // namespace isthmus::app::this_file
