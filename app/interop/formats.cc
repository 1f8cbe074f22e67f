#include "app/interop/formats.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "app/interop/files/torch_file.h"
#include "app/interop/google.h"
#include "app/interop/hugging_face.h"
#include "app/interop/nvidia.h"
#include "data/io/error.h"

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

void refuse_other_weights(const std::string& path) {
  constexpr std::pair<const char*, const char*> kOthers[] = {
      {"adapter_config.json",
       "an adapter without its model; merge the two first, with merge_and_unload() and save_pretrained() of peft"},
      {"tf_model.h5",
       "weights of Keras; transformers saves model.safetensors after from_pretrained(..., from_tf=True)"},
      {"flax_model.msgpack",
       "weights of Flax; transformers saves model.safetensors after from_pretrained(..., from_flax=True)"}};
  std::error_code unseen;
  for (const auto& [file, what] : kOthers) {
    if (std::filesystem::exists(std::filesystem::path(path) / file, unseen))
      throw DataError(fmt::format("{}: has {}: {}", path, file, what));
  }
}

}  // namespace bert
