// The files of public data sets: their addresses, sizes and checksums.
//
// Note [Published figures]
// Wikipedia's dumps come with lists of SHA-1. For SQuAD and GLUE the figures are those that Hugging Face's datasets
// records (datasets/{squad,squad_v2,glue}/dataset_infos.json); TensorFlow Datasets (url_checksums/) has the same ones,
// but none for SQuAD 2.0 and QQP-clean. For Google's models the figures are those of the files inside the seven archives
// of 2018, from GooglePretrainedWeightDownloader.py of NVIDIA's DeepLearningExamples. No recorded figure is known for
// the archives themselves, nor for the files inside the later ones: there the CRC-32 of the archive is what is checked.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "data/download/downloader.h"

namespace bert {

/// A data set's file, and what is done with it.
struct DataSetFile {
  RemoteFile remote;
  std::string unpack_into;                     // directory for the members of a zip archive; "" if it is not one
  std::map<std::string, std::string> members;  // published SHA-256 of members
};

/// SQuAD: the files of version "1.1" or "2.0".
std::vector<DataSetFile> squad_files(const std::string& version);

/// The names of GLUE's tasks, as the archives have them: "CoLA".
const std::vector<std::string>& glue_tasks();
/// The files of one of glue_tasks(). MRPC has three texts, from which split_mrpc() makes the usual three.
std::vector<DataSetFile> glue_files(const std::string& task);

/// The names of Google's models: "uncased_L-12_H-768_A-12", and Hugging Face's name where it has one.
std::vector<std::string> google_bert_models();
/// The archive of the model of that name. Throws std::out_of_range for another name.
DataSetFile google_bert_file(const std::string& model);

/// The dump of all articles of a Wikipedia. `language` is the first part of its address ("en", "zh-min-nan"), `date`
/// that of a dump as YYYYMMDD, or "latest". The lists of checksums are read from the mirrors: they give the date of the
/// latest dump, so that the dump and its checksum belong together. Without any list, the file is the one that the
/// server calls latest, without a checksum. Throws as Downloader does, and InputMissing if the list of `date` has no
/// dump.
DataSetFile wikipedia_file(Downloader& downloader, const std::string& language, const std::string& date);

}  // namespace bert
