// SPDX-License-Identifier: Apache-2.0
// Byte-level BPEs in the files of Hugging Face `tokenizers`: one that was learnt, and the one
// whose ids are bytes, which has no merges. Bytes are spelt by GPT-2's map (text/byte_alphabet.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/bpe_trainer.h"

namespace isthmus {

/// tokenizer.json of what was learnt; all of `special` are its special tokens.
[[nodiscard]] std::string tokenizer_json_of(const TrainedBpe& trained, WordPattern pattern,
                                            const std::vector<std::string>& special);

/// tokenizer.json of the bytes. With `vocab` above 256, id 256 is the special token <|endoftext|>;
/// smaller models have none.
[[nodiscard]] std::string byte_tokenizer_text(std::int64_t vocab);
/// The tokenizer_config.json for it.
[[nodiscard]] std::string byte_tokenizer_config_text(std::int64_t vocab, std::int64_t positions);
/// True for a tokenizer.json in which the ids of bytes are the bytes, in any formatting: ours, and
/// a file that `tokenizers` saves from it. Other tokens may have ids from 256 on.
[[nodiscard]] bool is_byte_tokenizer(std::string_view tokenizer_json);

}  // namespace isthmus
