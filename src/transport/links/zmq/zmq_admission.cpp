// SPDX-License-Identifier: Apache-2.0
#include "transport/links/zmq/zmq_admission.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "isthmus/errors.h"

namespace isthmus {
namespace {

constexpr const char* kDomain = "isthmus";
constexpr int kQuestionsPerTurn = 64;
constexpr std::size_t kQuestionParts = 7;  // of one about a key
constexpr int kGuestConnections = 64;      // an hour and invitation

std::vector<zmq::message_t> next_question(zmq::socket_t& socket) {
  std::vector<zmq::message_t> parts;
  for (bool more = true; more;) {
    zmq::message_t part;
    if (!socket.recv(part, zmq::recv_flags::dontwait)) return {};
    more = part.more();
    if (parts.size() <= kQuestionParts) parts.push_back(std::move(part));
  }
  return parts;
}

/// The key of a question for the domain, in Z85; empty: it is no such question.
std::string asked_key(const std::vector<zmq::message_t>& parts) {
  if (parts.size() != kQuestionParts || parts[0].to_string_view() != "1.0" ||
      parts[2].to_string_view() != kDomain || parts[5].to_string_view() != "CURVE" ||
      parts[6].size() != kKeyBytes) {
    return {};
  }
  return write_z85({static_cast<const std::uint8_t*>(parts[6].data()), kKeyBytes});
}

void set_own_keys(zmq::socket_t& socket, const LinkKeys& keys) {
  socket.set(zmq::sockopt::curve_secretkey, keys.secret);
  socket.set(zmq::sockopt::curve_publickey, keys.public_key);
}

}  // namespace

ZmqAdmission::ZmqAdmission(zmq::context_t& context)
    : socket_(context, zmq::socket_type::rep), polled_(socket_) {
  if (zmq_has("curve") == 0) {
    throw SystemError(
        "links with keys: this machine's libzmq was built without CURVE; install one built with "
        "libsodium (Debian's and Ubuntu's are)");
  }
  socket_.set(zmq::sockopt::linger, 0);
  socket_.bind("inproc://zeromq.zap.01");
}

void ZmqAdmission::set_keys(std::vector<std::string> members,
                            const std::vector<std::string>& guests) {
  member_keys_ = std::move(members);
  std::map<std::string, Guest> next;
  for (const std::string& key : guests) {
    const auto before = guests_.find(key);
    next[key] = before == guests_.end() ? Guest() : before->second;
  }
  guests_ = std::move(next);
}

bool ZmqAdmission::lets_in(const std::string& key, TimePoint now) {
  if (owner_of(key)) return true;
  const auto found = guests_.find(key);
  if (found == guests_.end()) return false;
  Guest& guest = found->second;
  if (guest.connections == 0 || now - guest.first > std::chrono::hours(1)) guest = {0, now};
  return ++guest.connections <= kGuestConnections;
}

void ZmqAdmission::answer(TimePoint now, const std::function<void(const std::string&)>& refused) {
  polled_.touch();
  for (int i = 0; i < kQuestionsPerTurn; ++i) {
    const std::vector<zmq::message_t> parts = next_question(socket_);
    if (parts.empty()) return;
    const std::string key = asked_key(parts);
    const bool known = !key.empty() && lets_in(key, now);
    const std::string user = known ? key : "";
    const std::string number = parts.size() > 1 ? parts[1].to_string() : "";
    for (const std::string_view part :
         {std::string_view("1.0"), std::string_view(number),
          std::string_view(known ? "200" : "400"),
          std::string_view(known ? "OK" : "no member has this key"), std::string_view(user)}) {
      (void)socket_.send(zmq::const_buffer(part.data(), part.size()),
                         zmq::send_flags::sndmore | zmq::send_flags::dontwait);
    }
    (void)socket_.send(zmq::message_t(), zmq::send_flags::dontwait);  // no more about it
    if (!known && !key.empty()) refused(key);
  }
}

void ZmqAdmission::make_server(zmq::socket_t& socket, const LinkKeys& keys) {
  socket.set(zmq::sockopt::curve_server, true);
  set_own_keys(socket, keys);
  socket.set(zmq::sockopt::zap_domain, kDomain);
}

void ZmqAdmission::make_client(zmq::socket_t& socket, const LinkKeys& keys,
                               const std::string& peer_key) {
  set_own_keys(socket, keys);
  socket.set(zmq::sockopt::curve_serverkey, peer_key);
}

std::string ZmqAdmission::key_of(zmq::message_t& message) {
  const char* user = zmq_msg_gets(message.handle(), "User-Id");
  return user == nullptr ? std::string() : std::string(user);
}

std::optional<WorkerId> ZmqAdmission::owner_of(const std::string& key) const {
  const auto member = std::find(member_keys_.begin(), member_keys_.end(), key);
  if (key.empty() || member == member_keys_.end()) return std::nullopt;
  return WorkerId(static_cast<int>(member - member_keys_.begin()));
}

}  // namespace isthmus
