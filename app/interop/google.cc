#include "app/interop/google.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <memory>
#include <utility>

#include "app/interop/files/tensor_bundle.h"
#include "app/interop/neighbours.h"
#include "app/interop/transpose.h"
#include "data/io/error.h"
#include "data/io/mapping_guard.h"

namespace bert {
namespace {

namespace fs = std::filesystem;

// Variables of optimizers, the last part of a name: Google's AdamWeightDecayOptimizer and NVIDIA's LAMBOptimizer,
// TensorFlow's own Adam, and NVIDIA's sums over micro-batches.
constexpr std::array kSlots = std::to_array<std::string_view>(
    {"adam_m", "adam_v", "lamb_m", "lamb_v", "Adam", "Adam_1", "LAMB", "LAMB_1", "accum"});
// Numbers of a run.
constexpr std::array kNumbers = std::to_array<std::string_view>(
    {"global_step", "beta1_power", "beta2_power", "current_loss_scale", "good_steps", "loss_scale", "local_step"});

struct Name {
  std::string text;
  bool transposed = false;
};

/// The name in transformers of a variable, such as bert/encoder/layer_0/attention/self/query/kernel.
Name name_of_variable(const std::string& variable) {
  const static std::map<std::string_view, std::string_view> kLast = {
      {"kernel", "weight"},
      {"gamma", "weight"},
      {"beta", "bias"},
      {"output_weights", "weight"},
      {"output_bias", "bias"},
      {"word_embeddings", "word_embeddings.weight"},
      {"position_embeddings", "position_embeddings.weight"},
      {"token_type_embeddings", "token_type_embeddings.weight"}};
  const size_t slash = variable.rfind('/');
  if (slash == std::string::npos) return {variable};  // of a classifier, say
  const std::string_view last = std::string_view(variable).substr(slash + 1);
  const auto found = kLast.find(last);
  std::string name = variable.substr(0, slash + 1) + std::string(found == kLast.end() ? last : found->second);
  if (const size_t layer = name.find("/layer_"); layer != std::string::npos)
    name[layer + std::string_view("/layer").size()] = '/';
  std::replace(name.begin(), name.end(), '/', '.');
  return {std::move(name), last == "kernel"};
}

/// The tensors of a bundle with the names of transformers. Tensors of optimizers and numbers of the run are counted in the
/// notes of `report`.
std::vector<TensorSource> weights_of(const std::shared_ptr<const TensorBundle>& bundle, ImportReport& report) {
  std::vector<TensorSource> weights;
  std::map<std::string_view, int64_t> left_out;
  const auto copy = std::make_shared<std::string>();  // of the transposed matrix that was asked for last
  for (const BundleTensor& tensor : bundle->tensors()) {
    const size_t slash = tensor.name.rfind('/');
    const std::string_view last = std::string_view(tensor.name).substr(slash == std::string::npos ? 0 : slash + 1);
    if (std::find(kSlots.begin(), kSlots.end(), last) != kSlots.end() ||
        std::find(kNumbers.begin(), kNumbers.end(), last) != kNumbers.end()) {
      ++left_out[last];
      continue;
    }
    auto [name, transposed] = name_of_variable(tensor.name);
    const BundleTensor* const place = &tensor;
    TensorSource source{name, tensor.dtype, tensor.shape, [bundle, place] { return bundle->data(*place); }};
    if (transposed && tensor.shape.size() == 2) {
      std::swap(source.shape[0], source.shape[1]);
      source.bytes = [bundle, place, copy] {
        transpose(bundle->data(*place), static_cast<size_t>(place->shape[0]), static_cast<size_t>(place->shape[1]),
                  static_cast<size_t>(element_bytes(place->dtype)), *copy);
        expect_whole_mapping(bundle->data(*place).data());
        return std::string_view(*copy);
      };
    }
    weights.push_back(std::move(source));
  }
  if (!left_out.empty()) {
    std::vector<std::string> counts;
    counts.reserve(left_out.size());
    for (const auto& [name, count] : left_out) counts.push_back(fmt::format("{} {}", count, name));
    report.notes.push_back(fmt::format("tensors of the training are left out: {}", fmt::join(counts, ", ")));
  }
  return weights;
}

}  // namespace

bool is_google(const std::string& path) {
  constexpr std::string_view kIndex = ".index";
  std::error_code unseen;
  if (fs::exists(path + std::string(kIndex), unseen) || (path.ends_with(kIndex) && fs::exists(path, unseen)))
    return true;
  if (path.find(".data-") != std::string::npos && fs::is_regular_file(path, unseen)) return true;
  if (!fs::is_directory(path, unseen)) return false;
  for (fs::directory_iterator entry(path, unseen), end; !unseen && entry != end; entry.increment(unseen))
    if (entry->path().extension() == kIndex) return true;
  return false;
}

ForeignCheckpoint read_google(const std::string& path, const ForeignOptions& options) {
  const std::string prefix = bundle_prefix(path);
  ForeignCheckpoint checkpoint;
  checkpoint.path = prefix;
  const fs::path directory = fs::path(prefix).parent_path();
  read_neighbours(checkpoint, directory.empty() ? "." : directory.string(), options.config);
  const auto bundle = std::make_shared<const TensorBundle>(prefix);
  bundle->verify();
  take_all(checkpoint, weights_of(bundle, checkpoint.report), options);
  return checkpoint;
}

}  // namespace bert
