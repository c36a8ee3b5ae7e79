// SPDX-License-Identifier: Apache-2.0
#include "data/compressed_text.h"

#include <fmt/format.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <limits>
#include <memory>

#include "core/base/check.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{1} << 18;

/// The text as it grows.
class Inflated {
 public:
  Inflated(const char* format, const std::string& label, std::int64_t most)
      : format_(format), label_(label), most_(static_cast<std::size_t>(most)) {}

  void append(std::span<const std::byte> piece) {
    if (piece.size() > most_ - text_.size()) {
      throw SystemError(fmt::format(
          "{}: {} data of more than {} bytes of text, which is what may still be inflated into "
          "memory of this source; unpack the file and name what it holds",
          label_, format_, most_));
    }
    text_.insert(text_.end(), piece.begin(), piece.end());
  }
  [[noreturn]] void damaged(const std::string& cause) const {
    throw SystemError(fmt::format(
        "{}: damaged {} data: {} (after {} bytes of text); copy or compress the file again", label_,
        format_, cause, text_.size()));
  }
  [[noreturn]] void refused(const std::string& cause) const {
    throw SystemError(fmt::format("{}: {} data: {}", label_, format_, cause));
  }
  [[nodiscard]] std::vector<std::byte> take() { return std::move(text_); }

 private:
  const char* format_;
  const std::string& label_;
  std::size_t most_;
  std::vector<std::byte> text_;
};

std::vector<std::byte> inflated_gzip(std::span<const std::byte> bytes, Inflated& text) {
  constexpr int kGzipWindow = 15 + 16;  // zlib.h: the largest window, and a gzip header
  z_stream stream{};
  ISTHMUS_CHECK(inflateInit2(&stream, kGzipWindow) == Z_OK);
  const std::unique_ptr<z_stream, int (*)(z_stream*)> owner(&stream, &inflateEnd);
  std::vector<std::byte> piece(kPieceBytes);
  int state = Z_OK;
  while (!bytes.empty() || state == Z_OK) {
    if (state == Z_STREAM_END) {  // another member; gzip pads with zeros
      if (std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0}; })) break;
      ISTHMUS_CHECK(inflateReset(&stream) == Z_OK);
    }
    const std::size_t given = std::min<std::size_t>(bytes.size(), std::numeric_limits<uInt>::max());
    // zlib's interface predates const; it does not write to its input.
    stream.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(bytes.data()));
    stream.avail_in = static_cast<uInt>(given);
    stream.next_out = reinterpret_cast<Bytef*>(piece.data());
    stream.avail_out = static_cast<uInt>(piece.size());
    state = inflate(&stream, Z_NO_FLUSH);
    if (state == Z_BUF_ERROR) text.damaged("it ends in the middle");
    if (state != Z_OK && state != Z_STREAM_END) {
      text.damaged(stream.msg != nullptr ? stream.msg : "no gzip data");
    }
    text.append(std::span(piece).first(piece.size() - stream.avail_out));
    bytes = bytes.subspan(given - stream.avail_in);
  }
  return text.take();
}

/// What was compressed in a way that cannot be undone here is not damaged.
[[noreturn]] void zstd_failed(std::size_t result, const Inflated& text) {
  switch (ZSTD_getErrorCode(result)) {
    case ZSTD_error_frameParameter_windowTooLarge:
      text.refused("its window is larger than 2 GiB; compress it without --ultra and --long");
    case ZSTD_error_dictionary_wrong:
      text.refused(
          "it needs a dictionary, which is not in it; unpack it with unzstd -D DICTIONARY");
    case ZSTD_error_memory_allocation:
      text.refused("there is no memory for its window; compress it without --long");
    default:
      text.damaged(ZSTD_getErrorName(result));
  }
}

std::vector<std::byte> inflated_zstd(std::span<const std::byte> bytes, Inflated& text) {
  const std::unique_ptr<ZSTD_DCtx, std::size_t (*)(ZSTD_DCtx*)> context(ZSTD_createDCtx(),
                                                                        &ZSTD_freeDCtx);
  ISTHMUS_CHECK(context != nullptr);
  constexpr int kLargestWindow = sizeof(void*) == 8 ? 31 : 30;  // of zstd --long=31
  ISTHMUS_CHECK(ZSTD_isError(ZSTD_DCtx_setParameter(context.get(), ZSTD_d_windowLogMax,
                                                    kLargestWindow)) == 0);
  std::vector<std::byte> piece(ZSTD_DStreamOutSize());
  ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
  for (std::size_t left = 1; in.pos < in.size || left != 0;) {
    ZSTD_outBuffer out{piece.data(), piece.size(), 0};
    const std::size_t before = in.pos;
    left = ZSTD_decompressStream(context.get(), &out, &in);
    if (ZSTD_isError(left) != 0) zstd_failed(left, text);
    text.append(std::span(piece).first(out.pos));
    if (left != 0 && out.pos == 0 && in.pos == before) text.damaged("it ends in the middle");
  }
  return text.take();
}

}  // namespace

std::vector<std::byte> inflated(std::span<const std::byte> bytes, Compression compression,
                                const std::string& label, std::int64_t most) {
  ISTHMUS_CHECK(compression != Compression::kNone);
  const bool gzip = compression == Compression::kGzip;
  Inflated text(gzip ? "gzip" : "zstd", label, most);
  return gzip ? inflated_gzip(bytes, text) : inflated_zstd(bytes, text);
}

}  // namespace isthmus
