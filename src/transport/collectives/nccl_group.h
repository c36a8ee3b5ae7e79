// SPDX-License-Identifier: Apache-2.0
// One rank's end of a group of GPUs: the meeting before an operation, waits for the device with a
// deadline, and the end of the group.
//
// The ranks meet over another communicator of the same ranks (threads, MPI) before each NCCL call:
// it compares their calls, has a deadline and transports aborts; NCCL does none of these. After the
// meeting all launch the same operation, so only a failed device, link or process can block NCCL.
// Then a rank that reaches the deadline, or hears that another one ended the group, aborts NCCL's
// communicator. NCCL never blocks this thread: operations do not (`blocking = 0`), and another
// thread ends communicators (nccl_end.h).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "isthmus/runtime.h"
#include "transport/collectives/communicator_call.h"
#include "transport/collectives/core_contention.h"
#include "transport/collectives/nccl_device.h"

namespace isthmus {

class NcclGroup {
 public:
  /// Collective: joins the ranks' devices. THROWS: CommunicatorError (all below).
  NcclGroup(const NcclCalls& calls, std::shared_ptr<Runtime> runtime,
            std::unique_ptr<Communicator> ranks, int device, Duration deadline);
  ~NcclGroup();  // as close()
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  [[nodiscard]] int rank() const { return ranks_->rank(); }
  [[nodiscard]] int size() const { return ranks_->size(); }
  [[nodiscard]] Communicator& ranks() { return *ranks_; }
  [[nodiscard]] const std::shared_ptr<Runtime>& runtime() const { return runtime_; }
  [[nodiscard]] const NcclDevice& device() const { return *device_; }
  [[nodiscard]] ncclComm_t comm() const { return comm_; }

  /// Runs steps before the meeting that may fail on this rank alone.
  void prepare(const Call& call, const std::function<void()>& body);
  /// Returns once all ranks have arrived with the same call.
  void meet(const Call& call);
  /// Calls of ranks(), whose errors are reported as errors of `call`.
  void over_ranks(const Call& call, const std::function<void()>& body);
  /// `queue` puts work on the stream, NCCL's through launch(). Returns when the stream has done it.
  void run(const Call& call, const std::function<void()>& queue);
  /// The same for work after `ready`, an event of the device: once it is reached the ranks meet
  /// again, and the deadline counts from then.
  void run_behind(const Call& call, void* ready, const std::function<void()>& queue);
  /// `calls`: NCCL calls to launch together, each result passed to check().
  void launch(const std::function<void()>& calls);
  void check(ncclResult_t result, const char* call) const;

  /// The group of the ranks with this color, ordered by (key, rank).
  [[nodiscard]] std::unique_ptr<NcclGroup> split(int color, int key);

  /// Ends NCCL's communicator. NCCL waits for the other ranks to do the same; this rank waits for
  /// NCCL for a few seconds at most, and then leaks the stream, the memory and a thread.
  void close() noexcept;
  /// Ends the group, and this call.
  [[noreturn]] void fail(const Call& call, const std::string& cause);

 private:
  /// For a communicator that NCCL has split off.
  NcclGroup(const NcclGroup& parent, std::unique_ptr<Communicator> ranks);

  void join();
  void split_off(const NcclGroup& child, int color, ncclComm_t* comm);
  /// NCCL and CUDA failures in `body` end the group.
  void guard(const Call& call, const std::function<void()>& body);
  void begin(Duration patience);
  void wait_until(const std::function<bool()>& done);
  void settle(ncclComm_t comm);
  [[nodiscard]] bool settled(ncclComm_t comm) const;
  /// orderly: finalizes, as long as no rank has ended the group.
  void end(bool orderly) noexcept;
  [[noreturn]] void throw_ended(const Call& call);

  const NcclCalls& calls_;
  const std::shared_ptr<Runtime> runtime_;  // shared with all groups split from this one
  const std::unique_ptr<Communicator> ranks_;
  const int ordinal_;
  const Duration deadline_;
  std::unique_ptr<NcclDevice> device_;
  ncclComm_t comm_ = nullptr;  // null: the group has ended
  Duration patience_{};
  TimePoint end_{};  // of the current wait for the device
  CoreContention contention_;
  std::vector<Call> met_;
};

}  // namespace isthmus
