// SPDX-License-Identifier: Apache-2.0
// The one task that owns the sockets, and what it shares with the member.
#include "transport/zmq_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/fresh_id.h"
#include "isthmus/errors.h"
#include "transport/link_engine.h"
#include "transport/link_gauge.h"
#include "transport/mailbox.h"
#include "transport/zmq_sockets.h"

namespace isthmus {
namespace {

class ZmqTransport final : public NetworkTransport, public LinkGauge, private LinkPort {
 public:
  ZmqTransport(Runtime& runtime, const MemberOptions& options)
      : runtime_(runtime),
        options_(options),
        queue_(runtime.make_wait_queue()),
        mailbox_(runtime, options.members),
        engine_(options, fresh_id(), *this, runtime.clock().now()),
        sockets_(options) {}

  ~ZmqTransport() override {
    close();
    task_.reset();
  }

  [[nodiscard]] Rank self() const override { return options_.self; }
  [[nodiscard]] int size() const override { return options_.members; }
  [[nodiscard]] const std::string& endpoint() const override { return sockets_.endpoint(); }

  void join(std::span<const std::string> endpoints) override {
    ISTHMUS_CHECK(task_ == nullptr);
    if (endpoints.size() != static_cast<std::size_t>(size())) {
      throw ConfigError(fmt::format("{} endpoints for {} members: one for each, in member order",
                                    endpoints.size(), size()));
    }
    endpoints_.assign(endpoints.begin(), endpoints.end());
    for (const std::string& endpoint : endpoints) {
      check_endpoint(endpoint, false, may_leave_machine(options_));
    }
    for (int peer = 0; peer < size(); ++peer) {
      if (Rank(peer) != self())
        sockets_.dial(Rank(peer), endpoints[static_cast<std::size_t>(peer)]);
    }
    task_ = runtime_.spawn(fmt::format("links of member {}", self().value()), [this] { serve(); });
  }

  [[nodiscard]] Expected<void, JoinError> await_members(TimePoint deadline) override {
    std::optional<JoinError> error;
    const bool settled = queue_->wait(
        [&] {
          error = shared_.error;
          if (!error && shared_.closing) error = JoinError{.what = "this endpoint was closed"};
          return error || shared_.joined;
        },
        deadline);
    if (!settled && !error) error = JoinError{.what = "not all are here: " + who_is_missing()};
    if (error) return Unexpected<JoinError>(*error);
    return {};
  }

  void send(Rank to, FrameBytes frame) override {
    ISTHMUS_CHECK(to != self(), to.value());
    ISTHMUS_CHECK(frame->size() <= kMaxLinkBody, frame->size());
    queue_->update([&] {
      if (shared_.closing || shared_.failed) return;
      shared_.submitted.emplace_back(to, std::move(frame));
      wake();
    });
  }

  [[nodiscard]] Expected<ReceivedFrame, TransportError> receive(TimePoint deadline) override {
    Expected<ReceivedFrame, TransportError> received = mailbox_.receive(deadline);
    if (received) {
      queue_->update([&] {
        shared_.taken.emplace_back(received->from, received->bytes->size());
        shared_.taken_bytes += link_charge(received->bytes->size());
        if (shared_.taken_bytes >= options_.window_bytes / 8) wake();
      });
    } else if (received.error().kind == TransportError::Kind::kPeerLost) {
      queue_->update([&] {
        const std::string& why = shared_.why[received.error().peer.value()];
        if (!why.empty()) received.error().what = why;
      });
    }
    return received;
  }

  void close() override {
    mailbox_.close();
    queue_->update([&] {
      if (!std::exchange(shared_.closing, true)) wake();
    });
  }

  // LinkGauge, called by the member.
  void use_streams(Rank to, int streams) override {
    ISTHMUS_CHECK(streams >= 1 && streams <= options_.streams, streams, options_.streams);
    queue_->update([&] {
      shared_.streams[to.value()] = streams;
      wake();
    });
  }
  /// Only the task knows; it answers at its next turn.
  [[nodiscard]] std::optional<LinkCounters> counters(Rank to) override {
    queue_->update([&] {
      shared_.counted.reset();
      shared_.asks_counters = to;
      wake();
    });
    std::optional<LinkCounters> found;
    (void)queue_->wait(
        [&] {
          if (shared_.counted) found = *shared_.counted;
          return shared_.counted || shared_.closing || shared_.failed;
        },
        now() + std::chrono::seconds(5));
    return found;
  }

 private:
  /// Only the task knows; it answers at its next turn.
  std::string who_is_missing() {
    if (task_ == nullptr) return "this member has not joined";
    queue_->update([&] {
      shared_.missing.reset();
      shared_.asks_who_is_missing = true;
      wake();
    });
    std::string text;
    (void)queue_->wait(
        [&] {
          text = shared_.missing.value_or("");
          return shared_.missing || shared_.error || shared_.joined || shared_.closing;
        },
        now() + std::chrono::seconds(5));
    return text;
  }

  // Under the queue's lock, hence one thread at a time.
  void wake() {
    if (!std::exchange(shared_.woken, true)) {
      sockets_.wake();
    }
  }

  [[nodiscard]] TimePoint now() const { return runtime_.clock().now(); }

  // LinkPort, called by the engine on the task.
  bool to_stream(Rank peer, int stream, const LinkHeader& header, FrameBytes body) override {
    return sockets_.to_stream(peer, stream, header, body);
  }
  void to_connection(const ConnectionId& id, const LinkHeader& header, FrameBytes body) override {
    sockets_.to_connection(id, header, body);
  }
  void deliver(Rank from, FrameBytes frame) override { mailbox_.deliver(from, std::move(frame)); }
  void lost(Rank peer, const std::string& why) override {
    queue_->update([&] { shared_.why[peer.value()] = why; });
    mailbox_.mark_lost(peer);
    hang_up_.push_back(peer);
  }
  void event(const LinkEvent& event) override {
    if (options_.on_event) options_.on_event(event);
  }

  void serve() {
    try {
      std::optional<TimePoint> end;
      while (!end || (!engine_.all_told() && now() < *end)) {
        const TimePoint until = end ? std::min(*end, engine_.next_tick()) : engine_.next_tick();
        sockets_.wait(engine_, until - now());
        if (take_orders() && !end) {
          end = now() + options_.linger;
          engine_.close(now());
        }
        sockets_.read(engine_, [this] { return now(); });
        engine_.tick(now());
        for (const Rank peer : std::exchange(hang_up_, {})) sockets_.hang_up(peer);
        publish();
      }
    } catch (const std::exception& error) {
      give_up(fmt::format("member {}: its links failed: {}", self().value(), error.what()));
    }
    sockets_.close();
  }

  void give_up(const std::string& why) {
    queue_->update([&] {
      shared_.failed = true;
      shared_.submitted.clear();
      if (!shared_.joined && !shared_.error) shared_.error = JoinError{.peer = self(), .what = why};
      for (int peer = 0; peer < size(); ++peer) shared_.why[peer] = why;
    });
    for (int peer = 0; peer < size(); ++peer) {
      if (Rank(peer) != self()) mailbox_.mark_lost(Rank(peer));
    }
  }

  /// RETURNS: true once the member has closed.
  bool take_orders() {
    std::vector<std::pair<Rank, FrameBytes>> submitted;
    std::vector<std::pair<Rank, std::size_t>> taken;
    std::map<int, int> streams;
    std::optional<Rank> asks;
    bool closing = false;
    queue_->update([&] {
      streams.swap(shared_.streams);
      asks = std::exchange(shared_.asks_counters, std::nullopt);
      submitted.swap(shared_.submitted);
      taken.swap(shared_.taken);
      shared_.taken_bytes = 0;
      shared_.woken = false;
      closing = shared_.closing;
      who_is_missing_ = std::exchange(shared_.asks_who_is_missing, false) || who_is_missing_;
    });
    for (const auto& [to, count] : streams) engine_.use_streams(Rank(to), count);
    if (asks) {
      const auto counted = sockets_.counters(*asks, engine_.streams_in_use(*asks));
      queue_->update([&] { shared_.counted = counted; });
    }
    for (const auto& [from, bytes] : taken) engine_.taken(from, bytes);
    for (auto& [to, frame] : submitted) engine_.submit(to, std::move(frame));
    return closing;
  }

  void publish() {
    if (published_) return;
    const bool joined = engine_.all_joined();
    const std::optional<JoinError> error = engine_.join_error();
    if (!joined && !error && !std::exchange(who_is_missing_, false)) return;
    std::string missing = engine_.describe_missing(endpoints_);
    queue_->update([&] {
      shared_.joined = joined;
      shared_.error = error;
      shared_.missing = std::move(missing);
    });
    published_ = joined || error;
  }

  struct Shared {
    std::vector<std::pair<Rank, FrameBytes>> submitted;
    std::vector<std::pair<Rank, std::size_t>> taken;
    std::size_t taken_bytes = 0;
    bool woken = false;
    bool closing = false;
    bool failed = false;  // nothing is sent any more
    bool joined = false;
    std::optional<JoinError> error;
    bool asks_who_is_missing = false;
    std::optional<std::string> missing;  // the answer
    std::map<int, std::string> why;      // by lost peer
    std::map<int, int> streams;          // to be used from now on, by peer
    std::optional<Rank> asks_counters;
    std::optional<std::optional<LinkCounters>> counted;  // the answer
  };

  Runtime& runtime_;
  const MemberOptions options_;
  std::unique_ptr<WaitQueue> queue_;
  Shared shared_;  // under queue_'s lock, and so is sockets_.wake
  Mailbox mailbox_;
  // From here on the task's alone once it runs.
  LinkEngine engine_;
  ZmqSockets sockets_;
  std::vector<Rank> hang_up_;
  bool published_ = false;
  bool who_is_missing_ = false;  // to be published
  std::vector<std::string> endpoints_;
  std::unique_ptr<Task> task_;
};

}  // namespace

std::unique_ptr<NetworkTransport> make_zmq_transport(Runtime& runtime,
                                                     const MemberOptions& options) {
  ISTHMUS_CHECK(!runtime.simulated());
  check_options(options);
  return std::make_unique<ZmqTransport>(runtime, options);
}

}  // namespace isthmus
