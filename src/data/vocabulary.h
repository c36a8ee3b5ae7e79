// SPDX-License-Identifier: Apache-2.0
// How many ids a model has, and how an error names that number: a configuration sets it by a key,
// a model's folder by its config.json, which no key can change. Plain value.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>

namespace isthmus {

struct Vocabulary {
  /// of: the folder of the model that has so many ids; empty: model.vocab says how many.
  Vocabulary(std::int64_t count, std::string of = {})  // NOLINT(google-explicit-constructor)
      : ids(count), folder(std::move(of)) {}

  /// The file that says so. REQUIRES: a folder.
  [[nodiscard]] std::string file() const {
    return (std::filesystem::path(folder) / "config.json").string();
  }

  std::int64_t ids = 0;
  std::string folder;
};

}  // namespace isthmus
