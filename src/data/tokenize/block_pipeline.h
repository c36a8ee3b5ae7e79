// SPDX-License-Identifier: Apache-2.0
// Files of documents, read ahead block by block, encoded by several tasks, and returned in order.
// At most two blocks per task are held, so memory does not grow with the files.
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/tokenize/document_blocks.h"
#include "data/tokenize/document_encoder.h"
#include "isthmus/runtime.h"

namespace isthmus {

/// A block's ids, and at the end of a file its digest.
struct FinishedBlock {
  EncodedBlock encoded;
  std::int64_t bytes_read = 0;  // approximate bytes of the (compressed) file read so far
  bool last = false;            // of its file
  std::string sha256 = {};      // of its file, with `last`
};

class BlockPipeline {
 public:
  struct Options {
    std::vector<std::filesystem::path> files;
    DocumentOptions documents;
    int jobs = 1;  // tasks that encode; 1: the caller's task encodes
  };
  /// Borrows `runtime` and `tokenizer`.
  BlockPipeline(Runtime& runtime, const Tokenizer& tokenizer, Options options);
  ~BlockPipeline();
  BlockPipeline(const BlockPipeline&) = delete;
  BlockPipeline& operator=(const BlockPipeline&) = delete;

  /// The next block of all files. Blocks. REQUIRES: the last block of the last file was not
  /// returned yet. THROWS: SystemError of the file or line, in the order of the blocks.
  [[nodiscard]] FinishedBlock next();

 private:
  struct Entry {
    DocumentBlock block;
    bool lines = false;
    std::string label;
    FinishedBlock finished;
    std::exception_ptr error;
    bool done = false;
  };

  void read_ahead();
  [[nodiscard]] std::unique_ptr<Entry> read_entry();
  static void encode(DocumentEncoder& encoder, Entry& entry);
  void run_task();

  Runtime& runtime_;
  const Tokenizer& tokenizer_;
  const Options options_;
  std::unique_ptr<DocumentBlocks> reading_;
  std::size_t file_ = 0;  // index of the file being read, or next to be read
  std::deque<std::unique_ptr<Entry>> pending_;
  std::unique_ptr<WaitQueue> queue_;
  std::deque<Entry*> waiting_;  // blocks to be encoded; under queue_
  bool stop_ = false;           // under queue_
  std::unique_ptr<DocumentEncoder> own_;
  std::vector<std::unique_ptr<Task>> tasks_;
};

}  // namespace isthmus
