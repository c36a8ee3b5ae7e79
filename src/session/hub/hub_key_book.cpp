// SPDX-License-Identifier: Apache-2.0
// The keys that are let in, by the file and by all changes since. Pure.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/json_input.h"
#include "isthmus/errors.h"
#include "record/json_line.h"
#include "session/hub/hub_keys.h"

namespace isthmus::app {

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
  std::vector<std::string> given, came, barred;
  for (const Given& each : invitations) {
    given.push_back(JsonLine()
                        .add("key", each.key)
                        .add("site", each.site)
                        .add("expires", each.expires)
                        .add("uses", each.uses)
                        .add("used", each.used)
                        .add("barred", each.barred)
                        .str());
  }
  for (const Site& each : sites) {
    came.push_back(JsonLine()
                       .add("name", each.name)
                       .add("key", each.key)
                       .add("invitation", each.invitation)
                       .add("since", each.since)
                       .str());
  }
  for (const Revoked& each : revoked) {
    barred.push_back(
        JsonLine().add("name", each.name).add("key", each.key).add("since", each.since).str());
  }
  return JsonLine()
             .add("isthmus_hub_keys", 1)
             .add("version", version)
             .add("run", run)
             .add_raw("invitations", json_array(given))
             .add_raw("sites", json_array(came))
             .add_raw("revoked", json_array(barred))
             .str() +
         "\n";
}

HubKeyBook HubKeyBook::read(std::string_view text, const std::string& label) {
  const nlohmann::json json = parse_json(text, label);
  HubKeyBook book;
  const auto key = [](const nlohmann::json& value) {
    std::string written = value.get<std::string>();
    check_public_key(written);
    return written;
  };
  try {
    if (whole_number<int>(json.at("isthmus_hub_keys")) != 1) throw RunError("of another version");
    book.version = whole_number<std::uint64_t>(json.at("version"));
    book.run = json.at("run").get<std::string>();
    if (book.run.size() != 32 ||
        book.run.find_first_not_of("0123456789abcdef") != std::string::npos) {
      throw RunError("a run that is none");
    }
    for (const auto& each : json.at("invitations")) {
      book.invitations.push_back({.key = key(each.at("key")),
                                  .site = each.at("site").get<std::string>(),
                                  .expires = whole_number<std::int64_t>(each.at("expires")),
                                  .uses = whole_number<std::uint32_t>(each.at("uses")),
                                  .used = whole_number<std::uint32_t>(each.at("used")),
                                  .barred = each.at("barred").get<bool>()});
    }
    for (const auto& each : json.at("sites")) {
      book.sites.push_back({.name = each.at("name").get<std::string>(),
                            .key = key(each.at("key")),
                            .invitation = key(each.at("invitation")),
                            .since = each.at("since").get<std::string>()});
    }
    for (const auto& each : json.at("revoked")) {
      book.revoked.push_back({.name = each.at("name").get<std::string>(),
                              .key = key(each.at("key")),
                              .since = each.at("since").get<std::string>()});
    }
  } catch (const std::exception& error) {
    throw SystemError(fmt::format(
        "{}: {}; bring the file back from a copy: without it revoked sites are admitted again, "
        "and invited sites are not",
        label, error.what()));
  }
  return book;
}

}  // namespace isthmus::app
