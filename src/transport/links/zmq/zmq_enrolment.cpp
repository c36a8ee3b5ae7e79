// SPDX-License-Identifier: Apache-2.0
#include "transport/links/zmq/zmq_enrolment.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>
#include <zmq.hpp>

#include "isthmus/errors.h"
#include "transport/links/zmq/zmq_admission.h"
#include "transport/links/zmq/zmq_messages.h"

namespace isthmus {
namespace {

constexpr Duration kEnrolmentLook = std::chrono::milliseconds(200);
constexpr Duration kAskAgain = std::chrono::seconds(2);
constexpr int kRefusals = 3;  // in a row: a running hub hears of a new invitation within seconds
constexpr int kEnrolmentEvents = ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
                                 ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                                 ZMQ_EVENT_HANDSHAKE_FAILED_AUTH | ZMQ_EVENT_HANDSHAKE_SUCCEEDED;

/// One connection, and its result.
class EnrolmentCall {
 public:
  EnrolmentCall(zmq::context_t& context, const Enrolment& enrolment, int number)
      : monitor_(context, zmq::socket_type::pair), socket_(context, zmq::socket_type::dealer) {
    socket_.set(zmq::sockopt::linger, 0);
    socket_.set(zmq::sockopt::immediate, true);
    socket_.set(zmq::sockopt::maxmsgsize, std::int64_t{4096});
    socket_.set(zmq::sockopt::ipv6, enrolment.endpoint.find('[') != std::string::npos);
    ZmqAdmission::make_client(socket_, enrolment.invitation, enrolment.hub_key);
    const std::string place = fmt::format("inproc://enrolment-{}", number);
    if (zmq_socket_monitor(socket_.handle(), place.c_str(), kEnrolmentEvents) != 0) {
      throw SystemError(
          fmt::format("no monitor of a socket: {}; raise ulimit -n", zmq_strerror(zmq_errno())));
    }
    monitor_.set(zmq::sockopt::linger, 0);
    monitor_.connect(place);
    try {
      socket_.connect(enrolment.endpoint);
    } catch (const zmq::error_t& error) {
      throw ConfigError(
          fmt::format("the hub's address \"{}\": {}", enrolment.endpoint, error.what()));
    }
  }
  ~EnrolmentCall() { (void)zmq_socket_monitor(socket_.handle(), nullptr, 0); }
  EnrolmentCall(const EnrolmentCall&) = delete;
  EnrolmentCall& operator=(const EnrolmentCall&) = delete;

  void wait(Duration at_most) {
    std::vector<zmq::pollitem_t> items = {{socket_.handle(), 0, ZMQ_POLLIN, 0},
                                          {monitor_.handle(), 0, ZMQ_POLLIN, 0}};
    try {
      zmq::poll(items,
                std::chrono::ceil<std::chrono::milliseconds>(std::max(at_most, Duration{0})));
    } catch (const zmq::error_t& error) {
      if (error.num() != EINTR) throw;
    }
  }
  void take_news(std::string& trouble) {
    while (const auto news = next_event(monitor_)) {
      if (news->kind == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) {
        stands_ = true;
      } else if (news->kind == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH) {
        refused_ = true;
      } else {
        trouble = "the process at that address does not have the key that the invitation names";
        stands_ = false;
      }
    }
  }
  [[nodiscard]] bool stands() const { return stands_; }
  [[nodiscard]] bool refused() const { return refused_; }
  void ask(std::span<const std::byte> body) {
    const LinkHeaderBytes head = write_link_header({.kind = LinkKind::kEnrol}, body);
    if (socket_.send(zmq::buffer(head), zmq::send_flags::sndmore | zmq::send_flags::dontwait)) {
      (void)socket_.send(zmq::const_buffer(body.data(), body.size()), zmq::send_flags::dontwait);
    }
  }
  [[nodiscard]] std::optional<EnrolAnswer> answer() {
    while (const auto parts = next_message(socket_)) {
      if (parts->size() != 2) continue;
      const auto header =
          parse_link_message(message_bytes((*parts)[0]), message_bytes((*parts)[1]));
      if (header && header->kind == LinkKind::kWelcome) return EnrolAnswer{.welcome = true};
      if (!header || header->kind != LinkKind::kRefuse) continue;
      const auto refusal = read_refusal(message_bytes((*parts)[1]));
      if (refusal) return EnrolAnswer{.welcome = false, .why = refusal->what};
    }
    return std::nullopt;
  }

 private:
  zmq::socket_t monitor_;
  zmq::socket_t socket_;  // destroyed first
  bool stands_ = false, refused_ = false;
};

}  // namespace

EnrolOutcome enrol(const Enrolment& enrolment, Runtime& runtime, TimePoint deadline,
                   const std::function<void()>& check) {
  EnrolRequest request{.name = enrolment.name, .key = enrolment.own.public_key};
  request.proof = prove_enrolment(enrolment.own, enrolment.hub_key, enrolment.invitation.public_key,
                                  request.name, request.key);
  const std::vector<std::byte> body = write_enrol_request(request);
  zmq::context_t context;
  std::string trouble = "no answer";
  int refusals = 0;
  for (int number = 0; runtime.clock().now() < deadline; ++number) {
    EnrolmentCall call(context, enrolment, number);
    // ZeroMQ dials again by itself, but not after every refusal, and the request may be lost.
    const TimePoint end = std::min(deadline, runtime.clock().now() + kAskAgain);
    bool asked = false;
    bool refused = false;
    while (runtime.clock().now() < end) {
      check();
      call.wait(std::min(kEnrolmentLook, end - runtime.clock().now()));
      call.take_news(trouble);
      if (call.refused() && !std::exchange(refused, true) && ++refusals == kRefusals) {
        return {.answer = {.why = "it does not know this invitation: it is of another hub's "
                                  "folder, was tampered with, has expired long ago, or the site "
                                  "that came with it has been revoked"}};
      }
      if (call.stands() && !asked) {
        call.ask(body);
        asked = true;
      }
      if (const auto answer = call.answer()) return {.answer = *answer};
    }
  }
  return {.answer = {.why = trouble}, .reached = false};
}

}  // namespace isthmus
