// Pickles of PyTorch's checkpoints: from values to tensors.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "app/interop/files/pickle.h"
#include "app/interop/files/torch_file.h"
#include "data/io/error.h"

namespace bert {
namespace {

using Kind = PickleValue::Kind;

// Sorted. The names of storages are those of kStorages; the others are types and records without code.
constexpr std::array kGlobals = std::to_array<std::string_view>({
    "__builtin__ bool",
    "__builtin__ dict",
    "__builtin__ float",
    "__builtin__ int",
    "__builtin__ list",
    "__builtin__ long",
    "__builtin__ str",
    "__builtin__ unicode",
    "argparse Namespace",
    "builtins bool",
    "builtins dict",
    "builtins float",
    "builtins int",
    "builtins list",
    "builtins str",
    "collections OrderedDict",
    "collections defaultdict",
    "torch BFloat16Storage",
    "torch BoolStorage",
    "torch ByteStorage",
    "torch CharStorage",
    "torch DoubleStorage",
    "torch FloatStorage",
    "torch HalfStorage",
    "torch IntStorage",
    "torch LongStorage",
    "torch ShortStorage",
    "torch Size",
    "torch bfloat16",
    "torch device",
    "torch float16",
    "torch float32",
    "torch float64",
    "torch int32",
    "torch int64",
    "torch._utils _rebuild_parameter",
    "torch._utils _rebuild_tensor",
    "torch._utils _rebuild_tensor_v2",
});
static_assert(std::is_sorted(kGlobals.begin(), kGlobals.end()));

const std::map<std::string_view, std::string_view> kStorages = {
    {"torch BFloat16Storage", "BF16"}, {"torch BoolStorage", "BOOL"},  {"torch ByteStorage", "U8"},
    {"torch CharStorage", "I8"},       {"torch DoubleStorage", "F64"}, {"torch FloatStorage", "F32"},
    {"torch HalfStorage", "F16"},      {"torch IntStorage", "I32"},    {"torch LongStorage", "I64"},
    {"torch ShortStorage", "I16"}};

// 0x1950a86a20f9469cfc6c, the number with which a file of the old format begins, and its version of the format.
constexpr std::string_view kMagic("\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 10);
constexpr int64_t kLegacyProtocol = 1001;

/// Reads tensors out of the values of a pickle.
class StateReader {
 public:
  explicit StateReader(const Pickle& pickle) : pickle_(pickle) {}

  TorchState read() {
    const PickleValue& root = pickle_.root();
    if (root.kind != Kind::kDict) throw DataError("it holds no dict; expected a state dict, or a dict with one");
    const PickleValue* model = nullptr;  // a checkpoint may have a tensor beside it: its loss
    for (const std::string_view key : {"model", "state_dict", "model_state_dict"}) {
      for (size_t i = 0; i < root.items.size() && model == nullptr; i += 2) {
        const PickleValue& value = item(root, i + 1);
        if (item(root, i).kind == Kind::kText && item(root, i).text == key && has_tensors(value)) model = &value;
      }
    }
    if (model == nullptr && has_tensors(root)) model = &root;
    if (model == nullptr) {
      throw DataError(
          "it holds no tensors; expected a state dict, or one under the key model, state_dict or "
          "model_state_dict");
    }
    take_entries(*model, &root);
    if (model != &root) leave_out(root, model);
    return std::move(state_);
  }

  /// Notes every storage that the pickle names.
  void take_storages() {
    for (const PickleValue& value : pickle_.values()) {
      if (value.kind == Kind::kPersistent) storage_of(value);
    }
  }

 private:
  [[nodiscard]] const PickleValue& item(const PickleValue& value, size_t i) const {
    return pickle_.value(value.items[i]);
  }

  /// The value without the Parameters around it.
  [[nodiscard]] const PickleValue& unwrapped(const PickleValue& value) const {
    constexpr int kMostWraps = 4;
    const PickleValue* inner = &value;
    for (int i = 0; i < kMostWraps && inner->kind == Kind::kObject && inner->text == "torch._utils _rebuild_parameter";
         ++i) {
      const PickleValue& arguments = item(*inner, 0);
      if (arguments.items.empty()) throw DataError("a Parameter without a tensor");
      inner = &item(arguments, 0);
    }
    return *inner;
  }

  [[nodiscard]] bool is_tensor(const PickleValue& value) const {
    const PickleValue& inner = unwrapped(value);
    return inner.kind == Kind::kObject && inner.text.starts_with("torch._utils _rebuild_tensor");
  }

  [[nodiscard]] bool has_tensors(const PickleValue& dict) const {
    if (dict.kind != Kind::kDict) return false;
    for (size_t i = 1; i < dict.items.size(); i += 2)
      if (is_tensor(item(dict, i))) return true;
    return false;
  }

  [[nodiscard]] int64_t integer(const PickleValue& value, const char* what) const {
    if (value.kind != Kind::kInteger || value.integer < 0)
      throw DataError(fmt::format("{} is no number that is 0 or more", what));
    return value.integer;
  }

  [[nodiscard]] std::vector<int64_t> integers(const PickleValue& value, const char* what) const {
    const PickleValue* tuple = &value;
    if (value.kind == Kind::kObject && value.text == "torch Size" && item(value, 0).items.size() == 1)
      tuple = &item(item(value, 0), 0);
    if ((tuple->kind != Kind::kTuple && tuple->kind != Kind::kList) || tuple->items.size() > kMostDimensions)
      throw DataError(fmt::format("{} is no tuple of at most {} numbers", what, kMostDimensions));
    std::vector<int64_t> numbers;
    for (size_t i = 0; i < tuple->items.size(); ++i) numbers.push_back(integer(item(*tuple, i), what));
    return numbers;
  }

  /// The index of the storage that a persistent id names: ("storage", class, key, device, elements), in the old format
  /// with a sixth value, which is None but for views of PyTorch 0.
  size_t storage_of(const PickleValue& value) {
    if (value.kind != Kind::kPersistent) throw DataError("a tensor without a storage");
    const PickleValue& id = item(value, 0);
    if (id.kind != Kind::kTuple || id.items.size() < 5 || id.items.size() > 6 || item(id, 0).text != "storage" ||
        item(id, 2).kind != Kind::kText)
      throw DataError("an id that is none of a storage");
    if (id.items.size() == 6 && item(id, 5).kind != Kind::kNone)
      throw DataError("a storage is a view of another, as PyTorch 0 wrote it, which is not read");
    const auto dtype = kStorages.find(item(id, 1).text);
    if (item(id, 1).kind != Kind::kGlobal || dtype == kStorages.end())
      throw DataError("a storage whose class is not known");
    TorchStorage storage{.key = item(id, 2).text,
                         .dtype = std::string(dtype->second),
                         .elements = integer(item(id, 4), "the size of a storage")};
    const auto [known, is_new] = indices_.emplace(storage.key, state_.storages.size());
    if (is_new) {
      state_.storages.push_back(std::move(storage));
    } else if (const TorchStorage& first = state_.storages[known->second];
               first.dtype != storage.dtype || first.elements != storage.elements) {
      throw DataError(fmt::format("the storage {} has two sizes or two types", storage.key));
    }
    return known->second;
  }

  TorchTensor tensor_of(const PickleValue& value) {
    const PickleValue& arguments = item(unwrapped(value), 0);
    constexpr size_t kNeeded = 4;  // storage, offset, size, strides; the others are about gradients
    if (arguments.items.size() < kNeeded) throw DataError("a tensor without storage, offset, size and strides");
    TorchTensor tensor;
    tensor.storage = storage_of(item(arguments, 0));
    tensor.dtype = state_.storages[tensor.storage].dtype;
    tensor.offset = integer(item(arguments, 1), "an offset");
    tensor.shape = integers(item(arguments, 2), "a shape");
    tensor.strides = integers(item(arguments, 3), "the strides");
    if (tensor.strides.size() != tensor.shape.size())
      throw DataError(fmt::format("{} sizes and {} strides", tensor.shape.size(), tensor.strides.size()));
    return tensor;
  }

  void take_entries(const PickleValue& dict, const PickleValue* root) {
    std::set<std::string_view> names;
    for (size_t i = 0; i < dict.items.size(); i += 2) {
      const PickleValue &key = item(dict, i), &value = item(dict, i + 1);
      if (key.kind != Kind::kText) throw DataError("a key that is no text");
      if (!names.insert(key.text).second) throw DataError(fmt::format("{} is there twice", key.text));
      if (!is_tensor(value)) {
        if (&dict != root) throw DataError(fmt::format("{} is no tensor", key.text));
        state_.left_out.push_back(key.text);
        continue;
      }
      try {
        state_.tensors.push_back(tensor_of(value));
      } catch (const DataError& error) {
        throw DataError(fmt::format("the tensor {}: {}", key.text, error.what()));
      }
      state_.tensors.back().name = key.text;
    }
  }

  void leave_out(const PickleValue& root, const PickleValue* model) {
    for (size_t i = 0; i < root.items.size(); i += 2) {
      const PickleValue& key = item(root, i);
      if (&item(root, i + 1) != model)
        state_.left_out.push_back(key.kind == Kind::kText ? key.text : "a key without text");
    }
  }

  const Pickle& pickle_;
  TorchState state_;
  std::map<std::string, size_t> indices_;  // of storages by key
};

/// Places the storages of an old file, whose bytes begin at `position`: for each key 8 bytes with the number of elements,
/// then the elements.
void place(TorchState& state, const Pickle& keys, std::string_view bytes, size_t position) {
  std::map<std::string_view, TorchStorage*> by_key;
  for (TorchStorage& storage : state.storages) by_key[storage.key] = &storage;
  if (keys.root().kind != Kind::kList) throw DataError("it has no list of storages behind its values");
  for (const uint32_t each : keys.root().items) {
    const auto storage = by_key.find(keys.value(each).text);
    if (storage == by_key.end() || storage->second->begin >= 0)
      throw DataError(fmt::format("the list of storages has {}, which no value has, or twice", keys.value(each).text));
    int64_t elements = 0;
    if (bytes.size() - position < sizeof elements) throw DataError("it is cut off before a storage");
    std::memcpy(&elements, bytes.data() + position, sizeof elements);
    position += sizeof elements;
    if (elements != storage->second->elements)
      throw DataError(fmt::format("storage {} has {} elements, and its tensors say {}", storage->first, elements,
                                  storage->second->elements));
    const auto width = static_cast<size_t>(element_bytes(storage->second->dtype));
    if (static_cast<size_t>(elements) > (bytes.size() - position) / width)
      throw DataError(fmt::format("it is cut off amid storage {}", storage->first));
    storage->second->begin = static_cast<int64_t>(position);
    position += static_cast<size_t>(elements) * width;
  }
  if (position != bytes.size())
    throw DataError(fmt::format("{} bytes are behind the last storage", bytes.size() - position));
}

}  // namespace

TorchState parse_torch_pickle(std::string_view pickle) {
  const Pickle values(pickle, kGlobals);
  if (values.size() != pickle.size()) throw DataError("bytes are behind the end of the pickle");
  return StateReader(values).read();
}

TorchState parse_legacy_torch_file(std::string_view bytes) {
  size_t position = 0;
  const auto next = [&] {
    Pickle pickle(bytes.substr(position), kGlobals);
    position += pickle.size();
    return pickle;
  };
  if (const Pickle magic = next(); magic.root().kind != Kind::kLong || magic.root().text != kMagic)
    throw DataError("it does not begin with the number of PyTorch's files");
  if (const Pickle version = next(); version.root().integer != kLegacyProtocol)
    throw DataError(fmt::format("version {} of the format; {} is read", version.root().integer, kLegacyProtocol));
  const Pickle system = next();
  for (size_t i = 0; i + 1 < system.root().items.size(); i += 2) {
    const PickleValue &key = system.value(system.root().items[i]), &value = system.value(system.root().items[i + 1]);
    if (key.text == "little_endian" && value.integer != 1)
      throw DataError("its numbers are big-endian, which is not read");
  }
  const Pickle values = next();
  StateReader reader(values);
  reader.take_storages();
  TorchState state = reader.read();
  const Pickle keys = next();
  place(state, keys, bytes, position);
  for (const TorchStorage& storage : state.storages)
    if (storage.begin < 0) throw DataError(fmt::format("the list of storages lacks {}", storage.key));
  return state;
}

}  // namespace bert
