// SPDX-License-Identifier: Apache-2.0
// A component's state on its way to and from a checkpoint: tensors and bytes go into a safetensors
// file (float32 and u8 vectors), scalars into JSON. Exact: reals keep their bits, NaNs included.
// One thread.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/json_input.h"
#include "core/state/safetensors.h"
#include "core/state/state_memory.h"
#include "isthmus/state.h"

namespace isthmus {

/// The values given to a StateWriter, held in memory until they are written.
class StateSnapshot final : public StateWriter {
 public:
  /// borrows_files: tensors that lie in files (core/state/state_memory.h) are borrowed, not copied.
  explicit StateSnapshot(bool borrows_files = false) : borrows_files_(borrows_files) {}
  /// REQUIRES (all): a name not used before in this snapshot.
  void tensor(std::string_view name, std::span<const float> values) override;
  /// Like `tensor`, without a copy: `values` must not change until the snapshot is written.
  void borrow(std::string_view name, std::span<const float> values);
  /// The values of a tensor.
  [[nodiscard]] std::span<const float> view(std::string_view name) const;
  void bytes(std::string_view name, std::span<const std::byte> values) override;
  void integer(std::string_view name, std::int64_t value) override;
  void real(std::string_view name, double value) override;
  /// THROWS: RunError when `value` is not UTF-8.
  void text(std::string_view name, std::string_view value) override;

  /// Views of the tensors and bytes; valid for the snapshot's life.
  [[nodiscard]] std::vector<TensorToWrite> tensors() const;
  /// {"integers":{},"reals":{},"texts":{}}
  [[nodiscard]] nlohmann::json scalars() const;

 private:
  struct Tensor {
    StateArray owned;  // empty if the values are borrowed
    std::span<const float> values;
  };
  void claim(std::string_view name);
  bool borrows_files_;
  std::map<std::string, Tensor, std::less<>> tensors_;
  std::map<std::string, std::vector<std::byte>, std::less<>> bytes_;
  std::map<std::string, std::int64_t, std::less<>> integers_;
  std::map<std::string, double, std::less<>> reals_;
  std::map<std::string, std::string, std::less<>> texts_;
};

/// Reads a snapshot. Owns the tensors' file. THROWS: RunError when `scalars` does not have the form
/// above.
[[nodiscard]] std::unique_ptr<StateReader> make_state_reader(Safetensors tensors,
                                                             const nlohmann::json& scalars);

/// Puts `prefix` before every name: "outer/" + "momentum". Borrows the writer or reader.
class PrefixedStateWriter final : public StateWriter {
 public:
  PrefixedStateWriter(StateWriter& to, std::string prefix) : to_(to), prefix_(std::move(prefix)) {}
  void tensor(std::string_view name, std::span<const float> values) override;
  void bytes(std::string_view name, std::span<const std::byte> values) override;
  void integer(std::string_view name, std::int64_t value) override;
  void real(std::string_view name, double value) override;
  void text(std::string_view name, std::string_view value) override;

 private:
  StateWriter& to_;
  std::string prefix_;
};

class PrefixedStateReader final : public StateReader {
 public:
  PrefixedStateReader(StateReader& from, std::string prefix)
      : from_(from), prefix_(std::move(prefix)) {}
  [[nodiscard]] bool contains(std::string_view name) const override;
  void tensor(std::string_view name, std::span<float> values) override;
  [[nodiscard]] std::vector<std::byte> bytes(std::string_view name) override;
  [[nodiscard]] std::int64_t integer(std::string_view name) override;
  [[nodiscard]] double real(std::string_view name) override;
  [[nodiscard]] std::string text(std::string_view name) override;

 private:
  StateReader& from_;
  std::string prefix_;
};

}  // namespace isthmus
