// SPDX-License-Identifier: Apache-2.0
#include "transport/links/relay/relay_call.h"

#include <array>
#include <span>
#include <string_view>
#include <utility>

#include "isthmus/errors.h"

namespace isthmus {
namespace {

// Until an address greets: where others are left, and the last one.
constexpr Duration kNextAddress = std::chrono::seconds(1);
constexpr Duration kLastAddress = std::chrono::milliseconds(1500);

}  // namespace

RelayCall::RelayCall(const MemberOptions& options, const RelayPlace& relay,
                     std::vector<TcpAddress> addresses, const RelayRequest& request, TimePoint now,
                     Duration most, const AnnouncedKeys* told)
    : options_(&options),
      told_(told),
      relay_(relay),
      addresses_(std::move(addresses)),
      request_(request),
      deadline_(now + most) {
  request_.run = options.identity.run;
  (void)connect_next(now);
}

RelayCall::State RelayCall::connect_next(TimePoint now) {
  socket_.reset();
  connected_ = false;
  input_.clear();
  while (!socket_ && next_ < addresses_.size()) {
    auto begun = TcpSocket::start_connect(addresses_[next_++]);
    if (begun) {
      socket_ = *std::move(begun);
    } else {
      why_ = begun.error();
    }
  }
  greeted_by_ = now + (next_ < addresses_.size() ? kNextAddress : kLastAddress);
  return socket_ ? State::kGoing : State::kFailed;
}

RelayCall::State RelayCall::fail(const std::string& why) {
  why_ = why;
  socket_.reset();
  return State::kFailed;
}

void RelayCall::add_to(std::vector<Waited>& all) {
  place_ = all.size();
  if (socket_) {
    all.push_back(
        {.descriptor = socket_->descriptor(), .to_read = connected_, .to_write = !connected_});
  } else {
    all.push_back({});
  }
}

RelayCall::State RelayCall::advance(const std::vector<Waited>& all, TimePoint now) {
  if (!socket_) return State::kFailed;
  const bool silent = !greeted_ && now >= greeted_by_;
  if (silent || now >= deadline_) {
    why_ = connected_ ? "no answer" : "no connection: nobody answers";
    return silent && now < deadline_ ? connect_next(now) : fail(why_);
  }
  if (!all[place_].ready) return State::kGoing;
  if (!connected_) {
    why_ = socket_->connect_error();
    if (!why_.empty()) return connect_next(now);
    connected_ = true;
    return State::kGoing;
  }
  std::array<char, kRelayWordBytes> buffer{};
  const Transfer got = socket_->read_some(std::span(buffer).first(kRelayWordBytes - input_.size()));
  if (got.closed) return fail("hung up");
  input_.append(buffer.data(), got.bytes);
  if (input_.size() < kRelayWordBytes) return State::kGoing;
  const auto word = read_relay_word(std::as_bytes(std::span(input_)).first<kRelayWordBytes>());
  input_.clear();
  if (!word) return fail(std::string(relay_words(word.error())));
  if (!greeted_) return answer_greeting(*word);
  if (word->kind != RelayWordKind::kDone) return fail(std::string(relay_words(word->kind)));
  return State::kDone;
}

RelayCall::State RelayCall::answer_greeting(const RelayWord& word) {
  const bool keys = word.kind == RelayWordKind::kGreetingKeys;
  if (!keys && word.kind != RelayWordKind::kGreeting) {
    return fail(std::string(relay_words(word.kind)));
  }
  if (keys != options_->keys.has_value()) {
    return fail(keys ? "the relay's sites have keys, and this one has none"
                     : "the relay's sites have no keys, and this one has");
  }
  if (keys) {
    const std::string relays = key_now(told_, *options_, relay_.member);
    if (relays.empty()) return fail("the hub has not said yet which key the relay's site has");
    try {
      request_.proof = prove_request(*options_->keys, relays, request_, word.token);
    } catch (const ConfigError& error) {
      return fail(error.what());
    }
  }
  greeted_ = true;
  const RelayRequestBytes bytes = write_relay_request(request_);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  // Less than any socket's buffer, and the first that is sent.
  if (socket_->write_some(text).bytes != text.size()) return fail("hung up");
  return State::kGoing;
}

}  // namespace isthmus
