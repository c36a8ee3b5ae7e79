// SPDX-License-Identifier: Apache-2.0
#include "transport/links/link_message.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/base/check.h"
#include "transport/wire/byte_fields.h"

namespace isthmus {
namespace {

constexpr std::size_t kHashBytes = 16;
constexpr std::size_t kConfigurationBytes = 64;  // hexadecimal digits of a SHA-256
constexpr std::size_t kHelloBytes = 12 + 3 * kHashBytes + kConfigurationBytes;
constexpr std::size_t kMaxRefusalText = 1024;
constexpr std::size_t kKindAt = 6, kBytesAt = 8;  // in a header

void put(FieldWriter& out, const Digest128& digest) {
  out.put_bytes(std::as_bytes(std::span(digest.bytes)));
}
Digest128 get_digest(FieldReader& in) {
  Digest128 digest;
  std::memcpy(digest.bytes.data(), in.get_bytes(kHashBytes).data(), kHashBytes);
  return digest;
}

bool is_hexadecimal(std::string_view text) {
  return std::ranges::all_of(
      text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}
/// A stranger's name may reach a terminal.
std::string printable(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, '?');
  return text;
}

std::uint32_t sum_of(LinkKind kind, std::span<const std::byte> body) {
  return kind == LinkKind::kData ? 0 : crc32c(body);
}

}  // namespace

LinkHeaderBytes write_link_header(const LinkHeader& header, std::span<const std::byte> body) {
  ISTHMUS_CHECK(body.size() <= kMaxLinkBody, body.size());
  LinkHeaderBytes bytes{};
  FieldWriter out(bytes);
  out.put(kLinkMagic);
  out.put(kLinkVersion);
  out.put(static_cast<std::uint16_t>(header.kind));
  out.put(static_cast<std::uint32_t>(body.size()));
  out.put(header.stream);
  out.put(header.number);
  out.put(header.amount);
  out.put(sum_of(header.kind, body));
  out.put(crc32c(std::span(bytes).first(kLinkHeaderBytes - 4)));
  return bytes;
}

Expected<LinkHeader, LinkFault> parse_link_message(std::span<const std::byte> header,
                                                   std::span<const std::byte> body) {
  if (header.size() != kLinkHeaderBytes) {
    return malformed(fmt::format("a header of {} bytes, not {}", header.size(), kLinkHeaderBytes));
  }
  FieldReader in(header);
  if (const auto magic = in.get<std::uint32_t>(); magic != kLinkMagic) {
    return malformed(fmt::format("a header that starts with {:#010x}, not with ISLK", magic));
  }
  if (const auto version = in.get<std::uint16_t>(); version != kLinkVersion) {
    return Unexpected<LinkFault>(
        {true, fmt::format("link version {}; this build speaks {}", version, kLinkVersion)});
  }
  if (FieldReader(header.last(4)).get<std::uint32_t>() !=
      crc32c(header.first(kLinkHeaderBytes - 4))) {
    return malformed("a header with a wrong checksum");
  }
  const auto kind = in.get<std::uint16_t>();
  if (kind < static_cast<std::uint16_t>(LinkKind::kHello) ||
      kind > static_cast<std::uint16_t>(LinkKind::kKeys)) {
    return malformed(fmt::format("a message of unknown kind {}", kind));
  }
  LinkHeader parsed{.kind = static_cast<LinkKind>(kind)};
  const auto body_bytes = std::size_t{in.get<std::uint32_t>()};
  if (body_bytes > kMaxLinkBody || body_bytes != body.size()) {
    return malformed(fmt::format("a body of {} bytes announced as {}", body.size(), body_bytes));
  }
  parsed.stream = in.get<std::uint32_t>();
  parsed.number = in.get<std::uint64_t>();
  parsed.amount = in.get<std::uint64_t>();
  if (in.get<std::uint32_t>() != sum_of(parsed.kind, body)) {
    return malformed("a body with a wrong checksum");
  }
  return parsed;
}

std::optional<LinkDataView> next_data(std::span<const std::byte>& rest) {
  if (rest.size() < kLinkHeaderBytes) return std::nullopt;
  const auto kind = FieldReader(rest.subspan(kKindAt)).get<std::uint16_t>();
  const std::size_t bytes = FieldReader(rest.subspan(kBytesAt)).get<std::uint32_t>();
  const bool data = kind == static_cast<std::uint16_t>(LinkKind::kData);
  if (!data || bytes > rest.size() - kLinkHeaderBytes) return std::nullopt;
  const LinkDataView piece{.header = rest.first(kLinkHeaderBytes),
                           .body = rest.subspan(kLinkHeaderBytes, bytes)};
  rest = rest.subspan(kLinkHeaderBytes + bytes);
  return piece;
}

std::vector<std::byte> write_hello(const Hello& hello) {
  ISTHMUS_CHECK(hello.name.size() <= kMaxMemberName, hello.name);
  ISTHMUS_CHECK(hello.configuration.size() == kConfigurationBytes, hello.configuration);
  std::vector<std::byte> body(kHelloBytes + hello.name.size());
  FieldWriter out(body);
  out.put(hello.protocol);
  out.put(static_cast<std::uint16_t>(hello.members));
  out.put(static_cast<std::uint16_t>(hello.from.value()));
  out.put(static_cast<std::uint16_t>(hello.to.value()));
  out.put(static_cast<std::uint8_t>(hello.streams));
  out.put(static_cast<std::uint8_t>(hello.most_streams));
  out.put(static_cast<std::uint16_t>(hello.name.size()));
  put(out, hello.run);
  out.put_text(hello.configuration);
  put(out, hello.layout);
  put(out, hello.incarnation);
  out.put_text(hello.name);
  return body;
}

Expected<Hello, LinkFault> read_hello(std::span<const std::byte> body) {
  if (body.size() < kHelloBytes) {
    return malformed(fmt::format("a hello of {} bytes: shorter than {}", body.size(), kHelloBytes));
  }
  FieldReader in(body);
  Hello hello;
  hello.protocol = in.get<std::uint16_t>();
  hello.members = in.get<std::uint16_t>();
  hello.from = WorkerId(in.get<std::uint16_t>());
  hello.to = WorkerId(in.get<std::uint16_t>());
  hello.streams = in.get<std::uint8_t>();
  hello.most_streams = in.get<std::uint8_t>();
  const auto name_bytes = std::size_t{in.get<std::uint16_t>()};
  if (name_bytes > kMaxMemberName || kHelloBytes + name_bytes != body.size()) {
    return malformed(fmt::format("a hello of {} bytes with a name of {}", body.size(), name_bytes));
  }
  hello.run = get_digest(in);
  hello.configuration = in.get_text(kConfigurationBytes);
  hello.layout = get_digest(in);
  hello.incarnation = get_digest(in);
  hello.name = printable(in.get_text(name_bytes));
  if (!is_hexadecimal(hello.configuration)) {
    return malformed("a hello whose configuration digest is no hexadecimal number");
  }
  return hello;
}

const char* name_of(RefusedField field) {
  switch (field) {
    case RefusedField::kProtocol:
      return "protocol version";
    case RefusedField::kRun:
      return "run id";
    case RefusedField::kConfiguration:
      return "configuration digest";
    case RefusedField::kLayout:
      return "layout hash";
    case RefusedField::kMembers:
      return "number of members";
    case RefusedField::kPlace:
      return "place in the run";
    case RefusedField::kIncarnation:
      return "process";
    case RefusedField::kGivenUp:
      return "given up";
    case RefusedField::kKey:
      return "key";
    case RefusedField::kMalformed:
      break;
  }
  return "message";
}

std::vector<std::byte> write_incarnation(const Digest128& incarnation) {
  std::vector<std::byte> body(kHashBytes);
  FieldWriter out(body);
  put(out, incarnation);
  return body;
}

Expected<Digest128, LinkFault> read_incarnation(std::span<const std::byte> body) {
  if (body.size() != kHashBytes) {
    return malformed(fmt::format("a welcome with a body of {} bytes", body.size()));
  }
  FieldReader in(body);
  return get_digest(in);
}

std::vector<std::byte> write_refusal(const Refusal& refusal) {
  const std::string_view text = std::string_view(refusal.what).substr(0, kMaxRefusalText);
  std::vector<std::byte> body(2 + text.size());
  FieldWriter out(body);
  out.put(static_cast<std::uint16_t>(refusal.field));
  out.put_text(text);
  return body;
}

Expected<Refusal, LinkFault> read_refusal(std::span<const std::byte> body) {
  if (body.size() < 2 || body.size() > 2 + kMaxRefusalText) {
    return malformed(fmt::format("a refusal of {} bytes", body.size()));
  }
  FieldReader in(body);
  const auto field = in.get<std::uint16_t>();
  if (field < static_cast<std::uint16_t>(RefusedField::kProtocol) ||
      field > static_cast<std::uint16_t>(RefusedField::kKey)) {
    return malformed(fmt::format("a refusal of unknown kind {}", field));
  }
  return Refusal{static_cast<RefusedField>(field), printable(in.get_text(body.size() - 2))};
}

Expected<void, Refusal> accept(const Hello& mine, const Hello& theirs) {
  const auto differ = [&](RefusedField field, const auto& here, const auto& there) {
    return Unexpected<Refusal>(
        {field, fmt::format("{}: member {} has {}, member {} has {}", name_of(field),
                            mine.from.value(), here, theirs.from.value(), there)});
  };
  if (mine.protocol != theirs.protocol) {
    return differ(RefusedField::kProtocol, mine.protocol, theirs.protocol);
  }
  if (mine.run != theirs.run) {
    return differ(RefusedField::kRun, mine.run.hex(), theirs.run.hex());
  }
  if (mine.configuration != theirs.configuration) {
    return differ(RefusedField::kConfiguration, mine.configuration, theirs.configuration);
  }
  if (mine.layout != theirs.layout) {
    return differ(RefusedField::kLayout, mine.layout.hex(), theirs.layout.hex());
  }
  if (mine.members != theirs.members) {
    return differ(RefusedField::kMembers, mine.members, theirs.members);
  }
  if (theirs.to != mine.from || theirs.from == mine.from || theirs.from.value() >= mine.members) {
    return Unexpected<Refusal>(
        {RefusedField::kPlace,
         fmt::format("{}: member {} of {} meant to reach member {} here, but this is member {}; "
                     "give all members the same list of endpoints",
                     name_of(RefusedField::kPlace), theirs.from.value(), theirs.members,
                     theirs.to.value(), mine.from.value())});
  }
  return {};
}

}  // namespace isthmus
