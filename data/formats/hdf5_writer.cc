#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "data/formats/hdf5.h"
#include "data/formats/hdf5_library.h"
#include "data/formats/padded_example.h"
#include "data/io/error.h"
#include "data/io/files.h"

namespace bert {
namespace {

using hdf5::check;
using hdf5::Handle;
using hdf5::kColumns;

constexpr int64_t kChunkElements = 1 << 16;  // of input_ids, 256 KiB
constexpr unsigned kCompression = 4;         // h5py's default

Handle data_space(int rank, const hsize_t* sizes, const hsize_t* limits = nullptr) {
  return {H5Screate_simple(rank, sizes, limits), H5Sclose, "data space"};
}

class Hdf5Writer : public ExampleWriter {
 public:
  Hdf5Writer(const std::string& path, const ExampleFileInfo& info)
      : path_(path),
        columns_(info.max_seq_length),
        predictions_(std::max<int64_t>(1, info.max_predictions_per_seq)),
        vocab_size_(info.vocab_size),
        chunk_rows_(std::max<int64_t>(1, kChunkElements / columns_)),
        output_(path) {
    calling([&] {
      const Handle access = hdf5::file_access(), creation(H5Pcreate(H5P_FILE_CREATE), H5Pclose, "properties");
      check(H5Pset_libver_bounds(access.get(), H5F_LIBVER_V110, H5F_LIBVER_V110), "format of HDF5 1.10");
      check(H5Pset_obj_track_times(creation.get(), false), "no times");
      file_ = Handle(H5Fcreate(output_.temporary_name().c_str(), H5F_ACC_TRUNC, creation.get(), access.get()), H5Fclose,
                     "create");
      for (size_t i = 0; i < kColumns.size(); ++i)
        datasets_[i] = create(kColumns[i].name, kColumns[i].small ? H5T_STD_I8LE : H5T_STD_I32LE, width(i));
      labels_dataset_ = create(hdf5::kLabels, H5T_STD_I8LE, 0);
      write_attributes(info);
    });
  }

  ~Hdf5Writer() override {
    const hdf5::Entered entered;  // for the handles, which close without commit()
    close_all();
  }

  void add(const PretrainingExample& example) override {
    validate(example, vocab_size_ > 0 ? vocab_size_ : int64_t{1} << 31, columns_);
    if (!example.masked_positions.empty() && example.masked_positions.front() == 0) {
      throw DataError(path_ +
                      ": an example has a mask at position 0, which NVIDIA's HDF5 cannot hold: there, position 0 "
                      "ends the masks. Use another --format.");
    }
    pad(example, columns_, predictions_, padded_);
    const std::array<const std::vector<int64_t>*, kColumns.size()> columns = {
        &padded_.input_ids, &padded_.input_mask, &padded_.segment_ids, &padded_.masked_lm_positions,
        &padded_.masked_lm_ids};
    for (size_t i = 0; i < columns.size(); ++i)
      values_[i].insert(values_[i].end(), columns[i]->begin(), columns[i]->end());
    labels_.push_back(padded_.next_sentence_label);
    if (static_cast<int64_t>(labels_.size()) == chunk_rows_) flush();
  }

  void commit() override {
    flush();
    calling([&] {
      for (Handle& dataset : datasets_) dataset.close("close a dataset");
      labels_dataset_.close("close a dataset");
      file_.close("close");
    });
    output_.commit();
  }

 private:
  /// The length of a row of column i.
  [[nodiscard]] hsize_t width(size_t i) const {
    return static_cast<hsize_t>(kColumns[i].masked ? predictions_ : columns_);
  }

  template <class Call>
  void calling(const Call& call) {
    const hdf5::Entered entered;
    try {
      call();
    } catch (const hdf5::Error& error) {
      throw IoError(fmt::format("{}: cannot write: HDF5, {}", path_, error.what()));
    }
  }

  void close_all() {
    for (Handle& dataset : datasets_) dataset = Handle();
    labels_dataset_ = Handle();
    file_ = Handle();
  }

  /// A dataset without rows. Its rows have no width if `width` is 0.
  [[nodiscard]] Handle create(const char* name, hid_t type, hsize_t width) const {
    const int rank = width > 0 ? 2 : 1;
    const hsize_t sizes[] = {0, width}, limits[] = {H5S_UNLIMITED, width},
                  chunk[] = {static_cast<hsize_t>(chunk_rows_), width};
    const Handle space = data_space(rank, sizes, limits),
                 creation(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "properties");
    check(H5Pset_chunk(creation.get(), rank, chunk), "chunks");
    check(H5Pset_obj_track_times(creation.get(), false), "no times");
    check(H5Pset_shuffle(creation.get()), "shuffle");
    check(H5Pset_deflate(creation.get(), kCompression), "gzip");
    check(H5Pset_fletcher32(creation.get()), "checksums");
    return {H5Dcreate2(file_.get(), name, type, space.get(), H5P_DEFAULT, creation.get(), H5P_DEFAULT), H5Dclose, name};
  }

  void write_attribute(const char* name, const std::string& text) const {
    if (text.empty()) return;
    const Handle type(H5Tcopy(H5T_C_S1), H5Tclose, name), space(H5Screate(H5S_SCALAR), H5Sclose, name);
    check(H5Tset_size(type.get(), text.size()), name);
    check(H5Tset_strpad(type.get(), H5T_STR_NULLPAD), name);
    check(H5Tset_cset(type.get(), H5T_CSET_UTF8), name);
    const Handle attribute(H5Acreate2(file_.get(), name, type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose,
                           name);
    check(H5Awrite(attribute.get(), type.get(), text.data()), name);
  }

  void write_attributes(const ExampleFileInfo& info) const {
    write_attribute(hdf5::kVocabularyChecksum, info.vocabulary_checksum);
    std::string parameters;
    for (const auto& [key, value] : info.parameters) parameters.append(key).append("=").append(value).append("\n");
    write_attribute(hdf5::kParameters, parameters);
    if (info.vocab_size > 0) write_attribute(hdf5::kVocabSize, std::to_string(info.vocab_size));
  }

  /// Appends `values`, rows of `width` each, to a dataset.
  void append(const Handle& dataset, std::vector<int64_t>& values, hsize_t width) const {
    const int rank = width > 0 ? 2 : 1;
    const auto rows = static_cast<hsize_t>(labels_.size());
    const hsize_t start[] = {rows_, 0}, count[] = {rows, width}, sizes[] = {rows_ + rows, width};
    check(H5Dset_extent(dataset.get(), sizes), "extend");
    const Handle in_file(H5Dget_space(dataset.get()), H5Sclose, "data space"), in_memory = data_space(rank, count);
    check(H5Sselect_hyperslab(in_file.get(), H5S_SELECT_SET, start, nullptr, count, nullptr), "select");
    check(H5Dwrite(dataset.get(), H5T_NATIVE_INT64, in_memory.get(), in_file.get(), H5P_DEFAULT, values.data()),
          "write");
  }

  void flush() {
    if (labels_.empty()) return;
    calling([&] {
      for (size_t i = 0; i < kColumns.size(); ++i) append(datasets_[i], values_[i], width(i));
      append(labels_dataset_, labels_, 0);
    });
    rows_ += labels_.size();
    for (auto& column : values_) column.clear();
    labels_.clear();
  }

  std::string path_;
  int64_t columns_, predictions_, vocab_size_, chunk_rows_;
  AtomicFile output_;
  Handle file_, labels_dataset_;
  std::array<Handle, kColumns.size()> datasets_;
  hsize_t rows_ = 0;                                          // in the file
  std::array<std::vector<int64_t>, kColumns.size()> values_;  // of the rows that are not in the file yet
  std::vector<int64_t> labels_;
  PaddedExample padded_;
};

}  // namespace

std::unique_ptr<ExampleWriter> create_hdf5(const std::string& path, const ExampleFileInfo& info) {
  if (info.max_seq_length < 1 || info.max_seq_length > kMostColumns) {
    throw DataError(fmt::format("{}: max_seq_length must be 1 to {}, got {}", path, kMostColumns, info.max_seq_length));
  }
  return std::make_unique<Hdf5Writer>(path, info);
}

}  // namespace bert
