// SPDX-License-Identifier: Apache-2.0
#include "transport/collectives/mixed_communicator.h"

#include <fmt/format.h>

#include "core/base/check.h"
#include "core/base/system_runtime.h"
#include "transport/collectives/checked_communicator.h"

namespace isthmus {
namespace {

std::vector<std::string> names_of(const std::vector<NamedCommunicator>& backends) {
  std::vector<std::string> names;
  for (const NamedCommunicator& each : backends) names.push_back(each.name);
  return names;
}

class MixedBackend final : public CommunicatorBackend {
 public:
  MixedBackend(std::vector<NamedCommunicator> backends, std::shared_ptr<const MixTable> table)
      : backends_(std::move(backends)),
        table_(std::move(table)),
        choices_(table_->choices(size(), names_of(backends_))) {}

  [[nodiscard]] int rank() const override { return first().rank(); }
  [[nodiscard]] int size() const override { return first().size(); }
  [[nodiscard]] std::string_view name() const override { return "mixed"; }

  void all_reduce(Values values, Reduce reduce) override {
    run(all_reduce_call(values, reduce), [&](Communicator& on) { on.all_reduce(values, reduce); });
  }
  void reduce_scatter(ConstValues input, std::span<const std::int64_t> counts, Values output,
                      Reduce reduce) override {
    run(reduce_scatter_call(input.dtype, counts, reduce),
        [&](Communicator& on) { on.reduce_scatter(input, counts, output, reduce); });
  }
  void all_gather(ConstValues input, std::span<const std::int64_t> counts, Values output) override {
    run(all_gather_call(input.dtype, counts),
        [&](Communicator& on) { on.all_gather(input, counts, output); });
  }
  void broadcast(Values values, int root) override {
    run(broadcast_call(values, root), [&](Communicator& on) { on.broadcast(values, root); });
  }
  void all_to_all(ConstValues input, std::span<const std::int64_t> send_counts, Values output,
                  std::span<const std::int64_t> receive_counts, std::int64_t of_all) override {
    const auto body = [&](Communicator& on) {
      on.all_to_all(input, send_counts, output, receive_counts, of_all);
    };
    if (of_all == 0) {
      run_kind(Operation::kAllToAll, body);
    } else {
      run(all_to_all_call(input.dtype, of_all), body);
    }
  }
  void send(ConstValues values, int to, int tag) override {
    run_kind(Operation::kSend, [&](Communicator& on) { on.send(values, to, tag); });
  }
  void receive(Values values, int from, int tag) override {
    run_kind(Operation::kSend, [&](Communicator& on) { on.receive(values, from, tag); });
  }
  void barrier() override {
    run_kind(Operation::kBarrier, [](Communicator& on) { on.barrier(); });
  }

  /// The child goes by the table's times of groups of its size.
  [[nodiscard]] std::unique_ptr<CommunicatorBackend> split(int color, int key) override {
    std::vector<NamedCommunicator> parts;
    guard([&] {
      for (const NamedCommunicator& each : backends_) {
        parts.push_back({each.name, each.communicator->split(color, key)});
      }
    });
    return std::make_unique<MixedBackend>(std::move(parts), table_);
  }

  void abort(const std::string& cause) noexcept override {
    for (const NamedCommunicator& each : backends_) each.communicator->abort(cause);
  }
  [[nodiscard]] std::string end_cause() override {
    std::string cause;
    for (const NamedCommunicator& each : backends_) {
      if (cause.empty()) cause = each.communicator->end_cause();
    }
    return cause;
  }

 private:
  [[nodiscard]] const Communicator& first() const { return *backends_.front().communicator; }

  template <typename Body>
  void guard(Body&& body) {
    try {
      body();
    } catch (const CommunicatorError& error) {
      abort(error.what());  // ranks may wait in the other back ends
      throw;
    }
  }

  template <typename Body>
  void run(const Call& call, Body&& body) {
    guard([&] { body(on(choices_.of(call.operation, call_bytes(call, size())))); });
  }
  /// Whatever the size.
  template <typename Body>
  void run_kind(Operation operation, Body&& body) {
    guard([&] { body(on(choices_.of_kind(operation))); });
  }
  [[nodiscard]] Communicator& on(std::size_t place) { return *backends_[place].communicator; }

  const std::vector<NamedCommunicator> backends_;
  const std::shared_ptr<const MixTable>
      table_;  // shared with communicators that are split from this one
  const MixChoices choices_;
};

}  // namespace

void check_same_table(Communicator& ranks, const MixTable* table) {
  const std::uint64_t own = table == nullptr ? 0 : table->digest();
  std::uint64_t digest = own;  // of rank 0
  ranks.broadcast({&digest, 1, Dtype::kI64}, 0);
  std::int32_t unlike = digest == own ? 0 : ranks.rank();
  ranks.all_reduce({&unlike, 1, Dtype::kI32}, Reduce::kMax);
  if (unlike == 0) return;
  throw CommunicatorError(fmt::format(
      "ranks 0 and {} have unlike tables of back ends: give all the same file", unlike));
}

std::unique_ptr<Communicator> make_mixed_communicator(std::vector<NamedCommunicator> backends,
                                                      MixTable table, MixedSums sums) {
  ISTHMUS_CHECK(!backends.empty());
  Communicator& first = *backends.front().communicator;
  for (const NamedCommunicator& each : backends) {
    ISTHMUS_CHECK(each.communicator->rank() == first.rank(), each.name);
    ISTHMUS_CHECK(each.communicator->size() == first.size(), each.name);
  }
  const auto refuse = [&](const std::string& cause) {
    for (const NamedCommunicator& each : backends) each.communicator->abort(cause);
    throw CommunicatorError(cause);
  };
  if (!table.has_times_of(first.size())) {
    refuse(
        fmt::format("the table of back ends has no times of groups of {} ranks, as this one is; "
                    "measure with as "
                    "many: isthmus bench collectives --inner --out FILE",
                    first.size()));
  }
  for (const NamedCommunicator& each : backends) {
    if (sums == MixedSums::kAny || each.communicator->backend() != "nccl") continue;
    refuse(fmt::format(
        "back end \"{}\": NCCL's sums have an order of their own, so mixing it lets the table "
        "decide bits; ask for MixedSums::kAny or leave it out",
        each.name));
  }
  check_same_table(first, &table);
  return make_checked_communicator(
      std::make_shared<SystemRuntime>(),
      std::make_unique<MixedBackend>(std::move(backends),
                                     std::make_shared<const MixTable>(std::move(table))));
}

}  // namespace isthmus
