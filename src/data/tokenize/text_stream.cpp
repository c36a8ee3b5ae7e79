// SPDX-License-Identifier: Apache-2.0
#include "data/tokenize/text_stream.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include "isthmus/errors.h"

namespace isthmus {
namespace {

constexpr std::size_t kReadBytes = std::size_t{1} << 18;

[[noreturn]] void refuse_format(const std::filesystem::path& path, bool unpacked,
                                const ForeignFormat& format) {
  if (unpacked) {
    throw SystemError(fmt::format("{}: unpacked it is {} and no text; unpack the file, then: {}",
                                  path.string(), format.what, format.remedy));
  }
  if (format.what.find("Parquet") != std::string::npos ||
      format.what.find("Arrow") != std::string::npos) {
    throw SystemError(fmt::format(
        "{}: is {}, which this program does not read; run python -m isthmus data tokenize with the "
        "same arguments (pip install 'isthmus[data]')",
        path.string(), format.what));
  }
  throw SystemError(
      fmt::format("{}: is {} and no text; {}", path.string(), format.what, format.remedy));
}

}  // namespace

TextStream::TextStream(const std::filesystem::path& path)
    : path_(path), file_(path, std::ios::binary), buffer_(kReadBytes) {
  if (!file_) {
    throw SystemError(fmt::format("{}: cannot be read: {}", path.string(), std::strerror(errno)));
  }
  fill();
  const Compression compression = compression_of(raw_);
  if (compression != Compression::kNone) {
    inflater_ = make_inflater(compression, path.string());
  } else {
    check_text(raw_);
  }
}

void TextStream::check_text(std::span<const std::byte> begin) const {
  if (const auto foreign = signed_format(begin))
    refuse_format(path_, inflater_ != nullptr, *foreign);
  if (const auto wide = wide_text(begin)) refuse_format(path_, inflater_ != nullptr, *wide);
}

void TextStream::fill() {
  file_.read(reinterpret_cast<char*>(buffer_.data()), static_cast<std::streamsize>(buffer_.size()));
  if (file_.bad()) {
    throw SystemError(fmt::format("{}: cannot be read behind byte {}: {}", path_.string(),
                                  bytes_read_, std::strerror(errno)));
  }
  raw_ = std::span<const std::byte>(buffer_).first(static_cast<std::size_t>(file_.gcount()));
  bytes_read_ += static_cast<std::int64_t>(raw_.size());
  digest_.update(raw_);
}

bool TextStream::read(std::string& text) {
  while (true) {
    if (raw_.empty()) fill();
    if (!inflater_) {
      text.append(reinterpret_cast<const char*>(raw_.data()), raw_.size());
      const bool some = !raw_.empty();
      raw_ = {};
      return some;
    }
    const bool over = raw_.empty();
    const std::size_t before = text.size();
    text.resize(before + kReadBytes);
    const std::size_t made =
        inflater_->inflate(raw_, std::as_writable_bytes(std::span(text).subspan(before)));
    text.resize(before + made);
    if (!unpacked_) check_text(std::as_bytes(std::span(text).subspan(before)));
    unpacked_ = true;
    if (made > 0) return true;
    if (over) {
      inflater_->finish();
      return false;
    }
  }
}

}  // namespace isthmus
