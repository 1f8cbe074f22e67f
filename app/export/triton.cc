#include "app/export/triton.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "app/interop/hugging_face_files.h"
#include "data/io/error.h"

namespace bert {
namespace {

/// Microseconds that a request waits for others, at most. That is 1 % of the time of BERT-large for a text of 384 tokens on
/// an A100 in NVIDIA's table.
constexpr int kMaxQueueDelay = 100;

/// The sizes of each output for one sequence. -1 is the length of the sequence.
std::vector<std::vector<int64_t>> outputs_of(const TritonModel& model) {
  const std::string& name = model.architecture;
  const int64_t vocabulary = model.config.vocab_size, hidden = model.config.hidden_size;
  if (name == "BertForPreTraining") return {{-1, vocabulary}, {2}};
  if (name == "BertForMaskedLM") return {{-1, vocabulary}};
  if (name == "BertForQuestionAnswering") return {{-1}, {-1}};
  if (name == "BertForSequenceClassification" || name == kMarkerArchitecture) return {{model.num_labels}};
  if (name == "BertForTokenClassification") return {{-1, model.num_labels}};
  if (name == "BertForMultipleChoice") return {{1}};
  if (name == "BertModel" && model.vector_size > 0) return {{model.vector_size}, {-1, hidden}};
  if (name == "BertModel" && !model.pooler) return {{-1, hidden}};
  if (name == "BertModel") return {{-1, hidden}, {hidden}};
  throw DataError("architecture " + name + ": has no TorchScript export, so Triton cannot serve it");
}

std::string tensor_text(const std::string& kind, size_t index, const char* type, const std::vector<int64_t>& sizes) {
  return fmt::format("  {{\n    name: \"{}__{}\"\n    data_type: {}\n    dims: [ {} ]\n  }}", kind, index, type,
                     fmt::join(sizes, ", "));
}

std::string list_text(const std::string& kind, const char* type, const std::vector<std::vector<int64_t>>& tensors) {
  std::string text = kind + " [\n";
  for (size_t i = 0; i < tensors.size(); ++i)
    text += tensor_text(kind, i, type, tensors[i]) + (i + 1 < tensors.size() ? ",\n" : "\n");
  return text + "]\n";
}

}  // namespace

std::string triton_config(const TritonModel& model) {
  return fmt::format(
             "# input__0: input ids, input__1: token type ids, input__2: attention mask\n"
             "platform: \"pytorch_libtorch\"\n"
             "max_batch_size: {}\n",
             model.max_batch_size) +
         list_text("input", "TYPE_INT32", {{-1}, {-1}, {-1}}) + list_text("output", "TYPE_FP32", outputs_of(model)) +
         fmt::format("dynamic_batching {{\n  max_queue_delay_microseconds: {}\n}}\n", kMaxQueueDelay);
}

}  // namespace bert
