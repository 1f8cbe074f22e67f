#include "app/tasks/flat_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <type_traits>
#include <unordered_set>

#include "data/io/error.h"
#include "data/io/files.h"

namespace bert {
namespace {

constexpr int64_t kMaxBytes = int64_t{1} << 30;

/// Takes the members of an object from the events of a parser.
template <class Value>
class MemberCollector final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit MemberCollector(const std::string& file) : file_(file) {}

  std::vector<std::pair<std::string, Value>> members;

  bool null() override { return other("null"); }
  bool boolean(bool) override { return other("true or false"); }
  bool number_integer(number_integer_t value) override { return number(static_cast<double>(value)); }
  bool number_unsigned(number_unsigned_t value) override { return number(static_cast<double>(value)); }
  bool number_float(number_float_t value, const string_t&) override { return number(value); }
  bool binary(binary_t&) override { return other("binary"); }
  bool string(string_t& value) override {
    if constexpr (std::is_same_v<Value, std::string>) {
      if (!inside_) return other("a string");
      members.back().second = std::move(value);
      return true;
    } else {
      return other("a string");
    }
  }
  bool start_object(size_t) override {
    if (inside_) return other("an object");
    return inside_ = true;
  }
  bool end_object() override { return true; }
  bool start_array(size_t) override { return other("an array"); }
  bool end_array() override { return true; }
  bool key(string_t& name) override {
    if (!seen_.insert(name).second) throw DataError(fmt::format("{}: the id \"{}\" is there twice", file_, name));
    members.emplace_back(name, Value());
    return true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    throw DataError(file_, static_cast<int64_t>(position), "this is not JSON");
  }

 private:
  bool number([[maybe_unused]] double value) {
    if constexpr (std::is_same_v<Value, double>) {
      if (!inside_) return other("a number");
      members.back().second = value;
      return true;
    } else {
      return other("a number");
    }
  }
  bool other(const char* kind) const {
    if (!inside_) throw DataError(fmt::format("{}: want an object with the ids as keys, got {}", file_, kind));
    throw DataError(fmt::format("{}: \"{}\": want {}, got {}", file_, members.back().first,
                                std::is_same_v<Value, double> ? "a number" : "a string", kind));
  }

  const std::string& file_;
  bool inside_ = false;
  std::unordered_set<std::string> seen_;
};

template <class Value>
std::vector<std::pair<std::string, Value>> read_members(const std::string& path) {
  const std::string text = read_file(path, kMaxBytes);
  MemberCollector<Value> collector(path);
  nlohmann::json::sax_parse(text, &collector);
  return std::move(collector.members);
}

}  // namespace

std::vector<std::pair<std::string, std::string>> read_json_texts(const std::string& path) {
  return read_members<std::string>(path);
}

std::vector<std::pair<std::string, double>> read_json_numbers(const std::string& path) {
  return read_members<double>(path);
}

}  // namespace bert
