#include "app/interop/files/torch_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "data/io/bounded_child.h"
#include "data/io/error.h"

namespace bert {
namespace {

constexpr std::string_view kTorchScriptMember = "constants.pkl";  // no file of torch.save() has it

/// The messages in the pipe. kHead: the numbers of storages, tensors and keys left out. Then these in their order.
enum TorchMessage : int64_t { kHead = 2, kStorage, kTensor, kLeftOut };

void send(const TorchState& state, MessageSender& sender) {
  sender.number(kHead);
  for (const size_t count : {state.storages.size(), state.tensors.size(), state.left_out.size()})
    sender.number(static_cast<int64_t>(count));
  for (const TorchStorage& storage : state.storages) {
    sender.number(kStorage);
    sender.text(storage.key);
    sender.text(storage.dtype);
    sender.number(storage.elements);
    sender.number(storage.begin);
  }
  for (const TorchTensor& tensor : state.tensors) {
    sender.number(kTensor);
    sender.text(tensor.name);
    sender.number(static_cast<int64_t>(tensor.shape.size()));
    for (size_t i = 0; i < tensor.shape.size(); ++i) {
      sender.number(tensor.shape[i]);
      sender.number(tensor.strides[i]);
    }
    sender.number(tensor.offset);
    sender.number(static_cast<int64_t>(tensor.storage));
  }
  for (const std::string& key : state.left_out) {
    sender.number(kLeftOut);
    sender.text(key);
  }
}

/// Takes what send() sent. Throws DataError if an index or a type is none.
TorchState receive_state(MessageReader& child) {
  const auto require = [&](bool right) {
    if (!right) throw child.bad("the process that parses the file gave answers out of order");
  };
  require(child.message() == kHead);
  const int64_t storages = child.number(), tensors = child.number(), left_out = child.number();
  TorchState state;
  for (int64_t i = 0; i < storages; ++i) {
    require(child.message() == kStorage);
    TorchStorage storage;
    storage.key = child.text();
    storage.dtype = child.text();
    storage.elements = child.number();
    storage.begin = child.number();
    require(element_bytes(storage.dtype) > 0 && storage.elements >= 0);
    state.storages.push_back(std::move(storage));
  }
  for (int64_t i = 0; i < tensors; ++i) {
    require(child.message() == kTensor);
    TorchTensor tensor;
    tensor.name = child.text();
    const int64_t dimensions = child.number();
    require(dimensions >= 0 && dimensions <= static_cast<int64_t>(kMostDimensions));
    for (int64_t j = 0; j < dimensions; ++j) {
      tensor.shape.push_back(child.number());
      tensor.strides.push_back(child.number());
    }
    tensor.offset = child.number();
    tensor.storage = static_cast<size_t>(child.number());
    require(tensor.storage < state.storages.size());
    tensor.dtype = state.storages[tensor.storage].dtype;
    state.tensors.push_back(std::move(tensor));
  }
  for (int64_t i = 0; i < left_out; ++i) {
    require(child.message() == kLeftOut);
    state.left_out.push_back(child.text());
  }
  return state;
}

/// The name inside of the archive's one directory.
std::string_view inside_name(std::string_view name) {
  const size_t slash = name.find('/');
  return slash == std::string_view::npos ? name : name.substr(slash + 1);
}

/// The pickle of an archive: the member NAME/data.pkl.
const TorchMember& pickle_member(const std::vector<TorchMember>& members, const std::string& path) {
  const TorchMember* found = nullptr;
  for (const TorchMember& member : members) {
    const std::string_view inside = inside_name(member.name);
    if (inside == kTorchScriptMember)
      throw DataError(path +
                      ": is TorchScript, and no checkpoint of PyTorch. `bert export` writes such files; name the "
                      "checkpoint that it was exported from.");
    if (inside == "data.pkl" && found == nullptr) found = &member;
  }
  if (found == nullptr || found->deflated)
    throw DataError(path + ": is a zip archive without a file data.pkl; expected a checkpoint of torch.save()");
  return *found;
}

/// Copies the elements of dimensions `dimension` and later. The depth is the number of dimensions.
void gather(const TorchTensor& tensor, size_t dimension, const char* from, size_t width, char*& to) {
  if (dimension == tensor.shape.size()) {
    std::memcpy(to, from, width);
    to += width;
    return;
  }
  for (int64_t i = 0; i < tensor.shape[dimension]; ++i)
    gather(tensor, dimension + 1, from + static_cast<size_t>(i * tensor.strides[dimension]) * width, width, to);
}

constexpr std::string_view kZip = "PK\x03\x04";

/// True for the file that torch.save() wrote before version 1.6: pickles, the first of them its magic number, in protocol
/// 2, or in a frame of protocol 4 or 5.
bool is_legacy(std::string_view file) {
  constexpr std::string_view kMagicNumber("\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", 13);
  constexpr size_t kFrame = 9;  // its mark and its length
  if (!file.starts_with('\x80') || file.size() < 2) return false;
  file.remove_prefix(2);
  if (file.starts_with('\x95')) file.remove_prefix(std::min(kFrame, file.size()));
  return file.starts_with(kMagicNumber);
}

}  // namespace

bool is_torch_file(const std::string& path) {
  std::error_code unseen;
  if (!std::filesystem::is_regular_file(path, unseen)) return false;
  const MappedFile file(path);
  if (is_legacy(file.view())) return true;
  if (!file.view().starts_with(kZip)) return false;
  try {
    const std::vector<TorchMember> members = torch_members(file.view(), path);
    return std::none_of(members.begin(), members.end(),
                        [](const TorchMember& member) { return inside_name(member.name) == kTorchScriptMember; });
  } catch (const DataError&) {
    return false;  // a damaged archive: its reader says so
  }
}

TorchFile::TorchFile(const std::string& path) : path_(path), file_(path) {
  const std::string_view bytes = file_.view();
  constexpr ChildLimits kLimits{.memory_bytes = int64_t{2} << 30, .processor_seconds = 60, .silent_ms = 60000};
  std::string_view pickle;
  if (bytes.starts_with(kZip)) {
    members_ = torch_members(bytes, path);
    const TorchMember& member = pickle_member(members_, path);
    verify_torch_member(bytes, path, member);
    pickle = bytes.substr(member.begin, member.bytes);
  } else if (!is_legacy(bytes)) {
    throw DataError(path +
                    ": is no checkpoint of PyTorch: it begins neither as a zip archive nor as torch.save() wrote "
                    "files before version 1.6");
  }
  MessageReader child(path, kLimits, [&](MessageSender& sender) {
    send(members_.empty() ? parse_legacy_torch_file(bytes) : parse_torch_pickle(pickle), sender);
  });
  state_ = receive_state(child);
  if (!members_.empty()) place_in_members();
  check_places();
}

void TorchFile::place_in_members() {
  const std::string_view bytes = file_.view(), pickle = pickle_member(members_, path_).name;
  const std::string root(pickle.substr(0, pickle.size() - std::string_view("data.pkl").size()));
  std::map<std::string_view, const TorchMember*> by_name;
  for (const TorchMember& member : members_) by_name.emplace(member.name, &member);
  if (const auto order = by_name.find(root + "byteorder"); order != by_name.end()) {
    if (bytes.substr(order->second->begin, order->second->bytes) != "little")
      throw DataError(path_ + ": its numbers are big-endian, which is not read");
  }
  for (TorchStorage& storage : state_.storages) {
    const auto member = by_name.find(root + "data/" + storage.key);
    if (member == by_name.end() || member->second->deflated)
      throw DataError(fmt::format("{}: the archive has no data of storage {}", path_, storage.key));
    storage.begin = static_cast<int64_t>(member->second->begin);
    const auto width = static_cast<uint64_t>(element_bytes(storage.dtype));
    if (member->second->bytes % width != 0 ||
        static_cast<uint64_t>(storage.elements) != member->second->bytes / width) {
      throw DataError(path_, storage.begin,
                      fmt::format("storage {} has {} bytes, and its tensors say {} elements of {}", storage.key,
                                  member->second->bytes, storage.elements, storage.dtype));
    }
  }
}

void TorchFile::check_places() {
  for (const TorchStorage& storage : state_.storages) {
    if (storage.begin < 0 || storage.begin > file_.size() ||
        storage.elements > (file_.size() - storage.begin) / element_bytes(storage.dtype))
      throw DataError(fmt::format("{}: storage {} goes past the end of the file. The file is cut off: copy it again.",
                                  path_, storage.key));
  }
  for (TorchTensor& tensor : state_.tensors) {
    const TorchStorage& storage = state_.storages[tensor.storage];
    const auto fail = [&](const std::string& what) {
      throw DataError(fmt::format("{}: tensor {}: {}", path_, tensor.name, what));
    };
    int64_t elements = 1, last = tensor.offset;
    bool overflow = tensor.offset < 0;
    for (size_t i = 0; i < tensor.shape.size(); ++i) {
      int64_t span = 0;
      const int64_t size = tensor.shape[i];
      overflow = overflow || size < 0 || tensor.strides[i] < 0 || __builtin_mul_overflow(elements, size, &elements) ||
                 (size > 0 && __builtin_mul_overflow(size - 1, tensor.strides[i], &span)) ||
                 __builtin_add_overflow(last, span, &last);
    }
    if (overflow || (elements > 0 && last >= storage.elements))
      fail(fmt::format("lies outside of its storage of {} elements. The file is damaged.", storage.elements));
    if (elements > storage.elements) fail("repeats the elements of its storage; expected one place for every element");
    tensor.begin = elements == 0 ? 0 : storage.begin + tensor.offset * element_bytes(tensor.dtype);
    tensor.bytes = elements * element_bytes(tensor.dtype);
  }
}

bool TorchFile::in_place(const TorchTensor& tensor) {
  int64_t expected = 1;
  for (size_t i = tensor.shape.size(); i-- > 0;) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != expected) return false;
    expected *= tensor.shape[i];
  }
  return true;
}

std::string_view TorchFile::data(const TorchTensor& tensor, std::string& copy) const {
  if (tensor.bytes == 0) return {};
  const std::string_view bytes = file_.view();
  if (in_place(tensor)) return bytes.substr(static_cast<size_t>(tensor.begin), static_cast<size_t>(tensor.bytes));
  copy.resize(static_cast<size_t>(tensor.bytes));
  char* to = copy.data();
  gather(tensor, 0, bytes.data() + tensor.begin, static_cast<size_t>(element_bytes(tensor.dtype)), to);
  file_.expect_whole();
  return copy;
}

void TorchFile::verify() const {
  std::set<int64_t> used;
  for (const TorchTensor& tensor : state_.tensors) used.insert(state_.storages[tensor.storage].begin);
  for (const TorchMember& member : members_)
    if (used.contains(static_cast<int64_t>(member.begin))) verify_torch_member(file_.view(), path_, member);
}

}  // namespace bert
