// SPDX-License-Identifier: Apache-2.0
// Every class of error: its code, its place, its suggestion, and that all are told in one pass.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "config_fixture.h"

namespace isthmus::this_file {
namespace {

struct Case {
  const char* name;
  const char* text;  // appended to kMinimal, so its first line is line 6
  const char* code;
  int line, column;
  const char* message;  // part of message + hint
};

class ConfigError_ : public testing::TestWithParam<Case> {};

TEST_P(ConfigError_, HasCodePlaceAndWords) {
  const Case& wanted = GetParam();
  const auto found = diagnostics_of(std::string(kMinimal) + wanted.text);
  const auto match = std::find_if(found.begin(), found.end(), [&](const Diagnostic& each) {
    return each.code == wanted.code && each.line == wanted.line && each.column == wanted.column;
  });
  std::string all;
  for (const Diagnostic& each : found) {
    all += each.where + " " + each.code + " " + each.message + " | " + each.hint + "\n";
  }
  ASSERT_NE(match, found.end()) << all;
  EXPECT_EQ(match->where,
            "run.toml:" + std::to_string(wanted.line) + ":" + std::to_string(wanted.column));
  EXPECT_NE((match->message + " " + match->hint).find(wanted.message), std::string::npos) << all;
  EXPECT_FALSE(match->source_line.empty());
  EXPECT_EQ(found.size(), 1U) << all;
}

std::string case_name(const testing::TestParamInfo<Case>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(
    Table, ConfigError_,
    testing::Values(
        Case{"UnknownKey", "[inner]\nlrr = 1\n", "E-KEY-UNKNOWN", 7, 1, "did you mean 'lr'?"},
        Case{"UnknownKeyNamesTheMethodsKeys", "[outer]\nmethod = \"diloco\"\nmomentun = 0.9\n",
             "E-KEY-UNKNOWN", 8, 1,
             "did you mean 'momentum'?   (keys of method 'diloco': method, H"},
        Case{"KeyOfAnotherSection", "[inner]\nsteps = 3\n", "E-KEY-UNKNOWN", 7, 1,
             "'steps' belongs to [train]"},
        Case{"LetterBeyondAscii", "[run]\nb\u00f8 = 2\n", "E-TOML", 7, 2, "expected '='"},
        Case{"UnknownSection", "[modle]\nx = 1\n", "E-KEY-UNKNOWN", 6, 2, "did you mean [model]?"},
        Case{"TableForAKey", "[run]\n[model]\n[eval.x]\n", "E-KEY-UNKNOWN", 8, 7, "eval.x"},
        Case{"UnknownKeyOfASite", "[[site]]\nname = \"a\"\nflops = 3\n", "E-KEY-UNKNOWN", 8, 1,
             "site.flops"},
        Case{"TextForNumber", "[inner]\nlr = \"0.1\"\n", "E-TYPE", 7, 6, "without quotes"},
        Case{"NumberForText", "[run]\nname = 3\n", "E-TYPE", 7, 8, "must be text"},
        Case{"FloatForInteger", "[model]\nn_layers = 2.5\n", "E-TYPE", 7, 12, "an integer"},
        Case{"TextForBool", "[model]\ntied = \"true\"\n", "E-TYPE", 7, 8, "true or false"},
        Case{"DateForNumber", "[inner]\nlr = 2026-11-20\n", "E-TYPE", 7, 6, "a date"},
        Case{"ArrayForNumber", "[inner]\nlr = [1]\n", "E-TYPE", 7, 6, "an array"},
        Case{"ThreeBetas", "[inner]\nbetas = [1, 2, 3]\n", "E-TYPE", 7, 9, "exactly 2"},
        Case{"SectionAsValue", "run = 3\n", "E-KEY-UNKNOWN", 6, 1, "train.run"},
        Case{"SiteAsTable", "[site]\nname = \"a\"\n", "E-TYPE", 6, 2, "[[site]]"},
        Case{"LinkAsTable", "[link]\nrtt = \"1ms\"\n", "E-TYPE", 6, 2, "[[link]]"},
        Case{"Negative", "[inner]\nlr = -1.0\n", "E-RANGE", 7, 6, "in [0, 1000000]"},
        Case{"NotANumber", "[inner]\nlr = nan\n", "E-RANGE", 7, 6, "finite"},
        Case{"Infinite", "[inner]\nclip = inf\n", "E-RANGE", 7, 8, "finite"},
        Case{"Zero", "[model]\nn_layers = 0\n", "E-RANGE", 7, 12, "must be in [1, 10000]"},
        Case{"Huge", "[model]\nn_layers = 9223372036854775807\n", "E-RANGE", 7, 12,
             "in [1, 10000]"},
        Case{"TooLargeForAnInteger", "[model]\nn_layers = 99999999999999999999\n", "E-TOML", 7, 32,
             "not TOML"},
        Case{"HugeText", "[ckpt]\nevery = \"1e300 h\"\n", "E-RANGE", 7, 9, "1e300"},
        Case{"SectionTwice", "[data]\n", "E-KEY-TWICE", 6, 1, "redefine"},
        Case{"WrongChoice", "[model]\narch = \"gpt3\"\n", "E-VALUE", 7, 8, "did you mean 'gpt2'?"},
        Case{"UnknownSink", "[log]\nsinks = [\"jsonl\", \"wandb\"]\n", "E-VALUE", 7, 19,
             "must be one of jsonl, tensorboard"},
        Case{"SinkAsAWord", "[log]\nsinks = \"jsonl,tensorboard\"\n", "E-VALUE", 7, 9,
             "must be one of jsonl, tensorboard"},
        Case{"SinkAsANumber", "[log]\nsinks = 3\n", "E-TYPE", 7, 9,
             "one of jsonl, tensorboard, or an array of them"},
        Case{"SinkTwice", "[log]\nsinks = [\"jsonl\", \"jsonl\"]\n", "E-CONFLICT", 7, 9, "twice"},
        Case{"ControlCharacter", "[run]\nname = \"a\\u0007\"\n", "E-VALUE", 7, 8, "control"},
        Case{"UnitMissing", "[ckpt]\nevery = \"100\"\n", "E-UNIT-MISSING", 7, 9, "100 steps"},
        Case{"UnitWrong", "[ckpt]\nevery = \"10m\"\n", "E-UNIT-WRONG", 7, 9, "10min"},
        Case{"NoNumber", "[net]\npatience = \"soon\"\n", "E-VALUE", 7, 12, "number"},
        Case{"PercentOver100", "[inner]\nwarmup = \"150%\"\n", "E-RANGE", 7, 10, "100%"},
        Case{"UnusedByOptimizer", "[inner]\nmomentum = 0.9\n", "E-KEY-UNUSED", 7, 1,
             "inner.optimizer = sgd"},
        Case{"UnusedBySchedule", "[inner]\nfloor = 0.1\n", "E-KEY-UNUSED", 7, 1, "cosine"},
        Case{"UnusedByArchitecture", "[model]\nn_kv_heads = 2\n", "E-KEY-UNUSED", 7, 1, "llama"},
        Case{"UnusedByMethod", "[outer]\nH = 5\n", "E-KEY-UNUSED", 7, 1,
             "not used by method 'ddp'"},
        Case{"CommitsOfItself", "[outer]\nmethod = \"diloco\"\ncommit = \"every:4\"\n",
             "E-KEY-UNUSED", 8, 1, "'diloco', whose rounds commit one by one"},
        Case{"CommitAsANumber", "[outer]\ncommit = 16\n", "E-TYPE", 7, 10, "every:16"},
        Case{"CommitOfNothing", "[outer]\ncommit = \"every:\"\n", "E-VALUE", 7, 10, "every:K"},
        Case{"CommitNever", "[outer]\ncommit = \"every:0\"\n", "E-RANGE", 7, 10, "in [1, "},
        Case{"CommitWithMore", "[outer]\ncommit = \"every:4 steps\"\n", "E-VALUE", 7, 10,
             "every:K"},
        Case{"UnknownMethod", "[outer]\nmethod = \"dlioco\"\n", "E-VALUE", 7, 10,
             "did you mean 'diloco'?"},
        Case{"LaterMethod", "[outer]\nmethod = \"demo\"\n", "E-NOT-YET", 7, 10, "not available"},
        Case{"UnknownCodec", "[outer]\ncodec = \"int7\"\n", "E-VALUE", 7, 9,
             "did you mean 'int8'?   codecs: fp32, int8"},
        Case{"TableInASection", "[train.x]\n", "E-KEY-UNKNOWN", 6, 8, "train.x"},
        Case{"SlicesInASchedule", "[parallel]\npp = 2\ndp = 2\nzero = 2\nschedule = \"gpipe\"\n",
             "E-CONFLICT", 9, 8, "schedule = \"gpipe\""},
        Case{"VirtualStages", "[parallel]\nvirtual_stages = 2\n", "E-CONFLICT", 7, 18,
             "virtual_stages"},
        Case{"Comparison", "[compare]\nseeds = 3\n", "E-COMPARISON", 6, 2, "isthmus compare"},
        Case{"Variant", "[variant.ddp]\n", "E-COMPARISON", 6, 2, "isthmus compare"},
        Case{"LaterKey", "[net]\nlate = \"slip\"\n", "E-NOT-YET", 7, 1, "outer.late"},
        Case{"ChunkOfMoreThanAFrame", "[net]\nchunk = \"4MiB\"\n", "E-RANGE", 7, 9, "1048576"},
        Case{"ChunkWithoutUnit", "[net]\nchunk = 65536\n", "E-UNIT-MISSING", 7, 9, "unit"},
        Case{"ChunkInBits", "[net]\nchunk = \"64Kibit\"\n", "E-UNIT-WRONG", 7, 9, "64Kibit"},
        Case{"AloneForNothing", "[net]\nmax_solo_rounds = 1\n", "E-CONFLICT", 7, 19,
             "method 'ddp' takes none"},
        Case{"AloneWithoutCarry",
             "[net]\nmax_solo_rounds = 2\n[outer]\nmethod = \"streaming-diloco\"\ncarry = "
             "\"stay\"\n",
             "E-CONFLICT", 7, 19, "outer.carry is not \"carry\""},
        Case{"AloneBesideOffload",
             "offload = \"x\"\n[net]\nmax_solo_rounds = 2\n[outer]\nmethod = \"diloco\"\n",
             "E-CONFLICT", 8, 19, "no room for it in memory"},
        Case{"AloneLessThanNever", "[net]\nmax_solo_rounds = -1\n[outer]\nmethod = \"diloco\"\n",
             "E-RANGE", 7, 19, "in [0"},
        Case{"WorkersAndSites", "[run]\nworkers = 2\n[[site]]\nname = \"a\"\n", "E-CONFLICT", 7, 11,
             "[[site]]"},
        Case{"TwoSitesOfOneName", "[[site]]\nname = \"a\"\n[[site]]\nname = \"a\"\n", "E-CONFLICT",
             8, 1, "named 'a'"},
        Case{"SiteWithoutName", "[[site]]\njitter = 0.1\n", "E-KEY-MISSING", 6, 1, "'name'"},
        Case{"PaceOfNothing", "[[site]]\nname = \"a\"\npace = 0\n", "E-RANGE", 8, 8, "in (0, 1]"},
        Case{"NobodyAtFullPace",
             "[[site]]\nname = \"a\"\npace = 0.5\n[outer]\nmethod = \"diloco\"\nH = 4\n",
             "E-CONFLICT", 6, 1, "no site has pace = 1"},
        Case{"PaceOfNotOneStep",
             "[[site]]\nname = \"a\"\n[[site]]\nname = \"b\"\npace = 0.1\n[outer]\nmethod = "
             "\"diloco\"\nH = 5\n",
             "E-RANGE", 8, 1, "not one step in each window of outer.H = 5"},
        Case{"PaceOfASynchronousMethod",
             "[[site]]\nname = \"a\"\n[[site]]\nname = \"b\"\npace = 0.5\n[outer]\nmethod = "
             "\"ddp\"\n",
             "E-CONFLICT", 8, 1, "no windows of outer.H steps"},
        Case{"LinkToNowhere", "[[link]]\nbetween = [\"w0\", \"wx\"]\nrate = \"1Mbit/s\"\n",
             "E-VALUE", 7, 11, "did you mean 'w0'?"},
        Case{"LinkToItself", "[[link]]\nbetween = [\"w0\", \"w0\"]\nrate = \"1Mbit/s\"\n",
             "E-CONFLICT", 7, 11, "itself"},
        Case{"LinkWithoutRate", "[[link]]\nbetween = [\"*\", \"*\"]\n", "E-KEY-MISSING", 6, 1,
             "rate"},
        Case{"LinkRateUnit", "[[link]]\nbetween = [\"*\", \"*\"]\nrate = 100\n", "E-UNIT-MISSING",
             8, 8, "'link.rate = 100' needs a unit"},
        Case{"LinkWithTwoRates",
             "[[link]]\nbetween = [\"*\", \"*\"]\nrate = \"1Mbit/s\"\nrate_up = \"1Mbit/s\"\n",
             "E-CONFLICT", 8, 1, "rate_up"},
        Case{"ManyThreads", "threads = 1025\n", "E-RANGE", 6, 11, "in [0, 1024]"},
        Case{"NotDeterministic", "[run]\ndeterministic = false\n", "E-VALUE", 7, 17,
             "always deterministic"},
        Case{"NesterovWithoutMomentum", "[inner]\noptimizer = \"sgd\"\nnesterov = true\n",
             "E-CONFLICT", 8, 12, "momentum = 0.9"},
        Case{"MuonNesterovWithoutMomentum",
             "[inner]\noptimizer = \"muon\"\nmomentum = 0\nnesterov = true\n", "E-CONFLICT", 9, 12,
             "momentum = 0.95"},
        Case{"NoLastPhase", "[inner]\nschedule = \"wsd\"\ndecay = 0\n", "E-RANGE", 8, 9,
             "must be >= 1"},
        Case{"HeadsDoNotDivide", "[model]\nn_heads = 3\n", "E-DIVISIBLE", 7, 11, "multiple"},
        Case{"OddHead", "[model]\narch = \"llama\"\nn_heads = 128\n", "E-DIVISIBLE", 8, 11, "even"},
        Case{"KvHeads", "[model]\narch = \"llama\"\nn_kv_heads = 3\n", "E-DIVISIBLE", 8, 14,
             "divide"},
        Case{"ContextBeyondPositions", "[model]\ncontext = 64\n", "E-RANGE", 7, 11, "64 positions"},
        Case{"OverlapBeyondH", "[outer]\nmethod = \"streaming-diloco\"\nH = 5\noverlap = 5\n",
             "E-RANGE", 9, 11, "less than outer.H"},
        Case{"OffsetBeyondH", "[outer]\nmethod = \"streaming-diloco\"\nH = 5\noffsets = [0, 5]\n",
             "E-RANGE", 9, 11, "less than outer.H"},
        Case{"SlipWithoutOverlap", "[outer]\nmethod = \"streaming-diloco\"\nlate = \"slip\"\n",
             "E-CONFLICT", 8, 8, "overlap = 1"},
        Case{"SlipOfAMethodOneRoundBehind", "[outer]\nmethod = \"co2\"\nlate = \"slip\"\n",
             "E-KEY-UNUSED", 8, 1, "not used by method 'co2'"},
        Case{"UnknownLateness", "[outer]\nmethod = \"streaming-diloco\"\nlate = \"skip\"\n",
             "E-VALUE", 8, 8, "wait, slip"},
        Case{"OverlapOfAMethodOneRoundBehind", "[outer]\nmethod = \"co2\"\noverlap = 2\n",
             "E-KEY-UNUSED", 8, 1, "not used by method 'co2'"},
        Case{"PenaltyIsNotTrue", "[outer]\nmethod = \"co2\"\nstaleness_penalty = true\n", "E-TYPE",
             8, 21, "staleness_penalty"},
        Case{"UnknownPenalty", "[outer]\nmethod = \"co2\"\nstaleness_penalty = \"gap\"\n",
             "E-VALUE", 8, 21, "constant, gap-aware"},
        Case{"ConstantWithoutItsRule", "[outer]\nmethod = \"co2\"\nstaleness_constant = 2\n",
             "E-KEY-UNUSED", 8, 1, "outer.staleness_penalty = constant"},
        Case{"ClipOfNothing", "[outer]\nmethod = \"co2\"\nmomentum_clip = 0\n", "E-RANGE", 8, 17,
             "> 0"},
        Case{"StayOneRoundBehind", "[outer]\nmethod = \"co2\"\ncarry = \"stay\"\n", "E-VALUE", 8, 9,
             "carry"},
        Case{"OutlierBelowTheMedian", "[outer]\nmethod = \"co2\"\noutlier = 0.5\n", "E-RANGE", 8,
             11, "must be 0"},
        Case{"ErrorDecayOfNothing", "[outer]\nmethod = \"sparseloco\"\nerror_decay = 0\n",
             "E-RANGE", 8, 15, "in (0, 1]"},
        Case{"MomentumOfErrorFeedback", "[outer]\nmethod = \"sparseloco\"\nmomentum = 0.9\n",
             "E-KEY-UNUSED", 8, 1, "not used by method 'sparseloco'"},
        Case{"NoSpacingAtAll", "[outer]\nmethod = \"01-adam\"\nlocal_step_clipper = 0\n", "E-RANGE",
             8, 22, "must be >= 1"},
        Case{"TooManyFragments", "[outer]\nmethod = \"streaming-diloco\"\nfragments = 9\n",
             "E-RANGE", 8, 13, "4 layers"},
        Case{"HalfASurrogate", "[surrogate]\nparams = \"1B\"\n", "E-KEY-MISSING", 7, 10,
             "surrogate.step_time"},
        Case{"SpsaSamples", "[outer]\nmethod = \"spsa\"\nsamples = 3\n", "E-DIVISIBLE", 8, 11,
             "10 sequences"},
        Case{"SpsaCodeScale", "[outer]\nmethod = \"spsa\"\ncode_scale = 3\n", "E-RANGE", 8, 14,
             "power of two"},
        Case{"SpsaHasNoH", "[outer]\nmethod = \"spsa\"\nH = 3\n", "E-KEY-UNUSED", 8, 1,
             "not used by method 'spsa'"},
        Case{"SpsaHasNoInnerClip", "[outer]\nmethod = \"spsa\"\n[inner]\nclip = 1\n",
             "E-KEY-UNUSED", 9, 1, "outer.clip"},
        Case{"SpsaHasNoAdamW", "[outer]\nmethod = \"spsa\"\n[inner]\noptimizer = \"adamw\"\n",
             "E-KEY-UNUSED", 9, 1, "plain sgd"},
        Case{"SpsaKeysElsewhere", "[outer]\nmethod = \"diloco\"\neps = 0.1\n", "E-KEY-UNUSED", 8, 1,
             "not used by method 'diloco'"},
        Case{"EvalSmallerThanAWindow", "[eval]\ntokens = 5\n", "E-RANGE", 7, 10, "one window"},
        Case{"MinSites", "[run]\nworkers = 2\n[net]\nmin_sites = 3\n", "E-RANGE", 9, 13, "2 sites"},
        Case{"DeadlineOfNothing",
             "[run]\nworkers = 5\n[outer]\nmethod = \"co2\"\n[net]\ndeadline = \"0s\"\n", "E-RANGE",
             11, 12, ">= 0.001"},
        Case{"DeadlineOfTwo",
             "[run]\nworkers = 2\n[outer]\nmethod = \"co2\"\n[net]\ndeadline = \"auto\"\n",
             "E-CONFLICT", 11, 12, "fewer than three"},
        Case{"DeadlineThatNeedsAll",
             "[run]\nworkers = 5\n[outer]\nmethod = \"co2\"\n[net]\ndeadline = \"9s\"\n"
             "min_sites = 5\n",
             "E-CONFLICT", 11, 12, "smaller net.min_sites"},
        Case{"DeadlineWithoutCarry",
             "[run]\nworkers = 5\n[outer]\nmethod = \"ddp\"\n[net]\ndeadline = \"9s\"\n",
             "E-CONFLICT", 11, 12, "'ddp' has no rule"},
        Case{"HubSiteWithoutAddress", "[[site]]\nname = \"a\"\n[hub]\nsite = \"a\"\n",
             "E-KEY-MISSING", 9, 8, "without hub.address"},
        Case{"HubAtNoSite",
             "[[site]]\nname = \"a\"\n[[site]]\nname = \"b\"\n[hub]\naddress = "
             "\"a:1\"\nsite = \"c\"\n",
             "E-VALUE", 12, 8, "no such [[site]]"},
        Case{"HubRelayWithoutAddress", "[[site]]\nname = \"a\"\n[hub]\nrelay = \"a:1\"\n",
             "E-KEY-MISSING", 9, 9, "without hub.address"},
        Case{"HubRelayBesideASite",
             "[[site]]\nname = \"a\"\n[[site]]\nname = \"b\"\n[hub]\naddress = "
             "\"a:1\"\nsite = \"b\"\nrelay = \"a:2\"\n",
             "E-CONFLICT", 13, 9, "give site 'b' relay"},
        Case{"UnknownReduction", "[net]\nreduction = \"ring\"\n", "E-VALUE", 7, 13,
             "direct, groups"},
        Case{"GroupsOfNobody", "[[site]]\nname = \"a\"\n[net]\nreduction = \"groups\"\n",
             "E-KEY-MISSING", 9, 13, "no [[site]] has a group"},
        Case{"GroupsOfAGather",
             "[[site]]\nname = \"a\"\ngroup = \"x\"\n[outer]\nmethod = \"diloco\"\nexchange = "
             "\"gather\"\n[net]\nreduction = \"groups\"\n",
             "E-CONFLICT", 13, 13, "sends all to all"},
        Case{"GroupsOfSpsa",
             "[[site]]\nname = \"a\"\ngroup = \"x\"\n[outer]\nmethod = \"spsa\"\n[net]\n"
             "reduction = \"groups\"\n",
             "E-CONFLICT", 12, 13, "method 'spsa' sends all to all"},
        Case{"SharesOfAnUnknownKind", "[net]\nshares = \"even\"\n", "E-VALUE", 7, 10,
             "auto, links"},
        Case{"SharesOfAGather",
             "[run]\nworkers = 2\n[outer]\nmethod = \"diloco\"\nexchange = "
             "\"gather\"\n[net]\nshares = \"links\"\n",
             "E-CONFLICT", 12, 10, "sends all to all"},
        Case{"SharesInGroups",
             "[[site]]\nname = \"a\"\ngroup = \"x\"\n[[site]]\nname = \"b\"\n[outer]\nmethod = "
             "\"diloco\"\n[net]\nreduction = \"groups\"\nshares = \"links\"\n",
             "E-CONFLICT", 15, 10, "for which there is no form"},
        Case{"SharesOfZeroOneAdam",
             "[run]\nworkers = 2\n[outer]\nmethod = \"01-adam\"\n[net]\nshares = \"links\"\n",
             "E-CONFLICT", 11, 10, "what each encoding of a mean has lost"},
        Case{"GroupsOfZeroOneAdam",
             "[[site]]\nname = \"a\"\ngroup = \"x\"\n[outer]\nmethod = \"01-adam\"\n[net]\n"
             "reduction = \"groups\"\n",
             "E-CONFLICT", 12, 13, "what each encoding has lost"},
        Case{"CapOfNothing", "[net]\ncap = \"0bit/s\"\n", "E-RANGE", 7, 7, ">= 1000"},
        Case{"CapOfASite", "[[site]]\nname = \"a\"\ncap = 5\n", "E-UNIT-MISSING", 8, 7, "unit"},
        Case{"QuietHours", "[net]\nquiet = [\"08:00-18:00 0bit/s\"]\n", "E-VALUE", 7, 9,
             "must not stop"},
        Case{"Streams", "[net]\nstreams = 65\n", "E-RANGE", 7, 11, "in [1, 64]"},
        Case{"NoStreams", "[net]\nstreams = 0\n", "E-RANGE", 7, 11, "in [1, 64]"},
        Case{"StreamsInWords", "[net]\nstreams = \"many\"\n", "E-TYPE", 7, 11, "auto"},
        Case{"MicroBatches", "[parallel]\nmicro_batches = 3\n", "E-DIVISIBLE", 7, 17, "10 samples"},
        Case{"RunName", "[run]\nname = \"a/b\"\n", "E-VALUE", 7, 8, "letters"},
        Case{"RunTwice", "[run]\nname = 'x'\n[run]\n", "E-KEY-TWICE", 8, 1, "redefine"},
        Case{"Syntax", "[run\n", "E-TOML", 6, 5, "not TOML"},
        Case{"UnclosedText", "[run]\nname = \"abc\n", "E-TOML", 7, 12, "not TOML"},
        Case{"AliasTwice", "[model]\nlayers = 3\nn_layers = 3\n", "E-KEY-TWICE", 8, 1,
             "given twice"}),
    case_name);

// A value may come from several flags; a text about it names the one that it came from.
TEST(ConfigErrors, NameTheFlagThatGaveTheValue) {
  Overrides overrides({"inner.lr=fast"});
  overrides.add({.text = "train.step=40", .flag = "--change"});
  overrides.add({.text = "train.context=often", .flag = "--change"});
  overrides.add({.text = "nonsense", .flag = "--change"});
  overrides.add({.text = "run.workers=0", .flag = "--workers", .given = "0"});
  std::map<std::string, std::string> codes;
  try {
    (void)load_config_text(kMinimal, "run.toml", overrides, test_context());
  } catch (const ConfigErrors& errors) {
    for (const Diagnostic& each : errors.diagnostics()) codes[each.where] = each.code;
    EXPECT_NE(std::string(errors.what()).find("for example --change outer.H=50"),
              std::string::npos);
  }
  EXPECT_EQ(codes, (std::map<std::string, std::string>{{"--set inner.lr=fast", "E-TYPE"},
                                                       {"--change train.step=40", "E-KEY-UNKNOWN"},
                                                       {"--change train.context=often", "E-TYPE"},
                                                       {"--change nonsense", "E-SET"},
                                                       {"--workers 0", "E-RANGE"}}));
}

TEST(ConfigErrors, AreAllToldInOnePassInTheOrderOfTheFile) {
  const auto found = diagnostics_of("[run]\nworkers = 0\nx = 1\n[train]\ncontext = \"a\"\n",
                                    {"outer.method=nope", "nonsense"});
  std::vector<std::string> codes;
  for (const Diagnostic& each : found) {
    codes.push_back(each.code);
  }
  const std::vector<std::string> wanted = {
      "E-KEY-MISSING", "E-KEY-MISSING", "E-KEY-MISSING",  // source, steps, global_batch
      "E-RANGE",       "E-KEY-UNKNOWN", "E-TYPE",        "E-VALUE", "E-SET"};
  EXPECT_EQ(codes, wanted);
  EXPECT_EQ(found.back().where, "--set nonsense");
}

TEST(ConfigErrors, RenderWithExcerptCaretAndHint) {
  std::string text;
  std::string summary;
  try {
    (void)load(std::string(kMinimal) + "[outer]\nmethod = \"diloco\"\nmomentun = 0.9\n");
  } catch (const ConfigErrors& errors) {
    text = errors.what();
    summary = errors.summary();
  }
  EXPECT_EQ(text,
            "run.toml:8:1: error: unknown key 'outer.momentun' [E-KEY-UNKNOWN]\n"
            "    8 | momentun = 0.9\n"
            "      | ^^^^^^^^ did you mean 'momentum'?   (keys of method 'diloco': method, H, lr, "
            "momentum, nesterov, codec, exchange, final_sync, lr_warmup, lr_decay, lr_floor, "
            "momentum_warmup, momentum_decay, momentum_floor)   isthmus explain outer");
  EXPECT_EQ(summary.substr(0, 44), "run.toml:8:1: unknown key 'outer.momentun'; ");
  EXPECT_EQ(summary.find('\n'), std::string::npos);
}

TEST(ConfigErrors, CaretStandsUnderItsColumnBesideWideCharacters) {
  const auto found = diagnostics_of(std::string(kMinimal) + "[run]\nname = \"über\" # é\n");
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].column, 8);
  EXPECT_EQ(found[0].code, "E-VALUE");
}

TEST(ConfigErrors, LongLinesAreCutAroundTheError) {
  const std::string padding(5000, ' ');
  try {
    (void)load(std::string(kMinimal) + "[inner]\nlr =" + padding + "\"x\"\n");
    FAIL();
  } catch (const ConfigErrors& errors) {
    EXPECT_LT(std::string(errors.what()).size(), 500U);
  }
}

TEST(ConfigErrors, NoTextAtAll) {
  EXPECT_EQ(diagnostics_of("").at(0).code, "E-EMPTY");
  EXPECT_EQ(diagnostics_of(" \n\t\n").at(0).code, "E-EMPTY");
  EXPECT_EQ(diagnostics_of("[run]\nname = \"\xff\"\n").at(0).code, "E-ENCODING");
  EXPECT_EQ(diagnostics_of(std::string_view("a\0b", 3)).at(0).code, "E-TOML");
  const auto control = diagnostics_of("a = 1\n# é\x01\n");
  EXPECT_EQ(control.at(0).where, "run.toml:2:4");
}

TEST(ConfigErrors, SizesThatContradictTheModelFolder) {
  SchemaContext context = test_context();
  context.read_model = [](const std::filesystem::path&) {
    ModelConfig model;
    model.layers = 9;
    return model;
  };
  try {
    (void)load_config_text(std::string(kMinimal) + "[model]\ninit = \"base\"\nn_layers = 3\n",
                           "run.toml", {}, context);
    FAIL();
  } catch (const ConfigErrors& errors) {
    ASSERT_EQ(errors.diagnostics().size(), 1U);
    EXPECT_EQ(errors.diagnostics()[0].where, "run.toml:8:12");
    EXPECT_EQ(errors.diagnostics()[0].code, "E-CONFLICT");
  }
}

TEST(ConfigErrors, AModelFolderThatCannotBeRead) {
  SchemaContext context = test_context();
  context.read_model = [](const std::filesystem::path&) -> ModelConfig {
    throw SystemError("base/config.json: no such file");
  };
  try {
    (void)load_config_text(std::string(kMinimal) + "[model]\ninit = \"base\"\n", "run.toml", {},
                           context);
    FAIL();
  } catch (const ConfigErrors& errors) {
    EXPECT_EQ(errors.diagnostics()[0].code, "E-FILE");
  }
}

}  // namespace
}  // namespace isthmus::this_file
