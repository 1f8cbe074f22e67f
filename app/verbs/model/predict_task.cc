#include "app/verbs/model/predict_task.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/inference/answer_json.h"
#include "data/io/error.h"

namespace bert {
namespace {

using Json = nlohmann::ordered_json;

/// The task of `bert predict` that a kind of fine-tuned model serves; "" if there is none.
std::string task_of(TaskKind kind) {
  switch (kind) {
    case TaskKind::kClassification:
    case TaskKind::kRegression:
      return "text-classification";
    case TaskKind::kTokenClassification:
      return "token-classification";
    case TaskKind::kQuestionAnswering:
      return "question-answering";
    case TaskKind::kMultipleChoice:
      break;
  }
  return "";
}

}  // namespace

TaskInput task_input(const InputText& text, const std::string& question, const std::string& pair_field) {
  if (pair_field.empty()) return {.text = text.text, .second = question};
  const auto field = text.object.find(pair_field);
  if (field == text.object.end() || !field->is_string())
    throw DataError(fmt::format("no text in the field \"{}\" (--pair-field)", pair_field));
  return {.text = text.text, .second = field->get<std::string>()};
}

void check_model_of_task(const Pretrained& pretrained, const std::string& wanted) {
  if (pretrained.model.task.empty()) {
    throw DataError(
        fmt::format("{}: was not fine-tuned, and --task {} needs the head of a task; `bert finetune` makes it",
                    pretrained.name, wanted));
  }
  const std::vector<std::string>& known = task_names();
  const bool is_known = std::find(known.begin(), known.end(), pretrained.model.task) != known.end();
  const std::string serves = is_known ? task_of(task_definition(pretrained.model.task).kind) : "";
  if (serves == wanted) return;
  throw DataError(fmt::format("{}: was fine-tuned on {}, {}", pretrained.name, pretrained.model.task,
                              serves.empty() ? "for which bert predict has no task" : "expected --task " + serves));
}

std::vector<Json> task_answers(const TaskPredictor& predictor, std::span<const EncodedInput> inputs, int64_t top_k) {
  std::vector<Json> answers;
  predictor.visit_answers(
      inputs, top_k, [&](size_t i, const auto& answer) { answers.push_back(to_json(inputs[i].input, answer, top_k)); });
  return answers;
}

}  // namespace bert
