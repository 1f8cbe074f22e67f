#include "app/interop/hugging_face.h"

#include <filesystem>
#include <fstream>
#include <set>

#include "app/interop/conversion.h"
#include "app/interop/formats.h"
#include "app/interop/hugging_face_files.h"
#include "app/interop/hugging_face_tokenizer.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "data/tokenizer/tokenizer.h"
#include "tests/support/hf_golden.h"
#include "tests/testing.h"

namespace bert {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::Contains;
using testing::hf_directory;
using testing::hf_golden;
using testing::patch_json;
using testing::TemporaryDirectory;
using testing::write_hf_files;

std::map<std::string, std::string> bytes_by_name(const ForeignCheckpoint& checkpoint) {
  std::map<std::string, std::string> result;
  for (const TensorSource& tensor : checkpoint.tensors) result[tensor.name] = tensor.bytes();
  return result;
}

TEST_CASE("A directory of transformers is read: sizes, tokens, every tensor", "[golden][interop]") {
  const TemporaryDirectory directory;
  const std::string path = hf_directory(directory);
  REQUIRE(is_hugging_face(path));
  const ForeignCheckpoint checkpoint = read_hugging_face(path);
  CHECK(checkpoint.model.config.vocab_size == 24);
  CHECK(checkpoint.model.config.hidden_size == 8);
  CHECK(checkpoint.model.config.num_hidden_layers == 1);
  CHECK(checkpoint.model.config.num_attention_heads == 2);
  CHECK(checkpoint.model.config.intermediate_size == 12);
  CHECK(checkpoint.model.config.max_position_embeddings == 10);
  CHECK(checkpoint.model.config.hidden_act == Activation::kGelu);
  CHECK(checkpoint.model.objective == Objective::kNsp);
  CHECK(checkpoint.model.vocabulary.size() == 24);
  CHECK(checkpoint.model.vocabulary[7] == "##aff");
  CHECK(checkpoint.states_case);
  CHECK(checkpoint.model.tokenizer.do_lower_case);
  CHECK(checkpoint.model.tokenizer.max_input_chars_per_word == 100);
  CHECK(checkpoint.report.text() == "30 tensors loaded, 0 missing, 0 unexpected, 0 reshaped, 0 ignored");
  CHECK(checkpoint.report.plain());
  const SafetensorsFile file(path + "/model.safetensors");
  REQUIRE(file.tensors().size() == checkpoint.tensors.size());
  for (const auto& [name, bytes] : bytes_by_name(checkpoint)) {
    INFO(name);
    REQUIRE(file.find(name) != nullptr);
    CHECK(bytes == file.data(*file.find(name)));
  }
}

TEST_CASE("Shards have the tensors of the one file", "[golden][interop]") {
  const TemporaryDirectory directory;
  const std::string shards = hf_directory(directory, "sharded");
  CHECK(bytes_by_name(read_hugging_face(shards)) == bytes_by_name(read_hugging_face(hf_directory(directory))));
  const std::string index = shards + "/model.safetensors.index.json", second = "model-00002-of-00003.safetensors";
  const std::string tensor = "bert.encoder.layer.0.output.dense.bias";
  const std::string whole = read_file(index);
  const auto refused = [&](const json& patch, const std::string& message) {
    std::ofstream(index) << whole;
    patch_json(index, patch);
    CHECK_THROWS_WITH(read_hugging_face(shards), Contains(message));
  };
  refused({{"weight_map", {{tensor, nullptr}}}}, second + ": has tensor " + tensor);
  refused({{"weight_map", {{"bert.more", second}}}}, second + ": lacks tensor bert.more");
  refused({{"weight_map", {{tensor, "../" + second}}}}, "expected a file name");
  refused({{"weight_map", {{tensor, 2}}}}, "expected a file name");
  refused({{"weight_map", {{tensor, "model-00009-of-00003.safetensors"}}}}, "has tensor " + tensor);
  refused({{"weight_map", nullptr}}, "\"weight_map\" is missing");
  std::ofstream(index) << whole;
  fs::remove(shards + "/" + second);
  CHECK_THROWS_AS(read_hugging_face(shards), InputMissing);
}

TEST_CASE("Other classes of BERT have an encoder, and a report of the rest", "[golden][interop]") {
  const TemporaryDirectory directory;
  const auto want = bytes_by_name(read_hugging_face(hf_directory(directory)));
  const ForeignCheckpoint encoder = read_hugging_face(hf_directory(directory, "encoder"));
  CHECK(encoder.report.loaded.size() == 23);
  CHECK(encoder.report.missing.size() == 7);
  CHECK(encoder.model.objective == Objective::kNsp);
  CHECK_FALSE(encoder.has(BertPart::kMaskedTokenHead));
  for (const auto& [name, bytes] : bytes_by_name(encoder)) CHECK(bytes == want.at(name));
  const ForeignCheckpoint masked = read_hugging_face(hf_directory(directory, "masked_lm"));
  CHECK(masked.model.objective == Objective::kMlm);
  CHECK(masked.report.missing == std::vector<std::string>{"bert.pooler.dense.weight", "bert.pooler.dense.bias",
                                                          "cls.seq_relationship.weight", "cls.seq_relationship.bias"});
  CHECK(masked.tensors.front().dtype == "F16");
  const ForeignCheckpoint answers = read_hugging_face(hf_directory(directory, "question_answering"));
  CHECK(answers.report.unexpected == std::vector<std::string>{"qa_outputs.bias", "qa_outputs.weight"});
  CHECK(answers.report.loaded.size() == 21);
  CHECK(answers.model.objective == Objective::kMlm);
}

TEST_CASE("The head of a fine-tuned class is read with its labels, if it is asked for", "[golden][interop]") {
  const TemporaryDirectory directory;
  const std::string path = hf_directory(directory, "question_answering"), config = path + "/config.json";
  const ForeignOptions options = {.trust = false, .config = {}, .task_head = true};
  const ForeignCheckpoint answers = read_hugging_face(path, options);
  CHECK(answers.model.task == "squad-v1");
  CHECK(answers.model.labels.empty());
  CHECK(answers.report.plain());
  CHECK(answers.tensors.size() == 23);
  CHECK(answers.tensors[21].name == "qa_outputs.weight");
  CHECK(answers.tensors[21].shape == std::vector<int64_t>{2, 8});
  CHECK(read_hugging_face(hf_directory(directory, "masked_lm"), options).model.task.empty());

  const auto with = [&](const json& changes) {
    json changed = json::parse(read_file(config));
    changed.merge_patch(changes);
    const std::string copy = directory.path("changed");
    fs::remove_all(copy);
    fs::copy(path, copy);
    std::ofstream(copy + "/config.json") << changed;
    return copy;
  };
  CHECK(read_hugging_face(with({{"finetuning_task", "squad-v2"}}), options).model.task == "squad-v2");
  CHECK(read_hugging_face(with({{"finetuning_task", "cola"}}), options).model.task == "squad-v1");  // another class
  const json classes = {{"architectures", {"BertForSequenceClassification"}}};
  CHECK_THROWS_WITH(read_hugging_face(with(classes), options),
                    Contains("lacks bert.pooler, which feeds the head of task"));
  json tags = {{"architectures", {"BertForTokenClassification"}}, {"id2label", {{"0", "O"}, {"1", "B-PER"}}}};
  CHECK_THROWS_WITH(read_hugging_face(with(tags), options),
                    Contains("lacks tensor classifier.weight, the head of task ner"));
  tags["id2label"] = {{"0", "O"}, {"2", "B-PER"}};
  CHECK_THROWS_WITH(read_hugging_face(with(tags), options),
                    Contains("config.json: \"id2label\" has 2 labels, and none with the id 1"));
}

TEST_CASE("The hub's cache stands for a snapshot", "[unit][interop]") {
  const TemporaryDirectory directory;
  const std::string hub = directory.path("models--org--name"), blobs = hub + "/blobs";
  const std::string first = hub + "/snapshots/0123abcd", second = hub + "/snapshots/4567efab";
  fs::create_directories(blobs);
  const std::string source = hf_directory(directory);
  for (const std::string& snapshot : {first, second}) {
    fs::create_directories(snapshot);
    for (const auto& entry : fs::directory_iterator(source)) {
      const std::string name = entry.path().filename().string();
      fs::copy_file(entry.path(), blobs + "/" + name, fs::copy_options::overwrite_existing);
      fs::create_symlink("../../blobs/" + name, snapshot + "/" + name);
    }
  }
  REQUIRE(is_hugging_face(hub));
  CHECK_THROWS_WITH(read_hugging_face(hub),
                    Contains("has 2 snapshots") && Contains("name one of them, such as " + first));
  fs::create_directories(hub + "/refs");
  std::ofstream(hub + "/refs/main") << "4567efab";
  CHECK(read_hugging_face(hub).path == second);
  CHECK(read_hugging_face(first).path == first);
  std::ofstream(hub + "/refs/main") << "absent\n";
  CHECK_THROWS_AS(read_hugging_face(hub), InputMissing);
  std::ofstream(hub + "/refs/main") << "../..";
  CHECK_THROWS_WITH(read_hugging_face(hub), Contains("refs/main: want the name of a snapshot"));
  fs::remove_all(hub + "/refs");
  fs::remove_all(first);
  CHECK(read_hugging_face(hub).path == second);
}

TEST_CASE("Another architecture is refused by its name, and a bad field by its line", "[unit][interop]") {
  const TemporaryDirectory directory;
  const std::string path = hf_directory(directory), config = path + "/config.json", whole = read_file(config);
  const auto refused = [&](const json& patch, const std::string& message) {
    INFO(patch);
    std::ofstream(config) << whole;
    patch_json(config, patch);
    CHECK_THROWS_WITH(read_hugging_face(path), Contains(config + ":") && Contains(message));
    CHECK_THROWS_AS(read_hugging_face(path), DataError);
  };
  for (const char* type : {"roberta", "distilbert", "albert", "electra", "xlm-roberta", "camembert", "deberta-v2"})
    refused({{"model_type", type}}, "\"model_type\" is " + std::string(type) + ": not BERT's architecture: ");
  refused({{"model_type", "gpt2"}}, "\"model_type\" is \"gpt2\"; expected bert");
  refused({{"model_type", 3}}, "\"model_type\": want string");
  refused({{"model_type", nullptr}, {"architectures", {"RobertaModel"}}}, "\"architectures\" has \"RobertaModel\"");
  refused({{"position_embedding_type", "relative_key"}}, "\"relative_key\"; expected absolute");
  refused({{"is_decoder", true}}, "\"is_decoder\" is true");
  refused({{"add_cross_attention", true}}, "\"add_cross_attention\" is true");
  refused({{"pruned_heads", {{"0", {1}}}}}, "\"pruned_heads\"");
  refused({{"quantization_config", {{"bits", 8}}}}, "quantization_config");
  for (const std::string act : {"relu", "silu", "gelu_fast"})
    refused({{"hidden_act", act}}, "/hidden_act: want one of gelu_new, gelu_pytorch_tanh, gelu, got \"" + act + "\"");
  refused({{"hidden_size", -8}}, "/hidden_size: want an integer in [1, 65536], got -8");
  refused({{"hidden_size", "8"}}, "/hidden_size: want an integer");
  refused({{"num_attention_heads", 3}}, "/num_attention_heads: want a divisor of hidden_size 8, got 3");
  refused({{"objective", "rtd"}}, "\"objective\": want nsp, mlm or sop, got rtd");
  std::ofstream(config) << "[]";
  CHECK_THROWS_WITH(read_hugging_face(path), Contains(config + ": want an object {...}, got array"));
  std::ofstream(config) << "{\"model_type\": \"bert\",\n\"hidden_size\": 8,\n  \"layer_norm_eps\": 1}";
  CHECK_THROWS_WITH(read_hugging_face(path), Contains(config + ":3:21: /layer_norm_eps"));
  // The oldest files have neither model_type nor architectures.
  std::ofstream(config) << whole;
  patch_json(config, {{"model_type", nullptr}, {"architectures", nullptr}});
  CHECK(read_hugging_face(path).report.plain());
}

TEST_CASE("A vocabulary that does not fit the weights is refused", "[unit][interop]") {
  const TemporaryDirectory directory;
  const std::string path = hf_directory(directory);
  patch_json(path + "/config.json", {{"vocab_size", 23}});
  CHECK_THROWS_WITH(read_hugging_face(path), Contains("its tokenizer has 24 tokens; expected at most vocab_size 23"));
  patch_json(path + "/config.json", {{"vocab_size", 30}});
  const ForeignCheckpoint padded = read_hugging_face(path);
  CHECK(padded.report.reshaped ==
        std::vector<std::string>{"bert.embeddings.word_embeddings.weight: [24, 8], now [30, 8]",
                                 "cls.predictions.bias: [24], now [30]"});
}

TEST_CASE("A pickle is not opened, and a directory without weights is none", "[unit][interop]") {
  const TemporaryDirectory directory;
  const std::string path = hf_directory(directory);
  fs::rename(path + "/model.safetensors", path + "/pytorch_model.bin");
  REQUIRE(foreign_format_of(path) != nullptr);
  CHECK_THROWS_WITH(read_hugging_face(path), Contains("pytorch_model.bin: is a pickle, a format that can hold code"));
  fs::remove(path + "/pytorch_model.bin");
  CHECK(foreign_format_of(path) == nullptr);
  CHECK_THROWS_AS(read_hugging_face(path), InputMissing);
  CHECK(foreign_format_of(directory.path("absent")) == nullptr);
}

TEST_CASE("The tokenizer is the same from tokenizer.json and from vocab.txt", "[golden][interop]") {
  const json golden = hf_golden();
  const TemporaryDirectory directory;
  const std::string path = directory.path("pretraining");
  for (const char* files : {"tokenizer", "vocab"}) {
    fs::remove_all(path);
    write_hf_files("pretraining", path);
    write_hf_files(files, path);
    const ForeignCheckpoint checkpoint = read_hugging_face(path);
    CHECK(checkpoint.states_case == (std::string(files) == "tokenizer"));
    const WordPieceTokenizer tokenizer(Vocabulary(checkpoint.model.vocabulary), checkpoint.model.tokenizer);
    for (size_t i = 0; i < golden["texts"].size(); ++i)
      CHECK(tokenizer.encode(golden["texts"][i].get<std::string>()) ==
            golden["text_ids"][i].get<std::vector<int32_t>>());
  }
  fs::remove(path + "/vocab.txt");
  CHECK(read_hugging_face(path).model.vocabulary.empty());
}

TEST_CASE("Settings of a tokenizer are read, or refused with their file", "[unit][interop]") {
  const TemporaryDirectory directory;
  const std::string path = hf_directory(directory), file = path + "/tokenizer.json",
                    config = path + "/tokenizer_config.json", tokens = read_file(file), settings = read_file(config);
  const auto with = [&](const json& tokenizer_patch, const json& config_patch) {
    std::ofstream(file) << tokens;
    std::ofstream(config) << settings;
    patch_json(file, tokenizer_patch);
    patch_json(config, config_patch);
    return read_hugging_face(path);
  };
  const json none = json::object();
  const json cased = {{"normalizer", {{"lowercase", false}}}};
  CHECK_FALSE(with(cased, {{"do_lower_case", false}}).model.tokenizer.do_lower_case);
  CHECK(with(cased, {{"do_lower_case", nullptr}}).model.tokenizer.do_lower_case);  // absent: BertTokenizer's default
  const json fast = {{"do_lower_case", nullptr}, {"tokenizer_class", "PreTrainedTokenizerFast"}};
  CHECK_FALSE(with(cased, fast).model.tokenizer.do_lower_case);
  CHECK(with(cased, none).report.notes.size() == 1);  // the two files differ
  CHECK(with(none, {{"strip_accents", true}, {"unk_token", {{"content", "[UNK]"}}}}).model.tokenizer.do_lower_case);
  CHECK(with({{"model", {{"max_input_chars_per_word", 200}}}}, none).model.tokenizer.max_input_chars_per_word == 200);
  CHECK_FALSE(with(none, none).model.tokenizer.strip_accents.has_value());
  CHECK(with(none, {{"strip_accents", true}}).model.tokenizer.strip_accents == true);
  CHECK(with(none, {{"strip_accents", false}}).model.tokenizer.strip_accents == false);
  CHECK_FALSE(with({{"normalizer", {{"strip_accents", false}}}}, none).model.tokenizer.strip_accents.has_value());
  CHECK(with({{"normalizer", {{"strip_accents", false}}}}, fast).model.tokenizer.strip_accents == false);
  CHECK(with(cased, {{"do_lower_case", false}, {"strip_accents", true}}).model.tokenizer.strip_accents == true);
  CHECK(with(none, none).model.tokenizer.tokenize_chinese_chars);
  CHECK_FALSE(with(none, {{"tokenize_chinese_chars", false}}).model.tokenizer.tokenize_chinese_chars);
  const auto refused = [&](const json& tokenizer_patch, const json& config_patch, const std::string& message) {
    INFO(tokenizer_patch << config_patch);
    CHECK_THROWS_WITH(with(tokenizer_patch, config_patch), Contains(message));
    CHECK_THROWS_AS(with(tokenizer_patch, config_patch), DataError);
  };
  refused(none, {{"do_basic_tokenize", false}}, "\"do_basic_tokenize\" is false");
  refused(none, {{"tokenizer_class", "BertJapaneseTokenizer"}}, "\"BertJapaneseTokenizer\"; expected BertTokenizer");
  refused(none, {{"mask_token", "<mask>"}}, config + ": \"mask_token\" is \"<mask>\"; expected [MASK]");
  refused(none, {{"mask_token", {{"content", "<mask>"}}}}, "\"content\" is \"<mask>\"");
  refused(none, {{"do_lower_case", "yes"}}, "\"do_lower_case\": want boolean");
  refused(none, {{"strip_accents", 1}}, "\"strip_accents\": want boolean");
  refused({{"normalizer", {{"clean_text", false}}}}, none, "clean_text false");
  refused({{"normalizer", {{"type", "Lowercase"}}}}, none, "\"Lowercase\"; expected BertNormalizer");
  refused({{"normalizer", nullptr}}, none, file + ": \"normalizer\" is missing");
  refused({{"pre_tokenizer", {{"type", "ByteLevel"}}}}, none, "expected BertPreTokenizer");
  refused({{"model", {{"type", "BPE"}}}}, none, "\"BPE\"; expected WordPiece");
  refused({{"model", {{"unk_token", "<unk>"}}}}, none, "expected [UNK]");
  refused({{"model", {{"continuing_subword_prefix", "@@"}}}}, none, "expected ##");
  refused({{"model", {{"max_input_chars_per_word", 0}}}}, none, "want an integer in [1, 10000], got 0");
  refused({{"model", {{"vocab", {{"cat", nullptr}}}}}}, none, "no token has the id 9");
  refused({{"model", {{"vocab", {{"cat", 10}}}}}}, none, "have the id 10; expected one token for each id");
  refused({{"model", {{"vocab", {{"cat", 1e30}}}}}}, none, "the id of \"cat\" is no integer");
  refused({{"model", {{"vocab", {{"cat", -1}}}}}}, none, "no token has the id 0");
  refused({{"model", {{"vocab", {{"a\nb", 24}}}}}}, none, "has a line feed");
  refused({{"added_tokens", {{{"id", 24}}}}}, none, "\"content\" is missing");
  write_hf_files("vocab", path);
  CHECK(with(none, none).report.plain());
  std::string lines = read_file(path + "/vocab.txt");
  std::ofstream(path + "/vocab.txt") << lines.replace(lines.find("cat"), 3, "dog");
  refused(none, none,
          path +
              "/vocab.txt: is not the vocabulary of tokenizer.json beside it: token 9 is \"cat\" there "
              "and \"dog\" here");
}

TEST_CASE("Accents apart from case, and ideographs as letters, are read and written as transformers does",
          "[golden][interop]") {
  const json golden = json::parse(read_file(testing::golden("bert_normalizer.json")));
  for (const json& saved : golden.at("saved")) {
    INFO(saved["name"]);
    const TemporaryDirectory directory;
    for (const auto& [name, text] : saved.at("files").items())
      std::ofstream(directory.path(name)) << text.get<std::string>();
    ForeignCheckpoint checkpoint;
    read_hugging_face_tokenizer(directory.path(), checkpoint);
    const ModelDescription& read = checkpoint.model;
    const WordPieceTokenizer tokenizer(Vocabulary(read.vocabulary), read.tokenizer);
    TokenizerConfig twin = read.tokenizer;
    twin.strip_accents = !twin.strips_accents();
    const WordPieceTokenizer other(Vocabulary(read.vocabulary), twin);
    json ids = json::array(), other_ids = json::array();
    for (const std::string text : golden.at("saved_texts")) {
      ids.push_back(tokenizer.encode(text));
      other_ids.push_back(other.encode(text));
    }
    CHECK(ids == saved.at("ids"));
    CHECK(other_ids != saved.at("ids"));  // the negative twin
    const std::map<std::string, std::string> written = hugging_face_files(read);
    const json settings = json::parse(written.at("tokenizer_config.json")),
               theirs = json::parse(saved["files"]["tokenizer_config.json"].get<std::string>());
    for (const char* key : {"do_lower_case", "strip_accents", "tokenize_chinese_chars"})
      CHECK(settings.at(key) == theirs.at(key));
    CHECK(json::parse(written.at("tokenizer.json"))["normalizer"] ==
          json::parse(saved["files"]["tokenizer.json"].get<std::string>())["normalizer"]);
  }
}

TEST_CASE("Lowercase beside a BertNormalizer gives the ids of tokenizers, and other members are refused",
          "[golden][interop]") {
  const json golden = json::parse(read_file(testing::golden("lowercase_normalizer.json")));
  const TemporaryDirectory directory;
  const auto tokenizer_of = [&](const json& files) {
    fs::remove_all(directory.path("model"));
    fs::create_directory(directory.path("model"));
    for (const auto& [name, text] : files.items())
      std::ofstream(directory.path("model/" + name)) << text.get<std::string>();
    ForeignCheckpoint checkpoint;
    read_hugging_face_tokenizer(directory.path("model"), checkpoint);
    return checkpoint.model;
  };
  const auto ids_of = [&](const ModelDescription& model) {
    const WordPieceTokenizer tokenizer(Vocabulary(model.vocabulary), model.tokenizer);
    json ids = json::array();
    for (const std::string text : golden["texts"]) ids.push_back(tokenizer.encode(text));
    return ids;
  };
  CHECK(golden["cases"].size() == 26);
  for (const json& each : golden["cases"]) {
    INFO(each["name"]);
    const ModelDescription model = tokenizer_of(each["files"]);
    CHECK(ids_of(model) == each["ids"]);
    CHECK(ids_of(tokenizer_of(json(hugging_face_files(model)))) == each["ids"]);
  }
  const json file = json::parse(golden["cases"][1]["files"]["tokenizer.json"].get<std::string>());
  const auto refusal = [&](const char* pointer, const json& value) {
    json changed = file;
    changed[json::json_pointer(pointer)] = value;
    return testing::message_of<DataError>([&] { tokenizer_of({{"tokenizer.json", changed.dump()}}); });
  };
  CHECK_THAT(refusal("/normalizer/normalizers/0/type", "NFD"), Contains("\"NFD\"; expected BertNormalizer"));
  CHECK_THAT(refusal("/normalizer/normalizers/1/type", "Lowercase"), Contains("has 0 BertNormalizer; expected one"));
  CHECK_THAT(refusal("/normalizer/normalizers/0", file["normalizer"]["normalizers"][1]),
             Contains("has 2 BertNormalizer; expected one"));
  CHECK_THAT(refusal("/pre_tokenizer/pretokenizers/0/type", "Digits"), Contains("expected BertPreTokenizer"));
}

TEST_CASE("An added token gets its id, from each file that has some", "[unit][interop]") {
  const TemporaryDirectory directory;
  const std::string path = hf_directory(directory);
  patch_json(path + "/config.json", {{"vocab_size", 25}});
  json tokenizer = json::parse(read_file(path + "/tokenizer.json"));
  tokenizer["added_tokens"].push_back({{"id", 24}, {"content", "<new>"}, {"special", false}});
  std::ofstream(path + "/tokenizer.json") << tokenizer;
  // 24 rows, and the new token would have none.
  CHECK_THROWS_WITH(read_hugging_face(path), Contains("has 24 rows; expected one for each of the 25 tokens"));
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"}) fs::remove(path + "/" + name);
  write_hf_files("vocab", path);
  std::ofstream(path + "/added_tokens.json") << R"({"<new>": 24})";
  CHECK_THROWS_WITH(read_hugging_face(path), Contains("has 24 rows; expected one for each of the 25 tokens"));
  std::ofstream(path + "/added_tokens.json") << R"({"<new>": 30})";
  CHECK_THROWS_WITH(read_hugging_face(path), Contains(": no token has the id 24"));
  std::ofstream(path + "/added_tokens.json") << R"({"the": 5})";
  const ForeignCheckpoint read = read_hugging_face(path);
  CHECK(read.report.notes.empty());
  CHECK(read.model.added_tokens == std::vector<AddedToken>{{.id = 5, .normalized = true}});
}

TEST_CASE("The files that are written for transformers have the keys that it writes", "[golden][interop]") {
  const TemporaryDirectory directory;
  const ForeignCheckpoint source = read_hugging_face(hf_directory(directory));
  const std::map<std::string, std::string> files = files_beside(source);
  std::set<std::string> names;
  for (const auto& [name, text] : files) names.insert(name);
  CHECK(names == std::set<std::string>{"config.json", "special_tokens_map.json", "tokenizer.json",
                                       "tokenizer_config.json", "vocab.txt"});
  const json golden = hf_golden()["directories"];
  CHECK(files.at("vocab.txt") == golden["vocab"]["vocab.txt"].get<std::string>());
  const json config = json::parse(files.at("config.json")),
             theirs = json::parse(golden["pretraining"]["config.json"].get<std::string>());
  for (const char* key :
       {"architectures", "model_type", "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads",
        "intermediate_size", "hidden_act", "hidden_dropout_prob", "attention_probs_dropout_prob",
        "max_position_embeddings", "type_vocab_size", "initializer_range", "layer_norm_eps", "pad_token_id"}) {
    INFO(key);
    CHECK(config[key] == theirs[key]);
  }
  const json tokenizer = json::parse(files.at("tokenizer.json")),
             their_tokenizer = json::parse(golden["tokenizer"]["tokenizer.json"].get<std::string>());
  CHECK(tokenizer == their_tokenizer);
  const json settings = json::parse(files.at("tokenizer_config.json")),
             their_settings = json::parse(golden["tokenizer"]["tokenizer_config.json"].get<std::string>());
  for (const char* key : {"do_lower_case", "strip_accents", "tokenize_chinese_chars", "tokenizer_class", "mask_token",
                          "unk_token", "pad_token", "cls_token", "sep_token"}) {
    INFO(key);
    CHECK(settings[key] == their_settings[key]);
  }
}

TEST_CASE("A vocabulary with a token twice has no tokenizer.json, one of SentencePiece no tokenizer files",
          "[unit][interop]") {
  ModelDescription model;
  model.vocabulary = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "a"};
  CHECK(hugging_face_files(model).size() == 4);
  CHECK_FALSE(hugging_face_files(model).contains("tokenizer.json"));
  model.masked_token_head = false;
  model.tokenizer_model = "bytes";
  const auto files = hugging_face_files(model);
  REQUIRE(files.size() == 1);
  CHECK(json::parse(files.at("config.json"))["architectures"] == json::array({"BertModel"}));
}

}  // namespace
}  // namespace bert
