// Configurations in JSON. A struct with visit_fields is read, written, described and compared through one flat list of
// its fields. Errors are collected, so that all of them are reported at once.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace bert {

/// A field in which two configurations differ. The values are JSON.
struct ConfigDifference {
  std::string pointer, before, after;
  bool operator==(const ConfigDifference&) const = default;
};

/// Marks a string, or a list of strings, as a path. A relative path in a file counts from the directory of the file,
/// elsewhere from the current directory. Loaded configurations have absolute paths.
struct PathMark {};
inline constexpr PathMark kPath{};

/// Marks a field, or an object with all of its fields, that may change when a run resumes.
struct MayChangeMark {};
inline constexpr MayChangeMark kMayChange{};

/// Marks an integer that the word "auto" may stand for. The value is then 0, which must be outside of the range.
struct AutoMark {};
inline constexpr AutoMark kAuto{};

/// The values that a string, or each of a list of strings, may have.
using OneOf = std::initializer_list<const char*>;

struct ConfigFields;

/// A list of structs with visit_fields, which the functions refer to. Its elements are read, written and described as
/// objects, and compared as one value.
struct ConfigList {
  std::function<void()> clear;
  std::function<ConfigFields()> append;                 // a new element; its fields are valid until the next call
  std::function<std::vector<ConfigFields>()> elements;  // their pointers begin at the list's
  std::function<ConfigFields()> default_element;
};

/// A member that is an enumeration, or an optional one. Its values are the places of their words in
/// ConfigField::allowed; the first word of an optional one is "auto", for an empty value.
struct EnumValue {
  std::function<size_t()> get;
  std::function<void(size_t)> set;
};

/// One leaf of a configuration struct. `value` points into that struct.
struct ConfigField {
  std::string pointer;  // "/optimizer/lr"
  std::string help;
  std::variant<bool*, std::optional<bool>*, int64_t*, double*, std::string*, std::vector<std::string>*, EnumValue,
               ConfigList>
      value;
  int64_t integer_low = INT64_MIN, integer_high = INT64_MAX;
  double low = 0, high = 0;
  bool ranged = false;
  std::vector<std::string> allowed;  // the values that a word, or each of a list, may have; empty: any
  bool is_path = false;
  bool may_change = false;
  bool may_be_auto = false;
};

/// The leaves of a struct and of its nested structs, in the order of visit_fields. `objects` has the pointer and the
/// help of each nested struct.
struct ConfigFields {
  std::vector<ConfigField> leaves;
  std::vector<std::pair<std::string, std::string>> objects;
};

namespace detail {

/// Element of a std::vector of structs, otherwise void.
template <class T>
struct ElementOf {
  using Type = void;
};
template <class T>
requires std::is_class_v<T> &&(!std::is_same_v<T, std::string>)struct ElementOf<std::vector<T>> {
  using Type = T;
};

/// Access to an enumeration. Adds the words of its values to `words`.
template <class Enum>
requires std::is_enum_v<Enum> EnumValue enum_value(Enum& value, std::vector<std::string>& words) {
  for (const char* const name : names_of(value)) words.emplace_back(name);
  return {.get = [&value] { return static_cast<size_t>(value); },
          .set = [&value](size_t word) { value = static_cast<Enum>(word); }};
}
template <class Enum>
requires std::is_enum_v<Enum> EnumValue enum_value(std::optional<Enum>& value, std::vector<std::string>& words) {
  words.emplace_back("auto");
  for (const char* const name : names_of(Enum{})) words.emplace_back(name);
  return {
      .get = [&value] { return value ? 1 + static_cast<size_t>(*value) : 0; },
      .set = [&value](size_t word) { value = word > 0 ? std::optional(static_cast<Enum>(word - 1)) : std::nullopt; }};
}

/// The visitor that visit_fields(visit) gets. Each call is visit(name, member, help, marks...). A mark is a range of a
/// number (two bounds), OneOf, kPath, kMayChange or kAuto.
class FieldCollector {
 public:
  FieldCollector(ConfigFields& out, std::string prefix, bool may_change = false)
      : out_(out), prefix_(std::move(prefix)), may_change_(may_change) {}

  template <class T, class... Marks>
  void operator()(const char* name, T& value, const char* help, Marks... marks) {
    const bool may_change = may_change_ || (std::is_same_v<Marks, MayChangeMark> || ...);
    ConfigField field;
    field.pointer = prefix_ + "/" + name;
    field.help = help;
    field.may_change = may_change;
    if constexpr (std::is_constructible_v<decltype(ConfigField::value), T*>) {
      field.value = &value;
      mark(field, value, marks...);
      out_.leaves.push_back(std::move(field));
    } else if constexpr (requires { enum_value(value, field.allowed); }) {
      field.value = enum_value(value, field.allowed);
      mark(field, value, marks...);
      out_.leaves.push_back(std::move(field));
    } else if constexpr (!std::is_void_v<typename ElementOf<T>::Type>) {
      field.value = list_of(value, field.pointer);
      out_.leaves.push_back(std::move(field));
    } else {
      out_.objects.emplace_back(field.pointer, help);
      T::visit_fields(value, FieldCollector(out_, field.pointer, may_change));
    }
  }

 private:
  template <class Element>
  static ConfigList list_of(std::vector<Element>& list, const std::string& pointer) {
    const auto fields = [](Element& element, const std::string& prefix) {
      ConfigFields result;
      Element::visit_fields(element, FieldCollector(result, prefix));
      return result;
    };
    const auto place = [pointer](size_t i) { return pointer + "/" + std::to_string(i); };
    return {.clear = [&list] { list.clear(); },
            .append =
                [&list, fields, place] {
                  list.emplace_back();
                  return fields(list.back(), place(list.size() - 1));
                },
            .elements =
                [&list, fields, place] {
                  std::vector<ConfigFields> result;
                  for (size_t i = 0; i < list.size(); ++i) result.push_back(fields(list[i], place(i)));
                  return result;
                },
            .default_element =
                [fields] {
                  static Element element;
                  return fields(element, "");
                }};
  }

  template <class T>
  static void mark(ConfigField&, T&) {}
  template <class T, class... Rest>
  static void mark(ConfigField& field, T& value, MayChangeMark, Rest... rest) {
    mark(field, value, rest...);
  }
  template <class... Rest>
  static void mark(ConfigField& field, int64_t& value, AutoMark, Rest... rest) {
    field.may_be_auto = true;
    mark(field, value, rest...);
  }
  template <class T, class... Rest>
  static void mark(ConfigField& field, T& value, PathMark, Rest... rest) {
    static_assert(std::is_same_v<T, std::string> || std::is_same_v<T, std::vector<std::string>>);
    field.is_path = true;
    mark(field, value, rest...);
  }
  template <class T, class... Rest>
  static void mark(ConfigField& field, T& value, OneOf allowed, Rest... rest) {
    static_assert(std::is_same_v<T, std::string> || std::is_same_v<T, std::vector<std::string>>);
    field.allowed.assign(allowed.begin(), allowed.end());
    mark(field, value, rest...);
  }
  template <std::integral Low, std::integral High, class... Rest>
  static void mark(ConfigField& field, int64_t& value, Low low, High high, Rest... rest) {
    field.ranged = true;
    field.integer_low = low;
    field.integer_high = high;
    mark(field, value, rest...);
  }
  template <class Low, class High, class... Rest>
  static void mark(ConfigField& field, double& value, Low low, High high, Rest... rest) {
    field.ranged = true;
    field.low = static_cast<double>(low);
    field.high = static_cast<double>(high);
    mark(field, value, rest...);
  }

  ConfigFields& out_;
  std::string prefix_;
  bool may_change_;
};

}  // namespace detail

/// The fields of `config`. They point into `config`.
template <class Config>
ConfigFields fields_of(Config& config) {
  ConfigFields out;
  Config::visit_fields(config, detail::FieldCollector(out, ""));
  return out;
}

/// The problems of a configuration that is being read, and the source of each value. Checks across fields add problems.
class ConfigReport {
 public:
  ConfigReport();
  ~ConfigReport();
  ConfigReport(const ConfigReport&) = delete;
  ConfigReport& operator=(const ConfigReport&) = delete;

  /// Adds a problem of the field `pointer`, at the place that has set it. Does nothing if that field, or one of
  /// `unless`, has a problem already.
  void add(const std::string& pointer, const std::string& message, const std::vector<std::string>& unless = {});
  /// True if a source has set the field `pointer`.
  [[nodiscard]] bool given(const std::string& pointer) const;
  /// True if the field `pointer` has no problem.
  [[nodiscard]] bool clean(const std::string& pointer) const;
  /// Throws ConfigError if there is a problem. Its problems are in the order of sources and lines.
  void throw_if_any() const;

  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

/// Sets `fields` from the file and the files that it extends (at most 16, no cycles), from the environment and from
/// `overrides`. Unknown keys, wrong types and values out of range go into `report`; such a field keeps its value.
/// Throws InputMissing if `path` is absent.
void read_config(const ConfigFields& fields, const std::string& path, const std::vector<std::string>& overrides,
                 ConfigReport& report);

/// Sets `fields` from `overrides` alone, as read_config() does.
void read_overrides(const ConfigFields& fields, const std::vector<std::string>& overrides, ConfigReport& report);

/// Sets `fields` from one JSON text that write_config has written. Relative paths in the text stay relative. A removed
/// key is left out if the program still does what its value says.
void read_config_text(const ConfigFields& fields, const std::string& text, const std::string& name,
                      ConfigReport& report);

/// The fields as JSON: keys sorted, two spaces of indentation, final newline.
std::string write_config(const ConfigFields& fields);

/// JSON Schema of `fields`. Their present values are the defaults.
std::string config_schema(const ConfigFields& fields, const std::string& title);

/// `fields` without those that may change when a run resumes.
ConfigFields fixed_fields(ConfigFields fields);

/// The leaves whose values differ. Both lists come from one struct type.
std::vector<ConfigDifference> compare_configs(const ConfigFields& before, const ConfigFields& after);

}  // namespace bert
