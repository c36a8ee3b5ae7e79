// SPDX-License-Identifier: Apache-2.0
// What is the shared-memory back end's own: sizes beyond a room, what stays behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "isthmus/errors.h"
#include "transport/collectives/shared_memory_communicator.h"
#include "transport/collectives/shared_segment.h"
#include "transport/collectives/thread_communicator.h"
#include "transport/communicator_world.h"
#include "transport/rank_values.h"

namespace isthmus::this_file {
namespace {

using testing_support::Buffer;
using testing_support::naive_reduction;
using testing_support::run_ranks;
using testing_support::values_of;

std::vector<Buffer> of_all_ranks(std::int64_t count, int size) {
  std::vector<Buffer> all;
  for (int rank = 0; rank < size; ++rank) all.push_back(values_of(Dtype::kF32, count, rank, 1));
  return all;
}

// Around one piece, two and many, of a room of 65,536 floats.
TEST(SharedMemory, ValuesOfManyRoomsHaveTheBitsOfThePlainLoop) {
  constexpr int kSize = 3;
  run_ranks(kSize, [](Communicator& ranks) {
    for (const std::int64_t count : {32767, 32768, 32769, 65536, 65537, 200001}) {
      const std::vector<Buffer> inputs = of_all_ranks(count, kSize);
      const Buffer expected = naive_reduction(inputs, Reduce::kSum);
      const Buffer& mine = inputs[static_cast<std::size_t>(ranks.rank())];
      Buffer sum = mine;
      ranks.all_reduce(sum.values(), Reduce::kSum);
      EXPECT_EQ(sum, expected) << count;

      const std::vector<std::int64_t> shares = {count - count / 4, 0, count / 4};
      const std::int64_t begin = ranks.rank() == 0 ? 0 : shares[0];
      const std::int64_t share = shares[static_cast<std::size_t>(ranks.rank())];
      Buffer in_place = mine;
      ranks.reduce_scatter(in_place.constant(), shares, in_place.part(begin, share), Reduce::kSum);
      EXPECT_EQ(in_place.copy(begin, share), expected.copy(begin, share)) << count;
      ranks.all_gather(in_place.constant(begin, share), shares, in_place.values());
      EXPECT_EQ(in_place, expected) << count;

      Buffer root = mine;
      ranks.broadcast(root.values(), 1);
      EXPECT_EQ(root, inputs[1]) << count;
    }
  });
}

TEST(SharedMemory, AnAllToAllOfManyRoomsTransposes) {
  constexpr std::int64_t kCount = 150001;
  run_ranks(2, [](Communicator& ranks) {
    // Rank 0 keeps nothing and gives all, rank 1 gives a little and keeps the rest.
    const std::vector<std::int64_t> of_first = {0, kCount};
    const std::vector<std::int64_t> of_second = {5, kCount - 5};
    const bool first = ranks.rank() == 0;
    const Buffer input = values_of(Dtype::kF32, kCount, ranks.rank(), 7);
    const std::vector<std::int64_t> received =
        first ? std::vector<std::int64_t>{0, 5} : std::vector<std::int64_t>{kCount, kCount - 5};
    Buffer output(Dtype::kF32, received[0] + received[1]);
    ranks.all_to_all(input.constant(), first ? of_first : of_second, output.values(), received,
                     2 * kCount);
    if (first) {
      EXPECT_EQ(output, values_of(Dtype::kF32, kCount, 1, 7).copy(0, 5));
    } else {
      EXPECT_EQ(output.copy(0, kCount), values_of(Dtype::kF32, kCount, 0, 7));
      EXPECT_EQ(output.copy(kCount, kCount - 5), input.copy(5, kCount - 5));
    }
  });
}

std::vector<std::string> names_left() {
  std::vector<std::string> names;
  if (!std::filesystem::exists("/dev/shm")) return names;
  for (const auto& each : std::filesystem::directory_iterator("/dev/shm")) {
    const std::string name = each.path().filename().string();
    if (name.starts_with("isthmus-" + std::to_string(::getpid()) + "-")) names.push_back(name);
  }
  return names;
}

constexpr int kRanks = 4;

/// body(communicator) on each of kRanks threads, over memory that they come by so. THROWS: what all
/// ranks have thrown when they made it.
void with_segments(const SegmentCalls& calls, const std::function<void(Communicator&)>& body) {
  auto ranks = make_thread_communicators(kRanks, testing_support::kLongDeadline);
  std::vector<std::exception_ptr> errors(kRanks);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    threads.emplace_back([&, rank] {
      std::unique_ptr<Communicator> made;
      try {
        made = make_shared_memory_communicator(std::move(ranks[rank]),
                                               testing_support::kLongDeadline, {}, calls);
      } catch (const SystemError&) {
        errors[rank] = std::current_exception();
        return;
      }
      body(*made);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto failed =
      std::ranges::count_if(errors, [](const auto& each) { return each != nullptr; });
  EXPECT_THAT(failed, ::testing::AnyOf(0, kRanks));
  if (errors.front()) std::rethrow_exception(errors.front());
}

TEST(SharedMemory, ItsNameIsGoneAsSoonAsItIsShared) {
  run_ranks(2, [](Communicator& ranks) {
    const auto pair = ranks.split(0, 0);
    pair->barrier();
    EXPECT_THAT(names_left(), ::testing::IsEmpty());
  });
}

TEST(SharedMemory, AGroupOfOneTakesNone) {
  SegmentCalls counted;
  std::atomic<int> made = 0;
  counted.create = [&](std::size_t bytes) {
    ++made;
    return SharedSegment::create(bytes);
  };
  with_segments(counted, [](Communicator& ranks) {
    const auto alone = ranks.split(ranks.rank(), 0);
    float value = 3;
    alone->all_reduce({&value, 1, Dtype::kF32}, Reduce::kSum);
    EXPECT_EQ(value, 3);
    ranks.barrier();  // all have what `alone` is
    ranks.abort("enough");
    EXPECT_THROW(alone->barrier(), CommunicatorError);
  });
  EXPECT_EQ(made, 1);  // of all ranks
}

SharedSegment refused(const char* why) { throw SystemError(why); }

TEST(SharedMemory, WhoCannotHaveItEndsItForAll) {
  SegmentCalls none_made;
  none_made.create = [](std::size_t) { return refused("no room, says the test"); };
  EXPECT_THROW(with_segments(none_made, [](Communicator&) { FAIL() << "there is none"; }),
               SystemError);
  SegmentCalls one_without;
  std::atomic<int> opened = 0;
  one_without.open = [&](const std::string& name, std::size_t bytes) {
    return ++opened == 2 ? refused("not here, says the test") : SharedSegment::open(name, bytes);
  };
  EXPECT_THROW(with_segments(one_without, [](Communicator&) { FAIL() << "one has none"; }),
               SystemError);
  EXPECT_THAT(names_left(), ::testing::IsEmpty());
}

TEST(SharedMemory, WhoCannotHaveThatOfASplitEndsTheSplitForAll) {
  SegmentCalls calls;
  std::atomic<int> opened = 0;  // by all but the first of the whole group, then of its parts
  calls.open = [&](const std::string& name, std::size_t bytes) {
    return ++opened == kRanks ? refused("not here, says the test")
                              : SharedSegment::open(name, bytes);
  };
  with_segments(calls, [](Communicator& ranks) {
    try {
      (void)ranks.split(ranks.rank() / 2, 0);
      ADD_FAILURE() << "rank " << ranks.rank() << " has a part";
    } catch (const SystemError& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("cannot share memory with rank 0"));
    }
    ranks.barrier();  // it lives
  });
  EXPECT_THAT(names_left(), ::testing::IsEmpty());
}

TEST(SharedMemory, ItSaysHowMuchIsFree) {
  try {
    (void)SharedSegment::create(std::size_t{1} << 50);
    ADD_FAILURE() << "there is room";
  } catch (const SystemError& error) {
    EXPECT_THAT(error.what(), ::testing::AllOf(::testing::HasSubstr("for 1125899906842624 bytes"),
                                               ::testing::HasSubstr("are free in /dev/shm")));
  }
  EXPECT_THAT(names_left(), ::testing::IsEmpty());
}

TEST(SharedMemory, ASegmentIsOpenedByItsNameAndSize) {
  SharedSegment made = SharedSegment::create(4096);
  SharedSegment opened = SharedSegment::open(made.name(), 4096);
  made.data()[7] = std::byte{3};
  EXPECT_EQ(opened.data()[7], std::byte{3});
  EXPECT_THROW((void)SharedSegment::open(made.name(), 8192), SystemError);
  const std::string name = made.name();
  made.drop_name();
  EXPECT_THROW((void)SharedSegment::open(name, 4096), SystemError);
  EXPECT_EQ(opened.data()[7], std::byte{3});
}

}  // namespace
}  // namespace isthmus::this_file
