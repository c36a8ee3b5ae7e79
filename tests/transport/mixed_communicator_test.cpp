// SPDX-License-Identifier: Apache-2.0
// The table of back ends and the communicator that goes by it.
#include "transport/collectives/mixed_communicator.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <thread>

#include "core/base/rng.h"
#include "isthmus/errors.h"
#include "transport/collectives/collective_timing.h"
#include "transport/collectives/thread_communicator.h"
#include "transport/rank_values.h"

namespace isthmus::this_file {
namespace {

using std::chrono_literals::operator""s;
using ::testing::HasSubstr;
using testing_support::Buffer;
using testing_support::naive_reduction;
using testing_support::values_of;

MeasuredCall measured(int ranks, Operation operation, const char* backend, std::int64_t bytes,
                      double us) {
  MeasuredCall call;
  call.ranks = ranks;
  call.operation = operation;
  call.backend = backend;
  call.bytes = bytes;
  call.us = us;
  return call;
}

/// "left" is faster for small values of one kind and large ones of another, and so on.
MixTable both_sides(int ranks) {
  return MixTable(ranks, {measured(ranks, Operation::kAllReduce, "left", 64, 1),
                          measured(ranks, Operation::kAllReduce, "right", 64, 2),
                          measured(ranks, Operation::kAllReduce, "left", 16384, 20),
                          measured(ranks, Operation::kAllReduce, "right", 16384, 10),
                          measured(ranks, Operation::kBroadcast, "left", 64, 2),
                          measured(ranks, Operation::kBroadcast, "right", 64, 1),
                          measured(ranks, Operation::kBroadcast, "left", 16384, 10),
                          measured(ranks, Operation::kBroadcast, "right", 16384, 20),
                          measured(ranks, Operation::kAllToAll, "left", 64, 2),
                          measured(ranks, Operation::kAllToAll, "right", 64, 1),
                          measured(ranks, Operation::kAllToAll, "left", 16384, 10),
                          measured(ranks, Operation::kAllToAll, "right", 16384, 20),
                          measured(ranks, Operation::kAllGather, "right", 64, 20),
                          measured(ranks, Operation::kSend, "right", 64, 20)});
}

void run_mixed(int size, const std::function<void(Communicator&)>& body) {
  auto left = make_thread_communicators(size, 120s);
  auto right = make_thread_communicators(size, 120s);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < left.size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        std::vector<NamedCommunicator> sides;
        sides.push_back({"left", std::move(left[rank])});
        sides.push_back({"right", std::move(right[rank])});
        const auto mixed = make_mixed_communicator(std::move(sides), both_sides(size));
        body(*mixed);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(MixTable, ChoosesTheFastestWhereTimesAreLinesBetweenMeasuredSizes) {
  const MixTable table = both_sides(2);
  const std::vector<std::string> sides = {"left", "right"};
  const MixChoices choices = table.choices(2, sides);
  const auto chosen = [&](Operation operation, std::int64_t bytes) {
    return sides[choices.of(operation, bytes)];
  };
  EXPECT_EQ(chosen(Operation::kAllReduce, 0), "left");
  EXPECT_EQ(chosen(Operation::kAllReduce, 64), "left");
  EXPECT_EQ(chosen(Operation::kAllReduce, 1547), "left");  // 2.7266 against 2.7270
  EXPECT_EQ(chosen(Operation::kAllReduce, 1548), "right");
  EXPECT_EQ(chosen(Operation::kAllReduce, 1 << 30), "right");
  EXPECT_EQ(table.choices(2, {"left"}).of(Operation::kAllReduce, 1 << 30), 0U);
  EXPECT_EQ(chosen(Operation::kBarrier, 0), "left");  // not measured: the first
  EXPECT_EQ(chosen(Operation::kAllGather, 5), "right");
}

TEST(MixTable, AtEverySizeOfManyTablesNobodyIsFaster) {
  const std::vector<std::string> names = {"a", "b", "c", "d"};
  const Rng random(5, Stream::kTestData);
  std::uint64_t drawn = 0;
  const auto draw = [&](int below) {
    return static_cast<int>(random.below(static_cast<std::uint64_t>(below), drawn++));
  };
  int crossings = 0;
  for (int trial = 0; trial < 300; ++trial) {
    // Few values, so that lines often meet in one point, at a measured size or between.
    std::map<std::int64_t, std::vector<double>> times;
    for (int size = 0, bytes = draw(5); size < 3; ++size, bytes += 2 + draw(30)) {
      for (std::size_t i = 0; i < names.size(); ++i) times[bytes].push_back(1 + draw(6));
    }
    MixTable table(2, {});
    for (const auto& [bytes, us] : times) {
      for (std::size_t i = 0; i < names.size(); ++i) {
        table.add(measured(2, Operation::kAllReduce, names[i].c_str(), bytes, us[i]));
      }
    }
    const MixChoices choices = table.choices(2, names);
    for (auto here = times.begin(), next = std::next(here); next != times.end(); ++here, ++next) {
      std::size_t before = choices.of(Operation::kAllReduce, here->first);
      for (std::int64_t bytes = here->first; bytes <= next->first; ++bytes) {
        const double at = static_cast<double>(bytes - here->first) /
                          static_cast<double>(next->first - here->first);
        const auto us = [&](std::size_t i) {
          return here->second[i] + at * (next->second[i] - here->second[i]);
        };
        const std::size_t chosen = choices.of(Operation::kAllReduce, bytes);
        for (std::size_t i = 0; i < names.size(); ++i) EXPECT_LE(us(chosen), us(i) + 1e-9);
        crossings += chosen != before ? 1 : 0;
        before = chosen;
      }
    }
  }
  EXPECT_GT(crossings, 300);
}

TEST(MixTable, BetweenTwoSizesOnlyWhoWasMeasuredAtBothIsChosen) {
  const MixTable table(2, {measured(2, Operation::kAllReduce, "left", 100, 1),
                           measured(2, Operation::kAllReduce, "right", 100, 2),
                           measured(2, Operation::kAllReduce, "right", 200, 2),
                           measured(2, Operation::kAllReduce, "left", 300, 1)});
  const MixChoices choices = table.choices(2, {"left", "right"});
  EXPECT_EQ(choices.of(Operation::kAllReduce, 100), 0U);
  EXPECT_EQ(choices.of(Operation::kAllReduce, 101), 1U);
  EXPECT_EQ(choices.of(Operation::kAllReduce, 299), 1U) << "nobody was";
  EXPECT_EQ(choices.of(Operation::kAllReduce, 300), 0U);
}

TEST(MixTable, AnAllToAllGoesByWhatARankGives) {
  EXPECT_EQ(call_bytes(all_to_all_call(Dtype::kF32, 600), 3), 800);
  EXPECT_EQ(call_bytes(broadcast_call({nullptr, 600, Dtype::kF32}, 0), 3), 2400);
}

TEST(MixTable, AGroupGoesByTheNearestSizeOfGroupsThatWasMeasured) {
  MixTable table(8, {});
  for (const int ranks : {2, 8}) {
    table.add(measured(ranks, Operation::kAllReduce, "left", 64, ranks == 2 ? 1 : 4));
    table.add(measured(ranks, Operation::kAllReduce, "right", 64, 2));
  }
  table.add(measured(8, Operation::kBroadcast, "right", 64, 2));
  const auto all_reduce_of = [&](int ranks) {
    return table.choices(ranks, {"left", "right"}).of(Operation::kAllReduce, 64);
  };
  EXPECT_EQ(all_reduce_of(2), 0U);
  EXPECT_EQ(all_reduce_of(3), 0U);
  EXPECT_EQ(all_reduce_of(6), 1U);
  EXPECT_EQ(all_reduce_of(8), 1U);
  EXPECT_EQ(table.choices(2, {"left", "right"}).of(Operation::kBroadcast, 64), 1U);
  EXPECT_TRUE(table.has_times_of(2));
  EXPECT_FALSE(table.has_times_of(4));
}

// Messages keep their order only if their size does not choose.
TEST(MixTable, WithoutASizeTheOneThatIsLeastBehindIsChosen) {
  const MixTable table(2, {measured(2, Operation::kSend, "left", 64, 1),
                           measured(2, Operation::kSend, "right", 64, 2),
                           measured(2, Operation::kSend, "left", 16384, 1000),
                           measured(2, Operation::kSend, "right", 16384, 100),
                           measured(2, Operation::kSend, "third", 64, 0.5)});
  const MixChoices choices = table.choices(2, {"left", "third", "right"});
  EXPECT_EQ(choices.of_kind(Operation::kSend), 2U);
  EXPECT_EQ(choices.of_kind(Operation::kAllToAll), 0U);  // not measured
}

TEST(MixTable, ItsFileComesBack) {
  const MixTable table = both_sides(3);
  const MixTable again = parse_mix_table(table.json(), "table");
  EXPECT_EQ(again.ranks(), 3);
  EXPECT_EQ(again.measured(), table.measured());
  EXPECT_EQ(again.digest(), table.digest());
  MixTable other = table;
  other.add(measured(3, Operation::kAllReduce, "left", 64, 1.5));
  EXPECT_EQ(other.measured().size(), table.measured().size());
  EXPECT_NE(other.digest(), table.digest());
  // Files of version 1 are of one group.
  const MixTable old =
      parse_mix_table(R"({"isthmus": "collectives", "version": 1, "ranks": 2, "measured": [)"
                      R"({"operation": "barrier", "backend": "mpi", "bytes": 0, "us": 2}]})",
                      "old");
  EXPECT_EQ(old.measured(),
            std::vector<MeasuredCall>{measured(2, Operation::kBarrier, "mpi", 0, 2)});
}

TEST(MixTable, BadFilesAreRefusedByName) {
  const auto error_of = [](const std::string& text) -> std::string {
    try {
      (void)parse_mix_table(text, "t.json");
    } catch (const SystemError& error) {
      return error.what();
    }
    return "no error";
  };
  const auto file = [](const std::string& rows, const std::string& more = "") {
    return R"({"isthmus": "collectives", "version": 1, "ranks": 2, "measured": [)" + rows + "]" +
           more + "}";
  };
  const std::string row = R"({"operation": "barrier", "backend": "mpi", "bytes": 0, "us": 2})";
  const auto groups = [](const std::string& ranks) {
    return R"({"isthmus": "collectives", "version": 2, "ranks": 2, "measured": [{)" + ranks +
           R"("operation": "barrier", "backend": "mpi", "bytes": 0, "us": 2}]})";
  };
  EXPECT_EQ(error_of(groups(R"("ranks": 1, )")), "no error");
  EXPECT_THAT(error_of(groups("")), HasSubstr("'ranks' is missing"));
  EXPECT_THAT(error_of(groups(R"("ranks": 3, )")), HasSubstr("'ranks' is 3: must be in [1, 2]"));
  EXPECT_EQ(error_of(file(row)), "no error");
  EXPECT_THAT(error_of("{"), HasSubstr("t.json: not valid JSON"));
  EXPECT_THAT(error_of("[]"), HasSubstr("must be an object"));
  EXPECT_THAT(error_of(R"({"isthmus": "run"})"), HasSubstr("no table of back ends"));
  EXPECT_THAT(error_of(file(row, R"(, "extra": 1)")), HasSubstr("no key 'extra'"));
  EXPECT_THAT(error_of(file(row + "," + row)), HasSubstr("measured[1] was measured before"));
  const std::vector<std::pair<std::string, std::string>> rows = {
      {R"({"operation": "sum", "backend": "mpi", "bytes": 0, "us": 2})", "no operation 'sum'"},
      {R"({"operation": "barrier", "backend": "", "bytes": 0, "us": 2})", "'backend' is empty"},
      {R"({"operation": "barrier", "backend": "mpi", "bytes": -1, "us": 2})", "'bytes' is -1"},
      {R"({"operation": "barrier", "backend": "mpi", "bytes": 18446744073709551615, "us": 2})",
       "'bytes' is 18446744073709551615"},
      {R"({"operation": "barrier", "backend": "mpi", "bytes": 0, "us": 0})", "'us' must be above"},
      {R"({"operation": "barrier", "backend": "mpi", "bytes": 0})", "'us' is missing"},
      {R"({"operation": "barrier", "backend": "mpi", "bytes": 0, "us": 2, "a": 1})", "no key 'a'"}};
  for (const auto& [bad, words] : rows) {
    EXPECT_THAT(error_of(file(bad)), ::testing::AllOf(HasSubstr("measured[0]"), HasSubstr(words)));
  }
}

TEST(MixedCommunicator, TenThousandCallsOfAllKindsAndSizes) {
  constexpr int kSize = 3;
  constexpr int kCalls = 10000;
  const std::vector<std::string> sides = {"left", "right"};
  std::int64_t on_left = 0;
  run_mixed(kSize, [&](Communicator& ranks) {
    const MixChoices choices = both_sides(kSize).choices(kSize, sides);
    std::uint64_t state = 7;  // the same on all ranks
    const auto draw = [&](std::uint64_t below) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      return static_cast<std::int64_t>((state >> 33) % below);
    };
    std::vector<std::int64_t> values(4000);
    std::vector<std::int64_t> all(4000 * kSize);
    std::int64_t left = 0;
    std::int64_t wrong = 0;
    for (int call = 0; call < kCalls; ++call) {
      const std::int64_t count = draw(8) == 0 ? draw(4000) : draw(40);
      const auto root = static_cast<int>(draw(kSize));
      const std::int64_t base = draw(1000);
      std::fill_n(values.begin(), count, base + ranks.rank());
      const Values mine{values.data(), count, Dtype::kI64};
      const ConstValues own{values.data(), count, Dtype::kI64};
      switch (draw(6)) {
        case 0:
          left += choices.of(Operation::kAllReduce, count * 8) == 0 ? 1 : 0;
          ranks.all_reduce(mine, Reduce::kSum);
          wrong += count > 0 && values[static_cast<std::size_t>(count) - 1] != 3 * base + 3;
          break;
        case 1:
          left += choices.of(Operation::kBroadcast, count * 8) == 0 ? 1 : 0;
          ranks.broadcast(mine, root);
          wrong += count > 0 && values[static_cast<std::size_t>(count) - 1] != base + root;
          break;
        case 2: {
          const std::vector<std::int64_t> shares(kSize, count);
          ranks.all_gather(own, shares, {all.data(), count * kSize, Dtype::kI64});
          wrong += count > 0 && all[static_cast<std::size_t>(count * root)] != base + root;
          break;
        }
        case 3: {
          const std::vector<std::int64_t> shares(kSize, count / kSize);
          const std::int64_t given = count / kSize * kSize;
          const bool known = draw(2) == 0;
          if (known) left += choices.of(Operation::kAllToAll, given * 8) == 0 ? 1 : 0;
          ranks.all_to_all({values.data(), given, Dtype::kI64}, shares,
                           {all.data(), given, Dtype::kI64}, shares, known ? given * kSize : 0);
          wrong += given > 0 && all[static_cast<std::size_t>(count / kSize * root)] != base + root;
          break;
        }
        case 4:
          ranks.send(own, (ranks.rank() + 1) % kSize, call % 3);
          ranks.receive({all.data(), count, Dtype::kI64}, (ranks.rank() + 2) % kSize, call % 3);
          wrong += count > 0 && all[0] != base + (ranks.rank() + 2) % kSize;
          break;
        default:
          ranks.barrier();
      }
    }
    EXPECT_EQ(wrong, 0);
    if (ranks.rank() == 0) on_left = left;
  });
  // Of some 4,000 calls whose size decides, each side has its part.
  EXPECT_GT(on_left, 1000);
  EXPECT_LT(on_left, 3000);
}

TEST(MixedCommunicator, StartsSplitsAndSumsInRankOrder) {
  run_mixed(4, [](Communicator& ranks) {
    const auto pair = ranks.split(ranks.rank() / 2, 0);
    ASSERT_EQ(pair->size(), 2);
    EXPECT_EQ(pair->backend(), "mixed");
    for (const std::int64_t count : {10, 9000}) {
      std::vector<Buffer> inputs;
      for (int rank = 0; rank < 2; ++rank) inputs.push_back(values_of(Dtype::kF32, count, rank, 1));
      Buffer mine = inputs[static_cast<std::size_t>(pair->rank())];
      const auto work =
          pair->start([&](Communicator& self) { self.all_reduce(mine.values(), Reduce::kSum); });
      ranks.barrier();
      work->wait();
      EXPECT_EQ(mine, naive_reduction(inputs, Reduce::kSum));
    }
  });
}

TEST(MixedCommunicator, AnErrorOfOneBackEndEndsAll) {
  run_mixed(2, [](Communicator& ranks) {
    float value = 0;
    if (ranks.rank() == 0) {
      // In "left", while the other rank waits in "right".
      EXPECT_THROW(ranks.all_reduce({&value, -1, Dtype::kF32}, Reduce::kSum), CommunicatorError);
    }
    EXPECT_THROW(ranks.broadcast({&value, 1, Dtype::kF32}, 0), CommunicatorError);
    EXPECT_THROW(ranks.all_reduce({&value, 1, Dtype::kF32}, Reduce::kSum), CommunicatorError);
  });
}

TEST(MixedCommunicator, UnlikeTablesAreRefused) {
  auto ranks = make_thread_communicators(2, 120s);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      MixTable table = both_sides(2);
      if (rank == 1) table.add(measured(2, Operation::kBarrier, "left", 0, 1));
      std::vector<NamedCommunicator> only;
      only.push_back({"left", std::move(ranks[rank])});
      EXPECT_THROW((void)make_mixed_communicator(std::move(only), table), CommunicatorError);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<NamedCommunicator> only;
  only.push_back({"left", make_self_communicator()});
  EXPECT_THROW((void)make_mixed_communicator(std::move(only), both_sides(2)), CommunicatorError);
}

}  // namespace
}  // namespace isthmus::this_file
