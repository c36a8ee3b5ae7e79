// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstring>
#include <mutex>

#include "core/base/system_runtime.h"
#include "transport/collectives/checked_communicator.h"
#include "transport/collectives/thread_communicator.h"

namespace isthmus {
namespace {

class SelfBackend final : public CommunicatorBackend {
 public:
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return 1; }
  [[nodiscard]] std::string_view name() const override { return "self"; }

  void all_reduce(Values values, Reduce reduce) override {
    check_alive(all_reduce_call(values, reduce));
  }
  void reduce_scatter(ConstValues input, std::span<const std::int64_t> counts, Values output,
                      Reduce reduce) override {
    copy(reduce_scatter_call(input.dtype, counts, reduce), input, output);
  }
  void all_gather(ConstValues input, std::span<const std::int64_t> counts, Values output) override {
    copy(all_gather_call(input.dtype, counts), input, output);
  }
  void broadcast(Values values, int root) override { check_alive(broadcast_call(values, root)); }
  void all_to_all(ConstValues input, std::span<const std::int64_t> send_counts, Values output,
                  std::span<const std::int64_t>, std::int64_t) override {
    copy(all_gather_call(input.dtype, send_counts), input, output);
  }
  // There is no rank to send to; the checks in front have refused such a call.
  void send(ConstValues, int, int) override {}
  void receive(Values, int, int) override {}
  void barrier() override { check_alive({}); }
  [[nodiscard]] std::unique_ptr<CommunicatorBackend> split(int, int) override {
    check_alive({});
    auto child = std::make_unique<SelfBackend>();
    child->fate_->parent = fate_;
    return child;
  }
  void abort(const std::string& cause) noexcept override {
    const std::scoped_lock lock(fate_->mutex);
    if (fate_->cause.empty()) fate_->cause = cause.empty() ? "aborted" : cause;
  }
  [[nodiscard]] std::string end_cause() override {
    for (Fate* fate = fate_.get(); fate != nullptr; fate = fate->parent.get()) {
      const std::scoped_lock lock(fate->mutex);
      if (!fate->cause.empty()) return fate->cause;
    }
    return {};
  }

 private:
  struct Fate {
    std::mutex mutex;
    std::string cause;             // under mutex
    std::shared_ptr<Fate> parent;  // shared with the communicator this one was split from
  };

  void check_alive(const Call& call) {
    const std::string cause = end_cause();
    if (cause.empty()) return;
    throw CommunicatorError(fmt::format("rank 0 of 1, {}: {}", describe(call), cause));
  }
  void copy(const Call& call, const ConstValues& input, const Values& output) {
    check_alive(call);
    const std::size_t bytes = static_cast<std::size_t>(input.count) * dtype_bytes(input.dtype);
    if (bytes != 0 && input.data != output.data) std::memmove(output.data, input.data, bytes);
  }

  const std::shared_ptr<Fate> fate_ =
      std::make_shared<Fate>();  // shared with communicators that are split off
};

}  // namespace

std::unique_ptr<Communicator> make_self_communicator() {
  return make_checked_communicator(std::make_shared<SystemRuntime>(),
                                   std::make_unique<SelfBackend>());
}

}  // namespace isthmus
