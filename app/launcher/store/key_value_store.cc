#include "app/launcher/store/key_value_store.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "data/io/error.h"

namespace bert {
namespace {

// Sizes on a 64-bit machine with libstdc++, rounded up: a map's node with a key and what stands beside it; a shared
// string; a client's place in the list of an awaited key, and a pointer to that key.
constexpr size_t kEntryBytes = 96, kSharedBytes = 96, kAwaitedBytes = 24;

enum WaitAnswer : uint8_t { kStopWaiting = 0, kWaitCancelled = 1 };

std::string with_length(std::string_view value) {
  std::string text;
  text.reserve(kLengthBytes + value.size());
  append_store_number<uint64_t>(text, value.size());
  return text.append(value);
}

std::string_view value_of(const StoreBytes& bytes) { return std::string_view(bytes.text()).substr(kLengthBytes); }

/// Memory of a new key or queue with a value.
size_t cost_of(std::string_view key, std::string_view value) {
  return kEntryBytes + key.size() + kSharedBytes + kLengthBytes + value.size();
}

/// The number at the beginning of a value, read as std::stoll does.
int64_t number_of(const StoreBytes& bytes) {
  const std::string text(value_of(bytes));
  char* end = nullptr;
  errno = 0;
  const int64_t number = std::strtoll(text.c_str(), &end, 10);
  if (end == text.c_str() || errno == ERANGE) throw DataError("add: the stored value is no number of 64 bits");
  return number;
}

}  // namespace

StoreBytes::StoreBytes(StoreMemory& memory, std::string text) : memory_(memory), text_(std::move(text)) { count(); }

void StoreBytes::count() {
  memory_.used -= counted_;
  counted_ = kSharedBytes + text_.capacity();
  memory_.used += counted_;
}

void StoreBytes::append_value(std::string_view more) {
  text_.append(more);
  const uint64_t size = text_.size() - kLengthBytes;
  std::memcpy(text_.data(), &size, sizeof size);
  count();
}

KeyValueStore::KeyValueStore(StoreMemory& memory, Answer answer)
    : memory_(memory),
      answer_(std::move(answer)),
      missing_(std::make_shared<const StoreBytes>(memory, with_length(""))) {}

void KeyValueStore::require(size_t bytes) const {
  if (!memory_.fits(bytes)) throw StoreFull(bytes);
}

template <class Number>
void KeyValueStore::answer_number(ClientId client, Number number) {
  std::string text;
  append_store_number(text, number);
  answer_(client, std::make_shared<const StoreBytes>(memory_, std::move(text)));
}

void KeyValueStore::answer_value(ClientId client, std::string_view key) {
  const auto found = values_.find(std::string(key));
  answer_(client, found == values_.end() ? missing_ : found->second);
}

void KeyValueStore::execute(ClientId client, const StoreRequestReader& request) {
  switch (request.query()) {
    case StoreQuery::kValidate:
      throw DataError("a second request to validate the connection");
    case StoreQuery::kSet:
      set(request.field(0), request.field(1));
      return wake_all(std::string(request.field(0)));
    case StoreQuery::kCompareSet:
      return compare_set(client, request);
    case StoreQuery::kGet:
      return answer_value(client, request.field(0));
    case StoreQuery::kAdd:
      return add(client, request.field(0), request.number<int64_t>(1));
    case StoreQuery::kCheck:
      return answer_number<uint8_t>(client, all_exist(request) ? 0 : 1);
    case StoreQuery::kWait:
      return wait(client, request);
    case StoreQuery::kCountKeys:
      return answer_number<int64_t>(client, static_cast<int64_t>(values_.size()));
    case StoreQuery::kDeleteKey: {
      const auto node = values_.extract(std::string(request.field(0)));
      if (node) memory_.used -= kEntryBytes + node.key().size();
      return answer_number<int64_t>(client, node ? 1 : 0);
    }
    case StoreQuery::kAppend:
      append(request.field(0), request.field(1));
      return wake_all(std::string(request.field(0)));
    case StoreQuery::kMultiGet:
      require(request.fields() * sizeof(Shared));
      for (size_t i = 0; i < request.fields(); ++i) answer_value(client, request.field(i));
      return;
    case StoreQuery::kMultiSet:
      return multi_set(request);
    case StoreQuery::kCancelWait:
      forget(client);
      return answer_number<uint8_t>(client, kWaitCancelled);
    case StoreQuery::kPing:
      return answer_number(client, request.number<uint32_t>(0));
    case StoreQuery::kQueuePush: {
      const std::string key(request.field(0));
      require(cost_of(key, request.field(1)));
      if (!queues_.contains(key)) memory_.used += kEntryBytes + key.size();
      queues_[key].push_back(std::make_shared<StoreBytes>(memory_, with_length(request.field(1))));
      return wake_one(key);
    }
    case StoreQuery::kQueuePop:
      return queue_pop(client, request.field(0));
    case StoreQuery::kQueueLength: {
      const auto found = queues_.find(std::string(request.field(0)));
      return answer_number<int64_t>(client, found == queues_.end() ? 0 : static_cast<int64_t>(found->second.size()));
    }
    case StoreQuery::kListKeys:
      return list_keys(client);
  }
}

void KeyValueStore::set(std::string_view key, std::string_view value) {
  require(cost_of(key, value));
  store(key, value);
}

/// The same without a check of memory.
void KeyValueStore::store(std::string_view key, std::string_view value) {
  Value& entry = values_[std::string(key)];
  if (!entry) memory_.used += kEntryBytes + key.size();
  entry = std::make_shared<StoreBytes>(memory_, with_length(value));
}

void KeyValueStore::compare_set(ClientId client, const StoreRequestReader& request) {
  const std::string key(request.field(0));
  const std::string_view expected = request.field(1), desired = request.field(2);
  const auto found = values_.find(key);
  const bool exists = found != values_.end();
  if (exists ? value_of(*found->second) == expected : expected.empty()) {
    set(key, desired);
  } else if (!exists) {
    require(kSharedBytes + expected.size());
    answer_(client, std::make_shared<const StoreBytes>(memory_, with_length(expected)));
    return wake_all(key);
  }
  answer_value(client, key);
  wake_all(key);
}

void KeyValueStore::add(ClientId client, std::string_view key, int64_t addend) {
  const auto found = values_.find(std::string(key));
  const int64_t before = found == values_.end() ? 0 : number_of(*found->second);
  const auto sum = static_cast<int64_t>(static_cast<uint64_t>(before) + static_cast<uint64_t>(addend));
  set(key, std::to_string(sum));
  answer_number(client, sum);
  wake_all(std::string(key));
}

void KeyValueStore::append(std::string_view key, std::string_view value) {
  const auto found = values_.find(std::string(key));
  if (found == values_.end()) return set(key, value);
  Value& entry = found->second;
  const bool shared = entry.use_count() > 1;  // an answer that has not been sent has the value as it is
  const size_t size = entry->text().size() + value.size(), capacity = entry->text().capacity();
  // A string that grows has at least twice its capacity, and for a moment also its old memory. A copy comes first.
  require(shared ? 3 * size : size <= capacity ? 0 : std::max(2 * capacity, size));
  if (shared) entry = std::make_shared<StoreBytes>(memory_, std::string(entry->text()));
  entry->append_value(value);
}

void KeyValueStore::multi_set(const StoreRequestReader& request) {
  size_t bytes = 0;
  for (size_t i = 0; i < request.fields(); i += 2) bytes += cost_of(request.field(i), request.field(i + 1));
  require(bytes);
  for (size_t i = 0; i < request.fields(); i += 2) {
    store(request.field(i), request.field(i + 1));
    wake_all(std::string(request.field(i)));
  }
}

void KeyValueStore::queue_pop(ClientId client, std::string_view key) {
  const auto found = queues_.find(std::string(key));
  if (found == queues_.end()) return answer_number<int64_t>(client, 0);
  answer_number(client, static_cast<int64_t>(found->second.size()));
  answer_(client, found->second.front());
  found->second.pop_front();
  if (!found->second.empty()) return;
  memory_.used -= kEntryBytes + key.size();
  queues_.erase(found);
}

void KeyValueStore::list_keys(ClientId client) {
  size_t bytes = kLengthBytes;
  for (const auto& entry : values_) bytes += kLengthBytes + entry.first.size();
  require(bytes);
  std::string text;
  text.reserve(bytes);
  append_store_number<int64_t>(text, static_cast<int64_t>(values_.size()));
  for (const auto& entry : values_) {
    append_store_number<uint64_t>(text, entry.first.size());
    text += entry.first;
  }
  answer_(client, std::make_shared<const StoreBytes>(memory_, std::move(text)));
}

bool KeyValueStore::exists(const std::string& key) const { return values_.contains(key) || queues_.contains(key); }

bool KeyValueStore::all_exist(const StoreRequestReader& request) const {
  for (size_t i = 0; i < request.fields(); ++i) {
    if (!exists(std::string(request.field(i)))) return false;
  }
  return true;
}

void KeyValueStore::wait(ClientId client, const StoreRequestReader& request) {
  if (all_exist(request)) return answer_number<uint8_t>(client, kStopWaiting);
  size_t bytes = 0;
  for (size_t i = 0; i < request.fields(); ++i) {
    bytes += kAwaitedBytes;
    if (!awaited_.contains(std::string(request.field(i)))) bytes += kEntryBytes + request.field(i).size();
  }
  require(bytes);
  forget(client);
  Wait& wait = waits_[client];
  for (size_t i = 0; i < request.fields(); ++i) {
    const std::string key(request.field(i));
    if (exists(key)) continue;
    const auto [awaited, is_new] = awaited_.try_emplace(key);
    std::vector<ClientId>& clients = awaited->second.clients;
    if (!clients.empty() && clients.back() == client) continue;  // the request names the key twice
    clients.push_back(client);
    ++awaited->second.waits;
    wait.keys.push_back(&*awaited);
    memory_.used += kAwaitedBytes + (is_new ? kEntryBytes + key.size() : 0);
  }
  wait.missing = wait.keys.size();
}

void KeyValueStore::forget(ClientId client) {
  const auto wait = waits_.find(client);
  if (wait == waits_.end()) return;
  for (AwaitedKeys::value_type* awaited : wait->second.keys) {
    memory_.used -= kAwaitedBytes;
    if (--awaited->second.waits > 0) {
      std::erase(awaited->second.clients, client);
    } else {
      memory_.used -= kEntryBytes + awaited->first.size();
      awaited_.erase(awaited_.find(awaited->first));
    }
  }
  waits_.erase(wait);
}

/// A key that the client misses has come. Returns true if it was the last one.
bool KeyValueStore::arrived(ClientId client) {
  if (--waits_.at(client).missing > 0) return false;
  forget(client);
  answer_number<uint8_t>(client, kStopWaiting);
  return true;
}

void KeyValueStore::wake_all(const std::string& key) {
  const auto found = awaited_.find(key);
  if (found == awaited_.end()) return;
  for (const ClientId client : std::exchange(found->second.clients, {})) arrived(client);
}

/// One push is for one client: the first one that waits for nothing else.
void KeyValueStore::wake_one(const std::string& key) {
  for (auto found = awaited_.find(key); found != awaited_.end(); found = awaited_.find(key)) {
    std::vector<ClientId>& clients = found->second.clients;
    if (clients.empty()) return;
    const ClientId client = clients.front();
    clients.erase(clients.begin());
    if (arrived(client)) return;
  }
}

void KeyValueStore::clear() {
  while (!waits_.empty()) forget(waits_.begin()->first);
  for (const auto& entry : values_) memory_.used -= kEntryBytes + entry.first.size();
  for (const auto& entry : queues_) memory_.used -= kEntryBytes + entry.first.size();
  values_.clear();
  queues_.clear();
}

std::pair<std::string, size_t> KeyValueStore::longest() const {
  std::pair<std::string, size_t> result;
  for (const auto& [key, value] : values_) {
    if (value_of(*value).size() >= result.second) result = {key, value_of(*value).size()};
  }
  return result;
}

}  // namespace bert
