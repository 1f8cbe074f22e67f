// Wikitext: any bytes become prose of valid UTF-8, without empty lines, in linear time (libFuzzer's time limit).
#include "data/wikitext/wikitext.h"

#include "data/text/unicode.h"
#include "tests/fuzz/targets/fuzz_targets.h"

namespace bert::testing {
namespace {

std::vector<std::string> seeds() {
  return {
      "{{Infobox|a=[[b|c]]{{d}}}}'''Ada''' (born {{birth date|1815|12|10}}) was<ref name=\"x\">{{cite}}</ref> a "
      "[[mathematician|writer]].&nbsp;See [http://example.org here].\n== Life ==\n* one\n# two\n:: three\n",
      "{| class=\"wikitable\"\n|-\n! a !! b\n|-\n| c || d\n|}\nText.<!-- no --><math>x^2</math><nowiki>[[a]]</nowiki>\n"
      "[[File:A.jpg|thumb|A [[b]] c.]]\n[[Category:A]]\n-{zh-hans:a;zh-hant:b}-\n----\n__NOTOC__\n#REDIRECT [[A]]\n",
      "{{a|{{b|[[c|{{d}}<ref>{|[[e]]</ref>'''''f'' g''' &#x41;&#65;&amp;&bogus; "
      "\xff\xed\xa0\x80</span><gallery>\nA.jpg|b\n"};
}

void read(std::string_view input) {
  static const WikiNamespaces namespaces;
  const std::string prose = wikitext_to_prose(input, "Ada Lovelace", namespaces);
  require(count_invalid_utf8(prose) == 0, "prose is not UTF-8");
  require(prose.find("\n\n") == std::string::npos && !prose.starts_with('\n'), "prose has an empty line");
  require(prose.empty() || prose.ends_with('\n'), "prose ends within a line");
}

}  // namespace

FuzzTarget wikitext_target() { return {"wikitext", seeds(), read}; }

}  // namespace bert::testing
