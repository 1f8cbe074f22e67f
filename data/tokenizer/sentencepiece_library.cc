#include "data/tokenizer/sentencepiece_library.h"

#include <dlfcn.h>

#include "data/io/error.h"

namespace bert {
namespace {

constexpr const char* kFile = "libbert_sentencepiece.so";  // found by the RUNPATH of the file that holds this code

const SentencePieceLibrary* open_library() {
  int flags = RTLD_NOW | RTLD_LOCAL;
  // RTLD_DEEPBIND: sentencepiece uses its own copies of templates, not LibTorch's. Programs under a sanitizer must not
  // use this flag, because their runtime has to replace the allocator everywhere. All sanitizers export this function.
  if (dlsym(RTLD_DEFAULT, "__sanitizer_print_stack_trace") == nullptr) flags |= RTLD_DEEPBIND;
  void* const file = dlopen(kFile, flags);
  void* const symbol = file != nullptr ? dlsym(file, "bert_sentencepiece_library") : nullptr;
  if (symbol == nullptr) {
    throw IoError(std::string("cannot load ") + kFile + ", which holds sentencepiece: " + dlerror() +
                  "; it belongs beside libbert.so: build or install bert again");
  }
  return reinterpret_cast<decltype(&bert_sentencepiece_library)>(symbol)();
}

}  // namespace

const SentencePieceLibrary& sentencepiece_library() {
  static const SentencePieceLibrary* const library = open_library();
  return *library;
}

}  // namespace bert
