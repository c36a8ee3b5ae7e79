// SPDX-License-Identifier: Apache-2.0
// `--links FILE` of the commands of a run, and those commands, declared like the others in
// commands.h.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "app/common/commands.h"

namespace CLI {
class App;
}

namespace isthmus::app {

/// The flag fills the returned path; the command's action keeps it.
[[nodiscard]] std::shared_ptr<std::filesystem::path> add_links_flag(CLI::App& command);

/// `links`: replaces the configuration's [[link]]s, at all sites; empty: no effect. `invitation`:
/// from a hub; empty: keys/NAME.invite next to the file, if there is one. `record`: file for
/// recorded frames; empty: none.
int command_train(const TrainArguments& arguments, const std::string& invitation,
                  const std::filesystem::path& links, const std::filesystem::path& record,
                  Session& session);
int command_hub(const HubArguments& arguments, const std::filesystem::path& links,
                Session& session);
int command_launch(const LaunchArguments& arguments, const std::filesystem::path& links,
                   Session& session);

}  // namespace isthmus::app
