// SPDX-License-Identifier: Apache-2.0
// What is special about communicators between GPUs, over the fake NCCL: where values lie, NaN,
// devices that stand still or fail, and mixing. What all back ends promise is in
// communicator_test.cpp and communicator_faults_test.cpp.
#include "transport/collectives/nccl_communicator.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <numeric>
#include <thread>

#include "isthmus/errors.h"
#include "transport/collectives/mixed_communicator.h"
#include "transport/collectives/nccl_backend.h"
#include "transport/collectives/thread_communicator.h"
#include "transport/communicator_world.h"
#include "transport/fake_cuda.h"
#include "transport/fake_nccl.h"
#include "transport/rank_values.h"

namespace isthmus::this_file {
namespace {

using std::chrono_literals::operator""ms;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing_support::break_fake_device;
using testing_support::Buffer;
using testing_support::fake_nccl;
using testing_support::kFakeDevices;
using testing_support::kLongDeadline;
using testing_support::naive_reduction;
using testing_support::run_fake_ranks;
using testing_support::run_ranks;
using testing_support::stall_fake_device;
using testing_support::take_fake_copies;
using testing_support::values_of;

constexpr int kSize = 3;

/// The device that run_ranks gives to a rank.
int device_of(int rank) { return kFakeDevices - 1 - rank; }

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

/// Values on a fake device, which tests may read and write.
class OnDevice {
 public:
  OnDevice(const Buffer& values, int device) : dtype_(values.dtype), count_(values.count()) {
    (void)fake_nccl().set_device(device);
    (void)fake_nccl().malloc_device(&data_, std::max<std::size_t>(values.bytes.size(), 1));
    std::memcpy(data_, values.bytes.data(), values.bytes.size());
  }
  ~OnDevice() { (void)fake_nccl().free_device(data_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  [[nodiscard]] Values values() const { return part(0, count_); }
  [[nodiscard]] Values part(std::int64_t begin, std::int64_t count) const {
    return {static_cast<std::byte*>(data_) + static_cast<std::size_t>(begin) * dtype_bytes(dtype_),
            count, dtype_};
  }
  [[nodiscard]] ConstValues constant(std::int64_t begin, std::int64_t count) const {
    return {part(begin, count).data, count, dtype_};
  }
  [[nodiscard]] Buffer copy() const {
    Buffer out(dtype_, count_);
    std::memcpy(out.bytes.data(), data_, out.bytes.size());
    return out;
  }

 private:
  Dtype dtype_;
  std::int64_t count_;
  void* data_ = nullptr;
};

std::vector<Buffer> of_all(Dtype dtype, std::int64_t count) {
  std::vector<Buffer> all;
  for (int rank = 0; rank < kSize; ++rank) all.push_back(values_of(dtype, count, rank, 8));
  return all;
}

TEST(NcclCommunicator, ValuesOnTheDeviceAreUsedInPlace) {
  run_ranks(kSize, [](Communicator& ranks) {
    const auto me = static_cast<std::size_t>(ranks.rank());
    const std::vector<Buffer> inputs = of_all(Dtype::kF32, 90);
    const Buffer sum = naive_reduction(inputs, Reduce::kSum);
    if (ranks.rank() == 0) (void)take_fake_copies();
    ranks.barrier();
    {
      const OnDevice values(inputs[me], device_of(ranks.rank()));
      ranks.all_reduce(values.values(), Reduce::kSum);
      EXPECT_EQ(values.copy(), sum);
    }
    for (const std::vector<std::int64_t>& shares :
         {std::vector<std::int64_t>{30, 30, 30}, std::vector<std::int64_t>{50, 0, 40}}) {
      const OnDevice values(inputs[me], device_of(ranks.rank()));
      const std::int64_t begin =
          std::accumulate(shares.begin(), shares.begin() + ranks.rank(), std::int64_t{0});
      ranks.reduce_scatter(values.constant(0, 90), shares, values.part(begin, shares[me]),
                           Reduce::kSum);
      ranks.all_gather(values.constant(begin, shares[me]), shares, values.values());
      EXPECT_EQ(values.copy(), sum);
      ranks.broadcast(values.part(0, 90), 1);
    }
    ranks.barrier();
    if (ranks.rank() != 0) return;
    EXPECT_EQ(take_fake_copies(), 0);
  });
}

TEST(NcclCommunicator, MessagesAndValuesOfHostAndDeviceMix) {
  run_ranks(kSize, [](Communicator& ranks) {
    const int next = (ranks.rank() + 1) % kSize;
    const int previous = (ranks.rank() + kSize - 1) % kSize;
    const std::vector<Buffer> all = of_all(Dtype::kBf16, 3000);
    const OnDevice own(all[static_cast<std::size_t>(ranks.rank())], device_of(ranks.rank()));
    const OnDevice room(Buffer(Dtype::kBf16, 3000), device_of(ranks.rank()));
    ranks.send(own.constant(0, 3000), next, 4);
    ranks.receive(room.values(), previous, 4);
    EXPECT_EQ(room.copy(), all[static_cast<std::size_t>(previous)]);

    Buffer gathered(Dtype::kBf16, 3 * kSize);
    ranks.all_gather(own.constant(5, 3), std::vector<std::int64_t>(kSize, 3), gathered.values());
    for (int rank = 0; rank < kSize; ++rank) {
      EXPECT_EQ(gathered.copy(3 * rank, 3), all[static_cast<std::size_t>(rank)].copy(5, 3));
    }
  });
}

TEST(NcclCommunicator, ValuesOfAnotherDeviceAreRefused) {
  run_ranks(kSize, [](Communicator& ranks) {
    const int device = ranks.rank() == 1 ? 0 : device_of(ranks.rank());
    const OnDevice values(Buffer(Dtype::kF32, 4), device);
    EXPECT_THAT(error_of([&] { ranks.all_reduce(values.values(), Reduce::kSum); }),
                AllOf(HasSubstr(fmt::format("rank {} of 3", ranks.rank())),
                      HasSubstr("rank 1, all_reduce (sum) of 4 f32: values lie on device 0")));
  });
}

TEST(NcclCommunicator, AMaximumWithNanIsNan) {
  run_ranks(kSize, [](Communicator& ranks) {
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> mine{1.0f, -2.0f, ranks.rank() == 1 ? kNan : 7.0f};
    ranks.all_reduce({mine.data(), 3, Dtype::kF32}, Reduce::kMax);
    EXPECT_EQ(mine[0], 1.0f);
    EXPECT_EQ(mine[1], -2.0f);
    EXPECT_TRUE(std::isnan(mine[2]));

    const std::vector<Buffer> inputs = of_all(Dtype::kF64, 60);
    const Buffer most = naive_reduction(inputs, Reduce::kMax);
    const OnDevice values(inputs[static_cast<std::size_t>(ranks.rank())], device_of(ranks.rank()));
    const std::vector<std::int64_t> shares{10, 0, 50};
    const std::int64_t begin = ranks.rank() == 0 ? 0 : 10;
    const std::int64_t own = shares[static_cast<std::size_t>(ranks.rank())];
    ranks.reduce_scatter(values.constant(0, 60), shares, values.part(begin, own), Reduce::kMax);
    EXPECT_EQ(values.copy().copy(begin, own), most.copy(begin, own));
    const OnDevice whole(inputs[static_cast<std::size_t>(ranks.rank())], device_of(ranks.rank()));
    ranks.all_reduce(whole.values(), Reduce::kMax);
    EXPECT_EQ(whole.copy(), most);
  });
}

TEST(NcclCommunicator, ADeviceThatStandsStillEndsTheGroupAtTheDeadline) {
  stall_fake_device(device_of(1), true);
  run_fake_ranks(
      kSize,
      [](Communicator& ranks) {
        std::vector<float> values(7);
        const std::string error = error_of([&] {
          ranks.all_reduce({values.data(), 7, Dtype::kF32}, Reduce::kSum);
        });
        EXPECT_THAT(error, AllOf(HasSubstr(fmt::format("rank {} of 3", ranks.rank())),
                                 HasSubstr("all_reduce (sum) of 7 f32: waited 500 ms")));
        EXPECT_THAT(error_of([&] { ranks.barrier(); }), HasSubstr("waited 500 ms"));
      },
      kLongDeadline, 500ms);
}

TEST(NcclCommunicator, AnAbortIsHeardWhileTheDeviceStandsStill) {
  stall_fake_device(device_of(1), true);
  run_ranks(kSize, [](Communicator& ranks) {
    float value = 1;
    const auto work = ranks.start([&](Communicator& self) {
      self.all_reduce({&value, 1, Dtype::kF32}, Reduce::kSum);
    });
    if (ranks.rank() == 2) ranks.abort("the dog ate it");
    EXPECT_THAT(error_of([&] { work->wait(); }), HasSubstr("the dog ate it"));
  });
}

/// An event of a stream whose work ends when it is told to.
class Event {
 public:
  explicit Event(int device) {
    const NcclCalls& calls = fake_nccl();
    (void)calls.set_device(device);
    int lowest = 0, highest = 0;
    (void)calls.stream_priorities(&lowest, &highest);
    (void)calls.stream_create(&stream_, cudaStreamNonBlocking, highest);
    (void)calls.event_create(&event_, cudaEventDisableTiming);
    {
      const std::scoped_lock lock(testing_support::fake_cuda_mutex());
      testing_support::queue_on_fake_stream(stream_, [done = done_] { return done->load(); });
    }
    (void)calls.event_record(event_, stream_);
  }
  ~Event() {
    reach();
    (void)cuda_ok(fake_nccl(), fake_nccl().stream_query(stream_));
    (void)fake_nccl().event_destroy(event_);
    (void)fake_nccl().stream_destroy(stream_);
  }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void reach() { *done_ = true; }
  [[nodiscard]] void* handle() const { return event_; }

 private:
  cudaStream_t stream_ = nullptr;
  cudaEvent_t event_ = nullptr;
  std::shared_ptr<std::atomic<bool>> done_ =
      std::make_shared<std::atomic<bool>>(false);  // shared with the stream
};

TEST(NcclCommunicator, SumsBehindEventsWaitForThemOnTheDevice) {
  run_ranks(kSize, [](Communicator& ranks) {
    const auto me = static_cast<std::size_t>(ranks.rank());
    const std::vector<Buffer> first = of_all(Dtype::kF32, 90), second = of_all(Dtype::kF32, 7);
    const int device = device_of(ranks.rank());
    const OnDevice one(Buffer(Dtype::kF32, 90), device), other(second[me], device);
    Event is_written(device), is_there(device);
    is_there.reach();
    // What is to be summed comes only now, while the others and NCCL wait.
    std::thread writer([&] {
      std::memcpy(one.values().data, first[me].bytes.data(), first[me].bytes.size());
      is_written.reach();
    });
    const std::vector<DeviceValues> sums = {{one.values(), is_written.handle()},
                                            {other.values(), is_there.handle()}};
    if (ranks.rank() == 0) (void)take_fake_copies();
    ranks.all_reduce_behind(sums);
    writer.join();
    EXPECT_EQ(one.copy(), naive_reduction(first, Reduce::kSum));
    EXPECT_EQ(other.copy(), naive_reduction(second, Reduce::kSum));
    ranks.barrier();
    if (ranks.rank() == 0) {
      EXPECT_EQ(take_fake_copies(), 0);
    }
    ranks.all_reduce_behind({});
  });
}

// The rank that waits for its own work has no deadline; those whose work has ended miss it.
TEST(NcclCommunicator, ARankWhoseWorkDoesNotEndIsMissedAtTheDeadline) {
  run_fake_ranks(
      kSize,
      [](Communicator& ranks) {
        const int device = device_of(ranks.rank());
        const OnDevice values(Buffer(Dtype::kF32, 4), device);
        Event event(device);
        if (ranks.rank() != 1) event.reach();
        const std::vector<DeviceValues> sums = {{values.values(), event.handle()}};
        EXPECT_THAT(error_of([&] { ranks.all_reduce_behind(sums); }),
                    AllOf(HasSubstr("all_reduce (sum) of 4 f32"), HasSubstr("waited 2000 ms"),
                          HasSubstr("rank 1")));
      },
      2000ms, kLongDeadline);
}

TEST(NcclCommunicator, AnAbortIsHeardBehindAnEventThatDoesNotCome) {
  run_ranks(kSize, [](Communicator& ranks) {
    const int device = device_of(ranks.rank());
    const OnDevice values(Buffer(Dtype::kF32, 4), device);
    Event event(device);
    const std::vector<DeviceValues> sums = {{values.values(), event.handle()}};
    const auto work = ranks.start([&](Communicator& self) { self.all_reduce_behind(sums); });
    if (ranks.rank() == 2) ranks.abort("the dog ate it");
    EXPECT_THAT(error_of([&] { work->wait(); }), HasSubstr("the dog ate it"));
  });
}

TEST(NcclCommunicator, SumsBehindEventsAreOfTheDeviceAndAlike) {
  run_ranks(kSize, [](Communicator& ranks) {
    const int device = device_of(ranks.rank());
    const OnDevice values(Buffer(Dtype::kF32, 9), device);
    Event event(device);
    event.reach();
    const std::int64_t first = ranks.rank() == 2 ? 4 : 5;
    const std::vector<DeviceValues> sums = {{values.part(0, first), event.handle()},
                                            {values.part(first, 9 - first), event.handle()}};
    EXPECT_THAT(error_of([&] { ranks.all_reduce_behind(sums); }),
                AllOf(HasSubstr("rank 2 calls all_reduce (sum) of 9 f32 in other shares")));
  });
  run_ranks(kSize, [](Communicator& ranks) {
    Event event(device_of(ranks.rank()));
    event.reach();
    float value = 1;
    const std::vector<DeviceValues> sums = {{{&value, 1, Dtype::kF32}, event.handle()}};
    EXPECT_THAT(error_of([&] { ranks.all_reduce_behind(sums); }),
                HasSubstr("lie in memory of the host"));
  });
  const auto threads = make_thread_communicators(1, kLongDeadline);
  EXPECT_THAT(error_of([&] { threads[0]->all_reduce_behind({}); }),
              HasSubstr("between devices, not of"));
}

TEST(NcclCommunicator, ASplitThatStandsStillEndsParentAndChild) {
  run_fake_ranks(
      kSize,
      [](Communicator& ranks) {
        ranks.barrier();
        if (ranks.rank() == 1) stall_fake_device(device_of(1), true);
        const std::string error = error_of([&] {
          const auto child = ranks.split(0, 0);
          child->barrier();  // of those who have got one
        });
        EXPECT_THAT(error, AllOf(HasSubstr(fmt::format("rank {} of 3", ranks.rank())),
                                 HasSubstr("split: waited 500 ms for device 6")));
        EXPECT_THAT(error_of([&] { ranks.barrier(); }), HasSubstr("split: waited 500 ms"));
      },
      kLongDeadline, 500ms);
}

TEST(NcclCommunicator, AnErrorOfNcclEndsTheGroupByName) {
  run_ranks(kSize, [](Communicator& ranks) {
    ranks.barrier();
    if (ranks.rank() == 2) break_fake_device(device_of(2));
    float value = 1;
    EXPECT_THAT(error_of([&] {
                  ranks.all_reduce({&value, 1, Dtype::kF32}, Reduce::kSum);
                }),
                AllOf(HasSubstr("rank 2, all_reduce (sum) of 1 f32"), HasSubstr("the fake has"),
                      HasSubstr("the cable is out")));
  });
}

/// Every rank makes its communicator on the device that `devices` names; the errors.
std::vector<std::string> joining_errors(const std::vector<int>& devices) {
  std::vector<std::string> errors(devices.size());
  auto ranks = make_thread_communicators(static_cast<int>(devices.size()), kLongDeadline);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    threads.emplace_back([&, rank] {
      errors[rank] = error_of([&] {
        (void)make_nccl_communicator_over(fake_nccl(), std::move(ranks[rank]), devices[rank],
                                          kLongDeadline);
      });
    });
  }
  for (std::thread& thread : threads) thread.join();
  testing_support::expect_fake_nccl_clean();
  return errors;
}

TEST(NcclCommunicator, ADeviceThatCannotBeJoinedIsToldToAll) {
  EXPECT_THAT(joining_errors({0, 1, 2}), ::testing::Each("no error"));
  EXPECT_THAT(joining_errors({0, kFakeDevices, 2}),
              ::testing::Each(HasSubstr("there is no device 8; this machine has 8")));
  EXPECT_THAT(joining_errors({0, 1, 1}), ::testing::Each(HasSubstr("joining the devices")));
}

/// Threads beside the fake NCCL, the table preferring one or the other by size.
void run_mixed(int size, MixedSums sums, const std::function<void(Communicator&)>& body) {
  auto plain = make_thread_communicators(size, kLongDeadline);
  MixTable table(size, {});
  for (const Operation each :
       {Operation::kAllReduce, Operation::kBroadcast, Operation::kAllGather}) {
    table.add({size, each, "threads", 64, 1});
    table.add({size, each, "nccl", 64, 2});
    table.add({size, each, "threads", 16384, 20});
    table.add({size, each, "nccl", 16384, 10});
  }
  run_ranks(size, [&](Communicator& device) {
    // run_ranks owns it, so a part that is split off goes into the mix.
    std::vector<NamedCommunicator> sides;
    const auto rank = static_cast<std::size_t>(device.rank());
    sides.push_back({"threads", std::move(plain[rank])});
    sides.push_back({"nccl", device.split(0, 0)});
    const auto mixed = make_mixed_communicator(std::move(sides), table, sums);
    body(*mixed);
  });
}

TEST(NcclCommunicator, AnAbortThatNcclHoldsUpIsLeftBehindWithItsStream) {
  stall_fake_device(device_of(1), true);
  auto ends = make_thread_communicators(kSize, kLongDeadline);
  std::vector<std::thread> threads;
  for (auto& end : ends) {
    threads.emplace_back([ranks = std::move(end)]() mutable {
      const int rank = ranks->rank();
      const auto self =
          make_nccl_communicator_over(fake_nccl(), std::move(ranks), device_of(rank), 500ms);
      self->barrier();
      testing_support::hold_fake_aborts();
      float value = 1;
      EXPECT_THAT(error_of([&] {
                    self->all_reduce({&value, 1, Dtype::kF32}, Reduce::kSum);
                  }),
                  HasSubstr("waited 500 ms"));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(testing_support::release_fake_aborts(), kSize);
  EXPECT_EQ(testing_support::forget_fake_cuda(), kSize);
  testing_support::expect_fake_nccl_clean();
}

TEST(NcclCommunicator, MixingItChangesBitsAndMustBeAskedFor) {
  run_ranks(2, [](Communicator& device) {
    std::vector<NamedCommunicator> sides;
    sides.push_back({"nccl", device.split(0, 0)});
    sides.push_back({"again", device.split(0, 0)});
    const MixTable table(2, {{2, Operation::kBarrier, "nccl", 0, 1}});
    EXPECT_THAT(error_of([&] { (void)make_mixed_communicator(std::move(sides), table); }),
                AllOf(HasSubstr("nccl"), HasSubstr("order of their own")));
  });
}

TEST(NcclCommunicator, TenThousandMixedCallsOfAllKindsAndSizes) {
  constexpr int kCalls = 10000;
  run_mixed(kSize, MixedSums::kAny, [&](Communicator& ranks) {
    std::uint64_t state = 7;  // the same on all ranks
    const auto draw = [&](std::uint64_t below) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      return static_cast<std::int64_t>((state >> 33) % below);
    };
    std::vector<std::int64_t> values(4000);
    std::vector<std::int64_t> all(4000 * kSize);
    std::int64_t wrong = 0;
    for (int call = 0; call < kCalls; ++call) {
      const std::int64_t count = draw(8) == 0 ? draw(4000) : draw(40);
      const auto root = static_cast<int>(draw(kSize));
      const std::int64_t base = draw(1000);
      std::fill_n(values.begin(), count, base + ranks.rank());
      const ConstValues own{values.data(), count, Dtype::kI64};
      const std::int64_t kind = draw(5);
      if (kind == 0) {
        ranks.all_reduce({values.data(), count, Dtype::kI64}, Reduce::kSum);
        wrong += count > 0 && values[static_cast<std::size_t>(count) - 1] != 3 * base + 3;
      } else if (kind == 1) {
        ranks.broadcast({values.data(), count, Dtype::kI64}, root);
        wrong += count > 0 && values[static_cast<std::size_t>(count) - 1] != base + root;
      } else if (kind == 2) {
        const std::vector<std::int64_t> shares(kSize, count);
        ranks.all_gather(own, shares, {all.data(), count * kSize, Dtype::kI64});
        wrong += count > 0 && all[static_cast<std::size_t>(count * root)] != base + root;
      } else if (kind == 3) {
        ranks.send(own, (ranks.rank() + 1) % kSize, call % 3);
        ranks.receive({all.data(), count, Dtype::kI64}, (ranks.rank() + 2) % kSize, call % 3);
        wrong += count > 0 && all[0] != base + (ranks.rank() + 2) % kSize;
      } else {
        ranks.barrier();
      }
    }
    EXPECT_EQ(wrong, 0);
  });
}

TEST(NcclCommunicator, WithoutADeviceItIsRefusedByNameAndTheOthersHear) {
  if (error_of([] { (void)system_nccl_calls(); }) == "no error") {
    GTEST_SKIP() << "this machine has NCCL and a device";
  }
  auto ranks = make_thread_communicators(2, kLongDeadline);
  EXPECT_THAT(
      error_of([&] { (void)make_nccl_communicator(std::move(ranks[0]), 0, kLongDeadline); }),
      AllOf(HasSubstr("communicator \"nccl\""), HasSubstr("threads")));
  EXPECT_THAT(error_of([&] { ranks[1]->barrier(); }), HasSubstr("communicator \"nccl\""));
}

}  // namespace
}  // namespace isthmus::this_file
