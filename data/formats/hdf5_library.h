// The C interface of HDF5 as objects and exceptions. For the reader and the writer of HDF5 alone.
#pragma once

#include <hdf5.h>

#include <array>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>

namespace bert::hdf5 {

/// The datasets of NVIDIA's schema, in the order in which rows pass from the child to its parent.
struct Column {
  const char* name;
  bool small;   // stored in one byte
  bool masked;  // has a value for each mask, not for each token
};
inline constexpr std::array<Column, 5> kColumns = {{{"input_ids", false, false},
                                                    {"input_mask", true, false},
                                                    {"segment_ids", true, false},
                                                    {"masked_lm_positions", false, true},
                                                    {"masked_lm_ids", false, true}}};
inline constexpr const char* kLabels = "next_sentence_labels";
inline constexpr const char *kVocabularyChecksum = "bert_vocabulary_checksum", *kVocabSize = "bert_vocab_size",
                            *kParameters = "bert_parameters";

/// A failed call of the library: its own innermost message.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Throws Error for the failed call `what`.
[[noreturn]] void fail(const std::string& what);

/// An identifier of the library, or throws. It is closed with its owner.
class Handle {
 public:
  Handle() = default;
  Handle(hid_t id, herr_t (*closing)(hid_t), const std::string& what) : id_(id), close_(closing) {
    if (id_ < 0) fail(what);
  }
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
    return *this;
  }
  ~Handle() {
    if (id_ >= 0) close_(id_);
  }
  [[nodiscard]] hid_t get() const { return id_; }
  /// Closes now. Throws Error.
  void close(const std::string& what) {
    if (close_(std::exchange(id_, -1)) < 0) fail(what);
  }

 private:
  hid_t id_ = -1;
  herr_t (*close_)(hid_t) = nullptr;
};

inline void check(herr_t result, const std::string& what) {
  if (result < 0) fail(what);
}

/// The library is entered by one thread at a time: not every build of it is safe for several. Its own messages on
/// standard error are off while this is held.
class Entered {
 public:
  Entered();

 private:
  std::unique_lock<std::mutex> lock_;
};

/// Access to a file without locks: the locks of the library do not work on every file system, and the file of a writer
/// has one already.
Handle file_access();

}  // namespace bert::hdf5
