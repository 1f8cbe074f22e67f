#include "app/inference/feature_windows.h"

#include <torch/types.h>

#include "data/tasks/text_windows.h"

namespace bert {
namespace {

/// The windows of all texts as texts of their own.
class WindowsOfTexts {
 public:
  WindowsOfTexts(std::span<const EncodedText> texts, const WindowSizes& sizes) {
    for (const EncodedText& text : texts) {
      const int64_t tokens = std::ssize(text.ids) - 2;
      const int64_t room = sizes.longest - 2;
      std::vector<TextWindow>& places = places_.emplace_back(tokens <= room ? std::vector<TextWindow>{{0, tokens}}
                                                                            : text_windows(tokens, room, sizes.stride));
      for (const TextWindow& place : places) {
        EncodedText& window = windows_.emplace_back();
        window.options = text.options;
        window.ids.push_back(text.ids.front());
        const auto begin = text.ids.begin() + 1 + place.start;
        window.ids.insert(window.ids.end(), begin, begin + place.length);
        window.ids.push_back(text.ids.back());
      }
    }
  }

  [[nodiscard]] std::span<const EncodedText> windows() const { return windows_; }

  /// Calls join(places, first) for each text with its windows and the number of the first among all.
  template <class Join>
  void for_each_text(const Join& join) const {
    size_t first = 0;
    for (const std::vector<TextWindow>& places : places_) {
      join(places, first);
      first += places.size();
    }
  }

 private:
  std::vector<EncodedText> windows_;
  std::vector<std::vector<TextWindow>> places_;  // of each text
};

/// The states [..., S, H] of a text from those of its windows, `of_window(i)`.
template <class OfWindow>
torch::Tensor joined(const std::vector<TextWindow>& places, const OfWindow& of_window) {
  std::vector<torch::Tensor> parts = {of_window(0).narrow(-2, 0, 1)};
  for (size_t i = 0; i < places.size(); ++i) {
    const torch::Tensor states = of_window(i);
    for (int64_t token = 0; token < places[i].length; ++token) {
      if (is_max_context(places, i, places[i].start + token)) parts.push_back(states.narrow(-2, token + 1, 1));
    }
  }
  const torch::Tensor last = of_window(places.size() - 1);
  parts.push_back(last.narrow(-2, last.size(-2) - 1, 1));
  return torch::cat(parts, -2);
}

}  // namespace

std::vector<Features> features_of_windows(const Predictor& predictor, std::span<const EncodedText> texts,
                                          const WindowSizes& sizes) {
  const WindowsOfTexts all(texts, sizes);
  const std::vector<Features> of_windows = predictor.features(all.windows());
  std::vector<Features> result;
  all.for_each_text([&](const std::vector<TextWindow>& places, size_t first) {
    Features& features = result.emplace_back();
    features.tokens = predictor.tokens(texts[result.size() - 1]);
    features.last_hidden_state = joined(places, [&](size_t i) { return of_windows[first + i].last_hidden_state; });
    std::vector<torch::Tensor> poolers;
    for (size_t i = first; i < first + places.size() && of_windows[i].pooler_output.defined(); ++i)
      poolers.push_back(of_windows[i].pooler_output);
    if (!poolers.empty()) features.pooler_output = torch::stack(poolers).mean(0);
  });
  return result;
}

std::vector<torch::Tensor> embed_windows(const Predictor& predictor, std::span<const EncodedText> texts,
                                         const WindowSizes& sizes, const EmbeddingOptions& options) {
  const WindowsOfTexts all(texts, sizes);
  const bool pooler = options.pooling == Pooling::kPooler;
  const std::vector<torch::Tensor> of_windows =
      predictor.embed(all.windows(), {.pooling = pooler ? Pooling::kPooler : Pooling::kNone, .layers = options.layers});
  std::vector<torch::Tensor> result;
  all.for_each_text([&](const std::vector<TextWindow>& places, size_t first) {
    if (pooler) {
      const auto begin = of_windows.begin() + static_cast<std::ptrdiff_t>(first);
      result.push_back(torch::stack(std::vector<torch::Tensor>(begin, begin + std::ssize(places))).mean(0));
      return;
    }
    const torch::Tensor states = joined(places, [&](size_t i) { return of_windows[first + i]; });
    result.push_back(options.pooling == Pooling::kCls    ? states.select(-2, 0).clone()
                     : options.pooling == Pooling::kMean ? states.mean(-2)
                                                         : states);
  });
  return result;
}

}  // namespace bert
