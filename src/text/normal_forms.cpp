// SPDX-License-Identifier: Apache-2.0
#include "text/normal_forms.h"

#include <algorithm>

#include "text/unicode.h"

namespace isthmus {
namespace {

std::uint16_t unsafe_class(NormalForm form) {
  switch (form) {
    case NormalForm::kNfc:
      return kComposeUnsafe;
    case NormalForm::kNfd:
      return kDecomposeUnsafe;
    case NormalForm::kNfkc:
      return kCompatComposeUnsafe;
    case NormalForm::kNfkd:
      return kCompatDecomposeUnsafe;
  }
  return 0;
}

/// Marks in the order of their classes, each run of marks by itself.
void order_marks(const UnicodeTables& tables, std::u32string& points) {
  for (std::size_t begin = 0; begin < points.size();) {
    if (tables.combining_class(points[begin]) == 0) {
      ++begin;
      continue;
    }
    std::size_t end = begin;
    while (end < points.size() && tables.combining_class(points[end]) != 0) ++end;
    std::stable_sort(points.begin() + static_cast<std::ptrdiff_t>(begin),
                     points.begin() + static_cast<std::ptrdiff_t>(end),
                     [&](char32_t a, char32_t b) {
                       return tables.combining_class(a) < tables.combining_class(b);
                     });
    begin = end;
  }
}

/// Unicode's canonical composition (standard, section 3.11), in place.
void compose_points(const UnicodeTables& tables, std::u32string& points) {
  std::size_t kept = 0;
  std::size_t starter = std::u32string::npos;
  int last_class = 0;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const char32_t c = points[i];
    const int own = tables.combining_class(c);
    const bool adjacent = starter != std::u32string::npos && starter + 1 == kept;
    const bool blocked = !adjacent && (last_class == 0 || last_class >= own);
    if (starter != std::u32string::npos && !blocked) {
      if (const char32_t joined = tables.compose(points[starter], c); joined != 0) {
        points[starter] = joined;
        continue;
      }
    }
    if (own == 0) starter = kept;
    last_class = own;
    points[kept++] = c;
  }
  points.resize(kept);
}

/// The stretch [begin, end) of `text`, normalized, at the end of `out`.
void append_normalized(const UnicodeTables& tables, std::string_view stretch, NormalForm form,
                       std::string& out) {
  const bool compatible = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  std::u32string points;
  for (std::size_t at = 0; at < stretch.size();) {
    const DecodedCharacter c = decoded_at(stretch, at);
    tables.decompose(c.value, compatible, points);
    at += c.bytes;
  }
  order_marks(tables, points);
  if (form == NormalForm::kNfc || form == NormalForm::kNfkc) compose_points(tables, points);
  for (const char32_t c : points) append_utf8(out, c);
}

}  // namespace

std::string normalized(std::string_view text, NormalForm form) {
  if (is_ascii(text)) return std::string(text);
  const UnicodeTables& tables = UnicodeTables::get();
  const std::uint16_t unsafe = unsafe_class(form);
  std::string out;
  out.reserve(text.size());
  std::size_t copied = 0;    // of `text`, up to which `out` has it
  std::size_t previous = 0;  // where the character before begins: a mark may join it
  for (std::size_t at = 0; at < text.size();) {
    const DecodedCharacter c = decoded_at(text, at);
    if ((tables.classes(c.value) & unsafe) == 0) {
      previous = at;
      at += c.bytes;
      continue;
    }
    out.append(text.substr(copied, previous - copied));
    std::size_t end = at;
    while (end < text.size()) {
      const DecodedCharacter next = decoded_at(text, end);
      if ((tables.classes(next.value) & unsafe) == 0) break;
      end += next.bytes;
    }
    append_normalized(tables, text.substr(previous, end - previous), form, out);
    copied = previous = at = end;
  }
  out.append(text.substr(copied));
  return out;
}

}  // namespace isthmus
