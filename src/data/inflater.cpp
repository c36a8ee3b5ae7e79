// SPDX-License-Identifier: Apache-2.0
#include "data/inflater.h"

#include <fmt/format.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <limits>

#include "core/base/check.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {

/// The parts of an error's text: the source, its format, and the position of the reader.
class InflatedText {
 public:
  InflatedText(const char* format, std::string label) : format_(format), label_(std::move(label)) {}

  void count(std::size_t bytes) { bytes_ += bytes; }
  [[noreturn]] void damaged(const std::string& cause) const {
    throw SystemError(fmt::format(
        "{}: damaged {} data: {} (after {} bytes of text); copy or compress the file again", label_,
        format_, cause, bytes_));
  }
  [[noreturn]] void refused(const std::string& cause) const {
    throw SystemError(fmt::format("{}: {} data: {}", label_, format_, cause));
  }

 private:
  const char* format_;
  std::string label_;
  std::size_t bytes_ = 0;
};

class GzipInflater final : public Inflater {
 public:
  explicit GzipInflater(const std::string& label) : text_("gzip", label) {
    constexpr int kGzipWindow = 15 + 16;  // zlib.h: the largest window, and a gzip header
    ISTHMUS_CHECK(inflateInit2(&stream_, kGzipWindow) == Z_OK);
  }
  ~GzipInflater() override { inflateEnd(&stream_); }
  GzipInflater(const GzipInflater&) = delete;
  GzipInflater& operator=(const GzipInflater&) = delete;

  std::size_t inflate(std::span<const std::byte>& in, std::span<std::byte> out) override {
    // zlib's counts are narrower than sizes of memory.
    out = out.first(std::min<std::size_t>(out.size(), std::numeric_limits<uInt>::max()));
    while (true) {
      if (state_ == Z_STREAM_END && !begin_member(in)) return 0;
      const std::size_t given = std::min<std::size_t>(in.size(), std::numeric_limits<uInt>::max());
      // zlib's interface predates const; it does not write to its input.
      stream_.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(in.data()));
      stream_.avail_in = static_cast<uInt>(given);
      stream_.next_out = reinterpret_cast<Bytef*>(out.data());
      stream_.avail_out = static_cast<uInt>(out.size());
      const int state = ::inflate(&stream_, Z_NO_FLUSH);
      in = in.subspan(given - stream_.avail_in);
      if (state == Z_BUF_ERROR) return 0;  // it wants more
      if (state != Z_OK && state != Z_STREAM_END) {
        text_.damaged(stream_.msg != nullptr ? stream_.msg : "no gzip data");
      }
      state_ = state;
      const std::size_t made = out.size() - stream_.avail_out;
      text_.count(made);
      if (made > 0) return made;
      if (in.empty() && state != Z_STREAM_END) return 0;
    }
  }
  void finish() const override {
    if (state_ != Z_STREAM_END) text_.damaged("it ends in the middle");
  }

 private:
  /// Between members: gzip pads the last one with zeros. RETURNS: whether another one begins.
  bool begin_member(std::span<const std::byte>& in) {
    while (!in.empty() && in.front() == std::byte{0}) {
      padded_ = true;
      in = in.subspan(1);
    }
    if (in.empty()) return false;
    if (padded_) text_.damaged("incorrect header check");
    ISTHMUS_CHECK(inflateReset(&stream_) == Z_OK);
    state_ = Z_OK;
    return true;
  }

  InflatedText text_;
  z_stream stream_{};
  int state_ = Z_OK;
  bool padded_ = false;
};

/// Data in a compression that is not supported here are not damaged.
[[noreturn]] void zstd_failed(std::size_t result, const InflatedText& text) {
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

class ZstdInflater final : public Inflater {
 public:
  explicit ZstdInflater(const std::string& label)
      : text_("zstd", label), context_(ZSTD_createDCtx(), &ZSTD_freeDCtx) {
    ISTHMUS_CHECK(context_ != nullptr);
    constexpr int kLargestWindow = sizeof(void*) == 8 ? 31 : 30;  // of zstd --long=31
    ISTHMUS_CHECK(ZSTD_isError(ZSTD_DCtx_setParameter(context_.get(), ZSTD_d_windowLogMax,
                                                      kLargestWindow)) == 0);
  }

  std::size_t inflate(std::span<const std::byte>& in, std::span<std::byte> out) override {
    while (true) {
      if (in.empty() && left_ == 0) return 0;
      ZSTD_inBuffer from{in.data(), in.size(), 0};
      ZSTD_outBuffer to{out.data(), out.size(), 0};
      left_ = ZSTD_decompressStream(context_.get(), &to, &from);
      if (ZSTD_isError(left_) != 0) zstd_failed(left_, text_);
      in = in.subspan(from.pos);
      text_.count(to.pos);
      if (to.pos > 0 || (in.empty() && from.pos == 0)) return to.pos;
    }
  }
  void finish() const override {
    if (left_ != 0) text_.damaged("it ends in the middle");
  }

 private:
  InflatedText text_;
  std::unique_ptr<ZSTD_DCtx, std::size_t (*)(ZSTD_DCtx*)> context_;
  std::size_t left_ = 1;  // 0: a frame ended
};

}  // namespace

std::unique_ptr<Inflater> make_inflater(Compression compression, const std::string& label) {
  ISTHMUS_CHECK(compression != Compression::kNone);
  if (compression == Compression::kGzip) return std::make_unique<GzipInflater>(label);
  return std::make_unique<ZstdInflater>(label);
}

}  // namespace isthmus
