#include "data/creation/write_examples.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>

#include "data/examples/example_maker.h"
#include "data/formats/example_file.h"
#include "data/io/error.h"
#include "data/io/files.h"

namespace bert {
namespace {

constexpr double kShareOfMaking = 0.7;  // of the time; the rest is for writing
constexpr size_t kReadBytes = size_t{1} << 20;

std::string checksum_of_file(const std::string& path) {
  Checksum sum;
  std::ifstream file(path, std::ios::binary);
  std::string buffer(kReadBytes, '\0');
  while (file.read(buffer.data(), static_cast<std::streamsize>(buffer.size())) || file.gcount() > 0)
    sum.update(buffer.data(), static_cast<size_t>(file.gcount()));
  if (file.bad()) throw IoError(path + ": cannot read what was written");
  return sum.hexadecimal();
}

}  // namespace

std::vector<ExampleFileFigures> write_examples(const ExampleFileOptions& options, const TokenizedDocuments& documents,
                                               const Tokenizer& tokenizer,
                                               const std::function<void(double)>& progress) {
  const auto tell = [&](double share) {
    if (progress) progress(share);
  };
  std::vector<uint32_t> which = options.which;
  if (which.empty()) {
    which.resize(documents.size());
    std::iota(which.begin(), which.end(), 0U);
  }
  std::vector<ExampleFileFigures> files(options.paths.size());
  files.front().documents = static_cast<int64_t>(which.size());
  // The files are opened before the examples are made: a directory that is not writable is reported at once.
  std::vector<std::unique_ptr<ExampleWriter>> writers;
  for (const std::string& path : options.paths) {
    writers.push_back(create_examples_file(options.format, path,
                                           {.max_seq_length = options.config.max_seq_length,
                                            .max_predictions_per_seq = options.config.max_predictions_per_seq,
                                            .vocab_size = tokenizer.vocabulary().size(),
                                            .vocabulary_checksum = tokenizer.vocabulary().hash(),
                                            .parameters = options.parameters},
                                           &tokenizer.vocabulary()));
  }
  ExampleMaker maker(documents, std::move(which), std::make_shared<const MaskingVocabulary>(tokenizer), options.config,
                     options.seed, options.scratch_directory);
  maker.reserve(static_cast<size_t>(options.expected_examples));
  maker.make([&](double share) {
    if (static_cast<int64_t>(maker.bytes()) > options.memory_bytes) {
      throw MemoryExceeded(fmt::format("{}: its examples take more than {} MB of memory", options.named,
                                       options.memory_bytes / 1'000'000));
    }
    tell(kShareOfMaking * share);
  });
  if (maker.size() == 0) {
    throw DataError(options.named +
                    ": no example can be made: each document is one token, and the order of sentences needs two");
  }
  const bool masked = options.config.masking == StoredMasks::kStatic;
  ExampleFileFigures all;
  all.examples = static_cast<int64_t>(maker.size());
  PretrainingExample example;
  for (size_t i = 0; i < maker.size(); ++i) {
    maker.get(i, example);
    writers[i % writers.size()]->add(example);
    ExampleFileFigures& figures = files[i % files.size()];
    const bool without = masked && example.masked_ids.empty();
    ++figures.examples;
    figures.tokens += static_cast<int64_t>(example.input_ids.size());
    figures.longest = std::max(figures.longest, static_cast<int64_t>(example.input_ids.size()));
    figures.masked_tokens += static_cast<int64_t>(example.masked_ids.size());
    figures.without_masks += without;
    all.without_masks += without;
    tell(kShareOfMaking + (1 - kShareOfMaking) * static_cast<double>(i) / static_cast<double>(maker.size()));
  }
  if (all.without_masks == all.examples) throw DataError(without_masks_message(options.named, options.config, all));
  files.front().lone_tokens = maker.lone_tokens();
  for (size_t i = 0; i < files.size(); ++i) {
    writers[i]->commit();
    files[i].path = options.paths[i];
    files[i].bytes = static_cast<int64_t>(std::filesystem::file_size(options.paths[i]));
    files[i].checksum = checksum_of_file(options.paths[i]);
  }
  tell(1);
  return files;
}

std::string without_masks_message(const std::string& name, const PretrainingDataConfig& config,
                                  const ExampleFileFigures& figures) {
  return fmt::format(
      "{}: {} of {} examples have no masked token: {}", name, figures.without_masks, figures.examples,
      config.do_whole_word_mask
          ? fmt::format("each word of them has more pieces than may be masked; raise --max-predictions-per-seq ({}) "
                        "or --masked-lm-prob ({})",
                        config.max_predictions_per_seq, config.masked_lm_prob)
          : "they have nothing but special tokens");
}

}  // namespace bert
