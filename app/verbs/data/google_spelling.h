// The command line of Google's create_pretraining_data.py.
#pragma once

#include <string>
#include <vector>

namespace bert {

/// The command line with our spelling of options in place of Google's: --max-seq-length for --max_seq_length, and
/// --do-lower-case=false for --nodo_lower_case.
std::vector<std::string> in_our_spelling(int argc, char** argv);

std::vector<std::string> split_at_commas(const std::string& list);

/// The files that --input_file names. Throws InputMissing for a pattern that fits none.
std::vector<std::string> files_of_patterns(const std::string& list);

}  // namespace bert
