// SPDX-License-Identifier: Apache-2.0
#include "transport/collectives/nccl_communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "core/base/system_runtime.h"
#include "isthmus/errors.h"
#include "transport/collectives/checked_communicator.h"
#include "transport/collectives/nccl_backend.h"
#include "transport/collectives/nccl_group.h"
#include "transport/collectives/rank_order.h"
#include "transport/collectives/value_bytes.h"

namespace isthmus {
namespace {

using value_bytes::at;
using value_bytes::bytes_of;

ncclDataType_t type_of(Dtype dtype) {
  constexpr ncclDataType_t kTypes[] = {ncclFloat32, ncclFloat64, ncclBfloat16,
                                       ncclUint8,   ncclInt32,   ncclInt64};
  return kTypes[static_cast<std::size_t>(dtype)];
}

ncclRedOp_t operator_of(Reduce reduce) { return reduce == Reduce::kSum ? ncclSum : ncclMax; }

/// NCCL's maximum of floats drops NaN.
bool on_the_host(Dtype dtype, Reduce reduce) {
  return reduce == Reduce::kMax && dtype != Dtype::kI32 && dtype != Dtype::kI64;
}

bool alike(std::span<const std::int64_t> counts) {
  return std::all_of(counts.begin(), counts.end(),
                     [&](std::int64_t count) { return count == counts[0]; });
}

std::size_t size_of(std::int64_t count) { return static_cast<std::size_t>(count); }

class NcclBackend final : public CommunicatorBackend {
 public:
  NcclBackend(const NcclCalls& calls, std::unique_ptr<NcclGroup> group)
      : calls_(calls),
        group_(std::move(group)),
        input_(group_->device()),
        output_(group_->device()) {}
  ~NcclBackend() override { group_->close(); }  // before staging goes
  NcclBackend(const NcclBackend&) = delete;
  NcclBackend& operator=(const NcclBackend&) = delete;

  [[nodiscard]] int rank() const override { return group_->rank(); }
  [[nodiscard]] int size() const override { return group_->size(); }
  [[nodiscard]] std::string_view name() const override { return "nccl"; }

  void all_reduce(Values values, Reduce reduce) override {
    const Call call = all_reduce_call(values, reduce);
    if (on_the_host(values.dtype, reduce)) {
      const std::vector<std::int64_t> counts(size_of(size()), values.count);
      reduce_gathered(call, input_of(values), values, [&] { gather(counts, values.dtype); });
      return;
    }
    perform(call, {nullptr, 0, values.dtype}, values, true, [&] {
      std::byte* const place = output_.on_device();
      group_->check(
          calls_.all_reduce(place, place, size_of(values.count), type_of(values.dtype),
                            operator_of(reduce), group_->comm(), group_->device().stream()),
          "ncclAllReduce");
    });
  }

  void all_reduce_behind(std::span<const DeviceValues> sums) override {
    const Call call = all_reduce_behind_call(sums);
    group_->prepare(call, [&] {
      for (const DeviceValues& each : sums) {
        if (each.values.count == 0 || group_->device().holds(each.values.data)) continue;
        throw NcclFailure("values behind an event lie in memory of the host");
      }
    });
    group_->meet(call);
    if (call.count == 0) return;
    group_->run_behind(call, sums.back().ready, [&] {
      for (const DeviceValues& each : sums) queue_sum(each);
    });
  }

  void reduce_scatter(ConstValues input, std::span<const std::int64_t> counts, Values output,
                      Reduce reduce) override {
    const Call call = reduce_scatter_call(input.dtype, counts, reduce);
    if (on_the_host(input.dtype, reduce)) {
      const std::vector<std::int64_t> received(counts.size(), output.count);
      reduce_gathered(call, input, output, [&] { exchange(counts, received, input.dtype); });
      return;
    }
    perform(call, input, output, false, [&] { scatter(counts, input.dtype, reduce); });
  }

  void all_gather(ConstValues input, std::span<const std::int64_t> counts, Values output) override {
    perform(all_gather_call(input.dtype, counts), input, output, false,
            [&] { gather(counts, input.dtype); });
  }

  void broadcast(Values values, int root) override {
    perform(broadcast_call(values, root), {nullptr, 0, values.dtype}, values, rank() == root, [&] {
      std::byte* const place = output_.on_device();
      group_->check(calls_.broadcast(place, place, size_of(values.count), type_of(values.dtype),
                                     root, group_->comm(), group_->device().stream()),
                    "ncclBroadcast");
    });
  }

  void all_to_all(ConstValues input, std::span<const std::int64_t> send_counts, Values output,
                  std::span<const std::int64_t> receive_counts, std::int64_t of_all) override {
    const Call call = all_to_all_call(input.dtype, of_all);
    stage(call, input, output);
    group_->meet(call);
    check_shares(call, send_counts, receive_counts);
    run(call, false, [&] { exchange(send_counts, receive_counts, input.dtype); });
  }

  void send(ConstValues values, int to, int tag) override {
    const Call call = message_call(Operation::kSend, values.count, values.dtype, to, tag);
    if (!on_device(call, values.data)) {
      group_->ranks().send(values, to, tag);
      return;
    }
    scratch(call, values.count);
    group_->run(call, [&] {
      group_->device().copy(input_.pinned(), values.data, bytes_of(values.count, values.dtype),
                            cudaMemcpyDeviceToHost);
    });
    group_->ranks().send({input_.pinned(), values.count, values.dtype}, to, tag);
  }
  void receive(Values values, int from, int tag) override {
    const Call call = message_call(Operation::kReceive, values.count, values.dtype, from, tag);
    if (!on_device(call, values.data)) {
      group_->ranks().receive(values, from, tag);
      return;
    }
    scratch(call, values.count);
    group_->ranks().receive({input_.pinned(), values.count, values.dtype}, from, tag);
    put(call, values, input_.pinned());
  }

  /// No operation is under way on a rank that has come, so meeting is all.
  void barrier() override { group_->meet({.operation = Operation::kBarrier}); }

  [[nodiscard]] std::unique_ptr<CommunicatorBackend> split(int color, int key) override {
    return std::make_unique<NcclBackend>(calls_, group_->split(color, key));
  }
  void abort(const std::string& cause) noexcept override { group_->ranks().abort(cause); }
  [[nodiscard]] std::string end_cause() override { return group_->ranks().end_cause(); }

 private:
  static ConstValues input_of(const Values& values) {
    return {values.data, values.count, values.dtype};
  }
  bool on_device(const Call& call, const void* data) {
    bool there = false;
    group_->prepare(call, [&] { there = call.count > 0 && group_->device().holds(data); });
    return there;
  }

  void stage(const Call& call, const ConstValues& input, const Values& output) {
    group_->prepare(call, [&] {
      input_.take(const_cast<void*>(input.data), bytes_of(input.count, input.dtype));
      output_.take(output.data, bytes_of(output.count, output.dtype));
    });
  }
  void scratch(const Call& call, std::int64_t count) {
    group_->prepare(call, [&] { input_.take(nullptr, bytes_of(count, call.dtype)); });
  }

  /// brings: whether NCCL reads `output` too.
  void perform(const Call& call, const ConstValues& input, const Values& output, bool brings,
               const std::function<void()>& calls) {
    stage(call, input, output);
    group_->meet(call);
    if (call.count > 0) run(call, brings, calls);
  }
  void run(const Call& call, bool brings, const std::function<void()>& calls) {
    group_->run(call, [&] {
      input_.fetch();
      if (brings) output_.fetch();
      group_->launch(calls);
      output_.bring_back();
    });
    output_.deliver();
  }

  /// output := reduction of all ranks' values for this rank, which `calls` puts one after another
  /// into the staging memory of the output.
  void reduce_gathered(const Call& call, const ConstValues& input, const Values& output,
                       const std::function<void()>& calls) {
    perform(call, input, {nullptr, output.count * size(), output.dtype}, false, calls);
    if (output.count == 0) return;
    void* const gathered = output_.pinned();
    std::vector<const void*> inputs;
    for (int peer = 0; peer < size(); ++peer) {
      inputs.push_back(at(gathered, peer * output.count, output.dtype));
    }
    reduce_in_rank_order(output.dtype, call.reduce, inputs, output.count, {&gathered, 1});
    put(call, output, gathered);
  }
  /// A separate launch, since the stream has no other work until the event is reached.
  void queue_sum(const DeviceValues& sum) {
    if (sum.values.count == 0) return;
    group_->device().wait_for(sum.ready);
    group_->launch([&] {
      group_->check(calls_.all_reduce(sum.values.data, sum.values.data, size_of(sum.values.count),
                                      type_of(sum.values.dtype), ncclSum, group_->comm(),
                                      group_->device().stream()),
                    "ncclAllReduce");
    });
  }

  /// From pinned memory to where the values are wanted.
  void put(const Call& call, const Values& values, const void* from) {
    const std::size_t bytes = bytes_of(values.count, values.dtype);
    if (!on_device(call, values.data)) {
      value_bytes::copy(values.data, from, bytes);
      return;
    }
    group_->run(call,
                [&] { group_->device().copy(values.data, from, bytes, cudaMemcpyHostToDevice); });
  }

  void scatter(std::span<const std::int64_t> counts, Dtype dtype, Reduce reduce) {
    const cudaStream_t stream = group_->device().stream();
    const std::byte* const input = input_.on_device();
    if (alike(counts)) {
      group_->check(
          calls_.reduce_scatter(input, output_.on_device(), size_of(counts[0]), type_of(dtype),
                                operator_of(reduce), group_->comm(), stream),
          "ncclReduceScatter");
      return;
    }
    for (int owner = 0; owner < size(); ++owner) {
      const std::int64_t count = counts[size_of(owner)];
      if (count == 0) continue;
      group_->check(
          calls_.reduce(at(static_cast<const void*>(input), place_of(counts, owner), dtype),
                        owner == rank() ? output_.on_device() : nullptr, size_of(count),
                        type_of(dtype), operator_of(reduce), owner, group_->comm(), stream),
          "ncclReduce");
    }
  }

  void gather(std::span<const std::int64_t> counts, Dtype dtype) {
    const cudaStream_t stream = group_->device().stream();
    if (alike(counts)) {
      group_->check(calls_.all_gather(input_.on_device(), output_.on_device(), size_of(counts[0]),
                                      type_of(dtype), group_->comm(), stream),
                    "ncclAllGather");
      return;
    }
    for (int owner = 0; owner < size(); ++owner) {
      const std::int64_t count = counts[size_of(owner)];
      if (count == 0) continue;
      std::byte* const to =
          at(static_cast<void*>(output_.on_device()), place_of(counts, owner), dtype);
      group_->check(calls_.broadcast(owner == rank() ? input_.on_device() : to, to, size_of(count),
                                     type_of(dtype), owner, group_->comm(), stream),
                    "ncclBroadcast");
    }
  }

  /// NCCL sends a rank's share to itself as to others.
  void exchange(std::span<const std::int64_t> send_counts,
                std::span<const std::int64_t> receive_counts, Dtype dtype) {
    const cudaStream_t stream = group_->device().stream();
    const std::byte* from = input_.on_device();
    std::byte* to = output_.on_device();
    for (int peer = 0; peer < size(); ++peer) {
      const std::int64_t outward = send_counts[size_of(peer)];
      const std::int64_t inward = receive_counts[size_of(peer)];
      if (outward > 0) {
        group_->check(
            calls_.send(from, size_of(outward), type_of(dtype), peer, group_->comm(), stream),
            "ncclSend");
      }
      if (inward > 0) {
        group_->check(
            calls_.receive(to, size_of(inward), type_of(dtype), peer, group_->comm(), stream),
            "ncclRecv");
      }
      from += bytes_of(outward, dtype);
      to += bytes_of(inward, dtype);
    }
  }

  /// Every rank is told the sizes that it will get. A rank that expects other sizes ends the group.
  void check_shares(const Call& call, std::span<const std::int64_t> send_counts,
                    std::span<const std::int64_t> receive_counts) {
    const std::vector<std::int64_t> ones(send_counts.size(), 1);
    std::vector<std::int64_t> told(send_counts.size());
    group_->over_ranks(call, [&] {
      group_->ranks().all_to_all({send_counts.data(), size(), Dtype::kI64}, ones,
                                 {told.data(), size(), Dtype::kI64}, ones,
                                 std::int64_t{size()} * size());
    });
    for (int peer = 0; peer < size(); ++peer) {
      if (told[size_of(peer)] == receive_counts[size_of(peer)]) continue;
      group_->fail(call,
                   fmt::format("all_to_all: rank {} has {} values for rank {}, which expects "
                               "{}",
                               peer, told[size_of(peer)], rank(), receive_counts[size_of(peer)]));
    }
  }

  const NcclCalls& calls_;
  const std::unique_ptr<NcclGroup> group_;
  NcclStage input_;  // goes before its device
  NcclStage output_;
};

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator_over(const NcclCalls& calls,
                                                          std::unique_ptr<Communicator> ranks,
                                                          int device,
                                                          std::chrono::milliseconds deadline) {
  const auto runtime = std::make_shared<SystemRuntime>();
  auto group = std::make_unique<NcclGroup>(calls, runtime, std::move(ranks), device, deadline);
  return make_checked_communicator(runtime, std::make_unique<NcclBackend>(calls, std::move(group)));
}

int nccl_devices() {
  const NcclCalls& calls = system_nccl_calls();
  int devices = 0;
  try {
    check_cuda(calls, calls.get_device_count(&devices), "cudaGetDeviceCount");
  } catch (const NcclFailure& failure) {
    throw SystemError(fmt::format("communicator \"nccl\": {}", failure.what()));
  }
  return devices;
}

std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Communicator> ranks,
                                                     int device,
                                                     std::chrono::milliseconds deadline) {
  const NcclCalls* calls = nullptr;
  try {
    calls = &system_nccl_calls();
  } catch (const SystemError& error) {
    ranks->abort(error.what());
    throw;
  }
  return make_nccl_communicator_over(*calls, std::move(ranks), device, deadline);
}

}  // namespace isthmus
