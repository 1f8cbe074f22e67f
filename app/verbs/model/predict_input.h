// The texts that `bert predict` is asked about: arguments, lines, or fields of JSON lines.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace bert {

/// A text, and its place for messages: "texts.txt: line 3".
struct InputText {
  std::string text, place;
  int64_t number = 0;             // of the line, or of the argument
  nlohmann::ordered_json object;  // of a JSON line: all its fields, in their order; else null
};

/// A line without a text.
struct BadLine {
  std::string place, problem;
  int64_t number = 0;
};

struct InputTexts {
  std::vector<InputText> texts;
  std::vector<BadLine> bad;  // in the order of the lines
  int64_t invalid_utf8 = 0;  // sequences that were dropped from the texts
};

/// Reads the lines of `input`, a file, or standard input if it is "-". Without `text_field` each line is a text, also an
/// empty one. With it a line is a JSON object whose field is the text; "a.b" is the field b of the object a; empty lines
/// are left out. Throws InputMissing, IoError, and DataError for a file without lines or that is not plain text.
InputTexts read_input_texts(const std::string& input, const std::string& text_field);

/// The arguments TEXT of a command line.
InputTexts texts_of_arguments(const std::vector<std::string>& arguments);

}  // namespace bert
