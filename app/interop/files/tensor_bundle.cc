#include "app/interop/files/tensor_bundle.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <tuple>

#include "app/interop/files/leveldb_table.h"
#include "data/io/bounded_child.h"
#include "data/io/crc32c.h"
#include "data/io/error.h"
#include "data/io/wire.h"

namespace bert {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostShards = 10000;

// tensorflow/core/framework/types.proto, in safetensors' words.
const std::map<uint64_t, std::string_view> kDtypes = {{1, "F32"},  {2, "F64"},  {3, "I32"},   {4, "U8"},    {5, "I16"},
                                                      {6, "I8"},   {9, "I64"},  {10, "BOOL"}, {14, "BF16"}, {17, "U16"},
                                                      {19, "F16"}, {22, "U32"}, {23, "U64"}};
constexpr uint64_t kText = 7;

/// The messages in the pipe. kBundleHead: the number of shards and of tensors. kBundleTensor: its parts in their order.
enum BundleMessage : int64_t { kBundleHead = 2, kBundleTensor };

/// The element count times the bytes of an element. Throws DataError if a size is negative or the product too large.
int64_t bytes_of(const TensorInfo& tensor) {
  int64_t bytes = element_bytes(tensor.dtype);
  for (const int64_t size : tensor.shape) {
    if (size < 0 || __builtin_mul_overflow(bytes, size, &bytes))
      throw DataError(fmt::format("the tensor {} has a size that no tensor has", tensor.name));
  }
  return bytes;
}

/// A TensorShapeProto { repeated Dim dim = 2 { int64 size = 1 }; bool unknown_rank = 3 }.
std::vector<int64_t> parse_shape(std::string_view message) {
  std::vector<int64_t> shape;
  wire::Fields fields(message);
  for (wire::Field field; fields.next(field);) {
    if (field.number == 3 && field.varint != 0) throw DataError("a tensor without a shape");
    if (field.number != 2) continue;
    int64_t size = 0;
    wire::Fields parts(field.bytes);
    for (wire::Field part; parts.next(part);) {
      if (part.number == 1) size = static_cast<int64_t>(part.varint);
    }
    shape.push_back(size);
    if (shape.size() > kMostDimensions) throw DataError(fmt::format("more than {} dimensions", kMostDimensions));
  }
  return shape;
}

/// A BundleEntryProto { dtype = 1; shape = 2; shard_id = 3; offset = 4; size = 5; fixed32 crc32c = 6; slices = 7 }.
BundleTensor parse_entry(std::string_view name, std::string_view message) {
  BundleTensor tensor;
  tensor.name = name;
  uint64_t dtype = 0;
  wire::Fields fields(message);
  for (wire::Field field; fields.next(field);) {
    if (field.number == 1) dtype = field.varint;
    if (field.number == 2) tensor.shape = parse_shape(field.bytes);
    if (field.number == 3) tensor.shard = static_cast<int64_t>(field.varint);
    if (field.number == 4) tensor.begin = static_cast<int64_t>(field.varint);
    if (field.number == 5) tensor.bytes = static_cast<int64_t>(field.varint);
    if (field.number == 6) tensor.checksum = field.fixed32();
    if (field.number == 7)
      throw DataError("it is stored in slices, which are not read. Save the checkpoint without partitioned variables.");
  }
  const auto known = kDtypes.find(dtype);
  if (known == kDtypes.end()) {
    throw DataError(dtype == kText
                        ? std::string("it holds text, which is not read. Checkpoints of TensorFlow 2's Keras "
                                      "hold a graph of objects so; those of Google's BERT do not.")
                        : fmt::format("its dtype has number {}, which is not read", dtype));
  }
  tensor.dtype = known->second;
  if (const int64_t bytes = bytes_of(tensor); tensor.bytes != bytes)
    throw DataError(fmt::format("it has {} bytes, and dtype and shape ask for {}", tensor.bytes, bytes));
  return tensor;
}

/// A BundleHeaderProto { num_shards = 1; endianness = 2; VersionDef version = 3 { min_consumer = 2 } }.
int64_t parse_header(std::string_view message) {
  constexpr uint64_t kVersion = 1;  // kTensorBundleVersion of tensor_bundle.h
  int64_t num_shards = 0;
  wire::Fields fields(message);
  for (wire::Field field; fields.next(field);) {
    if (field.number == 1) num_shards = static_cast<int64_t>(field.varint);
    if (field.number == 2 && field.varint != 0)
      throw DataError("its numbers are big-endian, which is not read. Save it again on a little-endian machine.");
    if (field.number != 3) continue;
    wire::Fields versions(field.bytes);
    for (wire::Field version; versions.next(version);) {
      if (version.number == 2 && version.varint > kVersion)
        throw DataError(fmt::format("it needs version {} of the format; version {} is read", version.varint, kVersion));
    }
  }
  if (num_shards < 1 || num_shards > kMostShards)
    throw DataError(fmt::format("{} data files; 1 to {} are read", num_shards, kMostShards));
  return num_shards;
}

void send(const BundleIndex& index, MessageSender& sender) {
  for (const int64_t number : {int64_t{kBundleHead}, index.num_shards, static_cast<int64_t>(index.tensors.size())})
    sender.number(number);
  for (const BundleTensor& tensor : index.tensors) {
    sender.number(kBundleTensor);
    sender.text(tensor.name);
    sender.text(tensor.dtype);
    sender.number(static_cast<int64_t>(tensor.shape.size()));
    for (const int64_t size : tensor.shape) sender.number(size);
    for (const int64_t number : {tensor.shard, tensor.begin, tensor.bytes, int64_t{tensor.checksum}})
      sender.number(number);
  }
}

/// Takes what send() sent. Only numbers that later code relies on are checked here; check_places() checks the places.
BundleIndex receive_index(MessageReader& child) {
  const auto disorder = [&] { return child.bad("the process that parses the file gave answers out of order"); };
  if (child.message() != kBundleHead) throw disorder();
  BundleIndex index;
  index.num_shards = child.number();
  if (index.num_shards < 1 || index.num_shards > kMostShards) throw disorder();
  for (int64_t left = child.number(); left > 0; --left) {
    if (child.message() != kBundleTensor) throw disorder();
    BundleTensor tensor;
    tensor.name = child.text();
    tensor.dtype = child.text();
    const int64_t dimensions = child.number();
    if (dimensions < 0 || dimensions > static_cast<int64_t>(kMostDimensions)) throw disorder();
    for (int64_t i = 0; i < dimensions; ++i) tensor.shape.push_back(child.number());
    tensor.shard = child.number();
    tensor.begin = child.number();
    tensor.bytes = child.number();
    tensor.checksum = static_cast<uint32_t>(child.number());
    if (element_bytes(tensor.dtype) == 0 || tensor.shard < 0 || tensor.shard >= index.num_shards || tensor.begin < 0 ||
        bytes_of(tensor) != tensor.bytes)
      throw child.bad(fmt::format("the place of the tensor {} is outside of the checkpoint", tensor.name));
    index.tensors.push_back(std::move(tensor));
  }
  return index;
}

std::string data_file(const std::string& prefix, int64_t shard, int64_t num_shards) {
  return fmt::format("{}.data-{:05}-of-{:05}", prefix, shard, num_shards);
}

/// The value of `model_checkpoint_path` in the file `checkpoint` of a directory; empty if there is no such file.
std::string newest_name(const fs::path& directory) {
  constexpr int64_t kMostBytes = int64_t{1} << 20;
  std::error_code unseen;
  const fs::path file = directory / "checkpoint";
  if (!fs::is_regular_file(file, unseen)) return {};
  const std::string text = read_file(file.string(), kMostBytes), key = "model_checkpoint_path:";
  const size_t line = text.starts_with(key) ? 0 : text.find("\n" + key);
  const size_t open = line == std::string::npos ? line : text.find('"', line);
  const size_t close = open == std::string::npos ? open : text.find('"', open + 1);
  if (close == std::string::npos)
    throw DataError(file.string() + ": has no line model_checkpoint_path: \"NAME\", which TensorFlow writes into it");
  // TensorFlow writes the path of the machine where it ran. The file lies beside.
  return fs::path(text.substr(open + 1, close - open - 1)).filename().string();
}

}  // namespace

BundleIndex parse_bundle_index(std::string_view bytes) {
  BundleIndex index;
  bool has_header = false;
  read_leveldb_table(bytes, [&](std::string_view key, std::string_view value) {
    if (key.empty()) {  // the first key
      index.num_shards = parse_header(value);
      has_header = true;
      return;
    }
    if (!has_header) throw DataError("it has no header");
    try {
      index.tensors.push_back(parse_entry(key, value));
    } catch (const DataError& error) {
      throw DataError(fmt::format("the tensor {}: {}", key, error.what()));
    }
    const BundleTensor& tensor = index.tensors.back();
    if (tensor.shard < 0 || tensor.shard >= index.num_shards || tensor.begin < 0 ||
        tensor.bytes > std::numeric_limits<int64_t>::max() - tensor.begin)
      throw DataError(fmt::format("the tensor {} lies in file {} at byte {}; there are {} files", key, tensor.shard,
                                  tensor.begin, index.num_shards));
  });
  if (!has_header) throw DataError("it has no header");
  return index;
}

TensorBundle::TensorBundle(const std::string& prefix) : prefix_(prefix) {
  const std::string path = prefix + ".index";
  const MappedFile file(path);
  constexpr ChildLimits kLimits{.memory_bytes = int64_t{1} << 30, .processor_seconds = 20, .silent_ms = 60000};
  MessageReader child(path, kLimits, [&](MessageSender& sender) { send(parse_bundle_index(file.view()), sender); });
  BundleIndex index = receive_index(child);
  tensors_ = std::move(index.tensors);
  for (int64_t i = 0; i < index.num_shards; ++i)
    files_.push_back(std::make_unique<MappedFile>(data_file(prefix, i, index.num_shards)));
  check_places();
}

void TensorBundle::check_places() const {
  std::vector<const BundleTensor*> by_place;
  for (const BundleTensor& tensor : tensors_) by_place.push_back(&tensor);
  std::stable_sort(by_place.begin(), by_place.end(), [](const BundleTensor* a, const BundleTensor* b) {
    return std::tie(a->shard, a->begin, a->bytes) < std::tie(b->shard, b->begin, b->bytes);  // empty tensors first
  });
  auto next = by_place.begin();
  const auto num_shards = static_cast<int64_t>(files_.size());
  for (int64_t shard = 0; shard < num_shards; ++shard) {
    const std::string path = data_file(prefix_, shard, num_shards);
    const std::string_view bytes = files_[static_cast<size_t>(shard)]->view();
    const auto size = static_cast<int64_t>(bytes.size());
    int64_t end = 0;
    for (; next != by_place.end() && (*next)->shard == shard; ++next) {
      const BundleTensor& tensor = **next;
      if (tensor.begin > size || tensor.bytes > size - tensor.begin)
        throw DataError(path, size,
                        fmt::format("the file ends here, and {} has bytes {} to {}. The file is cut off: copy "
                                    "it again.",
                                    tensor.name, tensor.begin, tensor.begin + tensor.bytes));
      if (tensor.begin < end) throw DataError(path, tensor.begin, tensor.name + " lies over another tensor");
      // TensorFlow can align tensors, with zeros between them.
      const std::string_view gap = bytes.substr(static_cast<size_t>(end), static_cast<size_t>(tensor.begin - end));
      if (gap.find_first_not_of('\0') != std::string_view::npos)
        throw DataError(path, end, fmt::format("{} bytes before {} belong to no tensor", gap.size(), tensor.name));
      end = tensor.begin + tensor.bytes;
    }
    if (end != size) throw DataError(path, end, "the tensors end here, and the file goes on. Copy both files again.");
  }
}

const BundleTensor* TensorBundle::find(std::string_view name) const {
  const auto found =
      std::lower_bound(tensors_.begin(), tensors_.end(), name,
                       [](const BundleTensor& tensor, std::string_view key) { return tensor.name < key; });
  return found != tensors_.end() && found->name == name ? &*found : nullptr;
}

void TensorBundle::verify() const {
  for (const BundleTensor& tensor : tensors_) {
    const std::string_view bytes = data(tensor);
    if (masked_crc32c(crc32c(bytes.data(), bytes.size())) != tensor.checksum)
      throw DataError(
          data_file(prefix_, tensor.shard, static_cast<int64_t>(files_.size())), tensor.begin,
          fmt::format("the checksum of {} does not match. The file is damaged: copy it again.", tensor.name));
  }
}

int64_t TensorBundle::bytes() const {
  int64_t sum = 0;
  for (const auto& file : files_) sum += file->size();
  return sum;
}

std::string bundle_prefix(const std::string& path) {
  constexpr std::string_view kIndex = ".index";
  std::error_code unseen;
  if (!fs::is_directory(path, unseen)) {
    if (path.ends_with(kIndex)) return path.substr(0, path.size() - kIndex.size());
    if (const size_t data = path.rfind(".data-"); data != std::string::npos && fs::exists(path, unseen))
      return path.substr(0, data);
    if (fs::exists(path + std::string(kIndex), unseen)) return path;
    throw InputMissing(
        fmt::format("{}: there is no {}.index. Name a directory with a TensorFlow checkpoint, or the "
                    "part of its files' names before .index",
                    path, path));
  }
  if (const std::string name = newest_name(path); !name.empty()) return (fs::path(path) / name).string();
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator(path)) {
    const std::string name = entry.path().string();
    if (name.ends_with(kIndex)) found.push_back(name.substr(0, name.size() - kIndex.size()));
  }
  if (found.empty())
    throw InputMissing(path + ": has no TensorFlow checkpoint: files NAME.index and NAME.data-00000-of-00001");
  if (found.size() > 1) {
    std::sort(found.begin(), found.end());
    throw DataError(
        fmt::format("{}: has {} TensorFlow checkpoints and no file `checkpoint` that says which is the newest. "
                    "Name one of them, such as {}",
                    path, found.size(), found.back()));
  }
  return found.front();
}

}  // namespace bert
