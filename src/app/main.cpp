// SPDX-License-Identifier: Apache-2.0
#include <csignal>
#include <string>
#include <vector>

#include "app/flags/cli.h"
#include "core/base/freed_memory.h"
#include "core/base/mapped_files.h"
#include "core/base/open_files.h"

int main(int argc, char** argv) {
  isthmus::keep_freed_memory();
  isthmus::allow_many_open_files();
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe is an error of write(), not the end
  std::signal(SIGXFSZ, SIG_IGN);  // and so is a file beyond the limit (ulimit -f)
  isthmus::end_with_words_at_shortened_files();
  return isthmus::app::run_command_line(std::vector<std::string>(argv + 1, argv + argc));
}
