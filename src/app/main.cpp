// SPDX-License-Identifier: Apache-2.0
#include <csignal>
#include <string>
#include <vector>

#include "app/cli.h"

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe is an error of write(), not the end
  return isthmus::app::run_command_line(std::vector<std::string>(argv + 1, argv + argc));
}
