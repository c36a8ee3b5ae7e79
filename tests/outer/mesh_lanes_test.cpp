// SPDX-License-Identifier: Apache-2.0
// Sites whose ranks are processes and have the outer state in lanes: real meshes, by way of the
// mesh's own call to all its ranks, held against the same mesh of threads with the state whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include "inner/zero_test.h"
#include "outer/place/outer_placement.h"
#include "outer/toy_loops.h"

namespace isthmus::this_file {
namespace {

using testing_support::anchors_of;
using State = testing_support::MemoryState;

struct Method {
  std::string name;
  OuterOptions outer;
};

/// One fragment, whose sum of two rounds is the momentum's; three, applied later than sent.
Method method_of(const std::string& name) {
  if (name == "diloco") return {name, {.H = 2, .momentum_every = 2, .codec = "1bit:ef"}};
  return {name, {.H = 4, .fragments = 2, .overlap = 2, .alpha = 0.5, .codec = "int4:ef"}};
}

/// Where a site's outer state is: whole in a process of threads, or in the lanes of processes.
enum class Place { kWhole, kLanes };

struct Saved {
  std::vector<float> local, anchors;
  State inner, strategy;
  bool operator==(const Saved&) const = default;
};

struct Outcome {
  std::vector<double> numbers;  // of steps, rounds and evaluations
  Saved half_way, end;
  bool operator==(const Outcome&) const = default;
};

constexpr int kHalfWay = 5, kEnd = 11;

void load(OuterStrategy& strategy, LanguageModelLoop& loop, Saved& saved) {
  for (const Parameter& p : loop.parameters()) {
    std::copy_n(saved.local.begin() + p.elements.begin, p.values.size(), p.values.begin());
  }
  loop.wrote_values({0, loop.layout().elements()});
  loop.load(saved.inner);
  strategy.load(saved.strategy);
}

/// Goes on to step `until`. Norms of gradients are left out: with ZeRO, ranks that are processes
/// add them up in an order of their own.
void train(OuterStrategy& strategy, LanguageModelLoop& loop, int until, Outcome& outcome) {
  RandomBatches batches(kVocab, 3, 7);
  const TokenBatch unseen = batches.at(StepIndex(900));
  if (until == kEnd) load(strategy, loop, outcome.half_way);
  while (strategy.steps().value() < until) {
    const StepReport step = strategy.step();
    outcome.numbers.push_back(step.inner.loss);
    for (const RoundReport& round : step.rounds) {
      outcome.numbers.insert(outcome.numbers.end(),
                             {static_cast<double>(round.sent.value()), round.delta_norm,
                              round.cosine.value_or(-2), round.codec_error.value_or(-1)});
    }
    if (strategy.steps().value() % 2 == 0) outcome.numbers.push_back(loop.loss(unseen, strategy));
  }
  Saved& saved = until == kEnd ? outcome.end : outcome.half_way;
  saved.anchors = anchors_of(strategy, loop);
  saved.local = all_values(loop);
  loop.save(saved.inner);
  strategy.save(saved.strategy);
}

std::vector<Parameter> without_values(const LanguageModelOptions& options) {
  const ModelLayout layout(model_shape(options.model, options.context));
  std::vector<Parameter> parameters;
  for (const TensorInfo& tensor : layout.tensors()) {
    parameters.push_back({.name = tensor.name,
                          .layer = tensor.layer,
                          .shape = tensor.shape,
                          .elements = tensor.elements});
  }
  return parameters;
}

/// The mesh, and with it a site of one rank that has other samples. RETURNS: what the mesh finds.
Outcome train(const LanguageModelOptions& mesh, const Method& method, Place before, Place after) {
  std::vector<Outcome> found(2);
  for (const int until : {kHalfWay, kEnd}) {
    const Place place = until == kEnd ? after : before;
    run_in_process(2, [&](WorkerContext& context) {
      const auto site = static_cast<std::size_t>(context.rank.value());
      const auto go = [&](const LanguageModelOptions& options) {
        RandomBatches batches(kVocab, options.sequences, options.context);
        LanguageModelLoop loop(options, [&](StepIndex t) {
          return batches.at(StepIndex(t.value() + 100 * context.rank.value()));
        });
        const outer::RanksCall call = [&](const RankService& part) { loop.call_ranks(part); };
        const auto strategy =
            options.processes != nullptr
                ? outer::make_outer_strategy_on_ranks(method.name, method.outer, loop,
                                                      context.exchange, call)
                : make_outer_strategy(method.name, method.outer, loop, context.exchange);
        train(*strategy, loop, until, found[site]);
      };
      if (site == 1) {
        go(on_mesh(with_zero(mesh, 0), {}));
      } else if (place == Place::kWhole) {
        go(mesh);
      } else {
        with_processes(mesh, go, [&](int) {
          return outer::serve_outer_state(method.name, method.outer, without_values(mesh));
        });
      }
    });
  }
  EXPECT_EQ(found[0].end.anchors, found[1].end.anchors);
  return found[0];
}

struct MeshCase {
  const char* name;
  const char* model;
  Case mesh;
  int zero = 0;
  const char* codec_data = "fp32";
};

std::ostream& operator<<(std::ostream& out, const MeshCase& c) { return out << c.name; }

class MeshLanes : public testing::TestWithParam<MeshCase> {};

TEST_P(MeshLanes, HaveTheBitsOfThreadsWithTheStateWhole) {
  LanguageModelOptions mesh =
      with_zero(on_mesh(clipped(GetParam().model), GetParam().mesh), GetParam().zero);
  mesh.rank_codecs.data = GetParam().codec_data;
  for (const char* const name : {"diloco", "streaming-diloco"}) {
    const Method method = method_of(name);
    const Outcome expected = train(mesh, method, Place::kWhole, Place::kWhole);
    ASSERT_GT(expected.numbers.size(), static_cast<std::size_t>(kEnd));
    const Outcome lanes = train(mesh, method, Place::kLanes, Place::kLanes);
    EXPECT_TRUE(lanes.half_way == expected.half_way) << name;
    EXPECT_TRUE(lanes == expected) << name << ", from a checkpoint on";
  }
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, MeshLanes,
    testing::Values(MeshCase{"TiedTable", "gpt2", {"", {.pp = 2}, 2}},
                    MeshCase{"TiedTableZero1", "llama-tied", {"", {.pp = 2, .dp = 2}, 2}, 1},
                    MeshCase{"TiedTableZero3", "gpt2", {"", {.pp = 2, .dp = 2}}, 3},
                    MeshCase{
                        "Zero3", "llama", {"", {.tp = 2, .dp = 2, .sequence_parallel = true}}, 3},
                    MeshCase{"Copies", "llama-two-keys", {"", {.tp = 4}}},
                    MeshCase{"CopiesZero1", "llama-two-keys", {"", {.tp = 4, .dp = 2}}, 1},
                    MeshCase{"UnlikeCopies", "llama-one-key", {"", {.tp = 2, .dp = 2}}, 1, "int8"}),
    [](const auto& at) { return std::string(at.param.name); });

/// Of the calls that `failing` refuses: what each rank says.
std::vector<std::string> said_of_failure(int failing) {
  LanguageModelOptions options = on_mesh(model_of("gpt2"), {"", {.pp = 3}});
  RankThreads ranks(options.mesh, std::chrono::minutes(2));
  const ModelLayout layout(model_shape(options.model, options.context));
  std::vector<std::string> said(3);
  const auto part = [&](int rank) -> RankService {
    return [rank, failing](Communicator& all) {
      if (rank == failing) throw RunError("no room for a lane");
      all.barrier();
    };
  };
  {
    std::vector<std::jthread> others;
    for (int r = 1; r < 3; ++r) {
      others.emplace_back([&, r] {
        LanguageModelOptions own = options;
        own.processes = &ranks[r];
        try {
          serve_mesh(layout, mesh_options(own), ranks[r], part(r));
        } catch (const std::exception& error) {
          said[static_cast<std::size_t>(r)] = error.what();
        }
      });
    }
    options.processes = &ranks[0];
    RandomBatches batches(kVocab, options.sequences, options.context);
    LanguageModelLoop loop(options, batches.provider());
    try {
      loop.call_ranks(part(0));
    } catch (const std::exception& error) {
      said[0] = error.what();
    }
  }
  return said;
}

// Nobody is left waiting, at the first rank or at the others, and all say why.
TEST(MeshCalls, ThatFailAtOneRankEndTheOthersByName) {
  for (const int failing : {0, 1, 2}) {
    for (const std::string& words : said_of_failure(failing)) {
      EXPECT_THAT(words, testing::HasSubstr("no room for a lane")) << failing;
    }
  }
}

}  // namespace
}  // namespace isthmus::this_file
