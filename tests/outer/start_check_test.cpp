// SPDX-License-Identifier: Apache-2.0
// What the library checks of a caller's inner loops: their tensors, the methods they implement,
// equal starts on all workers, equally many rounds.
#include "outer/parts/start_check.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "isthmus/errors.h"
#include "isthmus/outer.h"
#include "outer/toy_loops.h"

namespace isthmus::this_file {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing_support::Drift;
using testing_support::MemoryState;
using testing_support::QuadraticLoop;

/// Two tensors that a test may spoil.
class Tensors {
 public:
  Tensors()
      : parameters_{
            {.name = "a", .layer = 0, .shape = {2, 2}, .elements = {0, 4}, .values = first_},
            {.name = "b",
             .layer = kNoLayer,
             .shape = {3},
             .elements = {4, 7},
             .values = second_}} {}

  /// RETURNS: what the tensors are refused with; empty: they are not.
  std::string refusal_after(const std::function<void(std::vector<Parameter>&)>& spoil) {
    std::vector<Parameter> spoiled = parameters_;
    spoil(spoiled);
    try {
      outer::check_parameters(spoiled);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  }

 private:
  std::vector<float> first_ = std::vector<float>(4), second_ = std::vector<float>(3);
  std::vector<Parameter> parameters_;
};

TEST(Parameters, InTheCanonicalLayoutAreTaken) {
  EXPECT_EQ(Tensors().refusal_after([](auto&) {}), "");
}

TEST(Parameters, ThatBreakTheLayoutAreRefusedByPlaceNameValueAndRule) {
  Tensors tensors;
  using List = std::vector<Parameter>;
  EXPECT_THAT(tensors.refusal_after([](List& p) { p.clear(); }), HasSubstr("there is no tensor"));
  EXPECT_EQ(tensors.refusal_after([](List& p) {
    p[1].elements = {3, 6};
  }),
            "InnerLoop::parameters()[1] (\"b\"): elements = [3, 6): must be [4, 7): the tensors "
            "before it have 4 "
            "values, and its shape [3] holds 3");
  EXPECT_THAT(tensors.refusal_after([](List& p) {
    p[1].elements = {5, 8};
  }),
              HasSubstr("elements = [5, 8)"));
  EXPECT_THAT(tensors.refusal_after([](List& p) {
    p[0].elements = {0, 5};
  }),
              HasSubstr("elements = [0, 5)"));
  EXPECT_THAT(tensors.refusal_after([](List& p) { p[1].name = "a"; }),
              HasSubstr("parameters()[0] has the same name"));
  EXPECT_THAT(tensors.refusal_after([](List& p) { p[0].name = ""; }),
              HasSubstr("its name is empty"));
  EXPECT_THAT(tensors.refusal_after([](List& p) { p[0].layer = -7; }),
              HasSubstr("layer = -7: must be 0 or more"));
  for (const int layer : {std::numeric_limits<int>::max(), 2'000'000'000, kLayerLimit}) {
    EXPECT_THAT(tensors.refusal_after([&](List& p) { p[0].layer = layer; }),
                HasSubstr(fmt::format("layer = {}: must be 0 or more and below 1000000", layer)));
  }
  EXPECT_THAT(tensors.refusal_after([](List& p) { p[1].values = {}; }),
              HasSubstr("values holds 0 numbers: must be the 3 of its shape [3]"));
  EXPECT_THAT(tensors.refusal_after([](List& p) {
    p[0].shape = {2, 0};
  }),
              HasSubstr("shape = [2, 0]"));
  EXPECT_THAT(tensors.refusal_after([](List& p) {
    p[0].shape = {std::int64_t{1} << 32, std::int64_t{1} << 32};
  }),
              HasSubstr("a model has fewer than 2^63 values"));
}

TEST(Parameters, ThatShareMemoryAreRefused) {
  Tensors tensors;
  using List = std::vector<Parameter>;
  EXPECT_THAT(tensors.refusal_after([](List& p) { p[1].values = p[0].values.first(3); }),
              AllOf(HasSubstr("parameters()[1] (\"b\"): its values share memory with those of"),
                    HasSubstr("parameters()[0] (\"a\")")));
  EXPECT_THAT(tensors.refusal_after([](List& p) { p[1].values = p[0].values.subspan(3, 1); }),
              HasSubstr("values holds 1 numbers"));
  std::vector<float> both(6);
  const auto split_at = [&](std::size_t begin) {
    return tensors.refusal_after([&](List& p) {
      p[1].values = std::span(both).first(3);
      p[0].shape = {3};
      p[0].elements = {0, 3};
      p[1].elements = {3, 6};
      p[0].values = std::span(both).subspan(begin, 3);
    });
  };
  EXPECT_THAT(split_at(2), HasSubstr("parameters()[1] (\"b\"): its values share memory"));
  EXPECT_EQ(split_at(3), "");  // neighbours, in whatever order
}

/// RETURNS: what ends a run of three workers in one process, worker 2 made by `other`.
std::string end_of_run(const std::string& method, const OuterOptions& options,
                       const OuterOptions& other, float start_of_other = 2) {
  try {
    run_in_process(3, [&](WorkerContext& context) {
      const bool is_other = context.rank == WorkerId(2);
      QuadraticLoop::Options loop;
      loop.tensors = {{0, 3}, {1, 2}};
      if (is_other) loop.start = start_of_other;
      QuadraticLoop inner(loop);
      const auto strategy =
          make_outer_strategy(method, is_other ? other : options, inner, context.exchange);
      for (int t = 0; t < 4; ++t) (void)strategy->step();
      (void)strategy->finish();
    });
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(Workers, OfOneProcessStartWithEqualSettings) {
  EXPECT_EQ(end_of_run("diloco", {.H = 2}, {.H = 2}), "");
  EXPECT_EQ(end_of_run("diloco", {.H = 2}, {.H = 2, .lr = 0.7, .codec = "fp32"}),
            "");  // the defaults
  EXPECT_THAT(end_of_run("diloco", {.H = 2, .lr = 0.5}, {.H = 2, .lr = 0.25}),
              AllOf(HasSubstr("outer.lr = 0."), HasSubstr("all workers of a run start alike")));
  EXPECT_THAT(end_of_run("diloco", {.H = 2}, {.H = 4}), HasSubstr("outer.H = "));
  EXPECT_THAT(end_of_run("diloco", {.H = 2}, {.H = 2, .nesterov = false}),
              HasSubstr("outer.nesterov = "));
  EXPECT_THAT(end_of_run("streaming-diloco", {.H = 4, .fragments = 2},
                         {.H = 4, .fragments = 2, .offsets = std::vector<std::int64_t>{0, 1}}),
              HasSubstr("outer.offsets = "));
  EXPECT_THAT(end_of_run("spsa", {}, {.spsa = {.run_key = 9}}), HasSubstr("SpsaOptions::run_key"));
}

TEST(Workers, OfOneProcessStartWithEqualParametersInEveryMethod) {
  for (const MethodInfo& method : methods()) {
    if (method.one_worker) continue;
    EXPECT_EQ(end_of_run(method.name, {}, {}), "") << method.name;
    EXPECT_THAT(end_of_run(method.name, {}, {}, 2.5f),
                AllOf(HasSubstr("parameters()[0] before step 1 = \"w0\" of layer 0 and shape [3] "
                                "with values of digest"),
                      HasSubstr("all workers of a run start alike")))
        << method.name;
  }
}

TEST(Workers, StartWithFiniteParametersInEveryMethod) {
  for (const MethodInfo& method : methods()) {
    if (method.one_worker) continue;
    for (const float start :
         {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
      std::string text;
      try {
        run_in_process(2, [&](WorkerContext& context) {
          QuadraticLoop::Options loop;
          loop.start = start;
          QuadraticLoop inner(loop);
          const auto strategy = make_outer_strategy(method.name, {}, inner, context.exchange);
          (void)strategy->step();
        });
      } catch (const ConfigError& error) {
        text = error.what();
      }
      EXPECT_THAT(text, HasSubstr(fmt::format("is {} before step 1: every initial value must be "
                                              "finite",
                                              start)))
          << method.name;
    }
  }
}

// The local parameters of a saved run differ from worker to worker.
TEST(Workers, ThatResumeAWindowHaveUnequalParameters) {
  const OuterOptions options{.H = 4};
  std::vector<MemoryState> saved(2);
  std::vector<std::vector<float>> local(2);
  const auto loop_of = [](const WorkerContext& context) {
    QuadraticLoop::Options loop;
    loop.center = static_cast<float>(context.rank.value());
    return loop;
  };
  run_in_process(2, [&](WorkerContext& context) {
    QuadraticLoop inner(loop_of(context));
    const auto strategy = make_outer_strategy("diloco", options, inner, context.exchange);
    (void)strategy->step();
    const auto me = static_cast<std::size_t>(context.rank.value());
    strategy->save(saved[me]);
    local[me] = inner.all();
  });
  ASSERT_NE(local[0], local[1]);
  run_in_process(2, [&](WorkerContext& context) {
    QuadraticLoop inner(loop_of(context));
    const auto me = static_cast<std::size_t>(context.rank.value());
    inner.set(local[me]);
    const auto strategy = make_outer_strategy("diloco", options, inner, context.exchange);
    strategy->load(saved[me]);
    for (int t = 0; t < 4; ++t) (void)strategy->step();
    EXPECT_EQ(strategy->steps(), StepIndex(5));
  });
}

// Patience is an hour; the test's own limit is minutes.
TEST(Workers, ThatReturnEarlyEndTheRunAtOnce) {
  for (const std::string method : {"diloco", "ddp", "eager", "sparseloco"}) {
    for (const int early : {0, 1, 2}) {
      std::string text;
      try {
        run_in_process(3, [&](WorkerContext& context) {
          QuadraticLoop inner({});
          const OuterOptions options = method == "ddp" ? OuterOptions{} : OuterOptions{.H = 2};
          const auto strategy = make_outer_strategy(method, options, inner, context.exchange);
          const int steps = context.rank == WorkerId(early) ? 4 : 8;
          for (int t = 0; t < steps; ++t) (void)strategy->step();
          if (steps == 8) (void)strategy->finish();
        });
      } catch (const PeerError& error) {
        text = error.what();
      }
      EXPECT_THAT(text, AllOf(HasSubstr(fmt::format("worker {} has ended its run after", early)),
                              HasSubstr("all workers of a run take equally many steps")))
          << method;
    }
  }
}

TEST(Hooks, ThatAMethodNeedsAndTheLoopLacksAreNamed) {
  for (const std::string method : {"ddp", "spsa", "1bit-adam", "01-adam"}) {
    std::string text;
    try {
      run_in_process(2, [&](WorkerContext& context) {
        Drift inner(1.0f);  // train_step alone
        const auto strategy = make_outer_strategy(method, {}, inner, context.exchange);
        (void)strategy->step();
      });
    } catch (const Error& error) {
      text = error.what();
      EXPECT_EQ(error.exit_code(), ExitCode::kConfig);
    }
    EXPECT_THAT(text, AllOf(HasSubstr("InnerLoop::"),
                            HasSubstr("this inner loop does not implement it"), HasSubstr(method)))
        << method;
  }
}

}  // namespace
}  // namespace isthmus::this_file
