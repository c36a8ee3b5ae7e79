// SPDX-License-Identifier: Apache-2.0
// `--links FILE` of the commands of a run, and those commands, as commands.h has the others.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "app/common/commands.h"

namespace CLI {
class App;
}

namespace isthmus::app {

/// The flag fills what is returned; the command's action keeps it.
[[nodiscard]] std::shared_ptr<std::filesystem::path> add_links_flag(CLI::App& command);

/// `links`: goes in the place of the configuration's [[link]]s, at all sites; empty: those.
/// `invitation`: of a hub; empty: keys/NAME.invite beside the file, if it is there. `record`: file
/// that frames are written down in; empty: none.
int command_train(const TrainArguments& arguments, const std::string& invitation,
                  const std::filesystem::path& links, const std::filesystem::path& record,
                  Session& session);
int command_hub(const HubArguments& arguments, const std::filesystem::path& links,
                Session& session);
int command_launch(const LaunchArguments& arguments, const std::filesystem::path& links,
                   Session& session);

}  // namespace isthmus::app
