// SPDX-License-Identifier: Apache-2.0
// The input as a safetensors file. Checked: no crash, no read outside, every tensor of an accepted
// file can be read, and what the writer makes of it is accepted with the same tensors.
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "core/state/safetensors.h"
#include "isthmus/errors.h"

namespace {

using namespace isthmus;

void require(bool condition) {
  if (!condition) std::abort();
}

class MemoryFile final : public WritableFile {
 public:
  void append(std::span<const std::byte> bytes) override {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  void sync() override {}
  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

void use(const Safetensors& file) {
  std::vector<TensorToWrite> tensors;
  for (const SafetensorsEntry& entry : file.entries()) {
    require(file.find(entry.name) == &entry);
    tensors.push_back({entry.name, entry.dtype, entry.shape, file.bytes(entry)});
    const bool is_float =
        entry.dtype == DType::kF32 || entry.dtype == DType::kF16 || entry.dtype == DType::kBF16;
    if (!is_float) continue;
    std::vector<float> values(static_cast<std::size_t>(entry.elements()));
    file.read_floats(entry, values);
  }
  MemoryFile again;
  write_safetensors(again, tensors);
  const Safetensors back = Safetensors::parse(again.bytes(), "written again");
  require(back.entries().size() == file.entries().size());
  for (const SafetensorsEntry& entry : file.entries()) {
    const SafetensorsEntry* found = back.find(entry.name);
    require(found != nullptr && found->dtype == entry.dtype && found->shape == entry.shape);
    require(as_text(back.bytes(*found)) == as_text(file.bytes(entry)));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    use(Safetensors::parse(std::as_bytes(std::span(data, size)), "input"));
  } catch (const SystemError&) {
    // Refused, as most inputs must be.
  }
  return 0;
}
