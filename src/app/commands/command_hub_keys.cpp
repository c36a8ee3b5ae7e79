// SPDX-License-Identifier: Apache-2.0
// `hub invite`, `hub revoke`, `hub keys`: beside a running hub, which notices the change, or
// without one.
#include <fmt/format.h>

#include <chrono>
#include <cmath>

#include "app/commands/hub_commands.h"
#include "app/common/text_table.h"
#include "core/base/system_runtime.h"
#include "core/base/units.h"
#include "isthmus/errors.h"
#include "record/json_line.h"
#include "record/run_lock.h"
#include "record/wall_clock.h"
#include "session/hub/hub_keys.h"
#include "session/site/link_rendezvous.h"

namespace isthmus::app {
namespace {

/// The file, and the hub's files beside its log.
struct KeyFolder {
  explicit KeyFolder(const HubKeysArguments& arguments)
      : config(load_config(arguments.config, arguments.overrides, schema_context())),
        path(hub_folder(config, arguments.folder)) {
    if (config.hub.address.empty()) {
      throw ConfigError(fmt::format(
          "{} has no [hub], and only a hub lets sites in and out: add it with address and key",
          arguments.config.string()));
    }
    if (!config.hub.site.empty() && arguments.folder.empty()) {
      throw UsageError(fmt::format(
          "--hub: which folder? hub.site = \"{}\": its hub's folder lies beside that site's run "
          "folder, as OUT-hub",
          config.hub.site));
    }
    if (config.hub.key.empty()) {
      throw ConfigError(
          fmt::format("the hub of {} has no key, so every machine on the network can connect: add "
                      "key = \"...\" of "
                      "`isthmus keygen hub` to [hub]",
                      arguments.config.string()));
    }
    keys.emplace(storage, runtime, config, path);
  }
  Config config;
  std::filesystem::path path;
  SystemStorage storage;
  SystemRuntime runtime;
  std::optional<HubKeys> keys;
};

std::int64_t seconds_of(const std::string& text) {
  const auto quantity = parse_quantity(text, Dimension::kTime);
  constexpr double kLongest = 366.0 * 24 * 3600;
  if (!quantity || !quantity->unit || !(quantity->value >= 1 && quantity->value <= kLongest)) {
    throw UsageError(
        fmt::format("hub invite: --ttl {}: must be a time from 1s to 366d, as 24h", text));
  }
  return static_cast<std::int64_t>(std::llround(quantity->value));
}

struct Row {
  std::string name, key, how;
};

std::vector<Row> rows_of(const Config& config, const HubKeyBook& book, std::int64_t now) {
  std::vector<Row> rows;
  for (const SiteConfig& site : config.sites) {
    const std::string key = book.key_of(site.name, site.key);
    const HubKeyBook::Site* came = book.site(site.name);
    std::string how = "not let in: no key";
    if (!site.key.empty() && !key.empty()) {
      how = "file";
    } else if (!key.empty() && came != nullptr) {
      how = "invitation, " + came->since;
    } else if (book.is_invited(site.name, now)) {
      how = "invited";
    } else if (!site.key.empty()) {
      how = "not let in: the key in the file is revoked";
    }
    rows.push_back({site.name, key, how});
  }
  for (const HubKeyBook::Revoked& each : book.revoked) {
    rows.push_back({each.name, each.key, "revoked, " + each.since});
  }
  return rows;
}

}  // namespace

int command_hub_invite(const HubKeysArguments& arguments, Session& session) {
  if (!arguments.out.empty()) check_outside_run(arguments.out);
  KeyFolder folder(arguments);
  const std::string address =
      arguments.address.empty() ? folder.config.hub.address : arguments.address;
  static_cast<void>(parse_host_port("--address", address));
  const std::string text =
      folder.keys->invite(arguments.site, address, seconds_of(arguments.ttl), arguments.uses);
  if (!arguments.out.empty()) {
    write_private_file(arguments.out, text + "\n");
  }
  if (session.json) {
    JsonLine line;
    line.add("site", arguments.site).add("hub", folder.path.string());
    if (arguments.out.empty()) {
      line.add("invitation", text);
    } else {
      line.add("file", arguments.out.string());
    }
    session.answer(line);
    return 0;
  }
  if (arguments.out.empty()) session.out.write(text + "\n");
  if (!session.quiet) {
    session.err.write(fmt::format(
        "{} for site {}, good for {}; its holder can take the site's place, so send it over "
        "a channel that you trust\n",
        arguments.out.empty() ? "an invitation" : "wrote " + arguments.out.string(), arguments.site,
        arguments.ttl));
  }
  return 0;
}

int command_hub_revoke(const HubKeysArguments& arguments, Session& session) {
  KeyFolder folder(arguments);
  const std::string key = folder.keys->revoke(arguments.site);
  if (session.json) {
    session.answer(JsonLine().add("site", arguments.site).add("revoked", key));
  } else if (!session.quiet) {
    session.err.write(
        key.empty()
            ? fmt::format("site {} has no key that is let in; its invitations are void\n",
                          arguments.site)
            : fmt::format("key {} of site {} is barred, and its invitations are void; a hub "
                          "that runs tells the others within seconds\n",
                          key_label(key), arguments.site));
  }
  return 0;
}

int command_hub_keys(const HubKeysArguments& arguments, Session& session) {
  KeyFolder folder(arguments);
  const HubKeyBook book = folder.keys->book();
  const auto now = static_cast<std::int64_t>(std::floor(unix_now()));
  const std::vector<Row> rows = rows_of(folder.config, book, now);
  TextTable table({"site", "key", "let in"});
  for (const Row& row : rows) {
    table.add({row.name, row.key.empty() ? "-" : row.key, row.how});
  }
  const auto row_json = [](const Row& row) {
    return JsonLine().add("site", row.name).add("key", row.key).add("how", row.how);
  };
  const auto given_json = [&](const HubKeyBook::Given& each) {
    const char* state = each.barred              ? "void"
                        : each.used >= each.uses ? "used up"
                        : now >= each.expires    ? "expired"
                                                 : "open";
    return JsonLine()
        .add("site", each.site)
        .add("uses", each.uses)
        .add("used", each.used)
        .add("expires", each.expires)
        .add("state", state);
  };
  session.out.write(session.json ? JsonLine()
                                           .add("hub", folder.path.string())
                                           .add("run", book.run)
                                           .add_list("keys", rows, row_json)
                                           .add_list("invitations", book.invitations, given_json)
                                           .str() +
                                       "\n"
                                 : table.text(session.out));
  return 0;
}

}  // namespace isthmus::app
