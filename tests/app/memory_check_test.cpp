// SPDX-License-Identifier: Apache-2.0
// What a process may have, from the files of made-up machines; runs that are sure not to fit.
#include "app/memory_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "app/commands.h"
#include "app/run_parts.h"
#include "core/temporary_directory.h"
#include "isthmus/errors.h"

namespace isthmus::app {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

/// A machine's files below a folder.
class Machine {
 public:
  explicit Machine(std::uint64_t memory_kib, std::uint64_t swap_kib = 0) {
    write("proc/meminfo", "MemTotal:       " + std::to_string(memory_kib) +
                              " kB\nMemFree: 1 kB\nSwapTotal:      " + std::to_string(swap_kib) +
                              " kB\n");
  }
  void write(const std::string& file, const std::string& text) {
    const std::filesystem::path path = directory_ / file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  [[nodiscard]] MemoryLimit limit() const { return memory_limit(directory_ / ""); }

 private:
  TemporaryDirectory directory_;
};

TEST(MemoryLimit, IsTheMachinesWithoutGroups) {
  const MemoryLimit limit = Machine(4096, 1024).limit();
  EXPECT_EQ(limit.bytes, 5 * kMiB);
  EXPECT_EQ(limit.what, "this machine has");
  EXPECT_EQ(memory_limit(TemporaryDirectory() / "").bytes, 0U);  // nothing is known
}

TEST(MemoryLimit, IsTheLowestOfTheGroupsAboveInVersion2) {
  Machine machine(64 * 1024);
  machine.write("proc/self/cgroup", "0::/a/b\n");
  machine.write("sys/fs/cgroup/a/b/memory.max", "max\n");
  EXPECT_EQ(machine.limit().bytes, 64 * kMiB);
  machine.write("sys/fs/cgroup/a/memory.max", "16777216\n");
  EXPECT_EQ(machine.limit().bytes, 16 * kMiB);
  EXPECT_EQ(machine.limit().what, "control group /a allows");
  machine.write("sys/fs/cgroup/a/b/memory.max", "8388608\n");
  EXPECT_EQ(machine.limit().bytes, 8 * kMiB);
  machine.write("sys/fs/cgroup/a/b/memory.max", "83886080\n");  // above what there is
  EXPECT_EQ(machine.limit().bytes, 16 * kMiB);
}

TEST(MemoryLimit, OfAContainerIsThatOfItsRoot) {
  Machine machine(64 * 1024);
  machine.write("proc/self/cgroup", "0::/\n");
  machine.write("sys/fs/cgroup/memory.max", "33554432\n");
  EXPECT_EQ(machine.limit().bytes, 32 * kMiB);
  machine.write("proc/self/cgroup", "0::/../../other\n");  // outside of what is seen here
  EXPECT_EQ(machine.limit().bytes, 64 * kMiB);
}

TEST(MemoryLimit, CountsTheSwapThatAGroupMayHave) {
  Machine machine(64 * 1024, 4 * 1024);
  machine.write("proc/self/cgroup", "0::/a\n");
  machine.write("sys/fs/cgroup/a/memory.max", "33554432\n");
  EXPECT_EQ(machine.limit().bytes, 36 * kMiB);
  machine.write("sys/fs/cgroup/a/memory.swap.max", "1048576\n");
  EXPECT_EQ(machine.limit().bytes, 33 * kMiB);
}

TEST(MemoryLimit, OfVersion1IsTheHierarchysSum) {
  Machine machine(64 * 1024, 4 * 1024);
  machine.write("proc/self/cgroup", "9:cpu:/x\n4:memory:/a/b\n0::/\n");
  machine.write("sys/fs/cgroup/memory/a/b/memory.stat",
                "cache 1\nhierarchical_memory_limit 33554432\nhierarchical_memsw_limit "
                "9223372036854771712\n");
  EXPECT_EQ(machine.limit().bytes, 36 * kMiB);
  EXPECT_EQ(machine.limit().what, "control group /a/b allows");
  machine.write("sys/fs/cgroup/memory/a/b/memory.stat",
                "hierarchical_memory_limit 33554432\nhierarchical_memsw_limit 34603008\n");
  EXPECT_EQ(machine.limit().bytes, 33 * kMiB);
  machine.write("sys/fs/cgroup/memory/a/b/memory.stat",
                "hierarchical_memory_limit 9223372036854771712\n");
  EXPECT_EQ(machine.limit().bytes, 68 * kMiB);
  machine.write("proc/self/cgroup", "4:memory:/elsewhere\n");  // a container's view
  machine.write("sys/fs/cgroup/memory/memory.stat", "hierarchical_memory_limit 1048576\n");
  EXPECT_EQ(machine.limit().bytes, 5 * kMiB);
}

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
               std::optional<Rank> only = std::nullopt)
      : config(
            load_config_text(std::string(kFile) + more, "run.toml", overrides, schema_context())),
        layout(model_shape(config.model, config.train.context)),
        plan(make_training_plan(config, std::vector<int>{0, 1}, only)) {}
  [[nodiscard]] CertainMemory certain() const { return certain_memory(config, plan, layout); }
  [[nodiscard]] std::string refusal(std::uint64_t bytes) const {
    try {
      check_memory(config, plan, layout, {.bytes = bytes, .what = "this machine has"});
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

TEST(CertainMemory, IsOfTheWorkersInThisProcess) {
  const std::string sites = "[[site]]\nname = \"a\"\n[[site]]\nname = \"b\"\n";
  const Job both(sites), second(sites, {}, Rank(1));
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
    const LanguageModelOptions options = language_model_options(run.config, run.plan, Rank(0));
    LanguageModelLoop loop(options, [](StepIndex) { return TokenBatch{}; });
    const auto held = static_cast<std::int64_t>(loop.held_bytes()) +
                      loop_memory(run.layout, options).logits + 4 * run.layout.elements();
    constexpr double kAlignment = 1.001;  // each buffer ends with a cache line
    EXPECT_LE(static_cast<double>(run.certain().total()), kAlignment * static_cast<double>(held))
        << more;
    EXPECT_GE(static_cast<double>(run.certain().total()), 0.7 * static_cast<double>(held)) << more;
  }
}

TEST(MemoryCheck, RefusesWhatIsSureNotToFitAndNothingElse) {
  const Job run("[parallel]\ndp = 2\n");
  const std::uint64_t needed = run.certain().total();
  EXPECT_EQ(run.refusal(needed), "accepted");
  EXPECT_EQ(run.refusal(0), "accepted");  // not known
  EXPECT_THAT(run.refusal(needed - 1),
              AllOf(HasSubstr(std::to_string(needed) + " bytes"),
                    HasSubstr(std::to_string(needed - 1) + " bytes"), HasSubstr("this machine has"),
                    HasSubstr("train.offload"), HasSubstr("train.recompute"),
                    HasSubstr("parallel.zero"), HasSubstr("parallel.micro_batches")));
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
}  // namespace isthmus::app
