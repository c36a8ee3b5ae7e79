// SPDX-License-Identifier: Apache-2.0
// outer.commit: how often the methods whose rounds do not commit one by one compare digests. It
// changes when a round waits for all, never what comes out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "isthmus/errors.h"
#include "isthmus/outer.h"
#include "outer/adam_loop.h"
#include "transport/exchange/run_in_process.h"

namespace isthmus::this_file {
namespace {

using testing_support::AdamLoop;

constexpr int kWorkers = 3;
constexpr std::int64_t kSteps = 22;

/// Notes which rounds its member asks to be committed. Borrows `real`.
class CountingExchange final : public Exchange {
 public:
  explicit CountingExchange(Exchange& real) : real_(real) {}
  [[nodiscard]] WorkerId self() const override { return real_.self(); }
  [[nodiscard]] int members() const override { return real_.members(); }
  [[nodiscard]] EncodeKey key(const SyncId& id) const override { return real_.key(id); }
  Ticket begin(Contribution contribution) override {
    const std::int64_t step = contribution.id.sent.value();
    if (sent.empty() || sent.back() != step) sent.push_back(step);
    if (contribution.commit) commits.push_back(contribution.id.sent.value());
    return real_.begin(std::move(contribution));
  }
  [[nodiscard]] bool poll(const Ticket& ticket) override { return real_.poll(ticket); }
  [[nodiscard]] Expected<Reduced, ExchangeError> wait(const Ticket& ticket,
                                                      Duration patience) override {
    return real_.wait(ticket, patience);
  }
  [[nodiscard]] ByteCounts bytes() const override { return real_.bytes(); }

  std::vector<std::int64_t> sent;     // steps after which anything was
  std::vector<std::int64_t> commits;  // steps after which what commits was

 private:
  Exchange& real_;
};

struct Outcome {
  std::array<std::vector<float>, kWorkers> x;
  std::array<std::vector<std::int64_t>, kWorkers> commits;
  std::vector<std::int64_t> sent;  // by the first worker
};

Outcome train(const std::string& method, const OuterOptions& options) {
  Outcome outcome;
  run_in_process(kWorkers, [&](WorkerContext& context) {
    const auto w = static_cast<std::size_t>(context.rank.value());
    AdamLoop inner({.worker = context.rank.value()});
    CountingExchange exchange(context.exchange);
    const auto strategy = make_outer_strategy(method, options, inner, exchange);
    for (std::int64_t t = 0; t < kSteps; ++t) (void)strategy->step();
    (void)strategy->finish();
    outcome.x[w] = inner.all();
    outcome.commits[w] = exchange.commits;
    if (w == 0) outcome.sent = exchange.sent;
  });
  return outcome;
}

/// Each k-th step, and the last one with what is left over.
std::vector<std::int64_t> periods(std::int64_t k) {
  std::vector<std::int64_t> steps;
  for (std::int64_t t = k; t <= kSteps; t += k) steps.push_back(t);
  if (steps.empty() || steps.back() != kSteps) steps.push_back(kSteps);
  return steps;
}

OuterOptions options_of(const std::string& method) {
  OuterOptions options;
  if (method == "1bit-adam") options.one_bit_adam.freeze = 6;
  if (method == "01-adam") {
    options.zero_one_adam.var_freeze_step = 9;
    options.zero_one_adam.var_update_scaler = 2;
  }
  return options;
}

class CommitPeriod : public testing::TestWithParam<const char*> {};

TEST_P(CommitPeriod, ChangesHowManyRoundsCommitAndNoBit) {
  const std::string method = GetParam();
  OuterOptions options = options_of(method);
  const Outcome usual = train(method, options);
  for (const std::int64_t k : {1, 4, 5, 16, 22, 1000}) {
    options.commit_every = k;
    const Outcome outcome = train(method, options);
    EXPECT_EQ(outcome.x, usual.x) << "every " << k;
    for (const auto& commits : outcome.commits) EXPECT_EQ(commits, periods(k)) << "every " << k;
    if (k == 16) {
      EXPECT_EQ(outcome.commits, usual.commits) << "the default";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, CommitPeriod, testing::Values("ddp", "1bit-adam", "01-adam"));

// Local steps of 0/1 Adam send nothing: the first sync in each stretch of k steps commits.
TEST(CommitPeriodOfLocalSteps, TheFirstSyncInEachStretchCommits) {
  OuterOptions options = options_of("01-adam");
  options.zero_one_adam.var_freeze_step = 3;
  options.zero_one_adam.local_step_scaler = 2;
  options.zero_one_adam.local_step_clipper = 3;
  const Outcome usual = train("01-adam", options);
  ASSERT_LT(usual.sent.size(), static_cast<std::size_t>(kSteps)) << "no step was local";
  for (const std::int64_t k : {1, 4, 7}) {
    options.commit_every = k;
    const Outcome outcome = train("01-adam", options);
    EXPECT_EQ(outcome.x, usual.x) << "every " << k;
    std::vector<std::int64_t> expected;
    std::int64_t before = 0;
    for (const std::int64_t sync : usual.sent) {
      if (sync / k != before / k) expected.push_back(sync);
      before = sync;
    }
    if (kSteps % k != 0) expected.push_back(kSteps);  // what is left over
    EXPECT_EQ(outcome.commits[0], expected) << "every " << k;
  }
}

TEST(CommitPeriodOptions, ValuesAndMethodsThatDoNotFitAreRefused) {
  run_in_process(1, [](WorkerContext& context) {
    const auto refusal = [&](const std::string& method, std::int64_t k) {
      AdamLoop inner({});
      try {
        OuterOptions options;
        options.commit_every = k;
        (void)make_outer_strategy(method, options, inner, context.exchange);
      } catch (const ConfigError& error) {
        return std::string(error.what());
      }
      return std::string();
    };
    EXPECT_THAT(refusal("ddp", 0), testing::HasSubstr("outer.commit = every:0: must be every:1"));
    EXPECT_THAT(refusal("diloco", 4), testing::HasSubstr("outer.commit = every:4: method diloco"));
    EXPECT_EQ(refusal("ddp", 3), "");
  });
}

}  // namespace
}  // namespace isthmus::this_file
