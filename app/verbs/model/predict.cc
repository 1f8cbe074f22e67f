#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include "app/cli/choice.h"
#include "app/cli/command_line.h"
#include "app/device/device.h"
#include "app/inference/answer_json.h"
#include "app/inference/npy.h"
#include "app/inference/predictor.h"
#include "app/inference/task_predictor.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "app/system/machine/memory.h"
#include "app/verbs/model/predict_embedding.h"
#include "app/verbs/model/predict_input.h"
#include "app/verbs/model/predict_rerank.h"
#include "app/verbs/model/predict_task.h"
#include "app/verbs/model/weights_options.h"
#include "app/verbs/output_paths.h"
#include "app/verbs/verbs.h"
#include "data/io/error.h"
#include "data/io/files.h"

namespace bert {
namespace {

using Json = nlohmann::ordered_json;

struct PredictOptions {
  DeviceChoice device = DeviceChoice::kCpu;
  std::string checkpoint, input, text_field, output, format = "json";
  std::string question, query, pair_field;  // of a fine-tuned model
  std::string pooling;                      // empty: not given
  std::vector<std::string> layers;          // empty: not given
  std::vector<std::string> arguments;
  PredictorOptions predictor;
  WeightsKind weights = WeightsKind::kAveraged;
  AnswerOptions answers;
  Task task = Task::kFillMask;
  VectorForm form = VectorForm::kFloat32;
  bool skip_bad = false, trust = false, no_answers = false;
};

/// Throws UsageError for options that do not go together.
void check_usage(const PredictOptions& options) {
  const auto refuse_if = [](bool wrong, const std::string& message) {
    if (wrong) throw UsageError(message + "; see bert predict --help");
  };
  const bool features = options.task == Task::kFeatures, arrays = options.format != "json",
             vectors = options.task == Task::kEmbedding, pairs = options.task == Task::kSimilarity;
  refuse_if(options.input.empty() && options.arguments.empty(), "no text: give TEXT or --input FILE");
  const bool answers = options.task == Task::kQuestionAnswering, ranks = options.task == Task::kRerank;
  refuse_if(!options.question.empty() && !answers, "--question is an option of --task question-answering");
  refuse_if(!options.pair_field.empty() && !answers && !pairs && !ranks && options.task != Task::kTextClassification,
            "--pair-field is an option of --task text-classification, question-answering, similarity and rerank");
  refuse_if(!options.query.empty() && !ranks, "--query is an option of --task rerank");
  refuse_if(options.answers.function_to_apply != FunctionToApply::kDefault && !ranks,
            "--raw-scores is an option of --task rerank");
  refuse_if(ranks && !options.query.empty() && !options.pair_field.empty(),
            "--task rerank takes --query or --pair-field, not both");
  refuse_if(ranks && options.query.empty() && options.pair_field.empty() && !options.text_field.empty(),
            "--task rerank needs --query, or --pair-field, with --text-field");
  refuse_if(pairs && options.pair_field.empty() && !options.text_field.empty(),
            "--task similarity needs --pair-field with --text-field");
  refuse_if(pairs && options.pair_field.empty() && options.input.empty() && options.arguments.size() < 2,
            "--task similarity compares the first text with others: give two or more");
  refuse_if(has_embedding_options(options.answers) && !vectors && !pairs,
            "--dimensions, --normalize, --prompt and --prompt-name are options of --task embedding and similarity");
  refuse_if(options.form != VectorForm::kFloat32 && (!vectors || !arrays),
            "--quantize is an option of --task embedding with --format npy or safetensors");
  refuse_if(options.predictor.long_texts == LongTexts::kWindows && options.task == Task::kFillMask,
            "--long windows is no option of --task fill-mask");
  refuse_if(!options.pair_field.empty() && options.text_field.empty(), "--pair-field needs --text-field: JSON lines");
  refuse_if(answers && options.question.empty() == options.pair_field.empty(),
            "--task question-answering needs --question, or --pair-field with JSON lines");
  refuse_if(options.answers.aggregation != Aggregation::kNone && options.task != Task::kTokenClassification,
            "--aggregation is an option of --task token-classification");
  refuse_if(options.answers.top_k && (features || vectors || pairs || options.task == Task::kTokenClassification),
            "--top-k is an option of --task fill-mask, text-classification, question-answering and rerank");
  refuse_if(options.no_answers && !answers, "--handle-impossible-answer is an option of --task question-answering");
  refuse_if(!features && !options.pooling.empty(), "--pooling is an option of --task features");
  refuse_if(!features && !options.layers.empty(), "--layers is an option of --task features");
  refuse_if(!features && !vectors && arrays,
            "--format " + options.format + " holds vectors: add --task features or embedding");
  refuse_if(arrays && options.output.empty(), "--format " + options.format + " needs --output FILE");
  refuse_if(options.format == "npy" && features && (options.pooling.empty() || options.pooling == "none"),
            "--format npy needs --pooling cls, mean or pooler, one vector for each text; safetensors holds all tokens");
  refuse_if(options.pooling == "pooler" && !options.layers.empty(),
            "--pooling pooler reads the last layer: no --layers");
  check_raw_weights(options.checkpoint, options.weights);
  check_outputs({{"--output", options.output}},
                {{"--input", options.input == "-" ? "" : options.input}, {"--checkpoint", options.checkpoint}});
}

void add_input_options(CLI::App& app, PredictOptions& options) {
  CLI::Option* file =
      app.add_option("--input", options.input, "file with one text a line, which may be empty; - is standard input");
  app.add_option("--text-field", options.text_field,
                 "--input has JSON lines, whose text this field is; a.b is b in a. Answers keep the other fields")
      ->needs(file);
  app.add_flag("--skip-bad", options.skip_bad, "leave out lines without an answer, and say how many");
  app.add_option("TEXT", options.arguments, "texts; [MASK] stands for a word to fill in")->excludes(file);
}

void add_feature_options(CLI::App& app, PredictOptions& options) {
  app.add_option("--pooling", options.pooling,
                 "features: one vector for each text: that of [CLS], the mean over all tokens, or the pooler's; none: "
                 "one for each token")
      ->check(CLI::IsMember({"cls", "mean", "pooler", "none"}));
  app.add_option("--layers", options.layers,
                 "features: hidden states to take, such as -1,-2; -1 is the last layer, 0 are the embeddings; or all")
      ->delimiter(',')
      ->allow_extra_args(false);
}

/// Parses the command line. Returns false after --help. Throws UsageError.
bool parse(int argc, char** argv, PredictOptions& options) {
  CLI::App app(
      "Predicts with a checkpoint, a run directory or a TorchScript export; one JSON object per text on standard "
      "output.\n"
      "Example: bert predict --checkpoint bert.pt --task fill-mask \"The quick brown [MASK] jumps.\"",
      "bert predict");
  app.add_option("--checkpoint", options.checkpoint,
                 "checkpoint or run directory, a model of transformers, Google or NVIDIA, or an exported file")
      ->required();
  add_task(app, options.task);
  app.add_option("--top-k", options.answers.top_k,
                 "words for each [MASK] (5), labels (1, or all if they are independent), answers (1), or passages of a "
                 "query (all)")
      ->check(number_in<int64_t>(1, 1000));
  app.add_option("--question", options.question, "question-answering: the question about every TEXT, its context");
  app.add_option("--pair-field", options.pair_field,
                 "JSON lines: field of a pair's second text; of the question; of the query");
  add_rerank_options(app, options.query, options.answers);
  add_no_answers(app, options.no_answers);
  add_choice(app, "--aggregation", options.answers.aggregation,
             "token-classification: entities of words, as aggregation_strategy of transformers; none: words");
  add_long_texts(app, options.predictor);
  add_feature_options(app, options);
  add_embedding_options(app, options.answers, options.form);
  add_input_options(app, options);
  app.add_option("--output", options.output, "file for the answers, instead of standard output");
  app.add_option("--format", options.format,
                 "json: a JSON line for each text; npy, safetensors: one array of features, with --output")
      ->check(CLI::IsMember({"json", "npy", "safetensors"}))
      ->capture_default_str();
  add_choice(app, "--device", options.device, "auto: cuda if there is a GPU");
  add_inference_precision(app, options.predictor);
  app.add_option("--batch-size", options.predictor.batch_size, "texts that are computed together at most")
      ->check(number_in<int64_t>(1, 1 << 20))
      ->capture_default_str();
  add_raw_weights(app, options.weights);
  add_trust(app, options.trust);
  app.footer("Nothing is answered if a line has no answer, unless --skip-bad is given. Invalid UTF-8 is dropped.");
  if (!parse_command_line(app, argc, argv)) return false;
  check_usage(options);
  return true;
}

/// The texts that have an answer, with their tokens. With --skip-bad, says how many lines have none; else throws
/// DataError for the first.
template <class Encode>
auto encoded_texts(const PredictOptions& options, InputTexts input, const Encode& encode) {
  struct {
    std::vector<InputText> texts;
    std::vector<std::invoke_result_t<Encode, const InputText&>> encoded;
  } result;
  for (InputText& text : input.texts) {
    try {
      result.encoded.push_back(encode(text));
      result.texts.push_back(std::move(text));
    } catch (const DataError& error) {
      input.bad.push_back({text.place, error.what(), text.number});
    }
  }
  if (input.bad.empty()) return result;
  std::sort(input.bad.begin(), input.bad.end(), [](const BadLine& a, const BadLine& b) { return a.number < b.number; });
  const BadLine& first = input.bad.front();
  const std::string message = first.place + ": " + first.problem;
  const size_t all = result.texts.size() + input.bad.size();
  const std::string count = std::to_string(input.bad.size()) + " of " + std::to_string(all);
  if (!options.skip_bad) {
    throw DataError(message + (input.bad.size() > 1 ? " (and " + count + " in all)" : "") +
                    ". Nothing was answered; --skip-bad leaves such texts out");
  }
  if (result.texts.empty()) throw DataError(message + ". No text is left (" + count + " have no answer)");
  std::fprintf(stderr, "bert predict: left out %s texts without an answer, the first: %s\n", count.c_str(),
               message.c_str());
  return result;
}

/// Says how many texts were cut. `limit`: the most tokens that they may have.
template <class Encoded>
void say_cuts(const std::vector<Encoded>& texts, const std::string& limit) {
  const auto cut = std::count_if(texts.begin(), texts.end(), [](const Encoded& text) { return text.cut; });
  if (cut == 0) return;
  std::fprintf(stderr,
               "bert predict: %ld of %zu texts have more than %s, which the model reads, and were cut; --long refuse "
               "refuses them\n",
               static_cast<long>(cut), texts.size(), limit.c_str());
}

EmbeddingOptions embedding_options(const PredictOptions& options, const BertConfig& config) {
  EmbeddingOptions embedding{.pooling = Pooling::kNone, .layers = {-1}};
  if (options.pooling == "cls") embedding.pooling = Pooling::kCls;
  if (options.pooling == "mean") embedding.pooling = Pooling::kMean;
  if (options.pooling == "pooler") embedding.pooling = Pooling::kPooler;
  if (options.layers.empty()) return embedding;
  embedding.layers.clear();
  const int64_t last = config.num_hidden_layers;
  if (options.layers == std::vector<std::string>{"all"}) {
    for (int64_t layer = 0; layer <= last; ++layer) embedding.layers.push_back(layer);
    return embedding;
  }
  for (const std::string& word : options.layers) {
    int64_t layer = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), layer);
    if (error != std::errc() || end != word.data() + word.size() || layer < -last - 1 || layer > last) {
      throw UsageError("--layers: want all, or numbers from " + std::to_string(-last - 1) + " to " +
                       std::to_string(last) + ", the embeddings and the layers of the model; got " + word);
    }
    embedding.layers.push_back(layer);
  }
  return embedding;
}

/// One object for each text, as the task and its options say.
std::vector<Json> answers_of(const PredictOptions& options, const Predictor& predictor,
                             std::span<const EncodedText> texts) {
  std::vector<Json> answers;
  if (options.task == Task::kFillMask) {
    for (const MaskFilling& filling : predictor.fill_mask(texts)) answers.push_back(to_json(filling));
  } else if (options.task == Task::kEmbedding) {
    const std::vector<torch::Tensor> vectors = predictor.sentence_embeddings(texts);
    for (size_t i = 0; i < texts.size(); ++i) answers.push_back(embedding_json(texts[i].text, vectors[i]));
  } else if (options.pooling.empty() && options.layers.empty()) {
    const std::vector<Features> features = predictor.features(texts);
    for (size_t i = 0; i < texts.size(); ++i) answers.push_back(to_json(texts[i].text, features[i]));
  } else {
    const EmbeddingOptions embedding = embedding_options(options, predictor.config());
    const std::vector<torch::Tensor> values = predictor.embed(texts, embedding);
    for (size_t i = 0; i < texts.size(); ++i) {
      answers.push_back(embedding.pooling == Pooling::kNone
                            ? hidden_states_json(texts[i].text, predictor.tokens(texts[i]), values[i])
                            : embedding_json(texts[i].text, values[i]));
    }
  }
  return answers;
}

/// The answer with the fields of the JSON line that had the text before its own, which get names of their own beside
/// fields of the same name.
Json with_fields(const InputText& text, Json answer) {
  if (text.object.is_null()) return answer;
  Json line = text.object;
  for (const auto& [key, value] : answer.items()) {
    if (key != "text") line[text.object.contains(key) ? "predicted_" + key : key] = value;
  }
  return line;
}

/// Calls answer(window) for windows of texts, within which texts of like lengths are computed together.
template <class Encoded, class Answer>
void for_each_window(std::span<const Encoded> texts, int64_t batch_size, const Answer& answer) {
  constexpr int64_t kBatches = 8;  // of a window
  const auto size = static_cast<size_t>(kBatches * batch_size);
  for (size_t begin = 0; begin < texts.size(); begin += size)
    answer(texts.subspan(begin, std::min(size, texts.size() - begin)));
}

void write_lines(const PredictOptions& options, const std::vector<Json>& objects) {
  std::string lines;
  for (const Json& object : objects) lines += object.dump() + "\n";
  if (options.output.empty()) {
    std::cout << lines;
    return;
  }
  AtomicFile file(options.output);
  file.write(lines);
  file.commit();
}

/// Writes a line for each text. `answer` gives the objects of a window of encoded texts.
template <class Encoded, class Answer>
void write_json(const PredictOptions& options, const std::vector<InputText>& texts, std::span<const Encoded> encoded,
                const Answer& answer) {
  std::optional<AtomicFile> file;
  if (!options.output.empty()) file.emplace(options.output);
  auto text = texts.begin();
  for_each_window(encoded, options.predictor.batch_size, [&](std::span<const Encoded> window) {
    for (Json& object : answer(window)) {
      const std::string line = with_fields(*text++, std::move(object)).dump() + "\n";
      file ? file->write(line) : static_cast<void>(std::cout << line);
    }
  });
  if (file) file->commit();
}

/// Writes the vectors or features of all texts as arrays, in the order of the texts.
void write_arrays(const PredictOptions& options, const Predictor& predictor, std::span<const EncodedText> texts) {
  const bool sentences = options.task == Task::kEmbedding;
  const EmbeddingOptions embedding = embedding_options(options, predictor.config());
  std::vector<torch::Tensor> values;
  for_each_window(texts, options.predictor.batch_size, [&](std::span<const EncodedText> window) {
    for (torch::Tensor& value : sentences ? predictor.sentence_embeddings(window) : predictor.embed(window, embedding))
      values.push_back(std::move(value));
  });
  if (options.format == "npy") return save_npy(options.output, in_form(torch::stack(values), options.form));
  StateDict tensors;
  if (sentences || embedding.pooling != Pooling::kNone) {
    tensors.insert("embeddings", in_form(torch::stack(values), options.form));
  } else {
    std::vector<int64_t> ends = {0};
    for (const torch::Tensor& value : values) ends.push_back(ends.back() + value.size(-2));
    tensors.insert("hidden_states", torch::cat(values, /*dim=*/-2));
    tensors.insert("cu_seqlens", torch::tensor(ends, torch::kLong));
  }
  save_safetensors(options.output, tensors);
}

}  // namespace

int predict_command(int argc, char** argv) {
  PredictOptions options;
  if (!parse(argc, argv, options)) return kOk;
  InputTexts input = options.input.empty() ? texts_of_arguments(options.arguments)
                                           : read_input_texts(options.input, options.text_field);
  if (input.invalid_utf8 > 0) {
    std::fprintf(stderr, "bert predict: dropped %ld invalid UTF-8 sequences\n", static_cast<long>(input.invalid_utf8));
  }
  if (options.no_answers) options.answers.handle_impossible_answer = true;
  options.predictor.device = select_device(options.device, /*local_rank=*/0);
  check_int8(options.predictor);
  Pretrained pretrained =
      load_pretrained({options.checkpoint, options.trust, options.task}, options.weights, say_in("bert predict"));
  if (is_finetuned(options.task)) {
    check_model_of_task(pretrained, options.task);
    const TaskPredictor predictor(pretrained, options.predictor);
    keep_large_blocks();
    const bool ranks = options.task == Task::kRerank;
    const TaskDataConfig settings = text_settings(pretrained.model);
    const auto [texts, encoded] = encoded_texts(options, std::move(input), [&](const InputText& text) {
      TaskInput given = ranks ? rerank_pair(text, options.query, options.pair_field)
                              : task_input(text, options.question, options.pair_field);
      if (predictor.marks_entities()) given = marked_input(std::move(given), text, settings.spans_column);
      return predictor.encode(std::move(given), options.answers);
    });
    const bool questions = predictor.kind() == TaskKind::kQuestionAnswering;
    say_cuts(encoded, fmt::format("{} tokens{}", settings.max_seq_length,
                                  questions ? fmt::format(", or {} in the question", settings.max_query_length) : ""));
    if (ranks) {
      std::vector<double> scores;
      for_each_window(std::span(encoded), options.predictor.batch_size, [&](std::span<const EncodedInput> window) {
        const std::vector<double> more = predictor.scores(window);
        scores.insert(scores.end(), more.begin(), more.end());
      });
      write_lines(options, ranked(texts, encoded, scores));
      return kOk;
    }
    write_json(options, texts, std::span(encoded),
               [&](std::span<const EncodedInput> window) { return task_answers(predictor, window); });
    return kOk;
  }
  const Predictor predictor(pretrained, options.predictor);
  keep_large_blocks();
  const bool pairs = options.task == Task::kSimilarity;
  const Task encoding = pairs ? Task::kEmbedding : options.task;
  if (encoding == Task::kEmbedding) {
    check_embedding_options(predictor, options.answers);
    if (!pretrained.model.sentence)
      fmt::print(stderr, "bert predict: {}: is no sentence encoder; its vectors are the means of tokens\n",
                 options.checkpoint);
  }
  const auto [texts, encoded] = encoded_texts(options, std::move(input), [&](const InputText& text) {
    return predictor.encode(encoding, text.text, options.answers);
  });
  say_cuts(encoded, fmt::format("{} tokens", most_tokens(pretrained.model)));
  if (pairs) {
    write_lines(options, similarities(predictor, texts, encoded, options.pair_field));
  } else if (options.format == "json") {
    write_json(options, texts, std::span(encoded),
               [&](std::span<const EncodedText> window) { return answers_of(options, predictor, window); });
  } else {
    write_arrays(options, predictor, encoded);
  }
  return kOk;
}

}  // namespace bert
