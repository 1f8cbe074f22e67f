#include <algorithm>
#include <deque>
#include <filesystem>
#include <thread>

#include "data/examples/pretraining_data.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "data/text/sentence_splitter.h"
#include "data/text/text_input.h"
#include "data/text/unicode.h"

namespace bert {
namespace {

constexpr size_t kBlockBytes = size_t{4} << 20;  // bytes of text that the threads tokenize at a time
constexpr std::string_view kByteOrderMark = "\ufeff";

/// True if Python's line.strip() leaves nothing of a line that was decoded with errors ignored.
bool is_blank(std::string_view line) {
  while (!line.empty()) {
    const DecodedUtf8 decoded = decode_utf8(line);
    if (decoded.value != kInvalidUtf8 && !is_python_space(decoded.value)) return false;
    line.remove_prefix(static_cast<size_t>(decoded.bytes));
  }
  return true;
}

class CorpusReader {
 public:
  CorpusReader(const Tokenizer& tokenizer, int64_t num_threads)
      : tokenizer_(tokenizer), num_threads_(static_cast<size_t>(std::max<int64_t>(1, num_threads))) {}

  /// Adds a line whose text stays in memory until the next flush().
  void add_line(std::string_view line) {
    lines_.push_back(line);
    block_bytes_ += line.size() + 1;
    if (block_bytes_ >= kBlockBytes) flush();
  }

  void add_copied_line(std::string_view line) { add_line(copies_.emplace_back(line)); }

  /// Tokenizes the lines of the block, each thread a contiguous part, and appends the results in order.
  void flush() {
    std::vector<Tokenized> parts(std::min(num_threads_, std::max<size_t>(1, lines_.size())));
    {
      std::vector<std::jthread> threads;
      for (size_t i = 1; i < parts.size(); ++i) threads.emplace_back([&, i] { tokenize(i, parts); });
      tokenize(0, parts);
    }
    for (const Tokenized& part : parts) append(part);
    lines_.clear();
    copies_.clear();
    block_bytes_ = 0;
  }

  /// Invalid UTF-8 in the text flushed so far.
  [[nodiscard]] int64_t invalid_sequences() const { return corpus_.statistics.invalid_sequences; }

  Corpus finish(int64_t bytes) {
    end_document();
    corpus_.statistics.bytes = bytes;
    corpus_.statistics.documents = static_cast<int64_t>(corpus_.documents.size());
    return std::move(corpus_);
  }

 private:
  struct Tokenized {
    std::vector<int32_t> ids;
    std::vector<size_t> ends;  // end in ids of each line; kBlank for a line that ends a document
    int64_t invalid_sequences = 0;
    std::exception_ptr error;
  };
  static constexpr size_t kBlank = SIZE_MAX;

  void tokenize(size_t index, std::vector<Tokenized>& parts) const {
    Tokenized& part = parts[index];
    try {
      const size_t begin = lines_.size() * index / parts.size(), end = lines_.size() * (index + 1) / parts.size();
      for (size_t i = begin; i < end; ++i) {
        part.invalid_sequences += tokenizer_.encode(lines_[i], part.ids);
        part.ends.push_back(is_blank(lines_[i]) ? kBlank : part.ids.size());
      }
    } catch (...) {
      part.error = std::current_exception();
    }
  }

  void append(const Tokenized& part) {
    if (part.error) std::rethrow_exception(part.error);
    CorpusStatistics& statistics = corpus_.statistics;
    statistics.invalid_sequences += part.invalid_sequences;
    statistics.tokens += static_cast<int64_t>(part.ids.size());
    statistics.unknown_tokens += std::count(part.ids.begin(), part.ids.end(), tokenizer_.vocabulary().unk_id());
    size_t begin = 0;
    for (const size_t end : part.ends) {
      if (end == kBlank) {
        end_document();
      } else if (end > begin) {
        document_.ids.insert(document_.ids.end(), part.ids.begin() + static_cast<std::ptrdiff_t>(begin),
                             part.ids.begin() + static_cast<std::ptrdiff_t>(end));
        document_.sentence_ends.push_back(document_.ids.size());
        ++statistics.sentences;
        begin = end;
      }
    }
  }

  void end_document() {
    if (document_.size() == 0) return;
    document_.ids.shrink_to_fit();
    document_.sentence_ends.shrink_to_fit();
    corpus_.documents.push_back(std::move(document_));
    document_ = {};
  }

  const Tokenizer& tokenizer_;
  const size_t num_threads_;
  std::vector<std::string_view> lines_;
  std::deque<std::string> copies_;
  size_t block_bytes_ = 0;
  TokenizedDocument document_;
  Corpus corpus_;
};

}  // namespace

Corpus read_documents(const std::vector<std::string>& paths, const Tokenizer& tokenizer, const ReadOptions& options) {
  std::vector<std::unique_ptr<MappedFile>>
      files;  // all files are opened before the first is read, so a missing one is reported at once
  int64_t all_bytes = 0, done_bytes = 0;
  for (const std::string& path : paths) {
    files.push_back(std::make_unique<MappedFile>(path));
    check_is_plain_text(path, files.back()->view());
    all_bytes += files.back()->size();
  }
  CorpusReader reader(tokenizer, options.num_threads);
  for (size_t i = 0; i < files.size(); ++i) {
    const MappedFile* const file = files[i].get();
    const int64_t invalid_before = reader.invalid_sequences();
    int64_t told_bytes = 0;
    const auto tell = [&](int64_t bytes) {
      if (options.progress && bytes - told_bytes >= static_cast<int64_t>(kBlockBytes)) {
        told_bytes = bytes;
        options.progress(done_bytes + bytes, all_bytes);
      }
    };
    if (options.split_sentences) {
      int64_t bytes = 0;
      split_prose(file->view(), [&](std::string_view line) {
        reader.add_copied_line(line);
        tell(bytes += static_cast<int64_t>(line.size()) + 1);
      });
    } else {
      std::string_view rest = file->view();
      while (!rest.empty()) {
        std::string_view line = rest.substr(0, rest.find('\n'));
        rest.remove_prefix(std::min(line.size() + 1, rest.size()));
        // Python does not take a line with a mark alone for blank, so the line does not end a document. The tokenizer
        // ignores the mark.
        if (line.data() == file->data() && line.starts_with(kByteOrderMark) &&
            !is_blank(line.substr(kByteOrderMark.size()))) {
          line.remove_prefix(kByteOrderMark.size());
        }
        reader.add_line(line);
        tell(file->size() - static_cast<int64_t>(rest.size()));
      }
    }
    reader.flush();
    check_share_of_invalid(paths[i], file->view(), reader.invalid_sequences() - invalid_before);
    done_bytes += file->size();
    if (options.progress) options.progress(done_bytes, all_bytes);
  }
  Corpus corpus = reader.finish(all_bytes);
  if (corpus.documents.empty()) {
    throw_no_text({.paths = paths, .bytes = all_bytes, .invalid_sequences = corpus.statistics.invalid_sequences});
  }
  return corpus;
}

}  // namespace bert
