// SPDX-License-Identifier: Apache-2.0
#include "transport/exchange/hub_record.h"

#include <fmt/format.h>

#include <algorithm>

#include "transport/wire/byte_fields.h"

namespace isthmus {
namespace {

constexpr std::size_t kCommitBytes = 12 + sizeof(Digest128::bytes);

}  // namespace

HubRecord commit_record(const SyncId& id, const Digest128& digest) {
  HubRecord record{.kind = HubRecord::Kind::kCommit, .body = std::vector<std::byte>(kCommitBytes)};
  FieldWriter out(record.body);
  out.put(static_cast<std::uint32_t>(id.fragment.value()));
  out.put(static_cast<std::uint64_t>(id.sent.value()));
  out.put_bytes(std::as_bytes(std::span(digest.bytes)));
  return record;
}

Expected<std::pair<SyncId, Digest128>, std::string> read_commit(const HubRecord& record) {
  if (record.body.size() < kCommitBytes ||
      (record.body.size() - kCommitBytes) % sizeof(std::uint32_t) != 0) {
    return Unexpected<std::string>(fmt::format("a commit of {} bytes; it has {} and shares, if any",
                                               record.body.size(), kCommitBytes));
  }
  FieldReader in(record.body);
  const auto fragment = in.get<std::uint32_t>();
  const auto sent = in.get<std::uint64_t>();
  if (fragment > 0x7fffffffu || sent > 0x7fffffffffffffffu) {
    return Unexpected<std::string>("a commit of a round that cannot be");
  }
  std::pair<SyncId, Digest128> commit{
      {FragmentId(static_cast<int>(fragment)), StepIndex(static_cast<std::int64_t>(sent))}, {}};
  const std::span<const std::byte> digest = in.get_bytes(sizeof(Digest128::bytes));
  std::ranges::copy(digest, std::as_writable_bytes(std::span(commit.second.bytes)).begin());
  return commit;
}

bool Decided::includes(const Decided& other) const {
  return epoch >= other.epoch && std::ranges::all_of(other.newest, [&](const SyncId& its) {
           return std::ranges::any_of(newest, [&](const SyncId& own) {
             return own.fragment == its.fragment && own.sent >= its.sent;
           });
         });
}

}  // namespace isthmus
