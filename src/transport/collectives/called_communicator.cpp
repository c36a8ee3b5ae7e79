// SPDX-License-Identifier: Apache-2.0
#include "transport/collectives/called_communicator.h"

#include <fmt/format.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/check.h"

namespace isthmus {
namespace {

class CalledCommunicator final : public Communicator {
 public:
  explicit CalledCommunicator(RankCalls calls) : calls_(std::move(calls)) {}

  [[nodiscard]] int rank() const override { return calls_.rank; }
  [[nodiscard]] int size() const override { return calls_.size; }
  [[nodiscard]] std::string_view backend() const override { return "called"; }

  void broadcast(Values values, int root) override {
    ISTHMUS_CHECK(root == 0, root);
    if (values.count > 0 && size() > 1) calls_.broadcast(bytes_of(values, 0, values.count));
  }
  // Between rank 0 and each other rank one of the two shares is empty, so no order can block.
  void all_to_all(ConstValues input, std::span<const std::int64_t> send_counts, Values output,
                  std::span<const std::int64_t> receive_counts, std::int64_t) override {
    std::int64_t sent = 0, received = 0;
    for (int each = 0; each < size(); ++each) {
      const std::int64_t to = send_counts[static_cast<std::size_t>(each)];
      const std::int64_t from = receive_counts[static_cast<std::size_t>(each)];
      if (each == rank()) {
        ISTHMUS_CHECK(to == from, to, from);
        if (to > 0) {
          const std::span<const std::byte> own = bytes_of(input, sent, to);
          std::memmove(bytes_of(output, received, from).data(), own.data(), own.size());
        }
      } else {
        ISTHMUS_CHECK(rank() == 0 || each == 0 || to + from == 0, rank(), each);
        ISTHMUS_CHECK(to == 0 || from == 0, to, from);
        if (to > 0) calls_.send(bytes_of(input, sent, to), each);
        if (from > 0) calls_.receive(bytes_of(output, received, from), each);
      }
      sent += to;
      received += from;
    }
  }

  void all_reduce(Values, Reduce) override { refuse("all_reduce"); }
  void reduce_scatter(ConstValues, std::span<const std::int64_t>, Values, Reduce) override {
    refuse("reduce_scatter");
  }
  void all_gather(ConstValues, std::span<const std::int64_t>, Values) override {
    refuse("all_gather");
  }
  void send(ConstValues, int, int) override { refuse("send"); }
  void receive(Values, int, int) override { refuse("receive"); }
  void barrier() override { refuse("barrier"); }
  [[nodiscard]] std::unique_ptr<Work> start(std::function<void(Communicator&)>) override {
    refuse("start");
  }
  [[nodiscard]] std::unique_ptr<Communicator> split(int, int) override { refuse("split"); }
  void abort(const std::string&) noexcept override {}  // the caller's collectives end the others
  [[nodiscard]] std::string end_cause() override { return {}; }

 private:
  [[nodiscard]] static std::span<std::byte> bytes_of(const Values& values, std::int64_t first,
                                                     std::int64_t count) {
    const std::size_t each = dtype_bytes(values.dtype);
    return {static_cast<std::byte*>(values.data) + static_cast<std::size_t>(first) * each,
            static_cast<std::size_t>(count) * each};
  }
  [[nodiscard]] static std::span<const std::byte> bytes_of(const ConstValues& values,
                                                           std::int64_t first, std::int64_t count) {
    const std::size_t each = dtype_bytes(values.dtype);
    return {static_cast<const std::byte*>(values.data) + static_cast<std::size_t>(first) * each,
            static_cast<std::size_t>(count) * each};
  }
  [[noreturn]] void refuse(std::string_view operation) const {
    throw CommunicatorError(
        fmt::format("rank {} of {}, {}: the caller's collectives have broadcasts from rank 0 and "
                    "shares from and to rank 0 alone",
                    rank(), size(), operation));
  }

  RankCalls calls_;
};

}  // namespace

std::unique_ptr<Communicator> make_called_communicator(RankCalls calls) {
  return std::make_unique<CalledCommunicator>(std::move(calls));
}

}  // namespace isthmus
