// The small files of a sentence encoder as they were read, so that a conversion there and back loses nothing: keys that
// this program does not know, versions, README.md.
#pragma once

#include <map>
#include <string>

#include "app/interop/foreign_checkpoint.h"
#include "app/interop/sentence_transformers.h"

namespace bert {

/// The file of a checkpoint that has them: an object of JSON, name to content.
inline constexpr const char* kOriginalsFile = "originals.json";

/// Name to content: the texts in `directory`, in `modules.transformer`, and config.json of the modules, under the names
/// of hugging_face_files() and sentence_transformers_files(). Weights, and modules.json with other folders than
/// these, are left out; files above 16 MB or not in UTF-8 too, with a note in the report. Throws IoError.
std::map<std::string, std::string> read_original_files(const std::string& directory, const SentenceModules& modules,
                                                       ImportReport& report);

/// The content of kOriginalsFile, and the way back. Throws DataError that names `path`.
std::string originals_text(const std::map<std::string, std::string>& originals);
std::map<std::string, std::string> parse_originals(const std::string& text, const std::string& path);

/// Drops the files of the tokenizer, for a model that gets another one.
void drop_original_tokenizer(std::map<std::string, std::string>& originals);

/// Puts the originals into `files`, in place of those that say the same. config.json gets the architecture of `files`,
/// which leaves out heads of pre-training, and its vocab_size. Throws DataError for a config.json that is no object.
void put_originals(const std::map<std::string, std::string>& originals, std::map<std::string, std::string>& files);

}  // namespace bert
