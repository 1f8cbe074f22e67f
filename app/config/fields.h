// Configurations in JSON: any struct with visit_fields is read, written, described and compared here, through one flat
// list of its fields. Errors are collected, not thrown one by one.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace bert {

/// A field in which two configurations differ; values as JSON.
struct ConfigDifference {
  std::string pointer, before, after;
  bool operator==(const ConfigDifference&) const = default;
};

/// Marks a string, or a list of them, as a path: relative to the file that names it, or to the current directory on the
/// command line and in the environment; absolute once loaded.
struct PathMark {};
inline constexpr PathMark kPath{};

/// The values that a string may have.
using OneOf = std::initializer_list<const char*>;

/// One leaf of a configuration struct. The pointer `value` is into that struct.
struct ConfigField {
  std::string pointer;  // "/optimizer/lr"
  std::string help;
  std::variant<bool*, int64_t*, double*, std::string*, std::vector<std::string>*> value;
  int64_t integer_low = INT64_MIN, integer_high = INT64_MAX;
  double low = 0, high = 0;
  bool ranged = false;
  std::vector<std::string> allowed;  // of a string; empty = any
  bool is_path = false;
};

/// The leaves of a struct and of the structs in it, in the order of visit_fields; `objects` gets the pointer and help
/// of each nested struct.
struct ConfigFields {
  std::vector<ConfigField> leaves;
  std::vector<std::pair<std::string, std::string>> objects;
};

namespace detail {

class FieldCollector {
 public:
  FieldCollector(ConfigFields& out, std::string prefix) : out_(out), prefix_(std::move(prefix)) {}

  template <class T>
  void operator()(const char* name, T& value, const char* help) {
    if constexpr (std::is_class_v<T> && !std::is_same_v<T, std::string> &&
                  !std::is_same_v<T, std::vector<std::string>>) {
      out_.objects.emplace_back(prefix_ + "/" + name, help);
      T::visit_fields(value, FieldCollector(out_, prefix_ + "/" + name));
    } else {
      add(name, &value, help);
    }
  }
  template <class T, class Low, class High>
  void operator()(const char* name, T& value, const char* help, Low low, High high) {
    range(add(name, &value, help), value, low, high);
  }
  void operator()(const char* name, std::string& value, const char* help, OneOf allowed) {
    add(name, &value, help).allowed.assign(allowed.begin(), allowed.end());
  }
  template <class T>
  void operator()(const char* name, T& value, const char* help, PathMark) {
    add(name, &value, help).is_path = true;
  }

 private:
  template <class T>
  ConfigField& add(const char* name, T* value, const char* help) {
    ConfigField field;
    field.pointer = prefix_ + "/" + name;
    field.help = help;
    field.value = value;
    out_.leaves.push_back(std::move(field));
    return out_.leaves.back();
  }
  template <class Low, class High>
  static void range(ConfigField& field, int64_t&, Low low, High high) {
    static_assert(std::is_integral_v<Low> && std::is_integral_v<High>);
    field.ranged = true;
    field.integer_low = low;
    field.integer_high = high;
  }
  template <class Low, class High>
  static void range(ConfigField& field, double&, Low low, High high) {
    field.ranged = true;
    field.low = static_cast<double>(low);
    field.high = static_cast<double>(high);
  }

  ConfigFields& out_;
  std::string prefix_;
};

}  // namespace detail

/// The fields of `config`, which must outlive the result.
template <class Config>
ConfigFields fields_of(Config& config) {
  ConfigFields out;
  Config::visit_fields(config, detail::FieldCollector(out, ""));
  return out;
}

/// What has been found wrong while a configuration was read, and where its values came from; checks across fields add
/// to it.
class ConfigReport {
 public:
  ConfigReport();
  ~ConfigReport();
  ConfigReport(const ConfigReport&) = delete;
  ConfigReport& operator=(const ConfigReport&) = delete;

  /// Adds a problem at the place that set `pointer`, unless that field has one already, or one of `unless` has.
  void add(const std::string& pointer, const std::string& message, const std::vector<std::string>& unless = {});
  /// True when nothing was wrong with the value of `pointer`.
  [[nodiscard]] bool clean(const std::string& pointer) const;
  /// Throws ConfigError when there is a problem, in the order of sources and lines.
  void throw_if_any() const;

  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

/// Sets `fields` from the file with what it extends (at most 16 deep, no cycles), from the environment and from
/// `overrides`. Unknown keys, wrong types and values out of range go into `report`; such fields keep their value.
/// Throws InputMissing when `path` is absent.
void read_config(const ConfigFields& fields, const std::string& path, const std::vector<std::string>& overrides,
                 ConfigReport& report);

/// Sets `fields` from one JSON text alone; relative paths in it are an error of the caller and stay as they are.
void read_config_text(const ConfigFields& fields, const std::string& text, const std::string& name,
                      ConfigReport& report);

/// Keys sorted, two spaces of indentation, final newline.
std::string write_config(const ConfigFields& fields);

/// JSON Schema of `fields`, whose present values are the defaults.
std::string config_schema(const ConfigFields& fields, const std::string& title);

/// Leaves whose values differ. Both lists come from one struct type.
std::vector<ConfigDifference> compare_configs(const ConfigFields& before, const ConfigFields& after);

}  // namespace bert
