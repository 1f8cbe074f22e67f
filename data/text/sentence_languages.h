// The knowledge of split_sentences about single languages: one row a language. A text of another language, or
// of none that its words tell, is split by sentence_rules.h alone.
//
// A new language is a new row, and a new abbreviation a new word in a list. A list is one string, with a space between
// words. A word in lower case stands for itself in any case; a single letter, and a word with a capital, stand for that
// spelling alone. Abbreviations stand without their last full stop. Lists of a row come before those of
// sentence_rules.h. Sources: the frequent words and most abbreviations are those that the treebanks of Universal
// Dependencies 2.x showed; that a full stop makes an ordinal number is what the official spelling of each language says
// (German: Amtliche Regelung, § 104).
#pragma once

#include <array>
#include <string_view>

namespace bert::sentence_rules {

/// Which numbers with a full stop are ordinal numbers, although a capital follows.
enum class Ordinals {
  kNone,    // the language writes them otherwise: 5th, 5e, 5.º
  kPhrase,  // 5. within a phrase: before a word of after_ordinal, or after one of before_ordinal
  kNoun,    // and before a word that the text elsewhere writes with a capital within a sentence
  kRoman,   // and every Roman numeral, since it stands before a king's name: IV. Béla
  kAny,     // and every number, since verbs end sentences: 2. Ramses
};

struct Language {
  std::string_view code = "";   // ISO 639-1
  std::string_view words = "";  // frequent words: they tell the language, and often begin a sentence
  Ordinals ordinals = Ordinals::kNone;
  std::string_view before_ordinal = "";  // articles and the like: "der" of "der 5. Band"
  std::string_view after_ordinal = "";   // beginnings of words with capitals: "jahrhundert" of "5. Jahrhunderts"
  std::string_view never_ends = "";      // abbreviations as those of kNeverEnd
  std::string_view before_digits = "";   // as those of kBeforeDigits
  std::string_view may_end = "";         // as those of kMayEnd
  std::string_view dates = "";           // end a sentence unless it has just begun: "W 1492 r. Kolumb ..."
  std::string_view plain = "";           // words that are abbreviations in sentence_rules.h, but not in this language
};

// The first of two languages with as many words in a text wins, so English stands first.
inline constexpr std::array kLanguages = {
    Language{.code = "en",
             .words = "the of and to in is was were that for with on as by from at are this these those which who his "
                      "her it he she they we you i my me him them its be been or an a not but have has had will would "
                      "can could there what when if so no do did said all one about into out up than then"},
    Language{
        .code = "de",
        .words = "der die das und ist nicht ein eine einen einem einer mit auf für von dem den des im zu zum zur "
                 "vom in sich auch als an werden wurde wird war waren sind es er sie ich wir ihr aus bei nach wie "
                 "über oder aber nur noch man dann danach doch dort da dies diese dieser dieses so seit bis um vor "
                 "durch unter zwischen während wenn weil hier heute später jedoch ob was wer wo sein seine mein "
                 "kein keine alle viele einige andere damit dabei dazu daher darum deshalb trotzdem schließlich "
                 "zuerst zunächst nun jetzt am hat haben kann nachdem bereits",
        .ordinals = Ordinals::kNoun,
        .before_ordinal = "der die das dem den des am im vom zum zur ins beim ans ein eine einem einen einer eines "
                          "sein seine seinem seinen seiner seines ihr ihre ihrem ihren ihrer ihres mein meine "
                          "meinem meinen meiner meines unser unsere unserem unseren unserer unseres dieser diesem "
                          "jeder jedem jeden",
        .after_ordinal = "januar jänner februar märz april mai juni juli august september oktober november "
                         "dezember jahrhundert jahrtausend weltkrieg lebensjahr geburtstag todestag jahrestag "
                         "jubiläum bundesliga auflage etage spieltag parteitag",
        .never_ends = "u.a z.b d.h v n hl engl lat frz franz griech ital span russ poln tschech türk dt ehem allg "
                      "sel zit zw gem",
        .may_end = "chr"},
    Language{.code = "nl",
             .words = "de het een van en is dat niet op te zijn voor met aan er maar ook door naar wordt werd bij uit "
                      "om die deze hij zij ze we ik als nog dan wel geen over tot heeft had was waren in of",
             .never_ends = "o.a m.b.t t.a.v a.d",
             .before_digits = "blz",
             .plain = "op"},
    Language{.code = "fr",
             .words = "le la les des du et est une dans que qui pour pas sur au aux avec il elle ils elles on nous "
                      "vous je ce cette ces par plus sont à en un son sa ses se mais ou comme de était été être"},
    Language{.code = "es",
             .words = "el la los las del y que en una por con no se para es como más pero su sus al lo un de fue son "
                      "este esta ha también ya muy cuando sin sobre entre"},
    Language{.code = "it",
             .words = "il lo la di che e è un una per non con del della dei delle sono gli le si nel nella come più da "
                      "anche ma al alla su ha questo questa era stato",
             .plain = "mi"},
    Language{.code = "pt",
             .words = "o a os as do da dos das de que e em um uma não para com por mais como no na se foi ao à são é "
                      "mas pelo pela seu sua também"},
    Language{.code = "ro",
             .words = "și de la în a cu din pe nu care este sunt sa să un o mai pentru fost prin dar au lui ce al ale"},
    Language{.code = "sv",
             .words = "och att det som en på är av för med den till inte har han hon jag vi de om men var ett ska "
                      "kan från sig när eller så här där då nu detta efter under också",
             .never_ends = "bl.a t.ex s.k d.v.s dvs jfr f.d kungl",
             .before_digits = "kl",
             .plain = "det av med maj min"},
    Language{
        .code = "da",
        .words = "og det er en et af til på som for med den ikke har han hun jeg vi de at fra var om men blev "
                 "også kan ved eller når i da så hvis efter hvor hvad nu nej ja sig ham der under senere dette "
                 "denne disse her mens",
        .ordinals = Ordinals::kPhrase,
        .before_ordinal = "den det de d",
        .after_ordinal = "verdenskrig",
        .never_ends = "f.eks bl.a dvs d.v.s kgl dr.phil cand phil jur sct skt vedr mht ang jf jvf tidl opr eksempelvis",
        .before_digits = "kl stk",
        .plain = "det av med ud maj min op"},
    Language{.code = "no",
             .words = "og det er en et av til på som for med den ikke har han hun jeg vi de å fra var om men ble også "
                      "kan ved eller når i så hvis etter hvor hva nå nei ja seg der under dette denne disse her mens "
                      "eg ikkje frå ein eit vart dei vert kva korleis at",
             .ordinals = Ordinals::kPhrase,
             .before_ordinal = "den det de",
             .after_ordinal = "verdenskrig verdskrig",
             .never_ends = "f.eks bl.a m.a dvs d.v.s kgl jf jfr tidl s.k f.v cand",
             .before_digits = "kl tlf f",
             .plain = "det av med ut maj min op no"},
    Language{.code = "is",
             .words = "og að er í á sem til en við um af það þetta hann hún var ekki með fyrir voru þar þegar eftir "
                      "því frá hafa hefur eru ég við þeir",
             .ordinals = Ordinals::kPhrase,
             .never_ends = "t.d þ.e þ.e.a.s s.k sr"},
    Language{.code = "cs",
             .words = "a v na se je že s z do to o jako ale i k pro by po za jsou byl byla bylo byli od který která "
                      "které není jeho už tak podle při jen však pak také ještě když nebo co ve ze si potom poté ten "
                      "ta tento tato já on ona mi jsem",
             .ordinals = Ordinals::kPhrase,
             .never_ends = "tzv sv např tj tzn resp mj př ing mgr bc judr mudr phdr rndr doc prof ul gen plk kpt "
                           "por hl vč angl něm lat řec franc čes arch n",
             .before_digits = "čl odst str roč č r",
             .may_end = "mil mld",
             .dates = "stol l n.l",
             .plain = "mi med mo pl"},
    Language{.code = "sk",
             .words = "a v na sa je že s z do to o ako ale aj k pre by po za sú bol bola bolo boli od ktorý ktorá "
                      "ktoré nie jeho už tak podľa pri len však potom tiež ešte keď alebo čo vo zo si ten tá tento "
                      "ja on ona mi som",
             .ordinals = Ordinals::kPhrase,
             .never_ends = "tzv sv napr tj t.j tzn t.z resp mgr ing doc prof judr mudr ul gen plk kpt okr lat gr "
                           "angl nem franc tal rus hl n",
             .before_digits = "čl ods str roč č r",
             .may_end = "mil mld",
             .dates = "stor l n.l",
             .plain = "mi med mo pl"},
    Language{.code = "pl",
             .words = "w i na z się do nie że to jest o jak po co tak od za ale był była było były są przez dla tym "
                      "jego jej oraz który która które przy ich tylko już może ma jednak także też pod ze we czy gdy "
                      "potem wtedy następnie kiedy aby lub ten ta te on ona ja ja a podczas",
             .ordinals = Ordinals::kPhrase,
             .never_ends = "św tzw tzn np m.in im ul al pl prof dr hab ks bp abp mgr inż gen płk ppłk mjr kpt por ppor "
                           "sierż asp nadkom podkom kom podinsp st tj t.j zob por łac gr ang niem fr wł ros ok ds nt "
                           "woj pow gm dyr red wg proj parafia parf ur zm tow pocz kol",
             .before_digits = "ust art pkt poz nr str rys tab tel godz rozdz u",
             .may_end = "tys mln mld",
             .dates = "r w p.n.e n.e",
             .plain = "maj mi min proc"},
    Language{.code = "hu",
             .words = "a az és egy hogy nem is van volt meg de ez mint csak már még vagy el ki be fel azt ezt aki ami "
                      "amely lesz lett szerint után között pedig majd sem mert ha így úgy ott itt akkor én te ő mi ők "
                      "ezután azonban ennek",
             .ordinals = Ordinals::kRoman,
             .before_ordinal = "a az",
             .never_ends = "szt ún dr prof ifj id özv gr br kb pl ill vö ld mv szerk tkp ang ném lat",
             .before_digits = "u sz old tel",
             .may_end = "rt bt kft zrt nyrt",
             .plain = "mi no"},
    Language{.code = "fi",
             .words = "ja on oli ei se että joka hän myös kuin ovat mutta tai sen ne kun niin vain jos sekä olla hänen "
                      "mukaan jälkeen vuonna sitten nyt tämä tämän siitä tässä siinä olivat minä sinä me te he hänet "
                      "ole en joita jotka",
             .ordinals = Ordinals::kPhrase,
             .never_ends = "esim mm ns ks vrt engl ruots saks ransk lat jap ven ukr kreik ital esp myöh ent synt kuol "
                           "o.s toim puh tri maist",
             .before_digits = "s n klo puh",
             .dates = "ekr jkr"},
    Language{.code = "et",
             .words = "ja on ei et see ta oli ka kui mis ning aga kes oma seda siis nii nagu välja pole tema või sest "
                      "kuid veel juba selle ma me nad olid seal kus sellest",
             .ordinals = Ordinals::kPhrase,
             .never_ends = "nt s.t s.o vt vrd nn mag hr",
             .before_digits = "lk kl p nr",
             .dates = "ekr pkr"},
    Language{.code = "lv",
             .words = "un ir ar no uz par ka kas tas bija nav arī gan bet tā to ne kā pie viņš viņa pēc lai jau vai "
                      "tikai pat tad es mēs ko kad tika",
             .ordinals = Ordinals::kPhrase,
             .after_ordinal = "pasaules",
             .never_ends = "piem sk kr dz sv t.i t.s t.sk",
             .before_digits = "tālr mob plkst lpp",
             .may_end = "gs m.ē",
             .dates = "g"},
    Language{.code = "lt",
             .words = "ir yra kad tai su į iš o kaip bet buvo jis ji ne per apie už jo jos ar dar tik kuris kuri po "
                      "nuo iki taip pat jie",
             .never_ends = "pvz t.y vad šv gen žr plg",
             .may_end = "a d mėn",
             .dates = "m"},
    Language{.code = "sl",
             .words = "in je v na se za da so z s ki ne po pa bi kot od bil bila bilo bili ali tudi iz ni še pri kaj "
                      "sem lahko ko med če o do potem nato ta to on ona",
             .ordinals = Ordinals::kPhrase,
             .never_ends = "npr oz t.i tj tzv sv mag ul angl nem lat gl",
             .before_digits = "št",
             .plain = "ste mi su"},
    Language{.code = "hr",
             .words = "i je u na se da su za od s a o ne kao će bi što iz ili do koji koja koje nije ali te po sa bio "
                      "bila bilo samo još kako nakon već prema uz zatim potom to ovo on ona nisu",
             .ordinals = Ordinals::kPhrase,
             .never_ends = "npr tzv sv mr sc ing ul engl njem lat franc tal rus tj odn gđa gđica akad fra",
             .may_end = "d.o.o d.d st",
             .dates = "g god",
             .plain = "ste mi"},
    Language{.code = "tr",
             .words = "ve bir bu da de için ile olarak daha çok gibi ama en olan ne kadar sonra var o ben sen biz siz "
                      "onlar değil ancak fakat ertesi ilk ikinci bugün diye her mi mı olduğu ise hem ya göre kendi "
                      "böyle şöyle şimdi bunun daha",
             .ordinals = Ordinals::kAny,
             .never_ends = "doç yrd av sn org alb hz örn müh öğr",
             .before_digits = "sf",
             .may_end = "cad sok mah",
             .plain = "al sen mi"},
    Language{.code = "el",
             .words = "και το να η ο του της την τον που με για από στο στη στην στον δεν είναι οι τα θα των τους αυτό "
                      "ένα μια τις κατά σε ότι αλλά ως μας τι ήταν έχει στα στις αν",
             .never_ends = "κ κκ κα κ.κ δρ βλ π.χ δηλ λ.χ καθ αγ",
             .before_digits = "αρ αριθ σελ τηλ άρθρ παρ",
             .dates = "π.Χ μ.Χ"},
};

}  // namespace bert::sentence_rules
