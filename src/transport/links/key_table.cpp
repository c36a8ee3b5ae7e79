// SPDX-License-Identifier: Apache-2.0
#include "transport/links/key_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/base/check.h"
#include "core/base/storage.h"
#include "transport/wire/byte_fields.h"

namespace isthmus {
namespace {

constexpr std::size_t kTableHead = 16;
constexpr std::size_t kRequestHead = 4;

using KeyBytes = std::array<std::uint8_t, kKeyBytes>;

KeyBytes bytes_of_key(const std::string& key) {
  KeyBytes bytes{};
  ISTHMUS_CHECK(key.empty() || read_z85(key, bytes), key.size());
  return bytes;
}

/// Empty: all zeros.
std::string get_key(FieldReader& in) {
  KeyBytes bytes{};
  std::memcpy(bytes.data(), in.get_bytes(kKeyBytes).data(), kKeyBytes);
  return bytes == KeyBytes{} ? std::string() : write_z85(bytes);
}

}  // namespace

std::vector<std::byte> write_key_table(const KeyTable& table) {
  std::vector<std::byte> body(kTableHead + kKeyBytes * table.members.size());
  FieldWriter out(body);
  out.put(table.version);
  out.put(static_cast<std::uint32_t>(table.members.size()));
  out.put(std::uint32_t{0});
  for (const std::string& key : table.members) {
    const KeyBytes bytes = bytes_of_key(key);
    out.put_bytes(std::as_bytes(std::span(bytes)));
  }
  return body;
}

Expected<KeyTable, LinkFault> read_key_table(std::span<const std::byte> body, int members) {
  const std::size_t expected = kTableHead + kKeyBytes * static_cast<std::size_t>(members);
  if (body.size() != expected) {
    return malformed(fmt::format("keys of {} bytes, not {}", body.size(), expected));
  }
  FieldReader in(body);
  KeyTable table{.version = in.get<std::uint64_t>(), .members = {}, .guests = {}};
  if (in.get<std::uint32_t>() != static_cast<std::uint32_t>(members) ||
      in.get<std::uint32_t>() != 0) {
    return malformed("keys of another number of members");
  }
  for (int member = 0; member < members; ++member) {
    std::string key = get_key(in);
    if (!key.empty() && std::ranges::find(table.members, key) != table.members.end()) {
      return malformed("one key for two members");
    }
    table.members.push_back(std::move(key));
  }
  return table;
}

std::vector<std::byte> write_enrol_request(const EnrolRequest& request) {
  ISTHMUS_CHECK(request.name.size() <= kMaxMemberName, request.name);
  std::vector<std::byte> body(kRequestHead + kKeyBytes + request.proof.size() +
                              request.name.size());
  const KeyBytes key = bytes_of_key(request.key);
  FieldWriter out(body);
  out.put(static_cast<std::uint32_t>(request.name.size()));
  out.put_bytes(std::as_bytes(std::span(key)));
  out.put_bytes(std::as_bytes(std::span(request.proof)));
  out.put_text(request.name);
  return body;
}

Expected<EnrolRequest, LinkFault> read_enrol_request(std::span<const std::byte> body) {
  EnrolRequest request;
  const std::size_t head = kRequestHead + kKeyBytes + request.proof.size();
  if (body.size() < head || body.size() > head + kMaxMemberName) {
    return malformed(fmt::format("a request of {} bytes", body.size()));
  }
  FieldReader in(body);
  const auto name_bytes = std::size_t{in.get<std::uint32_t>()};
  if (name_bytes != body.size() - head) {
    return malformed(
        fmt::format("a request of {} bytes with a name of {}", body.size(), name_bytes));
  }
  request.key = get_key(in);
  std::memcpy(request.proof.data(), in.get_bytes(request.proof.size()).data(),
              request.proof.size());
  request.name = in.get_text(name_bytes);
  const bool printable = std::ranges::all_of(
      request.name, [](char c) { return static_cast<unsigned char>(c) >= 0x20 && c != 0x7f; });
  if (request.key.empty() || request.name.empty() || !printable) {
    return malformed("a request without a key or a name");
  }
  return request;
}

KeyProof prove_enrolment(const LinkKeys& own, std::string_view other, std::string_view invitation,
                         std::string_view name, std::string_view site_key) {
  const std::string message =
      fmt::format("isthmus enrolment 1\n{}\n{}\n{}", invitation, name, site_key);
  return prove_with(share_key(own, other), as_bytes(message));
}

}  // namespace isthmus
