// answer PATH TEXT...: the best words for each [MASK] of each TEXT, and the likeness of the first TEXT and the last.
// PATH is a run or a checkpoint of `bert pretrain`, or a file of `bert export`.
#include <bert/inference.h>
#include <torch/types.h>

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: answer PATH TEXT...\n");
    return 2;
  }
  try {
    const bert::Predictor predictor(argv[1], {.batch_size = 16});
    const std::vector<std::string> texts(argv + 2, argv + argc);
    for (const bert::MaskFilling& filling : predictor.fill_mask(texts, /*top_k=*/3)) {
      std::printf("%s\n", filling.text.c_str());
      for (const std::vector<bert::Filler>& fillers : filling.masks) {
        for (const bert::Filler& filler : fillers) std::printf("%.4f %s\n", filler.score, filler.token_str.c_str());
      }
    }
    const std::vector<bert::Features> features = predictor.features(texts);
    const torch::Tensor first = features.front().last_hidden_state.mean(0),
                        last = features.back().last_hidden_state.mean(0);
    std::printf("likeness %.4f\n", torch::cosine_similarity(first, last, 0).item<double>());
  } catch (const std::exception& error) {  // bert::InputMissing, bert::DataError, bert::IoError, c10::Error
    std::fprintf(stderr, "answer: %s\n", error.what());
    return 1;
  }
  return 0;
}
