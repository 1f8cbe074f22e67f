// Expected prose is what MediaWiki shows for the markup, by its documentation, without what Note [Wikitext] leaves out.
#include "data/wikitext/wikitext.h"

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "data/text/unicode.h"
#include "data/wikitext/entities.h"
#include "tests/testing.h"

namespace bert {
namespace {

/// Linear time is a second at most, also under a sanitizer on a busy machine; quadratic time is many minutes.
constexpr std::chrono::seconds kFarFromQuadratic{60};

std::string prose(std::string_view text, std::string_view language = {}) {
  static const WikiNamespaces namespaces;
  return wikitext_to_prose(text, "Title", namespaces, language);
}

using Cases = std::vector<std::pair<std::string, std::string>>;

void check(const Cases& cases, std::string_view language = {}) {
  for (const auto& [markup, want] : cases) {
    CAPTURE(markup);
    CHECK(prose(markup, language) == (want.empty() ? want : want + "\n"));
  }
}

TEST_CASE("links leave their text", "[unit][wikitext]") {
  check({
      {"The [[cat]]s and [[Dog|the dogs]] ran.", "The cats and the dogs ran."},
      {"See [[Foo#Bar|this]], [[:Category:Cats|cats]] and [[Help:Foo (bar)|]].", "See this, cats and Foo."},
      {"Watch [[Star Wars: A New Hope]] on [[wikt:film|film]].", "Watch Star Wars: A New Hope on film."},
      {"A [[File:A.jpg|thumb|A [[cat]] at [http://x.org home]]]sentence.", "A sentence."},
      {"One.[[Category:Cats| ]][[de:Katze]] Two [[:de:Katze|in German]].", "One. Two in German."},
      {"See [http://x.org the page], [https://x.org] and [//x.org ''it''].", "See the page, and it."},
      {"Look at http://x.org/a_(b)?c=d, or (ftp://x.org).", "Look at, or."},
      {"A [sic] and a[1] stay.", "A [sic] and a[1] stay."},
  });
}

TEST_CASE("templates leave nothing, or the words that belong to a sentence", "[unit][wikitext]") {
  check({
      {"{{Infobox\n| a = {{b|c}}\n| d = [[e]]\n}}\nThe text{{cite web|url=http://x.org}} is here.",
       "The text is here."},
      {"It makes {{convert|3|e6carat|kg}}, {{convert|50|koilbbl/d|abbr=on}} and {{convert|1.4|Moilbbl/d}}.",
       "It makes 3 million carats, 50 thousand barrels per day and 1.4 million barrels per day."},
      {"All but {{IPA|*ʄ}} (say {{IPA|ʃ}} and born) have {{IPA|en|/x/}}.", "All but *ʄ (say and born) have /x/."},
      {"HA {{eqm}} H<sup>+</sup> + A<sup>−</sup> is the equilibrium.", "HA ⇌ H+ + A− is the equilibrium."},
      {"It is {{convert|5|km|mi}} by {{convert|2|-|3|m}}, {{convert|6|ft|4|in}}.", "It is 5 km by 2–3 m, 6 ft 4 in."},
      {"{{lang|de|Köln}}, {{lang-fr|Cologne}}, {{nowrap|a b}}, {{transl|ja|Hepburn|Tōkyō}}.",
       "Köln, Cologne, a b, Tōkyō."},
      {"The {{USS|Enterprise|CVN-65}} sailed{{spaced ndash}}{{as of|2010|5|lc=y}}.",
       "The USS Enterprise sailed – as of May 2010."},
      {"He said this:\n{{quote|All is well that ends.|Author}}", "He said this:\nAll is well that ends."},
      {"{{nihongo|Tokyo|東京|Tōkyō}} has {{formatnum:1234}} {{abbr|km|kilometres}}.",
       "Tokyo (東京, Tōkyō) has 1234 km."},
      {"{{#if:x|This|That}} is {{PAGENAME}}, {{{1|default}}} {{#switch:a|b=c}}{{lc:Low}}.",
       "This is Title, default Low."},
      {"X ({{IPA|x}}, {{audio|a.ogg|}}; born 1900) and Y ({{IPAc-en|x}}) are.", "X (born 1900) and Y are."},
      {"L’eau ({{lang-grc|ὕδωρ}}) est à {{unité|100|°C}} au {{s|XIX|e}}.", "L’eau (ὕδωρ) est à 100 °C au XIXe siècle."},
  });
}

TEST_CASE("tables, headings and entries of lists go, whole sentences in lists stay", "[unit][wikitext]") {
  check({
      {"{| class=\"a\"\n! x !! y\n|-\n| a {{b}} || [[c]]\n{|\n| d\n|}\n|}\nAfter the table.", "After the table."},
      {"<table><tr><td>a</td></tr></table>After the table.", "After the table."},
      {"Before it.\n== Heading ==\nAfter it.\n=== ''Two'' ===\nEnd of it.", "Before it.\nAfter it.\nEnd of it."},
      {"* one\n* [[two]]\n# three\n;term: text\n:indented\n----\n code = 1", ""},
      {"* This entry of a list is a whole sentence.\n:: ''So is this one, in italics, at the margin.''",
       "This entry of a list is a whole sentence.\nSo is this one, in italics, at the margin."},
      {"== External links ==\n* This page has all that one can know about it.\n=== More ===\n* And so does this one, "
       "or so it is "
       "said.\n== Life ==\n* But this one is a sentence of the text.",
       "But this one is a sentence of the text."},
      {"* Smith, John (1999). A book about the subject. Publisher.\n* [http://x.org The site of the firm], in many "
       "languages.\n* ''The Title of a Book''. A Publisher in London, pp. 12–15.",
       ""},
      {"'''Works'''\n\nHe wrote books.", "He wrote books."},
  });
}

TEST_CASE("sentences of lists stay, whatever they cite, and titles and names go", "[unit][wikitext]") {
  const auto kept = [](const std::string& entry) { return !prose("* " + entry).empty(); };
  for (const char* sentence :
       {"The town was founded by settlers from the coast.{{citation needed|date=May 2010}}",
        "He wrote about it in [http://x.org the local newspaper] of the town.",
        "[http://x.org Project Gutenberg] is a library of books that are free.",
        "Smith et al. showed in 1999 that the cells divide in the dark.",
        "The rule is on p. 12 of the book, and it has no exception.",
        "It opened in London (1999), and was shown in Paris later.",
        "The party after the show is held in the garden of the house",
        "the development of systems of medical knowledge and medical care in cities;", "All animals are equal.",
        "{{harvtxt|Smith|2001}} argues that the first version is the older one."}) {
    CAPTURE(sentence);
    CHECK(kept(sentence));
  }
  for (const char* entry :
       {"John Smith (born 1950), American actor", "Ada River, a river of the Tatra Mountains in Northern Poland",
        "{{cite book|title=A Book}} With many remarks on the text of the book.",
        "Smith, J. et al. Title of the article that all cite. Nature.", "[http://x.org Official Site]",
        "London: 5 million people", "''A Title of a Book'', ISBN 0-306-40615-2, which is out of print."}) {
    CAPTURE(entry);
    CHECK(!kept(entry));
  }
  check({
      {"Thus\n:<math>\\frac{a}{b}</math>\nwhere b is not zero.", "Thus\nwhere b is not zero."},
      {"For example:\n* All animals are equal in the book.\nAuthors:\n* John Smith\n'''Works'''\n* All of them are "
       "lost.",
       "For example:\nAll animals are equal in the book.\nAll of them are lost."},
      {"== Publications ==\n* The first of his books was printed in Paris, and it was forbidden there.\n"
       "* ''The Art of War in the Western World''. London, Oxford University Press.\n=== Notes ===\nHe wrote more.",
       "The first of his books was printed in Paris, and it was forbidden there.\nHe wrote more."},
      {"== Werke ==\n* Das erste Buch wurde in Paris gedruckt und dort verboten.\n== Literatur ==\n* Das Buch ist in "
       "Paris gedruckt worden.",
       "Das erste Buch wurde in Paris gedruckt und dort verboten."},
      {"----The text after a rule.\n-----\nMore of it.", "The text after a rule.\nMore of it."},
  });
}

TEST_CASE("words that stand in citations and calls stay", "[unit][wikitext]") {
  // Source: Template:Harvard citation text, Template:Harvard citation no brackets.
  check({
      {"As {{harvtxt|Smith|2001}} and {{harvtxt|Smith|Jones|2002|p=25}} say, it fell.",
       "As Smith (2001) and Smith & Jones (2002, p. 25) say, it fell."},
      {"So {{harvnb|Smith|Jones|Brown|2003}} and {{harvnb|A|B|C|D|2004|pp=1–2}} say.",
       "So Smith, Jones & Brown 2003 and A et al. 2004, pp. 1–2 say."},
      {"It fell {{harv|Smith|2001}} in May.{{sfn|Smith|2001}}", "It fell in May."},
      {"The functions printf() and main(argc) of C, not foo ({{IPA|x}}) or f ().",
       "The functions printf() and main(argc) of C, not foo or f."},
  });
}

TEST_CASE("a caption may have several paragraphs", "[unit][wikitext]") {
  check({
      {"A text. [[File:x.jpg|thumb|The first one.\n\nThe second of [[them]].]] The end of it.",
       "A text. The end of it."},
      {"[[File:x.jpg|thumb|The first one.\n\nThe second one.\n\n== H ==\nMore of it. [[a]]]]",
       "The second one.\nMore of it. a"},
      {"[[File:x.jpg|thumb|never closed\n\nThe [[next]] one.", "The next one."},
  });
}

TEST_CASE("the end of a caption of many blank lines is looked for once", "[unit][wikitext]") {
  std::string text;
  while (text.size() < 1 << 20) text += "[[File:a|" + std::string(4000, '\n') + "]]";
  const auto start = std::chrono::steady_clock::now();
  CHECK(prose(text).empty());
  CHECK(std::chrono::steady_clock::now() - start < kFarFromQuadratic);
}

TEST_CASE("tags and elements of extensions", "[unit][wikitext]") {
  check({
      {"A<ref>b</ref> c<ref name=\"d\" /> e<ref name=f>{{g}}</ref>.", "A c e."},
      {"A <!-- b\n\nc -->d.\n<!-- e -->\nF.", "A d. F."},
      {"Links are <nowiki>[[x|y]]</nowiki> and <nowiki>{{z}}</nowiki>, bold is <nowiki>&lt;b&gt;</nowiki>.",
       "Links are [[x|y]] and {{z}}, bold is <b>."},
      {"It is <nowiki>&amp;lt;</nowiki> and <nowiki><br></nowiki> there.", "It is &lt; and <br> there."},
      {"Use <nowiki>[x] ''y''</nowiki> and <code>z</code>, H<sub>2</sub>O<br/>too.", "Use [x] y and z, H2O too."},
      {"So <math>E = mc</math> and <math>\\frac{a}{b}</math> hold.", "So E = mc and hold."},
      {"<gallery>\nFile:a.jpg|b\n</gallery>\n<syntaxhighlight lang=\"c\">\nint a;\n</syntaxhighlight>\nThe end is "
       "here.",
       "The end is here."},
      {"A text.<blockquote>A quotation in it.</blockquote>More of it.", "A text.\nA quotation in it.\nMore of it."},
      {"3 < 5 and 7 > 2 and <foo> is text.", "3 < 5 and 7 > 2 and <foo> is text."},
      {"A &lt;ref&gt;b&lt;/ref&gt; c&nbsp;d &amp;nbsp; &amp;amp; &eacute;&#233;&#xE9; &bogus; e.",
       "A <ref>b</ref> c d & ééé &bogus; e."},
      {"Bold is &lt;b&gt; or &#60;b>, a link &#91;&#91;x|y&#93;&#93; and &lbrace;&lbrace;z}} too.",
       "Bold is <b> or <b>, a link [[x|y]] and {{z too."},
      {"__NOTOC__A text __FORCETOC__here __init__.", "A text here __init__."},
  });
}

TEST_CASE("exponents and fractions keep their values", "[unit][wikitext]") {
  check({
      {"About 10<sup>7</sup>, 10<sup>−3</sup>, the 4<sup>th</sup>, x<sup>2</sup> of it.",
       "About 10^7, 10^−3, the 4th, x2 of it."},
      {"A charge of {{val|6.241|e=18|u=C}} or {{e|24}} of it.", "A charge of 6.241×10^18 C or ×10^24 of it."},
      {"It is {{frac|1|2}}, {{frac|3}}, 3{{frac|1|2}}, {{frac|3|1|2}} or 1{{sfrac|1|4}} of it.",
       "It is 1/2, 1/3, 3 1/2, 3 1/2 or 1 1/4 of it."},
  });
}

TEST_CASE("text behind a template or a file that leaves nothing is no list", "[unit][wikitext]") {
  check({
      {"[[File:a.jpg|thumb|cap]] The city of Foo, also known as Bar, with [[x]]\nand more of it.",
       "The city of Foo, also known as Bar, with x and more of it."},
      {"{{flagicon|US}} Smith, a driver from Foo\nand more of it.", "Smith, a driver from Foo and more of it."},
      {"<math>\\frac{a}{b}</math>; however, it is assumed that\nthis holds.",
       "however, it is assumed that this holds."},
      {"{{Infobox|a=b}}\n* An item\n\nThe sentence after it.", "The sentence after it."},
      {"{{Anchor|x}}== H ==\nThe sentence after it.", "The sentence after it."},
  });
}

TEST_CASE("templates of ordinals, centuries, names and signs", "[unit][wikitext]") {
  check({{"Le 1{{er}} mai du XX{{e}} siècle, au {{s-|XIX}} et au {{s-|XVIII|e}} ou au {{-s|II}} ici.",
          "Le 1er mai du XXe siècle, au XIXe siècle et au XVIIIe siècle ou au IIe siècle av. J.-C. ici."}},
        "fr");
  check({
      {"{{Mme|Curie}} et {{n°|5}} à {{heure|18|30}} et {{nombre|5|kg}}.", "Mme Curie et n° 5 à 18 h 30 et 5 kg."},
      {"The {{script|Copt|Ⲁ}}, {{INS|Vikrant}}, {{height|ft=6|in=2}}, {{gaps|5|000}} of it.",
       "The Ⲁ, INS Vikrant, 6 ft 2 in, 5000 of it."},
      {"Press {{key press|Ctrl|C}} in B{{music|flat}} {{née|Smith}}, {{mya|65}}.",
       "Press Ctrl+C in B♭ née Smith, 65 million years ago."},
  });
}

TEST_CASE("quotes of bold and italic text, with apostrophes beside them", "[unit][wikitext]") {
  check({
      {"'''Bold''' and ''italic'' and '''''both''''' aren't.", "Bold and italic and both aren't."},
      {"L'''amour'' est l''''art''' ici.", "L'amour est l'art ici."},
      {"An unclosed ''italic line.\nAnother '''line.", "An unclosed italic line. Another line."},
  });
}

TEST_CASE("broken markup loses little, and leaves no signs of markup", "[unit][wikitext]") {
  check({
      {"An [[unclosed link here.\n\nThe next one.", "An unclosed link here.\nThe next one."},
      {
          "A text. [[File:x.jpg|thumb|unclosed file\n\nThe next one.",
          "A text.\nThe next one.",
      },
      {"{{Infobox\n| a = b\nThe sentence after it.\n== H ==\nMore of it.", "The sentence after it.\nMore of it."},
      {"{| class=x\n| a\nText in a table that never ends.\n== H ==\nMore of it.",
       "Text in a table that never ends.\nMore of it."},
      {"A <ref>never closed.\n== H ==\nMore of it.<ref>x</ref>", "A never closed.\nMore of it."},
      {"Stray }} and ]] and |} and {{ signs.", "Stray and and and"},
      {"A <!-- comment without an end.\nMore of it.", "A More of it."},
      {"Four [[[[a]]]] and {{{{{b}}}}} are here.", "Four a and are here."},
  });
}

TEST_CASE("other languages: names of namespaces, variants, marks", "[unit][wikitext]") {
  check({
      {"[[Datei:K.jpg|mini|Der [[Dom]]]]\n'''Köln''' ist eine Stadt.[[Kategorie:Ort]]\n[[Bild:x.jpg|thumb]]",
       "Köln ist eine Stadt."},
      {"[[Fichier:T.jpg|vignette|La [[tour]].]]\nLa tour est haute.[[Catégorie:Tour]]", "La tour est haute."},
      {"[[文件:B.jpg|缩略图|北京]]北京（{{lang|en|Beijing}}，{{bpmf|x}}）是-{zh-hans:计算机; "
       "zh-hant:電腦;}-城市。[[分类:北京]]-{H|a}-",
       "北京（Beijing）是计算机城市。"},
      {"[[ファイル:T.jpg|thumb|東京]]\n'''東京'''は首都で\n'''ある'''。\n[[カテゴリ:日本]]", "東京は首都である。"},
      {"[[ملف:C.jpg|تصغير|[[القاهرة]]]]\n'''القاهرة''' ({{إنج|Cairo}}، عاصمة) مدينة.[[تصنيف:مدن]]",
       "القاهرة (Cairo، عاصمة) مدينة."},
      {"[[चित्र:D.jpg|अंगूठाकार|[[लाल किला]]]]\n'''दिल्ली''' [[भारत]] की राजधानी है।[[श्रेणी:शहर]]",
       "दिल्ली भारत की राजधानी है।"},
      {"[[Файл:М.jpg|мини]][[файл:М.jpg]]Москва — столица.[[КАТЕГОРИЯ:Москва]]", "Москва — столица."},
  });
}

TEST_CASE("a dump names namespaces that no list has", "[unit][wikitext]") {
  WikiNamespaces namespaces;
  const std::string text = "A [[Tiedosto X:a.jpg|thumb|b]]sentence [[Luokka_x:c]]here.";
  CHECK(wikitext_to_prose(text, "", namespaces) == "A bsentence Luokka_x:chere.\n");
  namespaces.add("Tiedosto_X", WikiNamespaces::kFile);
  namespaces.add("luokka x", WikiNamespaces::kCategory);
  CHECK(wikitext_to_prose(text, "", namespaces) == "A sentence here.\n");
  CHECK(namespaces.find("tiedosto  x") == WikiNamespaces::kFile);
  CHECK(namespaces.find("Star Trek") == WikiNamespaces::kArticle);
}

TEST_CASE("named references of HTML", "[unit][wikitext]") {
  const auto decoded = [](std::string_view text) {
    std::string out;
    decode_references(text, out);
    return out;
  };
  CHECK(decoded("&Alpha;&hellip;&zwnj;&NotEqualTilde;") == "Α…\u200C\u2242\u0338");
  CHECK(decoded("&#0;&#xD800;&#x110000;&#99999999999;&#x;&;&#a;") == "&#x;&;&#a;");
  CHECK(decoded("AT&T &ampere; &lt") == "AT&T &ampere; &lt");
}

TEST_CASE("any bytes give valid UTF-8 without markup", "[unit][wikitext]") {
  uint64_t state = 7;
  const std::vector<std::string> pieces = {
      "[[",      "]]",      "{{",   "}}",   "|",        "{|",        "|}",   "\n",  "''",      "'",          "<ref>",
      "</ref>",  "<",       ">",    "&lt;", "&amp;",    ";",         "-{",   "}-",  "http://", "[http://a ", "]",
      "=",       "==",      "\xFF", "\xC3", "\xE4\xB8", "\xFD'",     "é",    "中",  "a",       " ",          "(",
      ")",       ",",       "*",    "__",   "<nowiki>", "</nowiki>", "<!--", "-->", "thumb|",  "Category:",  "[[File:",
      "<table>", "</table>"};
  for (int round = 0; round < 6000; ++round) {
    std::string text;
    for (int i = 0; i < 40; ++i) {
      state = state * 6364136223846793005U + 1442695040888963407U;
      text += pieces[(state >> 33) % pieces.size()];
    }
    const std::string result = prose(text);
    CAPTURE(text, result);
    REQUIRE(count_invalid_utf8(result) == 0);
    if (text.find("<nowiki>") != std::string::npos) continue;  // what it encloses is text
    for (const char* sign : {"{{", "}}", "[[", "]]", "{|", "|}", "'''", "</", "<ref", "http://", "thumb|", "&lt;"})
      REQUIRE(result.find(sign) == std::string::npos);
  }
}

TEST_CASE("a megabyte of any repeated markup takes no longer than text", "[unit][wikitext]") {
  constexpr size_t kBytes = 1 << 20;
  for (const std::string piece : {"[",
                                  "[[",
                                  "[[a|",
                                  "[[File:a|",
                                  "{",
                                  "{{",
                                  "{{a|",
                                  "{{{",
                                  "{{nowrap|",
                                  "}",
                                  "]",
                                  "<",
                                  "<ref>",
                                  "<ref",
                                  "<!--",
                                  "<nowiki>",
                                  "<b ",
                                  "{|\n",
                                  "\n{|",
                                  "\n==",
                                  "-{",
                                  "-{zh:a;",
                                  "''",
                                  "'''a",
                                  "[http://a ",
                                  "http://",
                                  "__",
                                  "__A",
                                  "&",
                                  "&amp;",
                                  "&#",
                                  "(",
                                  "(,",
                                  "()",
                                  " ,",
                                  "\n",
                                  "\n*",
                                  "\n* a.",
                                  "<table>",
                                  "<math>",
                                  "</ref>",
                                  "{{#if:|",
                                  "[[a\n",
                                  "{{quote|",
                                  "thumb|",
                                  "|",
                                  "[[File:a|b\n\n"}) {
    CAPTURE(piece);
    std::string text;
    while (text.size() < kBytes) text += piece;
    const auto start = std::chrono::steady_clock::now();
    static_cast<void>(prose(text));
    CHECK(std::chrono::steady_clock::now() - start < kFarFromQuadratic);
  }
}

TEST_CASE("a page that repeats a long title stays short", "[unit][wikitext]") {
  std::string text;
  while (text.size() < 1'000'000) text += "{{PAGENAME}} ";
  const std::string title(4000, 'x');
  CHECK(wikitext_to_prose(text, title, WikiNamespaces()).size() < 3'000'000);
  CHECK(prose("{{PAGENAME}} and {{PAGENAME}}.") == "Title and Title.\n");
}

TEST_CASE("a megabyte of nested markup is closed at once", "[unit][wikitext]") {
  constexpr size_t kBytes = 1 << 20;
  const Cases pairs = {{"{{nowrap|", "}}"},     {"[[a|", "]]"}, {"\n{|\n", "\n|}"},
                       {"<table>", "</table>"}, {"-{a", "}-"},  {"(", ")"}};
  for (const auto& [open, close] : pairs) {
    std::string text, end;
    while (text.size() + end.size() < kBytes) text += open, end += close;
    const auto start = std::chrono::steady_clock::now();
    static_cast<void>(prose(text + end));
    CHECK(std::chrono::steady_clock::now() - start < kFarFromQuadratic);
  }
}

}  // namespace
}  // namespace bert
