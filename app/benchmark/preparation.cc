#include "app/benchmark/preparation.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <stdexcept>

#include "app/benchmark/made_up_text.h"
#include "app/interop/open_tokenizer.h"
#include "app/parse/bounded_json.h"
#include "app/system/environment.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "data/io/error.h"
#include "data/io/files.h"

namespace bert {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kTextBytes = 16 << 20, kDumpBytes = 32 << 20;  // of what is made up
constexpr int kFewCopies = 2, kManyCopies = 7;                   // the dupe factors that are compared
constexpr int kRepetitions = 3;                                  // of short runs; the fastest counts
constexpr double kShortRun = 2;                                  // seconds

class TemporaryFiles {
 public:
  TemporaryFiles() : directory_(temporary_directory() + "/bert-benchmark-XXXXXX") {
    if (mkdtemp(directory_.data()) == nullptr)
      throw IoError(fmt::format("{}: cannot be made: {}; TMPDIR names a directory that can be written to", directory_,
                                std::strerror(errno)));
  }
  ~TemporaryFiles() {
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }
  TemporaryFiles(const TemporaryFiles&) = delete;
  TemporaryFiles& operator=(const TemporaryFiles&) = delete;
  [[nodiscard]] std::string path(const char* name) const { return directory_ + "/" + name; }

 private:
  std::string directory_;
};

[[noreturn]] void throw_failure(int status, const std::string& verb, const std::string& errors) {
  const std::string message = errors.empty() ? fmt::format("bert {} failed with status {}", verb, status) : errors;
  if (WIFEXITED(status) && WEXITSTATUS(status) == kBadData) throw DataError(message);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kInputMissing) throw InputMissing(message);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kIo) throw IoError(message);
  throw std::runtime_error(message);
}

/// The last line of a file; "" if there is none.
std::string last_line(const std::string& path) {
  std::string text = read_file(path);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

struct Streams {
  std::string input = "/dev/null", output = "/dev/null";
};

/// Runs this program with `arguments`. Returns the seconds that processors spent on it.
double processor_seconds(std::vector<std::string> arguments, const Streams& streams, const TemporaryFiles& files) {
  const std::string errors = files.path("errors"), verb = arguments.front();
  arguments.insert(arguments.begin(), "bert");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  constexpr int kWritten = O_WRONLY | O_CREAT | O_TRUNC, kMode = 0600;
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, streams.input.c_str(), O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, streams.output.c_str(), kWritten, kMode);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, errors.c_str(), kWritten, kMode);
  pid_t child = 0;
  const int failure = posix_spawn(&child, "/proc/self/exe", &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failure != 0) throw IoError(fmt::format("bert {} cannot be started: {}", verb, std::strerror(failure)));
  int status = 0;
  rusage usage{};
  while (wait4(child, &status, 0, &usage) < 0 && errno == EINTR) {
  }
  if (status != 0) throw_failure(status, verb, last_line(errors));
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// The seconds of one run, or of the fastest of several short ones.
double fastest(const std::function<double()>& run) {
  double seconds = run();
  for (int i = 1; i < kRepetitions && seconds < kShortRun; ++i) seconds = std::min(seconds, run());
  return seconds;
}

double megabytes(int64_t bytes) { return 1e-6 * static_cast<double>(bytes); }

int64_t size_of(const std::string& path) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  if (error) throw InputMissing(path + ": " + error.message());
  return static_cast<int64_t>(size);
}

/// The text that is prepared, and its vocabulary.
struct Text {
  std::vector<std::string> files;
  std::string whole;  // all of them in one file, so that a program starts once
  std::string vocab;
  int64_t bytes = 0;
};

Text find_text(const PreparationOptions& options, const TemporaryFiles& files) {
  Text text{.files = options.input, .whole = files.path("whole"), .vocab = options.vocab};
  if (text.files.empty()) {
    MadeUpText made_up(1);
    text.files = {files.path("text")};
    AtomicFile file(text.files.front());
    while (file.size() < kTextBytes) file.write(made_up.document() + "\n\n");
    file.commit();
    if (text.vocab.empty()) {
      text.vocab = files.path("vocab.txt");
      AtomicFile vocabulary(text.vocab);
      for (const std::string& token : MadeUpText::vocabulary()) vocabulary.write(token + "\n");
      vocabulary.commit();
    }
  }
  if (text.vocab.empty()) throw UsageError("benchmark data: --input needs --vocab");
  AtomicFile whole(text.whole);
  for (const std::string& file : text.files) whole.write(read_file(file) + "\n");
  text.bytes = whole.size();
  whole.commit();
  return text;
}

Json time_wordpiece(const Text& text, const TemporaryFiles& files) {
  const double seconds = fastest([&] {
    return processor_seconds({"tokenize", "--vocab", text.vocab}, {.input = text.whole}, files);
  });
  return {{"megabytes_per_second_per_core", megabytes(text.bytes) / seconds}};
}

Json time_extraction(const std::string& given, const TemporaryFiles& files) {
  const std::string dump = given.empty() ? files.path("dump.xml") : given, summary = files.path("extract.json");
  if (given.empty()) {
    MadeUpText made_up(2);
    AtomicFile file(dump);
    file.write(MadeUpText::dump_begin());
    while (file.size() < kDumpBytes) file.write(made_up.dump_page());
    file.write(MadeUpText::dump_end());
    file.commit();
  }
  const std::string extracted = files.path("extracted");
  const double seconds = fastest([&] {
    std::filesystem::remove_all(extracted);
    return processor_seconds({"data", "extract", "wikipedia", dump, "--output", extracted}, {.output = summary}, files);
  });
  const nlohmann::json report = parse_bounded_json(last_line(summary), summary);
  const int64_t xml =
      integer_member(member(report, "read", nlohmann::json::value_t::object, summary), "xml_bytes", summary);
  return {{"dump", given.empty() ? "made up, XML that is not packed" : given},
          {"xml_bytes", xml},
          {"text_bytes", integer_member(report, "bytes", summary)},
          {"megabytes_per_second_per_core", megabytes(xml) / seconds}};
}

/// Leaves the examples of the second run in the file "examples.shard".
Json time_examples(const Text& text, const TemporaryFiles& files) {
  const std::string shard = files.path("examples.shard"), summary = files.path("create.json");
  const auto create = [&](int copies, double& seconds) {
    std::vector<std::string> arguments = {
        "data", "create",        "--split-sentences",    "--vocab", text.vocab, "--output", shard, "--num-threads",
        "1",    "--dupe-factor", std::to_string(copies), "--input"};
    arguments.insert(arguments.end(), text.files.begin(), text.files.end());
    seconds = fastest([&] { return processor_seconds(arguments, {.output = summary}, files); });
    return integer_member(parse_bounded_json(last_line(summary), summary), "examples", summary);
  };
  double few_seconds = 0, many_seconds = 0;
  const int64_t few = create(kFewCopies, few_seconds), many = create(kManyCopies, many_seconds);
  if (many_seconds <= few_seconds) {
    throw DataError(fmt::format(
        "--input: has {} bytes, too few to time the making of examples; expected some megabytes", text.bytes));
  }
  const double copy = (many_seconds - few_seconds) / (kManyCopies - kFewCopies) / megabytes(text.bytes);
  return {{"examples", many},
          {"examples_per_second_per_core", static_cast<double>(many - few) / (many_seconds - few_seconds)},
          {"seconds_per_megabyte_read", few_seconds / megabytes(text.bytes) - kFewCopies * copy},
          {"seconds_per_megabyte_and_copy", copy},
          {"shard_bytes_per_byte_and_copy",
           static_cast<double>(size_of(shard)) / static_cast<double>(text.bytes) / kManyCopies}};
}

void say(const std::string& part) { fmt::print(stderr, "bert benchmark data: {}\n", part); }

}  // namespace

PreparationBenchmark benchmark_preparation(const PreparationOptions& options) {
  const TemporaryFiles files;
  say(options.input.empty() ? "no --input: making up text" : "reading --input");
  const Text text = find_text(options, files);
  PreparationBenchmark result;
  result.figures["text"] = {{"files", options.input.empty() ? Json("made up") : Json(options.input)},
                            {"bytes", text.bytes}};
  say("WordPiece");
  result.figures["wordpiece"] = time_wordpiece(text, files);
  say(options.dump.empty() ? "extraction of a made-up dump, for there is no --dump" : "extraction");
  result.figures["extraction"] = time_extraction(options.dump, files);
  say("examples");
  result.figures["examples"] = time_examples(text, files);
  result.shards = std::make_shared<const PretrainingShards>(std::vector{files.path("examples.shard")});
  result.tokenizer = open_tokenizer(text.vocab, {});
  return result;
}

}  // namespace bert
