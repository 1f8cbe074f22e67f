#include "tests/fuzz/mutation_formats.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>

#include "app/checkpoint/files.h"
#include "app/checkpoint/state.h"
#include "app/checkpoint/torch_archive.h"
#include "app/config/pretrain_config.h"
#include "app/interop/conversion.h"
#include "app/interop/hugging_face.h"
#include "app/interop/hugging_face_files.h"
#include "app/launcher/job/job_messages.h"
#include "app/launcher/ranks/failure.h"
#include "app/net/secure_channel.h"
#include "app/report/metrics.h"
#include "data/creation/document_tokenizer.h"
#include "data/formats/example_file.h"
#include "data/formats/shard.h"
#include "data/io/error.h"
#include "data/io/plugin.h"
#include "data/tokenizer/tokenizer.h"
#include "tests/fuzz/corpus_formats.h"
#include "tests/fuzz/foreign_formats.h"
#include "tests/support/event_loop_testing.h"
#include "tests/support/example_data.h"
#include "tests/support/foreign_testing.h"
#include "tests/support/sentencepiece_model.h"
#include "tests/support/text_file.h"
#include "tests/support/torch_archive.h"

namespace bert::testing {
namespace {

namespace fs = std::filesystem;

using Files = std::map<std::string, std::string>;  // name to content

constexpr std::string_view kText =
    "The unaffable cat, 42 caf\xc3\xa9s [MASK]. Sat on \xe4\xb8\xad it!\n\nAnother one.\n";

Files files_in(const std::string& directory) {
  Files files;
  for (const auto& entry : fs::directory_iterator(directory))
    files[entry.path().filename().string()] = read_file(entry.path().string());
  return files;
}

Format shards(const std::string& directory) {
  write_made_up_shard(directory + "/narrow.shard", 0, 20);
  write_made_up_shard(directory + "/wide.shard", 0, 20, 100000);
  Files files;
  for (const char* name : {"narrow.shard", "wide.shard"}) {
    files[name] = read_file(directory + "/" + name);
    fs::remove(directory + "/" + name);
  }
  return format_of_files("shard", true, directory, files, [](const std::string& place) {
    for (const std::string& file : shard_files(place)) {
      const PretrainingShards opened({file});
      for (int64_t i = 0; i < opened.size(); ++i) static_cast<void>(opened.example(i));
      opened.shards().front()->verify();
    }
  });
}

/// A file of examples in a format that other programs have too. Some changes of such a file are no damage: gzip's head
/// has bytes without meaning, and a TFRecord without its last record is a whole TFRecord. A change counts as refused if
/// all that is read was written so; anything else that is read is silent damage in a format with checksums (`sealed`).
Format example_file(const std::string& format, bool sealed, const std::string& directory,
                    const std::vector<PretrainingExample>& examples) {
  static const Vocabulary vocabulary = [] {
    std::vector<std::string> tokens = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
    while (tokens.size() < 1004) tokens.push_back(fmt::format("t{}", tokens.size()));
    return Vocabulary(tokens);
  }();
  const std::string path = directory + "/examples", other_path = directory + "/other";
  const ExampleFileInfo info{.max_seq_length = 16,
                             .max_predictions_per_seq = 3,
                             .vocab_size = vocabulary.size(),
                             .vocabulary_checksum = vocabulary.hash(),
                             .parameters = {{"random_seed", "12345"}}};
  // The other file, which the first one is spliced with, has the same examples in another order.
  for (const std::string& file : {path, other_path}) {
    const auto writer = create_examples_file(format, file, info, &vocabulary);
    std::vector<PretrainingExample> in_order = examples;
    if (file == other_path) std::reverse(in_order.begin(), in_order.end());
    for (const PretrainingExample& example : in_order) writer->add(example);
    writer->commit();
  }
  const ExampleFileInfo written = open_examples(path, &vocabulary)->info();
  const std::string bytes = read_file(path), other = read_file(other_path);
  for (const std::string& file : {path, other_path}) fs::remove(file);
  const auto read_all = [=](const std::string& place) {
    const auto reader = open_examples(place + "/examples", &vocabulary);
    bool as_written =
        reader->info().parameters == written.parameters && reader->info().vocab_size == written.vocab_size;
    int64_t read = 0;
    for (PretrainingExample example; reader->next(example); ++read)
      as_written = as_written && std::find(examples.begin(), examples.end(), example) != examples.end();
    if (reader->size() >= 0) as_written = as_written && read == static_cast<int64_t>(examples.size());
    if (as_written && read_file(place + "/examples") != bytes) throw DataError("all that is read was written");
  };
  return format_of_files(format, sealed, directory, {{"examples", bytes}}, read_all, other);
}

/// Adds the formats of other programs, those of Arrow where this build has it.
void add_example_files(const std::string& directory, std::vector<Format>& formats) {
  std::vector<PretrainingExample> examples, pairs;
  for (int32_t i = 0; i < 20; ++i) {
    examples.push_back(made_up_example(i));
    pairs.push_back({{2, 4, 6 + i, 3, 7, 3}, 4, {1}, {5 + i}, i % 2 == 1});
  }
  for (const char* format : {"tfrecord", "tfrecord.gz", "hdf5"})
    formats.push_back(example_file(format, true, directory, examples));
  if (!fs::exists(plugin_path("libbert_arrow.so"))) return;
  formats.push_back(example_file("arrow", false, directory, examples));  // no checksums
  formats.push_back(example_file("parquet", false, directory, pairs));   // of the pages alone
}

std::vector<TensorSource> some_tensors() {
  static const std::vector<float> values(64, 0.5F);
  const auto bytes = [](size_t count) {
    return [count] { return std::string_view(reinterpret_cast<const char*>(values.data()), count); };
  };
  return {{"bert.a.weight", "F32", {8, 8}, bytes(256)},
          {"bert.b.bias", "BF16", {3}, bytes(6)},
          {"bert.empty", "I64", {0, 4}, bytes(0)}};
}

void read_tensors(const std::string& path) {
  const SafetensorsFile file(path);
  for (const TensorInfo& tensor : file.tensors()) {
    const std::string_view data = file.data(tensor);
    static_cast<void>(checksum(data.data(), data.size()));
  }
}

PretrainConfig some_config() {
  PretrainConfig config;
  config.run_directory = "/run";
  config.data.train = {"/train.shard"};
  config.data.vocab_file = "/vocab.txt";
  return config;
}

std::string some_state() {
  CheckpointState state;
  state.step = 7038;
  state.sampler_seed = 42;
  state.config = to_json(some_config());
  state.config_sha256 = config_sha256(some_config());
  state.data = {{"train", {.content_checksum = "00ff", .examples = 1000}}};
  state.model.vocabulary = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "caf\xc3\xa9"};
  state.metrics = {{"mlm_loss", 0.5}};
  return write_checkpoint_state(state);
}

void read_state(const std::string& path) {
  const CheckpointState state = parse_checkpoint_state(read_file(path), path);
  if (!state.config.empty()) static_cast<void>(parse_pretrain_config(state.config, path));
  static_cast<void>(Vocabulary(state.model.vocabulary, path));
}

Format checkpoints(const std::string& directory) {
  const std::string place = directory + "/new-checkpoint";
  {
    CheckpointWriter writer(place, {});
    writer.add_tensors(kModelFile, some_tensors());
    writer.add_tensors(kOptimizerFile, some_tensors());
    writer.add_text(kStateFile, some_state());
    writer.publish();
  }
  const Files files = files_in(place);
  fs::remove_all(place);
  return format_of_files("checkpoint", true, directory, files, [](const std::string& read_from) {
    for (const auto& [name, entry] : verify_checkpoint(read_from)) {
      if (!entry.tensors.empty()) read_tensors(read_from + "/" + name);
    }
    read_state(read_from + "/" + kStateFile);
  });
}

Format safetensors(const std::string& directory) {
  std::string bytes;
  write_safetensors([&](const void* data, size_t size) { bytes.append(static_cast<const char*>(data), size); },
                    some_tensors());
  return format_of_files("safetensors", false, directory, {{"a.safetensors", bytes}},
                         [](const std::string& place) { read_tensors(place + "/a.safetensors"); });
}

/// A model directory of transformers whose weights are one shard.
Format model_directory(const std::string& directory) {
  const std::string shard = "model-00001-of-00001.safetensors";
  const std::vector<TensorSource> tensors = small_bert_tensors();
  std::string bytes, index;
  write_safetensors([&](const void* data, size_t size) { bytes.append(static_cast<const char*>(data), size); },
                    tensors);
  for (const TensorSource& tensor : tensors)
    index += fmt::format("{}\"{}\": \"{}\"", index.empty() ? "" : ", ", tensor.name, shard);
  Files files = hugging_face_files(
      {.config = small_bert(),
       .vocabulary = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "caf\xc3\xa9", "."},
       .tokenizer = {}});
  files[shard] = bytes;
  files["model.safetensors.index.json"] = "{\"metadata\": {\"total_size\": 1234}, \"weight_map\": {" + index + "}}";
  return format_of_files("huggingface", false, directory, files, [](const std::string& place) {
    ForeignCheckpoint checkpoint = read_hugging_face(place);
    resize_vocabulary(checkpoint, checkpoint.model.config.vocab_size + 2);
    for (const TensorSource& tensor : checkpoint.tensors)
      static_cast<void>(checksum(tensor.bytes().data(), tensor.bytes().size()));
    static_cast<void>(checkpoint.report.text());
    static_cast<void>(files_beside(checkpoint));
  });
}

Format exports(const std::string& directory) {
  const Files files = {{"bert.pt", torch_archive(archive_members())},
                       {"wide.pt", torch_archive(archive_members(), /*wide=*/true)}};
  return format_of_files("torchscript", true, directory, files, [](const std::string& place) {
    for (const char* name : {"/bert.pt", "/wide.pt"}) verify_torch_archive(read_file(place + name), place + name);
  });
}

Format states(const std::string& directory) {
  return format_of_files("state", false, directory, {{"state.json", some_state()}},
                         [](const std::string& place) { read_state(place + "/state.json"); });
}

Format configurations(const std::string& directory) {
  const Files files = {{"base.json", to_json(some_config())}, {"run.json", R"({
  "extends": "base.json",  // with a comment
  "run_directory": "run", "max_steps": 100, "precision": "bf16",
  "data": {"train": ["a.shard", "b.shard"], "vocab_file": "vocab.txt", "do_lower_case": false},
  "optimizer": {"lr": 1e-3}, /* and another */
  "schedule": {"type": "linear", "warmup_proportion": 0.1}
})"}};
  return format_of_files("configuration", false, directory, files, [](const std::string& place) {
    static_cast<void>(to_json(load_pretrain_config(place + "/run.json")));
  });
}

std::string some_vocabulary() {
  std::string text;
  for (const char* token : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "un", "##aff", "##able", "cat", ",",
                            "4", "##2", "cafe", "##s", "sat", "\xe4\xb8\xad", "."})
    text.append(token).append("\n");
  return text;
}

/// Uses a tokenizer in every way that the verbs use it.
void use(const Tokenizer& tokenizer) {
  const Encoding encoding = tokenizer.encode_with_offsets(kText);
  static_cast<void>(character_spans(kText, encoding.spans));
  static_cast<void>(tokenizer.tokens(kText));
  static_cast<void>(tokenizer.decode(encoding.ids));
  for (const int32_t id : encoding.ids) static_cast<void>(tokenizer.is_continuation(id));
}

Format vocabularies(const std::string& directory) {
  return format_of_files("vocabulary", false, directory, {{"vocab.txt", some_vocabulary()}},
                         [](const std::string& place) {
                           TokenizerConfig config;
                           config.match_special_tokens = true;
                           use(*make_tokenizer(place + "/vocab.txt", config));
                         });
}

Format texts(const std::string& directory) {
  const Files files = {
      {"text.txt", "\xef\xbb\xbf" + std::string(kText) + "Mr. Smith's 3.5.\r\n\r\n" + std::string(kText)},
      {"vocab.txt", some_vocabulary()}};
  return format_of_files("text", false, directory, files, [](const std::string& place) {
    const auto tokenizer = make_tokenizer(place + "/vocab.txt");
    for (const Layout layout : {Layout::kSentences, Layout::kProse}) {
      ReaderOptions reader;
      reader.layout = layout;
      static_cast<void>(read_documents({place + "/text.txt"}, *tokenizer,
                                       {.reader = reader, .num_threads = 1, .progress = {}, .counted = {}}));
    }
  });
}

Format metrics(const std::string& directory) {
  std::string text;
  for (int step = 1; step < 6; ++step)
    text += fmt::format("{{\"step\": {}, \"loss\": 0.{}, \"lr\": 1e-4}}\n", step, step);
  return format_of_files("metrics", false, directory, {{"metrics.jsonl", text}},
                         [](const std::string& place) { MetricsFile(place + "/metrics.jsonl", 3); });
}

Format error_files(const std::string& directory) {
  const Files files = {
      {"elastic.json",
       R"({"message": {"message": "RuntimeError: no", "extraInfo": {"timestamp": "1700000000", "phase": "forward"}}})"},
      {"own.json",
       R"({"message": "DataError: no", "phase": "backward", "last_collective": "allreduce", "timestamp": 17})"}};
  return format_of_files("error file", false, directory, files, [](const std::string& place) {
    for (const char* name : {"elastic.json", "own.json"}) {
      const RankTraces traces{place + "/" + name, Descriptor()};
      const Failure failure = describe_exit({}, {}, {.local_rank = 0, .pid = 7, .status = 256}, traces);
      static_cast<void>(cause_of(failure));
      static_cast<void>(one_line(failure));
      static_cast<void>(decode(encode(FailedMessage{1, failure})));
    }
  });
}

Format job_messages(const std::string& directory) {
  OrderMessage order;
  order.order.reason = "because";
  Failure failure;
  failure.message = "RuntimeError: \"no\"";
  const Files files = {{"join", encode(JoinMessage{"job", 1, 4, {}})},
                       {"stopped", encode(StoppedMessage{})},
                       {"succeeded", encode(SucceededMessage{3})},
                       {"failed", encode(FailedMessage{3, failure})},
                       {"interrupted", encode(InterruptedMessage{15})},
                       {"refused", encode(RefusedMessage{78, "no"})},
                       {"order", encode(order)}};
  return format_of_files("job message", false, directory, files, [](const std::string& place) {
    for (const auto& [name, bytes] : files_in(place)) static_cast<void>(encode(decode(bytes)));
  });
}

Format sentencepiece_models(const std::string& directory) {
  return format_of_files("sentencepiece", false, directory, {{"tokenizer.model", sentencepiece_model()}},
                         [](const std::string& place) { use(*make_tokenizer(place + "/tokenizer.model")); });
}

std::array<Descriptor, 2> socket_pair() {
  std::array<int, 2> sockets{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sockets.data()) != 0)
    throw IoError("cannot make a pair of sockets");
  return {Descriptor(sockets[0]), Descriptor(sockets[1])};
}

/// An agent sends frames to a host through a wire that changes a handshake message or a frame. Returns if the host
/// receives a frame that was not sent at this place, so that the change counts as accepted; else throws.
void exchange_frames(Mutator* mutator) {
  constexpr size_t kFrameBytes = 34;  // of a frame besides its payload: its header, and a record of TLS 1.3
  const std::vector<std::string> payloads = {"", "an order", std::string(300, 'x'), R"({"type": "succeeded"})"};
  size_t frame_bytes = 0;
  for (const std::string& payload : payloads) frame_bytes += kFrameBytes + payload.size();
  const bool change_handshake = mutator != nullptr && mutator->below(4) == 0;

  EventLoop loop;
  auto [agent_end, agent_wire] = socket_pair();
  auto [host_wire, host_end] = socket_pair();
  const std::string token(32, 't');
  std::vector<Frame> received;
  bool agent_ready = false;
  std::string agent_closed, host_closed;
  SecureChannel host(loop, std::move(host_end), SecureChannel::Role::kHost, token,
                     {[] {}, [&](const Frame& frame) { received.push_back(frame); },
                      [&](const std::string& why) { host_closed = why; }});
  SecureChannel agent(
      loop, std::move(agent_end), SecureChannel::Role::kAgent, token,
      {[&] { agent_ready = true; }, [](const Frame&) {}, [&](const std::string& why) { agent_closed = why; }});
  const auto wait_for = [&](const auto& condition) {
    if (!run_until(loop, condition)) throw std::runtime_error("nothing happens on a channel");
  };
  std::string from_agent;
  const auto take = [](int socket) {
    std::array<char, 1 << 16> buffer{};
    const ssize_t got = recv(socket, buffer.data(), buffer.size(), 0);
    return std::string(buffer.data(), got > 0 ? static_cast<size_t>(got) : 0);
  };
  loop.watch(host_wire.get(), POLLIN, [&](short) {
    const std::string bytes = take(host_wire.get());
    static_cast<void>(::send(agent_wire.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
  });
  loop.watch(agent_wire.get(), POLLIN, [&](short) { from_agent += take(agent_wire.get()); });

  /// Passes the agent's bytes to the host, in pieces that the socket takes.
  const auto pass = [&](bool changed) {
    std::string bytes = changed ? (*mutator)(from_agent) : from_agent;
    from_agent.clear();
    while (!bytes.empty() && host_closed.empty()) {
      const ssize_t sent = ::send(host_wire.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent > 0) bytes.erase(0, static_cast<size_t>(sent));
      if (sent < 0) loop.run_once();
    }
    if (changed) shutdown(host_wire.get(), SHUT_WR);
  };
  wait_for([&] { return !from_agent.empty(); });  // the greeting
  pass(change_handshake);
  if (!change_handshake) {
    wait_for([&] { return agent_ready && !from_agent.empty(); });  // the proof
    pass(false);
    for (size_t i = 0; i < payloads.size(); ++i) agent.send(7, static_cast<uint32_t>(i), payloads[i]);
    wait_for([&] { return from_agent.size() == frame_bytes; });
    pass(mutator != nullptr);
  }
  wait_for([&] { return !host_closed.empty() || (mutator == nullptr && received.size() == payloads.size()); });
  for (size_t i = 0; i < received.size(); ++i) {
    if (i >= payloads.size() || received[i].payload != payloads[i] || received[i].type != 7 || received[i].stream != i)
      return;
  }
  if (mutator != nullptr) throw DataError("the host: " + host_closed);
}

}  // namespace

Format format_of_files(const std::string& name, bool sealed, const std::string& directory, const Files& files,
                       const std::function<void(const std::string&)>& read, const std::string& other) {
  const std::string place = directory + "/" + name;
  return {name, sealed, [=](Mutator* mutator) {
            fs::create_directories(place);
            const size_t changed = mutator != nullptr ? mutator->below(files.size()) : files.size();
            const auto neighbour = std::next(files.begin(), static_cast<int64_t>((changed + 1) % files.size()));
            const std::string& spliced = other.empty() && files.size() > 1 ? neighbour->second : other;
            size_t index = 0;
            for (const auto& [file, bytes] : files)
              testing::write_text(place + "/" + file, index++ == changed ? (*mutator)(bytes, spliced) : bytes);
            read(place);
          }};
}

std::vector<Format> mutation_formats(const std::string& directory) {
  std::vector<Format> formats = {shards(directory),
                                 checkpoints(directory),
                                 safetensors(directory),
                                 model_directory(directory),
                                 exports(directory),
                                 states(directory),
                                 configurations(directory),
                                 vocabularies(directory),
                                 sentencepiece_models(directory),
                                 texts(directory),
                                 metrics(directory),
                                 error_files(directory),
                                 job_messages(directory),
                                 {"job frames", true, exchange_frames}};
  const std::vector<Format> corpora = corpus_formats(directory);
  formats.insert(formats.end(), corpora.begin(), corpora.end());
  const std::vector<Format> foreign = foreign_checkpoint_formats(directory);
  formats.insert(formats.end(), foreign.begin(), foreign.end());
  add_example_files(directory, formats);
  return formats;
}

}  // namespace bert::testing
