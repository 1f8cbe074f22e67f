// The machine for pickles: values, refusals, and programs that want too much.
#include "app/interop/files/pickle.h"

#include <array>

#include "data/io/error.h"
#include "tests/support/torch_archive.h"
#include "tests/testing.h"

namespace bert {
namespace {

using testing::Contains;
using testing::little_endian;
using Kind = PickleValue::Kind;

constexpr std::array kAllowed = std::to_array<std::string_view>({"collections OrderedDict", "torch Size"});

/// A pickle of protocol 2 with these operations.
std::string pickle_of(const std::string& operations) { return "\x80\x02" + operations + "."; }

Pickle read(const std::string& operations) { return Pickle(pickle_of(operations), kAllowed); }

std::string times(size_t count, const std::string& operations) {
  std::string all;
  for (size_t i = 0; i < count; ++i) all += operations;
  return all;
}

void check_refused(const std::string& operations, const std::string& message) {
  CAPTURE(message);
  CHECK_THROWS_WITH(read(operations), Contains("of the pickle: ") && Contains(message));
  CHECK_THROWS_AS(read(operations), DataError);
}

}  // namespace

// The operations are those of CPython's pickletools.dis().
TEST_CASE("A pickle gives the values that its operations spell", "[unit][interop]") {
  CHECK(read("N").root().kind == Kind::kNone);
  CHECK(read("\x88").root().integer == 1);
  CHECK(read("K\xff").root().integer == 255);
  CHECK(read("M\xff\xff").root().integer == 65535);
  CHECK(read("J\xff\xff\xff\xff").root().integer == -1);
  CHECK(read(std::string("\x8a\x00", 2)).root().integer == 0);  // LONG1 without digits
  CHECK(read("\x8a\x01\xff").root().integer == -1);             // pickle.dumps(-1 << 0, 2) as a long
  CHECK(read(std::string("\x8a\x02\xff\x00", 4)).root().integer == 255);
  CHECK(read(std::string("\x8a\x05\x00\x00\x00\x00\x01", 7)).root().integer == int64_t{1} << 32);
  CHECK(read("\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19").root().kind == Kind::kLong);
  CHECK(read(std::string("G\x3f\xf8\x00\x00\x00\x00\x00\x00", 9)).root().real == 1.5);
  CHECK(read(std::string("X\x02\x00\x00\x00hi", 7)).root().text == "hi");
  CHECK(read("\x8c\x02hi").root().text == "hi");
  CHECK(read("C\x02hi").root().kind == Kind::kBytes);

  const Pickle list = read("](K\1K\2eK\3a");
  REQUIRE(list.root().kind == Kind::kList);
  REQUIRE(list.root().items.size() == 3);
  CHECK(list.value(list.root().items[2]).integer == 3);
  const Pickle tuple = read("K\1K\2K\3\x87");
  REQUIRE(tuple.root().items.size() == 3);
  CHECK(tuple.value(tuple.root().items[0]).integer == 1);
  const Pickle dict = read("}(U\1aK\1U\1bK\2uU\1cK\3s");
  REQUIRE(dict.root().items.size() == 6);
  CHECK(dict.value(dict.root().items[4]).text == "c");
  const Pickle ordered = read("ccollections\nOrderedDict\n)RU\1aK\1s}b");  // with a state, which is dropped
  CHECK(ordered.root().kind == Kind::kDict);
  CHECK(ordered.root().items.size() == 2);
  const Pickle size = read("ctorch\nSize\nK\2K\3\x86\x85R");
  CHECK(size.root().kind == Kind::kObject);
  CHECK(size.root().text == "torch Size");
  const Pickle again = read("U\1aq\7\x30h\7");  // through the memo
  CHECK(again.root().text == "a");
  CHECK(read("(K\1K\2\x31K\3").root().integer == 3);
  CHECK(Pickle(pickle_of("N") + "more", kAllowed).size() == 4);
}

TEST_CASE("A pickle that wants to run code is refused with the name", "[unit][interop]") {
  check_refused("cos\nsystem\nU\4truetR", "byte 2 of the pickle: it wants Python's os.system, which is not");
  check_refused("U\2osU\6system\x93", "it wants Python's os.system");
  check_refused("ctorch\nSize\n0cbuiltins\neval\n", "builtins.eval");
  check_refused("c" + std::string(1000, 'x') + "\ny\n", "Python's " + std::string(100, 'x') + ", which");
  check_refused("(ios\nsystem\n", "operation 0x69");  // INST
  check_refused("(U\1ao", "operation 0x6f");          // OBJ
  check_refused("\x82\1", "operation 0x82");          // EXT1
  check_refused("ctorch\nSize\nU\1aR", "a call without a tuple of arguments");
  check_refused("U\4true)R", "a call of a value that is no name");
  check_refused("K\1}b", "a state for a value that has none");
  check_refused("ctorch\nSize\n}b", "a state for a value that has none");
}

TEST_CASE("A pickle that is cut off or in disorder is refused", "[unit][interop]") {
  const std::string whole = pickle_of("}(X\x01" + std::string(3, '\0') + "aK\1ctorch\nSize\n(K\2K\3ttRq\1u");
  for (size_t size = 0; size < whole.size() - 1; ++size)
    CHECK_THROWS_AS(Pickle(whole.substr(0, size), kAllowed), DataError);
  CHECK_THROWS_WITH(Pickle("(lp0\n.", kAllowed), Contains("it does not begin with a protocol of 2 or more"));
  CHECK_THROWS_WITH(Pickle("\x80\x01N.", kAllowed), Contains("protocol 1; 2 to 5 are read"));
  CHECK_THROWS_WITH(Pickle("\x80\x06N.", kAllowed), Contains("protocol 6; 2 to 5 are read"));
  check_refused("", "it ends with other than one value");
  check_refused("NN", "it ends with other than one value");
  check_refused("N(", "it ends with other than one value");
  check_refused("0", "the stack is empty");
  check_refused("N(0", "the stack is empty");  // POP below a mark
  check_refused("t", "a mark is wanted");
  check_refused("Na", "the stack is empty");
  check_refused("NNa", "takes none of this kind");
  check_refused("}K\1a", "takes none of this kind");
  check_refused("}(K\1u", "a key without a value");
  check_refused("h\7", "memo 7 is empty");
  check_refused("q\7", "the stack is empty");
  check_refused("P1\n", "operation 0x50");
}

TEST_CASE("Pickle bombs cost no more than their bytes", "[unit][interop]") {
  check_refused("\x8b" + little_endian(0xffffffff, 4), "4294967295 bytes are wanted");
  check_refused("X" + little_endian(0xffffffff, 4), "4294967295 bytes are wanted");
  check_refused("\x8d" + little_endian(~uint64_t{0}, 8), "bytes are wanted");
  check_refused("Nr" + little_endian(0xffffffff, 4) + "j" + little_endian(0xfffffffe, 4), "memo 4294967294 is empty");

  constexpr size_t kDeep = 1000000;
  CHECK(read(times(kDeep, "(") + "N" + times(kDeep, "t")).values().size() == kDeep + 1);
  CHECK(read("N" + times(kDeep, "\x85")).root().items.size() == 1);
  CHECK(read("]q\1h\1a").root().items.size() == 1);  // a list in itself

  // Each level holds the one before ten times: 10^1000 values, were they expanded.
  std::string laughs = "]q" + std::string(1, '\0');
  for (int level = 0; level < 1000; ++level) {
    laughs += "](" + times(10, "j" + little_endian(static_cast<uint64_t>(level), 4)) + "er" +
              little_endian(static_cast<uint64_t>(level) + 1, 4);
  }
  laughs += times(1000, "\x30j" + little_endian(7, 4)) + "\x30";
  CHECK(read("(" + laughs + "t").values().size() < 3000);

  // An OrderedDict of many pairs, made again and again.
  const std::string pairs = "](" + times(5000, "NN\x86") + "e\x85q\1" + "0";
  check_refused(pairs + times(5000, "ccollections\nOrderedDict\nh\1R0"), "more than 8388608 values");
  check_refused("ccollections\nOrderedDict\n](N)e\x85R", "other than pairs");
}

}  // namespace bert
