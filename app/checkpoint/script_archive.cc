#include "app/checkpoint/script_archive.h"

#include <ATen/core/jit_type.h>
#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/serialization/unpickler.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

#include "app/checkpoint/torch_archive.h"
#include "app/system/torch_errors.h"
#include "data/io/error.h"
#include "data/io/files.h"

namespace bert {
namespace {

using ObjectPtr = c10::intrusive_ptr<c10::ivalue::Object>;

/// The members of an archive by name, without the archive's own name that begins each. Deflated ones, which are code,
/// are left out.
class Members {
 public:
  explicit Members(const std::string& path) : mapping_(std::make_shared<const MappedFile>(path)) {
    if (!mapping_->view().starts_with("PK")) {  // the first bytes of a zip archive
      throw DataError(
          path +
          ": is no TorchScript file. Name one that `bert export` wrote, or a checkpoint or run directory, or a "
          "model directory of transformers; safetensors alone have no vocabulary");
    }
    for (const TorchMember& member : torch_members(mapping_->view(), path)) {
      verify_torch_member(mapping_->view(), path, member);  // LibTorch does not check the checksums
      const std::string_view name = member.name.substr(std::min(member.name.find('/') + 1, member.name.size()));
      if (!member.deflated) members_[std::string(name)] = mapping_->view().substr(member.begin, member.bytes);
    }
  }

  [[nodiscard]] const std::map<std::string, std::string_view>& all() const { return members_; }
  [[nodiscard]] const std::shared_ptr<const MappedFile>& mapping() const { return mapping_; }

  [[nodiscard]] std::string_view at(const std::string& name) const {
    const auto found = members_.find(name);
    TORCH_CHECK(found != members_.end(), "there is no ", name, " inside");
    return found->second;
  }

 private:
  std::shared_ptr<const MappedFile> mapping_;
  std::map<std::string, std::string_view> members_;
};

/// Reads data.pkl. A module becomes an object whose only slot has the dictionary of its attributes, and a tensor's storage
/// is a member of the archive.
c10::IValue unpickle(const Members& members, std::map<const void*, size_t>& bytes_of_storage) {
  const auto unit = std::make_shared<torch::jit::CompilationUnit>();
  const c10::ClassTypePtr module_type = c10::ClassType::create("__torch__.Module", unit, /*is_module=*/true);
  std::string_view rest = members.at("data.pkl");
  const auto read = [&rest](char* out, size_t bytes) {
    const size_t taken = std::min(bytes, rest.size());
    std::memcpy(out, rest.data(), taken);
    rest.remove_prefix(taken);
    return taken;
  };
  const auto type_of = [&](const c10::QualifiedName&) { return c10::StrongTypePtr(unit, module_type); };
  const auto object_of = [](const c10::StrongTypePtr& type, c10::IValue attributes) {
    ObjectPtr object = c10::ivalue::Object::create(type, 1);
    object->setSlot(0, std::move(attributes));
    return object;
  };
  const auto storage_of = [&](const std::string& key) {
    const std::string_view data = members.at("data/" + key);
    bytes_of_storage[data.data()] = data.size();
    auto holder = std::make_unique<std::shared_ptr<const MappedFile>>(members.mapping());
    return at::DataPtr(
        const_cast<char*>(data.data()), holder.release(),
        [](void* mapping) { delete static_cast<std::shared_ptr<const MappedFile>*>(mapping); }, c10::Device(c10::kCPU));
  };
  return torch::jit::Unpickler(read, type_of, object_of, storage_of, c10::Device(c10::kCPU)).parse_ivalue();
}

/// The module tree of an archive as a flat list of tensors.
class TensorCollector {
 public:
  explicit TensorCollector(const std::map<const void*, size_t>& bytes_of_storage)
      : bytes_of_storage_(bytes_of_storage) {}

  void add(const c10::IValue& module, const std::string& prefix) {
    const c10::IValue& attributes = module.toObjectRef().getSlot(0);
    TORCH_CHECK(attributes.isGenericDict(), "the module ", prefix, " has no attributes");
    for (const auto& item : attributes.toGenericDict()) {
      const std::string name = prefix + item.key().toStringRef();
      if (item.value().isObject()) {
        add(item.value(), name + ".");
      } else if (item.value().isTensor()) {
        check(name, item.value().toTensor());
        tensors.insert(name, item.value().toTensor());
      }
    }
  }

  StateDict tensors;

 private:
  /// LibTorch takes the sizes of a tensor as they are written.
  void check(const std::string& name, const at::Tensor& tensor) const {
    const auto storage = bytes_of_storage_.find(tensor.storage().data());
    const size_t bytes = storage == bytes_of_storage_.end() ? 0 : storage->second,
                 begin = static_cast<size_t>(tensor.storage_offset()) * tensor.itemsize();
    TORCH_CHECK(tensor.is_contiguous() && begin <= bytes && tensor.nbytes() <= bytes - begin &&
                    reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % tensor.itemsize() == 0,
                "the tensor ", name, " does not lie in its member");
  }

  const std::map<const void*, size_t>& bytes_of_storage_;
};

}  // namespace

ScriptArchive read_script_archive(const std::string& path) {
  const Members members(path);
  ScriptArchive archive;
  with_data_errors(path + ": LibTorch cannot read it as TorchScript", [&] {
    TORCH_CHECK(!members.all().contains("byteorder") || members.at("byteorder") == "little",
                "its numbers are not little-endian");
    std::map<const void*, size_t> bytes_of_storage;
    const c10::IValue module = unpickle(members, bytes_of_storage);
    TORCH_CHECK(module.isObject(), "data.pkl has no module");
    TensorCollector collector(bytes_of_storage);
    collector.add(module, "");
    archive.tensors = std::move(collector.tensors);
  });
  constexpr std::string_view kFiles = "extra/";
  for (const auto& [name, content] : members.all())
    if (name.starts_with(kFiles)) archive.files[name.substr(kFiles.size())] = content;
  members.mapping()->expect_whole();
  return archive;
}

}  // namespace bert
