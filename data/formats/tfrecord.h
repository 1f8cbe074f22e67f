// TFRecord files of pre-training examples, as Google's create_pretraining_data.py writes them.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "data/formats/example_file.h"

namespace bert {

// Note [TFRecord]
// Each record: u64 length, u32 masked CRC-32C of the length, a serialized tf.Example, u32 masked CRC-32C of it; all
// little-endian. The whole file may be gzip. Source: tensorflow/core/lib/io/record_writer.h. The format knows neither
// vocabulary nor parameters; the lengths of the first record's features hold for all.

/// True if `start`, the first bytes of a file, is the beginning of a TFRecord: 12 bytes with the right checksum.
bool is_tfrecord(std::string_view start);

/// Opens a TFRecord, plain or gzip. Throws InputMissing, IoError, DataError.
std::unique_ptr<ExampleReader> open_tfrecord(const std::string& path);

/// Creates a TFRecord, as gzip if `pack`. Throws IoError, and DataError for facts that the format cannot hold.
std::unique_ptr<ExampleWriter> create_tfrecord(const std::string& path, const ExampleFileInfo& info, bool pack);

}  // namespace bert
