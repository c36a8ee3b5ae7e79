// SPDX-License-Identifier: Apache-2.0
// The one task that owns the sockets, and its state that the member shares.
#include "transport/links/zmq/zmq_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/base/fresh_id.h"
#include "isthmus/errors.h"
#include "transport/links/announced_keys.h"
#include "transport/links/link_engine.h"
#include "transport/links/link_gauge.h"
#include "transport/links/link_names.h"
#include "transport/links/link_tally.h"
#include "transport/links/stream_policy.h"
#include "transport/links/zmq/link_dialling.h"
#include "transport/links/zmq/link_watch.h"
#include "transport/links/zmq/zmq_shared.h"
#include "transport/links/zmq/zmq_sockets.h"
#include "transport/wire/mailbox.h"

namespace isthmus {
namespace {

constexpr Duration kBetweenCounts = std::chrono::seconds(1);
constexpr Duration kBetweenReadings = std::chrono::seconds(2);

class ZmqTransport final : public NetworkTransport,
                           public LinkGauge,
                           public HearsKeys,
                           private LinkPort {
 public:
  ZmqTransport(Runtime& runtime, const MemberOptions& options)
      : runtime_(runtime),
        options_(options),
        told_(std::make_shared<AnnouncedKeys>(runtime)),
        queue_(runtime.make_wait_queue()),
        mailbox_(runtime, options.members),
        engine_(options, fresh_id(), *this, runtime.clock().now()),
        sockets_(options),
        dialling_(options_, engine_, sockets_, [this](const LinkEvent& news) { event(news); }),
        watch_(options_, engine_, sockets_, dialling_),
        names_(runtime, options_, [this](const LinkEvent& news) { event(news); }) {
    shared_.within_machine =
        std::make_unique<std::atomic<bool>[]>(static_cast<std::size_t>(size()));
    sockets_.set_keys(engine_.keys(), {});
    if (!engine_.awaits_keys()) shared_.with_keys = with_keys(engine_.keys());
    for (int peer = 0; options_.most_streams > 0 && peer < size(); ++peer) {
      if (WorkerId(peer) != self() && !is_relayed(options_, WorkerId(peer)))
        policies_.emplace(peer, new_policy());
    }
  }

  ~ZmqTransport() override {
    close();
    task_.reset();
  }

  [[nodiscard]] WorkerId self() const override { return options_.self; }
  [[nodiscard]] int size() const override { return options_.members; }
  [[nodiscard]] const std::string& endpoint() const override { return sockets_.endpoint(); }

  using NetworkTransport::join;
  void join(std::span<const std::string> endpoints, std::span<const std::string> detours) override {
    ISTHMUS_CHECK(task_ == nullptr);
    ISTHMUS_CHECK(detours.empty() || detours.size() == endpoints.size(), detours.size());
    if (endpoints.size() != static_cast<std::size_t>(size())) {
      throw ConfigError(fmt::format("{} endpoints for {} members: one for each, in member order",
                                    endpoints.size(), size()));
    }
    for (const std::string& endpoint : endpoints) {
      check_endpoint(endpoint, false, may_leave_machine(options_));
    }
    dialling_.begin(endpoints, detours);
    names_.begin(endpoints);
    task_ = runtime_.spawn(fmt::format("links of member {}", self().value()), [this] { serve(); });
  }

  [[nodiscard]] std::shared_ptr<const AnnouncedKeys> announced_keys() const override {
    return told_;
  }
  void set_keys(KeyTable table) override {
    queue_->update([&] {
      if (table.version < shared_.keys_version) return;  // two tasks may give some
      shared_.keys_version = table.version;
      shared_.keys = std::move(table);
      wake();
    });
  }
  [[nodiscard]] std::optional<std::vector<WorkerId>> members_with_keys() override {
    std::optional<std::vector<WorkerId>> known;
    queue_->update([&] { known = shared_.with_keys; });
    return known;
  }

  using NetworkTransport::await_members;
  [[nodiscard]] Expected<std::vector<WorkerId>, JoinError> await_members(
      TimePoint deadline, std::span<const WorkerId> these) override {
    ISTHMUS_CHECK(options_.readmits || these.size() + 1 >= static_cast<std::size_t>(size()),
                  these.size(), size());
    std::optional<ZmqShared::Answer> answer;
    std::string failure;
    // Only the task knows, and only its answer counts; asked a last time, it answers at once.
    const auto ask = [&](bool last, TimePoint until) {
      queue_->update([&] {
        shared_.question = ZmqShared::Question{{these.begin(), these.end()}, last};
        wake();
      });
      return queue_->wait(
          [&] {
            answer = shared_.answer;
            if (shared_.closing) failure = "this endpoint was closed";
            if (!shared_.failure.empty()) failure = shared_.failure;
            return answer || !failure.empty();
          },
          until);
    };
    if (!ask(false, deadline) && task_ != nullptr) (void)ask(true, now() + std::chrono::seconds(5));
    queue_->update([&] {
      shared_.question.reset();
      shared_.answer.reset();
    });
    if (answer && answer->error) return Unexpected<JoinError>(*answer->error);
    if (answer && answer->joined) return std::move(answer->absent);
    if (!failure.empty()) return Unexpected<JoinError>({.peer = self(), .what = failure});
    return Unexpected<JoinError>(
        {.what = "not all are here: " + (answer ? answer->missing : "this member has not joined")});
  }

  void send(WorkerId to, FrameBytes frame) override {
    ISTHMUS_CHECK(to != self(), to.value());
    ISTHMUS_CHECK(frame->size() <= kMaxLinkBody, frame->size());
    queue_->update([&] {
      if (shared_.closing || !shared_.failure.empty()) return;
      shared_.submitted.push_back({to, std::move(frame), shared_.returns[to.value()]});
      wake();
    });
  }

  [[nodiscard]] Expected<ReceivedFrame, TransportError> receive(TimePoint deadline) override {
    Expected<ReceivedFrame, TransportError> received = mailbox_.receive(deadline);
    if (received) {
      queue_->update([&] {
        shared_.taken.push_back({received->from, received->bytes->size(), received->returns});
        shared_.taken_bytes += link_charge(received->bytes->size());
        if (shared_.taken_bytes >= acknowledged_at_once(options_.window_bytes)) wake();
      });
    } else if (received.error().kind == TransportError::Kind::kPeerLost) {
      queue_->update([&] {
        const ZmqShared::Loss& loss = shared_.why[received.error().peer.value()];
        if (!loss.why.empty()) received.error().what = loss.why;
        received.error().cause = loss.cause;
      });
    } else if (received.error().kind == TransportError::Kind::kPeerBack) {
      queue_->update([&] { ++shared_.returns[received.error().peer.value()]; });
    }
    return received;
  }

  [[nodiscard]] std::size_t most_unused(WorkerId peer) const override {
    return shared_.within_machine[static_cast<std::size_t>(peer.value())] ? kNearUnused : kNoBound;
  }

  void close() override {
    mailbox_.close();
    queue_->update([&] {
      if (!std::exchange(shared_.closing, true)) wake();
    });
  }

  // LinkGauge, called by the member.
  void use_streams(WorkerId to, int streams) override {
    ISTHMUS_CHECK(streams >= 1 && streams <= options_.streams, streams, options_.streams);
    queue_->update([&] {
      shared_.streams[to.value()] = streams;
      wake();
    });
  }
  /// Only the task knows; it answers at its next turn.
  [[nodiscard]] std::optional<LinkCounters> counters(WorkerId to) override {
    queue_->update([&] {
      shared_.counted.reset();
      shared_.asks_counters = to;
      wake();
    });
    std::optional<LinkCounters> found;
    (void)queue_->wait(
        [&] {
          if (shared_.counted) found = *shared_.counted;
          return shared_.counted || shared_.closing || !shared_.failure.empty();
        },
        now() + std::chrono::seconds(5));
    return found;
  }

 private:
  // Under the queue's lock, hence one thread at a time.
  void wake() {
    if (!std::exchange(shared_.woken, true)) {
      sockets_.wake();
    }
  }

  [[nodiscard]] TimePoint now() const { return runtime_.clock().now(); }

  // LinkPort, called by the engine on the task.
  [[nodiscard]] bool is_near(WorkerId peer) const override { return sockets_.is_near(peer); }
  // Asked whenever frames go to the peer, so the answer is there when a round begins.
  [[nodiscard]] bool is_within_machine(WorkerId peer) const override {
    const bool rated = options_.send_bits_per_s && options_.send_bits_per_s() > 0;
    return shared_.within_machine[static_cast<std::size_t>(peer.value())] =
               !rated && sockets_.is_within_machine(peer);
  }
  bool to_stream(WorkerId peer, int stream, const LinkHeader& header, FrameBytes body) override {
    return sockets_.to_stream(peer, stream, header, body);
  }
  void to_connection(const ConnectionId& id, const LinkHeader& header, FrameBytes body) override {
    sockets_.to_connection(id, header, body);
  }
  void deliver(WorkerId from, FrameBytes frame) override {
    mailbox_.deliver(from, std::move(frame));
  }
  void lost(WorkerId peer, LossCause cause, const std::string& why) override {
    queue_->update([&] { shared_.why[peer.value()] = {why, cause}; });
    mailbox_.mark_lost(peer);
  }
  void back(WorkerId peer) override { mailbox_.mark_back(peer); }
  // The sockets are in use while the engine is told of their messages.
  void hang_up(WorkerId peer) override { dial_again_[peer.value()] = false; }
  void dial_again(WorkerId peer) override { dial_again_[peer.value()] = true; }
  void dial_more(WorkerId peer, int streams) override {
    try {
      sockets_.dial_more(peer, streams);
    } catch (const SystemError& error) {  // those that are there do
      event({LinkEvent::Kind::kRetried, peer, streams - 1, error.what()});
    }
  }
  void keys_changed(const std::vector<std::string>& members) override {
    sockets_.set_keys(members, guests_);
    told_->set(members);
    queue_->update([&] { shared_.with_keys = with_keys(members); });
  }
  void event(const LinkEvent& event) override {
    if (options_.on_event) options_.on_event(event);
  }

  void serve() {
    try {
      std::optional<TimePoint> end;
      while (!end || (!engine_.all_told() && now() < *end)) {
        TimePoint until = end ? std::min(*end, engine_.next_tick()) : engine_.next_tick();
        if (!end) until = std::min(until, dialling_.next_look());
        sockets_.wait(engine_, until - now());
        engine_.see(now());  // it has slept
        if (take_orders() && !end) {
          end = now() + options_.linger;
          engine_.close(now());
        }
        sockets_.read(engine_, [this] { return now(); });
        watch_.look(now());
        engine_.tick(now());
        for (const auto& [peer, again] : std::exchange(dial_again_, {})) {
          sockets_.hang_up(WorkerId(peer));
          if (again) dialling_.dial(WorkerId(peer));
        }
        if (!end) dialling_.look(now());
        if (!end) names_.look(now());
        adapt_streams();
        tell_readings();
        answer();
      }
    } catch (const std::exception& error) {
      give_up(fmt::format("member {}: its links failed: {}", self().value(), error.what()));
    }
    sockets_.close();
  }

  [[nodiscard]] StreamPolicy new_policy() const {
    return {options_.streams, sockets_.most_streams()};
  }

  /// Asks TCP, at most once a second, of links that had frames waiting or use more than at first.
  void adapt_streams() {
    if (policies_.empty() || now() < adapts_next_) return;
    adapts_next_ = now() + kBetweenCounts;
    for (auto& [place, policy] : policies_) {
      const WorkerId peer(place);
      if (dialling_.goes_around(peer)) continue;  // TCP's counters are of the way to the relay
      const bool waited = engine_.frames_waited(peer);
      const int streams = engine_.streams_in_use(peer);
      if (streams != policy.streams()) policy = new_policy();  // of a process that was, or is, gone
      if (!waited && streams == options_.streams) continue;
      const auto counted = options_.count_tcp ? options_.count_tcp(peer, streams)
                                              : sockets_.counters(peer, streams, streams);
      if (!counted || policy.observe(*counted, waited) == streams) continue;
      engine_.use_streams(peer, policy.streams());
      event({LinkEvent::Kind::kAdapted, peer, -1,
             fmt::format("frames to member {} take {} connections now, {} before", place,
                         policy.streams(), streams)});
    }
  }

  void tell_readings() {
    if (!options_.on_reading || now() < tells_next_) return;
    tells_next_ = now() + kBetweenReadings;
    for (int place = 0; place < size(); ++place) {
      const WorkerId peer(place);
      if (peer == self() || is_relayed(options_, peer)) continue;
      LinkTally& tally = tallies_[place];
      LinkReading reading = tally.reading();
      reading.around = dialling_.goes_around(peer);
      if (reading.around) {
        tally.forget();
      } else {
        tally.add(sockets_.each_counter(peer));
        reading = tally.reading();
      }
      options_.on_reading(peer, reading);
    }
  }

  void give_up(const std::string& why) {
    queue_->update([&] {
      shared_.failure = why;
      shared_.submitted.clear();
      for (int peer = 0; peer < size(); ++peer) shared_.why[peer] = {why, LossCause::kGone};
    });
    for (int peer = 0; peer < size(); ++peer) {
      if (WorkerId(peer) != self()) mailbox_.mark_lost(WorkerId(peer));
    }
  }

  /// RETURNS: true once the member has closed.
  bool take_orders() {
    std::vector<ZmqShared::Submitted> submitted;
    std::vector<ZmqShared::Taken> taken;
    std::map<int, int> streams;
    std::optional<WorkerId> asks;
    std::optional<KeyTable> keys;
    bool closing = false;
    queue_->update([&] {
      streams.swap(shared_.streams);
      asks = std::exchange(shared_.asks_counters, std::nullopt);
      keys.swap(shared_.keys);
      submitted.swap(shared_.submitted);
      taken.swap(shared_.taken);
      shared_.taken_bytes = 0;
      shared_.woken = false;
      closing = shared_.closing;
      if (!shared_.answer) question_ = shared_.question;
    });
    if (keys) {
      guests_ = keys->guests;
      engine_.set_keys(*keys);
    }
    for (const auto& [to, count] : streams) engine_.use_streams(WorkerId(to), count);
    if (asks) {
      const auto counted = is_relayed(options_, *asks) || dialling_.goes_around(*asks)
                               ? std::nullopt
                               : sockets_.counters(*asks, engine_.streams_dialled(*asks),
                                                   engine_.streams_in_use(*asks));
      queue_->update([&] { shared_.counted = counted; });
    }
    for (const ZmqShared::Taken& each : taken) engine_.taken(each.from, each.bytes, each.returns);
    for (ZmqShared::Submitted& each : submitted)
      engine_.submit(each.to, std::move(each.frame), each.returns);
    return closing;
  }

  void answer() {
    if (!question_) return;
    ZmqShared::Answer answer{.joined = engine_.have_joined(question_->these),
                             .error = engine_.join_error(question_->these)};
    if (!answer.joined && !answer.error && !question_->last) return;
    if (answer.joined && !answer.error) answer.absent = engine_.begin_without_absent();
    answer.missing = engine_.describe_missing(question_->these, dialling_.endpoints()) +
                     names_.troubles(question_->these);
    question_.reset();
    queue_->update([&] {
      if (shared_.question) shared_.answer = std::move(answer);
    });
  }

  Runtime& runtime_;
  const MemberOptions options_;
  const std::shared_ptr<AnnouncedKeys> told_;  // with this process's relay and relayed links
  std::unique_ptr<WaitQueue> queue_;
  ZmqShared shared_;  // under queue_'s lock, and so is sockets_.wake
  Mailbox mailbox_;
  // From here on the task's alone once it runs.
  LinkEngine engine_;
  ZmqSockets sockets_;
  LinkDialling dialling_;
  LinkWatch watch_;
  LinkNames names_;
  std::map<int, StreamPolicy> policies_;  // by peer, where the number of connections adapts
  TimePoint adapts_next_{};
  std::vector<std::string> guests_;
  std::map<int, LinkTally> tallies_;  // by peer
  TimePoint tells_next_{};
  std::map<int, bool> dial_again_;  // peers to hang up on at the end of the turn
  std::optional<ZmqShared::Question> question_;
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
