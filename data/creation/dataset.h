// A directory of files of examples as a whole: its plan, its manifest dataset.json, and its end.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/corpus/input_files.h"
#include "data/creation/dealer.h"
#include "data/creation/example_directory.h"
#include "data/creation/work_directory.h"

namespace bert {

/// The files to be made, known before the text is read.
struct DatasetPlan {
  int64_t text_bytes = 0;  // of all documents; estimated if num_shards was given and files are compressed
  DealOptions deal;
  std::vector<std::string> paths;  // of the files of examples, by target (data/creation/dealer.h)
  Parameters parameters;           // everything that the result depends on
  std::string output, validation_output;

  [[nodiscard]] size_t targets() const { return paths.size(); }
  [[nodiscard]] std::vector<std::string> directories() const;
  /// The settings that a file stores.
  [[nodiscard]] Parameters file_parameters(const PretrainingDataConfig& config, size_t number, bool validation,
                                           size_t documents) const;
  Parameters common;  // for file_parameters
};

/// Makes the plan, and the directories if they are absent. Throws what find_input_files() throws, IoError, and DataError
/// if a directory has files of examples that were made otherwise.
DatasetPlan plan_dataset(const DirectoryOptions& options, const Tokenizer& tokenizer, const InputFiles& files);

/// The seed of the generator for one file.
uint64_t seed_of_file(uint64_t seed, bool validation, size_t number);

/// The summary of a directory that is finished; empty if there is no dataset.json, with options.overwrite, and after an
/// overwriting process that was killed. Throws DataError if its settings are others, a file has gone, or dataset.json is
/// not as write_dataset() writes it: with the file and the member.
std::optional<DirectorySummary> finished_dataset(const DirectoryOptions& options, const DatasetPlan& plan);

/// Writes dataset.json to each directory, that of the output last. Its members: format, vocabulary_checksum, parameters,
/// `text` and `read` (the fields of CorpusStatistics and ReadStatistics), and `files`: name, the fields of
/// ExampleFileFigures, and checksum, the XXH3-128 of the file.
void write_dataset(const DirectoryOptions& options, const DatasetPlan& plan, const Tokenizer& tokenizer,
                   const DirectorySummary& summary);

/// Removes dataset.json and the numbered files of examples; calls `removed` after each.
void remove_dataset(const DatasetPlan& plan, const std::function<void()>& removed);

// Notes of the work directory.
Parameters note_of(const ExampleFileFigures& figures);
ExampleFileFigures figures_of(const Note& note);
Parameters read_note(size_t chunks, const ReadStatistics& read, const std::vector<int64_t>& text_bytes);
ReadStatistics read_statistics(const Note& note);

}  // namespace bert
