// The actions of `bert data`, one file each or few, and what they share.
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "app/cli/choice.h"
#include "app/cli/command_line.h"
#include "app/cli/percentage.h"
#include "data/config.h"

namespace bert {

struct ShardManifest;  // data/formats/shard.h

// Exit codes as of every verb; argv[0] is the action.
int data_convert(int argc, char** argv);
int data_create(int argc, char** argv);
int data_download(int argc, char** argv);
int data_extract(int argc, char** argv);
int data_extract_text(int argc, char** argv);
int data_extract_wikipedia(int argc, char** argv);
int data_split(int argc, char** argv);
int data_verify(int argc, char** argv);
int data_show(int argc, char** argv);
int data_stats(int argc, char** argv);

/// Adds an option for each field of a configuration struct: max_seq_length becomes --max-seq-length.
class OptionAdder {
 public:
  explicit OptionAdder(CLI::App& app) : app_(app) {}

  void operator()(const char* name, bool& value, const char* help) {
    app_.add_flag(flag(name), value, help)->capture_default_str();
  }
  void operator()(const char* name, std::optional<bool>& value, const char* help) {
    app_.add_flag_function(
        flag(name), [&value](int64_t count) { value = count > 0; }, help);
  }
  template <class Enum>
  requires std::is_enum_v<Enum>
  void operator()(const char* name, Enum& value, const char* help) { add_choice(app_, flag(name), value, help); }
  template <class T>
  void operator()(const char* name, T& value, const char* help, T low, T high) {
    app_.add_option(flag(name), value, help)->check(number_in(low, high))->capture_default_str();
  }
  template <class T, class Low, class High>
  void operator()(const char* name, T& value, const char* help, Low low, High high) {
    (*this)(name, value, help, static_cast<T>(low), static_cast<T>(high));
  }

 private:
  static std::string flag(std::string name) {
    std::replace(name.begin(), name.end(), '_', '-');
    return name == "do-lower-case" ? "--do-lower-case,!--cased" : "--" + name;
  }

  CLI::App& app_;
};

/// Shows that a share, from 0 to 1, of the bytes of files is done, with rate and time that is left.
class FileProgress {
 public:
  /// Files that are not there count as empty: the reader reports them.
  explicit FileProgress(const std::vector<std::string>& files);
  void update(std::string_view phase, double share) { percentage_.update(phase, share * megabytes_, megabytes_, "MB"); }

 private:
  Percentage percentage_;
  double megabytes_ = 0;
};

/// Prints one line on standard output. Invalid UTF-8, for example in a path, becomes U+FFFD.
void print_line(const nlohmann::ordered_json& json);

/// The counts of a shard, for a line of output.
nlohmann::ordered_json manifest_json(const ShardManifest& manifest);

}  // namespace bert
