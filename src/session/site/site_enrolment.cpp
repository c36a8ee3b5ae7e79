// SPDX-License-Identifier: Apache-2.0
#include "session/site/site_enrolment.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "core/base/log.h"
#include "core/base/storage.h"
#include "core/base/system_runtime.h"
#include "core/base/units.h"
#include "isthmus/errors.h"
#include "session/run/wishes.h"
#include "session/site/invitation.h"
#include "session/site/site_links.h"
#include "transport/links/tcp/tcp_socket.h"
#include "transport/links/zmq/zmq_enrolment.h"

namespace isthmus::app {
namespace {

/// The text without its line ending; empty: there is none.
std::string text_of(const Config& config, const SiteArguments& arguments, std::string text) {
  if (text.empty()) {
    const std::filesystem::path file = config.locate(fmt::format("keys/{}.invite", arguments.name));
    const SystemStorage storage;
    if (storage.kind(file) == FileKind::kAbsent) return {};
    text = as_text(read_private_file(file));
  }
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) {
    text.pop_back();
  }
  return text;
}

Invitation read_own(const Config& config, const SiteArguments& arguments, const std::string& text) {
  const auto invitation = read_invitation(text);
  if (!invitation) {
    throw PeerError(
        fmt::format("--invite: the text {}; copy all of what `isthmus hub invite` "
                    "printed",
                    invitation.error()));
  }
  if (invitation->name != arguments.name) {
    throw PeerError(fmt::format("--invite: the invitation is for site '{}', and this is '{}'",
                                invitation->name, arguments.name));
  }
  if (invitation->hub_key != config.hub.key) {
    throw PeerError(fmt::format(
        "--invite: the invitation is of a hub with key {}, and {} has {}: it is of another run, "
        "or the file is not that of the hub",
        key_label(invitation->hub_key), config.file.string(),
        config.hub.key.empty() ? "none" : key_label(config.hub.key)));
  }
  return *invitation;
}

/// ZeroMQ would try on in silence.
void tell_unresolved(const std::string& address) {
  std::string host = host_of(address);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  const auto found = resolve_tcp(host, 0);
  if (!found) {
    log_warning("the hub cannot be reached: {}: {}; trying on", host, found.error());
  }
}

}  // namespace

void use_invitation(const Config& config, const SiteArguments& arguments, const std::string& given,
                    const Wishes& wishes) {
  const auto site = std::ranges::find(config.sites, arguments.name, &SiteConfig::name);
  if (arguments.mpi || site == config.sites.end()) return;
  const bool needed = site->key.empty();
  if (!needed && given.empty()) return;  // a file may have stayed from before
  const std::string text = text_of(config, arguments, given);
  if (text.empty()) return;
  if (!has_hub(config, arguments)) {
    throw ConfigError(
        fmt::format("--invite: {} has no [hub], and only a hub lets sites in by an "
                    "invitation",
                    config.file.string()));
  }
  if (!needed) {
    throw ConfigError(
        fmt::format("--invite: site '{}' has a key in {} and needs no invitation: leave it out",
                    arguments.name, config.file.string()));
  }
  const Invitation invitation = read_own(config, arguments, text);
  SystemRuntime runtime;
  log_info("asking the hub at {} to let site {} in", invitation.address, arguments.name);
  tell_unresolved(invitation.address);
  const EnrolOutcome outcome =
      enrol({.endpoint = "tcp://" + invitation.address,
             .hub_key = invitation.hub_key,
             .invitation = keys_of(invitation),
             .own = read_secret_key(own_key_file(config, arguments, arguments.name)),
             .name = arguments.name},
            runtime, runtime.clock().now() + config.net.gather, [&] { check_stop(wishes); });
  if (!outcome.reached) {
    throw PeerError(fmt::format(
        "--invite: the hub at {} was not reached within net.gather = {}: {}", invitation.address,
        human_time(in_seconds(config.net.gather)), outcome.answer.why));
  }
  if (!outcome.answer.welcome) {
    throw PeerError(fmt::format("--invite: the hub at {} refuses the invitation of site '{}': {}",
                                invitation.address, arguments.name, outcome.answer.why));
  }
}

}  // namespace isthmus::app
