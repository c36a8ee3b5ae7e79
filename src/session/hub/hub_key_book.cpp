// SPDX-License-Identifier: Apache-2.0
// The keys that are let in, by the file and by all changes since. Pure.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/json_input.h"
#include "isthmus/errors.h"
#include "record/json_fields.h"
#include "session/hub/hub_keys.h"

namespace isthmus::app {

namespace {

/// A public key: refused where it is none.
constexpr auto kKey = [](auto& io, const char* name, auto& key) {
  io(name, key);
  if constexpr (kReads<decltype(io)>) check_public_key(key);
};

constexpr auto kGiven = [](auto& io, auto& given) {
  kKey(io, "key", given.key);
  io("site", given.site);
  io("expires", given.expires);
  io("uses", given.uses);
  io("used", given.used);
  io("barred", given.barred);
};

constexpr auto kCame = [](auto& io, auto& site) {
  io("name", site.name);
  kKey(io, "key", site.key);
  kKey(io, "invitation", site.invitation);
  io("since", site.since);
};

constexpr auto kBarred = [](auto& io, auto& revoked) {
  io("name", revoked.name);
  kKey(io, "key", revoked.key);
  io("since", revoked.since);
};

constexpr auto kBook = [](auto& io, auto& book) {
  int form = 1;
  io("isthmus_hub_keys", form);
  if (form != 1) throw RunError("of another version");
  io("version", book.version);
  io("run", book.run);
  if constexpr (kReads<decltype(io)>) {
    if (book.run.size() != 32 ||
        book.run.find_first_not_of("0123456789abcdef") != std::string::npos) {
      throw RunError("a run that is none");
    }
  }
  io.list("invitations", book.invitations, kGiven);
  io.list("sites", book.sites, kCame);
  io.list("revoked", book.revoked, kBarred);
};

}  // namespace

const HubKeyBook::Site* HubKeyBook::site(std::string_view name) const {
  const auto found = std::ranges::find(sites, name, &Site::name);
  return found == sites.end() ? nullptr : &*found;
}

bool HubKeyBook::is_revoked(std::string_view key) const {
  return std::ranges::find(revoked, key, &Revoked::key) != revoked.end();
}

std::string HubKeyBook::key_of(std::string_view name, const std::string& in_file) const {
  std::string key = in_file;
  if (const Site* came = key.empty() ? site(name) : nullptr) key = came->key;
  return is_revoked(key) ? std::string() : key;
}

bool HubKeyBook::is_invited(std::string_view name, std::int64_t now) const {
  return std::ranges::any_of(invitations, [&](const Given& each) {
    return each.site == name && !each.barred && each.used < each.uses && now < each.expires;
  });
}

Expected<bool, std::string> HubKeyBook::enrol(std::string_view invitation,
                                              const EnrolRequest& request,
                                              const std::vector<std::string>& taken,
                                              std::int64_t now, const std::string& today) {
  const auto no = [](std::string why) { return Unexpected<std::string>(std::move(why)); };
  const auto given = std::ranges::find(invitations, invitation, &Given::key);
  if (given == invitations.end() || given->barred) {
    return no("this hub knows no such invitation, or its site has been revoked");
  }
  if (given->site != request.name) {
    return no(
        fmt::format("the invitation is for site '{}', not for '{}'", given->site, request.name));
  }
  if (is_revoked(request.key)) {
    return no(
        fmt::format("key {} of site '{}' has been revoked: make another one (`isthmus "
                    "keygen`) and ask for another invitation",
                    key_label(request.key), request.name));
  }
  const auto there = std::ranges::find(sites, request.name, &Site::name);
  if (there != sites.end() && there->key == request.key) return false;  // again: it is in
  if (std::ranges::find(taken, request.key) != taken.end()) {
    return no(fmt::format("key {} is another member's: every site needs its own",
                          key_label(request.key)));
  }
  if (there != sites.end() && there->invitation != invitation) {
    return no(
        fmt::format("site '{}' has come by another invitation already, with key {}: revoke "
                    "it first (`isthmus hub revoke`)",
                    request.name, key_label(there->key)));
  }
  if (given->used >= given->uses) {
    return no(
        fmt::format("the invitation of site '{}' has been used up ({} of {}): ask for "
                    "another one",
                    request.name, given->used, given->uses));
  }
  if (now >= given->expires) {
    return no(
        fmt::format("the invitation of site '{}' has expired, by the hub's clock: ask for "
                    "another one",
                    request.name));
  }
  ++given->used;
  if (there != sites.end()) sites.erase(there);  // its next key, while uses are left
  sites.push_back({.name = request.name,
                   .key = request.key,
                   .invitation = std::string(invitation),
                   .since = today});
  return true;
}

std::string HubKeyBook::revoke(const std::string& name, const std::string& in_file,
                               const std::string& today) {
  const std::string key = key_of(name, in_file);
  if (!key.empty()) revoked.push_back({.name = name, .key = key, .since = today});
  std::erase_if(sites, [&](const Site& each) { return each.name == name; });
  for (Given& each : invitations) {
    if (each.site == name) each.barred = true;
  }
  return key;
}

std::string HubKeyBook::write() const {
  JsonFieldWriter writer;
  kBook(writer, *this);
  return writer.line().str() + "\n";
}

HubKeyBook HubKeyBook::read(std::string_view text, const std::string& label) {
  const nlohmann::json json = parse_json(text, label);
  HubKeyBook book;
  try {
    const JsonFieldReader reader(json);
    kBook(reader, book);
  } catch (const std::exception& error) {
    throw SystemError(fmt::format(
        "{}: {}; bring the file back from a copy: without it revoked sites are admitted again, "
        "and invited sites are not",
        label, error.what()));
  }
  return book;
}

}  // namespace isthmus::app
