// A small text that becomes a directory of examples.
#pragma once

#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "data/creation/example_directory.h"
#include "data/io/files.h"
#include "data/random/py_random.h"
#include "data/tokenizer/tokenizer.h"
#include "tests/testing.h"

namespace bert::testing {

namespace fs = std::filesystem;

inline constexpr int kWords = 50;

inline WordPieceTokenizer word_tokenizer() {
  std::vector<std::string> tokens = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  for (int i = 0; i < kWords; ++i) tokens.push_back("w" + std::to_string(i));
  return WordPieceTokenizer(Vocabulary(tokens));
}

/// 300 documents of 1 to 12 sentences of 1 to 15 words.
inline std::string some_text() {
  PyRandom random(5);
  std::string text;
  for (int document = 0; document < 300; ++document) {
    for (int64_t sentences = random.randint(1, 12); sentences > 0; --sentences) {
      for (int64_t words = random.randint(1, 15); words > 0; --words)
        text += fmt::format("w{} ", random.randint(0, kWords - 1));
      text += "\n";
    }
    text += "\n";
  }
  return text;
}

/// A text and the options of a directory that is made of it.
struct Work {
  TemporaryDirectory directory;
  WordPieceTokenizer tokenizer = word_tokenizer();
  DirectoryOptions options;
  Work() {
    std::ofstream(directory.path("text")) << some_text();
    options.input = {directory.path("text")};
    options.output = directory.path("out");
    options.num_shards = 3;
    options.chunk_bytes = 5000;  // some 15 chunks
    options.examples.max_seq_length = 32;
    options.examples.dupe_factor = 2;
    options.validation_examples = options.examples;
    options.validation_examples.dupe_factor = 1;
  }

  DirectorySummary create() { return create_directory(options, tokenizer); }

  /// Runs create() in a child process, which ends by SIGKILL at the `count`-th visit of `step`, or by itself. Returns
  /// the pid.
  pid_t start(DirectoryOptions how, int step = -1, int count = 1) {
    const pid_t pid = fork();
    if (pid != 0) return pid;
    how.reached = [&](CreationStep reached) {
      if (static_cast<int>(reached) == step && --count == 0) raise(SIGKILL);
    };
    try {
      create_directory(how, tokenizer);
    } catch (...) {
      _exit(1);
    }
    _exit(0);
  }
};

/// Name and bytes of every file in a directory.
inline std::map<std::string, std::string> contents(const std::string& directory) {
  std::map<std::string, std::string> result;
  for (const auto& entry : fs::directory_iterator(directory))
    result[entry.path().filename()] = entry.is_regular_file() ? read_file(entry.path()) : "directory";
  return result;
}

/// The same without the manifest, which names the input.
inline std::map<std::string, std::string> shards_in(const std::string& directory) {
  auto result = contents(directory);
  result.erase("dataset.json");
  return result;
}

inline int status_of(pid_t pid) {
  int status = 0;
  waitpid(pid, &status, 0);
  return status;
}

}  // namespace bert::testing
