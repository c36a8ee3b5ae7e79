// SPDX-License-Identifier: Apache-2.0
#include "transport/collectives/thread_communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "core/base/check.h"
#include "core/base/system_runtime.h"
#include "transport/collectives/checked_communicator.h"
#include "transport/collectives/rank_order.h"
#include "transport/collectives/thread_group.h"
#include "transport/collectives/value_bytes.h"

namespace isthmus {
namespace {

// Slices of an all-reduce begin at multiples of this, so that no two ranks write one cache line and
// the sums run over whole blocks.
constexpr std::int64_t kThreadSliceStep = 1024;

using value_bytes::at;
using value_bytes::bytes_of;
using value_bytes::copy;

bool fits(std::int64_t count, Dtype dtype) {
  return bytes_of(count, dtype) <= ThreadGroup::kInlineBytes;
}

class ThreadBackend final : public CommunicatorBackend {
 public:
  ThreadBackend(std::shared_ptr<ThreadGroup> group, int rank)
      : group_(std::move(group)), rank_(rank) {
    const auto ranks = static_cast<std::size_t>(group_->size());
    inputs_.resize(ranks);
    outputs_.resize(ranks);
  }
  ~ThreadBackend() override { group_->go(rank_); }

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return group_->size(); }
  [[nodiscard]] std::string_view name() const override { return "threads"; }

  void all_reduce(Values values, Reduce reduce) override {
    Posted posted;
    posted.call = all_reduce_call(values, reduce);
    posted.output = values.data;
    if (fits(values.count, values.dtype)) {
      enter_with_copy(posted, values.data, values.count);
      reduce_inlined(posted.call, 0, values.count, values.data);
      return;
    }
    group_->enter(rank_, posted);
    const std::int64_t steps = (values.count + kThreadSliceStep - 1) / kThreadSliceStep;
    const std::int64_t begin = std::min(steps * rank_ / size() * kThreadSliceStep, values.count);
    const std::int64_t end =
        std::min(steps * (rank_ + 1) / size() * kThreadSliceStep, values.count);
    for (int peer = 0; peer < size(); ++peer) {
      void* theirs = group_->posted(rank_, peer).output;
      outputs_[static_cast<std::size_t>(peer)] = at(theirs, begin, values.dtype);
      inputs_[static_cast<std::size_t>(peer)] = at(theirs, begin, values.dtype);
    }
    reduce_in_rank_order(values.dtype, reduce, inputs_, end - begin, outputs_);
    group_->leave();
  }

  void reduce_scatter(ConstValues input, std::span<const std::int64_t> counts, Values output,
                      Reduce reduce) override {
    Posted posted;
    posted.call = reduce_scatter_call(input.dtype, counts, reduce);
    posted.input = input.data;
    const std::int64_t begin = place_of(counts, rank_);
    if (fits(input.count, input.dtype)) {
      enter_with_copy(posted, input.data, input.count);
      reduce_inlined(posted.call, begin, output.count, output.data);
      return;
    }
    group_->enter(rank_, posted);
    for (int peer = 0; peer < size(); ++peer) {
      inputs_[static_cast<std::size_t>(peer)] =
          at(group_->posted(rank_, peer).input, begin, input.dtype);
    }
    void* const to = output.data;
    reduce_in_rank_order(input.dtype, reduce, inputs_, output.count, {&to, 1});
    group_->leave();
  }

  void all_gather(ConstValues input, std::span<const std::int64_t> counts, Values output) override {
    Posted posted;
    posted.call = all_gather_call(input.dtype, counts);
    posted.input = input.data;
    const bool small = fits(*std::max_element(counts.begin(), counts.end()), input.dtype);
    if (small) {
      enter_with_copy(posted, input.data, input.count);
    } else {
      group_->enter(rank_, posted);
    }
    std::int64_t place = 0;
    for (int peer = 0; peer < size(); ++peer) {
      const std::int64_t count = counts[static_cast<std::size_t>(peer)];
      copy(at(output.data, place, output.dtype),
           small ? group_->inlined(rank_, peer) : group_->posted(rank_, peer).input,
           bytes_of(count, input.dtype));
      place += count;
    }
    if (!small) group_->leave();
  }

  void broadcast(Values values, int root) override {
    Posted posted;
    posted.call = broadcast_call(values, root);
    posted.input = values.data;
    const bool small = fits(values.count, values.dtype);
    if (small) {
      enter_with_copy(posted, values.data, rank_ == root ? values.count : 0);
    } else {
      group_->enter(rank_, posted);
    }
    if (rank_ != root) {
      copy(values.data, small ? group_->inlined(rank_, root) : group_->posted(rank_, root).input,
           bytes_of(values.count, values.dtype));
    }
    if (!small) group_->leave();
  }

  void all_to_all(ConstValues input, std::span<const std::int64_t> send_counts, Values output,
                  std::span<const std::int64_t> receive_counts, std::int64_t of_all) override {
    Posted posted;
    posted.call = all_to_all_call(input.dtype, of_all);
    posted.input = input.data;
    posted.send_counts = send_counts;
    posted.receive_counts = receive_counts;
    group_->enter(rank_, posted);
    const std::string unlike = unlike_shares();
    std::int64_t place = 0;
    for (int peer = 0; peer < size() && unlike.empty(); ++peer) {
      const Posted& theirs = group_->posted(rank_, peer);
      const std::int64_t count = receive_counts[static_cast<std::size_t>(peer)];
      copy(at(output.data, place, output.dtype),
           at(theirs.input, place_of(theirs.send_counts, rank_), input.dtype),
           bytes_of(count, input.dtype));
      place += count;
    }
    group_->leave();
    if (!unlike.empty()) group_->fail(rank_, posted.call, unlike);
  }

  void send(ConstValues values, int to, int tag) override {
    group_->send(rank_, message_call(Operation::kSend, values.count, values.dtype, to, tag),
                 values.data);
  }
  void receive(Values values, int from, int tag) override {
    group_->receive(rank_, message_call(Operation::kReceive, values.count, values.dtype, from, tag),
                    values.data);
  }

  void barrier() override {
    Posted posted;
    posted.call.operation = Operation::kBarrier;
    group_->enter(rank_, posted);
  }

  [[nodiscard]] std::unique_ptr<CommunicatorBackend> split(int color, int key) override {
    const std::array<int, 2> wish{color, key};
    Posted posted;
    posted.call.operation = Operation::kSplit;
    group_->enter(rank_, posted, std::as_bytes(std::span(wish)));
    std::vector<std::pair<int, int>> chosen;  // key, place in this group
    for (int peer = 0; peer < size(); ++peer) {
      std::array<int, 2> theirs{};
      std::memcpy(theirs.data(), group_->inlined(rank_, peer), sizeof theirs);
      if (theirs[0] == color) chosen.emplace_back(theirs[1], peer);
    }
    std::sort(chosen.begin(), chosen.end());
    std::vector<int> places;
    for (const auto& [unused, place] : chosen) places.push_back(place);
    const auto own = std::find(places.begin(), places.end(), rank_) - places.begin();
    return std::make_unique<ThreadBackend>(group_->child(rank_, color, places),
                                           static_cast<int>(own));
  }

  void abort(const std::string& cause) noexcept override { group_->abort(cause); }
  [[nodiscard]] std::string end_cause() override { return group_->end_cause(); }

 private:
  void enter_with_copy(const Posted& posted, const void* data, std::int64_t count) {
    group_->enter(rank_, posted,
                  {static_cast<const std::byte*>(data), bytes_of(count, posted.call.dtype)});
  }

  void reduce_inlined(const Call& call, std::int64_t begin, std::int64_t count, void* output) {
    for (int peer = 0; peer < size(); ++peer) {
      inputs_[static_cast<std::size_t>(peer)] =
          at(static_cast<const void*>(group_->inlined(rank_, peer)), begin, call.dtype);
    }
    reduce_in_rank_order(call.dtype, call.reduce, inputs_, count, {&output, 1});
  }

  /// Every rank looks at all pairs, so that all find the same.
  [[nodiscard]] std::string unlike_shares() const {
    for (int from = 0; from < size(); ++from) {
      const Posted& sender = group_->posted(rank_, from);
      for (int to = 0; to < size(); ++to) {
        const Posted& receiver = group_->posted(rank_, to);
        const std::int64_t sent = sender.send_counts[static_cast<std::size_t>(to)];
        const std::int64_t expected = receiver.receive_counts[static_cast<std::size_t>(from)];
        if (sent != expected) {
          return fmt::format("all_to_all: {} has {} values for {}, which expects {}",
                             group_->name_of(from), sent, group_->name_of(to), expected);
        }
      }
    }
    return {};
  }

  const std::shared_ptr<ThreadGroup> group_;  // shared with the other ranks
  const int rank_;
  std::vector<const void*> inputs_;  // of the call being made
  std::vector<void*> outputs_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_thread_communicators(
    int size, std::chrono::milliseconds deadline, std::vector<std::string> places) {
  ISTHMUS_CHECK(size >= 1, size);
  const auto runtime = std::make_shared<SystemRuntime>();
  const auto group =
      std::make_shared<ThreadGroup>(runtime, deadline, RankNames(size, std::move(places)));
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (int rank = 0; rank < size; ++rank) {
    communicators.push_back(
        make_checked_communicator(runtime, std::make_unique<ThreadBackend>(group, rank)));
  }
  return communicators;
}

}  // namespace isthmus
