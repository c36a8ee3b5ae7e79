// SPDX-License-Identifier: Apache-2.0
#include "transport/collectives/shared_memory_communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "core/base/system_runtime.h"
#include "transport/collectives/checked_communicator.h"
#include "transport/collectives/rank_order.h"
#include "transport/collectives/shared_group.h"
#include "transport/collectives/value_bytes.h"

namespace isthmus {
namespace {

using value_bytes::at;
using value_bytes::bytes_of;

// Up to this every rank reduces all values itself, which saves a crossing.
constexpr std::size_t kSmallBytes = 4096;
// An all-reduce has a piece of the values in one half of a room, reduced ones in the other.
constexpr std::size_t kPieceBytes = SharedGroup::kRoomBytes / 2;
// Ranks do not write into one another's cache lines.
constexpr std::size_t kLine = 64;
constexpr std::int64_t kSliceStep = 64;  // values

class SharedMemoryBackend final : public CommunicatorBackend {
 public:
  explicit SharedMemoryBackend(std::shared_ptr<SharedGroup> group)
      : group_(std::move(group)), inputs_(static_cast<std::size_t>(size())) {}

  [[nodiscard]] int rank() const override { return group_->rank(); }
  [[nodiscard]] int size() const override { return group_->size(); }
  [[nodiscard]] std::string_view name() const override { return "shared-memory"; }

  void all_reduce(Values values, Reduce reduce) override {
    const Call call = all_reduce_call(values, reduce);
    const std::size_t bytes = bytes_of(values.count, values.dtype);
    if (bytes <= kSmallBytes) {
      value_bytes::copy(group_->own_room(), values.data, bytes);
      group_->meet(call);
      reduce_rooms(call, 0, values.count, values.data);
      return;
    }
    const auto piece = static_cast<std::int64_t>(kPieceBytes / dtype_bytes(values.dtype));
    std::int64_t reduced = 0;  // values before the piece whose slices are in transit
    for (std::int64_t begin = 0; begin < values.count; begin += piece) {
      const std::int64_t count = std::min(piece, values.count - begin);
      value_bytes::copy(group_->own_room(), at(values.data, begin, values.dtype),
                        bytes_of(count, values.dtype));
      go(call, begin == 0);
      if (begin != 0) take_slices(at(values.data, reduced, values.dtype), piece, values.dtype);
      reduced = begin;
      const std::int64_t slice = slice_begin(count, rank());
      const auto place = bytes_of(slice, values.dtype);
      reduce_rooms(call, place, slice_begin(count, rank() + 1) - slice,
                   group_->own_room() + kPieceBytes + place);
    }
    group_->cross(call);
    take_slices(at(values.data, reduced, values.dtype), values.count - reduced, values.dtype);
  }

  void reduce_scatter(ConstValues input, std::span<const std::int64_t> counts, Values output,
                      Reduce reduce) override {
    const Call call = reduce_scatter_call(input.dtype, counts, reduce);
    if (bytes_of(input.count, input.dtype) <= kSmallBytes) {
      value_bytes::copy(group_->own_room(), input.data, bytes_of(input.count, input.dtype));
      group_->meet(call);
      reduce_rooms(call, bytes_of(place_of(counts, rank()), input.dtype), output.count,
                   output.data);
      return;
    }
    const Slots slots = slots_of(0, input.dtype);
    const std::byte* const mine = at(input.data, place_of(counts, rank()), input.dtype);
    const std::int64_t most = *std::max_element(counts.begin(), counts.end());
    for (std::int64_t begin = 0; begin < most; begin += slots.values) {
      fill_slots(slots, input, counts, begin);
      go(call, begin == 0);
      const std::int64_t count = slots.length(output.count, begin);
      if (count == 0) continue;
      for (int peer = 0; peer < size(); ++peer) {
        inputs_[static_cast<std::size_t>(peer)] =
            peer == rank() ? at(mine, begin, input.dtype) : slots.of(group_->room_of(peer), rank());
      }
      void* const to = at(output.data, begin, output.dtype);
      reduce_in_rank_order(input.dtype, reduce, inputs_, count, {&to, 1});
    }
  }

  void all_gather(ConstValues input, std::span<const std::int64_t> counts, Values output) override {
    const Call call = all_gather_call(input.dtype, counts);
    const auto piece =
        static_cast<std::int64_t>(SharedGroup::kRoomBytes / dtype_bytes(input.dtype));
    const auto length = [piece](std::int64_t count, std::int64_t begin) {
      return std::clamp(count - begin, std::int64_t{0}, piece);
    };
    const std::int64_t most = *std::max_element(counts.begin(), counts.end());
    for (std::int64_t begin = 0; begin == 0 || begin < most; begin += piece) {
      const std::size_t own = bytes_of(length(input.count, begin), input.dtype);
      if (own != 0) value_bytes::copy(group_->own_room(), at(input.data, begin, input.dtype), own);
      go(call, begin == 0);
      std::int64_t place = 0;
      for (int peer = 0; peer < size(); ++peer) {
        const std::int64_t count = counts[static_cast<std::size_t>(peer)];
        const std::size_t bytes = bytes_of(length(count, begin), input.dtype);
        if (bytes != 0) {
          value_bytes::copy(
              at(output.data, place + begin, output.dtype),
              peer == rank() ? at(input.data, begin, input.dtype) : group_->room_of(peer), bytes);
        }
        place += count;
      }
    }
  }

  void broadcast(Values values, int root) override {
    const Call call = broadcast_call(values, root);
    const std::size_t bytes = bytes_of(values.count, values.dtype);
    auto* const data = static_cast<std::byte*>(values.data);
    for (std::size_t begin = 0; begin == 0 || begin < bytes; begin += SharedGroup::kRoomBytes) {
      const std::size_t length = std::min(SharedGroup::kRoomBytes, bytes - begin);
      if (rank() == root && length != 0)
        value_bytes::copy(group_->own_room(), data + begin, length);
      go(call, begin == 0);
      if (rank() != root && length != 0)
        value_bytes::copy(data + begin, group_->room_of(root), length);
    }
  }

  void all_to_all(ConstValues input, std::span<const std::int64_t> send_counts, Values output,
                  std::span<const std::int64_t> receive_counts, std::int64_t of_all) override {
    const Call call = all_to_all_call(input.dtype, of_all);
    const std::size_t shown = 2 * send_counts.size_bytes();  // beside the slots
    const Slots slots = slots_of(shown, input.dtype);
    std::memcpy(group_->own_room(), send_counts.data(), send_counts.size_bytes());
    std::memcpy(group_->own_room() + shown / 2, receive_counts.data(), receive_counts.size_bytes());
    std::int64_t most = 1;
    for (std::int64_t begin = 0; begin < most; begin += slots.values) {
      fill_slots(slots, input, send_counts, begin);
      go(call, begin == 0);
      if (begin == 0) most = std::max<std::int64_t>(1, largest_share(call));
      std::int64_t place = 0;
      for (int peer = 0; peer < size(); ++peer) {
        const std::int64_t count = receive_counts[static_cast<std::size_t>(peer)];
        const std::size_t bytes = bytes_of(slots.length(count, begin), input.dtype);
        const std::byte* from = slots.of(group_->room_of(peer), rank());
        if (peer == rank() && bytes != 0) {
          from = at(input.data, place_of(send_counts, peer) + begin, input.dtype);
        }
        if (bytes != 0) value_bytes::copy(at(output.data, place + begin, input.dtype), from, bytes);
        place += count;
      }
    }
  }

  void send(ConstValues values, int to, int tag) override {
    over_ranks([&](Communicator& ranks) { ranks.send(values, to, tag); });
  }
  void receive(Values values, int from, int tag) override {
    over_ranks([&](Communicator& ranks) { ranks.receive(values, from, tag); });
  }
  void barrier() override { group_->meet({.operation = Operation::kBarrier}); }

  /// The meeting compares: ranks that call something else are not in the communicator below.
  [[nodiscard]] std::unique_ptr<CommunicatorBackend> split(int color, int key) override {
    group_->meet({.operation = Operation::kSplit});
    std::unique_ptr<CommunicatorBackend> child;
    over_ranks([&](Communicator& ranks) {
      using Wish = std::array<std::int64_t, 2>;
      const Wish wish{color, key};
      std::vector<Wish> wishes(static_cast<std::size_t>(size()));
      const std::vector<std::int64_t> counts(wishes.size(), 2);
      ranks.all_gather({wish.data(), 2, Dtype::kI64}, counts,
                       {wishes.data(), std::int64_t{2} * size(), Dtype::kI64});
      std::vector<std::pair<std::int64_t, int>> chosen;  // key, rank here
      for (int peer = 0; peer < size(); ++peer) {
        const Wish& theirs = wishes[static_cast<std::size_t>(peer)];
        if (theirs[0] == color) chosen.emplace_back(theirs[1], peer);
      }
      std::sort(chosen.begin(), chosen.end());
      std::vector<int> peers;
      for (const auto& [unused, peer] : chosen) peers.push_back(peer);
      child = std::make_unique<SharedMemoryBackend>(std::make_shared<SharedGroup>(
          group_, ranks.split(color, key), group_->names().part(peers)));
    });
    return child;
  }

  void abort(const std::string& cause) noexcept override { group_->abort(cause); }
  [[nodiscard]] std::string end_cause() override { return group_->end_cause(); }

 private:
  /// A room's part for each rank.
  struct Slots {
    std::size_t first = 0;
    std::size_t bytes = 0;
    std::int64_t values = 0;

    /// Values of a share that are in a slot when those before `begin` have been.
    [[nodiscard]] std::int64_t length(std::int64_t count, std::int64_t begin) const {
      return std::clamp(count - begin, std::int64_t{0}, values);
    }
    template <typename Byte>
    [[nodiscard]] Byte* of(Byte* room, int rank) const {
      return room + first + bytes * static_cast<std::size_t>(rank);
    }
  };

  [[nodiscard]] Slots slots_of(std::size_t before, Dtype dtype) const {
    Slots slots;
    slots.first = (before + kLine - 1) / kLine * kLine;
    slots.bytes =
        (SharedGroup::kRoomBytes - slots.first) / static_cast<std::size_t>(size()) / kLine * kLine;
    slots.values = static_cast<std::int64_t>(slots.bytes / dtype_bytes(dtype));
    return slots;
  }

  /// A rank reads its own values where they are.
  void fill_slots(const Slots& slots, const ConstValues& input,
                  std::span<const std::int64_t> counts, std::int64_t begin) {
    std::int64_t place = 0;
    for (int peer = 0; peer < size(); ++peer) {
      const std::int64_t count = counts[static_cast<std::size_t>(peer)];
      const std::int64_t length = peer == rank() ? 0 : slots.length(count, begin);
      if (length != 0) {
        value_bytes::copy(slots.of(group_->own_room(), peer),
                          at(input.data, place + begin, input.dtype),
                          bytes_of(length, input.dtype));
      }
      place += count;
    }
  }

  void go(const Call& call, bool first) {
    if (first) {
      group_->meet(call);
    } else {
      group_->cross(call);
    }
  }

  /// Of the values that all have in their rooms from `place` on, in bytes.
  void reduce_rooms(const Call& call, std::size_t place, std::int64_t count, void* output) {
    if (count == 0) return;
    for (int peer = 0; peer < size(); ++peer) {
      inputs_[static_cast<std::size_t>(peer)] = group_->room_of(peer) + place;
    }
    reduce_in_rank_order(call.dtype, call.reduce, inputs_, count, {&output, 1});
  }

  /// Where rank `rank` begins to reduce a piece of `count` values.
  [[nodiscard]] std::int64_t slice_begin(std::int64_t count, int rank) const {
    return rank == size() ? count : count * rank / size() / kSliceStep * kSliceStep;
  }
  void take_slices(std::byte* output, std::int64_t count, Dtype dtype) {
    for (int peer = 0; peer < size(); ++peer) {
      const std::int64_t begin = slice_begin(count, peer);
      const std::size_t bytes = bytes_of(slice_begin(count, peer + 1) - begin, dtype);
      const std::size_t place = bytes_of(begin, dtype);
      if (bytes != 0)
        value_bytes::copy(output + place, group_->room_of(peer) + kPieceBytes + place, bytes);
    }
  }

  /// Every rank looks at all pairs, so that all find the same.
  [[nodiscard]] std::int64_t largest_share(const Call& call) {
    const auto count = [this](int of, int place) {
      std::int64_t value = 0;
      std::memcpy(&value, group_->room_of(of) + static_cast<std::size_t>(place) * sizeof value,
                  sizeof value);
      return value;
    };
    std::int64_t largest = 0;
    for (int from = 0; from < size(); ++from) {
      for (int to = 0; to < size(); ++to) {
        const std::int64_t sent = count(from, to);
        const std::int64_t expected = count(to, size() + from);
        largest = std::max(largest, sent);
        if (sent == expected) continue;
        group_->fail(call, fmt::format("all_to_all: {} has {} values for {}, which expects {}",
                                       group_->name_of(from), sent, group_->name_of(to), expected));
      }
    }
    return largest;
  }

  /// An error there ends this group too.
  template <typename Body>
  void over_ranks(Body&& body) {
    try {
      body(group_->ranks());
    } catch (const CommunicatorError& error) {
      group_->abort(error.what());
      throw;
    }
  }

  const std::shared_ptr<SharedGroup> group_;  // shared with the groups split from it
  std::vector<const void*> inputs_;           // of the call being made
};

}  // namespace

std::unique_ptr<Communicator> make_shared_memory_communicator(std::unique_ptr<Communicator> ranks,
                                                              std::chrono::milliseconds deadline,
                                                              std::vector<std::string> places,
                                                              SegmentCalls segments) {
  const auto runtime = std::make_shared<SystemRuntime>();
  const int size = ranks->size();
  auto group = std::make_shared<SharedGroup>(
      runtime, std::move(ranks), deadline, RankNames(size, std::move(places)), std::move(segments));
  return make_checked_communicator(runtime,
                                   std::make_unique<SharedMemoryBackend>(std::move(group)));
}

}  // namespace isthmus
