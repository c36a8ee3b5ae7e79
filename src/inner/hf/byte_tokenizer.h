// SPDX-License-Identifier: Apache-2.0
// A tokenizer whose ids are bytes, in the files of Hugging Face `tokenizers`: byte-level BPE
// without merges. Bytes are spelt by GPT-2's map: 33-126, 161-172 and 174-255 as themselves, the
// other 68 as U+0100 upward in order.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace isthmus {

/// tokenizer.json. With `vocab` above 256, id 256 is the special token <|endoftext|>; smaller
/// models have none.
[[nodiscard]] std::string byte_tokenizer_text(std::int64_t vocab);
/// The tokenizer_config.json for it.
[[nodiscard]] std::string byte_tokenizer_config_text(std::int64_t vocab, std::int64_t positions);
/// True for a tokenizer.json in which the ids of bytes are the bytes, in any formatting: ours, and
/// a file that `tokenizers` saves from it. Other tokens may have ids from 256 on.
[[nodiscard]] bool is_byte_tokenizer(std::string_view tokenizer_json);

}  // namespace isthmus
