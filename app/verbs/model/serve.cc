#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "app/cli/choice.h"
#include "app/cli/command_line.h"
#include "app/device/device.h"
#include "app/http/server.h"
#include "app/inference/predictor.h"
#include "app/inference/task_predictor.h"
#include "app/net/socket.h"
#include "app/serve/predictor_model.h"
#include "app/serve/service.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "app/system/machine/descriptor_limit.h"
#include "app/system/machine/memory.h"
#include "app/system/machine/threads.h"
#include "app/system/stop_signals.h"
#include "app/verbs/model/predict_task.h"
#include "app/verbs/model/weights_options.h"
#include "app/verbs/verbs.h"
#include "data/io/error.h"
#include "data/io/files.h"

namespace bert {
namespace {

constexpr const char* kTokenVariable = "BERT_SERVE_TOKEN";

/// A model to serve.
struct ServedFile {
  std::string name, path;
  Task task = Task::kFillMask;
};

struct ServeOptions {
  std::string checkpoint, name, token_file;
  DeviceChoice device = DeviceChoice::kCpu;
  std::vector<std::string> models;  // NAME=PATH, NAME=TASK:PATH
  std::vector<ServedFile> files;    // of all models
  Endpoint endpoint = {"127.0.0.1", 8080};
  // The batcher says which texts are a batch.
  PredictorOptions predictor = {.batch_size = kManySequences, .batch_tokens = int64_t{1} << 40};
  Task task = Task::kFillMask;
  bool trust = false, no_answers = false;
  WeightsKind weights = WeightsKind::kAveraged;
  double request_seconds = 30, drain_seconds = 30;
  ConnectionLimits connection;
  std::optional<int64_t> workers;
  ServiceOptions service;
};

void add_address(CLI::App& app, ServeOptions& options) {
  app.add_option("--host", options.endpoint.host, "address to listen on; one that other machines reach needs a token")
      ->capture_default_str();
  app.add_option("--port", options.endpoint.port, "port to listen on; 0: a free one, which the first line tells")
      ->check(number_in<int64_t>(0, 65535))
      ->capture_default_str();
  app.add_option("--token-file", options.token_file,
                 std::string("file with a secret of 16 or more characters, which requests then need; ") +
                     kTokenVariable + " in the environment has the same meaning");
}

void add_batches(CLI::App& app, ServeOptions& options) {
  BatchLimits& batch = options.service.batch;
  app.add_option("--max-batch-tokens", batch.max_batch_tokens, "tokens that are computed together")
      ->check(number_in<int64_t>(1, 1 << 24))
      ->capture_default_str();
  app.add_option("--workers", options.workers,
                 "batches that are computed at once, each with a part of the threads [default 2; on a GPU 1]")
      ->check(number_in<int64_t>(1, 256));
}

void add_limits(CLI::App& app, ServeOptions& options) {
  const auto seconds = number_in(0.1, 86400.0);
  const auto count = [&](const char* name, int64_t& value, int64_t most, const char* help) {
    app.add_option(name, value, help)->check(number_in<int64_t>(1, most))->capture_default_str();
  };
  ServiceOptions& service = options.service;
  count("--max-connections", service.max_connections, 1 << 16, "open connections; further ones get 503");
  count("--max-body-bytes", options.connection.max_body_bytes, 1 << 30, "bytes of a request's body; more get 413");
  count("--max-texts", service.max_texts, kManySequences, "texts of a request; more get 413");
  count("--max-tokens", service.max_tokens, 1 << 30, "tokens of a request; more get 413");
  count("--max-queue-tokens", service.batch.max_queue_tokens, 1 << 30, "tokens that wait; more get 429");
  app.add_option("--request-seconds", options.request_seconds,
                 "time for a body to arrive, for its answer to begin, and for the answer to be taken")
      ->check(seconds)
      ->capture_default_str();
  app.add_option("--drain-seconds", options.drain_seconds, "time for the last answers after SIGTERM")
      ->check(seconds)
      ->capture_default_str();
}

/// The file's content or the variable's value without the white space around it; "" if neither is given.
std::string read_token(const std::string& file) {
  std::string token, where = kTokenVariable;
  if (char* value = std::getenv(kTokenVariable); value != nullptr) {
    token = value;
    std::memset(value, 0, std::strlen(value));  // /proc/<pid>/environ shows the bytes of the start
    unsetenv(kTokenVariable);
  }
  if (!file.empty()) {
    struct stat state {};
    if (stat(file.c_str(), &state) == 0 && (state.st_mode & 07) != 0)
      throw RefusedError(file + ": every user can read or replace it, so it holds no secret; chmod o= it");
    where = file;
    token = read_file(file);
  } else if (token.empty()) {
    return "";
  }
  const auto visible = [](unsigned char c) { return c > 0x20 && c < 0x7f; };
  while (!token.empty() && !visible(static_cast<unsigned char>(token.back()))) token.pop_back();
  constexpr size_t kLeast = 16;
  if (token.size() < kLeast || !std::all_of(token.begin(), token.end(), visible)) {
    throw DataError(where +
                    ": expected a token of 16 or more visible ASCII characters; make one with `openssl rand "
                    "-hex 32`");
  }
  return token;
}

/// NAME=PATH or NAME=TASK:PATH. Throws UsageError.
ServedFile served_file(const std::string& text, Task task) {
  const size_t sign = text.find('='), colon = text.find(':', sign);
  if (sign == std::string::npos || sign == 0 || sign + 1 == text.size())
    throw UsageError("--model: want NAME=PATH or NAME=TASK:PATH, got " + text);
  ServedFile file{.name = text.substr(0, sign), .path = text.substr(sign + 1), .task = task};
  const std::string before = colon == std::string::npos ? "" : text.substr(sign + 1, colon - sign - 1);
  if (const auto named = value_named<Task>(before); named && named != Task::kSimilarity) {
    file.task = *named;
    file.path = text.substr(colon + 1);
  }
  return file;
}

/// Sets `files` and their names in the service. Throws UsageError.
void name_models(ServeOptions& options) {
  std::vector<ServedFile>& files = options.files;
  if (options.checkpoint.empty() && options.models.empty()) throw UsageError("give --checkpoint, or --model NAME=PATH");
  if (options.checkpoint.empty() && !options.name.empty()) throw UsageError("--name is the name of --checkpoint");
  if (!options.checkpoint.empty()) {
    const std::string file = std::filesystem::weakly_canonical(options.checkpoint).filename().string();
    files.push_back({options.name.empty() ? file : options.name, options.checkpoint, options.task});
  }
  for (const std::string& text : options.models) files.push_back(served_file(text, options.task));
  const auto count = [&](const auto& fits) { return std::count_if(files.begin(), files.end(), fits); };
  const auto of_task = [&](Task task) { return count([task](const ServedFile& file) { return file.task == task; }); };
  for (const ServedFile& file : files) {
    check_raw_weights(file.path, options.weights);
    if (count([&](const ServedFile& other) { return other.name == file.name; }) > 1)
      throw UsageError("two models have the name " + file.name);
  }
  if (options.no_answers && of_task(Task::kQuestionAnswering) == 0)
    throw UsageError("--handle-impossible-answer is an option of --task question-answering");
  if (options.predictor.long_texts == LongTexts::kWindows && of_task(Task::kFillMask) > 0)
    throw UsageError("--long windows is no option of --task fill-mask");
  options.service.name = files.front().name;
  options.service.task = name_of_value(files.front().task);
  for (size_t i = 1; i < files.size(); ++i)
    options.service.further.push_back({files[i].name, name_of_value(files[i].task)});
}

/// Checks what the options say together, and sets what follows from them.
void complete(ServeOptions& options) {
  ServiceOptions& service = options.service;
  name_models(options);
  service.token = read_token(options.token_file);
  if (service.token.empty() && !is_loopback(options.endpoint.host)) {
    throw RefusedError("--host " + options.endpoint.host +
                       " is reached by other machines, and there is no token: give --token-file FILE (made with "
                       "`(umask 077; openssl rand -hex 32 > FILE)`), or the token in " +
                       kTokenVariable);
  }
  if (service.max_tokens > service.batch.max_queue_tokens) {
    throw UsageError("--max-tokens " + std::to_string(service.max_tokens) + " is more than --max-queue-tokens " +
                     std::to_string(service.batch.max_queue_tokens) + ": such a request could never wait");
  }
  constexpr int64_t kFurtherFiles = 64;  // libraries, streams, the checkpoint
  const auto files = static_cast<int64_t>(raise_descriptor_limit());
  const int64_t wanted = service.max_connections + HttpServer::kExtraConnections + kFurtherFiles;
  if (files < wanted) {
    throw UsageError("--max-connections " + std::to_string(service.max_connections) + " needs " +
                     std::to_string(wanted) + " open files, and ulimit -Hn is " + std::to_string(files) +
                     "; raise the limit, or take fewer connections");
  }
  if (is_loopback(options.endpoint.host)) service.hosts = {"localhost", "127.0.0.1", "::1", options.endpoint.host};
  options.connection.request = service.request = std::chrono::duration<double>(options.request_seconds);
}

/// Lets the requests that wait for the service go, before the server waits for their threads.
struct EndOfService {
  Service& service;
  ~EndOfService() { service.end(); }
};

/// Waits for a signal. Then answers what has been asked, for as long as allowed. If the model is lost, throws its message
/// after the requests have been told so: whoever watches over the server starts it anew.
int serve_until_signal(HttpServer& server, Service& service, double drain_seconds) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kLook(20), kBeginning(100);
  constexpr std::chrono::seconds kToTell(1);
  while (!StopSignals::arrived() && service.model_lost().empty()) std::this_thread::sleep_for(kLook);
  service.drain();
  server.stop_accepting();
  std::this_thread::sleep_for(kBeginning);  // requests that had arrived begin
  if (const std::string lost = service.model_lost(); !lost.empty()) {
    server.wait_until_answered(Clock::now() + kToTell);
    throw std::runtime_error(lost);
  }
  const auto until =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(drain_seconds));
  if (server.wait_until_answered(until)) return kOk;
  fmt::print(stderr, "bert serve: requests were cut: they were not answered {} s after the signal\n", drain_seconds);
  return kPreempted;
}

/// Two halves of a processor answer more short texts than the whole: while one reads and writes requests, the other
/// computes (README.md, Load).
int64_t workers_of(c10::Device device) { return device.is_cpu() ? std::min(2, at::get_num_threads()) : 1; }

/// Loads models. Those of one path have the same weights, once in memory.
class ModelLoader {
 public:
  explicit ModelLoader(const ServeOptions& options) : options_(options) {}

  /// Throws InputMissing, DataError, IoError, RefusedError.
  std::unique_ptr<Model> load(const ServedFile& file) {
    Pretrained pretrained =
        load_pretrained({file.path, options_.trust, file.task}, options_.weights, say_in("bert serve"));
    ModelFacts facts = facts_of(pretrained.model, file.task, options_.predictor);
    const std::string place = std::filesystem::weakly_canonical(file.path).string();
    if (!is_finetuned(file.task)) {
      std::shared_ptr<const Predictor>& predictor = predictors_[place];
      if (!predictor) predictor = std::make_shared<Predictor>(pretrained, options_.predictor);
      return make_predictor_model(predictor, file.task, std::move(facts));
    }
    check_model_of_task(pretrained, file.task);
    if (options_.no_answers && file.task == Task::kQuestionAnswering)
      pretrained.model.task = "squad-v2";  // whose contexts may have no answer
    std::shared_ptr<const TaskPredictor>& predictor = task_predictors_[place];
    if (!predictor) predictor = std::make_shared<TaskPredictor>(pretrained, options_.predictor);
    return make_task_model(predictor, file.task, std::move(facts));
  }

 private:
  const ServeOptions& options_;
  std::map<std::string, std::shared_ptr<const Predictor>> predictors_;
  std::map<std::string, std::shared_ptr<const TaskPredictor>> task_predictors_;
};

}  // namespace

int serve_command(int argc, char** argv) {
  CLI::App app(
      "Answers over HTTP: POST /predict, /v1/embeddings, /embed, /rerank, /v2/models/NAME/infer and others, which GET "
      "/openapi.json lists; GET / is a page to try the model.\nSIGTERM ends it after the last answer.\n"
      "Example: bert serve --checkpoint runs/phase2 --task fill-mask --port 8080",
      "bert serve");
  ServeOptions options;
  ServiceOptions& service_options = options.service;
  app.add_option("--checkpoint", options.checkpoint,
                 "checkpoint or run directory, a model of transformers, Google or NVIDIA, or an exported file");
  add_task(app, options.task, /*without=*/Task::kSimilarity);
  app.add_option("--name", options.name, "the model's name in /models/NAME; default: that of the checkpoint's file");
  app.add_option("--model", options.models,
                 "another model, NAME=PATH or NAME=TASK:PATH; may be given several times, and without --checkpoint")
      ->allow_extra_args(false);
  add_choice(app, "--device", options.device, "auto: cuda if there is a GPU");
  add_inference_precision(app, options.predictor);
  add_raw_weights(app, options.weights);
  add_trust(app, options.trust);
  add_no_answers(app, options.no_answers);
  add_long_texts(app, options.predictor);
  add_address(app, options);
  add_batches(app, options);
  add_limits(app, options);
  if (!parse_command_line(app, argc, argv)) return kOk;
  const StopSignals signals;
  complete(options);

  Descriptor listener = listen_on(options.endpoint, "name another port, or --port 0 for any");
  options.endpoint.port = port_of(listener.get());
  options.predictor.device = select_device(options.device, /*local_rank=*/0);
  use_threads(0);
  service_options.workers = options.workers.value_or(workers_of(options.predictor.device));
  ConnectionCounts counts;
  Service service(service_options, counts);
  HttpServer server(std::move(listener), service_options.max_connections, options.connection, service, counts);
  const EndOfService end{service};
  check_int8(options.predictor);
  ModelLoader loader(options);
  std::string served;
  for (size_t i = 0; i < options.files.size() && !StopSignals::arrived(); ++i) {
    const ServedFile& file = options.files[i];
    service.set_model(loader.load(file), i);
    served += fmt::format("{}{} of {}", served.empty() ? "" : ", ", name_of_value(file.task), file.name);
  }
  keep_large_blocks();
  if (!StopSignals::arrived()) fmt::print("bert serve: {} at http://{}\n", served, to_string(options.endpoint));
  flush_standard_output();
  return serve_until_signal(server, service, options.drain_seconds);
}

}  // namespace bert
