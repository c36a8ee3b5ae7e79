// SPDX-License-Identifier: Apache-2.0
// A worker that comes back: it takes worker 0's state after step J as bytes, replays the rounds
// that follow from worker 0's results, and is a member after step K.
#include <gtest/gtest.h>

#include <bit>
#include <future>
#include <map>
#include <set>

#include "core/state/state_bytes.h"
#include "outer/late_exchange.h"
#include "outer/method_cases.h"
#include "outer/parts/idle_inner_loop.h"
#include "outer/parts/late_rounds.h"
#include "outer/toy_loops.h"
#include "transport/exchange/catch_up/joining_exchange.h"
#include "transport/exchange/round_result.h"
#include "transport/exchange/run_in_process.h"

namespace isthmus::this_file {
namespace {

using outer::IdleInnerLoop;
using testing_support::anchors_of;
using testing_support::LateExchange;
using testing_support::make_method_loop;
using testing_support::MethodCase;
using testing_support::shared_method_cases;

constexpr WorkerId kDonor(0);
constexpr WorkerId kJoiner(2);
constexpr int kMembers = 3;

/// As a member would be that takes all rounds sent by some step and gives nothing; keeps what the
/// method gives after it.
class SilentExchange final : public Exchange {
 public:
  SilentExchange(Exchange& real, std::int64_t silent_until)
      : real_(real), silent_until_(silent_until) {}
  [[nodiscard]] WorkerId self() const override { return real_.self(); }
  [[nodiscard]] int members() const override { return real_.members(); }
  [[nodiscard]] EncodeKey key(const SyncId& id) const override { return real_.key(id); }
  Ticket begin(Contribution contribution) override {
    if (contribution.id.sent.value() <= silent_until_) {
      contribution.weight = 0;
    } else {
      weights[contribution.id] = contribution.weight;
    }
    return real_.begin(std::move(contribution));
  }
  [[nodiscard]] bool poll(const Ticket& ticket) override { return real_.poll(ticket); }
  [[nodiscard]] Expected<Reduced, ExchangeError> wait(const Ticket& ticket,
                                                      Duration patience) override {
    return real_.wait(ticket, patience);
  }
  [[nodiscard]] ByteCounts bytes() const override { return real_.bytes(); }

  std::map<SyncId, double> weights;

 private:
  Exchange& real_;
  std::int64_t silent_until_;
};

std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<std::uint32_t>(value));
  return bits;
}

std::vector<float> local_of(const InnerLoop& inner) {
  std::vector<float> flat;
  for (const Parameter& parameter : inner.parameters()) {
    flat.insert(flat.end(), parameter.values.begin(), parameter.values.end());
  }
  return flat;
}

using Anchors = std::map<std::int64_t, std::vector<std::uint32_t>>;  // by step

/// One run; what is written by a worker's thread is read by it, or after the run.
struct Joining {
  explicit Joining(MethodCase each) : setting(std::move(each)) {}

  MethodCase setting;
  std::promise<JoiningExchange*> exchange;  // from joiner to donor
  std::promise<std::vector<std::byte>> state;
  Anchors donor_anchors;
  Anchors joiner_anchors;
  std::vector<RoundReport> donor_rounds;
  std::map<SyncId, double> joiner_weights;
  int forwarded_encoded = 0;        // results
  std::vector<float> joiner_local;  // after it has forgotten its work

  [[nodiscard]] std::int64_t end() const {
    return setting.last + 3 * std::max<std::int64_t>(setting.outer.H, 4);
  }
  void run() {
    run_in_process(kMembers, {.keeps_encoded = true}, [&](WorkerContext& context) {
      const std::unique_ptr<InnerLoop> inner = make_method_loop(setting, context.rank.value());
      if (context.rank == kDonor) donate(context, *inner);
      if (context.rank == WorkerId(1)) train(context, *inner);
      if (context.rank == kJoiner) join(context, *inner);
    });
  }

 private:
  void train(WorkerContext& context, InnerLoop& inner) const {
    const auto strategy =
        make_outer_strategy(setting.method, setting.outer, inner, context.exchange);
    for (std::int64_t t = 1; t <= end(); ++t) (void)strategy->step();
    (void)strategy->finish();
  }

  // K is made known in the middle, so that rounds are replayed before and after.
  void donate(WorkerContext& context, InnerLoop& inner) {
    auto& real = dynamic_cast<PeerExchange&>(context.exchange);
    std::int64_t now = 0;
    LateExchange late(real, [&](const SyncId& id) {
      return now >= id.sent.value() + (id.sent.value() * 7 + id.fragment.value() * 3) % 9;
    });
    ForwardingExchange exchange_here(late,
                                     [&](const SyncId& id) { return real.origin_of(id).encoded; });
    const auto strategy = make_outer_strategy(setting.method, setting.outer, inner, exchange_here);
    JoiningExchange* joiner = nullptr;
    for (std::int64_t t = 1; t <= end(); ++t) {
      now = t;
      StepReport report = strategy->step();
      if (t == setting.last) {
        for (const RoundReport& round : outer::apply_late(*strategy))
          report.rounds.push_back(round);
      }
      donor_rounds.insert(donor_rounds.end(), report.rounds.begin(), report.rounds.end());
      donor_anchors[t] = bits_of(anchors_of(*strategy, inner));
      if (joiner != nullptr) joiner->reached(StepIndex(t));
      if (t == setting.from) {
        state.set_value(write_state(snapshot(*strategy, inner)));
        joiner = exchange.get_future().get();
        exchange_here.forward_to([this, joiner](const SyncId& id, const Reduced& result,
                                                const ForwardingExchange::Encoded& encoded) {
          auto read = read_result(write_result(id, result, encoded), kMembers);
          ASSERT_TRUE(read) << read.error();
          forwarded_encoded += read->encoded.empty() ? 0 : 1;
          joiner->deliver(read->id, std::move(read->reduced), std::move(read->encoded));
        });
      }
      if (t == (setting.from + setting.last) / 2) joiner->become_member(StepIndex(setting.last));
      if (t == setting.last + setting.lag) {
        exchange_here.forward_to({});
        joiner = nullptr;
      }
    }
    (void)strategy->finish();
    donor_anchors[end() + 1] = bits_of(anchors_of(*strategy, inner));
  }

  [[nodiscard]] static StateSnapshot snapshot(const OuterStrategy& strategy,
                                              const InnerLoop& inner) {
    StateSnapshot saved;
    for (const Parameter& parameter : inner.parameters()) {
      saved.tensor("local/" + parameter.name, parameter.values);
    }
    PrefixedStateWriter inner_state(saved, "inner/");
    inner.save(inner_state);
    PrefixedStateWriter outer_state(saved, "outer/");
    strategy.save(outer_state);
    return saved;
  }

  // A ghost stands for the dead one: to the other two it is a member that gives nothing.
  void join(WorkerContext& context, InnerLoop& ghost_loop) {
    SilentExchange silent(context.exchange, setting.last);
    JoiningExchange joining(silent, context.runtime, StepIndex(setting.from));
    exchange.set_value(&joining);
    const auto ghost = make_outer_strategy(setting.method, setting.outer, ghost_loop, silent);
    for (std::int64_t t = 1; t <= setting.last; ++t) (void)ghost->step();

    const std::unique_ptr<InnerLoop> model = make_method_loop(setting, kJoiner.value());
    IdleInnerLoop inner(*model);
    auto reader = read_state(state.get_future().get());
    ASSERT_TRUE(reader) << reader.error();
    PrefixedStateReader local(**reader, "local/");
    for (const Parameter& parameter : inner.parameters()) {
      local.tensor(parameter.name, parameter.values);
    }
    PrefixedStateReader inner_state(**reader, "inner/");
    inner.load(inner_state);
    const auto strategy = make_outer_strategy(setting.method, setting.outer, inner, joining);
    PrefixedStateReader outer_state(**reader, "outer/");
    strategy->load(outer_state);
    strategy->forget_own_work();
    inner.set_idle(true);
    for (StepIndex t = strategy->steps(); t < StepIndex(setting.last);) {
      ASSERT_TRUE(joining.await_step(++t, std::chrono::minutes(1)));
      EXPECT_TRUE(strategy->step().inner.idle) << t.value();
      joiner_anchors[t.value()] = bits_of(anchors_of(*strategy, inner));
    }
    (void)outer::apply_late(*strategy);
    joiner_anchors[setting.last] = bits_of(anchors_of(*strategy, inner));
    EXPECT_EQ(joining.member_after(), StepIndex(setting.last));
    inner.set_idle(false);
    strategy->forget_own_work();
    joiner_local = local_of(inner);
    for (std::int64_t t = setting.last + 1; t <= end(); ++t) {
      (void)strategy->step();
      joiner_anchors[t] = bits_of(anchors_of(*strategy, inner));
    }
    (void)strategy->finish();
    joiner_anchors[end() + 1] = bits_of(anchors_of(*strategy, inner));
    joiner_weights = silent.weights;
  }
};

class JoiningTest : public ::testing::TestWithParam<MethodCase> {};

TEST_P(JoiningTest, HasTheDonorsAnchorsAfterEveryStep) {
  Joining joining(GetParam());
  joining.run();
  const std::int64_t from = GetParam().from;
  for (std::int64_t t = from + 1; t <= joining.end() + 1; ++t) {
    if (GetParam().slips() && t != GetParam().last && t <= joining.end()) continue;
    ASSERT_EQ(joining.joiner_anchors.at(t), joining.donor_anchors.at(t)) << "step " << t;
  }
  EXPECT_NE(joining.donor_anchors.at(from), joining.donor_anchors.at(joining.end()));
  const bool coded = GetParam().outer.codec.starts_with("int4");
  EXPECT_GE(joining.forwarded_encoded, coded ? 1 : 0);
}

TEST_P(JoiningTest, StartsAtTheAnchorWhereItBecomesAMember) {
  Joining joining(GetParam());
  joining.run();
  EXPECT_EQ(bits_of(joining.joiner_local), joining.donor_anchors.at(GetParam().last));
}

// Whole: the fragment was sent after step K too, or is sent after every step.
TEST_P(JoiningTest, GivesFromItsFirstWholeWindowOn) {
  Joining joining(GetParam());
  joining.run();
  std::map<FragmentId, std::set<StepIndex>> sends;
  for (const RoundReport& round : joining.donor_rounds) sends[round.fragment].insert(round.sent);
  int withheld = 0;
  int given = 0;
  for (const RoundReport& round : joining.donor_rounds) {
    const std::set<StepIndex>& all = sends.at(round.fragment);
    const auto here = all.find(round.sent);
    const StepIndex before = here == all.begin() ? StepIndex(0) : *std::prev(here);
    const bool member = round.sent > StepIndex(GetParam().last);
    const bool whole = member && before >= StepIndex(GetParam().last);
    EXPECT_EQ(round.members, whole ? 3 : 2)
        << "fragment " << round.fragment.value() << " step " << round.sent.value();
    if (!member) continue;
    const double weight = joining.joiner_weights.at({round.fragment, round.sent});
    EXPECT_EQ(weight > 0, whole) << round.fragment.value() << ' ' << round.sent.value();
    ++(whole ? given : withheld);
  }
  EXPECT_GT(given, 0);
  EXPECT_EQ(withheld > 0, GetParam().partial);
}

INSTANTIATE_TEST_SUITE_P(Methods, JoiningTest, ::testing::ValuesIn(shared_method_cases()),
                         [](const auto& each) { return each.param.name; });

TEST(Joining, CoversEveryMethodWithSharedAnchors) {
  std::set<std::string> tested;
  for (const MethodCase& each : shared_method_cases()) tested.insert(each.method);
  for (const MethodInfo& method : methods()) {
    const bool joins = method.shared_anchors && !method.one_worker;
    EXPECT_EQ(tested.contains(method.name), joins) << method.name;
  }
}

}  // namespace
}  // namespace isthmus::this_file
