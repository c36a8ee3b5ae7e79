// SPDX-License-Identifier: Apache-2.0
#include "transport/collectives/nccl_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>
#include <utility>

#include "core/base/check.h"
#include "core/base/deadline.h"
#include "transport/collectives/nccl_end.h"

namespace isthmus {
namespace {

static_assert(std::is_trivially_copyable_v<Call>);

// Small operations take some ten microseconds, so a wait begins with looks.
constexpr Duration kBusyNccl = std::chrono::microseconds(200);
constexpr Duration kShortestNcclNap = std::chrono::microseconds(20);
constexpr Duration kLongestNcclNap = std::chrono::microseconds(100);
constexpr Duration kStopOnDevice = std::chrono::seconds(1);  // for work that runs on the device

std::string name_of(const Call& call) {
  return call.operation == Operation::kNothing ? "joining the devices" : describe(call);
}

ncclConfig_t own_config() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.splitShare = 0;  // a child may run beside its parent, and end without it
  return config;
}

/// Where NCCL writes a communicator until it has settled or ended: for good if it does neither.
class Place {
 public:
  explicit Place(const NcclDevice& device) : device_(device) {}
  ~Place() {
    if (device_.given_up()) (void)comm_.release();
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  [[nodiscard]] ncclComm_t* get() const { return comm_.get(); }

 private:
  const NcclDevice& device_;
  std::unique_ptr<ncclComm_t> comm_ = std::make_unique<ncclComm_t>(nullptr);
};

}  // namespace

NcclGroup::NcclGroup(const NcclCalls& calls, std::shared_ptr<Runtime> runtime,
                     std::unique_ptr<Communicator> ranks, int device, Duration deadline)
    : calls_(calls),
      runtime_(std::move(runtime)),
      ranks_(std::move(ranks)),
      ordinal_(device),
      deadline_(deadline),
      met_(static_cast<std::size_t>(ranks_->size())) {
  join();
}

NcclGroup::NcclGroup(const NcclGroup& parent, std::unique_ptr<Communicator> ranks)
    : calls_(parent.calls_),
      runtime_(parent.runtime_),
      ranks_(std::move(ranks)),
      ordinal_(parent.ordinal_),
      deadline_(parent.deadline_),
      met_(static_cast<std::size_t>(ranks_->size())) {}

NcclGroup::~NcclGroup() { close(); }

void NcclGroup::join() {
  const Call call;
  ncclUniqueId id{};
  guard(call, [&] {
    device_ = std::make_unique<NcclDevice>(calls_, ordinal_);
    if (rank() == 0) check(calls_.get_unique_id(&id), "ncclGetUniqueId");
  });
  meet(call);
  over_ranks(call, [&] { ranks_->broadcast({&id, sizeof id, Dtype::kU8}, 0); });
  const Place place(*device_);
  guard(call, [&] {
    begin(deadline_);
    device_->enter();
    ncclConfig_t config = own_config();
    const ncclResult_t begun = calls_.comm_init_rank(place.get(), size(), id, rank(), &config);
    comm_ = *place.get();
    check(begun, "ncclCommInitRankConfig");
    settle(comm_);
  });
  meet(call);  // all ranks have joined, or all are told which rank has not
}

void NcclGroup::prepare(const Call& call, const std::function<void()>& body) {
  guard(call, [&] {
    device_->enter();
    body();
  });
}

void NcclGroup::meet(const Call& call) {
  const std::vector<std::int64_t> counts(met_.size(), sizeof(Call));
  over_ranks(call, [&] {
    ranks_->all_gather({&call, sizeof(Call), Dtype::kU8}, counts,
                       {met_.data(), size() * std::int64_t{sizeof(Call)}, Dtype::kU8});
  });
  const Call& first = met_.front();
  for (int peer = 1; peer < size(); ++peer) {
    const Call& other = met_[static_cast<std::size_t>(peer)];
    if (other == first) continue;
    const bool alike = describe(other) == describe(first);
    fail(call, fmt::format("rank 0 calls {}, rank {} calls {}{}", describe(first), peer,
                           describe(other), alike ? " in other shares" : ""));
  }
}

void NcclGroup::run(const Call& call, const std::function<void()>& queue) {
  guard(call, [&] {
    begin(deadline_);
    device_->enter();
    queue();
    device_->mark();
    wait_until([this] { return device_->reached(); });
  });
}

// Work before the event may take as long as it does, on this rank and, until they meet, on others.
void NcclGroup::run_behind(const Call& call, void* ready, const std::function<void()>& queue) {
  guard(call, [&] {
    begin(deadline_);
    device_->enter();
    queue();
    device_->mark();
    begin(kNever - TimePoint{});
    wait_until([&] { return device_->reached(ready); });
    meet(call);
    begin(deadline_);
    wait_until([this] { return device_->reached(); });
  });
}

void NcclGroup::launch(const std::function<void()>& calls) {
  check(calls_.group_start(), "ncclGroupStart");
  try {
    calls();
  } catch (...) {
    (void)calls_.group_end();  // the thread's next group would be one within this one
    throw;
  }
  check(calls_.group_end(), "ncclGroupEnd");
  settle(comm_);  // until then the stream need not have it
}

void NcclGroup::check(ncclResult_t result, const char* call) const {
  check_nccl(calls_, comm_, result, call);
}

std::unique_ptr<NcclGroup> NcclGroup::split(int color, int key) {
  Call call;
  call.operation = Operation::kSplit;
  meet(call);
  std::unique_ptr<NcclGroup> child;
  std::int32_t first =
      rank();  // of the child's first rank: distinct and not negative, as NCCL asks
  over_ranks(call, [&] {
    std::unique_ptr<Communicator> ranks = ranks_->split(color, key);
    ranks->broadcast({&first, 1, Dtype::kI32}, 0);
    child.reset(new NcclGroup(*this, std::move(ranks)));
  });
  const Place place(*device_);
  try {
    guard(call, [&] {
      child->device_ = std::make_unique<NcclDevice>(calls_, ordinal_);
      split_off(*child, first, place.get());
    });
  } catch (const CommunicatorError&) {
    if (!device_->given_up()) child->comm_ = *place.get();
    child->end(false);
    throw;
  }
  child->comm_ = *place.get();
  return child;
}

void NcclGroup::split_off(const NcclGroup& child, int color, ncclComm_t* comm) {
  begin(deadline_);
  device_->enter();
  ncclConfig_t config = own_config();
  check(calls_.comm_split(comm_, color, child.rank(), comm, &config), "ncclCommSplit");
  settle(comm_);
  ISTHMUS_CHECK(*comm != nullptr);
  settle(*comm);
}

void NcclGroup::guard(const Call& call, const std::function<void()>& body) {
  try {
    body();
  } catch (const NcclFailure& failure) {
    fail(call, fmt::format("rank {}, {}: {}", rank(), name_of(call), failure.what()));
  }
}

void NcclGroup::over_ranks(const Call& call, const std::function<void()>& body) {
  try {
    body();
  } catch (const CommunicatorError&) {
    end(false);
    throw_ended(call);
  }
}

void NcclGroup::begin(Duration patience) {
  const TimePoint now = runtime_->clock().now();
  patience_ = patience;
  end_ = deadline_after(now, patience);
}

void NcclGroup::wait_until(const std::function<bool()>& done) {
  const Clock& clock = runtime_->clock();
  const TimePoint begin = clock.now();
  Duration nap = kShortestNcclNap;
  const bool yields = contention_.may_yield();
  while (!done()) {
    const TimePoint now = clock.now();
    if (yields && now - begin < kBusyNccl) {
      contention_.yield(clock);
      continue;
    }
    if (!ranks_->end_cause().empty()) throw NcclFailure("ended by another rank");
    (void)settled(comm_);
    if (now >= end_) {
      throw NcclFailure(fmt::format(
          "waited {} ms for device {}, where all ranks had come",
          std::chrono::duration_cast<std::chrono::milliseconds>(patience_).count(), ordinal_));
    }
    runtime_->sleep_until(now + nap);
    nap = std::min(2 * nap, kLongestNcclNap);
  }
}

bool NcclGroup::settled(ncclComm_t comm) const {
  ncclResult_t state = ncclSuccess;
  check(calls_.comm_get_async_error(comm, &state), "ncclCommGetAsyncError");
  check_nccl(calls_, comm, state, "NCCL");
  return state != ncclInProgress;
}

void NcclGroup::settle(ncclComm_t comm) {
  wait_until([&] { return settled(comm); });
}

void NcclGroup::close() noexcept { end(true); }

/// Afterwards nothing touches values on the device any more, unless NCCL or the device hangs.
void NcclGroup::end(bool orderly) noexcept {
  if (comm_ == nullptr) return;
  const auto whole = [&] { return orderly && ranks_->end_cause().empty(); };
  if (!end_nccl(calls_, runtime_, std::exchange(comm_, nullptr), ordinal_, deadline_, whole)) {
    device_->give_up();
    return;
  }
  (void)device_->try_enter();
  const TimePoint last = runtime_->clock().now() + kStopOnDevice;
  while (!device_->idle() && runtime_->clock().now() < last) {
    runtime_->sleep_until(runtime_->clock().now() + kLongestNcclNap);
  }
}

void NcclGroup::fail(const Call& call, const std::string& cause) {
  if (ranks_->end_cause().empty()) ranks_->abort(cause);
  end(false);
  throw_ended(call);
}

void NcclGroup::throw_ended(const Call& call) {
  throw CommunicatorError(
      fmt::format("rank {} of {}, {}: {}", rank(), size(), name_of(call), ranks_->end_cause()));
}

}  // namespace isthmus
