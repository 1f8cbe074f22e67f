// Sentences of any text: nothing but white space is lost, and the time is linear (libFuzzer's time limit).
#include "data/text/sentence_splitter.h"
#include "data/text/unicode.h"
#include "tests/fuzz/targets/fuzz_targets.h"

namespace bert::testing {
namespace {

std::string without_space(std::string_view text) {
  std::string kept;
  while (!text.empty()) {
    const DecodedUtf8 next = decode_utf8(text);
    const auto bytes = static_cast<size_t>(next.bytes);
    if (next.value == kInvalidUtf8 || !is_python_space(next.value)) kept += text.substr(0, bytes);
    text.remove_prefix(bytes);
  }
  return kept;
}

std::vector<std::string> seeds() {
  return {
      "Mr. Smith of the U.S. Army (b. 1950) said: \"Why?\" Mary asked. Fig. 3, No. 5... [12] "
      "\xe2\x80\x9cYes!\xe2\x80\x9d",
      "1. First 2. Second. i am here. so is he. \xe4\xbd\xa0\xe5\xa5\xbd\xe3\x80\x82\xe3\x80\x8d\xe3\x81\xa8 "
      "\xe0\xa5\xa4",
      "\xd0\x90. \xd0\xa1. \xd0\x9f\xd1\x83\xd1\x88\xd0\xba\xd0\xb8\xd0\xbd. \xe2\x80\xa2 One \xe2\x80\xa2 Two :) . . "
      ".\n\n\nA.\r\n"};
}

void read(std::string_view input) {
  std::string sentences;
  for (const std::string& sentence : split_sentences(input)) sentences += sentence + '\n';
  require(without_space(sentences) == without_space(input), "a sentence lost or gained characters");
  std::string lines;
  split_prose(input, [&](std::string_view line) { lines.append(line) += '\n'; });
  if (!input.starts_with("\xef\xbb\xbf"))
    require(without_space(lines) == without_space(input), "prose lost or gained characters");
}

}  // namespace

FuzzTarget sentences_target() { return {"sentences", seeds(), read}; }

}  // namespace bert::testing
