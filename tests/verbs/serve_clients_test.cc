// Clients from PyPI ask bert serve (scripts/serve_clients.py).
#include <cstdlib>
#include <string>

#include "app/finetune/finetuning_run.h"
#include "app/system/exit_codes.h"
#include "data/io/files.h"
#include "tests/support/random_checkpoint.h"
#include "tests/support/serve_process.h"
#include "tests/support/tiny_finetuning.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::ServeProcess;
using bert::testing::TemporaryDirectory;

TEST_CASE("Clients of OpenAI, Hugging Face, LangChain, Cohere and Triton understand bert serve", "[unit][serve]") {
  const char* python = std::getenv("BERT_CLIENTS_PYTHON");
  if (python == nullptr) BERT_SKIP("BERT_CLIENTS_PYTHON does not name a Python with the clients of bert serve");
  const TemporaryDirectory directory, output;
  const auto made = [&](const char* task) {
    const FinetuneConfig config = bert::testing::tiny_task_of(task, directory);
    REQUIRE(finetune(config, false) == kOk);
    return config.run_directory;
  };
  ServeProcess server(directory, {"--checkpoint", bert::testing::write_random_checkpoint(directory), "--task",
                                  "embedding", "--name", "mini", "--model", "ranker=rerank:" + made("text-regression"),
                                  "--model", "qa=question-answering:" + made("squad-v1"), "--model",
                                  "ner=token-classification:" + made("ner"), "--port", "0"});
  ServeProcess classifier(output, {"--checkpoint", made("text-classification"), "--task", "text-classification",
                                   "--name", "cls", "--port", "0"});
  const int64_t port = server.port(), classifier_port = classifier.port();
  REQUIRE(port > 0);
  REQUIRE(classifier_port > 0);
  const std::string said = directory.path("said");
  const int status = std::system(fmt::format("'{}' '{}/tests/scripts/serve_clients.py' {} {} >'{}' 2>&1", python,
                                             BERT_SOURCE_DIR, port, classifier_port, said)
                                     .c_str());
  CAPTURE(read_file(said));
  CHECK(status == 0);
}
