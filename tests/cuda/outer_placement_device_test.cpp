// SPDX-License-Identifier: Apache-2.0
// Outer state on the device: runs are those with the state on the host, bit for bit, and one goes
// on from the other's checkpoint.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "config/schema/device_request.h"
#include "cuda/device_test.h"
#include "cuda/resident_loop.h"
#include "isthmus/errors.h"
#include "outer/losing_exchange.h"
#include "outer/parts/late_rounds.h"
#include "outer/place/outer_placement.h"
#include "outer/toy_loops.h"
#include "quant/codec_values.h"
#include "quant/cuda/cuda_codec.h"

namespace isthmus::this_file {
namespace {

using testing_support::anchors_of;
using testing_support::LosingExchange;
using testing_support::MemoryState;
using testing_support::QuadraticLoop;
using testing_support::ResidentLoop;

constexpr int kStop = 11, kSteps = 23;

/// kPinned: on the host, and computed on by the device. kBlocking: on the device, over a loop that
/// tells nobody of its steps. kUnlike: workers of even rank on the host, the others on the device.
enum class Place { kHost, kDevice, kPinned, kBlocking, kUnlike };

std::unique_ptr<OuterStrategy> make_strategy(Place place, const std::string& method,
                                             const OuterOptions& options, ResidentLoop& inner,
                                             Exchange& exchange) {
  inner.set_tells(place != Place::kBlocking);
  if (place == Place::kPinned) {
    return outer::make_outer_strategy_beside_device(method, options, inner, exchange, inner);
  }
  const bool on_device = place == Place::kDevice || place == Place::kBlocking ||
                         (place == Place::kUnlike && exchange.self().value() % 2 == 1);
  return on_device ? outer::make_outer_strategy_on_device(method, options, inner, exchange, inner)
                   : make_outer_strategy(method, options, inner, exchange);
}

/// Remembers what its member gives. Results are late by as many polls as its rank says.
class RecordingExchange final : public Exchange {
 public:
  explicit RecordingExchange(Exchange& real) : real_(real) {}
  [[nodiscard]] WorkerId self() const override { return real_.self(); }
  [[nodiscard]] int members() const override { return real_.members(); }
  [[nodiscard]] EncodeKey key(const SyncId& id) const override { return real_.key(id); }
  Ticket begin(Contribution contribution) override {
    sent.push_back(contribution.encoded.bytes);
    weights.push_back(contribution.weight);
    return real_.begin(std::move(contribution));
  }
  [[nodiscard]] bool poll(const Ticket& ticket) override {
    const bool there = ++polls_[ticket.id] > self().value();
    slips += there ? 0 : 1;
    return there;  // else `wait` waits for it
  }
  [[nodiscard]] Expected<Reduced, ExchangeError> wait(const Ticket& ticket,
                                                      Duration patience) override {
    return real_.wait(ticket, patience);
  }
  [[nodiscard]] ByteCounts bytes() const override { return real_.bytes(); }

  std::vector<std::vector<std::byte>> sent;
  std::vector<double> weights;
  int slips = 0;

 private:
  Exchange& real_;
  std::map<SyncId, int> polls_;
};

struct Case {
  std::string method;
  OuterOptions outer;
  int workers = 3;
  std::size_t first_tensor = 5000;
  std::set<std::int64_t> lost = {};  // steps whose sends of worker 1 do not arrive
  bool diverges = false;             // the last worker's first tensor holds a NaN after step 6
  bool outlier = false;              // a finite one, after step 17
  bool again = false;     // what is unfit is found out while a step is computed, which begins anew
  bool gives_up = false;  // the last worker forgets its own work after step 8
};

QuadraticLoop::Options small_model(const Case& run, int worker) {
  QuadraticLoop::Options options;
  options.tensors = {{kNoLayer, run.first_tensor},
                     {0, 300},
                     {0, 70},
                     {1, 33},
                     {2, 1},
                     {3, 64},
                     {3, 9},
                     {kNoLayer, 5}};
  options.center = 0.25f * static_cast<float>(worker);
  options.noise = 0.5f;
  options.worker = worker;
  if (run.diverges && worker == run.workers - 1) {
    options.poisoned_step = 6;
    options.poison = [](std::span<float> values) { values[3] = std::nanf(""); };
  }
  if (run.outlier && worker == run.workers - 1) {
    options.poisoned_step = 17;
    options.poison = [](std::span<float> values) { values[3] = 1e9f; };
  }
  return options;
}

/// Of one worker.
struct Outcome {
  std::vector<float> anchors, local;
  std::vector<std::vector<std::byte>> sent;
  std::vector<double> weights;
  std::vector<std::string> rounds;
  std::int64_t elements_read = 0;  // by its strategies
  int slips = 0;
  int passes_again = 0;
};

std::string text_of(const RoundReport& r) {
  const auto bits = [](std::optional<double> x) { return x ? fmt::format("{:a}", *x) : "none"; };
  return fmt::format("{} {} {} {} {} {} {:a} {} {}", r.fragment.value(), r.sent.value(),
                     r.applied.value(), r.members, r.counted, r.payload_bytes, r.delta_norm,
                     bits(r.codec_error), bits(r.cosine));
}

struct Result {
  std::vector<Outcome> outcomes;
  std::vector<MemoryState> stopped;
};

/// With the state in one place to the stop, then in another.
Result train(const Case& run, Place first, Place then) {
  const auto workers = static_cast<std::size_t>(run.workers);
  Result result{std::vector<Outcome>(workers), std::vector<MemoryState>(workers)};
  std::vector<std::vector<float>> values(workers);
  for (const int until : {kStop, kSteps}) {
    run_in_process(run.workers, [&](WorkerContext& context) {
      const auto w = static_cast<std::size_t>(context.rank.value());
      Outcome& outcome = result.outcomes[w];
      QuadraticLoop real(small_model(run, context.rank.value()));
      if (until == kSteps) real.set(values[w]);
      ResidentLoop inner(real);
      LosingExchange losing(context.exchange, run.lost);
      RecordingExchange exchange(w == 1 ? static_cast<Exchange&>(losing) : context.exchange);
      const auto strategy =
          make_strategy(until == kStop ? first : then, run.method, run.outer, inner, exchange);
      const auto keep = [&](const std::vector<RoundReport>& rounds) {
        for (const RoundReport& round : rounds) outcome.rounds.push_back(text_of(round));
      };
      if (until == kSteps) strategy->load(result.stopped[w]);
      while (strategy->steps().value() < until) {
        keep(strategy->step().rounds);
        if (run.gives_up && w + 1 == workers && strategy->steps().value() == 8) {
          strategy->forget_own_work();
        }
      }
      if (until == kSteps) {
        keep(strategy->finish());
        outcome.anchors = anchors_of(*strategy, inner);
      } else {
        keep(outer::apply_late(*strategy));
        strategy->save(result.stopped[w]);
      }
      outcome.elements_read += inner.elements_read();
      outcome.slips += exchange.slips;
      outcome.passes_again += inner.passes_again();
      inner.read_values(isthmus::all_elements(inner));
      values[w].clear();
      for (const Parameter& parameter : inner.parameters()) {
        values[w].insert(values[w].end(), parameter.values.begin(), parameter.values.end());
      }
      outcome.local = values[w];
      outcome.sent.insert(outcome.sent.end(), exchange.sent.begin(), exchange.sent.end());
      outcome.weights.insert(outcome.weights.end(), exchange.weights.begin(),
                             exchange.weights.end());
    });
  }
  return result;
}

/// Without the bytes in flight that are withheld: they may hold a NaN, whose payload is the
/// machine's.
MemoryState without_withheld(MemoryState state) {
  for (std::int64_t i = 0; i < state.integer("in_flight"); ++i) {
    const std::string prefix = fmt::format("in_flight/{}/", i);
    if (state.real(prefix + "weight") == 0) {
      state.overwrite(prefix + "encoded", std::vector<std::byte>());
    }
  }
  return state;
}

void expect_same(const Result& expected, const Result& result) {
  for (std::size_t w = 0; w < expected.outcomes.size(); ++w) {
    const Outcome& a = expected.outcomes[w];
    const Outcome& b = result.outcomes[w];
    ASSERT_FALSE(a.sent.empty());
    EXPECT_TRUE(cuda::same_bits(a.anchors, b.anchors)) << "worker " << w;
    EXPECT_TRUE(cuda::same_bits(a.local, b.local)) << "worker " << w;
    EXPECT_EQ(a.weights, b.weights) << "worker " << w;
    EXPECT_EQ(a.rounds, b.rounds) << "worker " << w;
    EXPECT_TRUE(without_withheld(expected.stopped[w]) == without_withheld(result.stopped[w]))
        << "worker " << w;
    ASSERT_EQ(a.sent.size(), b.sent.size());
    for (std::size_t i = 0; i < a.sent.size(); ++i) {
      // As without_withheld.
      const bool counts = a.weights[i] > 0;
      EXPECT_TRUE(!counts || a.sent[i] == b.sent[i]) << "worker " << w << " send " << i;
    }
  }
}

class OuterPlacementOnDevice : public cuda::DeviceTest {};

std::vector<Case> rules() {
  using enum LostContribution;
  return {
      {.method = "localsgd", .outer = {.H = 5}},
      {.method = "diloco", .outer = {.H = 5}, .gives_up = true},
      {.method = "diloco", .outer = {.H = 5, .final_sync = FinalSync::kFull}, .lost = {10}},
      {.method = "diloco", .outer = {.H = 5, .nesterov = false, .carry = kStay}, .lost = {10}},
      {.method = "diloco",
       .outer = {.H = 5, .codec = "int8:64:ef", .carry = kRollback},
       .lost = {10, 15}},
      {.method = "streaming-diloco",
       .outer = {.H = 7, .fragments = 3, .overlap = 4, .alpha = 0.25, .codec = "fp4-e3m0:64:ef"},
       .gives_up = true},
      {.method = "streaming-diloco",
       .outer = {.H = 6, .momentum_every = 3, .fragments = 2, .overlap = 5},
       .diverges = true,
       .again = true},
      {.method = "streaming-diloco",
       .outer = {.H = 7, .fragments = 2, .overlap = 3, .alpha = 0.25, .codec = "1bit:ef"},
       .lost = {7, 14, 17},
       .diverges = true},
      {.method = "streaming-diloco",
       .outer = {.H = 7, .fragments = 2, .overlap = 3, .alpha = 1, .codec = "topk:64:ef"},
       .lost = {7, 14}},
      {.method = "streaming-diloco",
       .outer = {.H = 7,
                 .fragments = 2,
                 .overlap = 3,
                 .alpha = 0.5,
                 .codec = "int4:64:ef",
                 .late = LateRound::kSlip},
       .lost = {14}},
      {.method = "diloco", .outer = {.H = 2, .codec = "int8:64:ef"}, .outlier = true},
      {.method = "streaming-diloco",
       .outer = {.H = 2, .overlap = 1, .alpha = 0.25, .codec = "int8:64:ef"},
       .outlier = true,
       .again = true},
      {.method = "streaming-diloco",
       .outer = {.H = 4,
                 .fragments = 2,
                 .offsets = OffsetsZero(),
                 .overlap = 2,
                 .alpha = 0.25,
                 .codec = "int4:64:ef"},
       .lost = {8},
       .diverges = true,
       .again = true},
  };
}

TEST_F(OuterPlacementOnDevice, RunsAreThoseOfTheHost) {
  for (const Case& run : rules()) {
    SCOPED_TRACE(fmt::format("{} {} {}", run.method, run.outer.codec, run.outer.H));
    const Result host = train(run, Place::kHost, Place::kHost);
    const Result device = train(run, Place::kDevice, Place::kDevice);
    expect_same(host, device);
    expect_same(host, train(run, Place::kHost, Place::kDevice));
    expect_same(host, train(run, Place::kDevice, Place::kHost));
    expect_same(host, train(run, Place::kUnlike, Place::kUnlike));
    expect_same(host, train(run, Place::kBlocking, Place::kPinned));
    const Result pinned = train(run, Place::kPinned, Place::kPinned);
    expect_same(host, pinned);
    EXPECT_EQ(host.outcomes.back().slips > 0, run.outer.late == LateRound::kSlip);
    EXPECT_EQ(std::ranges::count(host.outcomes.back().weights, 0) > 0,
              run.diverges || run.outlier || run.gives_up);
    EXPECT_EQ(device.outcomes.back().passes_again > 0, run.again);
    EXPECT_EQ(pinned.outcomes.back().passes_again > 0, run.again);
    for (const Outcome& outcome : host.outcomes) EXPECT_GT(outcome.elements_read, 0);
    for (const Outcome& outcome : device.outcomes) EXPECT_EQ(outcome.elements_read, 0);
    for (const Outcome& outcome : pinned.outcomes) EXPECT_EQ(outcome.elements_read, 0);
  }
}

class CodecPlacedOnDevice : public cuda::DeviceTest,
                            public ::testing::WithParamInterface<std::string> {};

TEST_P(CodecPlacedOnDevice, GivesTheBytesOfTheHost) {
  Case run{.method = "streaming-diloco",
           .outer = {.H = 5, .fragments = 2, .overlap = 2, .alpha = 0.5, .codec = GetParam()},
           .workers = 2,
           .first_tensor = 4200};
  expect_same(train(run, Place::kHost, Place::kHost), train(run, Place::kDevice, Place::kPinned));
}

/// Every codec of the table, with error feedback where it can have it.
std::vector<std::string> all_codecs() {
  std::vector<std::string> spellings = {"int8:256:rounding=stochastic",
                                        "int4:64:rounding=stochastic:ef"};
  for (const CodecInfo& info : codecs()) {
    spellings.push_back(info.name);
    if (info.name != "fp32") spellings.push_back(info.name + ":ef");
  }
  return spellings;
}

INSTANTIATE_TEST_SUITE_P(All, CodecPlacedOnDevice, ::testing::ValuesIn(all_codecs()),
                         [](const auto& param) {
                           return isthmus::testing_support::test_name(param.param);
                         });

TEST_F(OuterPlacementOnDevice, RefusesWhatHasNoFormThere) {
  QuadraticLoop real({.tensors = {{0, 5}}});
  ResidentLoop inner(real);
  const auto refusal = [&](const std::string& method, const OuterOptions& options) {
    std::string text;
    run_in_process(1, [&](WorkerContext& context) {
      try {
        static_cast<void>(make_strategy(Place::kDevice, method, options, inner, context.exchange));
      } catch (const ConfigError& error) {
        text = error.what();
      }
    });
    return text;
  };
  for (const MethodInfo& info : methods()) {
    Config config;
    config.method = info.name;
    const std::string text = refusal(info.name, {});
    EXPECT_EQ(placement_obstacle(config).has_value(), !text.empty()) << info.name;
    if (text.empty()) continue;
    for (const char* const word : {"outer.placement", info.name.c_str(), "host", "diloco"}) {
      EXPECT_NE(text.find(word), std::string::npos) << text;
    }
  }
}

}  // namespace
}  // namespace isthmus::this_file
