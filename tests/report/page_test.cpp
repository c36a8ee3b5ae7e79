// SPDX-License-Identifier: Apache-2.0
// The page as a whole: what it must say, what it must not, and that bad input only warns.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "isthmus/errors.h"
#include "report/data/text.h"
#include "report/page/report.h"
#include "report/run_fixture.h"

namespace isthmus::this_file {
namespace {

/// A matcher would print the whole page.
testing::AssertionResult says(const std::string& page, const std::string& text) {
  return page.find(text) != std::string::npos
             ? testing::AssertionSuccess() << "says: " << text
             : testing::AssertionFailure() << "does not say: " << text;
}

class ReportPage : public testing::Test {
 protected:
  std::string page_of(const std::vector<std::filesystem::path>& runs,
                      const ReportOptions& options = {}) {
    result_ = write_report(runs, folder_.path() / "out" / "report.html", options);
    return read_file(folder_.path() / "out" / "report.html");
  }
  std::filesystem::path run(const std::string& name, const RunFixture& fixture = {}) {
    return write_run(folder_.path() / name, fixture);
  }
  /// The part of the page that people read: scripts and styles left out.
  static std::string body_of(const std::string& page) {
    const std::size_t begin = page.find("<body>");
    return page.substr(begin, page.find("<script", begin) - begin);
  }

  TemporaryFolder folder_;
  ReportResult result_;
};

TEST_F(ReportPage, SaysWhatTheClosingRoundHasCost) {
  const std::string closing = "The closing round carried the steps after the last regular round: ";
  EXPECT_FALSE(says(body_of(page_of({run("a")})), closing));
  const std::filesystem::path closed = run("b", {.ended = false});
  std::ofstream(closed / "metrics.jsonl", std::ios::app)
      << R"({"k":"round","step":43,"frag":0,"step_send":43,"step_apply":43,"bytes_payload":1000000,)"
      << R"("bytes_wire":1000200,"members":2,"codec":"fp32","delta_norm":0.5,"wait_s":10.0,)"
      << R"("err":0,"cos":1,"closing":true})"
      << "\n";
  const std::string body = body_of(page_of({closed}));
  EXPECT_TRUE(says(body, closing + "1 fragment, 1.00 MB of values and 1.00 MB on the wire"));
  EXPECT_TRUE(says(body, "<td>43 (closing)</td>"));
}

TEST_F(ReportPage, OneRunIsToldInASentenceWithItsNumbers) {
  const std::string body = body_of(page_of({run("a")}));
  EXPECT_TRUE(says(body, "trained for 40 steps on 2 workers to a validation loss of 1.7500"));
  EXPECT_TRUE(says(body, "Each worker sent 4.00 MB"));
  EXPECT_TRUE(says(body, "computed for 50.0 % of 80.0 s of simulated time"));
  EXPECT_FALSE(says(body, "</b> against <b>"));
  EXPECT_TRUE(result_.warnings.empty()) << result_.warnings.front();
}

TEST_F(ReportPage, TwoRunsAreComparedInRatiosAndCalledNoResult) {
  const std::string body =
      body_of(page_of({run("a", {.method = "ddp", .H = 1}), run("b", {.method = "diloco"})}));
  EXPECT_TRUE(says(body, "<b>diloco</b> against <b>ddp</b>: 10.0× fewer bytes"));
  EXPECT_TRUE(says(body, "5.50× less simulated time"));
  EXPECT_TRUE(says(body, "One seed: not a result."));
  EXPECT_FALSE(says(body, "better"));
}

TEST_F(ReportPage, UnlikeInnerOptimizersAreNamedBesideTheLosses) {
  const std::filesystem::path adamw = run("a"),
                              muon = run("b", {.method = "muloco", .optimizer = "muon"});
  const std::string told = "The inner optimizers differ:</b> adamw in diloco; muon in muloco.";
  EXPECT_TRUE(says(body_of(page_of({adamw, muon})), told));
  EXPECT_FALSE(says(body_of(page_of({adamw, run("c", {.method = "ddp"})})), "optimizers differ"));
  const std::filesystem::path odd = run("d", {.method = "ddp", .optimizer = "<b>x</b>"});
  EXPECT_TRUE(says(body_of(page_of({adamw, odd})), "&lt;b&gt;x&lt;/b&gt; in ddp"));
}

TEST_F(ReportPage, TheMenuNamesTheSectionsThatAreThere) {
  const std::string page = page_of({run("a")});
  const std::size_t begin = page.find("<nav");
  const std::string menu = page.substr(begin, page.find("</nav>", begin) - begin);
  std::size_t links = 0;
  for (std::size_t at = 0; (at = menu.find("href=\"#", at)) != std::string::npos; ++links) {
    at += 7;
    const std::string id = menu.substr(at, menu.find('"', at) - at);
    EXPECT_TRUE(says(page, "<section id=\"" + id + "\"")) << id;
  }
  EXPECT_TRUE(says(menu, "#prediction"));
  EXPECT_FALSE(says(menu, "#membership"));
  EXPECT_GE(links, 8u);
}

TEST_F(ReportPage, BytesOfADeclaredModelAreLabelledAsItsClockIs) {
  const std::string page = page_of({run("a")});
  EXPECT_TRUE(says(page, "data-name=\"Payload [surrogate]\""));
  EXPECT_TRUE(says(page, "data-name=\"On the wire [surrogate]\""));
  EXPECT_FALSE(
      says(page_of({run("b", {.surrogate = false})}), "data-name=\"Payload [surrogate]\""));
}

TEST_F(ReportPage, SeedsOfOneVariantAreCounted) {
  const std::string body = body_of(page_of({run("a", {.seed = "1"}), run("b", {.seed = "2"})}));
  EXPECT_TRUE(says(body, "2 seeds a variant: too few to tell"));
}

TEST_F(ReportPage, UnequalLengthsAreNotCompared) {
  const std::string body = body_of(page_of({run("a"), run("b", {.method = "ddp", .steps = 20})}));
  EXPECT_TRUE(says(body, "no comparison of unequal lengths"));
  EXPECT_TRUE(says(body, "differ in tokens seen"));
}

TEST_F(ReportPage, ASurrogateClockIsLabelledEverywhereAndExplained) {
  const std::string with = body_of(page_of({run("a")}));
  EXPECT_TRUE(says(with, "The loss curves are those of the small model (250,000 parameters)"));
  EXPECT_TRUE(says(with, "simulated time (1B parameters at 1.00 s a step)"));
  for (const char* section : {"utilisation", "timeline", "rounds", "prediction", "traffic"}) {
    const std::size_t begin = with.find("<section id=\"" + std::string{section} + "\"");
    ASSERT_NE(begin, std::string::npos) << section;
    const std::string text = with.substr(begin, with.find("</section>", begin) - begin);
    EXPECT_TRUE(says(text, "[surrogate]")) << section;
  }
  const std::string without = body_of(page_of({run("b", {.surrogate = false})}));
  EXPECT_FALSE(says(without, "[surrogate]"));
  EXPECT_TRUE(says(without, "[simulated]"));
  EXPECT_TRUE(says(without, "1.00 s of compute a step"));
}

TEST_F(ReportPage, ShowsPredictionConfigurationDifferencesAndTheCommandToRepeat) {
  const std::string body = body_of(page_of({run("a", {.method = "ddp", .H = 1}), run("b")}));
  EXPECT_TRUE(says(body, "bytes * 8 / rate"));
  EXPECT_TRUE(says(body, "<code>outer.H</code></th><td><code>1</code></td><td><code>10</code>"));
  EXPECT_TRUE(says(body, "wan.toml:9:5"));
  EXPECT_TRUE(says(body, "isthmus simulate &#39;my wan.toml&#39;"));
  EXPECT_TRUE(says(body, "east ↔ west"));
  EXPECT_TRUE(says(body, "100 Mbit/s"));
}

TEST_F(ReportPage, LaysPredictedRoundsOverMeasuredOnes) {
  const std::filesystem::path folder = run("a");
  EXPECT_FALSE(says(page_of({folder}), "round-times-"));
  std::string summary = read_file(folder / "summary.json");
  const std::size_t end = summary.rfind(R"("error":0.0)");
  ASSERT_NE(end, std::string::npos);
  const std::string row =
      R"("rounds":2,"predicted_median_s":1.5,"predicted_p95_s":1.75,"measured_median_s":2.0,)"
      R"("measured_p95_s":2.25,"error":-0.25)";
  summary.insert(
      end,
      fmt::format(R"("rounds":{{"at":"<east>","all":{{{0}}},"fragments":[{{"frag":0,{0}}}, 3],)"
                  R"("pairs":[[0,10,1.5,2.0],[0,20,1.75,2.25],[0],"x"]}},)",
                  row));
  std::ofstream(folder / "summary.json") << summary;
  const std::string page = page_of({folder});
  const std::string body = body_of(page);
  EXPECT_TRUE(says(body, "<td>1.50 s</td><td>1.75 s</td><td>2.00 s</td><td>2.25 s</td>"));
  EXPECT_TRUE(says(body, report::format_signed_percent(-0.25)));
  EXPECT_TRUE(says(body, "Single rounds at &lt;east&gt;"));
  EXPECT_FALSE(says(body, "all fragments"));  // there is one
  EXPECT_TRUE(says(page, R"("label":"predicted")"));
  EXPECT_TRUE(says(page, R"("x":[10,20],"y":[1.5,1.75])")) << "the points of the line";
}

TEST_F(ReportPage, TellsWhoLeftAndWhatBecameOfTheWorkOfWhoCameBack) {
  const std::filesystem::path folder = run("a");
  EXPECT_FALSE(says(page_of({folder}), "Who was there"));
  std::ofstream(folder / "metrics.jsonl", std::ios::app)
      << R"({"v":1,"k":"event","what":"site left","step":4,"sites":1,"site":"west","why":"silent"})"
      << '\n'
      << R"({"v":1,"k":"event","what":"site came back","step":9,"sites":2,"site":"west",)"
      << R"("tokens_kept":640,"tokens_lost":1280,"steps_alone":4,"tokens_alone":320})" << '\n';
  const std::string body = body_of(page_of({folder}));
  EXPECT_TRUE(says(body, "Who was there"));
  EXPECT_TRUE(says(body, "site left: silent"));
  EXPECT_TRUE(says(body, "640 tokens kept, 1.28k lost; 320 of them on 4 steps alone"));
}

TEST_F(ReportPage, IsOneFileThatAsksForNothing) {
  const std::string page = page_of({run("a"), run("b", {.method = "ddp"})});
  for (const char* outside : {"=\"http", "=\"//", "url(", "src="}) {
    EXPECT_FALSE(says(body_of(page), outside));
  }
  EXPECT_FALSE(says(page, "<link"));
  EXPECT_FALSE(says(page, "@import"));
  EXPECT_TRUE(says(page, "download=\"train.csv\" href=\"data:text/csv"));
  EXPECT_LT(page.size(), kReportMaxBytes);
  EXPECT_EQ(result_.bytes, page.size());
}

TEST_F(ReportPage, EveryFigureIsThereWithoutJavaScript) {
  const std::string body = body_of(page_of({run("a")}));
  for (const char* id : {"loss-steps", "loss-bytes", "loss-time", "delta-norm"}) {
    const std::size_t begin = body.find("id=\"" + std::string{id} + "\"");
    ASSERT_NE(begin, std::string::npos) << id;
    const std::string figure = body.substr(begin, body.find("</figure>", begin) - begin);
    EXPECT_TRUE(says(figure, "<path class=\"line")) << id;
    EXPECT_TRUE(says(figure, "role=\"img\" aria-label=\"")) << id;
  }
}

TEST_F(ReportPage, TracesOfLinksAreToldApartByTheirContent) {
  const std::filesystem::path a = run("a");
  write_file(
      a / "links.json",
      R"({"links":[{"a":"x","b":"y","bits_per_s_up":1e8,"bits_per_s_down":1e8,"trace":"/one/day.csv","trace_digest":"0123456789abcdef"},)"
      R"({"a":"x","b":"z","bits_per_s_up":1e8,"bits_per_s_down":1e8,"trace":"/two/day.csv","trace_digest":"fedcba9876543210"},)"
      R"({"a":"y","b":"z","bits_per_s_up":1e8,"bits_per_s_down":1e8,"trace":"/old/day.csv"}]})");
  const std::string body = body_of(page_of({a}));
  EXPECT_TRUE(says(body, "(mean of day.csv, 0123456789abcdef)"));
  EXPECT_TRUE(says(body, "(mean of day.csv, fedcba9876543210)"));
  EXPECT_TRUE(says(body, "(mean of day.csv)"));  // an older version's
}

TEST_F(ReportPage, TextFromARunIsEscapedEverywhere) {
  const std::string evil = "<script>alert(1)</script>\"'&";
  const std::filesystem::path a = run("a");
  write_file(
      a / "manifest.json",
      R"({"name":"<script>alert(1)</script>","argv":["<script>alert(1)</script>"],"method":"x","model":{"arch":"<script>alert(1)</script>"},"data":[{"path":"<script>alert(1)</script>","sha256":"<script>alert(1)</script>"}],"run_id":"<script>alert(1)</script>"})");
  write_file(a / "config.resolved.toml",
             "[<script>alert(1)</script>]\nk = \"<script>alert(1)</script>\" # "
             "<script>alert(1)</script>\n");
  write_file(a / "links.json", R"({"links":[{"a":"<script>alert(1)</script>","b":"</td>"}]})");
  std::string metrics = read_file(a / "metrics.jsonl");
  metrics = R"({"k":"meta","method":"</script><script>alert(1)</script>","workers":2})"
            "\n" +
            metrics.substr(metrics.find('\n') + 1) +
            R"({"k":"warn","text":"<script>alert(1)</script>"})"
            "\n";
  write_file(a / "metrics.jsonl", metrics);
  const std::string page = page_of({a}, {.title = evil, .generated = evil, .command = evil});
  EXPECT_FALSE(says(page, "<script>alert(1)"));
  EXPECT_TRUE(says(page, "&lt;script&gt;alert(1)"));
}

TEST_F(ReportPage, ARunInProgressIsReportedAsFarAsItGot) {
  const std::string body = body_of(page_of({run("a", {.ended = false})}));
  EXPECT_TRUE(says(body, "in progress"));
  EXPECT_TRUE(says(body, "trained for 40 steps"));
  ASSERT_EQ(result_.warnings.size(), 1u);
  EXPECT_TRUE(says(result_.warnings.front(), "no \"end\" line"));
}

TEST_F(ReportPage, DamagedFilesWarnAndTheRestIsShown) {
  const std::filesystem::path a = run("a");
  write_file(a / "metrics.jsonl", read_file(a / "metrics.jsonl") + "{\"k\":\"train\",\"st");
  write_file(a / "summary.json", "{\"steps\": 4");
  write_file(a / "manifest.json", "\xff\xfe");
  write_file(a / "events.jsonl", "nonsense\n[1]\n{\"k\":\"compute\"}\n");
  write_file(a / "links.json", "[]");
  std::filesystem::remove(a / "config.resolved.toml");
  const std::string body = body_of(page_of({a}));
  EXPECT_TRUE(says(body, "trained for 40 steps"));
  EXPECT_TRUE(says(body, "the last line is cut off"));
  EXPECT_TRUE(says(body, "summary.json is damaged"));
  EXPECT_TRUE(says(body, "manifest.json is damaged"));
  EXPECT_TRUE(says(body, "3 damaged lines skipped, the first is line 1"));
  EXPECT_TRUE(says(body, "links.json is damaged"));
  EXPECT_TRUE(says(body, "config.resolved.toml is missing"));
}

TEST_F(ReportPage, AnEmptyRunIsAPageOfWarnings) {
  write_file(folder_.path() / "empty" / "metrics.jsonl", "");
  const std::string body = body_of(page_of({folder_.path() / "empty"}));
  EXPECT_TRUE(says(body, "holds no training step"));
  EXPECT_TRUE(says(body, "No losses to draw yet"));
  EXPECT_TRUE(says(body, "empty"));
}

TEST_F(ReportPage, ADivergedRunIsDrawnUpToWhereItDiverged) {
  std::string metrics;
  for (int step = 1; step <= 20; ++step) {
    metrics += fmt::format("{{\"k\":\"train\",\"step\":{},\"loss\":{}}}\n", step,
                           step < 15       ? "2.5"
                           : step % 2 == 0 ? "\"NaN\""
                                           : "\"Infinity\"");
  }
  write_file(folder_.path() / "diverged" / "metrics.jsonl",
             metrics + "{\"k\":\"end\",\"status\":\"failed\"}\n");
  const std::string page = page_of({folder_.path() / "diverged"});
  EXPECT_TRUE(says(body_of(page), "6 of 20 training losses are not finite"));
  EXPECT_TRUE(says(body_of(page), "failed"));
  for (const char* number : {"nan,", "nan ", "nan<", ":nan", "inf,", ",inf", ">inf<"}) {
    EXPECT_FALSE(says(page.substr(0, page.find("<script>")), number));
  }
}

TEST_F(ReportPage, ALongRunStaysBelowTheLimitAndSaysSo) {
  std::string metrics;
  std::string events;
  for (int step = 1; step <= 60'000; ++step) {
    metrics += fmt::format(
        "{{\"k\":\"train\",\"step\":{},\"loss\":{:.9f},\"lr\":0.001,\"grad_norm\":{:.9f},\"t\":{}}}"
        "\n",
        step, 2 + std::sin(step * 12.9898), step * 0.123456789, 1.7e9 + step);
    events += fmt::format("{{\"k\":\"compute\",\"w\":0,\"t0\":{},\"t1\":{},\"step\":{}}}\n", step,
                          step + 1, step);
  }
  write_file(folder_.path() / "long" / "metrics.jsonl",
             metrics + "{\"k\":\"end\",\"status\":\"ok\"}\n");
  write_file(folder_.path() / "long" / "events.jsonl", events);
  const std::vector<std::filesystem::path> runs(6, folder_.path() / "long");
  const std::string page = page_of(runs);
  EXPECT_LT(page.size(), kReportMaxBytes);
  EXPECT_TRUE(says(page, "keeps its lowest and its highest value"));
  EXPECT_TRUE(says(page, "Too long for this page: train.csv"));
}

TEST_F(ReportPage, ManyRunsOfManySitesStayBelowTheLimit) {
  constexpr int kSites = 48;
  constexpr int kFragments = 40;
  const std::filesystem::path a = run("many");
  std::string config = read_file(a / "config.resolved.toml");
  std::string links;
  for (int site = 0; site < kSites; ++site) {
    config += fmt::format("[[site]]\nname = \"datacentre-{}\"  # many.toml:{}:8\n", site, site);
    links += fmt::format(R"({}{{"a":"datacentre-{}","b":"x","bits_per_s_up":1e8}})",
                         site == 0 ? "" : ",", site);
  }
  write_file(a / "config.resolved.toml", config);
  write_file(a / "links.json", "{\"links\":[" + links + "]}");
  std::string metrics = read_file(a / "metrics.jsonl");
  for (int i = 0; i < 20 * kFragments; ++i) {
    metrics += fmt::format(
        R"({{"k":"round","step":{0},"frag":{1},"step_send":{0},"step_apply":{0},"bytes_payload":1,"bytes_wire":1,"members":2,"delta_norm":{2}}})"
        "\n",
        i / kFragments + 1, i % kFragments, 0.123456789 * (i + 1));
  }
  write_file(a / "metrics.jsonl", metrics);
  const std::vector<std::filesystem::path> runs(64, a);
  const std::string page = page_of(runs);
  EXPECT_LT(page.size(), kReportMaxBytes);
  EXPECT_TRUE(says(page, "The chart draws the first fragments only."));
  EXPECT_TRUE(says(page, "all are in config.resolved.toml"));
}

TEST_F(ReportPage, AgreementAndCodecErrorAreShownWhereARunMeasuredThem) {
  const std::string with = body_of(page_of({run("a")}));
  EXPECT_TRUE(says(with, "id=\"agreement\""));
  EXPECT_TRUE(says(with, "id=\"codec-error\""));
  EXPECT_TRUE(says(with, "<td>0.812 → 0.812</td><td>0.0125 → 0.0125</td>"));
  EXPECT_TRUE(says(with, "<td>0.812</td><td>0.0125</td></tr>"));
  EXPECT_TRUE(says(with, "are orthogonal: 0.707 for 2 workers"));
  // Colours of several runs, and several lines of one colour, need a legend beside the charts.
  const std::string rounds = with.substr(with.find("<section id=\"rounds\""));
  EXPECT_LT(rounds.find("<p class=\"legend\">"), rounds.find("id=\"delta-norm\""));
  const std::string without = body_of(page_of({run("b", {.method = "ddp", .H = 1})}));
  EXPECT_TRUE(says(without, "id=\"delta-norm\""));
  EXPECT_FALSE(says(without, "id=\"agreement\""));
  EXPECT_FALSE(says(without, "id=\"codec-error\""));
  EXPECT_FALSE(says(without, "orthogonal"));
  EXPECT_TRUE(says(without, "<td>–</td><td>–</td></tr>"));
}

TEST_F(ReportPage, RoundsCsvHasAgreementAndCodecError) {
  write_report_csv({run("a")}, folder_.path() / "csv");
  const std::string csv = read_file(folder_.path() / "csv" / "rounds.csv");
  EXPECT_TRUE(says(csv, ",delta_norm,wait_s,err,cos,closing\r\n"));
  EXPECT_TRUE(says(csv, ",0.5,10,0.0125,0.8125,0\r\n"));
}

TEST_F(ReportPage, RunsAreFoundBelowAComparisonsFolder) {
  run("compare/ddp/seed-1", {.method = "ddp"});
  run("compare/diloco/seed-1");
  run("compare/diloco/tune-01");
  const auto found = find_runs(folder_.path() / "compare");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].parent_path().filename(), "ddp");
  EXPECT_TRUE(says(body_of(page_of({folder_.path() / "compare"})), "</b> against <b>ddp</b>"));
}

TEST_F(ReportPage, RefusesWhatIsNoRun) {
  EXPECT_THROW(page_of({folder_.path() / "nowhere"}), SystemError);
  std::filesystem::create_directories(folder_.path() / "bare");
  EXPECT_THROW(page_of({folder_.path() / "bare"}), SystemError);
  EXPECT_THROW(page_of({}), SystemError);
  const std::filesystem::path a = run("a");
  write_file(folder_.path() / "file", "");
  EXPECT_THROW(write_report({a}, folder_.path() / "file" / "report.html"), SystemError);
}

TEST_F(ReportPage, CsvHoldsEveryStepOfEveryRun) {
  const ReportResult result =
      write_report_csv({run("a"), run("b", {.method = "ddp", .H = 1})}, folder_.path() / "csv");
  EXPECT_EQ(result.files.size(), 5u);
  const std::string train = read_file(folder_.path() / "csv" / "train.csv");
  EXPECT_EQ(std::count(train.begin(), train.end(), '\n'), 1 + 40 + 40);
  const std::string runs = read_file(folder_.path() / "csv" / "runs.csv");
  EXPECT_TRUE(says(runs, "diloco,diloco,2,ok,40,2560,1.7,1.75,4000000,4000800,80,4,0.5"));
  EXPECT_EQ(std::count(train.begin(), train.end(), '"'), 0);
}

}  // namespace
}  // namespace isthmus::this_file
