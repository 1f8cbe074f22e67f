// Trained models on the device: bert predict, serve, evaluate and export, and bert benchmark. What they answer is compared
// with the CPU's answers of the same weights.
#include <c10/util/Logging.h>  // it defines CHECK too
#include <signal.h>

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "app/finetune/finetuning_run.h"
#include "app/system/exit_codes.h"
#include "app/train/pretrain.h"
#include "app/verbs/torch_verbs.h"
#include "app/verbs/verbs.h"
#include "tests/http/raw_client.h"
#include "tests/null_device/null_device.h"
#include "tests/support/command_testing.h"
#include "tests/support/device_under_test.h"
#include "tests/support/tiny_finetuning.h"
#include "tests/support/tiny_pretraining.h"
// The last include: it includes Catch2.
#include "tests/null_device/tests/run_testing.h"

using namespace bert;
using namespace bert::testing;
using nlohmann::json;

namespace {

/// A run for each task of `bert predict`, with texts to ask it.
struct Model {
  std::string task, run_directory;
  std::vector<std::string> question;  // arguments of `bert predict`
  json body;                          // the same for `bert serve`
};

Model pretrained(const TemporaryDirectory& directory, const std::string& device = "cpu") {
  PretrainConfig config = tiny(directory, "pretrained-" + device);
  config.max_steps = 2;
  config.report = {"jsonl"};
  config.device = value_named<DeviceChoice>(device).value();
  REQUIRE(pretrain(config, false) == kOk);
  return {.task = "fill-mask",
          .run_directory = config.run_directory,
          .question = {"5 [MASK] 7 8", "20 21 [MASK] 23 24 [MASK]"},
          .body = {{"inputs", {"5 [MASK] 7 8", "20 21 [MASK] 23 24 [MASK]"}}}};
}

Model finetuned(const TemporaryDirectory& directory, const std::string& task) {
  FinetuneConfig config = tiny_task_of(task, directory);
  config.max_steps = 2;
  config.report = {"jsonl"};
  REQUIRE(finetune(config, false) == kOk);
  Model model{.task = "text-classification", .run_directory = config.run_directory, .question = {}, .body = {}};
  if (task == "squad-v1") {
    model.task = "question-answering";
    model.question = {"--top-k", "3", "--question", "20 21", "5 6 7 8 9 10 11 12 13 14 15 16"};
    model.body = {{"inputs", {{"question", "20 21"}, {"context", "5 6 7 8 9 10 11 12 13 14 15 16"}}}};
  } else {
    if (task == "ner") model.task = "token-classification";
    model.question = {"5 6 7", "11 12 13 14"};
    model.body = {{"inputs", {"5 6 7", "11 12 13 14"}}, {"parameters", json::object()}};
  }
  return model;
}

std::vector<Model> all_models(const TemporaryDirectory& directory) {
  std::vector<Model> models = {pretrained(directory)};
  models.push_back(models.front());
  models.back().task = "features";
  for (const char* task : {"text-classification", "text-regression", "ner", "squad-v1"})
    models.push_back(finetuned(directory, task));
  return models;
}

CommandResult predict(const Model& model, const std::vector<std::string>& options) {
  std::vector<std::string> arguments = {"predict", "--checkpoint", model.run_directory, "--task", model.task};
  arguments.insert(arguments.end(), options.begin(), options.end());
  arguments.insert(arguments.end(), model.question.begin(), model.question.end());
  return run_command(predict_command, arguments);
}

/// All numbers in an answer, at any depth, in the order of their places. In low precision two scores may change places,
/// and words with them; the numbers stay near.
void add_numbers(const json& value, std::vector<double>& numbers) {
  if (value.is_number()) numbers.push_back(value.get<double>());
  for (const json& part : value.is_structured() ? value : json::array()) add_numbers(part, numbers);
}

/// The first difference of two texts of answers: of all they say in fp32, of scores and features in lower precision.
std::string difference_of_answers(const std::string& got, const std::string& want, Tolerance limit) {
  json one = json_lines(got), other = json_lines(want);
  if (limit.relative <= kFloat.relative) return difference(one, other, limit);
  std::string found;
  for (json* side : {&one, &other}) {
    for (json& line : *side) {
      for (const char* unordered : {"fillers", "answers"}) {
        if (!line.contains(unordered)) continue;
        for (json& each : line[unordered]) {
          if (each.is_object()) each = each.at("score");
        }
      }
    }
    std::vector<double> numbers;
    add_numbers(*side, numbers);
    *side = numbers;
  }
  return difference(one, other, limit);
}

}  // namespace

TEST_CASE("bert predict answers on CUDA as on the CPU, for every task and precision", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  const TemporaryDirectory directory;
  for (const Model& model : all_models(directory)) {
    for (const auto& [precision, limit] :
         {std::pair{"fp32", kFloat}, std::pair{"bf16", kBFloat16}, std::pair{"fp16", kHalf}}) {
      CAPTURE(model.task, model.run_directory, precision);
      const CommandResult cpu = predict(model, {"--device", "cpu", "--precision", precision});
      const int64_t launches = null_device::count("launch");
      const CommandResult cuda = predict(model, {"--device", "cuda", "--precision", precision});
      CHECK(null_device::count("launch") > launches);
      CAPTURE(cuda.err);
      REQUIRE(cpu.code == kOk);
      REQUIRE(cuda.code == kOk);
      CHECK(difference_of_answers(cuda.out, cpu.out, limit) == "");
    }
    for (const char* name : {"cuda", "auto"}) {
      const CommandResult refused = predict(model, {"--device", name, "--precision", "int8"});
      CHECK(refused.code == kUsage);
      CHECK(refused.err == "bert predict: --precision int8 runs on the CPU; use --device cpu\n");
    }
  }
}

TEST_CASE("bert predict gives features of every kind on CUDA as on the CPU", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  const TemporaryDirectory directory;
  Model model = pretrained(directory);
  model.task = "features";
  model.question = {"5 6 7 8", "20 21 22 23 24 25 26"};
  for (const std::vector<std::string>& options : {std::vector<std::string>{"--pooling", "cls"},
                                                  {"--pooling", "mean"},
                                                  {"--pooling", "pooler"},
                                                  {"--layers", "all", "--batch-size", "1"}}) {
    CAPTURE(options);
    std::vector<std::string> on_cuda = options, on_cpu = options;
    on_cuda.insert(on_cuda.end(), {"--device", "cuda"});
    const CommandResult cpu = predict(model, on_cpu), cuda = predict(model, on_cuda);
    REQUIRE(cuda.code == kOk);
    CHECK(difference_of_answers(cuda.out, cpu.out, kFloat) == "");
  }
}

TEST_CASE("bert evaluate scores a model on CUDA as on the CPU", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  const TemporaryDirectory directory;
  for (const char* task : {"squad-v1", "text-classification", "text-regression", "ner"}) {
    const std::string model = finetuned(directory, task).run_directory;
    const std::string data = write_tiny_examples(task, directory).second;
    std::map<std::string, std::string> said;
    for (const char* on : {"cpu", "cuda"}) {
      CAPTURE(task, on);
      std::vector<std::string> arguments = {"evaluate", task, "--checkpoint", model, "--dataset", data, "--device", on};
      const CommandResult result = run_command(evaluate_torch_command, arguments);
      CAPTURE(result.err);
      REQUIRE(result.code == kOk);
      said[on] = result.out;
    }
    CHECK(difference(json::parse(said["cuda"]), json::parse(said["cpu"]), kAnswers) == "");
  }
}

TEST_CASE("A run on CUDA is exported in every format, and its TorchScript answers on both devices", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  const TemporaryDirectory directory;
  Model model = pretrained(directory, "cuda");
  const CommandResult want = predict(model, {"--device", "cpu"});
  for (const char* format : {"torchscript", "safetensors", "onnx"}) {
    CAPTURE(format);
    const std::string file = directory.path(std::string("exported.") + format);
    const CommandResult result = run_command(
        export_command, {"export", "--checkpoint", model.run_directory, "--format", format, "--output", file});
    CAPTURE(result.err);
    CHECK(result.code == kOk);
    CHECK(std::filesystem::file_size(file) > 0);
  }
  model.run_directory = directory.path("exported.torchscript");
  for (const char* on : {"cpu", "cuda"}) {
    CAPTURE(on);
    const CommandResult answer = predict(model, {"--device", on});
    CHECK(answer.code == kOk);
    CHECK(difference_of_answers(answer.out, want.out, kFloat) == "");
  }
}

namespace {

/// A server on the device, and its port.
class Server {
 public:
  explicit Server(const Model& model, const Variables& variables = {})
      : twin_("bert",
              {"serve", "--checkpoint", model.run_directory, "--task", model.task, "--device", "cuda", "--port", "0",
               "--workers", "2"},
              variables) {
    twin_.until([&] { return twin_.out().find('\n') != std::string::npos; });
    const std::string line = twin_.out();
    port_ = line.empty() ? 0 : std::stoll(line.substr(line.rfind(':') + 1));
  }
  [[nodiscard]] bool is_ready() const { return port_ > 0; }
  Twin& twin() { return twin_; }

  /// Status and body of the answer to a question.
  [[nodiscard]] std::pair<int, std::string> ask(const json& question) const {
    const std::string body = question.dump();
    RawClient client(port_);
    client.send("POST /predict HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: " +
                std::to_string(body.size()) + "\r\n\r\n" + body);
    const std::string answer = client.rest();
    const size_t end = answer.find("\r\n\r\n");
    return {std::atoi(answer.substr(9).c_str()), end == std::string::npos ? "" : answer.substr(end + 4)};
  }

 private:
  Twin twin_;
  int64_t port_ = 0;
};

}  // namespace

TEST_CASE("bert serve answers on CUDA as bert predict on the CPU", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  const TemporaryDirectory directory;
  for (const Model& model : all_models(directory)) {
    CAPTURE(model.task);
    Server server(model);
    CAPTURE(server.twin().err());
    REQUIRE(server.is_ready());
    std::vector<std::string> options;
    if (model.task == "question-answering") options = {"--top-k", "1"};
    Model asked = model;
    if (!options.empty()) asked.question.erase(asked.question.begin(), asked.question.begin() + 2);
    const CommandResult want = predict(asked, options);
    const auto [status, body] = server.ask(model.body);
    CHECK(status == 200);
    const json got = json::parse(body), list = got.is_array() ? got : json::array({got});
    CHECK(difference(list, json(json_lines(want.out)), kFloat) == "");
    server.twin().signal(SIGTERM);
    CHECK(server.twin().wait() == kOk);
  }
}

TEST_CASE("bert serve refuses int8 on CUDA, and says why", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  const TemporaryDirectory directory;
  const std::string run = pretrained(directory).run_directory;
  Twin twin("bert", {"serve", "--checkpoint", run, "--device", "cuda", "--precision", "int8", "--port", "0"});
  CHECK(twin.wait() == kUsage);
  CHECK(twin.err() == "bert serve: --precision int8 runs on the CPU; use --device cpu\n");
}

TEST_CASE("bert serve ends with 70 when its device has failed", "[cuda][null_device]") {
  BERT_DEVICE_OR_SKIP(device);
  const TemporaryDirectory directory;
  const Model model = pretrained(directory);
  Server server(model, {{"NULL_DEVICE_FAIL", "400:710"}});
  REQUIRE(server.is_ready());
  int status = server.ask(model.body).first;
  CHECK(status == 200);
  for (int i = 0; i < 100 && status == 200; ++i) status = server.ask(model.body).first;
  CHECK(status == 500);
  CHECK(server.twin().wait() == kInternal);
  CHECK_THAT(server.twin().err(), Contains("bert serve: CUDA error: device-side assert triggered. "));
}

TEST_CASE("bert benchmark runs on CUDA", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  const TemporaryDirectory directory;
  const std::string file = file_of(tiny(directory, "run"));
  const std::vector<std::string> shape = {"--config", file,       "--batch", "2",        "--length", "8",     "--steps",
                                          "1",        "--warmup", "0",       "--device", "cuda",     "--json"};
  for (const char* action : {"step", "inference"}) {
    CAPTURE(action);
    std::vector<std::string> arguments = {"benchmark", action};
    arguments.insert(arguments.end(), shape.begin(), shape.end());
    const CommandResult result = run_command(benchmark_command, arguments);
    CAPTURE(result.err);
    REQUIRE(result.code == kOk);
    const std::string& text = result.out;
    const json report = json::parse(text.substr(text.rfind('\n', text.size() - 2) + 1));
    CHECK(report.at("device") == "cuda:0");
    CHECK(report.at("machine") == "device of host memory");
  }
  std::vector<std::string> int8 = {"benchmark", "inference", "--precision", "int8"};
  int8.insert(int8.end(), shape.begin(), shape.end());
  CHECK(run_command(benchmark_command, int8).code == kUsage);
}
