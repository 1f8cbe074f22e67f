#include "data/formats/shard.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <string_view>

#include "data/formats/numbered_files.h"
#include "data/io/error.h"
#include "data/io/text_parts.h"

namespace bert {
namespace {

static_assert(std::endian::native == std::endian::little, "shards are little-endian");

constexpr char kMagic[8] = {'B', 'E', 'R', 'T', 'S', 'H', 'D', '\n'};
constexpr uint32_t kVersion = 1;
constexpr uint64_t kMaxNarrowVocabulary = 65536;  // ids fit into 16 bits
constexpr size_t kBufferBytes = 1 << 20;          // bytes of one write

struct ShardHeader {
  char magic[8];
  uint32_t version, id_bytes;
  uint64_t file_bytes, rows, offsets_start, text_start;
  uint64_t tokens, masked_tokens, max_id, longest_row, vocab_size, max_seq_length;
  uint64_t tail_checksum;        // XXH3-64 from offsets_start to the end
  uint64_t content_checksum[2];  // XXH3-128 from the end of the header to the end: low, high
  uint64_t header_checksum;      // XXH3-64 of the bytes before
};
static_assert(sizeof(ShardHeader) == 128);

struct RowHeader {
  uint32_t checksum;  // low half of the XXH3-64 of the rest of the row
  uint16_t length, segment_b_start, num_masked, is_random_next;
};
static_assert(sizeof(RowHeader) == 12);

uint64_t align(uint64_t offset, uint64_t alignment) { return (offset + alignment - 1) / alignment * alignment; }

uint64_t row_bytes(const RowHeader& row, uint64_t id_bytes) {
  return align(sizeof(RowHeader) + (uint64_t{row.length} + row.num_masked) * id_bytes +
                   uint64_t{row.num_masked} * sizeof(uint16_t),
               4);
}

uint32_t row_checksum(const char* row, uint64_t bytes) {
  return static_cast<uint32_t>(XXH3_64bits(row + sizeof(uint32_t), bytes - sizeof(uint32_t)));
}

std::string hexadecimal(const uint64_t (&low_high)[2]) {
  return fmt::format("{:016x}{:016x}", low_high[1], low_high[0]);
}

template <class Id>
void append(std::string& bytes, const std::vector<int32_t>& values) {
  for (const int32_t value : values) {
    const Id id = static_cast<Id>(value);
    bytes.append(reinterpret_cast<const char*>(&id), sizeof id);
  }
}

template <class Id>
uint64_t largest(const char* ids, uint64_t count) {
  const Id* values = reinterpret_cast<const Id*>(ids);
  Id result = 0;
  for (uint64_t i = 0; i < count; ++i) result = std::max(result, values[i]);
  return result;
}

struct StateDeleter {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};

}  // namespace

// ---- writing ----

struct ShardWriter::Impl {
  AtomicFile file;
  ShardOptions options;
  ShardHeader header{};
  std::vector<uint64_t> offsets;
  std::string buffer;
  std::unique_ptr<XXH3_state_t, StateDeleter> content{XXH3_createState()};

  Impl(const std::string& path, ShardOptions shard_options) : file(path), options(std::move(shard_options)) {
    if (content == nullptr) throw std::bad_alloc();
    XXH3_128bits_reset(content.get());
  }

  [[nodiscard]] uint64_t position() const { return static_cast<uint64_t>(file.size()) + buffer.size(); }

  void flush() {
    XXH3_128bits_update(content.get(), buffer.data(), buffer.size());
    file.write(buffer);
    buffer.clear();
  }
};

ShardWriter::ShardWriter(const std::string& path, ShardOptions options) {
  if (options.vocab_size < 1 || options.vocab_size > int64_t{1} << 31) {
    throw DataError(fmt::format("{}: vocab_size must be 1 to 2^31, got {}", path, options.vocab_size));
  }
  if (options.max_seq_length < 1 || options.max_seq_length > UINT16_MAX) {
    throw DataError(
        fmt::format("{}: max_seq_length must be 1 to {}, got {}", path, UINT16_MAX, options.max_seq_length));
  }
  for (const auto& [key, value] : options.parameters) {
    if (key.find_first_of("=\n") != std::string::npos || value.find('\n') != std::string::npos) {
      throw DataError(
          fmt::format("{}: a parameter must be one line, its name without '=': got \"{}\" = \"{}\"", path, key, value));
    }
  }
  impl_ = std::make_unique<Impl>(path, std::move(options));
  ShardHeader& header = impl_->header;
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.version = kVersion;
  header.vocab_size = static_cast<uint64_t>(impl_->options.vocab_size);
  header.max_seq_length = static_cast<uint64_t>(impl_->options.max_seq_length);
  header.id_bytes = header.vocab_size <= kMaxNarrowVocabulary ? 2 : 4;
  impl_->file.write(&header, sizeof header);  // reserves the place; commit() writes the content
}

ShardWriter::~ShardWriter() = default;

void ShardWriter::add(const PretrainingExample& example) {
  Impl& writer = *impl_;
  ShardHeader& header = writer.header;
  validate(example, writer.options.vocab_size, writer.options.max_seq_length);
  const RowHeader row = {
      0, static_cast<uint16_t>(example.input_ids.size()), static_cast<uint16_t>(example.segment_b_start),
      static_cast<uint16_t>(example.masked_ids.size()), static_cast<uint16_t>(example.is_random_next)};
  writer.offsets.push_back(writer.position());
  std::string& buffer = writer.buffer;
  const size_t start = buffer.size();
  buffer.append(reinterpret_cast<const char*>(&row), sizeof row);
  for (const auto* ids : {&example.input_ids, &example.masked_ids}) {
    header.id_bytes == 2 ? append<uint16_t>(buffer, *ids) : append<uint32_t>(buffer, *ids);
    for (const int32_t id : *ids) header.max_id = std::max(header.max_id, static_cast<uint64_t>(id));
  }
  append<uint16_t>(buffer, example.masked_positions);
  buffer.resize(start + row_bytes(row, header.id_bytes));
  const uint32_t sum = row_checksum(buffer.data() + start, buffer.size() - start);
  std::memcpy(buffer.data() + start, &sum, sizeof sum);
  header.rows += 1;
  header.tokens += row.length;
  header.masked_tokens += row.num_masked;
  header.longest_row = std::max<uint64_t>(header.longest_row, row.length);
  if (buffer.size() >= kBufferBytes) writer.flush();
}

ShardManifest ShardWriter::commit() {
  Impl& writer = *impl_;
  ShardHeader& header = writer.header;
  const uint64_t rows_end = writer.position();
  writer.offsets.push_back(rows_end);
  writer.buffer.resize(writer.buffer.size() + align(rows_end, 8) - rows_end);
  header.offsets_start = writer.position();
  writer.flush();

  std::string& tail = writer.buffer;
  tail.append(reinterpret_cast<const char*>(writer.offsets.data()), writer.offsets.size() * sizeof(uint64_t));
  header.text_start = writer.position();
  tail += "vocabulary_checksum=" + writer.options.vocabulary_checksum + "\n";
  for (const auto& [key, value] : writer.options.parameters) {
    tail.append(key).append("=").append(value).append("\n");
  }
  header.file_bytes = writer.position();
  header.tail_checksum = XXH3_64bits(tail.data(), tail.size());
  writer.flush();

  const XXH128_hash_t content = XXH3_128bits_digest(writer.content.get());
  header.content_checksum[0] = content.low64;
  header.content_checksum[1] = content.high64;
  header.header_checksum = XXH3_64bits(&header, offsetof(ShardHeader, header_checksum));
  writer.file.write_at(0, &header, sizeof header);
  writer.file.commit();

  return {.rows = static_cast<int64_t>(header.rows),
          .tokens = static_cast<int64_t>(header.tokens),
          .masked_tokens = static_cast<int64_t>(header.masked_tokens),
          .max_id = static_cast<int64_t>(header.max_id),
          .longest_row = static_cast<int64_t>(header.longest_row),
          .vocab_size = writer.options.vocab_size,
          .max_seq_length = writer.options.max_seq_length,
          .vocabulary_checksum = writer.options.vocabulary_checksum,
          .content_checksum = hexadecimal(header.content_checksum),
          .parameters = writer.options.parameters};
}

// ---- reading ----

bool is_shard(std::string_view start) { return start.starts_with(std::string_view(kMagic, sizeof kMagic)); }

std::vector<std::string> shard_files(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) return {path};
  std::vector<std::string> result;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    if (entry.path().extension() == ".shard") result.push_back(entry.path().string());
  }
  std::ranges::sort(result);
  if (result.empty())
    throw InputMissing(path + ": no file *.shard in this directory. Make one with `bert data create`.");
  check_numbered_files(path, result);
  return result;
}

Shard::Shard(const std::string& path) : path_(path), file_(path) {
  const auto bad = [&](uint64_t offset, const std::string& message) {
    return DataError(path_, static_cast<int64_t>(offset),
                     message + " The file is damaged or cut off: make or copy it again.");
  };
  const uint64_t file_bytes = static_cast<uint64_t>(file_.size());
  ShardHeader header;
  if (file_bytes >= sizeof kMagic && !is_shard(file_.view())) {
    throw DataError(
        path_, 0,
        "not a shard: it does not begin as `bert data create --format shard` writes it. `bert data convert` "
        "makes a shard of TFRecord, HDF5, Parquet and Arrow files.");
  }
  if (file_bytes < sizeof header) throw bad(file_bytes, fmt::format("the header needs {} bytes.", sizeof header));
  std::memcpy(&header, file_.data(), sizeof header);
  if (header.header_checksum != XXH3_64bits(&header, offsetof(ShardHeader, header_checksum))) {
    throw bad(0, "the header's checksum does not match.");
  }
  if (header.version != kVersion) {
    throw DataError(path_, offsetof(ShardHeader, version),
                    fmt::format("version {} of the format, this program reads {}.", header.version, kVersion));
  }
  if (header.file_bytes != file_bytes) {
    throw bad(std::min(file_bytes, header.file_bytes),
              fmt::format("{} bytes expected, {} are there.", header.file_bytes, file_bytes));
  }
  // Every file that ShardWriter wrote passes. A file with made-up contents is refused here.
  const bool sound = (header.id_bytes == 2 || header.id_bytes == 4) && header.max_seq_length <= UINT16_MAX &&
                     header.vocab_size <= uint64_t{1} << 31 && header.offsets_start % 8 == 0 &&
                     sizeof header <= header.offsets_start && header.offsets_start <= header.text_start &&
                     header.text_start <= file_bytes && header.rows < file_bytes &&
                     (header.text_start - header.offsets_start) % 8 == 0 &&
                     header.rows == (header.text_start - header.offsets_start) / 8 - 1;
  if (!sound) throw bad(0, "the header contradicts itself.");
  if (header.tail_checksum != XXH3_64bits(file_.data() + header.offsets_start, file_bytes - header.offsets_start)) {
    throw bad(header.offsets_start, "the checksum of the offset table does not match.");
  }
  offsets_ = reinterpret_cast<const uint64_t*>(file_.data() + header.offsets_start);
  uint64_t previous = sizeof header;
  for (uint64_t i = 0; i <= header.rows; ++i) {
    const uint64_t least = i == 0 ? previous : previous + sizeof(RowHeader);
    if (offsets_[i] < least || offsets_[i] % 4 != 0 || offsets_[i] > header.offsets_start) {
      throw bad(header.offsets_start + i * sizeof(uint64_t),
                fmt::format("row {} cannot start at byte {}.", i, offsets_[i]));
    }
    previous = offsets_[i];
  }
  wide_ = header.id_bytes == 4;
  manifest_ = {.rows = static_cast<int64_t>(header.rows),
               .tokens = static_cast<int64_t>(header.tokens),
               .masked_tokens = static_cast<int64_t>(header.masked_tokens),
               .max_id = static_cast<int64_t>(header.max_id),
               .longest_row = static_cast<int64_t>(header.longest_row),
               .vocab_size = static_cast<int64_t>(header.vocab_size),
               .max_seq_length = static_cast<int64_t>(header.max_seq_length),
               .vocabulary_checksum = {},
               .content_checksum = hexadecimal(header.content_checksum),
               .parameters = {}};
  std::string_view text = file_.view().substr(header.text_start);
  while (!text.empty()) {
    const std::string_view line = take_part(text, '\n');
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos) throw bad(header.text_start, "a line of the text has no '='.");
    const std::string_view key = line.substr(0, equals), value = line.substr(equals + 1);
    if (key == "vocabulary_checksum") {
      manifest_.vocabulary_checksum = value;
    } else {
      manifest_.parameters.emplace_back(key, value);
    }
  }
}

int64_t Shard::bytes_of_row(int64_t index) const {
  if (index < 0 || index >= manifest_.rows) {
    throw std::out_of_range(fmt::format("{}: row {} of {}", path_, index, manifest_.rows));
  }
  return static_cast<int64_t>(offsets_[index + 1] - offsets_[index]);
}

std::string Shard::changed() const {
  std::error_code unseen;
  const auto bytes = static_cast<int64_t>(std::filesystem::file_size(path_, unseen));
  if (!unseen && bytes < file_.size()) {
    return fmt::format("the file was cut to {} of its {} bytes while it was read. Make or copy it again.", bytes,
                       file_.size());
  }
  return "its checksum does not match. The file is damaged: make or copy it again.";
}

ShardRow Shard::row(int64_t index) const {
  const auto bytes = static_cast<uint64_t>(bytes_of_row(index));
  const uint64_t start = offsets_[index];
  const auto file_bytes = static_cast<uint64_t>(file_.size());
  if (start > file_bytes || bytes > file_bytes - start || bytes < sizeof(RowHeader)) {  // not so when opened
    throw DataError(path_, static_cast<int64_t>(start), fmt::format("row {}: {}", index, changed()));
  }
  const char* data = file_.data() + start;
  const uint64_t id_bytes = wide_ ? 4 : 2;
  RowHeader header;
  std::memcpy(&header, data, sizeof header);
  const auto bad = [&](const std::string& message) {
    return DataError(path_, static_cast<int64_t>(start), fmt::format("row {}: {}", index, message));
  };
  if (header.checksum != row_checksum(data, bytes)) {
    throw bad(changed());
  }
  ShardRow row;
  row.length = header.length;
  row.segment_b_start = header.segment_b_start;
  row.num_masked = header.num_masked;
  row.is_random_next = header.is_random_next != 0;
  row.wide_ = wide_;
  row.input_ids_ = data + sizeof header;
  row.masked_ids_ = row.input_ids_ + header.length * id_bytes;
  row.masked_positions_ = reinterpret_cast<const uint16_t*>(row.masked_ids_ + header.num_masked * id_bytes);
  if (row_bytes(header, id_bytes) != bytes || row.length < 1 || row.length > manifest_.max_seq_length ||
      row.segment_b_start > row.length || header.is_random_next > 1) {
    throw bad("its lengths contradict each other.");
  }
  const auto ids = static_cast<uint64_t>(row.length + row.num_masked);
  const uint64_t max_id = wide_ ? largest<uint32_t>(row.input_ids_, ids) : largest<uint16_t>(row.input_ids_, ids);
  if (max_id >= static_cast<uint64_t>(manifest_.vocab_size)) {
    throw bad(fmt::format("id {} in a vocabulary of {}.", max_id, manifest_.vocab_size));
  }
  for (int64_t i = 0; i < row.num_masked; ++i) {
    const int64_t position = row.masked_position(i);
    if (position >= row.length || (i > 0 && position <= row.masked_position(i - 1))) {
      throw bad(fmt::format("masked position {} in {} tokens, or out of order.", position, row.length));
    }
  }
  return row;
}

void ShardRow::copy_to(PretrainingExample& example) const {
  example.input_ids.resize(static_cast<size_t>(length));
  example.masked_ids.resize(static_cast<size_t>(num_masked));
  example.masked_positions.resize(static_cast<size_t>(num_masked));
  copy_input_ids(example.input_ids.data());
  copy_masked_ids(example.masked_ids.data());
  for (int64_t i = 0; i < num_masked; ++i)
    example.masked_positions[static_cast<size_t>(i)] = static_cast<int32_t>(masked_position(i));
  example.segment_b_start = static_cast<int32_t>(segment_b_start);
  example.is_random_next = is_random_next;
}

void Shard::verify(const std::function<void(double)>& progress) const {
  const int64_t content_start = sizeof(ShardHeader), content_bytes = file_.size() - content_start;
  const auto tell = [&](int64_t bytes) {  // of the content, which is read twice
    if (progress) progress(static_cast<double>(bytes) / static_cast<double>(2 * std::max<int64_t>(1, content_bytes)));
  };
  ShardManifest sums;
  for (int64_t i = 0; i < size(); ++i) {
    const ShardRow checked = row(i);
    sums.tokens += checked.length;
    sums.masked_tokens += checked.num_masked;
    tell(static_cast<int64_t>(offsets_[i + 1]) - content_start);
  }
  // The checksum of the content also covers the bytes that no row's checksum covers (the alignment after the last row).
  constexpr int64_t kPieceBytes = int64_t{16} << 20;  // bytes between two calls of progress
  Checksum sum;
  for (int64_t at = 0; at < content_bytes; at += kPieceBytes) {
    const int64_t bytes = std::min(kPieceBytes, content_bytes - at);
    sum.update(file_.data() + content_start + at, static_cast<size_t>(bytes));
    tell(content_bytes + at + bytes);
  }
  const std::string content = sum.hexadecimal();
  if (content != manifest_.content_checksum) {
    throw DataError(
        path_, content_start,
        fmt::format("the content's checksum is {}, the header says {}. The file is damaged: make or copy it again.",
                    content, manifest_.content_checksum));
  }
  if (sums.tokens != manifest_.tokens || sums.masked_tokens != manifest_.masked_tokens) {
    throw DataError(path_, 0,
                    fmt::format("{} tokens and {} masked ones, the header says {} and {}.", sums.tokens,
                                sums.masked_tokens, manifest_.tokens, manifest_.masked_tokens));
  }
}

std::string content_checksum_of(ShardSpan shards) {
  Checksum sum;
  for (const auto& shard : shards)
    sum.update(shard->manifest().content_checksum.data(), shard->manifest().content_checksum.size());
  return sum.hexadecimal();
}

}  // namespace bert
