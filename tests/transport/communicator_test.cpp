// SPDX-License-Identifier: Apache-2.0
// What every back end of the communicators inside a site promises: results, bits, order.
#include "transport/collectives/communicator.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <numeric>

#include "transport/communicator_world.h"
#include "transport/rank_values.h"

namespace isthmus::this_file {
namespace {

using testing_support::Buffer;
using testing_support::most_ranks;
using testing_support::naive_reduction;
using testing_support::run_ranks;
using testing_support::values_of;

constexpr Dtype kAll[] = {Dtype::kF32, Dtype::kF64, Dtype::kBf16,
                          Dtype::kU8,  Dtype::kI32, Dtype::kI64};
constexpr Dtype kReducible[] = {Dtype::kF32, Dtype::kF64, Dtype::kBf16, Dtype::kI32, Dtype::kI64};
// Below and above what travels inline, odd, and over several blocks of a reduction.
constexpr std::int64_t kCounts[] = {0, 1, 3, 511, 1025, 4099, 20011};

std::vector<Buffer> of_all_ranks(Dtype dtype, std::int64_t count, int size, std::uint64_t seed) {
  std::vector<Buffer> all;
  for (int rank = 0; rank < size; ++rank) all.push_back(values_of(dtype, count, rank, seed));
  return all;
}

/// Unlike shares of `count` values, some of them empty.
std::vector<std::int64_t> uneven(std::int64_t count, int size) {
  std::vector<std::int64_t> shares(static_cast<std::size_t>(size), 0);
  std::int64_t left = count;
  for (int rank = size - 1; rank > 0; --rank) {
    const std::int64_t share = rank % 3 == 1 ? 0 : left * 2 / 3;
    shares[static_cast<std::size_t>(rank)] = share;
    left -= share;
  }
  shares[0] = left;
  return shares;
}

std::int64_t place_in(const std::vector<std::int64_t>& shares, int rank) {
  return std::accumulate(shares.begin(), shares.begin() + rank, std::int64_t{0});
}

class CommunicatorTest : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (size() > most_ranks()) GTEST_SKIP() << size() << " ranks, this job has " << most_ranks();
  }
  static int size() { return GetParam(); }
};

TEST_P(CommunicatorTest, AllReduceHasTheBitsOfThePlainLoop) {
  run_ranks(size(), [](Communicator& ranks) {
    for (const Dtype dtype : kReducible) {
      for (const std::int64_t count : kCounts) {
        const std::vector<Buffer> inputs = of_all_ranks(dtype, count, size(), 1);
        for (const Reduce reduce : {Reduce::kSum, Reduce::kMax}) {
          Buffer mine = inputs[static_cast<std::size_t>(ranks.rank())];
          ranks.all_reduce(mine.values(), reduce);
          EXPECT_EQ(mine, naive_reduction(inputs, reduce)) << dtype_name(dtype) << ' ' << count;
        }
      }
    }
  });
}

TEST_P(CommunicatorTest, ReduceScatterThenAllGatherIsAllReduce) {
  run_ranks(size(), [](Communicator& ranks) {
    for (const Dtype dtype : kReducible) {
      for (const std::int64_t count : kCounts) {
        const std::vector<Buffer> inputs = of_all_ranks(dtype, count, size(), 2);
        const std::vector<std::int64_t> shares = uneven(count, size());
        const Buffer expected = naive_reduction(inputs, Reduce::kSum);
        const Buffer& mine = inputs[static_cast<std::size_t>(ranks.rank())];
        const std::int64_t begin = place_in(shares, ranks.rank());
        const std::int64_t share = shares[static_cast<std::size_t>(ranks.rank())];
        Buffer part(dtype, share);
        ranks.reduce_scatter(mine.constant(), shares, part.values(), Reduce::kSum);
        EXPECT_EQ(part, expected.copy(begin, share)) << dtype_name(dtype) << ' ' << count;
        Buffer whole(dtype, count);
        ranks.all_gather(part.constant(), shares, whole.values());
        EXPECT_EQ(whole, expected) << dtype_name(dtype) << ' ' << count;

        Buffer in_place = mine;
        ranks.reduce_scatter(in_place.constant(), shares, in_place.part(begin, share),
                             Reduce::kSum);
        EXPECT_EQ(in_place.copy(begin, share), part);
        ranks.all_gather(in_place.constant(begin, share), shares, in_place.values());
        EXPECT_EQ(in_place, expected);
      }
    }
  });
}

TEST_P(CommunicatorTest, CutsIntoCallsChangeNoBit) {
  run_ranks(size(), [](Communicator& ranks) {
    for (const Dtype dtype : {Dtype::kF32, Dtype::kBf16}) {
      const std::vector<Buffer> inputs = of_all_ranks(dtype, 9001, size(), 3);
      const Buffer expected = naive_reduction(inputs, Reduce::kSum);
      Buffer mine = inputs[static_cast<std::size_t>(ranks.rank())];
      std::int64_t begin = 0;
      for (const std::int64_t part : {1, 17, 1000, 7000, 983}) {
        ranks.all_reduce(mine.part(begin, part), Reduce::kSum);
        begin += part;
      }
      ASSERT_EQ(begin, mine.count());
      EXPECT_EQ(mine, expected);
    }
  });
}

TEST_P(CommunicatorTest, BroadcastGivesTheRootsBytes) {
  run_ranks(size(), [&](Communicator& ranks) {
    for (const Dtype dtype : kAll) {
      for (const std::int64_t count : kCounts) {
        for (int root = 0; root < size(); ++root) {
          Buffer mine = values_of(dtype, count, ranks.rank(), 4);
          ranks.broadcast(mine.values(), root);
          EXPECT_EQ(mine, values_of(dtype, count, root, 4)) << dtype_name(dtype) << ' ' << count;
        }
      }
    }
  });
}

TEST_P(CommunicatorTest, AllToAllTransposesTheShares) {
  const auto share = [](int from, int to, std::int64_t count) {
    return from == to ? std::int64_t{3} : (from * 5 + to * 3) % 4 * count;
  };
  run_ranks(size(), [&](Communicator& ranks) {
    for (const Dtype dtype : kAll) {
      for (const std::int64_t count : {0, 1, 333}) {
        std::vector<std::int64_t> send;
        std::vector<std::int64_t> receive;
        for (int peer = 0; peer < size(); ++peer) {
          send.push_back(share(ranks.rank(), peer, count));
          receive.push_back(share(peer, ranks.rank(), count));
        }
        const Buffer input = values_of(dtype, place_in(send, size()), ranks.rank(), 5);
        Buffer output(dtype, place_in(receive, size()));
        std::int64_t of_all = 0;  // known, of one dtype not
        for (int from = 0; from < size() && dtype != Dtype::kI32; ++from) {
          for (int to = 0; to < size(); ++to) of_all += share(from, to, count);
        }
        ranks.all_to_all(input.constant(), send, output.values(), receive, of_all);
        for (int peer = 0; peer < size(); ++peer) {
          std::int64_t begin = 0;
          std::int64_t sum = 0;
          for (int to = 0; to < size(); ++to) {
            if (to < ranks.rank()) begin += share(peer, to, count);
            sum += share(peer, to, count);
          }
          const std::int64_t size_of_share = share(peer, ranks.rank(), count);
          EXPECT_EQ(output.copy(place_in(receive, peer), size_of_share),
                    values_of(dtype, sum, peer, 5).copy(begin, size_of_share));
        }
      }
    }
  });
}

TEST_P(CommunicatorTest, MessagesArriveInOrderByTag) {
  if (size() == 1) GTEST_SKIP() << "a rank sends nothing to itself";
  run_ranks(size(), [&](Communicator& ranks) {
    const int next = (ranks.rank() + 1) % size();
    const int previous = (ranks.rank() + size() - 1) % size();
    for (const std::int64_t count : kCounts) {
      // Everybody sends first. Within a tag the order is kept, between tags it is the receiver's.
      for (int i = 0; i < 4; ++i) {
        Buffer message =
            values_of(Dtype::kBf16, count, ranks.rank(), 60 + static_cast<unsigned>(i));
        ranks.send(message.constant(), next, i % 2);
      }
      for (const int i : {1, 0, 3, 2}) {
        Buffer received(Dtype::kBf16, count);
        ranks.receive(received.values(), previous, i % 2);
        EXPECT_EQ(received,
                  values_of(Dtype::kBf16, count, previous, 60 + static_cast<unsigned>(i)));
      }
    }
  });
}

TEST_P(CommunicatorTest, MessagesOfManySendersDoNotMix) {
  run_ranks(size(), [&](Communicator& ranks) {
    for (int round = 0; round < 20; ++round) {
      const auto seed = static_cast<unsigned>(round);
      if (ranks.rank() != 0) {
        ranks.send(values_of(Dtype::kI32, 3000, ranks.rank(), seed).constant(), 0, 5);
        continue;
      }
      for (int peer = size() - 1; peer > 0; --peer) {
        Buffer received(Dtype::kI32, 3000);
        ranks.receive(received.values(), peer, 5);
        EXPECT_EQ(received, values_of(Dtype::kI32, 3000, peer, seed));
      }
    }
  });
}

TEST_P(CommunicatorTest, SplitsNestAndOrderByKey) {
  run_ranks(size(), [&](Communicator& world) {
    const int me = world.rank();
    const std::unique_ptr<Communicator> parity = world.split(me % 2 - 7, -me);  // backwards
    std::vector<int> expected;
    for (int rank = size() - 1; rank >= 0; --rank) {
      if (rank % 2 == me % 2) expected.push_back(rank);
    }
    ASSERT_EQ(parity->size(), static_cast<int>(expected.size()));
    EXPECT_EQ(expected[static_cast<std::size_t>(parity->rank())], me);
    EXPECT_EQ(parity->backend(), world.backend());

    const std::unique_ptr<Communicator> halves =
        parity->split(2 * parity->rank() < parity->size() ? 0 : 1, 0);
    // Calls of all three, interleaved; sums of world ranks.
    for (int round = 0; round < 3; ++round) {
      for (const Communicator* group : {&world, parity.get(), halves.get()}) {
        std::int64_t sum = me;
        const_cast<Communicator*>(group)->all_reduce({&sum, 1, Dtype::kI64}, Reduce::kSum);
        std::vector<std::int64_t> all(static_cast<std::size_t>(group->size()));
        const std::vector<std::int64_t> ones(all.size(), 1);
        const std::int64_t own = me;
        const_cast<Communicator*>(group)->all_gather({&own, 1, Dtype::kI64}, ones,
                                                     {all.data(), group->size(), Dtype::kI64});
        EXPECT_EQ(std::accumulate(all.begin(), all.end(), std::int64_t{0}), sum);
        EXPECT_EQ(all[static_cast<std::size_t>(group->rank())], me);
      }
    }
    const std::unique_ptr<Communicator> alone = halves->split(halves->rank(), 0);
    EXPECT_EQ(alone->size(), 1);
    alone->barrier();
  });
}

TEST_P(CommunicatorTest, StartedOperationsRunInOrderAndBlockingCallsWaitForThem) {
  run_ranks(size(), [&](Communicator& ranks) {
    std::vector<std::vector<float>> values;
    std::vector<std::unique_ptr<Work>> works;
    std::vector<int> order;
    constexpr int kOperations = 12;
    for (int i = 0; i < kOperations; ++i) {
      values.emplace_back(i % 2 == 0 ? 5000u : 3u, static_cast<float>(ranks.rank() + i));
    }
    for (int i = 0; i < kOperations; ++i) {
      works.push_back(ranks.start([&, i](Communicator& self) {
        auto& mine = values[static_cast<std::size_t>(i)];
        self.all_reduce({mine.data(), static_cast<std::int64_t>(mine.size()), Dtype::kF32},
                        Reduce::kSum);
        order.push_back(i);
      }));
    }
    works.back()->wait();
    for (const auto& work : works) EXPECT_TRUE(work->done());
    works.push_back(ranks.start([&](Communicator& self) {
      self.barrier();
      order.push_back(kOperations);
    }));
    ranks.barrier();  // waits for what has been started
    std::vector<int> expected(kOperations + 1);
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_EQ(order, expected);
    for (int i = 0; i < kOperations; ++i) {
      const auto sum = static_cast<float>(size() * (size() - 1) / 2 + i * size());
      EXPECT_THAT(values[static_cast<std::size_t>(i)], ::testing::Each(sum));
    }
  });
}

TEST_P(CommunicatorTest, AWorkThatIsDroppedHasBeenDone) {
  run_ranks(size(), [&](Communicator& ranks) {
    std::int64_t sum = 1;
    {
      const auto work = ranks.start([&](Communicator& self) {
        self.all_reduce({&sum, 1, Dtype::kI64}, Reduce::kSum);
      });
    }
    EXPECT_EQ(sum, size());
    auto failing = ranks.start([](Communicator&) { throw std::runtime_error("of its own"); });
    EXPECT_THROW(failing->wait(), std::runtime_error);
    ranks.barrier();
  });
}

// Ranks that race ahead as far as they can: what one still reads the other must not yet write.
TEST_P(CommunicatorTest, ManyCallsOfAllKindsInARow) {
  run_ranks(size(), [&](Communicator& ranks) {
    std::uint64_t state = 99;  // the same on all ranks
    const auto draw = [&](std::uint64_t below) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      return (state >> 33) % below;
    };
    for (unsigned call = 0; call < 200; ++call) {
      const auto count = static_cast<std::int64_t>(draw(2) == 0 ? draw(20) : draw(3000));
      const std::uint64_t kind = draw(4);
      const int root = static_cast<int>(draw(static_cast<std::uint64_t>(size())));
      Buffer mine = values_of(Dtype::kF32, count, ranks.rank(), call);
      if (kind == 0) {
        ranks.all_reduce(mine.values(), Reduce::kSum);
        EXPECT_EQ(mine,
                  naive_reduction(of_all_ranks(Dtype::kF32, count, size(), call), Reduce::kSum));
      } else if (kind == 1) {
        ranks.broadcast(mine.values(), root);
        EXPECT_EQ(mine, values_of(Dtype::kF32, count, root, call));
      } else if (kind == 2) {
        const std::vector<std::int64_t> shares(static_cast<std::size_t>(size()), count);
        Buffer all(Dtype::kF32, count * size());
        ranks.all_gather(mine.constant(), shares, all.values());
        EXPECT_EQ(all.copy(count * root, count), values_of(Dtype::kF32, count, root, call));
      } else {
        ranks.barrier();
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, CommunicatorTest, ::testing::Values(1, 2, 3, 4, 8));

}  // namespace
}  // namespace isthmus::this_file
