// SPDX-License-Identifier: Apache-2.0
// A comparison's file: layers, grids, and that mistakes are found at their own place.
#include "config/schema/experiment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config_fixture.h"

namespace isthmus::this_file {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::string_view kBase = R"([run]
workers = 2
[data]
source = "text:input.txt"
[train]
steps = 100
global_batch = "1280 tok"
context = 128
[inner]
lr = 3e-3
[outer]
method = "diloco"
H = 10
codec = "int8"
)";

constexpr std::string_view kVariants = R"([variant.slow]
[variant.ddp]
outer = { method = "ddp" }
[variant.long]
outer = { H = 20 }
inner.lr = 1e-3
)";

Experiment load_experiment(const std::string& text,
                           const std::vector<std::string>& overrides = {}) {
  return Experiment::load_text(text, "wan.toml", overrides, test_context());
}
std::string whole(std::string_view rest = "") {
  return std::string(kBase) + std::string(kVariants) + std::string(rest);
}

/// "line:column code message | hint" of every error.
std::vector<std::string> errors_of(const std::string& text,
                                   const std::vector<std::string>& overrides = {}) {
  std::vector<std::string> all;
  try {
    (void)load_experiment(text, overrides);
  } catch (const ConfigErrors& errors) {
    for (const Diagnostic& each : errors.diagnostics()) {
      all.push_back(each.where + " " + each.code + " " + each.message + " | " + each.hint);
    }
  }
  return all;
}

TEST(Experiment, VariantsStandInTheOrderOfTheFile) {
  const Experiment experiment = load_experiment(whole());
  ASSERT_EQ(experiment.variants().size(), 3U);
  EXPECT_EQ(experiment.variants()[0].name, "slow");
  EXPECT_EQ(experiment.variants()[1].name, "ddp");
  EXPECT_EQ(experiment.variants()[2].name, "long");
  EXPECT_EQ(experiment.baseline(), 0U);
  EXPECT_EQ(load_experiment(whole("[compare]\nbaseline = \"ddp\"\n")).baseline(), 1U);
}

TEST(Experiment, AVariantReplacesTheBaseKeyByKey) {
  const Experiment experiment = load_experiment(whole());
  const Config slow = experiment.config(0, {});
  const Config longer = experiment.config(2, {});
  EXPECT_EQ(slow.outer.H, 10);
  EXPECT_EQ(slow.inner.lr, 3e-3);
  EXPECT_EQ(longer.outer.H, 20);
  EXPECT_EQ(longer.outer.codec, "int8");
  EXPECT_EQ(longer.method, "diloco");
  EXPECT_EQ(longer.inner.lr, 1e-3);
  EXPECT_EQ(longer.workers(), 2);
}

TEST(Experiment, AnotherMethodBeginsANewOuterSection) {
  const Config ddp = load_experiment(whole()).config(1, {});
  EXPECT_EQ(ddp.method, "ddp");
  EXPECT_EQ(ddp.outer.codec, "fp32");  // neither the base's codec nor its H, which ddp has not
}

TEST(Experiment, OtherSpellingsOfAKeyReplaceItToo) {
  const Experiment experiment = load_experiment("[model]\nn_layers = 2\n" +
                                                whole("[variant.deep]\nmodel = { layers = 3 }\n"));
  EXPECT_EQ(experiment.config(3, {}).model.layers, 3);
}

TEST(Experiment, SitesAndLinksAreReplacedAsAWhole) {
  const Experiment experiment = load_experiment(
      "[data]\nsource = \"text:x\"\n[train]\nsteps = 4\nglobal_batch = \"256 tok\"\n"
      "[[site]]\nname = \"a\"\n[[site]]\nname = \"b\"\n"
      "[[link]]\nbetween = [\"a\", \"b\"]\nrate = \"1Mbit/s\"\n"
      "[variant.two]\n[variant.fast]\n"
      "link = [{ between = [\"a\", \"b\"], rate = \"1Gbit/s\" }]\n");
  EXPECT_EQ(experiment.config(0, {}).links.front().bits_per_s_up, 1e6);
  ASSERT_EQ(experiment.config(1, {}).links.size(), 1U);
  EXPECT_EQ(experiment.config(1, {}).links.front().bits_per_s_up, 1e9);
}

TEST(Experiment, SettingsOfACellComeLastAndKeepTheirOrigin) {
  const Experiment experiment = load_experiment(
      whole("[compare.tune]\nspace = { \"inner.lr\" = [1e-3, 2e-3] }\n"), {"train.steps=40"});
  std::vector<Setting> cell = {experiment.variants()[0].space[0].values[1],
                               {.key = "run.seed", .value = "7", .origin = "seed of the cell"}};
  const Config config = experiment.config(0, cell);
  EXPECT_EQ(config.inner.lr, 2e-3);
  EXPECT_EQ(config.run.seed, 7U);
  EXPECT_EQ(*config.train.steps, 40);
  EXPECT_EQ(config.origins.at("inner.lr").text, "wan.toml:22:31");
  EXPECT_EQ(config.origins.at("run.seed").text, "seed of the cell");
  EXPECT_EQ(config.origins.at("train.steps").text, "--set train.steps=40");
}

TEST(Experiment, ACellsTextIsARunFileOfItsOwn) {
  const Config config = load_experiment(whole()).config(2, {});
  const Config again = load_config_text(config.text, "cell.toml", {}, test_context());
  EXPECT_EQ(config_digest(again), config_digest(config));
  EXPECT_EQ(again.outer.H, 20);
}

TEST(Experiment, SettingsThatMakeACellInvalidAreRefused) {
  const Experiment experiment = load_experiment(whole());
  const Setting broken{.key = "inner.lr", .value = "-1", .origin = "follow-up"};
  EXPECT_THROW((void)experiment.config(0, std::span(&broken, 1)), ConfigErrors);
}

TEST(Experiment, ReadsSeedsTargetAndBudget) {
  const Experiment experiment = load_experiment(
      whole("[compare]\nseeds = [11, 12, 13]\nmargin = \"0.5%\"\nconfidence = 0.9\n"
            "tune = { trials = 2, follow_ups = 0, seed = 5, space = { inner.lr = [1e-3, 2e-3] } }\n"
            "[target]\nrelative_to = \"ddp\"\nfactor = 1.02\n"
            "[budget]\nsteps = \"90 steps\"\nsim_time = \"48h\"\n"));
  const ExperimentSettings& settings = experiment.settings();
  EXPECT_THAT(settings.seeds, ElementsAre(11, 12, 13));
  EXPECT_EQ(settings.margin, 0.005);
  EXPECT_EQ(settings.confidence, 0.9);
  EXPECT_EQ(settings.tune_trials, 2);
  EXPECT_EQ(settings.tune_follow_ups, 0);
  EXPECT_EQ(settings.tune_seed, 5);
  EXPECT_EQ(settings.tune_seeds, 2);
  EXPECT_THAT(settings.seeds_of_trials(), ElementsAre(5, 1000005));
  EXPECT_EQ(settings.target_relative_to, "ddp");
  EXPECT_EQ(settings.target_factor, 1.02);
  EXPECT_EQ(settings.budget_steps, 90);
  EXPECT_EQ(settings.budget_time, std::chrono::hours(48));
  EXPECT_EQ(experiment.variants()[1].space.front().key, "inner.lr");
  EXPECT_THAT(
      load_experiment(whole("[compare]\ntune = { seeds = 3 }\n")).settings().seeds_of_trials(),
      ElementsAre(0, 1000000, 2000000));
  EXPECT_THAT(load_experiment(whole("[compare]\nseeds = 3\n")).settings().seeds,
              ElementsAre(1, 2, 3));
  EXPECT_EQ(load_experiment(whole("[target]\nvalue = 2.5\n")).settings().target_value, 2.5);
}

TEST(Experiment, FurtherReportedSeedsLeaveTheTrialsInPlace) {
  const auto trials = [](const std::string& seeds, const std::vector<std::int64_t>& tried = {}) {
    return load_experiment(whole("[compare]\nseeds = " + seeds + "\ntune = { seeds = 3 }\n"))
        .settings()
        .seeds_of_trials(tried);
  };
  EXPECT_EQ(trials("8"), trials("9"));
  EXPECT_EQ(trials("8"), trials("100"));
  // Trials on record are gone on with, except where their seed is now reported, and only those of
  // this compare.tune.seed.
  EXPECT_THAT(trials("8", {9, 0, 9, 0}), ElementsAre(0, 9, 1000000));
  EXPECT_THAT(trials("9", {0, 9, 10}), ElementsAre(0, 10, 1000000));
  EXPECT_THAT(trials("8", {9, 10}), ElementsAre(0, 1000000, 2000000));
  EXPECT_THAT(trials("[1, 1000000]"), ElementsAre(0, 2000000, 3000000));
}

TEST(Experiment, AVariantMayHaveASpaceOfItsOwnOfAsManyPoints) {
  const Experiment experiment = load_experiment(
      whole("tune = { space = { \"inner.lr\" = [1e-3, 2e-3], \"outer.lr\" = [0.4, 0.7] } }\n"
            "[compare.tune]\nspace = { \"inner.lr\" = [1e-3, 2e-3, 4e-3, 8e-3] }\n"));
  EXPECT_EQ(experiment.variants()[0].space.size(), 1U);
  ASSERT_EQ(experiment.variants()[2].space.size(), 2U);
  EXPECT_EQ(experiment.variants()[2].space[0].key, "inner.lr");
  EXPECT_EQ(experiment.variants()[2].space[1].values[1].value, "0.7");
}

TEST(Experiment, OverridesReachTheComparisonAllVariantsOrOne) {
  const Experiment experiment = load_experiment(
      whole(), {"compare.seeds=2", "variant.long.outer.H=50", "inner.weight_decay=0.2"});
  EXPECT_THAT(experiment.settings().seeds, ElementsAre(1, 2));
  EXPECT_EQ(experiment.config(0, {}).outer.H, 10);
  EXPECT_EQ(experiment.config(2, {}).outer.H, 50);
  EXPECT_EQ(experiment.config(0, {}).inner.weight_decay, 0.2);
  EXPECT_EQ(experiment.config(1, {}).inner.weight_decay, 0.2);
}

struct Case {
  const char* name;
  const char* text;  // after base and variants, so its first line is 21
  const char* where;
  const char* code;
  const char* words;
};
std::string case_name(const testing::TestParamInfo<Case>& info) { return info.param.name; }

class ExperimentError : public testing::TestWithParam<Case> {};

TEST_P(ExperimentError, HasCodePlaceAndWords) {
  const Case& wanted = GetParam();
  EXPECT_THAT(errors_of(whole(wanted.text)),
              ElementsAre(testing::AllOf(testing::StartsWith(wanted.where), HasSubstr(wanted.code),
                                         HasSubstr(wanted.words))));
}

INSTANTIATE_TEST_SUITE_P(
    Table, ExperimentError,
    testing::Values(
        Case{"UnknownSetting", "[compare]\nseed = 3\n", "wan.toml:22:1 ", "E-KEY-UNKNOWN",
             "did you mean 'seeds'?   (keys of [compare]: baseline, seeds"},
        Case{"UnknownTuneKey", "[compare]\ntune = { trial = 3 }\n", "wan.toml:22:10 ",
             "E-KEY-UNKNOWN", "did you mean 'trials'?"},
        Case{"UnknownKeyInAVariant", "[variant.x]\nouter = { HH = 3 }\n", "wan.toml:22:11 ",
             "E-KEY-UNKNOWN", "(in variant x)"},
        Case{"UnknownSectionInAVariant", "[variant.x.outr]\n", "wan.toml:21:12 ", "E-KEY-UNKNOWN",
             "did you mean [outer]?"},
        Case{"KeyTheVariantsMethodDoesNotUse", "[variant.x]\nouter = { method = \"ddp\", H = 3 }\n",
             "wan.toml:22:27 ", "E-KEY-UNUSED", "method 'ddp' (in variant x)"},
        Case{"UnknownBaseline", "[compare]\nbaseline = \"dpp\"\n", "wan.toml:22:12 ", "E-VALUE",
             "did you mean 'ddp'?"},
        Case{"UnknownReference", "[target]\nrelative_to = \"x\"\n", "wan.toml:22:15 ", "E-VALUE",
             "variants: slow, ddp, long"},
        Case{"TwoTargets", "[target]\nvalue = 2.0\nfactor = 1.1\n", "wan.toml:23:10 ", "E-CONFLICT",
             "target.factor"},
        Case{"SeedsNone", "[compare]\nseeds = []\n", "wan.toml:22:9 ", "E-RANGE", "no seed"},
        Case{"SeedsZero", "[compare]\nseeds = 0\n", "wan.toml:22:9 ", "E-RANGE", "compare.seeds"},
        Case{"SeedTwice", "[compare]\nseeds = [3, 4, 3]\n", "wan.toml:22:9 ", "E-CONFLICT",
             "holds 3 twice"},
        Case{"TunedSeedIsReported", "[compare]\nseeds = [0, 1]\n", "wan.toml:22:9 ", "E-CONFLICT",
             "seed 0 is both tuned on and reported"},
        Case{"SeedGivenInTheRun", "[variant.x]\nrun = { seed = 3 }\n", "wan.toml:22:9 ",
             "E-KEY-UNUSED", "compare.seeds"},
        Case{"NameOfAFolder", "[variant.\"a b\"]\n", "wan.toml:21:10 ", "E-VALUE",
             "names a folder"},
        Case{"VariantAsAValue", "[variant]\nx = 3\n", "wan.toml:22:1 ", "E-TYPE", "[variant.x]"},
        Case{"MarginZero", "[compare]\nmargin = 0\n", "wan.toml:22:10 ", "E-RANGE",
             "compare.margin"},
        Case{"LinkWithoutARoundTrip", "[compare]\nlinks = [\"1Gbit/s\"]\n", "wan.toml:22:9 ",
             "E-VALUE", "the round trip is missing"},
        Case{"BudgetAsAShare", "[budget]\nsteps = \"5%\"\n", "wan.toml:22:9 ", "E-VALUE",
             "a count of steps"},
        Case{"SpaceOfAnUnknownKey", "[compare.tune]\nspace = { \"inner.lrr\" = [1, 2] }\n",
             "wan.toml:22:11 ", "E-KEY-UNKNOWN", "did you mean \"inner.lr\"?"},
        Case{"SpaceOfTheModel", "[compare.tune]\nspace = { \"model.d_model\" = [64, 128] }\n",
             "wan.toml:22:11 ", "E-VALUE", "cannot be tuned"},
        Case{"SpaceOfOneValue", "[compare.tune]\nspace = { \"inner.lr\" = 1e-3 }\n",
             "wan.toml:22:24 ", "E-TYPE", "an array of"},
        Case{"SpaceWithAValueTwice", "[compare.tune]\nspace = { \"inner.lr\" = [1e-3, 0.001] }\n",
             "wan.toml:22:31 ", "E-CONFLICT", "0.001 twice"},
        Case{"SpaceWithAWrongValue", "[compare.tune]\nspace = { \"inner.lr\" = [1e-3, \"x\"] }\n",
             "wan.toml:22:31 ", "E-TYPE", "must be a number"},
        Case{"BudgetsDiffer",
             "[compare.tune]\ntrials = 3\nspace = { \"inner.lr\" = [1e-3, 2e-3, 4e-3] }\n"
             "[variant.x.tune]\nspace = { \"inner.lr\" = [1e-3, 2e-3] }\n",
             "wan.toml:25:25 ", "E-CONFLICT",
             "variant 'x' has 2 points, compare.tune.trials says 3"},
        Case{"OneIsNotTuned", "[variant.x.tune]\nspace = { \"inner.lr\" = [1e-3] }\n", "wan.toml ",
             "E-CONFLICT", "no space for slow, ddp, long while x is tuned"},
        Case{"TrialsWithoutASpace", "[compare.tune]\ntrials = 3\n", "wan.toml ", "E-KEY-MISSING",
             "compare.tune.space"},
        Case{"TrialsOfAVariant", "[variant.x.tune]\ntrials = 3\n", "wan.toml:22:1 ",
             "E-KEY-UNKNOWN", "[compare.tune]"}),
    case_name);

TEST(Experiment, AnErrorOfTheBaseIsToldOnce) {
  EXPECT_THAT(errors_of("[evl]\nx = 1\n" + whole()),
              ElementsAre(testing::AllOf(HasSubstr("wan.toml:1:2 E-KEY-UNKNOWN"),
                                         HasSubstr("did you mean [eval]?"),
                                         testing::Not(HasSubstr("in variant")))));
}

TEST(Experiment, AnErrorOfSomeVariantsNamesThem) {
  // The base's H is one that only diloco has.
  const std::string text =
      std::string(kBase) + "[variant.a]\n[variant.b]\nouter = { method = \"ddp\" }\n";
  EXPECT_THAT(errors_of(text, {"outer.H=5"}),
              ElementsAre(testing::AllOf(HasSubstr("--set outer.H=5 E-KEY-UNUSED"),
                                         HasSubstr("(in variant b)"))));
}

TEST(Experiment, OverridesAreJudgedToo) {
  EXPECT_THAT(errors_of(whole(), {"compare.seed=3"}), ElementsAre(HasSubstr("'seeds'")));
  EXPECT_THAT(errors_of(whole(), {"variant.lnog.outer.H=3"}),
              ElementsAre(HasSubstr("did you mean 'long'?")));
  EXPECT_THAT(errors_of(whole(), {"variant.long=3"}), ElementsAre(HasSubstr("E-SET")));
  EXPECT_THAT(errors_of(whole(), {"inner.lr"}), ElementsAre(HasSubstr("E-SET")));
  EXPECT_THAT(errors_of(whole("[compare.tune]\nspace = { \"inner.lr\" = [1e-3, 2e-3] }\n"),
                        {"inner.lr=3e-3"}),
              ElementsAre(HasSubstr("'inner.lr' is tuned")));
}

TEST(Experiment, ARunIsNoComparison) {
  EXPECT_THAT(errors_of(std::string(kBase)),
              ElementsAre(testing::AllOf(HasSubstr("E-COMPARISON"), HasSubstr("[variant.NAME]"))));
  EXPECT_THAT(errors_of(std::string(kBase) + "[variant.one]\n"),
              ElementsAre(HasSubstr("a single [variant.NAME]")));
  EXPECT_THAT(errors_of("x = ["), ElementsAre(HasSubstr("E-TOML")));
}

}  // namespace
}  // namespace isthmus::this_file
