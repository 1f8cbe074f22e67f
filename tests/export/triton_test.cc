// The configuration of Triton.
#include "app/export/triton.h"

#include <vector>

#include "data/io/error.h"
#include "tests/testing.h"

namespace bert {
namespace {

TEST_CASE("Triton's configuration has the reference's names and types, and the sizes of the export", "[unit][triton]") {
  const TritonModel answers = {.config = {}, .architecture = "BertForQuestionAnswering", .max_batch_size = 8};
  CHECK(triton_config(answers) ==
        R"(# input__0: input ids, input__1: token type ids, input__2: attention mask
platform: "pytorch_libtorch"
max_batch_size: 8
input [
  {
    name: "input__0"
    data_type: TYPE_INT32
    dims: [ -1 ]
  },
  {
    name: "input__1"
    data_type: TYPE_INT32
    dims: [ -1 ]
  },
  {
    name: "input__2"
    data_type: TYPE_INT32
    dims: [ -1 ]
  }
]
output [
  {
    name: "output__0"
    data_type: TYPE_FP32
    dims: [ -1 ]
  },
  {
    name: "output__1"
    data_type: TYPE_FP32
    dims: [ -1 ]
  }
]
dynamic_batching {
  max_queue_delay_microseconds: 100
}
)");
}

TEST_CASE("Triton's outputs are those of the exported model, for one sequence", "[unit][triton]") {
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases = {
      {"BertForPreTraining", {"-1, 30522", "2"}}, {"BertForMaskedLM", {"-1, 30522"}},
      {"BertForSequenceClassification", {"3"}},   {"BertForTokenClassification", {"-1, 3"}},
      {"BertForMultipleChoice", {"1"}},           {"BertModel", {"-1, 768", "768"}}};
  for (const auto& [architecture, outputs] : cases) {
    CAPTURE(architecture);
    const std::string text = triton_config({.config = {}, .architecture = architecture, .num_labels = 3});
    std::string list = text.substr(text.find("output ["));
    for (size_t i = 0; i < outputs.size(); ++i) {
      const std::string want =
          "name: \"output__" + std::to_string(i) + "\"\n    data_type: TYPE_FP32\n    dims: [ " + outputs[i] + " ]\n";
      const size_t place = list.find(want);
      REQUIRE(place != std::string::npos);
      list.erase(0, place + want.size());
    }
    CHECK(list.find("output__") == std::string::npos);
  }
  CHECK_THROWS_WITH(triton_config({.config = {}, .architecture = "BertLMHeadModel"}),
                    testing::Contains("architecture BertLMHeadModel: has no TorchScript export"));
}

}  // namespace
}  // namespace bert
