// SPDX-License-Identifier: Apache-2.0
#include "app/train/matmul_choices.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "app/common/child_process.h"
#include "core/base/hash.h"
#include "core/base/log.h"
#include "core/base/storage.h"
#include "inner/cuda/device_product.h"
#include "kernels/cuda/matmul_table.h"

namespace isthmus::app {

std::string use_matmul_choices(const std::filesystem::path& path,
                               const std::vector<cuda::DeviceInfo>& devices) {
  cuda::use_matmul_table(nullptr);
  const SystemStorage storage;
  if (storage.kind(path) == FileKind::kAbsent) return "";
  const std::string text = read_text(storage, path);
  auto table = std::make_shared<cuda::MatmulTable>(cuda::MatmulTable::parse(text, path.string()));
  for (const cuda::DeviceInfo& device : devices) {
    const std::string why =
        table->obstacle(cuda::MatmulTable::device_of(device), device_products_version());
    if (!why.empty()) return fmt::format("{} is not used: {}", path.string(), why);
  }
  table->set_source(fmt::format("{} ({} products, xxh3 {})", path.filename().string(),
                                table->size(), xxh3_128(as_bytes(text)).hex()));
  cuda::use_matmul_table(std::move(table));
  return "";
}

void use_matmul_choices(const std::vector<cuda::DeviceInfo>& devices) {
  const std::filesystem::path program = own_program();
  const std::string why_not = use_matmul_choices(program.parent_path() / kMatmulTable, devices);
  if (!why_not.empty()) log_warning("{}", why_not);
}

}  // namespace isthmus::app
