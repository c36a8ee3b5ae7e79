// SPDX-License-Identifier: Apache-2.0
// The commands below `plan` that ask about links: their flags and what they do.
#pragma once

#include "app/flags/cli_parser.h"

namespace isthmus::app {

void add_plan_sync_command(CLI::App& plan, Parsed& parsed);
void add_plan_choose_command(CLI::App& plan, Parsed& parsed);

}  // namespace isthmus::app
