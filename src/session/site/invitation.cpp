// SPDX-License-Identifier: Apache-2.0
#include "session/site/invitation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "core/base/check.h"
#include "core/base/hash.h"
#include "transport/links/link_message.h"
#include "transport/wire/byte_fields.h"

namespace isthmus::app {
namespace {

constexpr std::string_view kPrefix = "isthmus1.";
constexpr std::size_t kLongestAddress = 255;
constexpr std::size_t kHead = 16 + 8 + 8 + 4 + kKeyBytes + 4;  // up to the name
constexpr std::size_t kMostBytes = kHead + kMaxMemberName + kLongestAddress + kKeyBytes + 4;

/// All that the token is made of.
std::vector<std::byte> signed_part(const Invitation& invitation) {
  ISTHMUS_CHECK(invitation.name.size() <= kMaxMemberName, invitation.name);
  ISTHMUS_CHECK(invitation.address.size() <= kLongestAddress, invitation.address);
  std::array<std::uint8_t, kKeyBytes> key{};
  ISTHMUS_CHECK(read_z85(invitation.hub_key, key), invitation.hub_key.size());
  std::vector<std::byte> bytes(kHead + invitation.name.size() + invitation.address.size());
  FieldWriter out(bytes);
  out.put_bytes(std::as_bytes(std::span(invitation.run)));
  out.put_bytes(std::as_bytes(std::span(invitation.number)));
  out.put(static_cast<std::uint64_t>(invitation.expires));
  out.put(invitation.uses);
  out.put_bytes(std::as_bytes(std::span(key)));
  out.put(static_cast<std::uint16_t>(invitation.name.size()));
  out.put(static_cast<std::uint16_t>(invitation.address.size()));
  out.put_text(invitation.name);
  out.put_text(invitation.address);
  return bytes;
}

bool is_plain(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c > 0x20 && c < 0x7f; });
}

template <std::size_t N>
void get(FieldReader& in, std::array<std::uint8_t, N>& out) {
  std::memcpy(out.data(), in.get_bytes(N).data(), N);
}

}  // namespace

Invitation::~Invitation() { wipe_secret(token); }

void sign(Invitation& invitation, std::string_view secret) {
  invitation.token = authenticate(secret, signed_part(invitation));
}

LinkKeys keys_of(const Invitation& invitation) { return keys_from_seed(invitation.token); }

std::string write_invitation(const Invitation& invitation) {
  std::vector<std::byte> bytes = signed_part(invitation);
  const auto token = std::as_bytes(std::span(invitation.token));
  bytes.insert(bytes.end(), token.begin(), token.end());
  const std::uint32_t sum = crc32c(bytes);
  bytes.resize(bytes.size() + 4);
  FieldWriter(std::span(bytes).last(4)).put(sum);
  return std::string(kPrefix) + write_base64(bytes);
}

Expected<Invitation, std::string> read_invitation(std::string_view text) {
  const auto no = [](const char* why) { return Unexpected<std::string>(why); };
  if (!text.starts_with(kPrefix)) return no("does not begin as an invitation does");
  const auto bytes = read_base64(text.substr(kPrefix.size()), kMostBytes);
  constexpr std::size_t kEnd = kKeyBytes + 4;
  if (!bytes || bytes->size() < kHead + kEnd) return no("is damaged, or not whole");
  const std::span<const std::byte> all(*bytes);
  if (FieldReader(all.last(4)).get<std::uint32_t>() != crc32c(all.first(all.size() - 4))) {
    return no("is damaged, or not whole");
  }
  FieldReader in(all);
  Invitation invitation;
  get(in, invitation.run);
  get(in, invitation.number);
  invitation.expires = static_cast<std::int64_t>(in.get<std::uint64_t>());
  invitation.uses = in.get<std::uint32_t>();
  std::array<std::uint8_t, kKeyBytes> key{};
  get(in, key);
  invitation.hub_key = write_z85(key);
  const auto name = std::size_t{in.get<std::uint16_t>()};
  const auto address = std::size_t{in.get<std::uint16_t>()};
  if (name > kMaxMemberName || address > kLongestAddress ||
      kHead + name + address + kEnd != all.size()) {
    return no("is damaged, or not whole");
  }
  invitation.name = in.get_text(name);
  invitation.address = in.get_text(address);
  get(in, invitation.token);
  if (!is_plain(invitation.name) || !is_plain(invitation.address)) {
    return no("names no site, or no hub");
  }
  return invitation;
}

}  // namespace isthmus::app
