// SPDX-License-Identifier: Apache-2.0
// A bit of one worker's outer state flips, in virtual time. Where the workers compare, each works
// out by itself what it ought to hold: the one that is wrong is told apart and healed, the others
// stand as they stood, and all hold the same bits to the end.
#include "session/run/outer_healing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "app/train/config_to_options.h"
#include "core/base/storage.h"
#include "core/state/state_bytes.h"
#include "outer/method_cases.h"
#include "outer/parts/late_rounds.h"
#include "outer/parts/shared_state.h"
#include "session/run/divergence_rule.h"
#include "sim/run_simulated.h"
#include "transport/exchange/peer_exchange.h"

namespace isthmus::app::this_file {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing_support::make_method_loop;
using testing_support::MethodCase;
using testing_support::shared_method_cases;

/// Flips the lowest bit of the exponent of the largest value of what a method saves as `name`; an
/// empty name: of its first parameter's anchor. What it is shown is what the method has.
class Flip final : public StateWriter {
 public:
  explicit Flip(std::string name) : name_(std::move(name)) {}
  void in(const OuterStrategy& strategy) {
    if (name_.empty()) {
      flip(strategy.values(0));
    } else {
      strategy.save(*this);
    }
    if (!done_) flip(strategy.values(0));  // 01-adam, before it has what it saves later
  }
  void tensor(std::string_view name, std::span<const float> values) override {
    if (name == name_) flip(values);
  }
  void bytes(std::string_view, std::span<const std::byte>) override {}
  void integer(std::string_view, std::int64_t) override {}
  void real(std::string_view, double) override {}
  void text(std::string_view, std::string_view) override {}

 private:
  void flip(std::span<const float> values) {
    const auto largest =
        std::ranges::max_element(values, {}, [](float value) { return std::abs(value); });
    auto* const bits = reinterpret_cast<std::byte*>(const_cast<float*>(&*largest));
    bits[3] ^= std::byte{0x01};
    bits[2] ^= std::byte{0x80};
    done_ = true;
  }
  const std::string name_;
  bool done_ = false;
};

/// The names under which a method saves what workers share.
class SharedNames final : public StateWriter {
 public:
  void tensor(std::string_view name, std::span<const float>) override {
    if (name.starts_with("anchor/") || name.starts_with("momentum/") ||
        name.starts_with("summed/")) {
      names.emplace_back(name);
    }
  }
  void bytes(std::string_view, std::span<const std::byte>) override {}
  void integer(std::string_view, std::int64_t) override {}
  void real(std::string_view, double) override {}
  void text(std::string_view, std::string_view) override {}
  std::vector<std::string> names;
};

struct Damage {
  int worker = 0;
  std::int64_t after = 0;  // step
  std::string name;        // Flip
};

/// What was found at one comparison.
struct Compared {
  std::vector<OuterWord> words;       // by worker
  std::vector<std::string> held_now;  // digests, by worker
};

struct Played {
  std::map<std::int64_t, Compared> compared;  // by step
  std::vector<std::vector<float>> local;      // at the end, by worker
  std::vector<std::string> names;             // SharedNames at the first comparison
};

class OuterHealingTest : public testing::TestWithParam<MethodCase> {
 protected:
  [[nodiscard]] std::int64_t end() const { return GetParam().last + 12; }
  /// Workers compare after these steps, the last of which is that of the run.
  [[nodiscard]] std::vector<std::int64_t> comparisons() const {
    return {GetParam().from, GetParam().last, end()};
  }

  /// Where they compare all replay, whether or not they have to. `before_replay`: of a worker,
  /// after a comparison's step.
  [[nodiscard]] Played play(
      int workers, const std::optional<Damage>& damage, bool replays = true,
      const std::function<void(int worker, std::int64_t t, const std::filesystem::path& file)>&
          before_replay = {}) {
    Played played;
    played.local.resize(static_cast<std::size_t>(workers));
    for (const std::int64_t t : comparisons()) {
      played.compared[t].words.resize(static_cast<std::size_t>(workers));
      played.compared[t].held_now.resize(static_cast<std::size_t>(workers));
    }
    SimulationOptions options{.workers = workers, .seed = 5};
    options.links = uniform_links(workers, {.bits_per_s = 100'000'000, .one_way = 25ms});
    options.exchange.keeps_encoded = true;
    run_simulated(options, [&](WorkerContext& context) {
      const int self = context.rank.value();
      const auto place = static_cast<std::size_t>(self);
      const std::filesystem::path file =
          std::filesystem::path(testing::TempDir()) /
          ("outer_healing_" + GetParam().name + std::to_string(self));
      SystemStorage storage;
      constexpr std::uint64_t kPlenty = std::uint64_t{1} << 40;
      RetainedResults results(storage, file,
                              {.most_bytes = kPlenty, .free_bytes = [] { return kPlenty; }});
      auto& real = dynamic_cast<PeerExchange&>(context.exchange);
      RetainingExchange exchange(real, results,
                                 [&](const SyncId& id) { return real.origin_of(id); });
      const std::unique_ptr<InnerLoop> model = make_method_loop(GetParam(), self);
      outer::IdleInnerLoop inner(*model);
      const auto make = [&] {
        return make_outer_strategy(GetParam().method, GetParam().outer, inner, exchange);
      };
      std::unique_ptr<OuterStrategy> strategy = make();
      std::vector<std::byte> saved;  // after the step of the last comparison
      const auto restore = [&](StepIndex) {
        const auto state = read_state(std::vector<std::byte>(saved));
        restore_worker_parameters(**state, inner);
        auto restored = make();
        restore_worker_state(**state, inner, *restored);
        return restored;
      };
      OuterHealing healing({.inner = inner,
                            .results = results,
                            .exchange = exchange,
                            .make = make,
                            .restore = restore,
                            .last_step = StepIndex(end())});
      const auto digest = [&] {
        return outer::shared_digest(*strategy, inner.parameters().size());
      };
      const auto agreed = [&] {
        saved = write_state(worker_snapshot(inner, *strategy, true));
        healing.agreed(strategy->steps(), digest());
      };
      agreed();
      while (strategy->steps().value() < end()) {
        context.runtime.compute(10ms, [] {});
        (void)strategy->step();
        const std::int64_t t = strategy->steps().value();
        if (damage && damage->worker == self && damage->after == t) {
          Flip(damage->name).in(*strategy);
        }
        const auto compared = played.compared.find(t);
        if (compared == played.compared.end()) continue;
        (void)(t == end() ? strategy->finish() : outer::apply_late(*strategy));
        const Digest128 held = digest();
        OuterWord& word = compared->second.words[place];
        word = {.site = std::to_string(self), .about = "here", .digest = held.hex(), .replay = {}};
        if (before_replay) before_replay(self, t, file);
        if (replays) word.replay = healing.replay(strategy, held);
        compared->second.held_now[place] = digest().hex();
        if (self == 0 && t == GetParam().last) {
          SharedNames names;
          strategy->save(names);
          played.names = names.names;
        }
        agreed();
      }
      for (const Parameter& parameter : inner.parameters()) {
        played.local[place].insert(played.local[place].end(), parameter.values.begin(),
                                   parameter.values.end());
      }
    });
    return played;
  }
};

void expect_all_alike(const Compared& compared, const std::string& what) {
  for (const std::string& each : compared.held_now) EXPECT_EQ(each, compared.held_now[0]) << what;
}

TEST_P(OuterHealingTest, AReplayThatNobodyNeedsChangesNothing) {
  const Played without = play(3, std::nullopt, false);
  const Played with = play(3, std::nullopt, true);
  for (const std::int64_t t : comparisons()) {
    for (const OuterWord& word : with.compared.at(t).words) {
      EXPECT_EQ(word.replay->digest, word.digest) << t << ": " << word.replay->why;
      EXPECT_EQ(word.digest, without.compared.at(t).words[0].digest) << t;
    }
  }
  EXPECT_EQ(with.local, without.local);
}

// Each part of the state, of another worker each time, early and late between two comparisons.
TEST_P(OuterHealingTest, WhoseStateIsDamagedIsToldApartAndHealed) {
  const std::int64_t from = GetParam().from;
  const std::int64_t last = GetParam().last;
  std::vector<std::string> parts = play(2, std::nullopt, false).names;
  parts.emplace_back();
  int turn = 0;
  for (const std::string& part : parts) {
    const int workers = 2 + turn % 2;
    // What the next momentum takes in is zero for a while after that, and nobody would miss a bit
    // of it; spsa looks at its own log after every 64 steps, and ends the run.
    const bool early =
        part.starts_with("summed/") || (turn % 3 == 0 && GetParam().method != "spsa");
    const Damage damage{.worker = turn % workers,
                        .after = early           ? from + 1
                                 : turn % 3 == 1 ? last
                                                 : last + 2,
                        .name = part};
    ++turn;
    const std::int64_t found = damage.after > last ? end() : last;
    const std::string what = part + " of worker " + std::to_string(damage.worker) + " after step " +
                             std::to_string(damage.after);
    const Played played = play(workers, damage);
    for (const std::int64_t t : comparisons()) {
      const Compared& compared = played.compared.at(t);
      expect_all_alike(compared, what);
      if (t != found) continue;
      const auto verdict = judge_outer(StepIndex(t), compared.words);
      ASSERT_TRUE(verdict) << what << ": " << verdict.error();
      EXPECT_EQ(verdict->wrong, std::vector{static_cast<std::size_t>(damage.worker)}) << what;
      EXPECT_EQ(verdict->right, compared.held_now[0]) << what;
    }
  }
}

TEST_P(OuterHealingTest, AResultThatTheDiskHasChangedIsNoReplay) {
  const std::int64_t last = GetParam().last;
  const Played played = play(2, std::nullopt, true,
                             [&](int worker, std::int64_t t, const std::filesystem::path& file) {
                               if (worker != 1 || t != last) return;
                               SystemStorage storage;
                               std::vector<std::byte> bytes = storage.read(file);
                               bytes[bytes.size() / 2] ^= std::byte{4};
                               write_atomically(storage, file, bytes);
                             });
  const std::vector<OuterWord>& words = played.compared.at(last).words;
  EXPECT_EQ(words[0].replay->digest, words[0].digest);
  EXPECT_THAT(words[1].replay->digest, IsEmpty());
  EXPECT_THAT(words[1].replay->why, HasSubstr("is not what was committed"));
  for (const std::int64_t t : comparisons()) {  // and it goes on as it was
    expect_all_alike(played.compared.at(t), std::to_string(t));
  }
}

TEST(RetainedBytes, AreWhatTheFileSaysWhereStatesAreCompared) {
  Config config;
  const auto bytes = [&](const std::string& method) {
    config.method = method;
    return retained_bytes(config);
  };
  EXPECT_EQ(bytes("diloco"), 0U);
  config.net.heal_bytes = 5;
  EXPECT_EQ(bytes("diloco"), 5U);
  EXPECT_EQ(bytes("ddp"), 5U);
  EXPECT_EQ(bytes("eager"), 0U) << "nobody compares its anchors";
}

INSTANTIATE_TEST_SUITE_P(Methods, OuterHealingTest, testing::ValuesIn(shared_method_cases()),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace isthmus::app::this_file
