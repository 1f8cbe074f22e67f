#include "data/tokenizer/sentencepiece_library.h"

#include "data/io/plugin.h"

namespace bert {

const SentencePieceLibrary& sentencepiece_library() {
  static const SentencePieceLibrary* const library = reinterpret_cast<decltype(&bert_sentencepiece_library)>(
      open_plugin("libbert_sentencepiece.so", "bert_sentencepiece_library",
                  "build or install bert again, with all of its libraries"))();
  return *library;
}

}  // namespace bert
