// SPDX-License-Identifier: Apache-2.0
#include "transport/collectives/nccl_end.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <utility>

namespace isthmus {
namespace {

constexpr Duration kNcclLook = std::chrono::microseconds(100);
constexpr Duration kFinish = std::chrono::seconds(5);  // of an orderly end
constexpr Duration kStopOfAbort =
    std::chrono::seconds(1);  // for communicators that NCCL has been told to abort

struct End {
  std::atomic<bool> abort = false;
  std::atomic<bool> done = false;
};

bool finalized(const NcclCalls& calls, Runtime& runtime, ncclComm_t comm, Duration patience,
               const End& end) {
  const TimePoint last = runtime.clock().now() + patience;
  const ncclResult_t begun = calls.comm_finalize(comm);
  if (begun != ncclSuccess && begun != ncclInProgress) return false;
  ncclResult_t state = ncclInProgress;
  while (calls.comm_get_async_error(comm, &state) == ncclSuccess && state == ncclInProgress) {
    if (end.abort || runtime.clock().now() >= last) return false;
    runtime.sleep_until(runtime.clock().now() + kNcclLook);
  }
  return state == ncclSuccess;
}

}  // namespace

bool end_nccl(const NcclCalls& calls, const std::shared_ptr<Runtime>& runtime, ncclComm_t comm,
              int device, Duration patience, const std::function<bool()>& orderly) noexcept {
  try {
    const Duration finish = std::min(patience, kFinish);
    const auto end = std::make_shared<End>();
    end->abort = !orderly();
    std::unique_ptr<Task> task =
        runtime->spawn("end of a communicator", [&calls, runtime, comm, device, finish, end] {
          (void)cuda_ok(calls, calls.set_device(device));
          if (!end->abort && finalized(calls, *runtime, comm, finish, *end)) {
            (void)calls.comm_destroy(comm);
          } else {
            (void)calls.comm_abort(comm);
          }
          end->done = true;
        });
    TimePoint last = runtime->clock().now() + kStopOfAbort + (end->abort ? Duration{} : finish);
    while (!end->done && runtime->clock().now() < last) {
      if (!end->abort && !orderly()) {
        end->abort = true;
        last = runtime->clock().now() + kStopOfAbort;
      }
      runtime->sleep_until(runtime->clock().now() + kNcclLook);
    }
    if (!end->done) {
      (void)task.release();  // its destructor would wait
      return false;
    }
    return true;
  } catch (const std::exception&) {  // no thread, no memory
    return false;
  }
}

}  // namespace isthmus
