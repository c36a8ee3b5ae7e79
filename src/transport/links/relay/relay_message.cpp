// SPDX-License-Identifier: Apache-2.0
#include "transport/links/relay/relay_message.h"

#include <algorithm>

#include "core/base/check.h"
#include "core/base/names.h"
#include "transport/wire/byte_fields.h"

namespace isthmus {
namespace {

constexpr std::uint32_t kMagic = 0x4c525349;  // "ISRL"
constexpr std::uint16_t kVersionHere = 2;
constexpr std::size_t kChecksumBytes = 4, kProvedBytes = 44;
constexpr std::string_view kContext = "isthmus relay 1";

void put_token(FieldWriter& out, const Digest128& token) {
  out.put_bytes(std::as_bytes(std::span(token.bytes)));
}

Digest128 get_token(FieldReader& in) {
  Digest128 token;
  const auto bytes = in.get_bytes(token.bytes.size());
  std::ranges::transform(bytes, token.bytes.begin(),
                         [](std::byte b) { return std::to_integer<std::uint8_t>(b); });
  return token;
}

void seal(std::span<std::byte> bytes) {
  const std::size_t body = bytes.size() - kChecksumBytes;
  FieldWriter(bytes.subspan(body)).put(crc32c(bytes.first(body)));
}

/// The common beginning and end of both kinds of messages. RETURNS: the fields after the version.
Expected<FieldReader, RelayWordKind> open(std::span<const std::byte> bytes) {
  const std::size_t body = bytes.size() - kChecksumBytes;
  FieldReader in(bytes.first(body));
  if (in.get<std::uint32_t>() != kMagic) {
    return Unexpected<RelayWordKind>(RelayWordKind::kMalformed);
  }
  if (in.get<std::uint16_t>() != kVersionHere) {
    return Unexpected<RelayWordKind>(RelayWordKind::kVersion);
  }
  if (FieldReader(bytes.subspan(body)).get<std::uint32_t>() != crc32c(bytes.first(body))) {
    return Unexpected<RelayWordKind>(RelayWordKind::kMalformed);
  }
  return in;
}

bool is_word(std::uint16_t kind) {
  return (kind >= static_cast<std::uint16_t>(RelayWordKind::kGreeting) &&
          kind <= static_cast<std::uint16_t>(RelayWordKind::kBeat)) ||
         (kind >= static_cast<std::uint16_t>(RelayWordKind::kVersion) &&
          kind <= static_cast<std::uint16_t>(RelayWordKind::kNotYet));
}

constexpr Named<RelayWordKind> kRelayWords[] = {
    {RelayWordKind::kVersion, "the relay is of another version of isthmus"},
    {RelayWordKind::kMalformed, "what answers there is no relay"},
    {RelayWordKind::kRun, "the relay belongs to another run"},
    {RelayWordKind::kKey,
     "the relay has another key for this site, or none any more; all sites need the same "
     "file"},
    {RelayWordKind::kPlace, "the relay knows no such site; all sites need the same file"},
    {RelayWordKind::kTaken, "another process listens there as this site"},
    {RelayWordKind::kNobody, "that site does not listen at the relay"},
    {RelayWordKind::kNoAnswer, "that site does not answer the relay's call"},
    {RelayWordKind::kFull, "the relay has no room for another connection"},
    {RelayWordKind::kNotYet, "the relay has not been told a key for this site yet"},
};

}  // namespace

std::string_view relay_words(RelayWordKind kind) {
  return name_in(kRelayWords, kind, "the relay said what makes no sense here");
}

RelayWordBytes write_relay_word(const RelayWord& word) {
  RelayWordBytes bytes{};
  FieldWriter out(bytes);
  out.put(kMagic);
  out.put(kVersionHere);
  out.put(static_cast<std::uint16_t>(word.kind));
  put_token(out, word.token);
  seal(bytes);
  return bytes;
}

Expected<RelayWord, RelayWordKind> read_relay_word(
    std::span<const std::byte, kRelayWordBytes> bytes) {
  auto in = open(bytes);
  if (!in) return Unexpected<RelayWordKind>(in.error());
  const auto kind = in->get<std::uint16_t>();
  if (!is_word(kind)) return Unexpected<RelayWordKind>(RelayWordKind::kMalformed);
  return RelayWord{.kind = static_cast<RelayWordKind>(kind), .token = get_token(*in)};
}

RelayRequestBytes write_relay_request(const RelayRequest& request) {
  constexpr int kLastPlace = 65535;
  ISTHMUS_CHECK(request.from.value() >= 0 && request.from.value() <= kLastPlace,
                request.from.value());
  ISTHMUS_CHECK(request.to.value() >= 0 && request.to.value() <= kLastPlace, request.to.value());
  RelayRequestBytes bytes{};
  FieldWriter out(bytes);
  out.put(kMagic);
  out.put(kVersionHere);
  out.put(static_cast<std::uint16_t>(request.verb));
  out.put(static_cast<std::uint16_t>(request.from.value()));
  out.put(static_cast<std::uint16_t>(request.to.value()));
  put_token(out, request.run);
  put_token(out, request.token);
  out.put_bytes(std::as_bytes(std::span(request.proof)));
  seal(bytes);
  return bytes;
}

Expected<RelayRequest, RelayWordKind> read_relay_request(
    std::span<const std::byte, kRelayRequestBytes> bytes) {
  auto in = open(bytes);
  if (!in) return Unexpected<RelayWordKind>(in.error());
  const auto verb = in->get<std::uint16_t>();
  if (verb < static_cast<std::uint16_t>(RelayVerb::kListen) ||
      verb > static_cast<std::uint16_t>(RelayVerb::kAccept)) {
    return Unexpected<RelayWordKind>(RelayWordKind::kMalformed);
  }
  RelayRequest request;
  request.verb = static_cast<RelayVerb>(verb);
  request.from = WorkerId(in->get<std::uint16_t>());
  request.to = WorkerId(in->get<std::uint16_t>());
  request.run = get_token(*in);
  request.token = get_token(*in);
  std::ranges::transform(in->get_bytes(request.proof.size()), request.proof.begin(),
                         [](std::byte b) { return std::to_integer<std::uint8_t>(b); });
  return request;
}

KeyProof prove_request(const LinkKeys& own, std::string_view other, const RelayRequest& request,
                       const Digest128& challenge) {
  return prove_request(share_key(own, other), request, challenge);
}

KeyProof prove_request(const SharedKey& shared, const RelayRequest& request,
                       const Digest128& challenge) {
  const RelayRequestBytes bytes = write_relay_request(request);
  std::array<std::byte, kContext.size() + sizeof challenge.bytes + kProvedBytes> proved{};
  FieldWriter out(proved);
  out.put_text(kContext);
  put_token(out, challenge);
  out.put_bytes(std::span(bytes).first<kProvedBytes>());
  return prove_with(shared, proved);
}

}  // namespace isthmus
