#include "data/creation/example_directory.h"

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>

#include "data/creation/chunk_file.h"
#include "data/creation/dataset.h"
#include "data/creation/needs.h"
#include "data/creation/text_pass.h"
#include "data/creation/work_directory.h"
#include "data/creation/write_examples.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "data/io/io_errors.h"

namespace bert {
namespace {

namespace fs = std::filesystem;

constexpr auto kLookAgain = std::chrono::milliseconds(100);  // for a file of another process
constexpr const char* kReadNote = "read";

// Memory of the first pass in chunks: a text and its ids, with room for unusual ones; and three chunks in the making.
constexpr int64_t kOneChunk = 3, kOverlappedChunks = 6;

int64_t megabytes(int64_t bytes) { return bytes / 1'000'000; }

class DirectoryCreation {
 public:
  DirectoryCreation(const DirectoryOptions& options, const Tokenizer& tokenizer)
      : options_(options), tokenizer_(tokenizer), files_(find_input_files(options.input)) {}

  DirectorySummary run() {
    plan_ = plan_dataset(options_, tokenizer_, files_);
    if (auto finished = finished_dataset(options_, plan_)) {
      WorkDirectory::remove_abandoned(plan_.directories());
      return *finished;
    }
    check_share_of_text();
    try {
      return work();
    } catch (const MemoryExceeded& error) {  // of a file that was made alone
      throw TooMuchMemory(fmt::format("{}: give more than --memory {}; the command goes on from here", error.what(),
                                      megabytes(options_.memory_bytes)));
    } catch (const std::runtime_error&) {
      // The last of several processes removes the work directory, in which this one may have been about to begin.
      auto finished = options_.overwrite ? std::nullopt : finished_dataset(options_, plan_);
      if (!finished) throw;
      WorkDirectory::remove(plan_.directories());
      return *finished;
    }
  }

 private:
  DirectorySummary work() {
    work_.emplace(plan_.directories(), plan_.parameters, options_.overwrite,
                  [&] { remove_dataset(plan_, [&] { reached(CreationStep::kRemoved); }); });
    if (auto finished = finished_dataset(options_, plan_)) {  // meanwhile
      WorkDirectory::remove(plan_.directories());
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
    chunks_ = static_cast<size_t>(note->number("chunks"));
    for (size_t chunk = 0; chunk < chunks_; ++chunk) {
      if (!fs::exists(work_->chunk(chunk))) return false;
    }
    read_ = read_statistics(*note);
    return true;
  }

  void read_text() {
    // Where three chunks fit into memory, one is read, one is tokenized and one is written at a time.
    const TextPass pass{
        .options = options_,
        .tokenizer = tokenizer_,
        .plan = plan_,
        .work = *work_,
        .overlap = share() >= kOverlappedChunks * options_.chunk_bytes,
        .progress = [&](double done, double total) { tell("reading and tokenizing", done, total, "MB"); },
        .reached = [&](CreationStep step) { reached(step); }};
    const TextRead text = read_into_chunks(pass);
    check_documents(text.documents);
    chunks_ = text.chunks;
    read_ = text.read;
    if (!work_->note(kReadNote)) work_->write_note(kReadNote, read_note(chunks_, read_, text.text_bytes));
    reached(CreationStep::kTextRead);
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
            } else if (is_mine(options_, chunk) && work_->try_lock_chunk(chunk)) {
              work_->unlock_chunk(chunk);
              return chunks_;
            }
          }
          return there;
        },
        chunks_);
  }

  void check_documents(const std::vector<int64_t>& documents) const {
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
    count_chunks();
    malloc_trim(0);  // what the first pass has used and freed is to be there for the second
    std::vector<size_t> mine;
    for (size_t target = 0; target < plan_.targets(); ++target) {
      if (!is_mine(options_, target)) continue;
      work_tokens_ += work_of(target).tokens;
      if (is_made(target)) {
        done_tokens_ += work_of(target).tokens;
      } else {
        mine.push_back(target);
      }
    }
    const auto wanted = std::clamp<int64_t>(static_cast<int64_t>(mine.size()), 1, options_.num_threads);
    const int64_t at_once = files_at_once(wanted);
    if (at_once < wanted) {
      say(fmt::format("makes {} files at a time, as many as fit into memory: --memory above {} makes more", at_once,
                      megabytes(options_.memory_bytes)));
    }
    std::mutex mutex;
    std::vector<size_t> left;  // of other processes, or too large to be made beside others
    for_each_in_parallel(mine.size(), at_once, [&](size_t i) {
      try {
        if (make_file(mine[i], share() / at_once)) return;
      } catch (const MemoryExceeded& error) {
        if (at_once == 1) throw;
        say(fmt::format("{}, the part of one of several files; it is made alone at the end", error.what()));
      }
      const std::lock_guard lock(mutex);
      left.push_back(mine[i]);
    });
    for (const size_t target : left) {
      wait(
          "another process", [&] { return is_made(target) || make_file(target, share()) ? size_t{1} : size_t{0}; }, 1);
    }
  }

  /// Sums the figures of all chunks.
  void count_chunks() {
    figures_.assign(plan_.targets(), {});
    statistics_ = {};
    for (size_t number = 0; number < chunks_; ++number) {
      const ChunkFile chunk(work_->chunk(number));
      statistics_.add(chunk.statistics());
      chunk.add_figures(figures_);
    }
  }

  // ---- memory ----

  /// Memory of this process for chunks, or for files in the making.
  [[nodiscard]] int64_t share() const { return options_.memory_bytes / options_.processes_here - kProcessMemory; }

  /// Throws TooMuchMemory if the text, by its size, would need more than share(): before anything is read or written.
  void check_share_of_text() const {
    const int64_t of_shard = plan_.text_bytes / plan_.deal.shards;
    check_share(std::max(kOneChunk * options_.chunk_bytes,
                         memory_of(workload_of_text(of_shard, tokenizer_.vocabulary().size(), options_.examples),
                                   ExamplesIn::kScratchFile)),
                fmt::format("; or give --num-shards, more than {}", plan_.deal.shards));
  }

  /// Memory of the largest file in the making.
  [[nodiscard]] int64_t most_memory() const {
    int64_t most = 1;
    for (size_t target = 0; target < plan_.targets(); ++target)
      most = std::max(most, memory_of(work_of(target), examples_in_));
    return most;
  }

  /// The number of files that fit into memory, at most `wanted`. Where these do not fit, the examples go into files, so
  /// that more processors have work. Throws TooMuchMemory if no file fits.
  [[nodiscard]] int64_t files_at_once(int64_t wanted) {
    if (share() / most_memory() < wanted) examples_in_ = ExamplesIn::kScratchFile;
    const int64_t most = most_memory();
    check_share(most,
                fmt::format("; or remove {} and give --num-shards, more than {}", plan_.output, plan_.deal.shards));
    return std::clamp<int64_t>(share() / most, 1, wanted);
  }

  void check_share(int64_t need, const std::string& otherwise) const {
    if (need <= share()) return;
    const int64_t of_process = need + kProcessMemory, fitting = options_.memory_bytes / of_process;
    throw TooMuchMemory(fmt::format(
        "making a file of examples takes {} MB of memory, and {}: give --memory {} (the result is the same, and what "
        "was "
        "read is kept){}{}",
        megabytes(of_process) + 1,
        options_.processes_here > 1 ? fmt::format("{} processes of this machine share {} MB", options_.processes_here,
                                                  megabytes(options_.memory_bytes))
                                    : fmt::format("{} MB are allowed", megabytes(options_.memory_bytes)),
        (megabytes(of_process) + 1) * options_.processes_here,
        options_.processes_here > 1 && fitting > 0
            ? fmt::format("; or start at most {} processes on a machine, which share its processors", fitting)
            : "",
        otherwise));
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

  /// Returns false if another process is making the file. Throws MemoryExceeded if it takes more than `memory`.
  bool make_file(size_t target, int64_t memory) {
    if (!work_->try_lock_target(target)) return false;
    try {
      if (!is_made(target)) name_file(target, memory);  // another process may have made it in the meantime
    } catch (...) {
      work_->unlock_target(target);
      throw;
    }
    work_->unlock_target(target);
    return true;
  }

  void name_file(size_t target, int64_t memory) {
    const std::string unnamed = work_->unnamed(plan_.paths[target]);
    const ExampleFileFigures figures = write_file(target, unnamed, memory);
    work_->write_note(WorkDirectory::target_note(target), note_of(figures));
    reached(CreationStep::kExamplesMade);
    std::error_code error;
    fs::rename(unnamed, plan_.paths[target], error);
    if (error) throw_io_error(plan_.paths[target], "create", error.value());
    sync_path(fs::path(plan_.paths[target]).parent_path().string());
    reached(CreationStep::kFileNamed);
  }

  ExampleFileFigures write_file(size_t target, const std::string& path, int64_t memory) {
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
    const ExampleFileOptions options{
        .paths = {path},
        .format = options_.format,
        .named = plan_.paths[target],
        .config = config_of(target),
        .seed = seed_of_file(static_cast<uint64_t>(options_.examples.random_seed), validation, number),
        .parameters = plan_.file_parameters(config_of(target), number, validation, documents.size()),
        .scratch_directory = examples_in_ == ExamplesIn::kMemory ? "" : work_->scratch_directory(),
        .expected_examples = examples_of(work_of(target)),
        .memory_bytes = memory_for_examples(work_of(target), memory, examples_in_)};
    ExampleFileFigures figures;
    try {
      figures = write_examples(options, documents, tokenizer_, progress).front();
    } catch (const MemoryExceeded&) {
      const std::lock_guard lock(mutex_);
      done_tokens_ -= told * tokens;
      throw;
    }
    figures.path = plan_.paths[target];
    figures.text_bytes = plan_text_bytes(target);
    return figures;
  }

  [[nodiscard]] int64_t plan_text_bytes(size_t target) const {
    return work_->note(kReadNote)->number(fmt::format("text_bytes_{}", target));
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
    WorkDirectory::remove(plan_.directories());
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

  /// Calls `count` until it returns `all`. Throws NoProgress if it stays the same for options.patience.
  template <class Count>
  void wait(const char* what, Count&& count, size_t all) {
    size_t before = count();
    auto changed = std::chrono::steady_clock::now();
    if (before < all) say(fmt::format("waiting for {} in {}", what, options_.output));
    while (before < all) {
      std::this_thread::sleep_for(kLookAgain);
      const size_t now = count();
      if (now != before) changed = std::chrono::steady_clock::now();
      before = now;
      if (std::chrono::steady_clock::now() - changed > options_.patience) {
        throw NoProgress(fmt::format(
            "{}: other processes, to which the missing files belong, have made no progress for {} seconds. Run the "
            "command again: it continues.",
            options_.output, options_.patience.count()));
      }
    }
  }

  void say(const std::string& line) {
    const std::lock_guard lock(mutex_);
    if (options_.say) options_.say(line);
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
  ReadStatistics read_;
  CorpusStatistics statistics_;
  std::vector<SectionFigures> figures_;  // by target
  ExamplesIn examples_in_ = ExamplesIn::kMemory;
  std::mutex mutex_;  // of all that is told
  double work_tokens_ = 0, done_tokens_ = 0;
};

}  // namespace

DirectorySummary create_directory(const DirectoryOptions& options, const Tokenizer& tokenizer) {
  return DirectoryCreation(options, tokenizer).run();
}

}  // namespace bert
