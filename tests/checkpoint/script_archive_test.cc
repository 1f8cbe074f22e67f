// TorchScript archives as mapped tensors.
#include "app/checkpoint/script_archive.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <malloc.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/types.h>

#include <fstream>

#include "app/checkpoint/torch_archive.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "tests/support/torch_archive.h"
#include "tests/testing.h"

namespace bert {
namespace {

using testing::ArchiveMember;
using testing::Contains;
using testing::TemporaryDirectory;

constexpr int64_t kNumbers = 4 << 20;  // 16 MiB

/// Saves a module with a submodule, whose tensors have three dtypes.
std::string save_module(const TemporaryDirectory& directory) {
  torch::jit::Module module("Outer"), inner("Inner");
  inner.register_parameter("weight", torch::arange(kNumbers).to(torch::kFloat), /*is_buffer=*/false);
  inner.register_parameter("half", torch::arange(6).view({2, 3}).to(torch::kHalf), /*is_buffer=*/false);
  module.register_module("inner", inner);
  module.register_buffer("ids", torch::arange(3));
  module.register_buffer("none", torch::empty({0}));
  module.register_attribute("size", c10::IntType::get(), 3);
  module.save(directory.path("module.pt"), {{"config.json", "{}"}, {"vocab.txt", "a\n"}});
  return directory.path("module.pt");
}

/// Anonymous memory of this process in bytes, without what is free.
int64_t anonymous_memory() {
  ::malloc_trim(0);
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) return 1024 * std::stoll(line.substr(8));
  }
  return 0;
}

/// The members of an archive, to be changed and written again.
std::vector<ArchiveMember> members_of(const std::string& path) {
  const std::string bytes = read_file(path);
  std::vector<ArchiveMember> members;
  for (const TorchMember& member : torch_members(bytes, path)) {
    if (!member.deflated) members.push_back({std::string(member.name), bytes.substr(member.begin, member.bytes)});
  }
  return members;
}

TEST_CASE("An archive is read as tensors by their path, and files by their name", "[unit][script_archive]") {
  const TemporaryDirectory directory;
  const ScriptArchive archive = read_script_archive(save_module(directory));
  CHECK(archive.files == std::map<std::string, std::string>{{"config.json", "{}"}, {"vocab.txt", "a\n"}});
  REQUIRE(archive.tensors.size() == 4);
  CHECK(at::equal(archive.tensors["inner.weight"], torch::arange(kNumbers).to(torch::kFloat)));
  CHECK(at::equal(archive.tensors["inner.half"], torch::arange(6).view({2, 3}).to(torch::kHalf)));
  CHECK(at::equal(archive.tensors["ids"], torch::arange(3)));
  CHECK(archive.tensors["none"].numel() == 0);
}

TEST_CASE("The tensors of an archive take no memory of their own", "[unit][script_archive]") {
  const TemporaryDirectory directory;
  const std::string path = save_module(directory);
  static_cast<void>(read_script_archive(path));  // LibTorch's own memory
  const int64_t before = anonymous_memory();
  const ScriptArchive archive = read_script_archive(path);
  const torch::Tensor& weight = archive.tensors["inner.weight"];
  CHECK(weight.sum().item<double>() > 0);  // every page has been read
  const int64_t bytes = weight.numel() * weight.itemsize();
  CHECK(anonymous_memory() - before < bytes / 4);
  const torch::Tensor copy = weight.clone();  // the twin: memory of its own is seen
  CHECK(anonymous_memory() - before >= bytes / 2);
}

TEST_CASE("An archive that contradicts itself is refused", "[unit][script_archive]") {
  const TemporaryDirectory directory;
  const std::vector<ArchiveMember> whole = members_of(save_module(directory));
  const std::string path = directory.path("changed.pt");
  const auto write = [&](const std::vector<ArchiveMember>& members) {
    std::ofstream(path, std::ios::binary) << testing::torch_archive(members);
  };
  write(whole);
  CHECK(read_script_archive(path).tensors.size() == 4);
  const auto refused = [&](const std::string& name, const std::string& content, const std::string& message) {
    INFO(name);
    std::vector<ArchiveMember> members = whole;
    size_t found = 0;
    for (ArchiveMember& member : members) {
      if (!member.name.ends_with("/" + name)) continue;
      member.content = content;
      ++found;
    }
    REQUIRE(found == 1);
    write(members);
    CHECK_THROWS_AS(read_script_archive(path), DataError);
    CHECK_THROWS_WITH(read_script_archive(path), Contains(path + ": LibTorch cannot read it as TorchScript: ") &&
                                                     Contains(message) && !Contains("\n"));
  };
  refused("data/0", std::string(40, '\0'), "does not lie in its member");
  refused("byteorder", "big", "its numbers are not little-endian");
  refused("data.pkl", "\x80\x02).", "data.pkl has no module");
  refused("data.pkl", "\x80\x02", "");  // ends too early
  std::vector<ArchiveMember> members = whole;
  std::erase_if(members, [](const ArchiveMember& member) { return member.name.ends_with("/data/0"); });
  write(members);
  CHECK_THROWS_WITH(read_script_archive(path), Contains("there is no data/0 inside"));
  std::ofstream(path) << "no archive";
  CHECK_THROWS_WITH(read_script_archive(path), Contains("is no TorchScript file"));
  CHECK_THROWS_AS(read_script_archive(directory.path("absent")), InputMissing);
}

}  // namespace
}  // namespace bert
