#include "app/checkpoint/safetensors.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/checkpoint/tensor_diff.h"
#include "data/io/error.h"
#include "tests/testing.h"

namespace bert {
namespace {

using testing::TemporaryDirectory;

void write(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

/// The content of a file: the length of the header, the header, and data.
std::string file_of(const std::string& header, size_t data_bytes) {
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + header + std::string(data_bytes, '\0');
}

std::string unhex(const std::string& digits) {
  std::string bytes;
  for (size_t i = 0; i < digits.size(); i += 2) bytes += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  return bytes;
}

std::string write_all(const std::vector<TensorSource>& tensors) {
  std::string bytes;
  write_safetensors([&](const void* data, size_t size) { bytes.append(static_cast<const char*>(data), size); },
                    tensors);
  return bytes;
}

TEST_CASE("The bytes of a file are known before it is written, in whatever order its tensors come",
          "[unit][safetensors]") {
  const std::string bytes(8000, 'x');
  std::vector<TensorSource> tensors;
  for (int i = 0; i < 20; ++i) {
    tensors.push_back({"small" + std::to_string(i), "U8", {1}, [&] { return std::string_view(bytes).substr(0, 1); }});
  }
  tensors.push_back({"large", "F64", {1000}, [&] { return std::string_view(bytes); }});
  CHECK(safetensors_bytes(tensors) == static_cast<int64_t>(write_all(tensors).size()));
}

TEST_CASE("Hugging Face's safetensors are read, value by value", "[golden][safetensors]") {
  const auto golden = nlohmann::json::parse(std::ifstream(testing::golden("hf_safetensors.json")));
  const TemporaryDirectory directory;
  write(directory.path("f"), unhex(golden["hex"]));
  const SafetensorsFile file(directory.path("f"));
  CHECK(file.metadata() == std::map<std::string, std::string>{{"format", "pt"}});
  REQUIRE(file.tensors().size() == golden["tensors"].size());
  for (const auto& [name, want] : golden["tensors"].items()) {
    INFO(name);
    const TensorInfo* tensor = file.find(name);
    REQUIRE(tensor != nullptr);
    CHECK(tensor->shape == want["shape"].get<std::vector<int64_t>>());
    const auto values = want["values"].get<std::vector<double>>();
    REQUIRE(tensor->bytes / element_bytes(tensor->dtype) == static_cast<int64_t>(values.size()));
    for (size_t i = 0; i < values.size(); ++i) {
      CHECK(tensor_element(tensor->dtype, file.data(*tensor), static_cast<int64_t>(i)) == values[i]);
    }
  }
  // The negative twin: one changed bit of the data gives another value.
  std::string changed = unhex(golden["hex"]);
  changed[changed.size() - 20] = static_cast<char>(changed[changed.size() - 20] ^ 1);
  write(directory.path("g"), changed);
  const SafetensorsFile other(directory.path("g"));
  bool all_equal = true;
  for (const TensorInfo& tensor : file.tensors())
    all_equal = all_equal && compare_tensors(file, other, tensor.name).equal;
  CHECK_FALSE(all_equal);
}

TEST_CASE("What is written is aligned, in order, and reads back", "[unit][safetensors]") {
  const float floats[] = {1.0F, -2.5F, 3.25F};
  const uint8_t bytes[] = {1, 2, 3};
  const int64_t step = 7;
  const auto source = [](const char* name, const char* dtype, std::vector<int64_t> shape, const void* data,
                         size_t size) {
    return TensorSource{name, dtype, std::move(shape),
                        [=] { return std::string_view(static_cast<const char*>(data), size); }};
  };
  const std::vector<TensorSource> tensors = {source("b", "U8", {3}, bytes, 3), source("z", "F32", {3, 1}, floats, 12),
                                             source("a", "F32", {3}, floats, 12), source("step", "I64", {}, &step, 8),
                                             source("none", "F32", {0}, floats, 0)};
  const std::string written = write_all(tensors);
  CHECK(written == write_all({tensors[4], tensors[2], tensors[0], tensors[1], tensors[3]}));
  CHECK(static_cast<int64_t>(written.size()) == safetensors_bytes(tensors));
  const TemporaryDirectory directory;
  write(directory.path("f"), written);
  const SafetensorsFile file(directory.path("f"));
  CHECK(file.metadata().at("format") == "pt");
  std::vector<std::string> names;
  for (const TensorInfo& tensor : file.tensors()) {
    names.push_back(tensor.name);
    CHECK(tensor.begin % element_bytes(tensor.dtype) == 0);
  }
  CHECK(names.front() == "step");
  CHECK(names.back() == "b");
  CHECK(file.find("z")->shape == std::vector<int64_t>{3, 1});
  CHECK(std::memcmp(file.data(*file.find("z")).data(), floats, 12) == 0);
  CHECK(file.find("absent") == nullptr);
  CHECK_THROWS_AS(write_all({tensors[0], tensors[0]}), DataError);
  CHECK_THROWS_AS(write_all({source("c", "F32", {4}, floats, 12)}), DataError);
  CHECK_THROWS_AS(write_all({source("c", "C64", {1}, floats, 8)}), DataError);
}

TEST_CASE("Hostile headers are refused", "[unit][safetensors]") {
  const std::string one = R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  struct Case {
    const char* name;
    std::string bytes, message;
  };
  const Case cases[] = {
      {"empty", "", "only 0 bytes"},
      {"short", "1234567", "only 7 bytes"},
      {"no header", std::string(8, '\0'), "does not begin with {"},
      {"length beyond the file", std::string("\x40\0\0\0\0\0\0\0{}", 10), "header would have 64 bytes"},
      {"length of 2^63", std::string("\0\0\0\0\0\0\0\x80{}", 10), "header would have"},
      {"header over 100 MB", std::string("\1\xe1\xf5\5\0\0\0\0{}", 10), "header would have 100000001 bytes"},
      {"not an object", file_of("[1]", 0), "does not begin with {"},
      {"leading space", file_of(" {}", 0), "does not begin with {"},
      {"not JSON", file_of("{\"a\":", 0), "not JSON"},
      {"text after the header", file_of("{}x", 0), "not JSON"},
      {"not UTF-8", file_of("{\"\xff\":1}", 0), "not JSON"},
      {"data without tensors", file_of("{}", 4), "the tensors end here"},
      {"data after the last", file_of("{" + one + "}", 5), "the tensors end here"},
      {"data too short", file_of("{" + one + "}", 3), "ends beyond the file"},
      {"twice", file_of("{" + one + "," + one + "}", 8), "appears twice"},
      {"key twice", file_of(R"({"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4),
       "\"dtype\" appears twice"},
      {"missing key", file_of(R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", 4), "got 2 of them"},
      {"unknown key", file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}})", 4),
       "unknown key \"x\""},
      {"unknown dtype", file_of(R"({"a":{"dtype":"F31","shape":[1],"data_offsets":[0,4]}})", 4),
       "unknown dtype \"F31\""},
      {"dtype is a number", file_of(R"({"a":{"dtype":1,"shape":[1],"data_offsets":[0,4]}})", 4),
       "unexpected the number 1"},
      {"shape is a string", file_of(R"({"a":{"dtype":"F32","shape":"1","data_offsets":[0,4]}})", 4),
       "unexpected a string"},
      {"negative shape", file_of(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4),
       "unexpected the number -1"},
      {"fraction", file_of(R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", 4),
       "unexpected the number 1.0"},
      {"shape overflows", file_of(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}})", 4),
       "more than fit"},
      {"shape of 2^64", file_of(R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]}})", 4),
       "unexpected the number"},
      {"shape disagrees", file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4), "need 8"},
      {"offsets swapped", file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4), "begin <= end"},
      {"three offsets", file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,4]}})", 4), "begin <= end"},
      {"offsets at 2^63",
       file_of(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[9223372036854775807,9223372036854775807]}})", 4),
       "ends beyond the file"},
      {"hole",
       file_of(
           R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
           3),
       "neither overlap nor leave holes"},
      {"overlap",
       file_of(
           R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
           3),
       "neither overlap nor leave holes"},
      {"hole at the start", file_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", 2),
       "neither overlap nor leave holes"},
      {"object in a tensor", file_of(R"({"a":{"dtype":{},"shape":[1],"data_offsets":[0,4]}})", 4),
       "unexpected an object"},
      {"list in a shape", file_of(R"({"a":{"dtype":"F32","shape":[[1]],"data_offsets":[0,4]}})", 4),
       "unexpected a list"},
      {"deep nesting", file_of("{\"a\":" + std::string(100000, '['), 0), "unexpected a list"},
      {"tensor is null", file_of(R"({"a":null})", 0), "unexpected null"},
      {"metadata of numbers", file_of(R"({"__metadata__":{"a":1}})", 0), "unexpected the number 1"},
      {"metadata twice", file_of(R"({"__metadata__":{},"__metadata__":{}})", 0), "appears twice"},
      {"metadata key twice", file_of(R"({"__metadata__":{"a":"1","a":"2"}})", 0), "duplicate key \"a\""},
      {"metadata is a string", file_of(R"({"__metadata__":"a"})", 0), "unexpected a string"},
  };
  const TemporaryDirectory directory;
  const std::string path = directory.path("f");
  for (const Case& hostile : cases) {
    INFO(hostile.name);
    write(path, hostile.bytes);
    CHECK_THROWS_WITH(SafetensorsFile(path), testing::Contains(hostile.message) && testing::Contains(path));
    CHECK_THROWS_AS(SafetensorsFile(path), DataError);
  }
  CHECK_THROWS_AS(SafetensorsFile(directory.path("absent")), InputMissing);
  write(path, file_of("{" + one + "}   ", 4));  // padding with spaces is allowed
  CHECK(SafetensorsFile(path).tensors().size() == 1);
}

// The ideas are those of the tests of the format's own library (safetensors/src/tensor.rs), and attacks beside them.
TEST_CASE("Files that the format's own reader refuses are refused", "[unit][safetensors]") {
  const std::string whole = R"({"test":{"dtype":"I32","shape":[2,2],"data_offsets":[0,16]}})";
  std::string same_place = "{";
  for (int i = 0; i < 10; ++i) {
    same_place +=
        fmt::format(R"({}"weight_{}":{{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}})", i == 0 ? "" : ",", i);
  }
  const auto one_tensor = [](const std::string& shape, const std::string& offsets, size_t data_bytes) {
    return file_of(R"({"test":{"dtype":"I32","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}", data_bytes);
  };
  struct Case {
    const char* name;
    std::string bytes, message;
  };
  const Case cases[] = {
      {"ten tensors in one place", file_of(same_place + "}", 16), "neither overlap nor leave holes"},
      {"another file behind the tensors", file_of(whole, 16) + "extra_bogus_data_for_polyglot_file",
       "the tensors end here"},
      {"two bytes missing", file_of(whole, 14), "ends beyond the file"},
      {"no data", file_of(whole, 0), "ends beyond the file"},
      {"header too large", "<" + std::string(4, '\0') + "\xff\xff\xff" + whole, "its header would have"},
      {"length alone", "<" + std::string(7, '\0'), "its header would have 60 bytes and the file has 8"},
      {"one byte that is not UTF-8", file_of("\xff", 0), "does not begin with {"},
      {"one brace", file_of("{", 0), "not JSON"},
      {"white space before the header", file_of("\t\n{}\r ", 0), "does not begin with {"},
      {"byte order mark", file_of("\xef\xbb\xbf{}", 0), "does not begin with {"},
      {"zeros after the header", file_of(std::string("{}\0\0", 4), 0), "not JSON"},
      {"comment", file_of("{/* none */}", 0), "not JSON"},
      {"four elements in one", one_tensor("[2,2]", "[0,4]", 4), "need 16"},
      {"no elements in four bytes", one_tensor("[2,0]", "[0,4]", 4), "need 0"},
      {"product beyond 2^64", one_tensor("[2,18446744073709551614]", "[0,16]", 16), "unexpected the number"},
      {"bytes beyond 2^64", one_tensor("[2,9223372036854775807]", "[0,16]", 16), "more than fit"},
      {"product that wraps to 16 bytes", one_tensor("[4611686018427387908]", "[0,16]", 16), "more than fit"},
      {"product with a zero behind an overflow", one_tensor("[4294967296,4294967296,0]", "[0,0]", 0), "more than fit"},
      {"offsets beyond 2^64", one_tensor("[2,2]", "[18446744073709551616,18446744073709551632]", 16),
       "unexpected the number"},
      {"negative offset", one_tensor("[2,2]", "[-16,0]", 16), "unexpected the number -16"},
      {"exponent", one_tensor("[2,2]", "[0,16e0]", 16), "unexpected the number"},
      {"one offset", one_tensor("[2,2]", "[16]", 16), "want [begin, end]"},
      {"begin behind the end of the file", one_tensor("[0]", "[32,32]", 16), "ends beyond the file"},
      {"empty tensor within another",
       file_of(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[0],)"
               R"("data_offsets":[2,2]}})",
               4),
       "neither overlap nor leave holes"},
      {"infinite dtype", file_of(R"({"test":{"dtype":NaN,"shape":[1],"data_offsets":[0,4]}})", 4), "not JSON"},
      {"lower-case dtype", file_of(R"({"test":{"dtype":"f32","shape":[1],"data_offsets":[0,4]}})", 4), "unknown dtype"},
      {"metadata with a list", file_of(R"({"__metadata__":{"a":["1"]}})", 0), "unexpected a list"},
      {"metadata with an object", file_of(R"({"__metadata__":{"a":{}}})", 0), "unexpected an object"},
      {"tensor that is a list", file_of(R"({"test":[]})", 0), "unexpected a list"},
      {"tensor without members", file_of(R"({"test":{}})", 0), "got 0 of them"},
      {"half of a surrogate pair", file_of(R"({"\ud800":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})", 0),
       "not JSON"},
      {"the same name spelt otherwise",
       file_of(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"\u0061":{"dtype":"U8","shape":[0],)"
               R"("data_offsets":[0,0]}})",
               0),
       "appears twice"},
  };
  const TemporaryDirectory directory;
  const std::string path = directory.path("f");
  for (const Case& hostile : cases) {
    INFO(hostile.name);
    write(path, hostile.bytes);
    CHECK_THROWS_WITH(SafetensorsFile(path), testing::Contains(hostile.message) && testing::Contains(path));
    CHECK_THROWS_AS(SafetensorsFile(path), DataError);
  }
  // These the format allows.
  write(path, file_of("{}\r \t\n", 0));
  CHECK(SafetensorsFile(path).tensors().empty());
  write(path, one_tensor("[]", "[0,4]", 4));
  CHECK(SafetensorsFile(path).find("test")->shape.empty());
  write(path, one_tensor("[2,0]", "[0, 0]", 0));
  CHECK(SafetensorsFile(path).find("test")->bytes == 0);
}

TEST_CASE("Small floats", "[unit][safetensors]") {
  const auto element = [](const char* dtype, uint16_t bits) {
    return tensor_element(dtype, std::string_view(reinterpret_cast<const char*>(&bits), 2), 0);
  };
  // IEEE 754 binary16, bfloat16 and OCP FP8, computed by hand.
  CHECK(element("F16", 0x3c00) == 1.0);
  CHECK(element("F16", 0xc000) == -2.0);
  CHECK(element("F16", 0x7bff) == 65504.0);
  CHECK(element("F16", 0x0001) == std::ldexp(1.0, -24));
  CHECK(std::isinf(element("F16", 0x7c00)));
  CHECK(std::isnan(element("F16", 0x7e00)));
  CHECK(element("BF16", 0x3f80) == 1.0);
  CHECK(element("BF16", 0xc040) == -3.0);
  CHECK(element("F8_E4M3", 0x7e) == 448.0);
  CHECK(std::isnan(element("F8_E4M3", 0x7f)));
  CHECK(element("F8_E5M2", 0x7b) == 57344.0);
}

TEST_CASE("A file that is cut while its tensors are written elsewhere is an error, not zeros", "[unit][safetensors]") {
  const TemporaryDirectory directory;
  const std::string path = directory.path("f"), numbers(100'000, 'x');
  write(path, write_all({{"w", "U8", {100'000}, [&] { return std::string_view(numbers); }}}));
  const std::vector<TensorSource> sources = sources_of(std::make_shared<const SafetensorsFile>(path));
  CHECK_NOTHROW(write_all(sources));
  std::filesystem::resize_file(path, 50'000);
  CHECK_THROWS_AS(write_all(sources), DataError);
  CHECK_THROWS_WITH(write_all(sources), testing::Contains(path + ": byte 50000: the file was cut to 50000 of its "));
}

}  // namespace
}  // namespace bert
