// SPDX-License-Identifier: Apache-2.0
#include "transport/collectives/checked_communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "transport/collectives/progress_queue.h"
#include "transport/collectives/rank_order.h"

namespace isthmus {
namespace {

class CheckedCommunicator : public Communicator {
 public:
  CheckedCommunicator(std::shared_ptr<Runtime> runtime,
                      std::shared_ptr<CommunicatorBackend> backend)
      : runtime_(std::move(runtime)), backend_(std::move(backend)) {}

  [[nodiscard]] int rank() const override { return backend_->rank(); }
  [[nodiscard]] int size() const override { return backend_->size(); }
  [[nodiscard]] std::string_view backend() const override { return backend_->name(); }

  void all_reduce(Values values, Reduce reduce) override {
    const Call call = all_reduce_call(values, reduce);
    require(values.count >= 0, call, "the count is negative");
    require(reducible(values.dtype), call, "values of this dtype cannot be reduced");
    come_in();
    backend_->all_reduce(values, reduce);
  }

  void all_reduce_behind(std::span<const DeviceValues> sums) override {
    const Call call = all_reduce_behind_call(sums);
    for (const DeviceValues& each : sums) {
      require(each.values.count >= 0, call, "a count is negative");
      require(reducible(each.values.dtype), call, "values of this dtype cannot be reduced");
      require(each.values.dtype == call.dtype, call, "the values have unlike dtypes");
      require(each.ready != nullptr, call, "an event is missing");
    }
    come_in();
    backend_->all_reduce_behind(sums);
  }

  void reduce_scatter(ConstValues input, std::span<const std::int64_t> counts, Values output,
                      Reduce reduce) override {
    const Call call = reduce_scatter_call(input.dtype, counts, reduce);
    require(reducible(input.dtype), call, "values of this dtype cannot be reduced");
    check_shares(call, counts, input.count, output.count, input.dtype == output.dtype);
    come_in();
    backend_->reduce_scatter(input, counts, output, reduce);
  }

  void all_gather(ConstValues input, std::span<const std::int64_t> counts, Values output) override {
    const Call call = all_gather_call(input.dtype, counts);
    check_shares(call, counts, output.count, input.count, input.dtype == output.dtype);
    come_in();
    backend_->all_gather(input, counts, output);
  }

  void broadcast(Values values, int root) override {
    const Call call = broadcast_call(values, root);
    require(values.count >= 0, call, "the count is negative");
    require(root >= 0 && root < size(), call, "there is no such rank");
    come_in();
    backend_->broadcast(values, root);
  }

  void all_to_all(ConstValues input, std::span<const std::int64_t> send_counts, Values output,
                  std::span<const std::int64_t> receive_counts, std::int64_t of_all) override {
    const Call call = all_to_all_call(input.dtype, of_all);
    require(of_all == 0 || of_all >= std::max(input.count, output.count), call,
            "that is less than a rank gives or gets");
    check_counts(call, send_counts, input.count);
    check_counts(call, receive_counts, output.count);
    require(input.dtype == output.dtype, call, "input and output have unlike dtypes");
    const auto self = static_cast<std::size_t>(rank());
    require(send_counts[self] == receive_counts[self], call,
            "what the rank keeps for itself has two sizes");
    come_in();
    backend_->all_to_all(input, send_counts, output, receive_counts, of_all);
  }

  void send(ConstValues values, int to, int tag) override {
    check_message(Operation::kSend, values, to, tag);
    come_in();
    backend_->send(values, to, tag);
  }
  void receive(Values values, int from, int tag) override {
    check_message(Operation::kReceive, {values.data, values.count, values.dtype}, from, tag);
    come_in();
    backend_->receive(values, from, tag);
  }
  void barrier() override {
    come_in();
    backend_->barrier();
  }

  [[nodiscard]] std::unique_ptr<Work> start(std::function<void(Communicator&)>) override {
    Call call;
    fail(call, "an operation that was started cannot start another");
  }

  [[nodiscard]] std::unique_ptr<Communicator> split(int color, int key) override {
    come_in();
    return make_checked_communicator(runtime_, backend_->split(color, key));
  }
  void abort(const std::string& cause) noexcept override { backend_->abort(cause); }
  [[nodiscard]] std::string end_cause() override { return backend_->end_cause(); }

 protected:
  /// Before each call of the back end.
  virtual void come_in() {}

  const std::shared_ptr<Runtime> runtime_;
  const std::shared_ptr<CommunicatorBackend> backend_;  // shared with started operations

 private:
  /// The others would wait for this rank in vain, so they hear of it.
  [[noreturn]] void fail(const Call& call, const std::string& why) {
    const std::string cause =
        fmt::format("rank {} of {}, {}: {}", rank(), size(), describe(call), why);
    backend_->abort(cause);
    throw CommunicatorError(cause);
  }
  void require(bool condition, const Call& call, const char* why) {
    if (!condition) fail(call, why);
  }
  void check_counts(const Call& call, std::span<const std::int64_t> counts, std::int64_t sum) {
    if (counts.size() != static_cast<std::size_t>(size())) {
      fail(call, fmt::format("{} counts for {} ranks", counts.size(), size()));
    }
    require(std::all_of(counts.begin(), counts.end(), [](std::int64_t n) { return n >= 0; }), call,
            "a count is negative");
    if (total(counts) != sum) {
      fail(call, fmt::format("the counts sum to {}, the buffer holds {}", total(counts), sum));
    }
  }
  void check_shares(const Call& call, std::span<const std::int64_t> counts, std::int64_t sum,
                    std::int64_t share, bool same_dtype) {
    require(same_dtype, call, "input and output have unlike dtypes");
    check_counts(call, counts, sum);
    const std::int64_t own = counts[static_cast<std::size_t>(rank())];
    if (share != own) {
      fail(call, fmt::format("this rank's share is {}, its buffer holds {}", own, share));
    }
  }
  void check_message(Operation operation, const ConstValues& values, int other, int tag) {
    Call call;
    call.operation = operation;
    call.dtype = values.dtype;
    call.root = other;
    call.tag = tag;
    call.count = values.count;
    require(values.count >= 0, call, "the count is negative");
    require(tag >= 0, call, "tags are >= 0");
    require(other >= 0 && other < size(), call, "there is no such rank");
    require(other != rank(), call, "a rank sends nothing to itself");
  }
};

class QueuedCommunicator final : public CheckedCommunicator {
 public:
  QueuedCommunicator(std::shared_ptr<Runtime> runtime, std::shared_ptr<CommunicatorBackend> backend)
      : CheckedCommunicator(runtime, backend),
        direct_(runtime, backend),
        queue_(*runtime,
               fmt::format("{} collectives of rank {}", backend->name(), backend->rank())) {}

  [[nodiscard]] std::unique_ptr<Work> start(std::function<void(Communicator&)> operation) override {
    return queue_.start([this, run = std::move(operation)] { run(direct_); });
  }

 private:
  void come_in() override { queue_.drain(); }

  CheckedCommunicator direct_;
  ProgressQueue queue_;  // ends before the objects that its operations use
};

}  // namespace

std::unique_ptr<Communicator> make_checked_communicator(
    std::shared_ptr<Runtime> runtime, std::unique_ptr<CommunicatorBackend> backend) {
  return std::make_unique<QueuedCommunicator>(std::move(runtime), std::move(backend));
}

}  // namespace isthmus
