#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <random>

#include "app/checkpoint/files.h"
#include "app/checkpoint/state.h"
#include "app/system/errors.h"
#include "app/system/fail_point.h"
#include "app/train/run_lock.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "tests/testing.h"

namespace bert {
namespace {

namespace fs = std::filesystem;
using testing::TemporaryDirectory;

/// Tensors with values that follow from `step`.
std::vector<TensorSource> tensors_of(int64_t step, size_t floats = 64) {
  std::vector<TensorSource> sources;
  for (const char* name : {"a.weight", "b.bias"}) {
    const auto data =
        std::make_shared<std::vector<float>>(floats, static_cast<float>(step) + (name[0] == 'a' ? 0.25F : 0.5F));
    sources.push_back({name, "F32", {static_cast<int64_t>(floats)}, [data] {
                         return std::string_view(reinterpret_cast<const char*>(data->data()),
                                                 data->size() * sizeof(float));
                       }});
  }
  return sources;
}

std::string save(const std::string& run, int64_t step, int64_t keep, size_t floats = 64) {
  CheckpointState state;
  state.step = step;
  state.model.vocabulary = {"[PAD]", "[UNK]", "the"};
  const std::vector<TensorSource> tensors = tensors_of(step, floats);
  const std::string directory = checkpoint_directory(run, step);
  CheckpointWriter writer(directory, {.bytes = 2 * safetensors_bytes(tensors), .tensors = 4});
  writer.add_tensors(kModelFile, tensors);
  writer.add_tensors(kOptimizerFile, tensors);
  writer.add_text(kStateFile, write_checkpoint_state(state));
  writer.publish();
  finish_checkpoint(run, step, keep);
  return directory;
}

std::vector<int64_t> steps_of(const std::string& run) {
  std::vector<int64_t> steps;
  for (const CheckpointEntry& entry : list_checkpoints(run)) steps.push_back(entry.step);
  return steps;
}

void overwrite(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

TEST_CASE("The newest checkpoints are kept, latest names the newest", "[unit][checkpoint]") {
  const TemporaryDirectory directory;
  const std::string run = directory.path("run");
  CHECK(list_checkpoints(run).empty());
  for (const int64_t step : {1, 2, 10, 100}) save(run, step, 3);
  CHECK(steps_of(run) == std::vector<int64_t>{2, 10, 100});
  CHECK(names_in(run + "/checkpoints") == std::vector<std::string>{"step-00000002", "step-00000010", "step-00000100"});
  CHECK(names_in(run + "/latest") ==
        std::vector<std::string>{"MANIFEST.json", "model.safetensors", "optimizer.safetensors", "state.json"});
  CHECK(fs::read_symlink(run + "/latest") == "checkpoints/step-00000100");
  const Manifest manifest = verify_checkpoint(run + "/latest");
  CHECK(manifest.at(kModelFile).tensors.size() == 2);
  // Equal contents give equal bytes. A checkpoint replaces another one at the same place.
  const std::string before = read_file(run + "/latest/MANIFEST.json");
  save(run, 100, 3);
  CHECK(read_file(run + "/latest/MANIFEST.json") == before);
  CHECK(names_in(run + "/checkpoints").size() == 3);
}

TEST_CASE("Any flipped bit, cut or emptied file of a checkpoint is found", "[unit][checkpoint]") {
  const TemporaryDirectory directory;
  const std::string checkpoint = save(directory.path("run"), 1, 3);
  std::mt19937 random(1);
  int tries = 0, silent = 0;
  const auto refused = [&] {
    ++tries;
    try {
      verify_checkpoint(checkpoint);
      ++silent;
    } catch (const DataError&) {
    } catch (const InputMissing&) {
    }
  };
  for (const std::string& name : names_in(checkpoint)) {
    const std::string path = checkpoint + "/" + name, whole = read_file(path);
    const auto below = [&](size_t bound) { return std::uniform_int_distribution<size_t>(0, bound - 1)(random); };
    for (int i = 0; i < 200; ++i) {
      std::string damaged = whole;
      char& byte = damaged[below(damaged.size())];
      byte = static_cast<char>(byte ^ (1 << below(8)));
      overwrite(path, damaged);
      refused();
    }
    for (int i = 0; i < 20; ++i) {
      overwrite(path, whole.substr(0, below(whole.size())));
      refused();
    }
    overwrite(path, "");
    refused();
    overwrite(path, whole + "x");
    refused();
    fs::remove(path);
    CHECK_THROWS_AS(verify_checkpoint(checkpoint), InputMissing);
    overwrite(path, whole);
  }
  CHECK(tries == 4 * 222);
  CHECK(silent == 0);
  verify_checkpoint(checkpoint);
  overwrite(checkpoint + "/extra", "");
  CHECK_THAT(files_beside_manifest(checkpoint, verify_checkpoint(checkpoint)),
             testing::Contains("has extra, which the manifest does not list"));
  CHECK_THROWS_AS(verify_checkpoint(directory.path("absent")), InputMissing);
}

TEST_CASE("A damaged tensor is named", "[unit][checkpoint]") {
  const TemporaryDirectory directory;
  const std::string checkpoint = save(directory.path("run"), 1, 3);
  const std::string path = checkpoint + "/" + kModelFile;
  std::string bytes = read_file(path);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  overwrite(path, bytes);
  CHECK_THROWS_WITH(verify_checkpoint(checkpoint),
                    testing::Contains("model.safetensors") && testing::Contains("tensor b.bias"));
  // A valid file of another checkpoint.
  const std::string other = save(directory.path("run"), 2, 3);
  fs::copy_file(other + "/" + kModelFile, path, fs::copy_options::overwrite_existing);
  CHECK_THROWS_WITH(verify_checkpoint(checkpoint), testing::Contains("tensor a.weight"));
}

TEST_CASE("Damaged checkpoints are set aside and named, stale ones removed", "[unit][checkpoint]") {
  const TemporaryDirectory directory;
  const std::string run = directory.path("run");
  std::vector<std::string> messages;
  const auto report = [&](const std::string& message) { messages.push_back(message); };
  CHECK_FALSE(newest_valid_checkpoint(run, report));
  for (const int64_t step : {1, 2, 3}) save(run, step, 3);
  overwrite(checkpoint_directory(run, 3) + "/" + kModelFile, "");
  fs::remove(checkpoint_directory(run, 2) + "/" + kManifestFile);
  fs::create_directories(run + "/checkpoints/tmp-step-00000004-77");
  const auto newest = newest_valid_checkpoint(run, report);
  REQUIRE(newest);
  CHECK(newest->step == 1);
  REQUIRE(messages.size() == 2);
  CHECK_THAT(messages[0], testing::Contains("step-00000003.damaged") && testing::Contains("model.safetensors"));
  CHECK_THAT(messages[1], testing::Contains("step-00000002.damaged") && testing::Contains("MANIFEST.json"));
  CHECK(names_in(run + "/checkpoints") ==
        std::vector<std::string>{"step-00000001", "step-00000002.damaged", "step-00000003.damaged"});
  CHECK(fs::read_symlink(run + "/latest") == "checkpoints/step-00000001");
  overwrite(save(run, 3, 3) + "/" + kStateFile, "");  // step-....damaged exists already
  CHECK(newest_valid_checkpoint(run, report)->step == 1);
  CHECK(fs::exists(run + "/checkpoints/step-00000003.damaged-2"));
}

TEST_CASE("A checkpoint under the name of another step is set aside, a name of another form is left alone",
          "[unit][checkpoint]") {
  const TemporaryDirectory directory;
  const std::string run = directory.path("run"), checkpoints = run + "/checkpoints";
  for (const int64_t step : {1, 2, 3}) save(run, step, 3);
  fs::rename(checkpoint_directory(run, 3), checkpoint_directory(run, 40));
  fs::rename(checkpoint_directory(run, 2), checkpoints + "/step-2");
  CHECK_THROWS_WITH(verify_checkpoint(checkpoint_directory(run, 40) + "/"),
                    testing::Contains("is of step 3, and its directory is named after step 40; rename that to "
                                      "step-00000003"));
  std::vector<std::string> messages;
  const auto newest = newest_valid_checkpoint(run, [&](const std::string& said) { messages.push_back(said); });
  REQUIRE(newest);
  CHECK(newest->step == 1);
  CHECK(names_in(checkpoints) == std::vector<std::string>{"step-00000001", "step-00000040.damaged", "step-2"});
  REQUIRE(messages.size() == 2);
  CHECK_THAT(messages[0], testing::Contains("step-2: is left alone: the checkpoint of step 2 is named step-00000002"));
  CHECK_THAT(messages[1], testing::Contains("step-00000040.damaged"));
}

TEST_CASE("A run's valid checkpoint is found without its link, and past damaged ones", "[unit][checkpoint]") {
  const TemporaryDirectory directory;
  const std::string run = directory.path("run");
  for (const int64_t step : {1, 2, 3}) save(run, step, 9);
  std::vector<std::string> notes;
  const auto found = [&](const std::string& path) {
    notes.clear();
    const VerifiedCheckpoint checkpoint =
        find_valid_checkpoint(path, [&](const std::string& note) { notes.push_back(note); });
    CHECK(checkpoint.manifest.contains(kModelFile));
    return checkpoint.directory;
  };
  CHECK(found(run) == checkpoint_directory(run, 3));
  CHECK(found(checkpoint_directory(run, 1)) == checkpoint_directory(run, 1));
  CHECK(notes.empty());
  fs::remove(run + "/latest");  // latest decides, also for an older checkpoint
  fs::create_directory_symlink("checkpoints/step-00000002", run + "/latest");
  CHECK(found(run) == checkpoint_directory(run, 2));
  CHECK(notes.empty());
  fs::rename(checkpoint_directory(run, 2), directory.path("elsewhere"));
  CHECK(found(run) == checkpoint_directory(run, 3));
  REQUIRE(notes.size() == 1);
  CHECK(notes[0] == run + "/latest: points to nothing; using " + checkpoint_directory(run, 3));
  fs::remove(run + "/latest");
  CHECK(found(run) == checkpoint_directory(run, 3));
  REQUIRE(notes.size() == 1);
  CHECK(notes[0] == run + "/latest: is not there; using " + checkpoint_directory(run, 3));

  fs::create_directory_symlink("checkpoints/step-00000003", run + "/latest");
  fs::resize_file(checkpoint_directory(run, 3) + "/" + kModelFile, 10);
  CHECK(found(run) == checkpoint_directory(run, 1));
  REQUIRE(notes.size() == 1);
  CHECK_THAT(notes[0], testing::Contains("step-00000003/model.safetensors: damaged: 10 bytes, the manifest says") &&
                           testing::Contains("; using " + checkpoint_directory(run, 1)));
  CHECK(names_in(run + "/checkpoints") == std::vector<std::string>{"step-00000001", "step-00000003"});

  fs::remove(checkpoint_directory(run, 1) + "/" + kManifestFile);
  CHECK_THROWS_AS(found(run), DataError);
  CHECK_THROWS_WITH(found(run), testing::Contains(run + ": has no valid checkpoint: ") &&
                                    testing::Contains("step-00000003/model.safetensors: damaged"));
  fs::remove_all(run + "/checkpoints");
  CHECK_THROWS_WITH(found(run), testing::Contains(run + ": the run has no checkpoint yet"));
  CHECK_THROWS_AS(found(run), InputMissing);
  CHECK_THROWS_WITH(found(directory.path()), testing::Contains("is no checkpoint: it has no MANIFEST.json"));
}

TEST_CASE("Verifying tells how much is read", "[unit][checkpoint]") {
  const TemporaryDirectory directory;
  constexpr size_t kFloats = 5 << 20;  // 20 MiB in each tensor: files are read in several pieces
  const std::string checkpoint = save(directory.path("run"), 1, 3, kFloats);
  std::vector<double> shares;
  verify_checkpoint(checkpoint, [&](double share) { shares.push_back(share); });
  CHECK(shares.size() > 5);
  CHECK(std::ranges::is_sorted(shares));
  CHECK(shares.front() < 0.3);
  CHECK(shares.back() == 1);
}

TEST_CASE("What stands in the place of a checkpoint's file and is none is damage", "[unit][checkpoint]") {
  for (const char* name : {kManifestFile, kModelFile, kStateFile}) {
    CAPTURE(name);
    const TemporaryDirectory directory;
    const std::string run = directory.path("run");
    int64_t step = 1;
    save(run, step, 9);
    const auto replaced = [&](const std::function<void(const std::string& path)>& put) {
      const std::string path = save(run, ++step, 9) + "/" + name;
      fs::remove(path);
      put(path);
      CHECK_THROWS_WITH(verify_checkpoint(checkpoint_directory(run, step)),
                        testing::Contains(path + ": damaged: is not a regular file"));
    };
    replaced([](const std::string& path) { fs::create_directory(path); });
    replaced([](const std::string& path) { fs::create_symlink(path, path); });
    replaced([](const std::string& path) { fs::create_symlink("/dev/null", path); });
    replaced([](const std::string& path) { REQUIRE(mkfifo(path.c_str(), 0600) == 0); });
    fs::create_directory_symlink("step-00000099", run + "/checkpoints/step-00000099");
    std::vector<std::string> messages;
    const auto newest = newest_valid_checkpoint(run, [&](const std::string& said) { messages.push_back(said); });
    REQUIRE(newest);
    CHECK(newest->step == 1);
    CHECK(messages.size() == 5);
  }
}

TEST_CASE("Checkpoints that cannot be seen are an error, and not gone", "[unit][checkpoint]") {
  const TemporaryDirectory run;
  CHECK(list_checkpoints(run.path()).empty());
  std::filesystem::create_symlink("checkpoints",
                                  run.path("checkpoints"));  // a loop, because root may read without permission
  CHECK_THROWS_AS(list_checkpoints(run.path()), IoError);
  CHECK_THROWS_WITH(newest_valid_checkpoint(run.path(), [](const std::string&) {}),
                    testing::Contains("checkpoints: cannot read this directory: "));
}

TEST_CASE("After a kill at any point of writing, the newest checkpoint is whole", "[unit][checkpoint]") {
  const TemporaryDirectory directory;
  // For each point: the number of visits in one save, and the step that a resume finds.
  struct Point {
    const char* name;
    int times;
    int64_t found;
  };
  const Point points[] = {{"checkpoint.write", 6, 1},  {"checkpoint.fsync", 3, 1},   {"checkpoint.manifest", 1, 1},
                          {"checkpoint.rename", 1, 1}, {"checkpoint.renamed", 1, 2}, {"checkpoint.latest", 1, 2},
                          {"checkpoint.prune", 1, 2}};
  int runs = 0;
  for (const Point& point : points) {
    for (int time = 1; time <= point.times; ++time) {
      const std::string run = directory.path(std::to_string(runs++)),
                        value = std::string(point.name) + ":" + std::to_string(time);
      INFO(value);
      save(run, 1, 1);
      const pid_t child = fork();
      if (child == 0) {
        setenv("BERT_FAIL_POINT", value.c_str(), 1);
        save(run, 2, 1);
        _exit(0);
      }
      int status = 0;
      REQUIRE(waitpid(child, &status, 0) == child);
      REQUIRE(WIFSIGNALED(status));
      CHECK(WTERMSIG(status) == SIGKILL);
      int damaged = 0;
      const auto newest = newest_valid_checkpoint(run, [&](const std::string&) { ++damaged; });
      REQUIRE(newest);
      CHECK(newest->step == point.found);
      CHECK(fs::read_symlink(run + "/latest") == "checkpoints/step-0000000" + std::to_string(point.found));
      CHECK(damaged == 0);
      save(run, 3, 1);
      CHECK(names_in(run + "/checkpoints") == std::vector<std::string>{"step-00000003"});
      CHECK(names_in(run) == std::vector<std::string>{"checkpoints", "latest"});
    }
  }
}

TEST_CASE("A full disk leaves the old checkpoint and no rest of the new one", "[unit][checkpoint]") {
  const TemporaryDirectory directory;
  const std::string disk = directory.path("disk");
  fs::create_directories(disk);
  if (mount("bert-test", disk.c_str(), "tmpfs", 0, "size=400k") != 0) BERT_SKIP("mounting a small disk needs root");
  struct Unmount {
    const std::string& path;
    ~Unmount() { umount2(path.c_str(), MNT_DETACH); }
  } unmount{disk};
  const std::string run = disk + "/run";
  save(run, 1, 1);
  constexpr size_t kTooMany = 60000;  // floats; twice 240 KB in one file
  CHECK_THROWS_WITH(save(run, 2, 1, kTooMany),
                    testing::Contains("step-00000002") && testing::Contains("needs") && testing::Contains("are free"));
  CHECK(names_in(run + "/checkpoints") == std::vector<std::string>{"step-00000001"});
  {  // the disk fills up during the write
    CheckpointWriter writer(checkpoint_directory(run, 2), {});
    writer.add_tensors(kModelFile, tensors_of(2, 2000));
    CHECK_THROWS_WITH(
        writer.add_tensors(kOptimizerFile, tensors_of(2, kTooMany)),
        testing::Contains("the disk is full") && testing::Contains("needed") && testing::Contains("free"));
  }
  CHECK(names_in(run + "/checkpoints") == std::vector<std::string>{"step-00000001"});
  CHECK(newest_valid_checkpoint(run, [](const std::string&) {})->step == 1);
}

TEST_CASE("A checkpoint asks for room for its manifest too", "[unit][checkpoint]") {
  const TemporaryDirectory directory;
  std::vector<TensorSource> tensors;
  const std::string value = "abcd";
  for (int i = 0; i < 1500; ++i) {  // BERT-large has 393 tensors and two moments of each
    const std::string name = "optimizer.bert.encoder.layer." + std::to_string(i) + ".attention.output.LayerNorm.weight";
    tensors.push_back({name, "F32", {1}, [&value] { return std::string_view(value); }});
  }
  CheckpointWriter writer(directory.path("checkpoint"), {.bytes = safetensors_bytes(tensors), .tensors = 1500});
  writer.add_tensors(kModelFile, tensors);
  writer.add_text(kStateFile, "{}");
  writer.publish();
  const auto manifest = static_cast<int64_t>(fs::file_size(directory.path("checkpoint/MANIFEST.json")));
  CHECK(manifest > 128 << 10);
  constexpr int64_t kNowhereFree = int64_t{1} << 60;
  std::string refused;
  try {
    const CheckpointWriter other(directory.path("other"), {.bytes = kNowhereFree, .tensors = 1500});
  } catch (const IoError& error) {
    refused = error.what();
  }
  const size_t number = refused.find("needs ");
  REQUIRE(number != std::string::npos);
  CHECK(std::stoll(refused.substr(number + 6)) - kNowhereFree > manifest);
}

/// All that state.json keeps.
auto kept(const CheckpointState& state) {
  return std::tie(state.step, state.sampler_seed, state.consumed_samples, state.consumed_steps, state.loss_scale,
                  state.growth_tracker, state.consecutive_skips, state.model.objective, state.model.task,
                  state.model.labels, state.config, state.config_sha256, state.data, state.model.vocabulary,
                  state.metrics);
}

TEST_CASE("state.json keeps every value", "[unit][checkpoint]") {
  CheckpointState state;
  state.model.objective = Objective::kSop;
  state.model.task = "sst2";
  state.model.labels = {"no", "yes"};
  state.step = 7038;
  state.sampler_seed = INT64_MAX;
  state.consumed_samples = int64_t{7038} * 65536;
  state.consumed_steps = 7040;
  state.loss_scale = 1.1;
  state.growth_tracker = 1999;
  state.consecutive_skips = 99;
  state.config = "{\n  \"seed\": 3\n}\n";
  state.config_sha256 = std::string(64, 'a');
  state.data = {{"train", {.content_checksum = "00ff", .examples = int64_t{1} << 40}},
                {"validation", {.content_checksum = "ff00", .examples = 1}}};
  state.model.vocabulary = {"[PAD]", "\"quoted\\", "caf\xc3\xa9", ""};
  state.metrics = {{"mlm_loss", 0.1 + 0.2}};
  CHECK(kept(parse_checkpoint_state(write_checkpoint_state(state), "state.json")) == kept(state));
  CHECK_THROWS_WITH(parse_checkpoint_state("{\"step\": 1.5}", "state.json"), testing::Contains("format_version"));
  CHECK_THROWS_AS(parse_checkpoint_state("[]", "state.json"), DataError);
  CHECK_THROWS_AS(parse_checkpoint_state(std::string(100000, '['), "state.json"), DataError);
  std::string text = write_checkpoint_state(state);
  CHECK_THROWS_WITH(parse_checkpoint_state(text.replace(text.find("7038"), 4, "7.38"), "state.json"),
                    testing::Contains("\"step\""));
  const CheckpointState older;  // like a state of a version that kept neither digest nor data
  CHECK(write_checkpoint_state(older).find("data") == std::string::npos);
  CHECK(kept(parse_checkpoint_state(write_checkpoint_state(older), "state.json")) == kept(older));
  std::string without_skips = write_checkpoint_state(older);
  const size_t skips = without_skips.find("\"consecutive_skips\": 0,");
  REQUIRE(skips != std::string::npos);
  CHECK(kept(parse_checkpoint_state(without_skips.erase(skips, 23), "state.json")) == kept(older));
  // Keys of the first version: states of generators, and the case of letters.
  std::string oldest = write_checkpoint_state(older);
  oldest.replace(oldest.find("{"), 1, R"({"do_lower_case": true, "rng": {"cpu": "00ff"},)");
  CHECK(kept(parse_checkpoint_state(oldest, "state.json")) == kept(older));
  state.model.vocabulary = {"\xff"};
  CHECK_THROWS_AS(write_checkpoint_state(state), DataError);
}

TEST_CASE("A second process on a run directory is refused with the first one's pid", "[unit][checkpoint]") {
  const TemporaryDirectory directory;
  const std::string run = directory.path("run");
  int ready[2];
  REQUIRE(pipe(ready) == 0);
  const pid_t child = fork();
  if (child == 0) {
    const RunLock lock(run);
    if (::write(ready[1], "x", 1) == 1) pause();
    _exit(1);
  }
  char byte = 0;
  REQUIRE(::read(ready[0], &byte, 1) == 1);
  CHECK_THROWS_WITH(RunLock(run), testing::Contains(std::to_string(child)) && testing::Contains(run));
  CHECK_THROWS_AS(RunLock(run), RunLocked);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  { const RunLock free_again(run); }
  const RunLock and_again(run);
  CHECK_THROWS_AS(RunLock(run), ConfigError);
  close(ready[0]);
  close(ready[1]);
}

TEST_CASE("A lock notices that its directory was moved or removed, also if another run has taken the path",
          "[unit][checkpoint]") {
  const TemporaryDirectory directory;
  const std::string run = directory.path("run"), moved = directory.path("moved");
  const RunLock lock(run);
  lock.check();
  std::filesystem::rename(run, moved);
  CHECK_THROWS_WITH(lock.check(), testing::Contains(run + "/lock: ") && testing::Contains("removed or moved"));
  const RunLock other(run);
  other.check();
  CHECK_THROWS_AS(lock.check(), IoError);
  std::filesystem::remove_all(run);
  CHECK_THROWS_AS(other.check(), IoError);
  std::filesystem::rename(moved, run);
  lock.check();
}

TEST_CASE("A lock that does not fit on the disk is an error with its path and what is free", "[unit][checkpoint]") {
  const TemporaryDirectory directory;
  std::filesystem::create_symlink("/dev/full", directory.path("lock"));
  CHECK_THROWS_WITH(RunLock(directory.path()), testing::Contains("/lock: cannot write: the disk is full: ") &&
                                                   testing::Contains(" bytes more are needed, ") &&
                                                   testing::Contains("are free"));
}

}  // namespace
}  // namespace bert
