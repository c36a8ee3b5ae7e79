// SPDX-License-Identifier: Apache-2.0
// Method decoupled with a hub that merges: what it equals, what a hub or a worker that dies costs,
// and that the hub's log and a start give the anchors again (docs/guarantees/decoupled.md).
#include <gtest/gtest.h>

#include <latch>
#include <mutex>
#include <set>

#include "core/base/system_runtime.h"
#include "isthmus/errors.h"
#include "outer/decoupled_run.h"
#include "transport/exchange/merging.h"
#include "transport/exchange/run_in_process.h"

namespace isthmus::this_file {
namespace {

using namespace std::chrono_literals;
using testing_support::anchors_of;
using testing_support::MemoryState;
using testing_support::QuadraticLoop;

QuadraticLoop::Options hub_loop(int worker) {
  return {.tensors = {{kNoLayer, 500}, {0, 4300}, {1, 700}, {2, 1}},
          .center = 0.25f * static_cast<float>(worker),
          .noise = 0.5f,
          .worker = worker,
          .tokens = 10};
}

/// A hub's disk.
class MemoryHistory final : public MergeHistory {
 public:
  [[nodiscard]] std::int64_t first() const override {
    const std::scoped_lock lock(mutex_);
    return first_;
  }
  [[nodiscard]] std::int64_t last() const override {
    const std::scoped_lock lock(mutex_);
    return merges_.empty() ? 0 : first_ + std::ssize(merges_) - 1;
  }
  void append(std::int64_t number, std::span<const std::byte> merge) override {
    const std::scoped_lock lock(mutex_);
    if (merges_.empty()) first_ = number;
    EXPECT_EQ(number, first_ + std::ssize(merges_));
    merges_.emplace_back(merge.begin(), merge.end());
  }
  [[nodiscard]] std::vector<std::byte> read(std::int64_t number) const override {
    const std::scoped_lock lock(mutex_);
    return merges_.at(static_cast<std::size_t>(number - first_));
  }
  [[nodiscard]] std::vector<Merge> all() const {
    std::vector<Merge> merges;
    for (std::int64_t n = first(); last() > 0 && n <= last(); ++n) {
      merges.push_back(read_merge(read(n)).value());
    }
    return merges;
  }

 private:
  mutable std::mutex mutex_;
  std::int64_t first_ = 0;
  std::vector<std::vector<std::byte>> merges_;
};

/// Workers of threads, and a hub that may end and come back. Notes are handed over at once.
class HubWorld {
 public:
  explicit HubWorld(int workers) : workers_(workers), members_(static_cast<std::size_t>(workers)) {
    for (int m = 0; m < workers; ++m) renew(m);
    start_hub();
  }
  ~HubWorld() { kill_hub(); }

  /// A new process of the worker, which the hub counts in.
  void join(int worker) {
    renew(worker);
    const std::scoped_lock lock(wire_);
    hub_->come_back(WorkerId(worker));
  }
  void renew(int worker) {
    const std::scoped_lock lock(arrivals_);
    members_[static_cast<std::size_t>(worker)] = std::make_unique<Merging>(
        Merging::Parts{.self = WorkerId(worker),
                       .members = workers_,
                       .coordinator = WorkerId(workers_),
                       .runtime = runtime_,
                       .send =
                           [this, worker](std::span<const std::byte> note, std::uint64_t) {
                             const std::scoped_lock held(wire_);
                             EXPECT_TRUE(!hub_ || hub_->receive(WorkerId(worker), note));
                           },
                       .on_wait = [](TimePoint) {}});
  }
  Merging& member(int worker) { return *members_[static_cast<std::size_t>(worker)]; }
  /// The worker's process is gone, and the hub counts it as gone.
  void lose(int worker) {
    const std::scoped_lock lock(wire_);
    hub_->lose(WorkerId(worker));
    hub_->leave(WorkerId(worker));
  }

  void start_hub() {
    auto hub = std::make_unique<MergeServer>(
        MergeServer::Parts{.self = WorkerId(workers_),
                           .members = workers_,
                           .runtime = runtime_,
                           .history = &history,
                           .send =
                               [this](WorkerId to, std::span<const std::byte> note, std::uint64_t) {
                                 const std::scoped_lock held(arrivals_);
                                 EXPECT_TRUE(member(to.value()).receive(WorkerId(workers_), note));
                               },
                           .on_failure =
                               [](const std::exception_ptr& failure) {
                                 try {
                                   std::rethrow_exception(failure);
                                 } catch (const std::exception& error) {
                                   ADD_FAILURE() << error.what();
                                 }
                               }},
        std::vector<bool>(static_cast<std::size_t>(workers_), true));
    {
      const std::scoped_lock lock(wire_);
      hub_ = std::move(hub);
      hub_->begin();
    }
    for (const auto& each : members_) each->tell_again();
  }
  void kill_hub() {
    std::unique_ptr<MergeServer> hub;
    {
      const std::scoped_lock lock(wire_);
      hub = std::move(hub_);
    }
    hub.reset();
    for (const auto& each : members_) each->lose(WorkerId(workers_), "killed");
  }

  MemoryHistory history;

 private:
  const int workers_;
  SystemRuntime runtime_;
  std::mutex wire_;      // to the hub
  std::mutex arrivals_;  // at the workers
  std::vector<std::unique_ptr<Merging>> members_;
  std::unique_ptr<MergeServer> hub_;  // under wire_
};

/// The exchange of a worker that uses merges alone.
class MergesAlone final : public Exchange {
 public:
  MergesAlone(Merges& merges, int self, int members)
      : merges_(merges), self_(self), members_(members) {}
  [[nodiscard]] WorkerId self() const override { return self_; }
  [[nodiscard]] int members() const override { return members_; }
  [[nodiscard]] EncodeKey key(const SyncId& id) const override {
    return encode_key(id, static_cast<std::uint32_t>(self_.value()), 0);
  }
  Ticket begin(Contribution contribution) override { return Ticket{contribution.id}; }
  bool poll(const Ticket&) override { return false; }
  [[nodiscard]] Expected<Reduced, ExchangeError> wait(const Ticket&, Duration) override {
    return Unexpected<ExchangeError>(ExchangeError{});
  }
  [[nodiscard]] ByteCounts bytes() const override { return {}; }
  void agree_on_start(const std::function<StartTerms()>&) override {}
  Merges* merges() override { return &merges_; }

 private:
  Merges& merges_;
  const WorkerId self_;
  const int members_;
};

struct HubLearner {
  std::vector<float> anchors, local;
  std::int64_t tokens = 0;
};

using AfterStep = std::function<void(const OuterStrategy& strategy)>;

/// Worker `worker` from its start, or from `state`, to the end. `after`: called after each step.
HubLearner learn(HubWorld& world, int worker, int workers, std::int64_t steps,
                 const OuterOptions& options, const AfterStep& after = {},
                 MemoryState* state = nullptr) {
  QuadraticLoop inner(hub_loop(worker));
  MergesAlone exchange(world.member(worker), worker, workers);
  world.member(worker).begin();
  const auto strategy = make_outer_strategy("decoupled", options, inner, exchange);
  if (state != nullptr) {
    strategy->load(*state);
    strategy->forget_own_work();
  }
  HubLearner learner;
  while (strategy->steps().value() < steps) {
    learner.tokens += strategy->step().inner.tokens;
    if (after) after(*strategy);
  }
  (void)strategy->finish();
  learner.anchors = anchors_of(*strategy, inner);
  learner.local = inner.all();
  return learner;
}

/// All workers, each a thread.
std::vector<HubLearner> run_all(int workers, const std::function<HubLearner(int worker)>& body) {
  std::vector<HubLearner> learners(static_cast<std::size_t>(workers));
  SystemRuntime runtime;
  std::vector<std::unique_ptr<Task>> tasks;
  for (int m = 0; m < workers; ++m) {
    tasks.push_back(
        runtime.spawn("worker", [&, m] { learners[static_cast<std::size_t>(m)] = body(m); }));
  }
  for (const auto& task : tasks) task->join();
  return learners;
}

void expect_each_token_once(const HubWorld& world, const std::vector<HubLearner>& learners) {
  std::map<FragmentId, std::int64_t> merged;
  std::set<std::tuple<WorkerId, FragmentId, StepIndex>> once;
  for (const Merge& merge : world.history.all()) {
    for (const MergedOffer& offer : merge.offers) {
      merged[merge.fragment] += offer.tokens;
      EXPECT_TRUE(once.emplace(offer.worker, merge.fragment, offer.sent).second);
    }
  }
  std::int64_t trained = 0;
  for (const HubLearner& each : learners) trained += each.tokens;
  for (const auto& [fragment, tokens] : merged) EXPECT_EQ(tokens, trained) << fragment.value();
}

void expect_one_model(const std::vector<HubLearner>& learners) {
  for (const HubLearner& each : learners) {
    EXPECT_TRUE(each.anchors == learners.front().anchors);
    EXPECT_TRUE(each.local == each.anchors);
  }
}

/// Merges as the hub's log has them.
class LoggedMerges final : public Merges {
 public:
  explicit LoggedMerges(std::vector<Merge> merges) : merges_(std::move(merges)) {}
  void follow(std::int64_t last) override { EXPECT_EQ(last, 0); }
  void offer(Offer) override { ADD_FAILURE() << "nothing was trained"; }
  std::vector<Merge> take() override { return std::exchange(merges_, {}); }
  Duration wait(Duration) override { return Duration{0}; }
  void stop_training() override {}
  void finish() override {}
  bool ended() override { return merges_.empty(); }

 private:
  std::vector<Merge> merges_;
};

/// The anchors that the log gives, from the workers' start.
std::vector<float> replayed(const HubWorld& world, int workers, const OuterOptions& options) {
  QuadraticLoop inner(hub_loop(0));
  LoggedMerges merges(world.history.all());
  MergesAlone exchange(merges, 0, workers);
  const auto strategy = make_outer_strategy("decoupled", options, inner, exchange);
  (void)strategy->finish();
  return anchors_of(*strategy, inner);
}

TEST(DecoupledHub, WithAllWorkersAndAWaitForEachMergeIsDiLoCoBitForBit) {
  for (const std::string codec : {"fp32", "int8:256", "int4:ef"}) {
    std::vector<float> expected;
    run_in_process(3, [&](WorkerContext& context) {
      QuadraticLoop inner(hub_loop(context.rank.value()));
      const auto strategy =
          make_outer_strategy("diloco", {.H = 5, .codec = codec}, inner, context.exchange);
      for (int t = 0; t < 12; ++t) (void)strategy->step();
      (void)strategy->finish();
      if (context.rank == WorkerId(0)) expected = anchors_of(*strategy, inner);
    });
    HubWorld world(3);
    const std::vector<HubLearner> learners = run_all(3, [&](int m) {
      return learn(
          world, m, 3, 12,
          {.H = 5, .codec = codec, .merge = {.quorum = 3, .grace = std::chrono::hours(1)}});
    });
    for (const HubLearner& each : learners) EXPECT_TRUE(each.anchors == expected) << codec;
    EXPECT_EQ(world.history.last(), 3) << codec;
  }
}

TEST(DecoupledHub, TheLogReplaysToTheAnchorsOfAll) {
  const OuterOptions options{.H = 3, .fragments = 2, .codec = "int8:256"};
  HubWorld world(3);
  const std::vector<HubLearner> learners =
      run_all(3, [&](int m) { return learn(world, m, 3, 120, options); });
  expect_one_model(learners);
  expect_each_token_once(world, learners);
  EXPECT_TRUE(replayed(world, 3, options) == learners.front().anchors);
}

/// Merges as a test hands them over; counts offers.
class GivenMerges final : public Merges {
 public:
  std::vector<Merge> next;
  int offers = 0;

  void follow(std::int64_t) override {}
  void offer(Offer) override { ++offers; }
  std::vector<Merge> take() override { return std::exchange(next, {}); }
  Duration wait(Duration) override { return Duration{0}; }
  void stop_training() override {}
  void finish() override {}
  bool ended() override { return next.empty(); }
};

/// A merge after step 3 that holds what worker 0 has offered at step `sent`.
Merge merge_of(std::int64_t number, std::int64_t sent) {
  return {.number = number,
          .fragment = FragmentId(0),
          .step = StepIndex(3),
          .offers = {{.worker = WorkerId(0), .sent = StepIndex(sent), .tokens = 10}},
          .values = std::vector<float>(5501)};
}

// A worker's former process may have offered what is merged only now.
TEST(DecoupledHub, AnOfferIsOnItsWayUntilAMergeHoldsThatOfferItself) {
  QuadraticLoop inner(hub_loop(0));
  GivenMerges merges;
  MergesAlone exchange(merges, 0, 2);
  const auto strategy = make_outer_strategy("decoupled", {.H = 3}, inner, exchange);
  const auto train = [&] {
    for (int t = 0; t < 3; ++t) (void)strategy->step();
  };
  train();
  EXPECT_EQ(merges.offers, 1);
  merges.next.push_back(merge_of(1, 2));
  train();
  EXPECT_EQ(merges.offers, 1) << "a second offer beside the one on its way";
  merges.next.push_back(merge_of(2, 3));
  train();
  EXPECT_EQ(merges.offers, 2);
}

// ... and may have been ahead: its steps are not offered again, since the hub knows offers by them.
TEST(DecoupledHub, NoStepIsOfferedThatAFormerProcessHasOffered) {
  QuadraticLoop inner(hub_loop(0));
  GivenMerges merges;
  MergesAlone exchange(merges, 0, 2);
  const auto strategy = make_outer_strategy("decoupled", {.H = 3}, inner, exchange);
  merges.next.push_back(merge_of(1, 9));
  for (const int offers : {0, 0, 0, 1}) {
    for (int t = 0; t < 3; ++t) (void)strategy->step();
    EXPECT_EQ(merges.offers, offers) << "after step " << strategy->steps().value();
  }
}

// The workers train on without a hub.
TEST(DecoupledHub, AHubThatDiesAndComesBackLosesAndRepeatsNothing) {
  const OuterOptions options{.H = 3, .fragments = 2, .codec = "int8:256"};
  HubWorld world(3);
  const AfterStep kills = [&](const OuterStrategy& strategy) {
    if (strategy.steps().value() % 11 == 5) world.kill_hub();
    if (strategy.steps().value() % 11 == 8) world.start_hub();
  };
  const std::vector<HubLearner> learners = run_all(
      3, [&](int m) { return learn(world, m, 3, 120, options, m == 1 ? kills : AfterStep()); });
  expect_one_model(learners);
  expect_each_token_once(world, learners);
  EXPECT_TRUE(replayed(world, 3, options) == learners.front().anchors);
}

/// Ends a worker's life.
struct Killed {};

// The others go on; its next process begins with another worker's state and the log. An offer of
// the former process that no merge holds yet is merged once.
TEST(DecoupledHub, AWorkerThatDiesComesBackWithAnothersState) {
  for (const std::int64_t death : {29, 30, 31}) {
    const OuterOptions options{.H = 3, .codec = "int8:256", .merge = {.quorum = 2}};
    HubWorld world(3);
    MemoryState state;
    std::latch saved(1), back(1);
    const std::vector<HubLearner> learners = run_all(3, [&](int m) {
      if (m == 0) {
        return learn(world, m, 3, 120, options, [&](const OuterStrategy& strategy) {
          if (strategy.steps() == StepIndex(60)) {
            strategy.save(state);
            saved.count_down();
          }
          if (strategy.steps() == StepIndex(80)) back.wait();
        });
      }
      if (m == 1) return learn(world, m, 3, 120, options);
      try {
        return learn(world, m, 3, 120, options, [&](const OuterStrategy& strategy) {
          if (strategy.steps() == StepIndex(death)) throw Killed();
        });
      } catch (const Killed&) {
      }
      world.lose(m);
      saved.wait();
      world.join(m);
      return learn(
          world, m, 3, 120, options,
          [&](const OuterStrategy& strategy) {
            if (strategy.steps() == StepIndex(65)) back.count_down();
          },
          &state);
    });
    expect_one_model(learners);
    std::set<std::tuple<WorkerId, FragmentId, StepIndex>> once;
    std::int64_t after = 0;
    for (const Merge& merge : world.history.all()) {
      for (const MergedOffer& offer : merge.offers) {
        EXPECT_TRUE(once.emplace(offer.worker, merge.fragment, offer.sent).second);
        if (offer.worker == WorkerId(2) && offer.sent > StepIndex(60)) after += offer.tokens;
      }
    }
    EXPECT_EQ(after, learners[2].tokens) << "all that its second process has trained";
    EXPECT_TRUE(replayed(world, 3, options) == learners.front().anchors);
  }
}

}  // namespace
}  // namespace isthmus::this_file
