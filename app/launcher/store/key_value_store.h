// The keys, values and queues of a store, and the clients that wait for them.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "app/launcher/store/store_protocol.h"

namespace bert {

/// Bytes in use for a store and its clients. Estimates count what the allocator and the containers add.
struct StoreMemory {
  size_t used = 0, limit = 0;
  [[nodiscard]] bool fits(size_t more) const { return used <= limit && more <= limit - used; }
};

/// A request that needs more memory than is left.
struct StoreFull : std::runtime_error {
  explicit StoreFull(size_t bytes) : std::runtime_error("the store is full"), needed(bytes) {}
  size_t needed;
};

/// Bytes that are counted while they exist. Answers share the stored values, so that readers cost no copies.
class StoreBytes {
 public:
  StoreBytes(StoreMemory& memory, std::string text);
  ~StoreBytes() { memory_.used -= counted_; }
  StoreBytes(const StoreBytes&) = delete;
  StoreBytes& operator=(const StoreBytes&) = delete;
  [[nodiscard]] const std::string& text() const { return text_; }
  void append_value(std::string_view more);

 private:
  void count();

  StoreMemory& memory_;
  std::string text_;
  size_t counted_ = 0;
};

/// Has the semantics of c10d's LibUvBackend in PyTorch 2.11, also where they surprise: a failed compare_set of a
/// missing key answers with the expected value, and each compare_set wakes the waiters of its key. One difference: a
/// client that waits for keys and queues together is woken when all exist (there, also by a push that was meant for
/// an earlier wait, or never).
class KeyValueStore {
 public:
  using ClientId = uint64_t;
  using Shared = std::shared_ptr<const StoreBytes>;
  /// Gets the parts of an answer. Must not call the store.
  using Answer = std::function<void(ClientId, Shared)>;

  KeyValueStore(StoreMemory& memory, Answer answer);
  ~KeyValueStore() { clear(); }
  KeyValueStore(const KeyValueStore&) = delete;
  KeyValueStore& operator=(const KeyValueStore&) = delete;

  /// Executes a request other than kValidate. Throws StoreFull or, if the request cannot be answered, DataError; then
  /// nothing has changed.
  void execute(ClientId client, const StoreRequestReader& request);
  /// Ends the wait of a client, if it has one.
  void forget(ClientId client);
  void clear();
  /// The key with the longest value and that value's length in bytes; "" and 0 if there is none.
  [[nodiscard]] std::pair<std::string, size_t> longest() const;

 private:
  using Value = std::shared_ptr<StoreBytes>;
  void set(std::string_view key, std::string_view value);
  void store(std::string_view key, std::string_view value);
  void compare_set(ClientId client, const StoreRequestReader& request);
  void add(ClientId client, std::string_view key, int64_t addend);
  void append(std::string_view key, std::string_view value);
  void multi_set(const StoreRequestReader& request);
  void queue_pop(ClientId client, std::string_view key);
  void list_keys(ClientId client);
  void wait(ClientId client, const StoreRequestReader& request);
  void require(size_t bytes) const;
  void answer_value(ClientId client, std::string_view key);
  template <class Number>
  void answer_number(ClientId client, Number number);
  [[nodiscard]] bool exists(const std::string& key) const;
  [[nodiscard]] bool all_exist(const StoreRequestReader& request) const;
  bool arrived(ClientId client);
  void wake_all(const std::string& key);
  void wake_one(const std::string& key);

  StoreMemory& memory_;
  const Answer answer_;
  const Shared missing_;  // the answer for a missing value
  std::unordered_map<std::string, Value> values_;
  std::unordered_map<std::string, std::deque<Value>> queues_;
  // A key that clients wait for. 1,024 ranks may each wait for 1,024 keys, so a pair of them has to be small.
  struct Awaited {
    std::vector<ClientId> clients;  // that still miss the key, in the order of their coming
    size_t waits = 0;               // that name the key
  };
  using AwaitedKeys = std::unordered_map<std::string, Awaited>;
  struct Wait {
    std::vector<AwaitedKeys::value_type*> keys;  // missing at the beginning
    size_t missing = 0;
  };
  AwaitedKeys awaited_;
  std::unordered_map<ClientId, Wait> waits_;
};

}  // namespace bert
