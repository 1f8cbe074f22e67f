#include "data/creation/example_directory.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <future>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>

#include "data/creation/chunk_file.h"
#include "data/creation/dataset.h"
#include "data/creation/dealer.h"
#include "data/creation/needs.h"
#include "data/creation/work_directory.h"
#include "data/creation/write_examples.h"
#include "data/examples/masking.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "data/io/io_errors.h"
#include "data/random/permutation.h"

namespace bert {
namespace {

namespace fs = std::filesystem;

constexpr auto kPatience = std::chrono::minutes(30);         // without a new file of another process
constexpr auto kLookAgain = std::chrono::milliseconds(100);  // for a file of another process
constexpr const char* kReadNote = "read";

/// The documents of a chunk, with the targets that they were dealt to.
struct Chunk {
  size_t number = 0;
  std::vector<std::string> texts;  // empty if the chunk is not made here
  std::vector<TokenizedDocument> documents;
  std::vector<uint32_t> targets;
  CorpusStatistics statistics;
};

class DirectoryCreation {
 public:
  DirectoryCreation(const DirectoryOptions& options, const Tokenizer& tokenizer)
      : options_(options), tokenizer_(tokenizer), files_(find_input_files(options.input)) {}

  DirectorySummary run() {
    plan_ = plan_dataset(options_, tokenizer_, files_);
    if (auto finished = finished_dataset(options_, plan_)) return *finished;
    try {
      return work();
    } catch (const std::runtime_error&) {
      // The last of several processes removes the work directory, in which this one may have been about to begin.
      auto finished = options_.overwrite ? std::nullopt : finished_dataset(options_, plan_);
      if (!finished) throw;
      WorkDirectory::remove(plan_.output);
      return *finished;
    }
  }

 private:
  DirectorySummary work() {
    work_.emplace(options_.output, plan_.parameters, options_.overwrite);
    if (options_.overwrite) remove_dataset(plan_);
    if (auto finished = finished_dataset(options_, plan_)) {  // meanwhile
      WorkDirectory::remove(plan_.output);
      return *finished;
    }
    check_disk();
    while (!chunks_are_there()) {
      read_text();
      wait_for_chunks();
    }
    make_files();
    return finish();
  }

  // ---- first pass ----

  [[nodiscard]] bool chunks_are_there() {
    const auto note = work_->note(kReadNote);
    if (!note) return false;
    chunks_ = static_cast<size_t>(number_in_note(*note, "chunks"));
    for (size_t chunk = 0; chunk < chunks_; ++chunk) {
      if (!fs::exists(work_->chunk(chunk))) return false;
    }
    read_ = read_statistics(*note);
    return true;
  }

  [[nodiscard]] bool is_mine(size_t number) const {
    return static_cast<int64_t>(number) % options_.world_size == options_.rank;
  }

  /// Reads the text, deals its documents, and makes the chunk files that are missing, as far as they are for this process
  /// to make.
  void read_text() {
    DocumentReader reader(options_.input, options_.reader);
    Dealer dealer(plan_.deal);
    const auto tell_read = [&] {
      tell("reading and tokenizing", static_cast<double>(read_bytes_) / 1e6,
           static_cast<double>(reader.stored_bytes()) / 1e6, "MB");
    };
    tell_read();
    size_t number = 0;
    std::future<Chunk> ahead = std::async(std::launch::async, [&] { return next_chunk(reader, dealer, 0); });
    std::future<void> writing;
    while (true) {
      Chunk chunk = ahead.get();
      if (chunk.targets.empty()) break;
      ++number;
      ahead = std::async(std::launch::async, [&, number] { return next_chunk(reader, dealer, number); });
      if (!chunk.texts.empty()) {
        tokenize(chunk);
        if (writing.valid()) writing.get();
        writing = std::async(std::launch::async, [this, made = std::move(chunk)] { write(made); });
      }
      tell_read();
    }
    if (writing.valid()) writing.get();
    if (reader.statistics().documents == 0) reader.throw_no_text();
    check_documents(dealer);
    chunks_ = number;
    read_ = reader.statistics();
    if (!work_->note(kReadNote)) work_->write_note(kReadNote, read_note(chunks_, read_, dealer.text_bytes()));
    reached(CreationStep::kTextRead);
  }

  /// Reads and deals a chunk. Its texts are kept only if this process makes it.
  Chunk next_chunk(DocumentReader& reader, Dealer& dealer, size_t number) {
    Chunk chunk{.number = number, .texts = {}, .documents = {}, .targets = {}, .statistics = {}};
    const bool wanted = is_mine(number) && !fs::exists(work_->chunk(number)) && work_->try_lock_chunk(number);
    std::vector<int64_t> sizes;
    for (std::string text; chunk.statistics.bytes < options_.chunk_bytes && reader.next(text);) {
      sizes.push_back(static_cast<int64_t>(text.size()));
      chunk.statistics.bytes += sizes.back();
      if (wanted) chunk.texts.push_back(std::move(text));
    }
    chunk.targets = dealer.deal(sizes);
    read_bytes_ = reader.statistics().stored_bytes;
    return chunk;
  }

  void tokenize(Chunk& chunk) const {
    chunk.documents.resize(chunk.texts.size());
    const bool prose = options_.reader.layout != Layout::kSentences;
    for_each_in_parallel(chunk.texts.size(), options_.num_threads, [&](size_t i) {
      chunk.documents[i] = tokenize_document(chunk.texts[i], tokenizer_, prose);
      chunk.texts[i] = {};
    });
    for (const TokenizedDocument& document : chunk.documents)
      chunk.statistics.add(statistics_of(document, tokenizer_.vocabulary().unk_id()));
  }

  void write(const Chunk& chunk) {
    write_chunk(work_->chunk(chunk.number), chunk.documents, chunk.targets, plan_.targets(),
                tokenizer_.vocabulary().size(), chunk.statistics);
    reached(CreationStep::kChunk);
    work_->unlock_chunk(chunk.number);
  }

  /// Waits for the chunks that other processes make. Returns early if one of them is free to be made here.
  void wait_for_chunks() {
    wait(
        "the text",
        [&] {
          size_t there = 0;
          for (size_t chunk = 0; chunk < chunks_; ++chunk) {
            if (fs::exists(work_->chunk(chunk))) {
              ++there;
            } else if (is_mine(chunk) && work_->try_lock_chunk(chunk)) {
              work_->unlock_chunk(chunk);
              return chunks_;
            }
          }
          return there;
        },
        chunks_);
  }

  void check_documents(const Dealer& dealer) const {
    const auto& documents = dealer.documents();
    const auto split = documents.begin() + plan_.deal.shards;
    const int64_t held = std::accumulate(split, documents.end(), int64_t{0});
    if (std::find(documents.begin(), split, 0) != split) {
      throw DataError(
          fmt::format("the text has {} documents, too few for {} files: lower --num-shards. Documents are "
                      "separated by empty lines.",
                      std::accumulate(documents.begin(), split, int64_t{0}), plan_.deal.shards));
    }
    if (plan_.deal.validation_shards > 0 && std::find(split, documents.end(), 0) != documents.end()) {
      throw DataError(
          fmt::format("{} documents are held out, too few for {} files: raise --validation-share, or leave "
                      "--validation-output out",
                      held, plan_.deal.validation_shards));
    }
  }

  // ---- second pass ----

  void make_files() {
    figures_.assign(plan_.targets(), {});
    CorpusStatistics statistics;
    for (size_t number = 0; number < chunks_; ++number) {
      const ChunkFile chunk(work_->chunk(number));
      statistics.add(chunk.statistics());
      for (size_t target = 0; target < plan_.targets(); ++target) figures_[target].add(chunk.figures(target));
    }
    statistics_ = statistics;
    const int64_t need = check_memory();
    const int64_t at_once =
        std::clamp<int64_t>(options_.memory_bytes / std::max<int64_t>(1, need), 1, options_.num_threads);
    std::vector<size_t> mine;
    for (size_t target = 0; target < plan_.targets(); ++target) {
      if (!is_mine(target)) continue;
      work_tokens_ += work_of(target).tokens;
      if (is_made(target)) {
        done_tokens_ += work_of(target).tokens;
      } else {
        mine.push_back(target);
      }
    }
    std::mutex mutex;
    std::vector<size_t> busy;
    for_each_in_parallel(mine.size(), at_once, [&](size_t i) {
      if (make_file(mine[i])) return;
      const std::lock_guard lock(mutex);
      busy.push_back(mine[i]);
    });
    for (const size_t target : busy) {
      wait(
          "another process", [&] { return is_made(target) || make_file(target) ? size_t{1} : size_t{0}; }, 1);
    }
  }

  /// Memory of the largest file in the making. Throws DataError if it is more than may be used.
  [[nodiscard]] int64_t check_memory() const {
    int64_t most = 0;
    for (size_t target = 0; target < plan_.targets(); ++target) most = std::max(most, memory_of(work_of(target)));
    if (most > options_.memory_bytes) {
      throw DataError(fmt::format(
          "a file of examples would need {} MB of memory while it is made, and {} MB are for it: "
          "give --num-shards {} or more, with --overwrite",
          most / 1000000, options_.memory_bytes / 1000000, most * plan_.deal.shards / options_.memory_bytes + 1));
    }
    return most;
  }

  [[nodiscard]] Workload work_of(size_t target) const {
    const SectionFigures& figures = figures_[target];
    return {.tokens = static_cast<double>(figures.tokens),
            .sentences = static_cast<double>(figures.sentences),
            .documents = static_cast<double>(figures.documents),
            .vocab_size = tokenizer_.vocabulary().size(),
            .examples = config_of(target)};
  }

  [[nodiscard]] const PretrainingDataConfig& config_of(size_t target) const {
    return target < plan_.deal.shards ? options_.examples : options_.validation_examples;
  }

  [[nodiscard]] bool is_made(size_t target) const { return fs::exists(plan_.paths[target]); }

  /// Returns false if another process is making the file.
  bool make_file(size_t target) {
    if (!work_->try_lock_target(target)) return false;
    if (!is_made(target)) {  // another process may have made it in the meantime
      const std::string unnamed = work_->unnamed_target(target);
      ExampleFileFigures figures = write_file(target, unnamed);
      work_->write_note(WorkDirectory::target_note(target), note_of(figures));
      reached(CreationStep::kExamplesMade);
      std::error_code error;
      fs::rename(unnamed, plan_.paths[target], error);
      if (error) throw_io_error(plan_.paths[target], "create", error.value());
      sync_path(fs::path(plan_.paths[target]).parent_path().string());
      reached(CreationStep::kFileNamed);
    }
    work_->unlock_target(target);
    return true;
  }

  ExampleFileFigures write_file(size_t target, const std::string& path) {
    const SectionFigures& all = figures_[target];
    TokenizedDocuments documents(tokenizer_.vocabulary().size());
    documents.reserve(all.tokens, all.sentences, all.documents);
    for (size_t chunk = 0; chunk < chunks_; ++chunk) ChunkFile(work_->chunk(chunk)).read(target, documents);
    const bool validation = target >= plan_.deal.shards;
    const size_t number = validation ? target - plan_.deal.shards : target;
    const double tokens = work_of(target).tokens;
    double told = 0;
    const auto progress = [&](double share) {
      constexpr double kStep = 0.01;
      if (share < 1 && share - told < kStep) return;
      const std::lock_guard lock(mutex_);
      done_tokens_ += (share - told) * tokens;
      told = share;
      const auto times = static_cast<double>(options_.examples.dupe_factor) / 1e6;
      tell_locked("making examples", done_tokens_ * times, work_tokens_ * times, "million tokens");
    };
    ExampleFileFigures figures =
        write_examples({.paths = {path},
                        .format = options_.format,
                        .named = plan_.paths[target],
                        .config = config_of(target),
                        .seed = seed_of_file(static_cast<uint64_t>(options_.examples.random_seed), validation, number),
                        .parameters = plan_.file_parameters(config_of(target), number, validation, documents.size())},
                       documents, tokenizer_, progress)
            .front();
    figures.path = plan_.paths[target];
    figures.text_bytes = plan_text_bytes(target);
    return figures;
  }

  [[nodiscard]] int64_t plan_text_bytes(size_t target) const {
    return number_in_note(*work_->note(kReadNote), fmt::format("text_bytes_{}", target));
  }

  // ---- end ----

  DirectorySummary finish() {
    work_->lock_end();
    DirectorySummary summary{.complete = true,
                             .nothing_to_do = false,
                             .statistics = statistics_,
                             .read = read_,
                             .files = {},
                             .validation_files = {}};
    if (auto finished = finished_dataset(options_, plan_)) {  // another process was faster
      finished->nothing_to_do = false;
      return *finished;
    }
    for (size_t target = 0; target < plan_.targets(); ++target) {
      if (!is_made(target)) {
        summary.complete = false;
        continue;
      }
      const auto note = work_->note(WorkDirectory::target_note(target));
      if (!note) throw DataError(plan_.paths[target] + ": was not made here; remove the file, or give --overwrite");
      ExampleFileFigures figures = figures_of(*note);
      figures.path = plan_.paths[target];
      (target < plan_.deal.shards ? summary.files : summary.validation_files).push_back(figures);
    }
    if (!summary.complete) return summary;
    reached(CreationStep::kAllNamed);
    write_dataset(options_, plan_, tokenizer_, summary);
    WorkDirectory::remove(plan_.output);
    return summary;
  }

  // ---- both ----

  /// Throws IoError if the disk has too little room for what is still to be made, estimated.
  void check_disk() const {
    const Workload work = workload_of_text(plan_.text_bytes, tokenizer_.vocabulary().size(), options_.examples);
    int64_t bytes = disk_of_chunks(work) + disk_of_examples(work, options_.format);
    for (const std::string& directory : plan_.directories()) {
      std::error_code gone;  // files that another process has renamed or removed
      for (fs::recursive_directory_iterator entry(directory, gone), end; !gone && entry != end; entry.increment(gone)) {
        std::error_code unknown;
        const auto size = entry->is_regular_file(unknown) ? entry->file_size(unknown) : 0;
        if (!unknown) bytes -= static_cast<int64_t>(size);
      }
    }
    if (bytes > 0) check_free_space(options_.output + "/", bytes, "this text, by its size and settings,");
  }

  /// Calls `count` until it returns `all`. Throws IoError if it stays the same for kPatience.
  template <class Count>
  void wait(const char* what, Count&& count, size_t all) {
    size_t before = count();
    auto changed = std::chrono::steady_clock::now();
    if (before < all && options_.say) options_.say(fmt::format("waiting for {} in {}", what, options_.output));
    while (before < all) {
      std::this_thread::sleep_for(kLookAgain);
      const size_t now = count();
      if (now != before) changed = std::chrono::steady_clock::now();
      before = now;
      if (std::chrono::steady_clock::now() - changed > kPatience) {
        throw IoError(
            fmt::format("{}: no other process has made progress for {} minutes. Run the command again: it "
                        "continues.",
                        options_.output, kPatience.count()));
      }
    }
  }

  void tell(std::string_view phase, double done, double total, std::string_view unit) {
    const std::lock_guard lock(mutex_);
    tell_locked(phase, done, total, unit);
  }
  void tell_locked(std::string_view phase, double done, double total, std::string_view unit) const {
    if (options_.progress) options_.progress(phase, done, total, unit);
  }

  void reached(CreationStep step) {
    const std::lock_guard lock(mutex_);
    if (options_.reached) options_.reached(step);
  }

  const DirectoryOptions& options_;
  const Tokenizer& tokenizer_;
  const InputFiles files_;
  DatasetPlan plan_;
  std::optional<WorkDirectory> work_;
  size_t chunks_ = 0;
  std::atomic<int64_t> read_bytes_ = 0;
  ReadStatistics read_;
  CorpusStatistics statistics_;
  std::vector<SectionFigures> figures_;  // by target
  std::mutex mutex_;                     // of the progress
  double work_tokens_ = 0, done_tokens_ = 0;
};

}  // namespace

DirectorySummary create_directory(const DirectoryOptions& options, const Tokenizer& tokenizer) {
  return DirectoryCreation(options, tokenizer).run();
}

}  // namespace bert
