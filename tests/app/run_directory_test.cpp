// SPDX-License-Identifier: Apache-2.0
#include "record/run_directory.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "app/train/model_json.h"
#include "core/temporary_directory.h"
#include "kernels/isa.h"
#include "storage_faults.h"

namespace isthmus::app::this_file {
namespace {

std::string read(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

void write(const std::filesystem::path& file, const std::string& text) {
  std::ofstream(file, std::ios::binary) << text;
}

class RunDirectoryTest : public testing::Test {
 protected:
  RunDirectory open(ExistingRun existing = ExistingRun::kRefuse) {
    lock.reset();
    lock.emplace(folder / "run");
    return RunDirectory(storage, {.out = folder / "run", .existing = existing}, *lock);
  }
  /// The run in `name` goes on.
  RunDirectory reopen(const std::string& name) {
    lock.reset();
    lock.emplace(folder / name);
    return RunDirectory(storage, {.out = folder / name, .existing = ExistingRun::kResume}, *lock);
  }
  TemporaryDirectory folder;
  SystemStorage storage;
  std::optional<RunLock> lock;
};

TEST_F(RunDirectoryTest, TakesExactlyTheFolderGiven) {
  EXPECT_EQ(open().path(), folder / "run");
  EXPECT_TRUE(std::filesystem::is_directory(folder / "run"));
}

TEST_F(RunDirectoryTest, AnEmptyFolderIsFine) {
  std::filesystem::create_directories(folder / "run");
  EXPECT_NO_THROW(open());
}

TEST_F(RunDirectoryTest, ANonEmptyFolderIsRefusedAndNamesTheWaysOut) {
  std::filesystem::create_directories(folder / "run");
  write(folder / "run" / "x", "y");
  const std::string text = message_of<ConfigError>([&] { open(); });
  EXPECT_NE(text.find("--resume"), std::string::npos);
  EXPECT_NE(text.find("--force"), std::string::npos);
  EXPECT_EQ(read(folder / "run" / "x"), "y");
}

TEST_F(RunDirectoryTest, ForceRemovesTheRunAndNothingElse) {
  std::filesystem::create_directories(folder / "run" / "ckpt" / "step-1");
  write(folder / "run" / "metrics.jsonl", "{}\n");
  write(folder / "run" / "notes.txt", "mine");
  std::filesystem::create_directories(folder / "run" / "hf");  // an export, made by hand
  open(ExistingRun::kForce);
  EXPECT_FALSE(std::filesystem::exists(folder / "run" / "metrics.jsonl"));
  EXPECT_FALSE(std::filesystem::exists(folder / "run" / "ckpt"));
  EXPECT_EQ(read(folder / "run" / "notes.txt"), "mine");
  EXPECT_TRUE(std::filesystem::exists(folder / "run" / "hf"));
}

TEST_F(RunDirectoryTest, ResumeKeepsEverything) {
  std::filesystem::create_directories(folder / "run");
  write(folder / "run" / "manifest.json", "{}");
  open(ExistingRun::kResume);
  EXPECT_EQ(read(folder / "run" / "manifest.json"), "{}");
}

TEST_F(RunDirectoryTest, WhatIsSetAsideIsKept) {
  EXPECT_EQ(open().set_aside(), "");
  for (const std::string round : {"1", "2"}) {
    std::filesystem::create_directories(folder / "run" / "ckpt" / "step-1");
    write(folder / "run" / "metrics.jsonl", round);
    write(folder / "run" / "manifest.json", "{}");
    const std::filesystem::path aside = open(ExistingRun::kResume).set_aside();
    EXPECT_EQ(aside, folder / "run" / ("before-" + round));
    EXPECT_EQ(read(aside / "metrics.jsonl"), round);
    EXPECT_TRUE(std::filesystem::is_directory(aside / "ckpt" / "step-1"));
    EXPECT_FALSE(std::filesystem::exists(folder / "run" / "ckpt"));
    EXPECT_FALSE(std::filesystem::exists(folder / "run" / "metrics.jsonl"));
  }
  open(ExistingRun::kForce);
  EXPECT_EQ(read(folder / "run" / "before-1" / "metrics.jsonl"), "1") << "a copy is no run's";
}

TEST_F(RunDirectoryTest, AFileInThePlaceOfTheFolderIsRefused) {
  write(folder / "run", "");
  EXPECT_THROW(open(), ConfigError);
}

TEST_F(RunDirectoryTest, LinesAreAppendedWhole) {
  RunDirectory run = open();
  JsonLinesFile lines = run.open_lines("metrics.jsonl");
  lines.append(JsonLine().add("k", "train").add("step", 1));
  EXPECT_EQ(read(folder / "run" / "metrics.jsonl"), "{\"k\":\"train\",\"step\":1}\n");
}

TEST_F(RunDirectoryTest, TruncationDropsWhatAResumeWritesAgain) {
  RunDirectory run = open();
  const std::string kept =
      "{\"k\":\"meta\"}\n{\"k\":\"train\",\"step\":1}\n{\"k\":\"train\",\"step\":2}\n"
      "{\"k\":\"round\",\"step\":2,\"step_send\":1,\"step_apply\":2}\n";
  write(folder / "run" / "metrics.jsonl",
        kept +
            "{\"k\":\"train\",\"step\":3}\n{\"k\":\"round\",\"step_send\":2,\"step_apply\":3}\n" +
            "not json\n{\"k\":\"end\",\"step\":2}\n{\"k\":\"train\",\"step\":2");
  run.truncate_after("metrics.jsonl", 2);
  EXPECT_EQ(read(folder / "run" / "metrics.jsonl"), kept);
  run.truncate_after("metrics.jsonl", 2);
  EXPECT_EQ(read(folder / "run" / "metrics.jsonl"), kept);
  run.truncate_after("events.jsonl", 2);
  EXPECT_FALSE(std::filesystem::exists(folder / "run" / "events.jsonl"));
}

TEST_F(RunDirectoryTest, TheManifestSaysWhatRan) {
  RunDirectory run = open();
  const Config config = load_config_text(
      "[data]\nsource = \"synth:markov1\"\n[train]\nsteps = 1\nglobal_batch = \"256 tok\"\n"
      "[run]\nworkers = 2\n",
      "run.toml");
  const kernels::Isa active = kernels::active_isa();
  kernels::use_isa(kernels::Isa::kPortable);
  Manifest manifest = make_manifest(config, "train", {"train", "run.toml"});
  kernels::use_isa(active);
  manifest.parameters = 42;
  manifest.model = model_json(config, 42);
  run.write_manifest(manifest);
  const auto json = nlohmann::json::parse(read(folder / "run" / "manifest.json"));
  EXPECT_EQ(json["schema"], 1);
  EXPECT_EQ(json["run_id"].get<std::string>().size(), 12U);
  EXPECT_EQ(json["argv"][1], "run.toml");
  EXPECT_EQ(json["config_hash"], config_digest(config));
  EXPECT_EQ(json["status"], "running");
  EXPECT_TRUE(json["ended"].is_null());
  EXPECT_TRUE(json["parent"].is_null());
  EXPECT_EQ(json["workers"], 2);
  EXPECT_EQ(json["clock"], "real");
  EXPECT_EQ(json["model"]["parameters"], 42);
  EXPECT_EQ(json["model"]["kv_heads"], 4);
  EXPECT_GE(json["cores"], 1);
  EXPECT_EQ(json["kernels"], "portable");
  EXPECT_EQ(json["run_id"], manifest.run_id);
}

TEST_F(RunDirectoryTest, ConfigurationsAreCopiedAndResolved) {
  RunDirectory run = open();
  const std::string text =
      "[data]\nsource = \"synth:markov1\"\n[train]\nsteps = 1\nglobal_batch = \"128 tok\"\n";
  run.write_config(load_config_text(text, "run.toml"));
  EXPECT_EQ(read(folder / "run" / "config.toml"), text);
  EXPECT_NO_THROW((void)load_config(folder / "run" / "config.resolved.toml"));
}

TEST_F(RunDirectoryTest, TheTracesOfLinksAreKeptAndTheFolderMayMove) {
  const std::string csv = "seconds,rate_up,rate_down\n0,1Mbit/s,2Mbit/s\n5,3Mbit/s,4Mbit/s\n";
  const std::string other = "seconds,rate_up,rate_down\n0,7Mbit/s,8Mbit/s\n";
  write(folder / "day.csv", csv);
  write(folder / "other.csv", other);
  write(folder / "run.toml",
        "[data]\nsource = \"synth:markov1\"\n[train]\nsteps = 1\nglobal_batch = \"384 tok\"\n"
        "[[site]]\nname = \"a\"\n[[site]]\nname = \"b\"\n[[site]]\nname = \"c\"\n"
        "[[link]]\nbetween = [\"*\", \"*\"]\ntrace = \"day.csv\"\n"
        "[[link]]\nbetween = [\"a\", \"b\"]\ntrace = \"other.csv\"\n"
        "[[link]]\nbetween = [\"a\", \"c\"]\ntrace = \"day.csv\"\n");
  const Config config = load_config(folder / "run.toml");
  const std::string digest = outcome_digest(config);
  open().write_config(config);
  std::filesystem::remove(folder / "day.csv");
  std::filesystem::remove(folder / "other.csv");
  lock.reset();
  std::filesystem::rename(folder / "run", folder / "elsewhere");
  const Config again = load_config(folder / "elsewhere" / "config.resolved.toml");
  ASSERT_EQ(again.links.size(), 3U);
  EXPECT_EQ(read(again.links[0].trace), csv);
  EXPECT_EQ(read(again.links[1].trace), other);
  EXPECT_EQ(again.links[2].trace, again.links[0].trace);
  EXPECT_EQ(outcome_digest(again), digest);
  // A run that goes on from its own folder writes over what it reads.
  reopen("elsewhere").write_config(again);
  EXPECT_EQ(read(again.links[0].trace), csv);
  lock.reset();
  EXPECT_TRUE(remove_run(storage, folder / "elsewhere").empty());
}

// The names are those that sha256sum gives.
TEST_F(RunDirectoryTest, CopiesOfTracesAreCalledByTheirContent) {
  const std::string csv = "seconds,rate_up,rate_down\n0,1Mbit/s,2Mbit/s\n";
  const std::string other = "seconds,rate_up,rate_down\n0,7Mbit/s,8Mbit/s\n";
  const std::string name = "4692f1b28af6ed43.csv";
  const std::string other_name = "8305a89578954e6c.csv";
  write(folder / "one.csv", csv);
  write(folder / "same.csv", csv);
  write(folder / "run.toml",
        "[data]\nsource = \"synth:markov1\"\n[train]\nsteps = 1\nglobal_batch = \"384 tok\"\n"
        "[[site]]\nname = \"a\"\n[[site]]\nname = \"b\"\n[[site]]\nname = \"c\"\n"
        "[[link]]\nbetween = [\"*\", \"*\"]\ntrace = \"one.csv\"\n"
        "[[link]]\nbetween = [\"a\", \"b\"]\ntrace = \"same.csv\"\n");
  RunDirectory run = open();
  run.write_config(load_config(folder / "run.toml"));
  const std::filesystem::path traces = folder / "run" / kTracesFolder;
  EXPECT_EQ(storage.list(traces), (std::vector<std::string>{name}));
  EXPECT_EQ(run.trace_digest(folder / "one.csv") + ".csv", name);
  EXPECT_EQ(run.trace_digest(folder / "same.csv") + ".csv", name);
  // Gone on with another trace: what the earlier part ran with stays.
  write(folder / "one.csv", other);
  reopen("run").write_config(load_config(folder / "run.toml"));
  EXPECT_EQ(read(traces / name), csv);
  EXPECT_EQ(read(traces / other_name), other);
  const Config again = load_config(folder / "run" / "config.resolved.toml");
  EXPECT_EQ(again.links[0].trace, traces / other_name);
  EXPECT_EQ(again.links[1].trace, traces / name);
}

// An earlier version copied the file of net.table there.
TEST_F(RunDirectoryTest, TheTablesOfAnEarlierVersionGoWithTheRun) {
  write(folder / "run.toml",
        "[data]\nsource = \"synth:markov1\"\n[train]\nsteps = 1\nglobal_batch = \"384 tok\"\n"
        "[net]\nshares = \"table\"\ntable = \"ways/00.toml\"\n"
        "[[site]]\nname = \"a\"\n[[site]]\nname = \"b\"\n[[site]]\nname = \"c\"\n");
  open().write_config(load_config(folder / "run.toml"));
  std::filesystem::create_directory(folder / "run" / "ways");
  write(folder / "run" / "ways" / "00.toml", "sites = []\n");
  const Config again = load_config(folder / "run" / "config.resolved.toml");
  EXPECT_EQ(again.net.shares, "auto");
  EXPECT_TRUE(again.notes.empty());
  lock.reset();
  EXPECT_TRUE(remove_run(storage, folder / "run").empty());
}

TEST_F(RunDirectoryTest, DefaultFoldersDoNotMeet) {
  const std::string a = random_id();
  EXPECT_EQ(a.size(), 12U);
  EXPECT_NE(a, random_id());
}

}  // namespace
}  // namespace isthmus::app::this_file
