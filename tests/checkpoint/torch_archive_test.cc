#include "app/checkpoint/torch_archive.h"

#include "data/io/error.h"
#include "tests/support/torch_archive.h"
#include "tests/testing.h"

namespace bert {
namespace {

using testing::archive_members;
using testing::Contains;
using testing::torch_archive;

bool is_refused(const std::string& bytes) {
  try {
    verify_torch_archive(bytes, "a.pt");
    return false;
  } catch (const DataError&) {
    return true;
  }
}

}  // namespace

TEST_CASE("Every flipped bit and every cut of an archive is found", "[unit][predict]") {
  for (const bool wide : {false, true}) {
    const std::string whole = torch_archive(archive_members(), wide);
    verify_torch_archive(whole, "a.pt");
    std::vector<size_t> silent;
    for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
      std::string damaged = whole;
      damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << (bit % 8));
      if (!is_refused(damaged)) silent.push_back(bit);
    }
    for (size_t size = 0; size < whole.size(); ++size) {
      if (!is_refused(whole.substr(0, size))) silent.push_back(size);
    }
    CHECK(silent.empty());
    CHECK(is_refused(whole + '\0'));
    CHECK(is_refused('\0' + whole));
    CHECK(is_refused(whole + whole));
  }
}

TEST_CASE("A damaged archive is told with the byte and what is wrong there", "[unit][predict]") {
  const std::string whole = torch_archive(archive_members());
  const auto refused = [](const std::string& bytes, const std::string& message) {
    CHECK_THROWS_WITH(verify_torch_archive(bytes, "dir/a.pt"),
                      Contains("dir/a.pt: byte ") && Contains("is no archive of PyTorch, or a damaged one: ") &&
                          Contains(message) && Contains("; copy or export it again"));
  };
  std::string damaged = whole;
  const size_t weight = whole.find(std::string(200, '\x3f'));
  damaged[weight + 100] = '\x3e';
  refused(damaged, "byte " + std::to_string(weight) + ":");
  refused(damaged, R"(the bytes of "bert/data/0" are not those of its checksum)");
  refused(whole.substr(0, whole.size() - 1), "the signature of the archive's end is ");
  refused("", "it ends before an archive could");
  damaged = whole;
  damaged[whole.find("PK\x01\x02") + 10] = '\x0c';  // compression method bzip2
  refused(damaged, "compression method 12 is not LibTorch's");
  // A directory with more members than the file has, and one with a size beyond the file.
  damaged = whole;
  for (const size_t end :
       {whole.size() - 22 + 8, whole.size() - 22 + 10, whole.size() - 98 + 24, whole.size() - 98 + 32})
    damaged[end] = 100;
  refused(damaged, "the signature of an entry is ");
  damaged = whole;
  const size_t entry = whole.find("PK\x01\x02", whole.find("PK\x01\x02") + 1);
  damaged.replace(entry + 20, 8, 8, '\xfe');
  refused(damaged, "a member of 4278124286 bytes goes past the end");
}

}  // namespace bert
