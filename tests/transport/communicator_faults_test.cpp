// SPDX-License-Identifier: Apache-2.0
// How calls of the communicators inside a site end when something is wrong: every rank hears of it,
// by name, and nobody touches memory of a call that has ended.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "transport/collectives/communicator.h"
#include "transport/communicator_world.h"

namespace isthmus::this_file {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing_support::kLongDeadline;
using testing_support::most_ranks;
using testing_support::run_ranks;
using testing_support::short_deadline;

/// The text of the CommunicatorError that the call throws.
std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const CommunicatorError& error) {
    return error.what();
  }
  return "no error";
}

void sum(Communicator& ranks, std::int64_t count, Dtype dtype = Dtype::kF32) {
  std::vector<double> room(static_cast<std::size_t>(count) + 1);
  ranks.all_reduce({room.data(), count, dtype}, Reduce::kSum);
}

class CommunicatorFaultsTest : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (size() > most_ranks()) GTEST_SKIP() << size() << " ranks, this job has " << most_ranks();
  }
  static int size() { return GetParam(); }
};

TEST_P(CommunicatorFaultsTest, AnAbortReleasesEverybodyAndStays) {
  const std::vector<std::function<void(Communicator&)>> waits = {
      [](Communicator& ranks) { ranks.barrier(); },
      [](Communicator& ranks) { sum(ranks, 1); },
      [](Communicator& ranks) { sum(ranks, 50000); },
      [](Communicator& ranks) {
        int value = 0;
        ranks.receive({&value, 1, Dtype::kI32}, size() - 1, 3);
      },
      [](Communicator& ranks) { (void)ranks.split(0, 0); },
      [](Communicator& ranks) { ranks.start([](Communicator& self) { self.barrier(); })->wait(); },
  };
  for (const auto& wait : waits) {
    run_ranks(size(), [&](Communicator& ranks) {
      std::unique_ptr<Communicator> child;
      const std::string overtaken = error_of([&] { child = ranks.split(0, 0); });
      if (child == nullptr) {  // the last rank was through already
        EXPECT_THAT(overtaken, HasSubstr("the dog ate it"));
        EXPECT_NE(ranks.rank(), size() - 1);
      } else if (ranks.rank() == size() - 1) {
        ranks.abort("the dog ate it");
      } else {
        EXPECT_THAT(
            error_of([&] { wait(ranks); }),
            AllOf(HasSubstr(fmt::format("rank {}", ranks.rank())), HasSubstr("the dog ate it")));
      }
      EXPECT_THAT(error_of([&] { ranks.barrier(); }), HasSubstr("the dog ate it"));
      if (child) {
        EXPECT_THAT(error_of([&] { sum(*child, 3); }), HasSubstr("the dog ate it"));
      }
    });
  }
}

TEST_P(CommunicatorFaultsTest, AnAbortOfAChildLeavesItsParentAlone) {
  run_ranks(size(), [&](Communicator& ranks) {
    const std::unique_ptr<Communicator> child = ranks.split(0, 0);
    if (child->rank() == 0) child->abort("only here");
    EXPECT_THAT(error_of([&] { child->barrier(); }), HasSubstr("only here"));
    sum(ranks, 10);
    const std::unique_ptr<Communicator> next = ranks.split(0, 0);
    sum(*next, 10);
  });
}

TEST_P(CommunicatorFaultsTest, ADeadlineNamesWhoWasWaitedFor) {
  run_ranks(
      size(),
      [&](Communicator& ranks) {
        if (ranks.rank() == 0) {
          // Comes too late: when the group has ended.
          while (error_of([&] {
                   if (ranks.rank() != 0) ranks.barrier();
                   float value = 0;
                   ranks.receive({&value, 1, Dtype::kF32}, size() - 1, 9);
                 }) == "no error") {
          }
          return;
        }
        const std::string error = error_of([&] { sum(ranks, 7); });
        EXPECT_THAT(error, AllOf(HasSubstr("all_reduce (sum) of 7 f32"),
                                 HasSubstr(fmt::format("waited {} ms", short_deadline().count())),
                                 HasSubstr("rank 0")));
      },
      short_deadline());
}

struct Mismatch {
  const char* name;
  std::function<void(Communicator&)> of_first;  // rank 0
  std::function<void(Communicator&)> of_others;
  std::vector<std::string> words;
};

TEST_P(CommunicatorFaultsTest, UnlikeCallsAreNamed) {
  const auto gather = [](Communicator& ranks, std::int64_t extra) {
    std::vector<std::int64_t> counts(static_cast<std::size_t>(ranks.size()), 4);
    counts.front() += extra;
    counts.back() -= extra;
    std::vector<float> all(static_cast<std::size_t>(4 * ranks.size()));
    const std::int64_t own = counts[static_cast<std::size_t>(ranks.rank())];
    const std::vector<float> mine(static_cast<std::size_t>(own));
    ranks.all_gather({mine.data(), own, Dtype::kF32}, counts,
                     {all.data(), static_cast<std::int64_t>(all.size()), Dtype::kF32});
  };
  const auto broadcast = [](int root) {
    return [root](Communicator& ranks) {
      int value = 0;
      ranks.broadcast({&value, 1, Dtype::kI32}, root);
    };
  };
  const auto all_to_all = [](std::int64_t receive, std::int64_t of_all = 0) {
    return [receive, of_all](Communicator& ranks) {
      std::vector<std::int64_t> sent(static_cast<std::size_t>(ranks.size()), 2);
      std::vector<std::int64_t> received = sent;
      received[static_cast<std::size_t>((ranks.rank() + 1) % ranks.size())] = receive;
      std::vector<float> in(sent.size() * 2);
      std::vector<float> out(sent.size() * 2 - 2 + static_cast<std::size_t>(receive));
      ranks.all_to_all({in.data(), static_cast<std::int64_t>(in.size()), Dtype::kF32}, sent,
                       {out.data(), static_cast<std::int64_t>(out.size()), Dtype::kF32}, received,
                       of_all);
    };
  };
  const auto message = [](std::int64_t sent, Dtype dtype) {
    return [sent, dtype](Communicator& ranks) {
      std::vector<double> room(64);
      if (ranks.rank() == 1) {
        ranks.send({room.data(), sent, dtype}, 0, 4);
      } else if (ranks.rank() == 0) {
        ranks.receive({room.data(), 5, Dtype::kF32}, 1, 4);
      }
      ranks.barrier();
    };
  };
  const std::vector<Mismatch> cases = {
      {"operation",
       [](Communicator& ranks) { ranks.barrier(); },
       [](Communicator& ranks) { sum(ranks, 2); },
       {"calls barrier", "calls all_reduce"}},
      {"split",
       [](Communicator& ranks) { ranks.barrier(); },
       [](Communicator& ranks) { (void)ranks.split(0, 0); },
       {"calls barrier", "calls split"}},
      {"count",
       [](Communicator& ranks) { sum(ranks, 2); },
       [](Communicator& ranks) { sum(ranks, 3); },
       {"of 2 f32", "of 3 f32"}},
      {"large count",
       [](Communicator& ranks) { sum(ranks, 20000); },
       [](Communicator& ranks) { sum(ranks, 3); },
       {"of 20000 f32", "of 3 f32"}},
      {"dtype",
       [](Communicator& ranks) { sum(ranks, 2); },
       [](Communicator& ranks) { sum(ranks, 2, Dtype::kF64); },
       {"of 2 f32", "of 2 f64"}},
      {"root", broadcast(0), broadcast(1), {"from rank 0", "from rank 1"}},
      {"shares",
       [&](Communicator& ranks) { gather(ranks, 0); },
       [&](Communicator& ranks) { gather(ranks, 1); },
       {"all_gather", "shares"}},
      {"shares of all to all", all_to_all(2), all_to_all(3), {"all_to_all", "expects 3"}},
      {"size of all to all",
       all_to_all(2, 800),
       all_to_all(2, 801),
       {"all_to_all of 800 f32", "all_to_all of 801 f32"}},
      {"size of a message",
       message(6, Dtype::kF32),
       message(6, Dtype::kF32),
       {"send of 6 f32", "receive of 5 f32"}},
      {"dtype of a message",
       message(5, Dtype::kI32),
       message(5, Dtype::kI32),
       {"send of 5 i32", "receive of 5 f32"}},
  };
  for (const Mismatch& each : cases) {
    run_ranks(size(), [&](Communicator& ranks) {
      const std::string error =
          error_of([&] { (ranks.rank() == 0 ? each.of_first : each.of_others)(ranks); });
      for (const std::string& word : each.words) {
        EXPECT_THAT(error, HasSubstr(word)) << each.name << ", rank " << ranks.rank();
      }
      EXPECT_THAT(error_of([&] { ranks.barrier(); }), HasSubstr(each.words[0]));
    });
  }
}

TEST_P(CommunicatorFaultsTest, BadArgumentsEndTheGroup) {
  const std::vector<std::pair<std::function<void(Communicator&)>, std::string>> cases = {
      {[](Communicator& ranks) { sum(ranks, 3, Dtype::kU8); }, "cannot be reduced"},
      {[](Communicator& ranks) {
         int value = 0;
         ranks.broadcast({&value, 1, Dtype::kI32}, size());
       },
       "no such rank"},
      {[](Communicator& ranks) {
         int value = 0;
         ranks.send({&value, 1, Dtype::kI32}, ranks.rank(), 0);
       },
       "to itself"},
      {[](Communicator& ranks) {
         const std::vector<std::int64_t> counts(static_cast<std::size_t>(size()), 2);
         std::vector<float> room(static_cast<std::size_t>(2 * size()));
         ranks.all_gather({room.data(), 2, Dtype::kF32}, counts,
                          {room.data(), 2 * size() - 1, Dtype::kF32});
       },
       "the counts sum to"},
      {[](Communicator& ranks) {
         const std::vector<std::int64_t> counts(static_cast<std::size_t>(size()), 2);
         std::vector<float> room(static_cast<std::size_t>(4 * size()));
         ranks.all_to_all({room.data(), 2 * size(), Dtype::kF32}, counts,
                          {room.data() + 2 * size(), 2 * size(), Dtype::kF32}, counts, 1);
       },
       "that is less than a rank gives or gets"},
      {[](Communicator& ranks) {
         ranks.start([](Communicator& self) { (void)self.start([](Communicator&) {}); })->wait();
       },
       "cannot start another"},
  };
  for (const auto& [call, words] : cases) {
    run_ranks(size(), [&, &act = call, &text = words](Communicator& ranks) {
      if (ranks.rank() == 0) {
        EXPECT_THAT(error_of([&] { act(ranks); }), HasSubstr(text));
      }
      EXPECT_THAT(error_of([&] { ranks.barrier(); }), HasSubstr(text));
    });
  }
}

// Address and thread sanitizer watch: who has got an error frees its buffer at once.
TEST_P(CommunicatorFaultsTest, NobodyTouchesMemoryOfACallThatHasEnded) {
  for (int round = 0; round < 10; ++round) {
    run_ranks(size(), [&](Communicator& ranks) {
      for (int call = 0; call < 1000; ++call) {
        std::vector<float> values(20000, 1.0f);
        const bool ended = error_of([&] {
                             if (ranks.rank() == round % size() && call == round % 4) {
                               ranks.abort("enough");
                             }
                             ranks.all_reduce({values.data(), 20000, Dtype::kF32}, Reduce::kSum);
                           }) != "no error";
        if (ended) return;
        EXPECT_EQ(values[19999], static_cast<float>(size()));
      }
      ADD_FAILURE() << "the abort was not heard";
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, CommunicatorFaultsTest, ::testing::Values(2, 3, 4));

}  // namespace
}  // namespace isthmus::this_file
