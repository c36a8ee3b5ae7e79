// SPDX-License-Identifier: Apache-2.0
// The pages about a run, from a status made up here.
#include <gmock/gmock.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "app/observe/run_watch.h"
#include "app/observe/status_folder.h"
#include "app/observe/status_metrics.h"
#include "app/observe/status_text.h"
#include "core/temporary_directory.h"
#include "isthmus/errors.h"
#include "record/run_status.h"

namespace isthmus::app::this_file {
namespace {

using testing::HasSubstr;
using testing::Not;

RunStatus made_up() {
  RunStatus status;
  status.run_id = "0123456789ab";
  status.name = "wan \"one\" \\";
  status.method = "diloco";
  status.state = "running";
  status.word = "step 7 of 20";
  status.workers = 2;
  status.device = "cuda:0 tiny (2 GiB)";
  status.step = 7;
  status.steps = 20;
  status.tokens = 7000;
  status.loss = 2.5;
  status.learning_rate = 0.001;
  status.tokens_per_s = 1234.5;
  status.eta_s = 90;
  status.stalled_after_s = 300;
  FragmentStatus fragment;
  fragment.rounds = 3;
  fragment.wire_bytes = 1000;
  fragment.wait_s = 0.5;
  status.fragments[2] = fragment;
  status.sites.resize(2);
  status.sites[0].name = "east";
  status.sites[1].name = "west";
  status.sites[1].wire_bytes = 900;
  PeerStatus peer;
  peer.name = "west";
  peer.cause = "connection 1: reset";
  peer.heard_s = 4;
  peer.sent_bytes = 77;
  peer.troubles["disconnected"] = 2;
  peer.tcp = LinkHealth{.connections = 4,
                        .rtt_s = 0.125,
                        .segments = 1000,
                        .resent_segments = 3,
                        .goodput_bits_per_s = 2.5e7};
  status.peers.push_back(peer);
  LinkDrop drop;
  drop.peer = "west";
  drop.kind = "disconnected";
  drop.cause = "connection 1: reset";
  drop.ago_s = 3;
  status.drops.push_back(drop);
  status.loss_curve = {{1, 3.0}, {7, 2.5}};
  status.late = {.rounds = 5, .steps_skipped = 40};
  return status;
}

TEST(StatusJson, ReadsBackAsItWas) {
  const std::string json = status_json(made_up());
  EXPECT_EQ(status_json(parse_status(json)), json);
  const RunStatus back = parse_status(json);
  EXPECT_EQ(back.name, made_up().name);
  EXPECT_EQ(back.device, "cuda:0 tiny (2 GiB)");
  EXPECT_EQ(back.eval_loss, std::nullopt);
  EXPECT_EQ(back.fragments.at(2).rounds, 3);
  EXPECT_EQ(back.late, (LateStatus{.rounds = 5, .steps_skipped = 40}));
  EXPECT_EQ(back.peers.at(0).heard_s, 4);
  ASSERT_TRUE(back.peers.at(0).tcp);
  EXPECT_EQ(back.peers.at(0).tcp->rtt_s, 0.125);
  EXPECT_EQ(back.peers.at(0).tcp->resent_segments, 3U);
  EXPECT_EQ(back.loss_curve, made_up().loss_curve);
}

TEST(StatusJson, NumbersThatAreNoneStayWhatTheyAre) {
  RunStatus status = made_up();
  status.loss = std::numeric_limits<double>::infinity();
  status.loss_curve = {{1, std::nan("")}};
  const RunStatus back = parse_status(status_json(status));
  EXPECT_EQ(back.loss, status.loss);
  EXPECT_TRUE(std::isnan(back.loss_curve.at(0).second));
}

TEST(StatusJson, NothingInItMakesATerminalDoAnything) {
  RunStatus status = made_up();
  status.name =
      "a\x1b[2Jb\x7f"
      "c\u009b1md\n\u00e9";
  status.peers[0].cause = "\r\x07lost";
  const RunStatus back = parse_status(status_json(status));
  EXPECT_EQ(back.name, "a [2Jb c 1md \u00e9");
  EXPECT_EQ(back.peers[0].cause, "  lost");
}

TEST(StatusJson, SomethingElseIsRefused) {
  EXPECT_THROW((void)parse_status("{}"), ConfigError);
  EXPECT_THROW((void)parse_status("[]"), ConfigError);
  EXPECT_THROW((void)parse_status("<html>"), ConfigError);
  const std::string json = status_json(made_up());
  for (const char* wrong : {"\"step\":[\"inf\",7]", "\"step\":[1e300,7]", "\"step\":[1]"}) {
    std::string other = json;
    const std::string right = "\"step\":[1,7]";
    other.replace(other.find(right), right.size(), wrong);
    EXPECT_THROW((void)parse_status(other), ConfigError) << wrong;
  }
}

TEST(StatusMetrics, HaveTheValuesOfTheStatus) {
  const std::string text = status_metrics(made_up());
  EXPECT_THAT(text, HasSubstr("device=\"cuda:0 tiny (2 GiB)\""));
  EXPECT_THAT(text, HasSubstr("# TYPE isthmus_steps_total counter\nisthmus_steps_total 7\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE isthmus_train_loss gauge\nisthmus_train_loss 2.5\n"));
  EXPECT_THAT(text, HasSubstr("isthmus_rounds_total{fragment=\"2\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("isthmus_peer_connected{peer=\"west\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("isthmus_link_drops_total{peer=\"west\",kind=\"disconnected\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("isthmus_link_drops_total{peer=\"west\",kind=\"lost\"} 0\n"));
}

TEST(StatusMetrics, TellWhatTcpTells) {
  const std::string text = status_metrics(made_up());
  for (const char* line :
       {"# TYPE isthmus_peer_rtt_seconds gauge\nisthmus_peer_rtt_seconds{peer=\"west\"} 0.125\n",
        "# TYPE isthmus_peer_retransmitted_segments_total counter\n"
        "isthmus_peer_retransmitted_segments_total{peer=\"west\"} 3\n",
        "isthmus_peer_segments_total{peer=\"west\"} 1000\n",
        "isthmus_peer_connections{peer=\"west\"} 4\n", "isthmus_peer_detour{peer=\"west\"} 0\n",
        "isthmus_peer_goodput_bits_per_second{peer=\"west\"} 25000000\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  RunStatus status = made_up();
  status.peers[0].tcp->rtt_s.reset();
  EXPECT_THAT(status_metrics(status), Not(HasSubstr("isthmus_peer_rtt_seconds")));
  status.peers[0].tcp.reset();
  EXPECT_THAT(status_metrics(status), Not(HasSubstr("isthmus_peer_segments_total")));
}

TEST(StatusMetrics, TellHowLateThisSiteHasBeenWhereRoundsHaveADeadline) {
  RunStatus status = made_up();
  EXPECT_THAT(status_metrics(status),
              HasSubstr("# TYPE isthmus_late_rounds_total counter\nisthmus_late_rounds_total 5\n"));
  EXPECT_THAT(status_metrics(status), HasSubstr("isthmus_late_skipped_steps_total 40\n"));
  status.late.reset();
  EXPECT_THAT(status_metrics(status), Not(HasSubstr("isthmus_late_")));
}

TEST(StatusMetrics, LabelsAreEscaped) {
  RunStatus status = made_up();
  status.name = "wan \"one\"\n\\";
  EXPECT_THAT(status_metrics(status), HasSubstr("name=\"wan \\\"one\\\"\\n\\\\\""));
}

TEST(StatusMetrics, WhatIsNotKnownIsLeftOut) {
  EXPECT_THAT(status_metrics(made_up()), Not(HasSubstr("isthmus_eval_loss")));
  RunStatus early = made_up();
  early.state = "waiting";
  for (const char* sum : {"steps_total", "tokens_total", "elapsed_seconds", "worker_"}) {
    EXPECT_THAT(status_metrics(made_up()), HasSubstr(std::string("isthmus_") + sum));
    EXPECT_THAT(status_metrics(early), Not(HasSubstr(std::string("isthmus_") + sum))) << sum;
  }
}

TEST(StatusPages, HealthIsACodeAndALine) {
  RunStatus status = made_up();
  const auto look = [&] { return status; };
  EXPECT_EQ(status_page("/healthz", look).status, 200);
  status.healthy = false;
  status.word = "site west is lost: silent for 10 s";
  const HttpReply reply = status_page("/healthz", look);
  EXPECT_EQ(reply.status, 503);
  EXPECT_EQ(reply.body, "site west is lost: silent for 10 s\n");
}

TEST(StatusPages, ThereIsNothingElse) {
  const auto look = [] { return made_up(); };
  EXPECT_EQ(status_page("/metrics/", look).status, 404);
  EXPECT_EQ(status_page("", look).status, 404);
  EXPECT_EQ(status_page("/status.json", look).type, "application/json");
}

TEST(StatusPages, ARunIsLookedAtAFewTimesASecondAtMost) {
  double now = 100;
  int looks = 0;
  StatusPages pages(
      [&] {
        RunStatus status = made_up();
        status.step = ++looks;
        return status;
      },
      [&] { return now; });
  EXPECT_EQ(pages.page("/nothing").status, 404);
  EXPECT_EQ(pages.page("/").status, 200);
  EXPECT_EQ(looks, 0);
  const std::string first = pages.page("/status.json").body;
  now += 0.9 * StatusPages::kFresh;
  EXPECT_EQ(pages.page("/status.json").body, first);
  EXPECT_THAT(pages.page("/metrics").body, HasSubstr("isthmus_steps_total 1\n"));
  now += 0.2 * StatusPages::kFresh;
  EXPECT_THAT(pages.page("/metrics").body, HasSubstr("isthmus_steps_total 2\n"));
  EXPECT_NE(pages.page("/status.json").body, first);
  EXPECT_EQ(looks, 2);
}

TEST(StatusPages, ThePageAsksNobodyElse) {
  const std::string page = status_page("/", [] { return made_up(); }).body;
  for (const char* outside : {"src=", "@import", "url(", "//cdn", "innerHTML"}) {
    EXPECT_THAT(page, Not(HasSubstr(outside)));
  }
}

class StatusTextTest : public testing::Test {
 protected:
  [[nodiscard]] std::string text(const RunStatus& status) const {
    std::string whole;
    for (const std::string& line : status_lines(status, terminal, "runs/x")) whole += line + "\n";
    return whole;
  }
  Terminal terminal{1, ColorMode::kNever};
};

TEST_F(StatusTextTest, SaysWhereARunIs) {
  const std::string whole = text(made_up());
  for (const char* part :
       {"7/20", "35%", "loss 2.5000", "1.23k tok/s", "3 rounds", "late for 5, 40 steps skipped",
        "eta 1 min 30 s", "connection 1: reset", "runs/x"}) {
    EXPECT_THAT(whole, HasSubstr(part));
  }
}

TEST_F(StatusTextTest, SaysWhatIsWrong) {
  RunStatus status = made_up();
  status.healthy = false;
  status.word = "site west is lost";
  EXPECT_THAT(text(status), HasSubstr("not well"));
  EXPECT_THAT(text(status), HasSubstr("site west is lost"));
}

/// A run's folder with these lines in it.
class StatusFolderTest : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder / name) << text;
  }
  [[nodiscard]] RunStatus look() const { return folder_status(storage, folder.path()); }
  TemporaryDirectory folder;
  SystemStorage storage;
};

TEST_F(StatusFolderTest, TellsTheLastOfEachKind) {
  write("manifest.json", R"({"run_id":"a","name":"n","method":"diloco","workers":2,"status":"ok",
      "clock":"real","model":{"parameters":5}})");
  write(
      "metrics.jsonl",
      "{\"v\":1,\"k\":\"meta\",\"resumed_after\":0,\"t\":100}\n"
      "{\"v\":1,\"k\":\"train\",\"step\":1,\"loss\":3,\"tok_s\":5,\"tokens\":10,\"t\":101}\n"
      "{\"v\":1,\"k\":\"worker\",\"w\":0,\"step\":1,\"loss\":9}\n"
      "{\"v\":1,\"k\":\"round\",\"frag\":1,\"step_apply\":2,\"bytes_payload\":8,"
      "\"bytes_wire\":9,\"members\":2,\"wait_s\":0.5}\n"
      "{\"v\":1,\"k\":\"train\",\"step\":2,\"loss\":\"nan\",\"tok_s\":6,\"tokens\":20,\"t\":103}\n"
      "{\"v\":1,\"k\":\"eval\",\"step\":2,\"loss\":2.5,\"t\":104}\n"
      "{\"v\":1,\"k\":\"event\",\"what\":\"site left\",\"step\":2,\"sites\":1,\"t\":104}\n"
      "{\"v\":1,\"k\":\"ckpt\",\"step\":2,\"bytes\":77,\"s\":0.1,\"t\":105}\n"
      "{\"v\":1,\"k\":\"end\",\"status\":\"ok\",\"step\":2,\"t\":106,\"late_rounds\":3,"
      "\"late_steps_skipped\":9}\n"
      "{\"v\":1,\"k\":\"train\",\"step\":3,\"lo");  // torn
  const RunStatus status = look();
  EXPECT_EQ(status.step, 2);
  EXPECT_TRUE(std::isnan(status.loss.value()));
  EXPECT_EQ(status.tokens, 20);
  EXPECT_EQ(status.rounds(), 1);
  EXPECT_EQ(status.members, 1);
  EXPECT_EQ(status.fragments.at(1).wire_bytes, 9U);
  EXPECT_EQ(status.eval_loss, 2.5);
  EXPECT_EQ(status.checkpoint_bytes, 77U);
  EXPECT_EQ(status.elapsed_s, 6);
  EXPECT_EQ(status.late, (LateStatus{.rounds = 3, .steps_skipped = 9}));
  EXPECT_TRUE(status.healthy);
  EXPECT_EQ(status.loss_curve.size(), 2U);
}

TEST_F(StatusFolderTest, ADamagedNumberIsUnknownAndNotZero) {
  write("manifest.json", R"({"name":"n","method":"ddp","workers":2,"status":"running"})");
  for (const std::string loss : {"\"inf\"", "true", "[3]", "{}", "\"3\""}) {
    write("metrics.jsonl", "{\"k\":\"train\",\"step\":1,\"tokens\":2.5,\"loss\":" + loss +
                               ",\"t\":101}\n{\"k\":\"eval\",\"step\":1,\"loss\":" + loss +
                               ",\"t\":102}\n");
    const RunStatus status = look();
    EXPECT_TRUE(std::isnan(status.loss.value())) << loss;
    EXPECT_TRUE(std::isnan(status.eval_loss.value())) << loss;
    EXPECT_TRUE(std::isnan(status.loss_curve.at(0).second)) << loss;
    EXPECT_EQ(status.step, 1);
    EXPECT_EQ(status.tokens, 0) << "no whole number";
  }
  write("metrics.jsonl", "{\"k\":\"train\",\"step\":1,\"loss\":null,\"t\":101}\n");
  EXPECT_EQ(look().loss, 0.0);
}

TEST_F(StatusFolderTest, AnOddSummaryIsNotBelieved) {
  write("manifest.json", R"({"name":"n","method":"ddp","workers":2,"status":"ok"})");
  write("config.resolved.toml",
        "[run]\nworkers = 2\n[data]\nsource = \"text:x.txt\"\n[train]\nsteps = 1\ncontext = 64\n"
        "global_batch = \"1024 tok\"\n");
  write("metrics.jsonl", "{\"v\":1,\"k\":\"end\",\"status\":\"ok\"}\n");
  write("summary.json", R"({"bytes_payload":["many",-1],"bytes_wire":[7,2.5]})");
  const RunStatus status = look();
  ASSERT_EQ(status.sites.size(), 2U) << "the configuration is not read";
  EXPECT_EQ(status.sites[0].payload_bytes, 0U);
  EXPECT_EQ(status.sites[0].wire_bytes, 7U);
  EXPECT_EQ(status.sites[1].wire_bytes, 0U);
}

TEST_F(StatusFolderTest, AFailedRunSaysWhy) {
  write("manifest.json", R"({"name":"n","method":"ddp","workers":1,"status":"failed"})");
  write("metrics.jsonl",
        "{\"v\":1,\"k\":\"end\",\"status\":\"failed\",\"cause\":\"the loss is nan\"}\n");
  EXPECT_FALSE(look().healthy);
  EXPECT_THAT(look().word, HasSubstr("the loss is nan"));
}

TEST_F(StatusFolderTest, ARunThatWritesNoMoreIsNotWell) {
  write("manifest.json", R"({"name":"n","method":"ddp","workers":1,"status":"running"})");
  write("metrics.jsonl", "{\"v\":1,\"k\":\"train\",\"step\":1,\"loss\":3,\"t\":100}\n");
  EXPECT_FALSE(look().healthy);
  EXPECT_THAT(look().word, HasSubstr("nothing written for"));
}

TEST_F(StatusFolderTest, AnotherFolderIsRefused) {
  EXPECT_THROW((void)look(), ConfigError);
  EXPECT_THROW((void)find_run(folder.path()), ConfigError);
  write("manifest.json", R"({"name":"a comparison"})");
  EXPECT_THROW((void)look(), ConfigError);
}

}  // namespace
}  // namespace isthmus::app::this_file
