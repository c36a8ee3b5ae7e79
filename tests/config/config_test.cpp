// SPDX-License-Identifier: Apache-2.0
// What a good file means, and that it survives being written out.
#include "isthmus/config.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "config_fixture.h"
#include "core/temporary_directory.h"

namespace isthmus::this_file {
namespace {

using namespace std::chrono_literals;

TEST(Config, MissingSectionsTakeDefaults) {
  const Config config = load_minimal();
  EXPECT_EQ(config.method, "ddp");
  EXPECT_EQ(config.workers(), 1);
  EXPECT_EQ(config.model.arch, "gpt2");
  EXPECT_EQ(config.inner.optimizer, "adamw");
  EXPECT_EQ(config.data.val_fraction, 0.1);
  EXPECT_EQ(config.train.context, 128);
  EXPECT_EQ(config.ckpt.keep, 3);
  EXPECT_EQ(config.origins.at("inner.lr").text, "default");
}

TEST(Config, EveryKeyReachesItsField) {
  const Config config = load(R"(
schema = 1
[run]
name = "wan"
out = "somewhere"
seed = 7
[model]
arch = "llama"
n_layers = 6
d_model = 96
n_heads = 6
n_kv_heads = 2
qk_norm = true
tied = false
[data]
source = "text:a.txt"
order = "sequential"
val_fraction = "20%"
[train]
tokens = "3M"
global_batch = "16384 tok"
context = 64
[inner]
optimizer = "sgd"
momentum = 0.5
nesterov = true
schedule = "wsd"
warmup = "5%"
decay = "20 steps"
rewarm = [100, "50%"]
[outer]
method = "streaming-diloco"
H = 20
fragments = 3
overlap = 2
alpha = 0.25
offsets = [0, 5, 10, 15]
pattern = "sequential"
codec = "int8"
exchange = "reduce"
final_sync = "full"
[surrogate]
params = "1B"
step_time = "0.9s"
[[site]]
name = "east"
[[site]]
name = "west"
compute = "40TFLOPS"
jitter = "5%"
[[link]]
between = ["east", "west"]
rate_up = "50Mbit/s"
rate_down = "500Mbit/s"
rtt = "80ms"
loss = "0.1%"
streams = 8
[eval]
every = "20 steps"
tokens = "all"
[ckpt]
every = "100 steps"
)");
  EXPECT_EQ(config.run.name, "wan");
  EXPECT_EQ(config.run.seed, 7U);
  EXPECT_EQ(config.model.layers, 6);
  EXPECT_EQ(config.model.kv_heads, 2);
  EXPECT_FALSE(config.model.tied);
  EXPECT_DOUBLE_EQ(config.data.val_fraction, 0.2);
  EXPECT_EQ(config.train.tokens, 3'000'000);
  EXPECT_EQ(config.train.global_batch_tokens, 16384);
  EXPECT_EQ(config.inner.warmup.resolve(200), 10);
  EXPECT_EQ(config.inner.decay.resolve(200), 20);
  EXPECT_EQ(config.inner.rewarm[1].resolve(200), 100);
  EXPECT_EQ(config.outer.pattern, FragmentPattern::kSequential);
  EXPECT_EQ(config.outer.exchange, ReductionKind::kReduce);
  EXPECT_EQ(config.outer.final_sync, FinalSync::kFull);
  EXPECT_EQ(std::get<std::vector<std::int64_t>>(config.outer.offsets).size(), 4U);
  EXPECT_EQ(config.surrogate->params, 1e9);
  EXPECT_EQ(config.surrogate->step_time, 900ms);
  ASSERT_EQ(config.workers(), 2);
  EXPECT_EQ(config.sites[1].compute_flops, 40e12);
  EXPECT_DOUBLE_EQ(config.sites[1].jitter, 0.05);
  EXPECT_EQ(config.links[0].bits_per_s_up, 50e6);
  EXPECT_EQ(config.links[0].bits_per_s_down, 500e6);
  EXPECT_EQ(config.links[0].rtt, 80ms);
  EXPECT_TRUE(config.eval.all);
  EXPECT_EQ(config.ckpt.every_steps, 100);
}

TEST(Config, PercentagesCountStepsOfTheRun) {
  const Config config =
      load_minimal({"outer.method=streaming-diloco", "outer.H=\"20%\"",
                    "outer.offsets=[0, \"5%\", \"10 steps\"]", "eval.every=5%", "ckpt.every=5%"});
  EXPECT_EQ(config.outer.H, 20);
  EXPECT_EQ(std::get<std::vector<std::int64_t>>(config.outer.offsets),
            (std::vector<std::int64_t>{0, 5, 10}));
  EXPECT_EQ(config.eval.every.resolve(100), 5);
  EXPECT_EQ(config.ckpt.every_steps, 5);
  EXPECT_EQ(load_minimal({"ckpt.every=5%", "ckpt.every=10min"}).ckpt.every_steps, 0);
}

TEST(Config, ShareOfAShortRunIsAtLeastOneStep) {
  const Config config = load_minimal({"train.steps=4", "eval.every=1%", "ckpt.every=1%"});
  EXPECT_EQ(config.eval.every.resolve(4), 1);
  EXPECT_EQ(config.ckpt.every_steps, 1);
  EXPECT_EQ(load_minimal({"eval.every=0%", "ckpt.every=0%"}).ckpt.every_steps, 0);
}

TEST(Config, SchedulesWithALastPhaseDecayOverATenthOfTheRun) {
  EXPECT_EQ(load_minimal({"inner.schedule=wsd"}).inner.decay.resolve(100), 10);
  EXPECT_EQ(load_minimal({"inner.schedule=infinite"}).inner.decay.resolve(100), 10);
  EXPECT_EQ(load_minimal({"inner.schedule=wsd", "inner.decay=7"}).inner.decay.resolve(100), 7);
}

TEST(Config, WorkersStandForEqualSites) {
  const Config config = load_minimal({"run.workers=4", "train.global_batch=512 tok"});
  ASSERT_EQ(config.workers(), 4);
  EXPECT_EQ(config.sites[3].name, "w3");
}

TEST(Config, TheMethodFillsWhatItUsesAndNothingElse) {
  const Config diloco = load_minimal({"outer.method=diloco"});
  EXPECT_EQ(diloco.outer.lr, 0.7);
  EXPECT_EQ(diloco.outer.momentum, 0.9);
  EXPECT_EQ(diloco.outer.nesterov, true);
  EXPECT_FALSE(diloco.outer.alpha);
  EXPECT_EQ(diloco.origins.at("outer.lr").text, "default of diloco");
  const Config ddp = load_minimal();
  EXPECT_FALSE(ddp.outer.lr);
  EXPECT_FALSE(ddp.origins.contains("outer.lr"));
}

TEST(Config, APresetGivesWayToSizesBesideIt) {
  const Config config = load_minimal({"model.preset=small-10m", "model.n_layers=2"});
  EXPECT_EQ(config.model.layers, 2);
  EXPECT_EQ(config.model.d_model, 384);
  EXPECT_EQ(config.train.context, 256);
  EXPECT_EQ(config.origins.at("model.d_model").text, "preset small-10m");
  EXPECT_EQ(config.origins.at("model.n_layers").text, "--set model.n_layers=2");
}

TEST(Config, OverridesBeatTheFileAndTheLastOneWins) {
  const Config config = load_minimal({"inner.lr=0.5", "inner.lr = 0.25"});
  EXPECT_EQ(config.inner.lr, 0.25);
  EXPECT_EQ(config.origins.at("inner.lr").text, "--set inner.lr = 0.25");
}

TEST(Config, OverrideValuesAreTomlOrBareWords) {
  const Config config =
      load_minimal({"data.order=sequential", "inner.betas=[0.8, 0.9]", "train.global_batch=1k tok",
                    "train.context=125", "run.name=\"quoted\"", "model.tied=false"});
  EXPECT_EQ(config.data.order, "sequential");
  EXPECT_EQ(config.inner.beta1, 0.8);
  EXPECT_EQ(config.train.global_batch_tokens, 1000);
  EXPECT_EQ(config.run.name, "quoted");
  EXPECT_FALSE(config.model.tied);
}

TEST(Config, PercentagesOfStepsBecomeStepsWhereAnIntegerIsNeeded) {
  const Config config = load_minimal({"outer.method=diloco", "train.steps=200", "outer.H=5%"});
  EXPECT_EQ(config.outer.H, 10);
  EXPECT_EQ(load_minimal({"train.steps=30 steps"}).train.steps, 30);
}

TEST(Config, OtherSpellingsOfTheSizesMeanTheSame) {
  const Config config = load_minimal({"model.layers=3", "model.heads=2"});
  EXPECT_EQ(config.model.layers, 3);
  EXPECT_EQ(config.model.heads, 2);
}

TEST(Config, AWordStandsForAnArrayOfOne) {
  const Config config = load(std::string(kMinimal) + "[log]\nsinks = \"tensorboard\"\n");
  EXPECT_EQ(config.log.sinks, std::vector<std::string>{"tensorboard"});
  EXPECT_EQ(load_minimal({"log.sinks=tensorboard"}).log.sinks, config.log.sinks);
}

TEST(Config, SizesOfAModelFolderAreTaken) {
  SchemaContext context = test_context();
  context.read_model = [](const std::filesystem::path& folder) {
    EXPECT_EQ(folder, std::filesystem::path("sub/base"));
    ModelConfig model;
    model.arch = "llama";
    model.layers = 9;
    model.d_model = 48;
    model.heads = 4;
    model.kv_heads = 2;
    model.context = 64;
    return model;
  };
  const std::string text = std::string(kMinimal) + "[model]\ninit = \"base\"\n";
  const Config config = load_config_text(text, "sub/run.toml", {}, context);
  EXPECT_EQ(config.model.arch, "llama");
  EXPECT_EQ(config.model.layers, 9);
  EXPECT_EQ(config.train.context, 64);  // no longer than the model's positions
  EXPECT_EQ(config.origins.at("model.d_model").text, "model.init");
}

TEST(Config, PathsStartAtTheFilesFolder) {
  const Config config =
      load_config_text(kMinimal, "/somewhere/run.toml", {"data.source=text:a/b.txt"});
  EXPECT_EQ(config.located_source(), "text:/somewhere/a/b.txt");
  EXPECT_EQ(
      load_config_text(kMinimal, "/some[1]/run.toml", {"data.source=text:a.txt"}).located_source(),
      "text:/some[1]/a.txt");  // a name that exists is taken as it is
  EXPECT_EQ(
      load_config_text(kMinimal, "/some[1]/run.toml", {"data.source=text:*.txt"}).located_source(),
      "text:/some\\[1]/*.txt");
  EXPECT_EQ(load_config_text(kMinimal, "run.toml", {"data.source=text:/some/*.h"}).located_source(),
            "text:/some/*.h");  // a file of the current folder
  EXPECT_EQ(load_config_text(kMinimal, "run.toml", {"data.source=text:*.h"}).located_source(),
            fmt::format("text:{}/*.h", std::filesystem::current_path().string()));
  EXPECT_EQ(config.locate("c"), std::filesystem::path("/somewhere/c"));
  EXPECT_EQ(config.locate("/c"), std::filesystem::path("/c"));
}

TEST(Config, MuonHasItsOwnMomentum) {
  const InnerConfig muon = load_minimal({"inner.optimizer=muon"}).inner;
  EXPECT_EQ(muon.momentum, 0.95);
  EXPECT_TRUE(muon.nesterov);
  EXPECT_EQ(muon.adjust_lr, "original");
  const InnerConfig plain = load_minimal({"inner.optimizer=muon", "inner.momentum=0"}).inner;
  EXPECT_EQ(plain.momentum, 0);
  EXPECT_FALSE(plain.nesterov);
  EXPECT_EQ(load_minimal({"inner.optimizer=sgd"}).inner.momentum, 0);
}

TEST(Config, AMethodMayHaveItsOwnH) {
  EXPECT_EQ(load_minimal({"outer.method=sparseloco"}).outer.H, 30);
  EXPECT_EQ(load_minimal({"outer.method=sparseloco", "outer.H=1"}).outer.H, 1);
  EXPECT_EQ(load_minimal({"outer.method=diloco"}).outer.H, 1);
}

TEST(Config, TheResolvedTextLoadsBackToTheSame) {
  for (const auto& overrides : std::vector<std::vector<std::string>>{
           {},
           {"outer.method=diloco", "outer.H=5%", "inner.warmup=\"3.3%\""},
           {"outer.method=streaming-diloco", "outer.H=9", "outer.offsets=[0,3,6]"},
           {"outer.method=co2", "outer.H=4", "outer.staleness_penalty=false"},
           {"outer.method=co2", "outer.staleness_penalty=gap-aware", "outer.momentum_clip=1.0"},
           {"outer.method=co2", "outer.staleness_penalty=constant", "outer.staleness_constant=1.5",
            "outer.carry=rollback", "outer.outlier=0"},
           {"outer.method=sparseloco", "outer.error_decay=1"},
           {"outer.method=gpa", "run.workers=1", "outer.mu_x=0.99", "outer.mu_y=1"},
           {"outer.method=01-adam", "outer.var_freeze_step=25%", "outer.local_step_clipper=4"},
           {"model.arch=llama", "model.preset=nano", "train.global_batch=640 tok"},
           {"inner.optimizer=sgd", "inner.schedule=wsd", "inner.decay=7", "ckpt.every=90s"},
           {"inner.optimizer=muon", "inner.eps=1e-9", "inner.adjust_lr=match_rms_adamw"},
           {"inner.optimizer=muon", "inner.momentum=0"},
           {"outer.method=muloco", "inner.lr=0.01"},
           {"outer.method=diloco", "outer.lr_warmup=10%", "outer.lr_decay=30", "outer.lr_floor=0.5",
            "outer.momentum_decay=20%"},
           {"surrogate.params=1.5B", "surrogate.step_time=0.9s", "eval.tokens=all"}}) {
    const Config config = load_minimal(overrides);
    const std::string text = resolved_toml(config);
    const Config again =
        load_config_text(text, "/elsewhere/config.resolved.toml", {}, test_context());
    EXPECT_EQ(config_digest(again), config_digest(config)) << text;
    EXPECT_EQ(without_comments(resolved_toml(again)), without_comments(text));
  }
}

TEST(Config, TheStalenessPenaltyIsFalseOrANamedRule) {
  const auto penalty = [](const std::string& value) {
    return load_minimal({"outer.method=co2", "outer.staleness_penalty=" + value})
        .outer.staleness_penalty;
  };
  EXPECT_EQ(penalty("false"), StalenessPenalty::kNone);
  EXPECT_EQ(penalty("constant"), StalenessPenalty::kConstant);
  EXPECT_EQ(penalty("gap-aware"), StalenessPenalty::kGapAware);
  EXPECT_EQ(load_minimal({"outer.method=co2"}).outer.staleness_penalty, StalenessPenalty::kNone);
}

TEST(Config, SitesAndLinksSurviveTheResolvedText) {
  const Config config = load(std::string(kMinimal) + R"(
[[site]]
name = "a"
[[site]]
name = "b"
jitter = 0.1
[[link]]
between = ["b", "a"]
rate = "1Gbit/s"
rtt = "1.5ms"
)",
                             {"train.global_batch=256 tok"});
  const std::string text = resolved_toml(config);
  const Config again = load(text);
  ASSERT_EQ(again.workers(), 2);
  EXPECT_EQ(again.sites[1].jitter, 0.1);
  ASSERT_EQ(again.links.size(), 1U);
  EXPECT_EQ(again.links[0].a, "b");
  EXPECT_EQ(again.links[0].rtt, 1500us);
}

TEST(Config, TheDigestFollowsWhatSteersTheTrajectory) {
  const std::string base = config_digest(load_minimal());
  EXPECT_NE(base, config_digest(load_minimal({"inner.lr=0.1"})));
  EXPECT_NE(base, config_digest(load_minimal({"run.seed=1"})));
  EXPECT_EQ(base, config_digest(
                      load_minimal({"run.name=other", "train.threads=1", "train.recompute=true"})));
  EXPECT_EQ(base, config_digest(load_minimal({"ckpt.keep=9", "eval.every=5", "train.offload=x"})));
}

TEST(Config, TheOutcomesDigestFollowsTheClockAndTheEvaluationToo) {
  const std::string base = outcome_digest(load_minimal());
  for (const char* other :
       {"inner.lr=0.1", "run.seed=1", "eval.every=5", "eval.part=first", "eval.tokens=1000",
        "sim.step_time=1s", "train.kernels=portable", "run.workers=2", "train.steps=99"}) {
    EXPECT_NE(base, outcome_digest(load_minimal({other}))) << other;
  }
  EXPECT_EQ(base, outcome_digest(load_minimal({"run.name=other", "run.out=x", "ckpt.keep=9",
                                               "train.threads=1", "train.offload=x"})));
  const auto with_link = [](const std::string& rate) {
    return outcome_digest(load(std::string(kMinimal) +
                               "[run]\nworkers = 2\n[[link]]\nbetween = [\"*\", \"*\"]\nrate = \"" +
                               rate + "\"\n"));
  };
  EXPECT_NE(with_link("1Mbit/s"), with_link("2Mbit/s"));
}

TEST(Config, WhatLinksDoIsNoPartOfTheOutcome) {
  const Config untold = load_minimal({"run.workers=2"});
  const Config told = load_minimal({"run.workers=2", "net.min_sites=2", "net.streams=8"});
  EXPECT_EQ(untold.min_sites(), 1);
  EXPECT_EQ(told.min_sites(), 2);
  EXPECT_NE(resolved_toml(told).find("streams = 8"), std::string::npos);
  EXPECT_EQ(outcome_digest(told), outcome_digest(untold)) << "it changes nothing without a fault";
  EXPECT_EQ(config_digest(told), config_digest(untold));
}

TEST(Config, LinksOfTheCommandLine) {
  const LinkConfig link = parse_link("100Mbit/s,80ms,0.1%");
  EXPECT_EQ(link.a, "*");
  EXPECT_EQ(link.bits_per_s_down, 100e6);
  EXPECT_EQ(link.rtt, 80ms);
  EXPECT_DOUBLE_EQ(link.loss, 0.001);
  for (const char* bad :
       {"", "100Mbit/s", "80ms,100Mbit/s", "100,80ms", "1Mbit/s,1ms,1%,1", ",,"}) {
    EXPECT_THROW((void)parse_link(bad), ConfigError) << bad;
  }
}

TEST(Config, EveryKeyHasWordsAndAnExampleThatLoads) {
  for (const KeyInfo& key : config_keys()) {
    EXPECT_FALSE(key.text.empty()) << key.name;
    EXPECT_FALSE(key.type.empty()) << key.name;
    EXPECT_NE(key.example.find(" = "), std::string::npos) << key.name;
    const std::string section = key.name.substr(0, key.name.find('.'));
    if (section == "site" || section == "link" || section == "fault") {
      continue;
    }
    // The example may not fit this file (unused, not divisible), but its form must be right.
    const std::string text = key.name + "=" + key.example.substr(key.example.find(" = ") + 3);
    for (const Diagnostic& each : diagnostics_of(kMinimal, {text})) {
      EXPECT_NE(each.code, "E-TYPE") << text;
      EXPECT_NE(each.code, "E-KEY-UNKNOWN") << text;
      EXPECT_FALSE(each.code.starts_with("E-UNIT")) << text;
    }
  }
}

TEST(Config, FilesAreReadWholeAndBounded) {
  const TemporaryDirectory folder;
  std::ofstream(folder / "run.toml") << kMinimal;
  EXPECT_EQ(load_config(folder / "run.toml").text, kMinimal);
  EXPECT_NE(
      message_of<SystemError>([&] { (void)load_config(folder / "no.toml"); }).find("no such file"),
      std::string::npos);
  EXPECT_NE(message_of<SystemError>([&] { (void)load_config(folder.path()); }).find("is a folder"),
            std::string::npos);
  std::ofstream(folder / "big.toml") << std::string((1 << 20) + 1, '#');
  EXPECT_NE(
      message_of<ConfigError>([&] { (void)load_config(folder / "big.toml"); }).find("larger than"),
      std::string::npos);
}

}  // namespace
}  // namespace isthmus::this_file
