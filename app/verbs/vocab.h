// The verbs `bert vocab` and `bert tokenize`.
#pragma once

namespace bert {

/// `bert tokenize`: standard input to standard output, line by line. argv[0] is the verb. Returns the exit code; throws
/// UsageError, DataError, InputMissing, IoError.
int tokenize_command(int argc, char** argv);

/// `bert vocab`: learns a WordPiece vocabulary from text files. As tokenize_command.
int vocab_command(int argc, char** argv);

}  // namespace bert
