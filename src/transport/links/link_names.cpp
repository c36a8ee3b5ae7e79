// SPDX-License-Identifier: Apache-2.0
#include "transport/links/link_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

namespace isthmus {
namespace {

constexpr Duration kAskAgainAfter = std::chrono::seconds(10);
constexpr std::string_view kScheme = "tcp://";

}  // namespace

void LinkNames::begin(std::span<const std::string> endpoints) {
  for (std::size_t i = 0; i < endpoints.size(); ++i) {
    const WorkerId peer(static_cast<int>(i));
    const std::string_view endpoint = endpoints[i];
    const std::size_t colon = endpoint.rfind(':');
    if (peer == options_.self || !endpoint.starts_with(kScheme) || colon < kScheme.size()) continue;
    std::string host(endpoint.substr(kScheme.size(), colon - kScheme.size()));
    if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
    if (host.empty() || is_numeric_host(host)) continue;
    Name& name = unknown_[peer.value()];
    const std::string_view port = endpoint.substr(colon + 1);
    std::from_chars(port.data(), port.data() + port.size(), name.port);
    name.host = std::move(host);
  }
  if (!unknown_.empty()) lookup_ = std::make_unique<NameLookup>(runtime_, look_up_);
}

void LinkNames::look(TimePoint now) {
  for (auto entry = unknown_.begin(); entry != unknown_.end();) {
    const auto place = static_cast<std::size_t>(entry->first);
    Name& name = entry->second;
    if (now >= name.asks_next) {
      lookup_->ask(place, name.host, name.port);
      name.asks_next = now + kAskAgainAfter;
    }
    const std::optional<NameLookup::Found> found = lookup_->take(place);
    if (found && *found) {
      if (!name.trouble.empty()) {
        event_({LinkEvent::Kind::kAdapted, WorkerId(entry->first), -1,
                fmt::format("{} has an address now", name.host)});
      }
      entry = unknown_.erase(entry);
      continue;
    }
    if (found) {
      const bool news = name.trouble.empty();
      name.trouble = found->error();
      const std::string who = place < options_.expected_names.size()
                                  ? options_.expected_names[place]
                                  : fmt::format("member {}", place);
      if (news) {
        event_({LinkEvent::Kind::kUnresolved, WorkerId(entry->first), -1,
                fmt::format("{} cannot be dialled: {}: {}; trying on; if it stays so, check the "
                            "address in the file (getent hosts {})",
                            who, name.host, name.trouble, name.host)});
      }
    }
    ++entry;
  }
}

std::string LinkNames::troubles(std::span<const WorkerId> these) const {
  std::string text;
  for (const auto& [place, name] : unknown_) {
    if (name.trouble.empty() || std::ranges::find(these, WorkerId(place)) == these.end()) continue;
    text += fmt::format("; {}: {}", name.host, name.trouble);
  }
  return text;
}

}  // namespace isthmus
