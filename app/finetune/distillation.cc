#include "app/finetune/distillation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <utility>

#include "app/finetune/distillation_losses.h"
#include "app/inference/label_order.h"
#include "app/system/errors.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "data/tasks/task_sequence.h"

namespace bert {
namespace {

constexpr const char* kField = "distillation.teacher: ";

/// Gives the teacher's head the order of the student's labels. Throws ConfigError if the teacher has another head or other
/// classes.
void fit_task(Pretrained& teacher, const Student& student,
              const std::function<void(const std::string& message)>& note) {
  // The tasks of models of other programs that do not name one (app/interop/hugging_face_config.cc), and of own tables.
  constexpr std::array<const char*, 5> kGeneral = {"text-classification", "text-regression", "ner", "squad-v1", "swag"};
  const TaskDefinition& task = student.task;
  const bool general = std::ranges::find(kGeneral, teacher.model.task) != kGeneral.end() &&
                       teacher.model.multi_label == task.multi_label;
  if (teacher.model.task != task.name && !(general && task_definition(teacher.model.task).kind == task.kind)) {
    throw ConfigError(
        fmt::format("{}{} {}, and task is {}; expected a model that was fine-tuned on {}", kField, teacher.name,
                    teacher.model.task.empty() ? "was not fine-tuned" : "was fine-tuned on " + teacher.model.task,
                    task.name, task.name));
  }
  if (teacher.model.start_markers && !student.train.start_markers) {
    throw ConfigError(
        fmt::format("{}{} reads the states of [E1] and [E2]; expected data.entity_markers start_markers, got {}",
                    kField, teacher.name, name_of_value(student.config.data.task.entity_markers)));
  }
  const std::vector<std::string> labels = teacher.model.labels;
  try {
    if (order_labels(teacher, task.labels) != LabelMatch::kByPosition) return;
  } catch (const DataError& error) {
    throw ConfigError(std::string(kField) + error.what());
  }
  note(fmt::format("{}the classes {} of {} are taken as {}, in this order", kField, fmt::join(labels, ", "),
                   teacher.name, fmt::join(task.labels, ", ")));
}

/// Throws ConfigError if the teacher cannot read the student's sequences.
void check_input(const Pretrained& teacher, const Student& student) {
  const FinetuneConfig& config = student.config;
  const Vocabulary &tokens = student.tokenizer.vocabulary(), &of_teacher = teacher.tokenizer->vocabulary();
  if (tokens.hash() != of_teacher.hash()) {
    throw ConfigError(
        fmt::format("{}{} has a vocabulary of {} tokens, and initial_checkpoint {} another one, of {}; expected the "
                    "same vocabulary: "
                    "the teacher reads the student's tokens",
                    kField, teacher.name, of_teacher.size(), config.initial_checkpoint, tokens.size()));
  }
  if (const int64_t most = teacher.model.config.max_position_embeddings; config.data.task.max_seq_length > most) {
    throw ConfigError(fmt::format("{}{} has {} positions, and data.max_seq_length is {}; set it to {} or less", kField,
                                  teacher.name, most, config.data.task.max_seq_length, most));
  }
  for (const TaskSequence& sequence : student.train.sequences) {
    if (sequence.token_type_ids.back() < teacher.model.config.type_vocab_size) continue;
    throw ConfigError(fmt::format("{}{} has type_vocab_size {}, and the task has pairs of texts, which need 2", kField,
                                  teacher.name, teacher.model.config.type_vocab_size));
  }
}

/// Throws ConfigError if the sizes of the two models do not fit the losses.
void check_sizes(const Pretrained& teacher, const Student& student) {
  const BertConfig &of_student = student.config.model, &of_teacher = teacher.model.config;
  const DistillationConfig& distillation = student.config.distillation;
  if (distillation.hidden_weight > 0 && of_student.num_hidden_layers > of_teacher.num_hidden_layers) {
    throw ConfigError(fmt::format(
        "distillation.hidden_weight: the student {} has {} layers, and the teacher {} has {}; each layer learns from "
        "one of the teacher's, so expected at most as many: set it to 0",
        student.config.initial_checkpoint, of_student.num_hidden_layers, teacher.name, of_teacher.num_hidden_layers));
  }
  const int64_t heads = of_student.num_attention_heads;
  if (distillation.attention_weight > 0 && of_teacher.hidden_size % heads != 0) {
    throw ConfigError(fmt::format(
        "distillation.attention_weight: divides query, key and value by the {} heads of the student {}; expected a "
        "divisor of hidden_size {} of the teacher {}: set it to 0",
        heads, student.config.initial_checkpoint, of_teacher.hidden_size, teacher.name));
  }
}

TaskModel model_of(const Pretrained& teacher, c10::Device device, Precision precision) {
  TaskModel model = load_task_model(teacher);
  model.module()->to(device, weights_dtype(precision));
  for (const torch::Tensor& parameter : model.module()->parameters()) parameter.set_requires_grad(false);
  return model;
}

/// Sets encoder.taps for a scope.
class TapScope {
 public:
  TapScope(BertEncoder encoder, EncoderTaps* taps) : encoder_(std::move(encoder)) { encoder_->taps = taps; }
  ~TapScope() { encoder_->taps = nullptr; }
  TapScope(const TapScope&) = delete;
  TapScope& operator=(const TapScope&) = delete;

 private:
  BertEncoder encoder_;
};

/// The mean over the student's layers: Note [Losses of distillation].
torch::Tensor hidden_loss(const TokenLosses& losses, const EncoderTaps& student, const EncoderTaps& teacher) {
  const size_t layers = student.hidden_states.size(), of_teacher = teacher.hidden_states.size();
  torch::Tensor sum;
  for (size_t layer = 1; layer <= layers; ++layer) {
    const torch::Tensor loss =
        losses.hidden(student.hidden_states[layer - 1], teacher.hidden_states[layer * of_teacher / layers - 1]);
    sum = layer == 1 ? loss : sum + loss;
  }
  return sum / static_cast<double>(layers);
}

}  // namespace

Pretrained read_teacher(const Student& student, const std::function<void(const std::string& message)>& note) {
  const DistillationConfig& distillation = student.config.distillation;
  const auto read = [&] {
    try {
      return load_pretrained({distillation.teacher, student.config.trust_initial_checkpoint}, WeightsKind::kAveraged,
                             [&](const std::string& message) { note(kField + message); });
    } catch (const InputMissing& error) {
      throw InputMissing(std::string(kField) + error.what());
    } catch (const DataError& error) {
      throw DataError(std::string(kField) + error.what());
    }
  };
  Pretrained teacher = read();
  fit_task(teacher, student, note);
  check_input(teacher, student);
  check_sizes(teacher, student);
  return teacher;
}

DataIdentity identity_of_teacher(const Pretrained& teacher) {
  Checksum checksum;
  for (const auto& item : teacher.weights) {
    const torch::Tensor weight = item.value().contiguous();
    checksum.update(item.key().data(), item.key().size());
    checksum.update(weight.const_data_ptr(), weight.nbytes());
  }
  return {.content_checksum = checksum.hexadecimal(), .examples = 0};
}

TappedOutput forward_with_taps(TaskModel& model, const PackedBatch& batch, int64_t choices, bool tap) {
  TappedOutput output;
  const TapScope scope(model.encoder().encoder, tap ? &output.taps : nullptr);
  output.logits = model.forward(batch, choices);
  return output;
}

Distillation::Distillation(const FinetuneConfig& config, const Pretrained& teacher, c10::Device device)
    : config_(config.distillation),
      kind_(task_definition(config.task).kind),
      multi_label_(task_definition(config.task).multi_label),
      precision_(config.precision),
      device_(device),
      heads_(config.model.num_attention_heads),
      teacher_(model_of(teacher, device, precision_)) {}

std::vector<std::string> Distillation::names() const {
  std::vector<std::string> names;
  const auto add = [&](const char* name, double weight) {
    if (weight > 0) names.emplace_back(name);
  };
  add("labels", config_.labels_weight);
  add("logits", config_.logits_weight);
  add("hidden", config_.hidden_weight);
  add("attention", config_.attention_weight);
  add("value", config_.attention_weight);
  return names;
}

torch::Tensor Distillation::logits_loss(const PackedBatch& batch, const torch::Tensor& student,
                                        const torch::Tensor& teacher) const {
  const double temperature = config_.temperature;
  switch (kind_) {
    case TaskKind::kRegression:
      return at::mse_loss(student.to(torch::kFloat), teacher.to(torch::kFloat));
    case TaskKind::kQuestionAnswering:
      return soft_target_loss(answer_logits(student, batch), answer_logits(teacher, batch), temperature);
    case TaskKind::kTokenClassification:
      return soft_target_loss(student, teacher, temperature, batch.labels.ne(kNoLabel));  // the first pieces of words
    case TaskKind::kClassification:
    case TaskKind::kMultipleChoice:
    case TaskKind::kEmbedding:  // has losses of its own
      break;
  }
  if (multi_label_) {  // of each label, the two classes yes and no
    const auto two = [](const torch::Tensor& logits) { return at::stack({logits, at::zeros_like(logits)}, -1); };
    return soft_target_loss(two(student), two(teacher), temperature);
  }
  return soft_target_loss(student, teacher, temperature);
}

std::vector<torch::Tensor> Distillation::losses(const PackedBatch& batch, const TappedOutput& student,
                                                const torch::Tensor& labels, int64_t choices) {
  TappedOutput teacher;
  {
    const torch::NoGradGuard no_grad;
    const AutocastGuard autocast(device_.type(), precision_);
    teacher = forward_with_taps(teacher_, batch, choices, taps());
  }
  std::vector<torch::Tensor> losses;
  const auto add = [&](double weight, const auto& loss) {
    if (weight > 0) losses.push_back(loss() * weight);
  };
  add(config_.labels_weight, [&] { return labels; });
  add(config_.logits_weight, [&] { return logits_loss(batch, student.logits, teacher.logits); });
  if (!taps()) return losses;
  const TokenLosses of_tokens(batch);
  const auto relation = [&](size_t from, size_t to) {
    const auto part = [&](const EncoderTaps& taps) -> TokenLosses::Relation {
      const std::vector<torch::Tensor> parts = taps.qkv.chunk(3, 1);  // query, key, value
      return {.from = parts[from], .to = parts[to]};
    };
    return of_tokens.relation(part(student.taps), part(teacher.taps), heads_);
  };
  add(config_.hidden_weight, [&] { return hidden_loss(of_tokens, student.taps, teacher.taps); });
  add(config_.attention_weight, [&] { return relation(0, 1); });
  add(config_.attention_weight, [&] { return relation(2, 2); });
  return losses;
}

std::vector<torch::Tensor> Distillation::items(const PackedBatch& batch, const Items& known) const {
  const bool counts_labels = kind_ == TaskKind::kTokenClassification || kind_ == TaskKind::kMultipleChoice;
  std::vector<torch::Tensor> items;
  const auto add = [&](double weight, const torch::Tensor& count) {
    if (weight > 0) items.push_back(count);
  };
  add(config_.labels_weight, known.labels);
  add(config_.logits_weight, counts_labels ? batch.labels.ne(kNoLabel).sum(torch::kDouble) : known.sequences);
  add(config_.hidden_weight, known.tokens);
  add(config_.attention_weight, known.tokens);
  add(config_.attention_weight, known.tokens);
  return items;
}

}  // namespace bert
