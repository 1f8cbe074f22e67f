// The answers of fine-tuned models in `bert predict`.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "app/cli/command_line.h"
#include "app/inference/task_predictor.h"
#include "app/verbs/model/predict_input.h"

namespace bert {

/// Adds --task, which sets `task`, with the names of all tasks but `without`.
inline void add_task(CLI::App& app, Task& task, std::optional<Task> without = {}) {
  std::vector<std::string> names;
  for (const char* name : names_of(Task()))
    if (value_named<Task>(name) != without) names.emplace_back(name);
  app.add_option_function<std::string>(
         "--task", [&task](const std::string& name) { task = *value_named<Task>(name); }, "what to predict")
      ->check(CLI::IsMember(names))
      ->default_str(name_of_value(task));
}

/// Adds the options of texts that are too long, which set their fields of `options`.
inline void add_long_texts(CLI::App& app, PredictorOptions& options) {
  app.add_option_function<std::string>(
         "--long", [&options](const std::string& name) { options.long_texts = *value_named<LongTexts>(name); },
         "texts with too many tokens; default: refuse for fill-mask and features, truncate for embedding, else as in "
         "training; contexts of questions have windows")
      ->check(CLI::IsMember({"refuse", "truncate", "windows"}));
  app.add_option_function<int64_t>(
         "--stride", [&options](int64_t tokens) { options.stride = tokens; },
         "tokens from window to window; default: as in training, or 128")
      ->check(number_in<int64_t>(1, 65535));
  app.add_option_function<std::string>(
         "--window-pooling",
         [&options](const std::string& name) { options.window_pooling = *value_named<WindowPooling>(name); },
         "logits of a text from its windows; default: as in training")
      ->check(CLI::IsMember({"mean", "max", "first", "attention"}));
}

/// Adds --handle-impossible-answer, which sets `no_answers`.
inline void add_no_answers(CLI::App& app, bool& no_answers) {
  app.add_flag("--handle-impossible-answer", no_answers,
               "question-answering: the model may find that a context has no answer, then \"\"; for models that were "
               "trained on SQuAD 2.0 and whose files do not say so");
}

/// The input of a task: the text with `question`, or with the field `pair_field` of its JSON line. Both may be empty.
/// Throws DataError for a line without that field.
TaskInput task_input(const InputText& text, const std::string& question, const std::string& pair_field);

/// Puts markers around the two spans in the field `spans_field` of the input's JSON line, if it has them. Throws DataError.
TaskInput marked_input(TaskInput input, const InputText& text, const std::string& spans_field);

/// Throws DataError if the model of `pretrained` is not of the task `wanted`, which is_finetuned().
void check_model_of_task(const Pretrained& pretrained, Task wanted);

/// One object for each input, as app/inference/answer_json.h has them.
std::vector<nlohmann::ordered_json> task_answers(const TaskPredictor& predictor, std::span<const EncodedInput> inputs);

}  // namespace bert
