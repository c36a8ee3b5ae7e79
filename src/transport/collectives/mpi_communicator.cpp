// SPDX-License-Identifier: Apache-2.0
#include "transport/collectives/mpi_communicator.h"

#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <utility>

#include "core/base/system_runtime.h"
#include "transport/collectives/checked_communicator.h"
#include "transport/collectives/mpi_group.h"
#include "transport/collectives/rank_order.h"
#include "transport/collectives/value_bytes.h"
#include "transport/links/mpi_transport.h"
#include "transport/wire/mpi_calls.h"

namespace isthmus {
namespace {

// Of one rank's share, on the way at once: while one piece is summed the next one arrives.
constexpr std::int64_t kMpiPieceBytes = 256 << 10;

using value_bytes::at;
using value_bytes::bytes_of;
using value_bytes::copy;

bool fits_in_call(std::int64_t count, Dtype dtype) {
  return bytes_of(count, dtype) <= MpiGroup::kInlineBytes;
}

class MpiBackend final : public CommunicatorBackend {
 public:
  explicit MpiBackend(std::shared_ptr<MpiGroup> group) : group_(std::move(group)) {}

  [[nodiscard]] int rank() const override { return group_->rank(); }
  [[nodiscard]] int size() const override { return group_->size(); }
  [[nodiscard]] std::string_view name() const override { return "mpi"; }

  void all_reduce(Values values, Reduce reduce) override {
    const Call call = all_reduce_call(values, reduce);
    if (fits_in_call(values.count, values.dtype)) {
      meet_with_copy(call, values.data, values.count);
      reduce_inlined(call, 0, values.count, values.data);
      return;
    }
    group_->meet(call);
    std::vector<std::int64_t> shares;
    for (int peer = 0; peer < size(); ++peer) {
      shares.push_back(values.count * (peer + 1) / size() - values.count * peer / size());
    }
    const std::int64_t begin = place_of(shares, rank());
    std::byte* const own = at(values.data, begin, values.dtype);
    scatter_reduce(call, values.data, shares, own);
    gather(call, own, shares, values.data);
  }

  void reduce_scatter(ConstValues input, std::span<const std::int64_t> counts, Values output,
                      Reduce reduce) override {
    const Call call = reduce_scatter_call(input.dtype, counts, reduce);
    if (fits_in_call(input.count, input.dtype)) {
      meet_with_copy(call, input.data, input.count);
      reduce_inlined(call, place_of(counts, rank()), output.count, output.data);
      return;
    }
    group_->meet(call);
    scatter_reduce(call, input.data, counts, output.data);
  }

  void all_gather(ConstValues input, std::span<const std::int64_t> counts, Values output) override {
    const Call call = all_gather_call(input.dtype, counts);
    if (!fits_in_call(*std::max_element(counts.begin(), counts.end()), input.dtype)) {
      group_->meet(call);
      gather(call, input.data, counts, output.data);
      return;
    }
    meet_with_copy(call, input.data, input.count);
    std::int64_t place = 0;
    for (int peer = 0; peer < size(); ++peer) {
      const std::int64_t count = counts[static_cast<std::size_t>(peer)];
      copy(at(output.data, place, output.dtype), group_->inlined(peer),
           bytes_of(count, input.dtype));
      place += count;
    }
  }

  void broadcast(Values values, int root) override {
    const Call call = broadcast_call(values, root);
    const std::size_t bytes = bytes_of(values.count, values.dtype);
    if (fits_in_call(values.count, values.dtype)) {
      meet_with_copy(call, values.data, rank() == root ? values.count : 0);
      if (rank() != root) copy(values.data, group_->inlined(root), bytes);
      return;
    }
    group_->meet(call);
    if (rank() != root) group_->post_receive(values.data, bytes, root);
    for (int peer = 0; peer < size() && rank() == root; ++peer) {
      if (peer != root) group_->post_send(values.data, bytes, peer);
    }
    group_->wait_all(call);
  }

  void all_to_all(ConstValues input, std::span<const std::int64_t> send_counts, Values output,
                  std::span<const std::int64_t> receive_counts, std::int64_t of_all) override {
    const Call call = all_to_all_call(input.dtype, of_all);
    std::vector<std::int64_t> both(send_counts.begin(), send_counts.end());
    both.insert(both.end(), receive_counts.begin(), receive_counts.end());
    const std::span<const std::byte> shown = std::as_bytes(std::span(both));
    if (shown.size() > MpiGroup::kInlineBytes) {
      group_->fail(call, fmt::format("all_to_all over MPI is made for at most {} ranks",
                                     MpiGroup::kInlineBytes / (2 * sizeof(std::int64_t))));
    }
    group_->meet(call, shown);
    check_shares(call);
    std::int64_t sent = 0;
    std::int64_t received = 0;
    for (int peer = 0; peer < size(); ++peer) {
      const std::int64_t outward = send_counts[static_cast<std::size_t>(peer)];
      const std::int64_t inward = receive_counts[static_cast<std::size_t>(peer)];
      const std::byte* from = at(input.data, sent, input.dtype);
      std::byte* to = at(output.data, received, input.dtype);
      if (peer == rank()) {
        copy(to, from, bytes_of(inward, input.dtype));
      } else {
        group_->post_receive(to, bytes_of(inward, input.dtype), peer);
        group_->post_send(from, bytes_of(outward, input.dtype), peer);
      }
      sent += outward;
      received += inward;
    }
    group_->wait_all(call);
  }

  void send(ConstValues values, int to, int tag) override {
    group_->send(message_call(Operation::kSend, values.count, values.dtype, to, tag), values.data);
  }
  void receive(Values values, int from, int tag) override {
    group_->receive(message_call(Operation::kReceive, values.count, values.dtype, from, tag),
                    values.data);
  }
  void barrier() override { group_->meet({.operation = Operation::kBarrier}); }

  /// All ranks have met, so MPI's own split, which has no deadline, does not wait for long.
  [[nodiscard]] std::unique_ptr<CommunicatorBackend> split(int color, int key) override {
    const std::array<int, 2> wish{color, key};
    group_->meet({.operation = Operation::kSplit}, std::as_bytes(std::span(wish)));
    std::vector<int> colors;
    std::vector<std::pair<int, int>> chosen;  // key, rank here
    for (int peer = 0; peer < size(); ++peer) {
      std::array<int, 2> theirs{};
      std::memcpy(
          theirs.data(),
          peer == rank() ? reinterpret_cast<const std::byte*>(wish.data()) : group_->inlined(peer),
          sizeof theirs);
      colors.push_back(theirs[0]);
      if (theirs[0] == color) chosen.emplace_back(theirs[1], peer);
    }
    std::sort(chosen.begin(), chosen.end());
    std::sort(colors.begin(), colors.end());
    std::vector<int> peers;
    int place = 0;
    for (const auto& [unused, peer] : chosen) {
      if (peer == rank()) place = static_cast<int>(peers.size());
      peers.push_back(peer);
    }
    // MPI's colors are not negative.
    const auto dense = std::lower_bound(colors.begin(), colors.end(), color) - colors.begin();
    MPI_Comm comm = MPI_COMM_NULL;
    {
      const std::scoped_lock lock(mpi_mutex());
      check_mpi(MPI_Comm_split(group_->comm(), static_cast<int>(dense), place, &comm), "no split");
    }
    return std::make_unique<MpiBackend>(std::make_shared<MpiGroup>(
        group_->runtime(), group_, comm, group_->deadline(), group_->names().part(peers)));
  }

  void abort(const std::string& cause) noexcept override { group_->abort(cause); }
  [[nodiscard]] std::string end_cause() override { return group_->end_cause(); }

 private:
  void meet_with_copy(const Call& call, const void* data, std::int64_t count) {
    group_->meet(call, {static_cast<const std::byte*>(data), bytes_of(count, call.dtype)});
  }

  void reduce_inlined(const Call& call, std::int64_t begin, std::int64_t count, void* output) {
    std::vector<const void*> inputs;
    for (int peer = 0; peer < size(); ++peer) {
      inputs.push_back(at(static_cast<const void*>(group_->inlined(peer)), begin, call.dtype));
    }
    reduce_in_rank_order(call.dtype, call.reduce, inputs, count, {&output, 1});
  }

  /// output := the reduction of all ranks' values of this rank's share. Every rank sends each other
  /// one its share, piece by piece.
  void scatter_reduce(const Call& call, const void* input, std::span<const std::int64_t> counts,
                      void* output) {
    const std::int64_t piece = kMpiPieceBytes / static_cast<std::int64_t>(dtype_bytes(call.dtype));
    const std::int64_t most = *std::max_element(counts.begin(), counts.end());
    const std::int64_t own = counts[static_cast<std::size_t>(rank())];
    const std::byte* mine = at(input, place_of(counts, rank()), call.dtype);
    const auto length = [piece](std::int64_t count, std::int64_t begin) {
      return std::clamp(count - begin, std::int64_t{0}, piece);
    };
    const std::size_t room = bytes_of(std::min(piece, own), call.dtype);
    arrived_.resize(std::max(arrived_.size(), 2 * room * static_cast<std::size_t>(size())));
    const auto slot = [&](std::int64_t begin, int peer) {
      const auto turn = static_cast<std::size_t>(begin / piece % 2);
      return arrived_.data() +
             (turn * static_cast<std::size_t>(size()) + static_cast<std::size_t>(peer)) * room;
    };
    const auto post = [&](std::int64_t begin) {
      std::int64_t place = 0;
      for (int peer = 0; peer < size(); ++peer) {
        const std::int64_t count = counts[static_cast<std::size_t>(peer)];
        if (peer != rank()) {
          group_->post_receive(slot(begin, peer), bytes_of(length(own, begin), call.dtype), peer);
          group_->post_send(at(input, place + std::min(begin, count), call.dtype),
                            bytes_of(length(count, begin), call.dtype), peer);
        }
        place += count;
      }
    };
    post(0);
    for (std::int64_t begin = 0; begin < most; begin += piece) {
      const std::size_t of_this = group_->posted();
      if (begin + piece < most) post(begin + piece);
      group_->wait_first(call, of_this);
      if (begin >= own) continue;
      std::vector<const void*> inputs;
      for (int peer = 0; peer < size(); ++peer) {
        inputs.push_back(peer == rank() ? at(static_cast<const void*>(mine), begin, call.dtype)
                                        : slot(begin, peer));
      }
      void* const to = at(output, begin, call.dtype);
      reduce_in_rank_order(call.dtype, call.reduce, inputs, length(own, begin), {&to, 1});
    }
  }

  void gather(const Call& call, const void* own, std::span<const std::int64_t> counts,
              void* output) {
    const std::int64_t share = counts[static_cast<std::size_t>(rank())];
    std::int64_t place = 0;
    for (int peer = 0; peer < size(); ++peer) {
      const std::int64_t count = counts[static_cast<std::size_t>(peer)];
      std::byte* to = at(output, place, call.dtype);
      if (peer == rank()) {
        copy(to, own, bytes_of(share, call.dtype));
      } else {
        group_->post_receive(to, bytes_of(count, call.dtype), peer);
        group_->post_send(own, bytes_of(share, call.dtype), peer);
      }
      place += count;
    }
    group_->wait_all(call);
  }

  /// Every rank looks at all pairs, so that all find the same.
  void check_shares(const Call& call) {
    const auto count = [this](int of, int place) {
      std::int64_t value = 0;
      std::memcpy(&value, group_->inlined(of) + static_cast<std::size_t>(place) * sizeof value,
                  sizeof value);
      return value;
    };
    for (int from = 0; from < size(); ++from) {
      for (int to = 0; to < size(); ++to) {
        const std::int64_t sent = count(from, to);
        const std::int64_t expected = count(to, size() + from);
        if (sent == expected) continue;
        group_->fail(call, fmt::format("all_to_all: {} has {} values for {}, which expects {}",
                                       group_->name_of(from), sent, group_->name_of(to), expected));
      }
    }
  }

  const std::shared_ptr<MpiGroup> group_;  // shared with the groups split from it
  std::vector<std::byte> arrived_;         // two pieces of each rank
};

}  // namespace

std::unique_ptr<Communicator> make_mpi_communicator(std::chrono::milliseconds deadline,
                                                    std::vector<std::string> places) {
  (void)mpi_place();
  const auto runtime = std::make_shared<SystemRuntime>();
  MPI_Comm comm = MPI_COMM_NULL;
  {
    const std::scoped_lock lock(mpi_mutex());
    check_mpi(MPI_Comm_dup(mpi_job().ranks, &comm), "no communicator of its own");
  }
  int members = 0;
  MPI_Comm_size(comm, &members);
  auto group = std::make_shared<MpiGroup>(runtime, nullptr, comm, deadline,
                                          RankNames(members, std::move(places)));
  return make_checked_communicator(runtime, std::make_unique<MpiBackend>(std::move(group)));
}

void finish_mpi() {
  int started = 0;
  int finished = 0;
  MPI_Initialized(&started);
  MPI_Finalized(&finished);
  if (started != 0 && finished == 0 && !mpi_job().abandoned) MPI_Finalize();
}

}  // namespace isthmus
