#include "app/interop/formats.h"

#include "app/interop/files/torch_file.h"
#include "app/interop/google.h"
#include "app/interop/hugging_face.h"
#include "app/interop/nvidia.h"

namespace bert {
namespace {

constexpr ForeignFormat kFormats[] = {{"huggingface", is_hugging_face, read_hugging_face},
                                      {"google", is_google, read_google},
                                      {"nvidia", is_torch_file, read_nvidia}};

}  // namespace

std::span<const ForeignFormat> foreign_formats() { return kFormats; }

const ForeignFormat* foreign_format_of(const std::string& path) {
  for (const ForeignFormat& format : kFormats) {
    if (format.recognises(path)) return &format;
  }
  return nullptr;
}

}  // namespace bert
