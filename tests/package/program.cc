// program EXPORT: a program that uses LibTorch and the installed libbert. It runs a file of `bert export` with LibTorch
// alone, and trains layers of torch::nn with Lamb, GradScaler and AutocastGuard to learn y = sin(x).
#include <bert/optim/amp.h>
#include <bert/optim/lamb.h>
#include <torch/nn.h>
#include <torch/script.h>

#include <cstdio>

namespace {

/// The export takes batches of any size and length, and answers with a finite score for each token of the vocabulary.
bool runs_in_libtorch(const char* file) {
  torch::jit::Module module = torch::jit::load(file);
  const torch::InferenceMode guard;
  const torch::Tensor ids = torch::full({2, 7}, 5, torch::kInt64);
  const auto outputs = module.forward({ids, torch::zeros_like(ids), torch::ones_like(ids)}).toTuple();
  const torch::Tensor logits = outputs->elements()[0].toTensor();
  std::printf("export: %ld x %ld x %ld logits\n", static_cast<long>(logits.size(0)), static_cast<long>(logits.size(1)),
              static_cast<long>(logits.size(2)));
  return logits.sizes().slice(0, 2) == torch::IntArrayRef({2, 7}) && logits.isfinite().all().item<bool>();
}

bool learns_sine() {
  torch::manual_seed(1);
  torch::nn::Sequential net(torch::nn::Linear(1, 64), torch::nn::Tanh(), torch::nn::Linear(64, 1));
  const bert::OptimizerConfig config{.lr = 0.02, .weight_decay = 0.0, .use_nvlamb = true};
  bert::Lamb optimizer(bert::group_parameters(bert::named_parameters(*net), config), config);
  bert::GradScaler scaler({.init_scale = 1048576.0, .growth_interval = 50}, torch::kCPU);
  double first = 0, last = 0;
  for (int step = 0; step < 300; ++step) {
    const torch::Tensor x = torch::rand({64, 1}) * 6 - 3;
    torch::Tensor loss;
    {
      const bert::AutocastGuard autocast(torch::kCPU, bert::Precision::kFp16);
      loss = (net->forward(x) - x.sin()).to(torch::kFloat).square().mean();
    }
    optimizer.zero_grad();
    scaler.scale(loss).backward();
    scaler.step(optimizer);
    scaler.update();
    (step == 0 ? first : last) = loss.item<double>();
  }
  const auto applied = optimizer.applied_steps().item<int64_t>();
  std::printf("loss %.4f -> %.4f, scale %g, %d of 300 steps applied\n", first, last,
              scaler.current_scale().item<double>(), static_cast<int>(applied));
  return last < 0.1 * first && applied > 200 && applied < 300;
}

}  // namespace

int main(int argc, char** argv) { return argc == 2 && runs_in_libtorch(argv[1]) && learns_sine() ? 0 : 1; }
