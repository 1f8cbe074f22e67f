#include "data/download/data_sets.h"

#include <fmt/format.h>

#include <cstdint>
#include <utility>

namespace bert {
namespace {

constexpr const char* kSquadHost = "https://rajpurkar.github.io";
constexpr const char* kGlueHost = "https://dl.fbaipublicfiles.com";
constexpr const char* kGoogleHost = "https://storage.googleapis.com";

DataSetFile plain_file(const std::string& host, const std::string& path, int64_t bytes, const std::string& sha256) {
  return {.remote = {.host = host, .path = path, .name = {}, .bytes = bytes, .digest = {"sha256", sha256}},
          .unpack_into = {},
          .members = {}};
}

struct GlueFile {
  const char* task;
  const char* path;
  int64_t bytes;
  const char* sha256;
};

// Note [Published figures]. The addresses, QQP-clean and QNLIv2 among them, are those of glue.py in Hugging Face's
// datasets.
constexpr GlueFile kGlueFiles[] = {
    {"CoLA", "/glue/data/CoLA.zip", 376'971, "f212fcd832b8f7b435fb991f101abf89f96b933ab400603bf198960dfc32cbff"},
    {"SST-2", "/glue/data/SST-2.zip", 7'439'277, "d67e16fb55739c1b32cdce9877596db1c127dc322d93c082281f64057c16deaa"},
    {"MRPC", "/senteval/senteval_data/msr_paraphrase_train.txt", 1'047'044,
     "60a9b09084528f0673eedee2b69cb941920f0b8cd0eeccefc464a98768457f89"},
    {"MRPC", "/senteval/senteval_data/msr_paraphrase_test.txt", 441'275,
     "a04e271090879aaba6423d65b94950c089298587d9c084bf9cd7439bd785f784"},
    {"MRPC", "/glue/data/mrpc_dev_ids.tsv", 6'222, "971d7767d81b997fd9060ade0ec23c4fc31cbb226a55d1bd4a1bac474eb81dc7"},
    {"QQP", "/glue/data/QQP-clean.zip", 41'696'084, "40e7c862c04eb26ee04b67fd900e76c45c6ba8e6d8fab4f8f1f8072a1a3fbae0"},
    {"STS-B", "/glue/data/STS-B.zip", 802'872, "e60a6393de5a8b5b9bac5020a1554b54e3691f9d600b775bd131e613ac179c85"},
    {"MNLI", "/glue/data/MNLI.zip", 312'783'507, "e7c1d896d26ed6caf700110645df426cc2d8ebf02a5ab743d5a5c68ac1c83633"},
    {"QNLI", "/glue/data/QNLIv2.zip", 10'627'589, "e634e78627a29adaecd4f955359b22bf5e70f2cbd93b493f2d624138a0c0e5f5"},
    {"RTE", "/glue/data/RTE.zip", 697'150, "6bf86de103ecd335f3441bd43574d23fef87ecc695977a63b82d5efb206556ee"},
    {"WNLI", "/glue/data/WNLI.zip", 28'999, "ae0e8e4d16f4d46d4a0a566ec7ecceccfd3fbfaa4a7a4b4e02848c0f2561ac46"},
    {"AX", "/glue/data/AX.tsv", 222'257, "0e13510b1bb14436ff7e2ee82338f0efb0133ecf2e73507a697dc210db3f05fd"},
};

// The vocabularies of the English models of one kind are the same file.
constexpr const char* kUncasedVocabulary = "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3";
constexpr const char* kCasedVocabulary = "eeaa9875b23b04b4c54ef759d03db9d1ba1554838f8fb26c5d96fa551df93d02";

struct GoogleModel {
  const char* name;
  const char* other_name;  // Hugging Face's
  const char* date;
  // SHA-256; nullptr where none is published
  const char *config = nullptr, *data = nullptr, *index = nullptr, *meta = nullptr, *vocabulary = nullptr;
};

constexpr GoogleModel kGoogleModels[] = {
    {"uncased_L-12_H-768_A-12", "bert-base-uncased", "2018_10_18",
     "7b4e5f53efbd058c67cda0aacfafb340113ea1b5797d9ce6ee411704ba21fcbc",
     "58580dc5e0bf0ae0d2efd51d0e8272b2f808857f0a43a88aaf7549da6d7a8a84",
     "04c1323086e2f1c5b7c0759d8d3e484afbb0ab45f51793daab9f647113a0117b",
     "dd5682170a10c3ea0280c2e9b9a45fee894eb62da649bbdea37b38b0ded5f60e", kUncasedVocabulary},
    {"uncased_L-24_H-1024_A-16", "bert-large-uncased", "2018_10_18",
     "bfa42236d269e2aeb3a6d30412a33d15dbe8ea597e2b01dc9518c63cc6efafcb",
     "bc6b3363e3be458c99ecf64b7f472d2b7c67534fd8f564c0556a678f90f4eea1",
     "68b52f2205ffc64dc627d1120cf399c1ef1cbc35ea5021d1afc889ffe2ce2093",
     "6fcce8ff7628f229a885a593625e3d5ff9687542d5ef128d9beb1b0c05edc4a1", kUncasedVocabulary},
    {"cased_L-12_H-768_A-12", "bert-base-cased", "2018_10_18",
     "f11dfb757bea16339a33e1bf327b0aade6e57fd9c29dc6b84f7ddb20682f48bc",
     "734d5a1b68bf98d4e9cb6b6692725d00842a1937af73902e51776905d8f760ea",
     "517d6ef5c41fc2ca1f595276d6fccf5521810d57f5a74e32616151557790f7b1",
     "5f8a9771ff25dadd61582abb4e3a748215a10a6b55947cbb66d0f0ba1694be98", kCasedVocabulary},
    {"cased_L-24_H-1024_A-16", "bert-large-cased", "2018_10_18",
     "7adb2125c8225da495656c982fd1c5f64ba8f20ad020838571a3f8a954c2df57",
     "6ff33640f40d472f7a16af0c17b1179ca9dcc0373155fb05335b6a4dd1657ef0",
     "ef42a53f577fbe07381f4161b13c7cab4f4fc3b167cec6a9ae382c53d18049cf",
     "d2ddff3ed33b80091eac95171e94149736ea74eb645e575d942ec4a5e01a40a1", kCasedVocabulary},
    {"multi_cased_L-12_H-768_A-12", "bert-base-multilingual-cased", "2018_11_23",
     "e76c3964bc14a8bb37a5530cdc802699d2f4a6fddfab0611e153aa2528f234f0",
     "55b8a2df41f69c60c5180e50a7c31b7cdf6238909390c4ddf05fbc0d37aa1ac5",
     "7d8509c2a62b4e300feb55f8e5f1eef41638f4998dd4d887736f42d4f6a34b37",
     "95e5f1997e8831f1c31e5cf530f1a2e99f121e9cd20887f2dce6fe9e3343e3fa",
     "fe0fda7c425b48c516fc8f160d594c8022a0808447475c1a7c6d6479763f310c"},
    {"multilingual_L-12_H-768_A-12", "bert-base-multilingual-uncased", "2018_11_03",
     "49063bb061390211d2fdd108cada1ed86faa5f90b80c8f6fdddf406afa4c4624",
     "3cd83912ebeb0efe2abf35c9f1d5a515d8e80295e61c49b75c8853f756658429",
     "87c372c1a3b1dc7effaaa9103c80a81b3cbab04c7933ced224eec3b8ad2cc8e7",
     "27f504f34f02acaa6b0f60d65195ec3e3f9505ac14601c6a32b421d0c8413a29",
     "87b44292b452f6c05afa49b2e488e7eedf79ea4f4c39db6f2f4b37764228ef3f"},
    {"chinese_L-12_H-768_A-12", "bert-base-chinese", "2018_11_03",
     "7aaad0335058e2640bcb2c2e9a932b1cd9da200c46ea7b8957d54431f201c015",
     "756699356b78ad0ef1ca9ba6528297bcb3dd1aef5feadd31f4775d7c7fc989ba",
     "46315546e05ce62327b3e2cd1bed22836adcb2ff29735ec87721396edb21b82e",
     "c0f8d51e1ab986604bc2b25d6ec0af7fd21ff94cf67081996ec3f3bf5d823047",
     "45bbac6b341c319adc98a532532882e91a9cefc0329aa57bac9ae761c27b291c"},
    {"wwm_uncased_L-24_H-1024_A-16", "bert-large-uncased-whole-word-masking", "2019_05_30"},
    {"wwm_cased_L-24_H-1024_A-16", "bert-large-cased-whole-word-masking", "2019_05_30"},
};

// The small models of "Well-Read Students Learn Better" (Turc et al., 2019). Their largest has the name of BERT-base of
// 2018, which is the one that this name stands for here.
constexpr int kSmallLayers[] = {2, 4, 6, 8, 10, 12}, kSmallSizes[] = {128, 256, 512, 768};
constexpr int kHeadSize = 64;
constexpr const char* kSmallDate = "2020_02_20";

std::vector<std::string> small_models() {
  std::vector<std::string> names;
  for (const int layers : kSmallLayers) {
    for (const int size : kSmallSizes) {
      const std::string name = fmt::format("uncased_L-{}_H-{}_A-{}", layers, size, size / kHeadSize);
      if (name != kGoogleModels[0].name) names.push_back(name);
    }
  }
  return names;
}

DataSetFile google_archive(const std::string& date, const std::string& name) {
  return {.remote = {.host = kGoogleHost,
                     .path = fmt::format("/bert_models/{}/{}.zip", date, name),
                     .name = {},
                     .bytes = {},
                     .digest = {}},
          .unpack_into = name,
          .members = {}};
}

}  // namespace

std::vector<DataSetFile> squad_files(const std::string& version) {
  // Note [Published figures]
  const std::string path = "/SQuAD-explorer/dataset/";
  if (version == "1.1") {
    return {plain_file(kSquadHost, path + "train-v1.1.json", 30'288'272,
                       "3527663986b8295af4f7fcdff1ba1ff3f72d07d61a20f487cb238a6ef92fd955"),
            plain_file(kSquadHost, path + "dev-v1.1.json", 4'854'279,
                       "95aa6a52d5d6a735563366753ca50492a658031da74f301ac5238b03966972c9")};
  }
  return {plain_file(kSquadHost, path + "train-v2.0.json", 42'123'633,
                     "68dcfbb971bd3e96d5b46c7177b16c1a4e7d4bdef19fb204502738552dede002"),
          plain_file(kSquadHost, path + "dev-v2.0.json", 4'370'528,
                     "80a5225e94905956a6446d296ca1093975c4d3b3260f1d6c8f68bc2ab77182d8")};
}

const std::vector<std::string>& glue_tasks() {
  static const std::vector<std::string> tasks = [] {
    std::vector<std::string> names;
    for (const GlueFile& file : kGlueFiles) {
      if (names.empty() || names.back() != file.task) names.emplace_back(file.task);
    }
    return names;
  }();
  return tasks;
}

std::vector<DataSetFile> glue_files(const std::string& task) {
  std::vector<DataSetFile> files;
  for (const GlueFile& entry : kGlueFiles) {
    if (entry.task != task) continue;
    DataSetFile file = plain_file(kGlueHost, entry.path, entry.bytes, entry.sha256);
    const std::string path = entry.path;
    if (path.ends_with(".zip")) {
      file.unpack_into = task;
    } else {
      file.remote.name = task + path.substr(path.rfind('/'));
    }
    files.push_back(std::move(file));
  }
  return files;
}

std::vector<std::string> google_bert_models() {
  std::vector<std::string> names;
  for (const GoogleModel& model : kGoogleModels) {
    names.emplace_back(model.name);
    names.emplace_back(model.other_name);
  }
  const std::vector<std::string> small = small_models();
  names.insert(names.end(), small.begin(), small.end());
  return names;
}

DataSetFile google_bert_file(const std::string& name) {
  for (const GoogleModel& model : kGoogleModels) {
    if (name != model.name && name != model.other_name) continue;
    DataSetFile file = google_archive(model.date, model.name);
    if (model.config != nullptr) {
      file.members = {{"bert_config.json", model.config},
                      {"bert_model.ckpt.data-00000-of-00001", model.data},
                      {"bert_model.ckpt.index", model.index},
                      {"bert_model.ckpt.meta", model.meta},
                      {"vocab.txt", model.vocabulary}};
    }
    return file;
  }
  for (const std::string& small : small_models()) {
    if (name == small) return google_archive(kSmallDate, small);
  }
  throw std::out_of_range("no model " + name);
}

}  // namespace bert
