// The frame of a record in TensorFlow's files of records: TFRecords, and TensorBoard's event files.
#pragma once

#include <string>
#include <string_view>

namespace bert {

/// Appends `record` in its frame to `bytes`: u64 length, u32 masked CRC-32C of the length, the record, u32 masked
/// CRC-32C of the record; all little-endian. Source: tensorflow/core/lib/io/record_writer.h.
void append_record(std::string& bytes, std::string_view record);

}  // namespace bert
