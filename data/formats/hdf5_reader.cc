#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "data/formats/child_examples.h"
#include "data/formats/hdf5.h"
#include "data/formats/hdf5_library.h"
#include "data/formats/padded_example.h"
#include "data/io/error.h"
#include "data/io/gzip.h"
#include "data/io/io_errors.h"
#include "data/io/text_parts.h"

namespace bert {
namespace {

using hdf5::check;
using hdf5::fail;
using hdf5::Handle;
using hdf5::kColumns;

constexpr std::string_view kSignature("\x89HDF\r\n\x1a\n", 8);
constexpr int64_t kBatchElements = 1 << 16;              // of input_ids that the child reads at once
constexpr uint64_t kMostTextBytes = uint64_t{16} << 20;  // of an attribute
constexpr hsize_t kMostCacheBytes = hsize_t{256} << 20;  // of unpacked chunks of one dataset
constexpr int64_t kSecondsPerMegabyte = 4;               // gzip gives at most 1032 bytes for one, at 400 MB/s or more

/// An open dataset of rows.
struct Dataset {
  Handle handle;
  hsize_t rows = 0, width = 1;
  int rank = 0;
};

/// The chunks that hold one row, unpacked: so many bytes must stay in memory lest they be unpacked for every batch.
void set_cache(hid_t access, const Handle& creation, const hsize_t* sizes, int rank, size_t type_bytes) {
  hsize_t chunk[2] = {1, 1};
  if (H5Pget_layout(creation.get()) != H5D_CHUNKED || H5Pget_chunk(creation.get(), rank, chunk) != rank) return;
  if (chunk[0] == 0 || chunk[1] == 0) fail("chunks without elements");
  const hsize_t across = rank == 2 ? (sizes[1] + chunk[1] - 1) / chunk[1] : 1;
  const hsize_t bytes = std::min(chunk[0], kMostCacheBytes) * std::min(chunk[1], kMostCacheBytes) * type_bytes;
  const hsize_t wanted = std::min(kMostCacheBytes, std::max<hsize_t>(bytes, 1 << 20) * std::min<hsize_t>(across, 4096));
  check(H5Pset_chunk_cache(access, H5D_CHUNK_CACHE_NSLOTS_DEFAULT, wanted, 1.0), "cache");
}

/// Opens the dataset `name` of `rank` dimensions.
Dataset open_dataset(const Handle& file, const char* name, int rank) {
  H5L_info_t link{};
  if (H5Lexists(file.get(), name, H5P_DEFAULT) <= 0)
    throw hdf5::Error(fmt::format("it has no dataset {}, which NVIDIA's schema has", name));
  check(H5Lget_info(file.get(), name, &link, H5P_DEFAULT), name);
  if (link.type == H5L_TYPE_EXTERNAL) throw hdf5::Error(fmt::format("{} is in another file, which is not read", name));
  Dataset dataset;
  dataset.rank = rank;
  dataset.handle = Handle(H5Dopen2(file.get(), name, H5P_DEFAULT), H5Dclose, name);
  const Handle type(H5Dget_type(dataset.handle.get()), H5Tclose, name),
      space(H5Dget_space(dataset.handle.get()), H5Sclose, name),
      creation(H5Dget_create_plist(dataset.handle.get()), H5Pclose, name),
      access(H5Pcreate(H5P_DATASET_ACCESS), H5Pclose, name);
  if (H5Pget_layout(creation.get()) == H5D_VIRTUAL || H5Pget_external_count(creation.get()) != 0)
    throw hdf5::Error(fmt::format("{} has data in another file, which is not read", name));
  if (H5Tget_class(type.get()) != H5T_INTEGER) throw hdf5::Error(fmt::format("{} does not hold integers", name));
  hsize_t sizes[H5S_MAX_RANK] = {};
  const int found = H5Sget_simple_extent_ndims(space.get());
  if (found != rank) throw hdf5::Error(fmt::format("{} has {} dimensions, expected {}", name, found, rank));
  check(H5Sget_simple_extent_dims(space.get(), sizes, nullptr), name);
  dataset.rows = sizes[0];
  if (rank == 2) dataset.width = sizes[1];
  set_cache(access.get(), creation, sizes, rank, H5Tget_size(type.get()));
  dataset.handle = Handle();  // the cache is that of the first opening
  dataset.handle = Handle(H5Dopen2(file.get(), name, access.get()), H5Dclose, name);
  return dataset;
}

/// Reads rows [start, start + count) into `values`.
void read_rows(const Dataset& dataset, hsize_t start, hsize_t count, std::vector<int64_t>& values) {
  values.resize(count * dataset.width);
  const hsize_t starts[] = {start, 0}, counts[] = {count, dataset.width};
  const Handle in_file(H5Dget_space(dataset.handle.get()), H5Sclose, "data space"),
      in_memory(H5Screate_simple(dataset.rank, counts, nullptr), H5Sclose, "data space");
  check(H5Sselect_hyperslab(in_file.get(), H5S_SELECT_SET, starts, nullptr, counts, nullptr), "rows");
  check(H5Dread(dataset.handle.get(), H5T_NATIVE_INT64, in_memory.get(), in_file.get(), H5P_DEFAULT, values.data()),
        fmt::format("rows {} to {}", start, start + count - 1));
}

/// The text of an attribute of the root, empty if it is absent.
std::string read_attribute(const Handle& file, const char* name) {
  const htri_t there = H5Aexists(file.get(), name);
  if (there < 0) fail(name);
  if (there == 0) return {};
  const Handle attribute(H5Aopen(file.get(), name, H5P_DEFAULT), H5Aclose, name),
      type(H5Aget_type(attribute.get()), H5Tclose, name), space(H5Aget_space(attribute.get()), H5Sclose, name);
  if (H5Tget_class(type.get()) != H5T_STRING || H5Tis_variable_str(type.get()) != 0 ||
      H5Sget_simple_extent_npoints(space.get()) != 1 || H5Tget_size(type.get()) > kMostTextBytes)
    throw hdf5::Error(fmt::format("the attribute {} is no text of fixed length", name));
  std::string text(H5Tget_size(type.get()), '\0');
  check(H5Aread(attribute.get(), type.get(), text.data()), name);
  return text;
}

void read_attributes(const Handle& file, ExampleFileInfo& info) {
  info.vocabulary_checksum = read_attribute(file, hdf5::kVocabularyChecksum);
  if (const std::string text = read_attribute(file, hdf5::kVocabSize); !text.empty()) {
    const auto size = number_of<int64_t>(text);
    if (!size) throw hdf5::Error(fmt::format("the attribute {} is \"{}\", no number", hdf5::kVocabSize, text));
    info.vocab_size = *size;
  }
  const std::string parameters = read_attribute(file, hdf5::kParameters);
  for (std::string_view rest = parameters; !rest.empty();) {
    const std::string_view line = take_part(rest, '\n');
    const size_t equals = line.find('=');
    if (equals == std::string::npos)
      throw hdf5::Error(fmt::format("a line of the attribute {} has no '='", hdf5::kParameters));
    info.parameters.emplace_back(line.substr(0, equals), line.substr(equals + 1));
  }
}

/// The datasets of an open file, which agree in their sizes.
struct Datasets {
  std::array<Dataset, kColumns.size()> columns;
  Dataset labels;

  explicit Datasets(const Handle& file) : labels(open_dataset(file, hdf5::kLabels, 1)) {
    for (size_t i = 0; i < kColumns.size(); ++i) columns[i] = open_dataset(file, kColumns[i].name, 2);
    for (size_t i = 0; i < kColumns.size(); ++i) {
      const hsize_t width = kColumns[i].masked ? predictions() : length();
      if (columns[i].rows != labels.rows || columns[i].width != width)
        throw hdf5::Error(fmt::format("{} is {} x {}, and others say {} x {}", kColumns[i].name, columns[i].rows,
                                      columns[i].width, labels.rows, width));
      if (width < 1 || width > kMostColumns)
        throw hdf5::Error(fmt::format("{} has {} columns; 1 to {} are read", kColumns[i].name, width, kMostColumns));
    }
  }
  [[nodiscard]] hsize_t length() const { return columns.front().width; }
  [[nodiscard]] hsize_t predictions() const { return columns.back().width; }
};

/// Sends rows [start, start + count).
void send_rows(const Datasets& datasets, hsize_t start, hsize_t count, ExampleSender& sender) {
  std::array<std::vector<int64_t>, kColumns.size()> values;
  std::vector<int64_t> labels;
  for (size_t i = 0; i < kColumns.size(); ++i) read_rows(datasets.columns[i], start, count, values[i]);
  read_rows(datasets.labels, start, count, labels);
  PaddedExample padded;
  PretrainingExample example;
  const std::array<std::vector<int64_t>*, kColumns.size()> columns = {
      &padded.input_ids, &padded.input_mask, &padded.segment_ids, &padded.masked_lm_positions, &padded.masked_lm_ids};
  for (hsize_t row = 0; row < count; ++row) {
    for (size_t i = 0; i < kColumns.size(); ++i) {
      const auto width = static_cast<std::ptrdiff_t>(datasets.columns[i].width);
      const auto begin = values[i].begin() + static_cast<std::ptrdiff_t>(row) * width;
      columns[i]->assign(begin, begin + width);
    }
    padded.next_sentence_label = labels[row];
    try {
      unpad(padded, example);
    } catch (const DataError& error) {
      throw DataError(fmt::format("row {}: {}", start + row, error.what()));
    }
    sender.example(example, static_cast<double>(start + row + 1) / static_cast<double>(datasets.labels.rows));
  }
}

/// The work of the child.
void parse(const std::string& path, ExampleSender& sender) {
  try {
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
    check(H5PLset_loading_state(0), "no plugins");  // a file must not name code that is loaded
    const Handle access = hdf5::file_access(),
                 file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()), H5Fclose, "open");
    const Datasets datasets(file);
    ExampleFileInfo info;
    info.max_seq_length = static_cast<int64_t>(datasets.length());
    info.max_predictions_per_seq = static_cast<int64_t>(datasets.predictions());
    read_attributes(file, info);
    sender.facts(info, static_cast<int64_t>(datasets.labels.rows));
    const hsize_t batch = std::max<hsize_t>(1, kBatchElements / datasets.length());
    for (hsize_t start = 0; start < datasets.labels.rows; start += batch)
      send_rows(datasets, start, std::min(batch, datasets.labels.rows - start), sender);
  } catch (const hdf5::Error& error) {
    throw DataError(
        fmt::format("cannot read it as HDF5: {}. Copy or make the file again if it is damaged.", error.what()));
  }
}

// ---- the parent ----

/// Throws DataError if a file of version 2 or 3 of the superblock says another size than it has. The library does not
/// mind bytes behind the end.
void check_size(const std::string& path) {
  constexpr size_t kVersion = 8, kOffsetBytes = 9, kEnd = 28,
                   kBytes = 48;  // "Superblock" in the format's specification
  SequentialFile file(path);
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) throw_io_error(path, "open", errno);
  std::array<char, kBytes> start{};
  if (file.read(start.data(), start.size()) < kBytes || start[kOffsetBytes] != sizeof(int64_t)) return;
  if (start[kVersion] != 2 && start[kVersion] != 3) return;
  int64_t end = 0;
  std::memcpy(&end, start.data() + kEnd, sizeof end);
  if (const int64_t size = status.st_size; end != size)
    throw DataError(path, std::min(size, std::max<int64_t>(0, end)),
                    fmt::format("{} bytes expected, {} are there. The file is damaged or cut off: make or copy it "
                                "again.",
                                end, size));
}

}  // namespace

bool is_hdf5(std::string_view start) { return start.starts_with(kSignature); }

std::unique_ptr<ExampleReader> open_hdf5(const std::string& path) {
  check_size(path);
  const hdf5::Entered entered;  // nobody is inside of the library at the fork
  return std::make_unique<ChildReader>(path, kSecondsPerMegabyte, [&](ExampleSender& sender) { parse(path, sender); });
}

}  // namespace bert
