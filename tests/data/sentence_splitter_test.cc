#include "data/text/sentence_splitter.h"

#include <vector>

#include "tests/testing.h"

namespace bert {
namespace {

using Lines = std::vector<std::string>;

Lines prose_lines(const std::string& text) {
  Lines lines;
  split_prose(text, [&](std::string_view line) { lines.emplace_back(line); });
  return lines;
}

TEST_CASE("Sentences end where a reader would end them", "[unit][splitter]") {
  // Each row is one paragraph with bars between its sentences. Split by hand.
  const Lines rows = {
      "It rained. | The streets were empty! | Who cared? | Nobody.",
      "Mr. and Mrs. Bennet met Dr. Watson at St. Mary's. | They left.",
      "J. R. R. Tolkien and C.S. Lewis talked. | Both wrote.",
      "The U.S. Army left at 5 p.m. | Nobody saw it.",
      "Pi is 3.14159 or so. | It costs $4.50 today.",
      "See e.g. Smith vs. Jones, i.e. No. 5 and Fig. 2 of vol. 3. | He said no. | She said yes.",
      "\"Stop!\" he cried. | \"Why?\" | \"Because.\" | So she did.",
      "\u201cStop!\u201d he cried. | \u201cWhy?\u201d asked she. | \u2018Because.\u2019 | \u201cOh.\u201d",
      "(It was late.) | He slept. | [He did.] | 'Really?' | Yes.",
      "Well... | He paused... and went on. | And on\u2026 | The end\u2026 or not.",
      "He waited . . . and waited. | Then . . . nothing.",
      "Cats, dogs, etc. were there. | It was 1984. | Then came 1985.",
      "1. First do this. | It was I. | He left.",
      "What?! | No way!! | Yes.",
      "\u00c9mile came. | \u00c9lan is good. \u00e9tat is lower case.",
      "\u4eca\u5929\u662f\u661f\u671f\u4e00\u3002 | \u660e\u5929\u662f\u661f\u671f\u4e8c\uff01 | \u597d",
      "\u300c\u306f\u3044\u3002\u300d | \u597d\u3002\uff09 | \u597d",
      "\u092f\u0939 \u0939\u0948\u0964 | \u0935\u0939 \u0939\u0948\u0965 | \u0939\u093e\u0901\u0964",
      "\u0647\u0644 \u0630\u0647\u0628\u061f! | \u0646\u0639\u0645. | \u06c1\u06d2\u06d4\u201d | \u0648\u06c1",
      "See man. | /dev/null is a device. | It has 40 inh. / km.",
      "1) The first | 2) The second",
      "\u2022 A bullet | \u2022 Another",
      "a. The first | b. The second",
      "It fell.[3] | It rose. [4, 5] | \"So [...] it goes.\" | He left ( at last . ) | \" Go . \" | Yes ! :) | No.",
      "\u201eJa.\u201c | \u00abOui !\u00bb | \u00ab\u00a0Non\u00a0!\u00a0\u00bb | Bon.",
      "On Jan. 5 he came. | It was in Jan. | Snow fell.",
      "Visit example.com today. | It has version 2.0.1 now.",
      "no capital letters. | not one, at 5 p.m. or by j. smith of the u.s. army. | it has sentences.",
      "He left.--\"Really?\" | She wept.",
      "\"Really?\" Mrs. Hale asked. | \"Really!\" I cried. | \"Really?\" | The door opened. | \"No!\" | Mary said that "
      "he "
      "lied.",
      "Dash \u2014 \u201cso.\u201d | \u2014 He went.",
  };
  for (const std::string& row : rows) {
    CAPTURE(row);
    Lines want;
    std::string text;
    for (size_t begin = 0; begin < row.size();) {
      const size_t bar = std::min(row.find(" | ", begin), row.size());
      want.push_back(row.substr(begin, bar - begin));
      text += (text.empty() ? "" : "  ") + want.back();
      begin = bar + 3;
    }
    CHECK(split_sentences(text) == want);
  }
}

TEST_CASE("The language of a text is that of the caller, else that of the document's words", "[unit][splitter]") {
  CHECK(split_sentences("Der 5. Band", "de") == Lines{"Der 5. Band"});
  CHECK(split_sentences("Der 5. Band", "en") == Lines{"Der 5.", "Band"});
  CHECK(split_sentences("Der 5. Band", "zh") == Lines{"Der 5.", "Band"});
  CHECK(split_sentences("Der 5. Band") == Lines{"Der 5. Band"});
  CHECK(split_sentences("Volume 5. Band") == Lines{"Volume 5.", "Band"});
  // A paragraph of few words has the language of the paragraphs around it.
  const std::string document =
      "Kościół św. Jana\n\nNie jest to zamek, ale było ich tam kiedyś wiele.\n\nPlac św. Anny\n";
  Lines lines;
  split_document(document, [&](std::string_view line) { lines.emplace_back(line); });
  CHECK(lines == Lines{"Kościół św. Jana", "Nie jest to zamek, ale było ich tam kiedyś wiele.", "Plac św. Anny"});
}

TEST_CASE("A word of the document tells whether a number before it is an ordinal number", "[unit][splitter]") {
  // In German, a word with a capital within a sentence is a noun. A word in lower case is none, so it begins a sentence.
  CHECK(split_sentences("Ich mag die Oper und ihre Musik. Wagners 3. Oper.") ==
        Lines{"Ich mag die Oper und ihre Musik.", "Wagners 3. Oper."});
  CHECK(split_sentences("Ich mag laute Oper und die Musik. Es waren 3. Laute Musik ist gut.") ==
        Lines{"Ich mag laute Oper und die Musik.", "Es waren 3.", "Laute Musik ist gut."});
  // In Turkish, a verb ends a sentence, so that a number seldom does.
  CHECK(split_sentences("Bu kitap için Papa VI. Paul ve 2. Ramses var.") ==
        Lines{"Bu kitap için Papa VI. Paul ve 2. Ramses var."});
}

TEST_CASE("Text in small letters has ordinal numbers too", "[unit][splitter]") {
  CHECK(split_sentences("v 19. století žil v praze.") == Lines{"v 19. století žil v praze."});
  CHECK(split_sentences("w XIX w. powstał zamek. potem było ich więcej.") ==
        Lines{"w XIX w. powstał zamek.", "potem było ich więcej."});
}

TEST_CASE("An ordinal number at the beginning of a sentence is no label of a list", "[unit][splitter]") {
  CHECK(split_sentences("19. sajandil ja 20. sajandil oli see ka nii.") ==
        Lines{"19. sajandil ja 20. sajandil oli see ka nii."});
  CHECK(split_sentences("1. Wir gehen in die Stadt 2. Er kommt mit") ==
        Lines{"1. Wir gehen in die Stadt", "2. Er kommt mit"});
}

TEST_CASE("White space and nothing are handled", "[unit][splitter]") {
  CHECK(split_sentences("").empty());
  CHECK(split_sentences(" \t\r\n").empty());
  CHECK(split_sentences(" a\t b.\n\n C  ") == Lines{"a b.", "C"});
  CHECK(split_sentences(".") == Lines{"."});
  CHECK(split_sentences(". . . .") == Lines{". . . ."});
  CHECK(split_sentences("\xff. \xfe!") == Lines{"\xff.", "\xfe!"});
}

TEST_CASE("Wrapped lines are joined, blank lines separate documents", "[unit][splitter]") {
  CHECK(prose_lines("The cat\nsat. The\ndog ran.\n\nA bird\nsang.\n") ==
        Lines{"The cat sat.", "The dog ran.", "", "A bird sang.", ""});
  CHECK(prose_lines("\ufeffThe cat\r\nsat.\r\n\r\nA bird.") == Lines{"The cat sat.", "", "A bird.", ""});
  CHECK(prose_lines("").empty());
  CHECK(prose_lines("\n\n \n").empty());
}

TEST_CASE("Two blank lines separate documents where the text has them, one then ends a paragraph", "[unit][splitter]") {
  CHECK(prose_lines("Chapter I\n\n\nIt began.\n\nIt went\non.\n\n\n\nChapter II\n") ==
        Lines{"Chapter I", "", "It began.", "It went on.", "", "Chapter II", ""});
  // A single pair of blank lines in a long text does not divide it into two documents.
  std::string text = "A.\n\n\n";
  for (int i = 0; i < 20000; ++i) text += "One sentence of a paragraph of its own.\n\n";
  CHECK(prose_lines(text).size() == 2 * 20001);
}

TEST_CASE("Wrapped text of any script has the sentences of the same text unwrapped", "[unit][splitter]") {
  // Lines of at most 72 columns.
  const std::vector<Lines> wrapped = {
      {"Он родился в небольшом городе на берегу реки, где его отец служил",
       "учителем в гимназии и писал стихи. Детство прошло тихо и спокойно, в", "саду за домом."},
      {"Γεννήθηκε σε μια μικρή πόλη στην όχθη του ποταμού, όπου ο πατέρας του",
       "ήταν δάσκαλος και έγραφε ποιήματα. Μετά άρχισε ο πόλεμος."},
      {"उसका जन्म नदी के किनारे एक छोटे शहर में हुआ था, जहाँ उसके पिता अध्यापक", "थे और कविताएँ लिखते थे। फिर युद्ध शुरू हुआ।"}};
  for (const Lines& lines : wrapped) {
    std::string text, whole;
    for (const std::string& line : lines) {
      text += line + "\n";
      whole += (whole.empty() ? "" : " ") + line;
    }
    CAPTURE(text);
    CHECK(prose_lines(text) == prose_lines(whole));
    CHECK(prose_lines(text).size() >= 2);
  }
  // Ideographs are joined without a space; Hangul has spaces.
  CHECK(prose_lines("彼は川のほとりの小さな町に生まれ、父は学校の教\n師だった。そして戦争が始まった。\n") ==
        prose_lines("彼は川のほとりの小さな町に生まれ、父は学校の教師だった。そして戦争が始まった。"));
  CHECK(prose_lines("그는 강가의 작은 마을에서\n태어났다.\n") == prose_lines("그는 강가의 작은 마을에서 태어났다."));
}

TEST_CASE("A word that no program can wrap does not cut its paragraph", "[unit][splitter]") {
  const std::string address = "https://www.example.com/" + std::string(120, 'x');
  CHECK(prose_lines("See the page\n" + address + "\nfor the photographs.\n") ==
        prose_lines("See the page " + address + " for the photographs."));
  CHECK(prose_lines("See the page at " + address + ":\nit has the photographs.\n") ==
        prose_lines("See the page at " + address + ": it has the photographs."));
}

TEST_CASE("Growing indentation begins a paragraph", "[unit][splitter]") {
  CHECK(prose_lines("  He went\nhome\n  She stayed\nthere\n") == Lines{"He went home", "She stayed there", ""});
}

TEST_CASE("Text with one paragraph per line is not joined", "[unit][splitter]") {
  std::string long_line = "x";
  for (int i = 0; i < 40; ++i) long_line += " xxx";
  long_line += ".";
  CHECK(prose_lines("Heading\n" + long_line + "\nAnother heading\n") ==
        Lines{"Heading", long_line, "Another heading", ""});
}

TEST_CASE("Hostile text takes linear time", "[unit][splitter]") {
  // With a rule that looks back or ahead over the whole text, each of these would take longer than the test may.
  const size_t count = 300000;
  const auto repeat = [&](const std::string& part) {
    std::string text;
    for (size_t i = 0; i < count; ++i) text += part;
    return text;
  };
  CHECK(split_sentences(repeat("Mr. ")).size() == 1);
  CHECK(split_sentences(repeat("(") + repeat("Mr. ")).size() == 1);
  CHECK(split_sentences(repeat("a.")).size() == 1);
  CHECK(split_sentences(repeat(". ")).size() == 1);
  CHECK(split_sentences(repeat("\"")).size() == 1);
  CHECK(split_sentences(repeat("A! ")).size() == count);
  CHECK(split_sentences("A" + repeat(". )")).size() == 1);
  CHECK(split_sentences(repeat(". - ")).size() > 1);
  CHECK(split_sentences("a. " + repeat("- ")).size() == 1);
  CHECK(split_sentences("A." + repeat("[1]")).size() == 1);
  CHECK(split_sentences(repeat("\u201c.\" ")).size() > 0);
  CHECK(split_sentences(repeat("\u3002\u300d")).size() == count);
  CHECK(split_sentences(repeat("1. A! ")).size() == count);
  CHECK(split_sentences(repeat("der 5. Tag ")).size() == 1);
  CHECK(split_sentences(repeat("das 5. Der ")).size() == count + 1);
  CHECK(split_sentences(repeat("1. 2. der ")).size() > 0);
  CHECK(split_sentences(repeat("się r. Xy ")).size() > 1);
  CHECK(split_sentences(repeat("και το; Να ")).size() == count + 1);
  CHECK(split_sentences(repeat("α;")).size() == 1);
  CHECK(split_sentences("der und die " + repeat("x5. Wort ")).size() > 1);
  CHECK(split_sentences("\u3042" + repeat("\u3002") + "\u300d\u3068\u8a00\u3063\u305f\u3002").size() == 1);
}

}  // namespace
}  // namespace bert
