#include "app/checkpoint/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "data/io/error.h"
#include "data/io/mapping_guard.h"

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian");

namespace bert {
namespace {

constexpr int64_t kLengthBytes = 8;
constexpr int64_t kMaxHeaderBytes = 100'000'000;  // limit of Hugging Face's reader

constexpr std::pair<std::string_view, int64_t> kDtypes[] = {
    {"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8},  {"I32", 4},     {"I16", 2},    {"I8", 1},
    {"U64", 8}, {"U32", 4}, {"U16", 2}, {"U8", 1},   {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};

/// Bytes of a tensor; -1 if the number does not fit 64 bits.
int64_t tensor_bytes(std::string_view dtype, const std::vector<int64_t>& shape) {
  int64_t bytes = element_bytes(dtype);
  for (const int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(bytes, size, &bytes)) return -1;
  }
  return bytes;
}

/// A tensor name for messages: shortened, without control characters.
std::string printable(std::string_view name) {
  constexpr size_t kLongest = 200;
  std::string text(name.substr(0, kLongest));
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return text;
}

/// Reads the header as events of nlohmann's parser: {name: {dtype, shape: [..], data_offsets: [begin, end]},
/// "__metadata__": {..}}.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderReader(std::vector<TensorInfo>& tensors, std::map<std::string, std::string>& metadata)
      : tensors_(tensors), metadata_(metadata) {}

  std::string error;

  bool null() override { return refuse("null"); }
  bool boolean(bool) override { return refuse("a boolean"); }
  bool number_float(number_float_t, const string_t& text) override { return refuse("the number " + printable(text)); }
  bool number_integer(number_integer_t value) override {
    return refuse("the number " + std::to_string(value));
  }  // negative
  bool number_unsigned(number_unsigned_t value) override {
    if (depth_ != 3 || value > static_cast<uint64_t>(INT64_MAX)) return refuse("the number " + std::to_string(value));
    numbers_.push_back(static_cast<int64_t>(value));
    return true;
  }
  bool string(string_t& value) override {
    if (depth_ == 2 && in_metadata_) {
      if (!metadata_.emplace(key_, value).second)
        return fail("duplicate key \"" + printable(key_) + "\" in __metadata__");
      return true;
    }
    if (depth_ != 2 || key_ != "dtype") return refuse("a string");
    if (element_bytes(value) == 0) return fail("unknown dtype \"" + printable(value) + "\"");
    current_.dtype = value;
    return true;
  }
  bool binary(binary_t&) override { return refuse("binary data"); }
  bool start_object(std::size_t) override {
    if (depth_ >= 2) return refuse("an object");
    if (++depth_ == 2) seen_.clear();
    return true;
  }
  bool end_object() override {
    if (depth_-- == 1 || in_metadata_) {
      in_metadata_ = false;
      return true;
    }
    if (seen_.size() != 3)
      return fail("want dtype, shape and data_offsets, got " + std::to_string(seen_.size()) + " of them");
    tensors_.push_back(std::move(current_));
    return true;
  }
  bool start_array(std::size_t) override {
    if (depth_ != 2 || in_metadata_ || key_ == "dtype") return refuse("a list");
    depth_ = 3;
    numbers_.clear();
    return true;
  }
  bool end_array() override {
    depth_ = 2;
    if (key_ == "shape") {
      current_.shape = numbers_;
    } else {
      if (numbers_.size() != 2 || numbers_[0] > numbers_[1])
        return fail("data_offsets: want [begin, end] with begin <= end");
      current_.begin = numbers_[0];
      current_.bytes = numbers_[1] - numbers_[0];
    }
    return true;
  }
  bool key(string_t& name) override {
    key_ = name;
    if (depth_ == 1) {
      in_metadata_ = name == "__metadata__";
      current_ = {};
      current_.name = name;
      return names_.insert(name).second || fail("appears twice");
    }
    if (in_metadata_) return true;
    if (name != "dtype" && name != "shape" && name != "data_offsets")
      return fail("unknown key \"" + printable(name) + "\"");
    return seen_.insert(name).second || fail("key \"" + name + "\" appears twice");
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    error = fmt::format("the header is not JSON at byte {}", position + kLengthBytes);
    return false;
  }

 private:
  bool fail(const std::string& message) {
    error = current_.name.empty() ? "header: " + message : "tensor " + printable(current_.name) + ": " + message;
    return false;
  }
  bool refuse(const std::string& found) {
    return fail("unexpected " + found + (key_.empty() ? "" : " at \"" + printable(key_) + "\""));
  }

  std::vector<TensorInfo>& tensors_;
  std::map<std::string, std::string>& metadata_;
  int depth_ = 0;
  bool in_metadata_ = false;
  std::string key_;
  TensorInfo current_;
  std::vector<int64_t> numbers_;
  std::set<std::string> names_, seen_;
};

/// Sorts the tensors by position. Throws DataError unless they follow each other without gap from `begin` to `end`.
void check_layout(const std::string& path, std::vector<TensorInfo>& tensors, int64_t begin, int64_t end) {
  std::ranges::sort(tensors, [](const TensorInfo& a, const TensorInfo& b) {
    return std::pair(a.begin, a.bytes) < std::pair(b.begin, b.bytes);
  });
  int64_t expected = begin;
  for (TensorInfo& tensor : tensors) {
    const std::string where = "tensor " + printable(tensor.name) + ": ";
    if (tensor.begin > end - begin || tensor.bytes > end - begin)
      throw DataError(path, expected, where + "ends beyond the file");
    tensor.begin += begin;
    if (tensor.begin != expected) {
      throw DataError(path, expected,
                      where + fmt::format("begins at byte {}, want {}: tensors may neither overlap nor leave holes",
                                          tensor.begin, expected));
    }
    if (const int64_t want = tensor_bytes(tensor.dtype, tensor.shape); tensor.bytes != want) {
      throw DataError(path, expected,
                      where + fmt::format("has {} bytes, but dtype {} and its shape need {}", tensor.bytes,
                                          tensor.dtype, want < 0 ? "more than fit" : std::to_string(want)));
    }
    expected += tensor.bytes;
  }
  if (expected != end)
    throw DataError(path, expected, fmt::format("the tensors end here, but the file has {} bytes", end));
}

/// The header after its length, padded with spaces to a multiple of 8 bytes. `tensors` are in the order of their bytes.
std::string make_header(const std::vector<TensorSource>& tensors) {
  nlohmann::ordered_json header = {{"__metadata__", {{"format", "pt"}}}};
  int64_t begin = 0;
  for (const TensorSource& tensor : tensors) {
    const int64_t end = begin + tensor_bytes(tensor.dtype, tensor.shape);
    header[tensor.name] = {{"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
    begin = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + kLengthBytes - 1) / kLengthBytes * kLengthBytes, ' ');
  const uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text;
}

void sort_and_check(std::vector<TensorSource>& tensors) {
  std::ranges::sort(tensors, [](const TensorSource& a, const TensorSource& b) {
    return std::pair(-element_bytes(a.dtype), std::string_view(a.name)) <
           std::pair(-element_bytes(b.dtype), std::string_view(b.name));
  });
  std::set<std::string_view> names = {"__metadata__"};
  for (const TensorSource& tensor : tensors) {
    if (element_bytes(tensor.dtype) == 0)
      throw DataError("tensor " + tensor.name + ": safetensors has no dtype \"" + tensor.dtype + "\"");
    if (tensor_bytes(tensor.dtype, tensor.shape) < 0)
      throw DataError("tensor " + tensor.name + ": its size does not fit");
    if (!names.insert(tensor.name).second)
      throw DataError("tensor " + tensor.name + ": two tensors may not have one name");
  }
}

}  // namespace

int64_t element_bytes(std::string_view dtype) {
  const auto found =
      std::find_if(std::begin(kDtypes), std::end(kDtypes), [&](const auto& entry) { return entry.first == dtype; });
  return found == std::end(kDtypes) ? 0 : found->second;
}

SafetensorsFile::SafetensorsFile(const std::string& path) : path_(path), file_(path) {
  uint64_t length = 0;
  if (file_.size() < kLengthBytes)
    throw DataError(path, 0, fmt::format("want safetensors, got only {} bytes", file_.size()));
  std::memcpy(&length, file_.data(), sizeof length);
  if (length > static_cast<uint64_t>(kMaxHeaderBytes) || static_cast<int64_t>(length) > file_.size() - kLengthBytes) {
    throw DataError(
        path, 0,
        fmt::format("want safetensors, but its header would have {} bytes and the file has {}", length, file_.size()));
  }
  const std::string_view header = file_.view().substr(kLengthBytes, length);
  if (header.empty() || header.front() != '{')
    throw DataError(path, kLengthBytes, "want safetensors, but its header does not begin with {");
  if (const size_t zero = header.find('\0');
      zero != std::string_view::npos) {  // the end of a text to nlohmann's parser
    throw DataError(path, kLengthBytes,
                    fmt::format("the header is not JSON at byte {}", static_cast<int64_t>(zero) + kLengthBytes));
  }
  HeaderReader reader(tensors_, metadata_);
  if (!nlohmann::json::sax_parse(header, &reader)) throw DataError(path, kLengthBytes, reader.error);
  check_layout(path, tensors_, kLengthBytes + static_cast<int64_t>(length), file_.size());
}

const TensorInfo* SafetensorsFile::find(std::string_view name) const {
  const auto found = std::ranges::find_if(tensors_, [&](const TensorInfo& tensor) { return tensor.name == name; });
  return found == tensors_.end() ? nullptr : &*found;
}

std::vector<TensorSource> sources_of(const std::shared_ptr<const SafetensorsFile>& file) {
  std::vector<TensorSource> sources;
  for (const TensorInfo& info : file->tensors())
    sources.push_back({info.name, info.dtype, info.shape, [file, info] { return file->data(info); }, file});
  return sources;
}

int64_t safetensors_bytes(std::vector<TensorSource> tensors) {
  sort_and_check(tensors);  // the number of digits of the offsets depends on the order
  int64_t bytes = static_cast<int64_t>(make_header(tensors).size());
  for (const TensorSource& tensor : tensors) bytes += tensor_bytes(tensor.dtype, tensor.shape);
  return bytes;
}

std::map<std::string, std::string> write_safetensors(const ByteSink& sink, std::vector<TensorSource> tensors) {
  sort_and_check(tensors);
  const std::string header = make_header(tensors);
  sink(header.data(), header.size());
  std::map<std::string, std::string> checksums;
  for (const TensorSource& tensor : tensors) {
    const std::string_view bytes = tensor.bytes();
    if (static_cast<int64_t>(bytes.size()) != tensor_bytes(tensor.dtype, tensor.shape)) {
      throw DataError(fmt::format("tensor {}: want {} bytes by its shape, got {}", tensor.name,
                                  tensor_bytes(tensor.dtype, tensor.shape), bytes.size()));
    }
    sink(bytes.data(), bytes.size());
    checksums[tensor.name] = checksum(bytes.data(), bytes.size());
    expect_whole_mapping(bytes.data());
  }
  return checksums;
}

}  // namespace bert
