// SPDX-License-Identifier: Apache-2.0
// fp32, bf16 and fp16: each value separately, no scales. Layouts: docs/internals/codecs.md.
#pragma once

#include <memory>
#include <string>

#include "isthmus/codec.h"

namespace isthmus {

/// name: the canonical spelling. fp32 loses nothing, so it ignores both arguments: its name is
/// "fp32" and it has no error feedback.
[[nodiscard]] std::unique_ptr<const Codec> make_fp32_codec(const std::string& name,
                                                           bool error_feedback);
[[nodiscard]] std::unique_ptr<const Codec> make_bf16_codec(const std::string& name,
                                                           bool error_feedback);
[[nodiscard]] std::unique_ptr<const Codec> make_fp16_codec(const std::string& name,
                                                           bool error_feedback);

}  // namespace isthmus
