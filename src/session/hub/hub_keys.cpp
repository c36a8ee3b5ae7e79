// SPDX-License-Identifier: Apache-2.0
#include "session/hub/hub_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <system_error>

#include "core/base/file_lock.h"
#include "core/base/fresh_id.h"
#include "core/base/log.h"
#include "isthmus/errors.h"
#include "record/wall_clock.h"

namespace isthmus::app {
namespace {

constexpr Duration kLockPatience = std::chrono::seconds(2);
constexpr Duration kReadAnyway = std::chrono::seconds(2);  // clocks of files are coarse
constexpr std::int64_t kKeptAfter =
    24 * 3600;  // seconds; until then the hub can say that a key has expired
constexpr std::size_t kMostInvitations = 1000;

/// REQUIRES: 32 hexadecimal digits, as HubKeyBook::read has checked.
std::array<std::uint8_t, 16> bytes_of(std::string_view hex) {
  std::array<std::uint8_t, 16> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const char* at = hex.data() + 2 * i;
    (void)std::from_chars(at, at + 2, bytes[i], 16);
  }
  return bytes;
}

std::int64_t unix_seconds() { return static_cast<std::int64_t>(std::floor(unix_now())); }

}  // namespace

HubKeys::HubKeys(Storage& storage, Runtime& runtime, const Config& config,
                 std::filesystem::path folder)
    : storage_(storage), runtime_(runtime), config_(config), folder_(std::move(folder)) {
  const std::scoped_lock lock(mutex_);
  (void)read();
}

HubKeyBook HubKeys::book() const {
  const std::scoped_lock lock(mutex_);
  return book_;
}

KeyTable HubKeys::table() const {
  const std::scoped_lock lock(mutex_);
  KeyTable table{.version = book_.version + 1, .members = {}, .guests = {}};
  for (const SiteConfig& site : config_.sites) {
    table.members.push_back(book_.key_of(site.name, site.key));
  }
  table.members.push_back(config_.hub.key);
  for (const HubKeyBook::Given& each : book_.invitations) {
    if (!each.barred) table.guests.push_back(each.key);
  }
  return table;
}

bool HubKeys::read() {
  const std::filesystem::path path = folder_ / "hub.keys";
  read_at_ = runtime_.clock().now();
  seen_.reset();
  HubKeyBook found;
  if (storage_.kind(path) != FileKind::kAbsent) {
    std::error_code error;
    const auto written = std::filesystem::last_write_time(path, error);
    const auto size = error ? 0 : std::filesystem::file_size(path, error);
    found = HubKeyBook::read(read_text(storage_, path), path.string());
    if (!error) seen_ = {written, size};
  }
  if (found.version < book_.version) return false;
  book_ = std::move(found);
  return true;
}

void HubKeys::put_back() {
  const std::filesystem::path path = folder_ / "hub.keys";
  const FileLock held(folder_ / "keys.lock",
                      "another process is changing which sites are admitted");
  if (read()) return;
  log_warning("{} is older than the keys in memory, or missing: it is written again",
              path.string());
  write_atomically(storage_, path, book_.write());
  (void)read();
}

bool HubKeys::look() {
  const std::scoped_lock lock(mutex_);
  const std::filesystem::path path = folder_ / "hub.keys";
  std::error_code error;
  const auto written = std::filesystem::last_write_time(path, error);
  const auto size = error ? 0 : std::filesystem::file_size(path, error);
  const bool same = error ? !seen_ : seen_ && seen_->first == written && seen_->second == size;
  if (same && runtime_.clock().now() - read_at_ < kReadAnyway) return false;
  const std::uint64_t before = book_.version;
  try {
    if (!read()) put_back();
  } catch (const std::exception& failure) {  // a damaged file lets no site in or out
    log_warning("{}: the sites admitted so far stay admitted", failure.what());
  }
  return book_.version != before;
}

void HubKeys::change(const std::function<bool(HubKeyBook&)>& step) {
  storage_.create_directories(folder_);
  const TimePoint end = runtime_.clock().now() + kLockPatience;
  std::optional<FileLock> held;
  while (!held) {
    try {
      held.emplace(folder_ / "keys.lock", "another process is changing which sites are admitted");
    } catch (const SystemError&) {
      if (runtime_.clock().now() >= end) throw;
      runtime_.sleep_until(runtime_.clock().now() + std::chrono::milliseconds(20));
    }
  }
  HubKeyBook next;
  {
    const std::scoped_lock lock(mutex_);
    (void)read();  // an older file is written anew below
    next = book_;
  }
  if (next.run.empty()) next.run = fresh_id().hex();
  if (!step(next)) return;
  ++next.version;
  write_atomically(storage_, folder_ / "hub.keys", next.write());
  const std::scoped_lock lock(mutex_);
  (void)read();
}

EnrolAnswer HubKeys::enrol(const LinkKeys& hub, const std::string& invitation,
                           std::span<const std::byte> bytes) {
  const auto request = read_enrol_request(bytes);
  const auto no = [&](const std::string& why) {
    log_warning("an invitation was refused: {}", why);
    return EnrolAnswer{.welcome = false, .why = why};
  };
  if (!request) return no(request.error().what);
  try {
    if (!same_proof(request->proof,
                    prove_enrolment(hub, request->key, invitation, request->name, request->key))) {
      return no("it was asked with a key of somebody else");
    }
  } catch (const ConfigError& error) {
    return no(error.what());
  }
  const std::scoped_lock lock(changing_);
  std::string why;
  try {
    change([&](HubKeyBook& book) {
      const auto site = std::ranges::find(config_.sites, request->name, &SiteConfig::name);
      std::vector<std::string> taken = {config_.hub.key};
      for (const SiteConfig& each : config_.sites) {
        const std::string key = book.key_of(each.name, each.key);
        if (!key.empty() && each.name != request->name) taken.push_back(key);
      }
      if (site == config_.sites.end() || !site->key.empty()) {
        why =
            fmt::format("site '{}' is none of the hub's file that may come by one", request->name);
        return false;
      }
      const auto changed = book.enrol(invitation, *request, taken, unix_seconds(), utc_now());
      if (!changed) why = changed.error();
      return changed && *changed;
    });
  } catch (const std::exception& error) {
    return no(fmt::format("the hub cannot store which sites are admitted: {}", error.what()));
  }
  if (!why.empty()) return no(why);
  log_info("site {} is let in by an invitation, with key {}", request->name,
           key_label(request->key));
  return {.welcome = true};
}

const SiteConfig& HubKeys::site_of(const std::string& name) const {
  const auto site = std::ranges::find(config_.sites, name, &SiteConfig::name);
  if (site != config_.sites.end()) return *site;
  std::string names;
  for (const SiteConfig& each : config_.sites) {
    names += (names.empty() ? "" : ", ") + each.name;
  }
  throw ConfigError(
      fmt::format("{}: no such site in {}; sites: {}", name, config_.file.string(), names));
}

std::string HubKeys::secret() {
  const std::filesystem::path path = folder_ / "hub.secret";
  if (storage_.kind(path) == FileKind::kAbsent) write_private_file(path, make_link_keys().secret);
  return as_text(read_private_file(path));
}

std::string HubKeys::invite(const std::string& name, const std::string& address, std::int64_t ttl_s,
                            std::uint32_t uses) {
  const SiteConfig& site = site_of(name);
  if (!site.key.empty()) {
    throw ConfigError(fmt::format(
        "site '{}' has a key in {} and needs no invitation: take the key out of the file at all "
        "sites, or have it start with it",
        name, config_.file.string()));
  }
  const std::scoped_lock lock(changing_);
  std::string text;
  change([&](HubKeyBook& book) {
    if (const HubKeyBook::Site* there = book.site(name)) {
      throw ConfigError(fmt::format(
          "site '{}' has come by an invitation already, with key {}: revoke it first if it shall "
          "come with another one",
          name, key_label(there->key)));
    }
    const std::int64_t now = unix_seconds();
    std::erase_if(book.invitations, [&](const HubKeyBook::Given& each) {
      return each.expires + kKeptAfter < now &&
             std::ranges::find(book.sites, each.key, &HubKeyBook::Site::invitation) ==
                 book.sites.end();
    });
    if (book.invitations.size() >= kMostInvitations) {
      throw ConfigError(fmt::format("{} invitations are open: let some expire", kMostInvitations));
    }
    Invitation invitation;
    invitation.run = bytes_of(book.run);
    const Digest128 number = fresh_id();
    std::copy_n(number.bytes.begin(), invitation.number.size(), invitation.number.begin());
    invitation.expires = now + ttl_s;
    invitation.uses = uses;
    invitation.name = name;
    invitation.address = address;
    invitation.hub_key = config_.hub.key;
    sign(invitation, secret());
    book.invitations.push_back({.key = keys_of(invitation).public_key,
                                .site = name,
                                .expires = invitation.expires,
                                .uses = uses});
    text = write_invitation(invitation);
    return true;
  });
  return text;
}

std::string HubKeys::revoke(const std::string& name) {
  const SiteConfig& site = site_of(name);
  const std::scoped_lock lock(changing_);
  std::string key;
  change([&](HubKeyBook& book) {
    key = book.revoke(name, site.key, utc_now());
    return true;
  });
  return key;
}

std::filesystem::path hub_folder(const Config& config, const std::filesystem::path& out) {
  if (!out.empty()) return out;
  if (!config.run.out.empty()) return config.run.out / "hub";
  return fmt::format("runs/{}-hub", config.run.name);
}

}  // namespace isthmus::app
