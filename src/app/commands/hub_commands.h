// SPDX-License-Identifier: Apache-2.0
// `hub invite`, `hub revoke` and `hub keys`, declared like the commands in commands.h.
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
  std::filesystem::path folder;  // of the hub's log; empty: as in HubArguments::out
  std::string site;
  std::string ttl = "24h";
  std::uint32_t uses = 1;
  std::string address;        // invite: the hub's address for the site; empty: hub.address
  std::filesystem::path out;  // invite: file to write; empty: stdout
};
int command_hub_invite(const HubKeysArguments& arguments, Session& session);
int command_hub_revoke(const HubKeysArguments& arguments, Session& session);
int command_hub_keys(const HubKeysArguments& arguments, Session& session);

}  // namespace isthmus::app
