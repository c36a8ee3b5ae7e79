// SPDX-License-Identifier: Apache-2.0
// Checkpoints of fragments in lanes. A rank's FragmentState saves and loads its lane under the
// names of a whole fragment. These classes forward every call, so that pieces from the lanes become
// the tensors of the caller's writer, and the reader's tensors become pieces. A checkpoint is
// therefore the same for every placement. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "isthmus/state.h"

namespace isthmus::outer {

/// A writer whose tensors are lanes.
class LaneWriter final : public StateWriter {
 public:
  struct Calls {
    std::function<void(std::string_view name, std::span<const float> lane)> tensor;
    std::function<void(std::string_view name, std::int64_t value)> integer;
  };
  explicit LaneWriter(Calls calls);
  void tensor(std::string_view name, std::span<const float> values) override;
  void integer(std::string_view name, std::int64_t value) override;
  // A fragment saves none of these.
  void bytes(std::string_view name, std::span<const std::byte> values) override;
  void real(std::string_view name, double value) override;
  void text(std::string_view name, std::string_view value) override;

 private:
  Calls calls_;
};

class LaneReader final : public StateReader {
 public:
  struct Calls {
    std::function<bool(std::string_view name)> contains;
    std::function<void(std::string_view name, std::span<float> lane)> tensor;
    std::function<std::int64_t(std::string_view name)> integer;
  };
  explicit LaneReader(Calls calls);
  [[nodiscard]] bool contains(std::string_view name) const override;
  void tensor(std::string_view name, std::span<float> values) override;
  [[nodiscard]] std::int64_t integer(std::string_view name) override;
  [[nodiscard]] std::vector<std::byte> bytes(std::string_view name) override;
  [[nodiscard]] double real(std::string_view name) override;
  [[nodiscard]] std::string text(std::string_view name) override;

 private:
  Calls calls_;
};

}  // namespace isthmus::outer
