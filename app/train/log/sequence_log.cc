#include "app/train/log/sequence_log.h"

#include <fmt/format.h>

#include <filesystem>
#include <vector>

namespace bert {
namespace {

std::string path_of(const std::string& run_directory, int64_t rank) {
  return fmt::format("{}/samples-rank-{:05}.jsonl", run_directory, rank);
}

}  // namespace

SequenceLog::SequenceLog(const std::string& run_directory, int64_t rank, int64_t world_size, int64_t steps)
    : file_(path_of(run_directory, rank), steps), steps_(steps) {
  if (rank != 0) return;
  for (int64_t gone = world_size; std::filesystem::exists(path_of(run_directory, gone)); ++gone) {
    MetricsFile(path_of(run_directory, gone), steps);
  }
}

void SequenceLog::write(const GlobalStep& step) {
  std::vector<int64_t> sequences, examples;
  for (const PackedBatch& batch : step.micro_batches) {
    for (const int64_t sequence : sequence_numbers(batch)) sequences.push_back(sequence);
  }
  for (const ExampleOrder::Place& place : step.places) examples.push_back(place.example);
  file_.write({{"step", ++steps_}, {"samples", sequences}, {"examples", examples}});
}

}  // namespace bert
