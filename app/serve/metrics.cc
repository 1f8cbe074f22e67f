#include "app/serve/metrics.h"

#include <fmt/format.h>

namespace bert {

void ServerMetrics::request(const std::string& path, int status, double seconds) {
  const std::lock_guard lock(mutex_);
  ++requests_[{path, status}];
  seconds_.observe(seconds);
}

void ServerMetrics::batch(int64_t texts, int64_t tokens, double seconds) {
  const std::lock_guard lock(mutex_);
  texts_ += texts;
  tokens_ += tokens;
  batch_texts_.observe(static_cast<double>(texts));
  batch_tokens_.observe(static_cast<double>(tokens));
  batch_seconds_.observe(seconds);
}

std::string ServerMetrics::text(const std::vector<MetricValue>& values) const {
  const std::lock_guard lock(mutex_);
  std::string lines = metric_header("bert_requests_total", "Answered requests.", "counter");
  for (const auto& [key, count] : requests_) {
    lines +=
        fmt::format("bert_requests_total{{path={},status=\"{}\"}} {}\n", metric_label(key.first), key.second, count);
  }
  lines += seconds_.text("bert_request_seconds", "Time from the first byte of a request to the last of its answer.");
  lines += metric_header("bert_texts_total", "Texts that the model has computed.", "counter");
  lines += fmt::format("bert_texts_total {}\n", texts_);
  lines += metric_header("bert_tokens_total", "Tokens that the model has computed.", "counter");
  lines += fmt::format("bert_tokens_total {}\n", tokens_);
  lines += batch_texts_.text("bert_batch_texts", "Texts of a batch.");
  lines += batch_tokens_.text("bert_batch_tokens", "Tokens of a batch.");
  lines += batch_seconds_.text("bert_batch_seconds", "Time of a batch in the model.");
  for (const MetricValue& value : values) {
    lines += metric_header(value.name, value.help, value.type) + fmt::format("{} {}\n", value.name, value.value);
  }
  return lines;
}

}  // namespace bert
