// SPDX-License-Identifier: Apache-2.0
// How fast one core encodes the documents of a .jsonl with a tokenizer.json, from memory. One JSON
// line a repetition, in wall-clock and processor seconds; bench/text/compare_with_tokenizers.py
// sets it beside PyPI `tokenizers`.
//   bench_tokenizer TOKENIZER DOCUMENTS.jsonl [repetitions]
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <sstream>
#include <string>
#include <vector>

#include "core/base/storage.h"
#include "data/tokenize/document_encoder.h"
#include "isthmus/errors.h"
#include "text/tokenizer.h"

namespace isthmus {
namespace {

std::vector<std::string> documents_of(const std::string& path) {
  std::vector<std::string> documents;
  std::istringstream lines(read_text(SystemStorage(), path));
  for (std::string line; std::getline(lines, line);) {
    documents.push_back(text_of_line(line, "text"));
  }
  return documents;
}

void measure(const std::string& tokenizer_path, const std::string& documents_path,
             int repetitions) {
  const Tokenizer tokenizer = Tokenizer::open(SystemStorage(), tokenizer_path);
  const std::vector<std::string> documents = documents_of(documents_path);
  std::size_t bytes = 0;
  for (const std::string& document : documents) bytes += document.size();
  for (int i = 0; i < repetitions; ++i) {
    TextEncoder encoder(tokenizer);  // its cache begins empty
    std::vector<std::uint32_t> ids;
    std::size_t tokens = 0;
    const auto begin = std::chrono::steady_clock::now();
    const std::clock_t processor = std::clock();
    for (const std::string& document : documents) {
      ids.clear();
      encoder.encode(document, {}, ids);
      tokens += ids.size();
    }
    const double cpu = static_cast<double>(std::clock() - processor) / CLOCKS_PER_SEC;
    const double wall =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    fmt::print(
        "{{\"bytes\":{},\"documents\":{},\"tokens\":{},\"wall_s\":{:.6f},\"cpu_s\":{:.6f}}}\n",
        bytes, documents.size(), tokens, wall, cpu);
  }
}

}  // namespace
}  // namespace isthmus

int main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr, "bench_tokenizer TOKENIZER DOCUMENTS.jsonl [repetitions]\n");
    return 2;
  }
  try {
    isthmus::measure(argv[1], argv[2], argc > 3 ? std::atoi(argv[3]) : 1);
  } catch (const isthmus::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
