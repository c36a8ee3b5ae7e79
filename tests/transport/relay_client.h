// SPDX-License-Identifier: Apache-2.0
// Says what is to be said to a relay by hand.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>

#include "raw_peer.h"
#include "transport/links/relay/relay.h"

namespace isthmus::testing_support {

template <std::size_t N>
std::string text_of(const std::array<std::byte, N>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
template <std::size_t N>
std::array<std::byte, N> bytes_of(const std::string& text) {
  std::array<std::byte, N> bytes{};
  std::ranges::copy(std::as_bytes(std::span(text).first(N)), bytes.begin());
  return bytes;
}

class Client {
 public:
  Client(const Relay& relay, const MemberOptions& options)
      : options_(options), peer_("tcp://127.0.0.1:" + std::to_string(relay.port())) {
    const auto word = hear();
    challenge_ = word.token;
    EXPECT_EQ(word.kind, options.keys ? RelayWordKind::kGreetingKeys : RelayWordKind::kGreeting);
  }
  RelayWord hear() {
    const std::string text = peer_.read(kRelayWordBytes);
    if (text.size() < kRelayWordBytes) return {.kind = RelayWordKind::kMalformed};
    return *read_relay_word(bytes_of<kRelayWordBytes>(text));
  }
  /// The next word but beats.
  RelayWord news() {
    RelayWord word = hear();
    while (word.kind == RelayWordKind::kBeat) word = hear();
    return word;
  }
  void ask(RelayVerb verb, int to, const Digest128& token = {}) {
    RelayRequest request{.verb = verb,
                         .from = options_.self,
                         .to = WorkerId(to),
                         .run = options_.identity.run,
                         .token = token};
    if (options_.keys) {
      request.proof = prove_request(*options_.keys, options_.member_keys[0], request, challenge_);
    }
    EXPECT_TRUE(peer_.send(text_of(write_relay_request(request))));
  }
  RawPeer& bytes() { return peer_; }

 private:
  const MemberOptions options_;
  RawPeer peer_;
  Digest128 challenge_;
};

}  // namespace isthmus::testing_support
