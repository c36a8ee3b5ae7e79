// SPDX-License-Identifier: Apache-2.0
// `hub invite`, `hub revoke` and `hub keys`, as commands.h has the others.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "app/common/commands.h"

namespace isthmus::app {

struct HubKeysArguments {
  std::filesystem::path config;
  std::vector<std::string> overrides;
  std::filesystem::path folder;  // of the hub's log; empty: as HubArguments::out
  std::string site;
  std::string ttl = "24h";
  std::uint32_t uses = 1;
  std::string address;        // invite: where the site reaches the hub; empty: hub.address
  std::filesystem::path out;  // invite: file to write; empty: stdout
};
int command_hub_invite(const HubKeysArguments& arguments, Session& session);
int command_hub_revoke(const HubKeysArguments& arguments, Session& session);
int command_hub_keys(const HubKeysArguments& arguments, Session& session);

}  // namespace isthmus::app
