// SPDX-License-Identifier: Apache-2.0
// `keygen`: a key file for each site, and the public keys for the configuration.
#include <fmt/format.h>

#include <algorithm>

#include "app/common/commands.h"
#include "core/base/storage.h"
#include "record/json_line.h"
#include "record/run_lock.h"
#include "transport/links/link_keys.h"
#include "transport/links/link_message.h"

namespace isthmus::app {
namespace {

void check_names(const std::vector<std::string>& names) {
  for (auto name = names.begin(); name != names.end(); ++name) {
    const bool fits = !name->empty() && name->size() <= kMaxMemberName &&
                      name->find_first_not_of(
                          "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") ==
                          std::string::npos &&
                      name->front() != '.' && name->front() != '-';
    if (!fits) {
      throw UsageError(fmt::format(
          "keygen: '{}' cannot be the name of a site with a key file; use 1 to {} letters, digits, "
          "dots, dashes and underscores, with a letter, digit or underscore first",
          *name, kMaxMemberName));
    }
    if (std::find(names.begin(), name, *name) != name) {
      throw UsageError(
          fmt::format("keygen: '{}' is named twice; every site needs its own key and "
                      "name",
                      *name));
    }
  }
}

}  // namespace

int command_keygen(const KeygenArguments& arguments, Session& session) {
  check_names(arguments.names);
  const SystemStorage storage;
  std::vector<std::filesystem::path> files;
  for (const std::string& name : arguments.names) {  // all or none
    files.push_back(arguments.out / (name + ".key"));
    if (storage.kind(files.back()) != FileKind::kAbsent) {
      throw SystemError(fmt::format(
          "{}: there is a key already (its public half is in the file); name another folder with "
          "--out, or remove it if no run needs it any more",
          files.back().string()));
    }
  }
  check_outside_run(files.front());
  create_private_directory(arguments.out);
  std::vector<std::string> objects;
  std::string text, list;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const LinkKeys keys = make_link_keys();
    write_secret_key(files[i], keys);
    text += fmt::format("{}[[site]]\nname = \"{}\"\nkey = \"{}\"\n", i == 0 ? "" : "\n",
                        arguments.names[i], keys.public_key);
    list += fmt::format("{}{}", i == 0 ? "" : ", ", files[i].string());
    objects.push_back(JsonLine()
                          .add("name", arguments.names[i])
                          .add("key", keys.public_key)
                          .add("file", files[i].string())
                          .str());
  }
  if (session.json) {
    session.answer(
        JsonLine().add("folder", arguments.out.string()).add_raw("sites", json_array(objects)));
    return 0;
  }
  session.out.write(text);
  if (!session.quiet) {
    session.err.write(fmt::format(
        "wrote {}: secret, each for its site alone; the lines above go into the configuration of "
        "all sites\n",
        list));
  }
  return 0;
}

}  // namespace isthmus::app
