// The Microsoft Research Paraphrase Corpus in GLUE's form.
#pragma once

#include <string>
#include <vector>

namespace bert {

/// Makes train.tsv, dev.tsv and test.tsv in `directory` from msr_paraphrase_train.txt, msr_paraphrase_test.txt and
/// mrpc_dev_ids.tsv there, and returns their paths. GLUE does not distribute these three itself. dev.tsv has the rows
/// of the training text whose two ids are in mrpc_dev_ids.tsv, train.tsv the others, in their order and with the first
/// line, byte order mark included. test.tsv has the row's number from 0 in place of its label. Throws DataError if a
/// row has not five columns, or an id no row.
/// Source: download_glue_data.py of nyu-mll/GLUE-baselines, function format_mrpc.
std::vector<std::string> split_mrpc(const std::string& directory);

}  // namespace bert
