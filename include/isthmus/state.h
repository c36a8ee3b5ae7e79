// SPDX-License-Identifier: Apache-2.0
// The interface by which a component writes its state to a checkpoint and reads it back.
// Names are relative to the component; the checkpoint adds its prefix. Everything is exact: tensors
// and reals keep their bits. Not thread-safe; one writer or reader belongs to one worker.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace isthmus {

class StateWriter {
 public:
  virtual ~StateWriter() = default;
  /// values: (n,) float32; copied before the call returns. Each name once.
  virtual void tensor(std::string_view name, std::span<const float> values) = 0;
  /// Raw bytes (an encoded contribution in flight); copied before the call returns.
  virtual void bytes(std::string_view name, std::span<const std::byte> values) = 0;
  virtual void integer(std::string_view name, std::int64_t value) = 0;
  virtual void real(std::string_view name, double value) = 0;
  virtual void text(std::string_view name, std::string_view value) = 0;
};

/// THROWS in every call: RunError naming the checkpoint, the entry and the cause when the entry is
/// absent or has another size or type.
class StateReader {
 public:
  virtual ~StateReader() = default;
  [[nodiscard]] virtual bool contains(std::string_view name) const = 0;
  /// Fills `values`; the stored size must equal values.size().
  virtual void tensor(std::string_view name, std::span<float> values) = 0;
  [[nodiscard]] virtual std::vector<std::byte> bytes(std::string_view name) = 0;
  [[nodiscard]] virtual std::int64_t integer(std::string_view name) = 0;
  [[nodiscard]] virtual double real(std::string_view name) = 0;
  [[nodiscard]] virtual std::string text(std::string_view name) = 0;
};

}  // namespace isthmus
