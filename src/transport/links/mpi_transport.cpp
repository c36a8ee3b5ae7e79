// SPDX-License-Identifier: Apache-2.0
// Frames over MPI.
#include "transport/links/mpi_transport.h"

#include <fmt/format.h>
#include <mpi.h>
#include <stdlib.h>

#include <algorithm>
#include <array>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "isthmus/errors.h"
#include "transport/wire/mailbox.h"
#include "transport/wire/mpi_calls.h"

namespace isthmus {

void check_mpi(int code, const char* what) {
  if (code == MPI_SUCCESS) {
    return;
  }
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  throw SystemError(
      fmt::format("MPI: {}: {}", what, std::string(text.data(), static_cast<std::size_t>(length))));
}

MpiJob& mpi_job() {
  static MpiJob job;
  return job;
}

namespace {

MpiPlace place_in(MPI_Comm group) {
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(group, &rank);
  MPI_Comm_size(group, &size);
  return {.self = WorkerId(rank), .members = size};
}

// MPI keeps the order of one pair's messages, whatever their tags, for a receiver that takes any.
enum Tag : int { kFrame = 1, kFarewell = 2 };

class MpiTransport final : public NetworkTransport {
 public:
  MpiTransport(Runtime& runtime, const MpiPlace& place, Duration linger)
      : runtime_(runtime),
        place_(place),
        linger_(linger),
        endpoint_(fmt::format("mpi:{}", place.self.value())),
        queue_(runtime.make_wait_queue()),
        mailbox_(runtime, place.members) {
    const std::scoped_lock lock(mpi_mutex());  // ranks of a mesh may have calls under way
    if (mpi_job().split) {
      group_ =
          mpi_job().members;  // no other communicator's; a dup would wait here for the other sites
    } else {
      check_mpi(MPI_Comm_dup(mpi_job().members, &group_), "no communicator of its own");
    }
    check_mpi(MPI_Comm_set_errhandler(group_, MPI_ERRORS_RETURN), "errors cannot be returned");
    gone_.assign(static_cast<std::size_t>(place.members), false);
    receiving_.resize(static_cast<std::size_t>(place.members));
    task_ =
        runtime_.spawn(fmt::format("MPI of member {}", place.self.value()), [this] { serve(); });
  }

  // MPI wants to be ended by the thread that started it. With members that have not said farewell
  // that would wait for ever; the process then ends without, and the launcher ends the job.
  ~MpiTransport() override {
    close();
    task_.reset();
    mpi_job().abandoned = !all_gone_;
    bury();
    if (all_gone_ && !mpi_job().split) {
      MPI_Finalize();
    }
  }

  [[nodiscard]] WorkerId self() const override { return place_.self; }
  [[nodiscard]] int size() const override { return place_.members; }
  [[nodiscard]] const std::string& endpoint() const override { return endpoint_; }
  using NetworkTransport::join;
  void join(std::span<const std::string>, std::span<const std::string>) override {}
  using NetworkTransport::await_members;
  [[nodiscard]] Expected<std::vector<WorkerId>, JoinError> await_members(
      TimePoint, std::span<const WorkerId>) override {
    return {};
  }

  void send(WorkerId to, FrameBytes frame) override {
    ISTHMUS_CHECK(to != self(), to.value());
    queue_->update([&] {
      if (!closing_) submitted_.emplace_back(to, std::move(frame));
    });
  }
  [[nodiscard]] Expected<ReceivedFrame, TransportError> receive(TimePoint deadline) override {
    return mailbox_.receive(deadline);
  }
  void close() override {
    mailbox_.close();
    queue_->update([&] { closing_ = true; });
  }

 private:
  struct Sending {
    MPI_Request request = MPI_REQUEST_NULL;
    FrameBytes frame;  // until MPI has read it
  };
  struct Receiving {
    MPI_Request request = MPI_REQUEST_NULL;
    int tag = kFrame;
    std::shared_ptr<std::vector<std::byte>> frame;  // until MPI has written it
  };

  void serve() {
    try {
      Duration nap = kShortestMpiNap;
      std::optional<TimePoint> end;
      while (!end || (!settled() && runtime_.clock().now() < *end)) {
        {
          const std::scoped_lock lock(mpi_mutex());
          if (take_orders() && !end) {
            end = runtime_.clock().now() + linger_;
            for (int peer = 0; peer < size(); ++peer) post(WorkerId(peer), kFarewell, nullptr);
          }
          nap = progress() ? kShortestMpiNap : std::min(2 * nap, kLongestMpiNap);
        }
        (void)queue_->wait([&] { return !submitted_.empty() || (closing_ && !end); },
                           runtime_.clock().now() + nap);
      }
      all_gone_ = settled();
    } catch (const std::exception&) {
      for (int peer = 0; peer < size(); ++peer) lose(WorkerId(peer));
    }
  }

  /// RETURNS: true once the member has closed.
  bool take_orders() {
    std::vector<std::pair<WorkerId, FrameBytes>> submitted;
    bool closing = false;
    queue_->update([&] {
      submitted.swap(submitted_);
      closing = closing_;
    });
    for (auto& [to, frame] : submitted) {
      post(to, kFrame, std::move(frame));
    }
    return closing;
  }

  void post(WorkerId to, Tag tag, FrameBytes frame) {
    if (to == self() || (tag == kFrame && gone_[static_cast<std::size_t>(to.value())])) {
      return;  // members wait for a farewell even after they have said theirs
    }
    Sending& sending = sending_.emplace_back();
    sending.frame = std::move(frame);
    const auto bytes = sending.frame == nullptr ? 0 : static_cast<int>(sending.frame->size());
    check_mpi(MPI_Isend(bytes == 0 ? nullptr : sending.frame->data(), bytes, MPI_BYTE, to.value(),
                        tag, group_, &sending.request),
              "a frame cannot be sent");
  }

  /// RETURNS: whether anything happened.
  bool progress() {
    bool any = take_up_messages();
    for (std::size_t from = 0; from < receiving_.size(); ++from) {
      std::deque<Receiving>& coming = receiving_[from];
      for (; !coming.empty() && done(coming.front().request); coming.pop_front()) {
        hand_over(WorkerId(static_cast<int>(from)), coming.front());
        --under_way_;
        any = true;
      }
    }
    // In order, except for sends that MPI finishes out of turn: a short look at the oldest is
    // enough.
    while (!sending_.empty() && done(sending_.front().request)) {
      sending_.pop_front();
      any = true;
    }
    return any;
  }

  /// Begins to receive announced frames. For a big frame this is its head alone, and the rest takes
  /// a round trip: this call does not wait for it, since others wait for MPI.
  bool take_up_messages() {
    constexpr int kMostUnderWay = 64;
    bool any = false;
    while (under_way_ < kMostUnderWay) {
      int announced = 0, bytes = 0;
      MPI_Message message = MPI_MESSAGE_NULL;
      MPI_Status status{};
      check_mpi(MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, group_, &announced, &message, &status),
                "no probe");
      if (announced == 0) break;
      check_mpi(MPI_Get_count(&status, MPI_BYTE, &bytes), "a frame of no size");
      Receiving& next = receiving_[static_cast<std::size_t>(status.MPI_SOURCE)].emplace_back();
      next.tag = status.MPI_TAG;
      next.frame = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(bytes));
      check_mpi(MPI_Imrecv(next.frame->data(), bytes, MPI_BYTE, &message, &next.request),
                "a frame cannot be received");
      ++under_way_;
      any = true;
    }
    return any;
  }

  static bool done(MPI_Request& request) {
    int flag = 0;
    check_mpi(MPI_Test(&request, &flag, MPI_STATUS_IGNORE), "a frame has not gone through");
    return flag != 0;
  }

  void hand_over(WorkerId from, Receiving& received) {
    if (received.tag == kFarewell) {
      lose(from);
    } else {
      mailbox_.deliver(from, std::move(received.frame));
    }
  }

  /// Operations under way stay, since MPI may touch them as long as any code calls it.
  void bury() {
    static auto* const grave =
        new std::deque<std::pair<std::deque<Sending>, std::vector<std::deque<Receiving>>>>();
    if (!sending_.empty() || under_way_ > 0) {
      grave->emplace_back(std::move(sending_), std::move(receiving_));
    }
  }

  void lose(WorkerId peer) {
    const auto place = static_cast<std::size_t>(peer.value());
    if (peer != self() && !gone_[place]) {
      gone_[place] = true;
      mailbox_.mark_lost(peer);
    }
  }

  /// Every frame has been sent, and no member will send any more.
  [[nodiscard]] bool settled() const {
    int gone = 0;
    for (const bool each : gone_) gone += each ? 1 : 0;
    return sending_.empty() && gone == size() - 1;
  }

  Runtime& runtime_;
  const MpiPlace place_;
  const Duration linger_;
  const std::string endpoint_;
  std::unique_ptr<WaitQueue> queue_;
  std::vector<std::pair<WorkerId, FrameBytes>> submitted_;  // under queue_'s lock
  bool closing_ = false;                                    // under queue_'s lock
  Mailbox mailbox_;
  MPI_Comm group_ = MPI_COMM_NULL;
  // The task's alone while it runs.
  std::deque<Sending> sending_;
  std::vector<std::deque<Receiving>> receiving_;  // by peer, in order
  int under_way_ = 0;                             // of them all
  std::vector<bool> gone_;
  bool all_gone_ = false;
  std::unique_ptr<Task> task_;
};

}  // namespace

MpiPlace mpi_place() {
  int started = 0;
  MPI_Initialized(&started);
  if (started == 0) {
    // Open MPI yields at each look of a job with more processes than cores, which beside other work
    // costs a time slice each. All waits of a step sleep between their looks; MPI's own waits, at
    // the start alone (MPI_Comm_split and the like), do not. A user's value stands.
    (void)::setenv("OMPI_MCA_mpi_yield_when_idle", "0", /*overwrite=*/0);
    int level = 0;
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level),
              "it does not start");
    if (level < MPI_THREAD_SERIALIZED) {
      throw SystemError("MPI: this build of it allows no calls from a second thread");
    }
  }
  return place_in(MPI_COMM_WORLD);
}

void split_mpi_job(int site) {
  const int self = mpi_place().self.value();
  MpiJob& job = mpi_job();
  ISTHMUS_CHECK(!job.split, site);
  check_mpi(MPI_Comm_split(MPI_COMM_WORLD, site, self, &job.ranks), "no split into sites");
  const bool first = place_in(job.ranks).self == WorkerId(0);
  check_mpi(MPI_Comm_split(MPI_COMM_WORLD, first ? 0 : MPI_UNDEFINED, site, &job.members),
            "no communicator of the sites");
  job.split = true;
}

std::unique_ptr<NetworkTransport> make_mpi_transport(Runtime& runtime, Duration linger) {
  ISTHMUS_CHECK(!runtime.simulated());
  (void)mpi_place();
  ISTHMUS_CHECK(mpi_job().members != MPI_COMM_NULL);
  return std::make_unique<MpiTransport>(runtime, place_in(mpi_job().members), linger);
}

std::string mpi_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  const std::string version(text.data(), static_cast<std::size_t>(length));
  return version.substr(0, version.find(','));
}

// A macro that the headers do not define is spelt as its own name.
#define ISTHMUS_MPI_SPELT(macro) #macro
#define ISTHMUS_MPI_VALUE(macro) std::string(ISTHMUS_MPI_SPELT(macro))

std::string mpi_built_with() {
  const std::string open_mpi = ISTHMUS_MPI_VALUE(OMPI_MAJOR_VERSION);
  if (open_mpi != "OMPI_MAJOR_VERSION") {
    return fmt::format("Open MPI v{}.{}.{}", open_mpi, ISTHMUS_MPI_VALUE(OMPI_MINOR_VERSION),
                       ISTHMUS_MPI_VALUE(OMPI_RELEASE_VERSION));
  }
  std::string mpich = ISTHMUS_MPI_VALUE(MPICH_VERSION);
  std::erase(mpich, '"');
  return mpich != "MPICH_VERSION" ? "MPICH v" + mpich : "";
}

}  // namespace isthmus
