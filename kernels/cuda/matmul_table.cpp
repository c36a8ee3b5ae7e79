// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/matmul_table.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <mutex>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "isthmus/errors.h"

namespace isthmus::cuda {
namespace {

constexpr std::string_view kFirstLine = "isthmus matmul table 1";
constexpr std::string_view kDevice = "device ", kLibrary = "cublaslt ";
constexpr std::string_view kColumns =
    "# m n k lda ldb ldc a_transposed b_transposed operands result accumulate epilogue alignment "
    "choice";
constexpr std::array<std::string_view, 4> kEpilogues = {"none", "bias", "gelu_bias",
                                                        "gelu_gradient"};
constexpr std::size_t kBestAlignment =
    16;  // of vectors; with more, equal products had unlike plans

std::uintptr_t bits_of(ConstMatrixData data) {
  return data.visit([](const auto* at) { return reinterpret_cast<std::uintptr_t>(at); });
}

/// The words of a row, one after another.
class Row {
 public:
  Row(std::string_view text, std::string where) : text_(text), where_(std::move(where)) {}

  [[nodiscard]] std::string_view word() {
    const std::size_t begin = std::min(text_.find_first_not_of(' '), text_.size());
    const std::size_t end = std::min(text_.find(' ', begin), text_.size());
    const std::string_view one = text_.substr(begin, end - begin);
    text_.remove_prefix(end);
    if (one.empty()) refuse(fmt::format("the line ends before a column of \"{}\"", kColumns));
    return one;
  }
  /// from <= the number <= to.
  [[nodiscard]] std::int64_t number(std::int64_t from, std::int64_t to) {
    const std::string_view one = word();
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(one.data(), one.data() + one.size(), value);
    const bool whole = error == std::errc() && end == one.data() + one.size();
    if (!whole || value < from || value > to) {
      refuse(fmt::format("\"{}\" is no number from {} to {}", one, from, to));
    }
    return value;
  }
  [[nodiscard]] bool flag() { return number(0, 1) == 1; }
  [[nodiscard]] bool bf16() {
    const std::string_view one = word();
    if (one != "bf16" && one != "fp32") refuse(fmt::format("\"{}\" is not bf16 or fp32", one));
    return one == "bf16";
  }
  [[nodiscard]] Epilogue epilogue() {
    const std::string_view one = word();
    for (std::size_t i = 0; i < kEpilogues.size(); ++i) {
      if (kEpilogues[i] == one) return static_cast<Epilogue>(i);
    }
    refuse(fmt::format("\"{}\" is no epilogue: {}", one, fmt::join(kEpilogues, ", ")));
  }
  void end() {
    if (text_.find_first_not_of(' ') != std::string_view::npos) {
      refuse(fmt::format("\"{}\" comes after the last column", text_));
    }
  }
  [[noreturn]] void refuse(const std::string& why) const {
    throw ConfigError(
        fmt::format("{}: {}; make the table anew with bench_cuda_matmul_table", where_, why));
  }

 private:
  std::string_view text_;
  std::string where_;
};

std::string text_of(const MatmulShape& s, int choice) {
  const auto type = [](bool bf16) { return bf16 ? "bf16" : "fp32"; };
  return fmt::format("{} {} {} {} {} {} {:d} {:d} {} {} {:d} {} {} {}\n", s.m, s.n, s.k, s.lda,
                     s.ldb, s.ldc, s.a_transposed, s.b_transposed, type(s.bf16_operands),
                     type(s.bf16_result), s.accumulate,
                     kEpilogues[static_cast<std::size_t>(s.epilogue)], s.alignment, choice);
}

std::pair<MatmulShape, int> parse_row(Row row) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  MatmulShape s;
  for (std::int64_t* const size : {&s.m, &s.n, &s.k, &s.lda, &s.ldb, &s.ldc}) {
    *size = row.number(1, kMost);
  }
  s.a_transposed = row.flag();
  s.b_transposed = row.flag();
  s.bf16_operands = row.bf16();
  s.bf16_result = row.bf16();
  s.accumulate = row.flag();
  s.epilogue = row.epilogue();
  s.alignment = static_cast<std::size_t>(row.number(1, kBestAlignment));
  const auto choice = static_cast<int>(row.number(0, kMatmulChoices - 1));
  row.end();
  return {s, choice};
}

std::mutex& table_mutex() {
  static std::mutex mutex;
  return mutex;
}
std::shared_ptr<const MatmulTable>& table_in_use() {  // under it
  static std::shared_ptr<const MatmulTable> table;
  return table;
}

}  // namespace

void use_matmul_table(std::shared_ptr<const MatmulTable> table) {
  const std::lock_guard lock(table_mutex());
  table_in_use() = std::move(table);
}

std::shared_ptr<const MatmulTable> matmul_table_in_use() {
  const std::lock_guard lock(table_mutex());
  return table_in_use();
}

MatmulShape shape_of(const Matmul& p) {
  const std::uintptr_t bits = bits_of(p.a) | bits_of(p.b) | bits_of(p.c) | bits_of(p.aux) |
                              bits_of(p.bias) | kBestAlignment;
  return {.m = p.m,
          .n = p.n,
          .k = p.k,
          .lda = p.lda,
          .ldb = p.ldb,
          .ldc = p.ldc,
          .a_transposed = p.a_transposed,
          .b_transposed = p.b_transposed,
          .bf16_operands = p.a.is_bf16(),
          .bf16_result = p.c.is_bf16(),
          .accumulate = p.accumulate,
          .epilogue = p.epilogue,
          .alignment = bits & (~bits + 1)};
}

MatmulTable::MatmulTable(std::string device, std::string library)
    : device_(std::move(device)), library_(std::move(library)) {}

MatmulTable MatmulTable::parse(std::string_view text, const std::string& name) {
  MatmulTable table("", "");
  bool begun = false;
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const Row row(line, fmt::format("{}:{}", name, number));
    if (!std::exchange(begun, true)) {
      if (line != kFirstLine) row.refuse(fmt::format("the file does not begin \"{}\"", kFirstLine));
    } else if (line.starts_with(kDevice)) {
      table.device_ = line.substr(kDevice.size());
    } else if (line.starts_with(kLibrary)) {
      table.library_ = line.substr(kLibrary.size());
    } else if (!line.empty() && !line.starts_with('#')) {
      const auto [shape, choice] = parse_row(row);
      if (!table.choices_.emplace(shape, choice).second) row.refuse("the product comes twice");
    }
  }
  if (table.device_.empty() || table.library_.empty()) {
    Row("", name).refuse("the lines \"device ...\" and \"cublaslt ...\" are missing");
  }
  return table;
}

std::string MatmulTable::device_of(const DeviceInfo& device) {
  return fmt::format("{}, compute capability {}.{}", device.name, device.compute_major,
                     device.compute_minor);
}

void MatmulTable::set(const MatmulShape& shape, int choice) {
  ISTHMUS_CHECK(choice >= 0 && choice < kMatmulChoices, choice);
  choices_[shape] = choice;
}

std::optional<int> MatmulTable::choice(const MatmulShape& shape) const {
  const auto found = choices_.find(shape);
  return found == choices_.end() ? std::nullopt : std::optional(found->second);
}

std::string MatmulTable::obstacle(const std::string& device, const std::string& library) const {
  if (device_ != device) return fmt::format("it is of {}, this is {}", device_, device);
  if (library_ != library) {
    return fmt::format("it is of cuBLASLt {}, this is {}", library_, library);
  }
  return "";
}

std::string MatmulTable::text() const {
  std::string text = fmt::format("{}\n{}{}\n{}{}\n{}\n", kFirstLine, kDevice, device_, kLibrary,
                                 library_, kColumns);
  for (const auto& [shape, choice] : choices_) text += text_of(shape, choice);
  return text;
}

}  // namespace isthmus::cuda
