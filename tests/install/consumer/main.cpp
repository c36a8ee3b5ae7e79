// SPDX-License-Identifier: Apache-2.0
// Touches every public header and a function of each installed library.
#include <isthmus/codec.h>
#include <isthmus/config.h>
#include <isthmus/errors.h>
#include <isthmus/inner_loop.h>
#include <isthmus/outer.h>
#include <isthmus/runtime.h>
#include <isthmus/session.h>
#include <isthmus/state.h>
#include <isthmus/transport.h>

#include <cstdio>
#include <vector>

int main() {
  const std::vector<float> x = {1.0f, -0.5f, 0.25f};
  std::vector<float> y(x.size());
  const auto codec = isthmus::make_codec("bf16");
  const bool decoded = isthmus::decode(*codec, isthmus::encode(*codec, x).bytes, y).has_value();
  bool refused = false;
  try {
    (void)isthmus::load_config("no such file.toml");
  } catch (const isthmus::Error&) {
    refused = true;
  }
  isthmus::Wishes wishes;
  bool no_trainer = false;
  try {
    (void)isthmus::run_session({}, {}, {}, {}, wishes);
  } catch (const isthmus::ConfigError&) {
    no_trainer = true;
  }
  const std::size_t methods = isthmus::methods().size();
  std::printf("%zu methods, codec %s\n", methods, codec->name().c_str());
  return decoded && y == x && refused && no_trainer && methods > 0 ? 0 : 1;
}
