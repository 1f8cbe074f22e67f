#include "data/wikitext/wiki_names.h"

// Source: the namespaces and aliases of every Wikipedia as its API lists them (action=query&meta=siteinfo), collected in
// DBpedia's extraction framework. Names of fewer than four bytes are left out: they are titles elsewhere.
namespace bert {

// clang-format off
const std::string_view kFileNames =
    "aafbeilding|abruozdielis|afaylu|afbeelding|anaajaalaa|apamduööt|archivi|archivo|archivu|arkivo|arquivo|"
    "attēls|barakas|barkas|beeld|beld|belld|berkas|bestand|beureukaih|bhengkek|bielde|bild|bilde|biliþ|billede|"
    "biru' na zayzyuwaw|biru’ na zayzyuwaw|chitro|coadan|dadai|dataja|datei|datnyvei|datoteca|datoteka|delwedd|"
    "dencukaay|dosiero|dosiye|dossia|dosya|dosye|duoro kɔre|ewava|eʼelyaaígíí|faali|fael|faidhle|fail|faili|"
    "fails|failu|fajl|fasciculus|fayil|fayl|faylo|faýl|feil|fexeiro|ficheiro|ficheru|fichier|fichièr|fichiér|"
    "fichye|fiché|figura|figure|fiila|fiileq|file|fisye|fitxategi|fitxer|fiùra|fişier|fișier|fotografija|fájl|"
    "fáìlì|fáílú|gambar|gefre|gepokan|grafika|hình|imachen|image|imagem|imagen|imagine|imago|imahen|imaj|imajen|"
    "imajo|imatge|imaxe|imaxen|imej|immaggine|immagine|immàgini|imàjine|imådje|irudi|iyeltak|kiʻi|kuva|kép|"
    "ladawan|lahabali kɔligu|litratu|lêer|magod|mmàggini|mynd|natisinahikaniwoc|obrázok|ofbeeldienge|ofbyld|"
    "papeles|patas bntasan|payl|paypay|picha|pilt|plaetje|plik|ragiv|resim|restr|restren|rikcha|räsem|sary|"
    "seswantšho|setshwantsho|sineqetj a vecik|skeda|skeudenn|slika|soubor|stampa|su'wret|swret|súbor|ta'ãnga|"
    "talaksan|tangan|tasvir|tiedosto|tiätuvuárkká|tugna|tóng-àn|tập tin|ugasan|usòrò|vaizdas|waihona|wepo|"
    "wobraz|wékpo|wêne|ymele|àwòrán|ákwúkwó orünotu|émâge|íomhá|òbrôzk|īxiptli|şəkil|αρχείο|αρχείον|εικόνα|"
    "εικόναν|акс|артовкс|афаил|билэ|боомг|ви́дъ|видъ|выява|датотека|дт|дѣло|зображення|зураг|зург|изображение|"
    "картинка|ныв|няйф|ойуу|податотека|ресим|рәсем|слика|сурат|суред|сурет|сурт|файл|фотографија|хlум|ӳкерчĕк|"
    "պատկեր|בילד|טעקע|קו|קובץ|תמונה|أسگ|انځور|تصویر|جانیا|دوتنه|سۋرەت|صورة|عڪس|فائل|فاىل|فایل|فيشي|فَیِل|ملف|"
    "پرونده|پەڕگە|ھۆججەت|ܠܦܦܐ|ފައިލު|ފައިލް|ߞߐߕߐ߮|किपा|चित्र|चित्रं|चित्रम्|पटिमा|फाइल|फाईल|फायल|सञ्चिका|চিত্র|"
    "চিত্ৰ|ছবি|ਤਸਵੀਰ|ચિત્ર|ଫାଇଲ|படிமம்|దస్త్రం|ఫైలు|బొమ్మ|ಚಿತ್ರ|ಫೈಲ್|ചി|ചിത്രം|പ്ര|പ്രമാണം|ගොනුව|රූපය|ภาพ|ไฟล์|"
    "ຮູບ|ဖိုင်|ဖုဲင်|ဝှာင်|ၾၢႆႇ|სურათი|ფაილი|ስዕል|ፋይል|រូបភាព|ឯកសារ|ᱨᱮᱫ|ⴰⴼⴰⵢⵍⵓ|ファイル|图像|图片|圖像|圖片|文件|"
    "文檔|档案|檔案|画像|ꯐꯥꯏꯜ|그림|파일|𐍆𐌴𐌹𐌻𐌰|";

const std::string_view kCategoryNames =
    "abdeeling|adà|akotchajülee sünülia|akpaxwé|bangsaan|bekätakthook|bhângsa|buuri buuri|bólkur|catadorie|"
    "catagóir|categoreye|categori|categoria|categorie|category|categorìa|categoría|categorîa|categuria|"
    "categurìa|catigurìa|catègorie|catégorie|dalala|flocc|flokkur|gbuli|gbúgbe|horong|ikiciro|jamii|kaarangay|"
    "kadegorie|kakuniza|kalasi|karolo|kasasiwasiw|kateggoría|kategooria|kategoreja|kategori|kategoria|kategorie|"
    "kategorii|kategoriija|kategorija|kategorio|kategoriya|kategoriye|kategoriýa|kategory|kategorya|kategoryjo|"
    "kategoría|kategorî|kategourii|kateguorėjė|kategòrëjô|kategória|katejori|kateqoriya|katigori|katigoria|"
    "katiguriya|kattejori|katégori|katēggoría|kaurian|kawan|klad|klass|klesi|loma|luokka|lūi-pia̍t|māhele|"
    "neneuhcāyōtl|nkyekyεmu|pinapapilipiliqan|pubu|rang|roinn-seòrsa|ronney|rukuni|rummad|saachjrop|saachjropp|"
    "saachjrupp|sachgrubb|sachjrop|sanat|setensele|shopni|snakun|sokajy|sumut atassuseq|taggayt|thể loại|"
    "tipanictawin|tispir|tumbung|turkum|törkem|tʼááłáhági átʼéego|umuce|vibhag|wàll|zyuwaw na|ébéonọr|ñemohenda|"
    "òtù|κατηγορία|κατηγορίαν|акатегориа|ангилал|аңгылал|гурӯҳ|кадегар|кат|категори|категорие|категорий|"
    "категориэ|категория|категорија|категорія|катеґорія|катигорїꙗ|катигорї|катэгорыя|кт|оагӏат|санат|тоба|"
    "төркем|төркөм|янз|әәшл|կատեգորիա|ստորոգութիւն|קאַטעגאָריע|קאטעגאריע|קט|קטגוריה|بؤلمه|تصنيف|تۈر|جرگه|دأسە|"
    "رج|رده|زمرو|زمرہ|زٲژ|سانات|ونکی|وېشنيزه|پۆل|گٹھ|ܣܕܪܐ|ޤިސްމު|ߦߌߟߡߊ|पुचः|वर्ग|वर्गः|विभाग|श्र|श्रेणी|থাক|"
    "বিষয়শ্রেণী|শ্রেণী|শ্ৰেণী|ਸ਼੍ਰੇਣੀ|શ્રે|શ્રેણી|ବିଭାଗ|ଶ୍ରେଣୀ|பகுப்பு|వర్గం|ವರ್ಗ|ವರ್ಗೊ|വി|വിഭാഗം|വർഗ്ഗം|"
    "ප්‍රවර්ගය|หมวดหมู่|ໝວດ|ကဏ္ဍ|ပိူင်ထၢၼ်ႈ|კატეგორია|መደብ|ចំណាត់ក្រុម|ចំណាត់ថ្នាក់ក្រុម|ចំនាត់ថ្នាក់ក្រុម|ᱛᱷᱚᱠ|"
    "ẹ̀ka|ⴰⵙⵎⵉⵍ|カテゴリ|分类|分類|ꯃꯆꯥꯈꯥꯏꯕ|분류|𐌷𐌰𐌽𐍃𐌰|";

const std::string_view kMediaNames =
    "alat|amóhùnmáwòrán|ayaakuwapülee|aŭdvidaĵo|ciɛl|datoteka|duoro bimbu zie|filpeikar|itangazamakuru|kanaca|"
    "mamind|meadhan|meanyn|meddia|medeja|medhia|media|medie|medii|medij|medija|mediji|medio|medios|mediu|medium|"
    "mediya|medja|medya|medėjė|meedia|meedije|meedijum|meyti|meán|midia|midiya|midja|midya|miidiya|mitiya|miðil|"
    "miðill|multimedia|multimédia|myiti|mèdia|mèḍia|médhia|média|médiá|médja|mûi-thé|mēdiatl|nká|nünamakanäd|"
    "ortam|pego|phương tiện|pāpaho|rakitra|saadhan|taspa|tipatcimoctakewin|velsku|wasilah|xibaarukaay|"
    "yɛwliɖonuji|áméwn igò|μέσο|μέσον|амедиа|аһар|меди|медиа|медиум|медия|медиј|медија|медйа|медіа|миэдьийэ|"
    "мультымедыя|срѣдьства|таспа|մեդիա|מדיה|מעדיע|تاسپا|ذريعات|رسانه|رسانه‌ای|رسنۍ|زریعہ|مديا|مدیا|مه‌دیا|ميديا|"
    "میدیا|میڈیا|وسائط|وسیط|ڤارئسگأر|ۋاسىتە|ܡܝܕܝܐ|މީޑިއާ|ߟߊߛߋߢߊߥߙߍ|माध्यम|माध्यमम्|मिडिया|मीडिया|मेडिया|মাধ্যম|"
    "মিডিয়া|ਮੀਡੀਆ|દ્રશ્ય-શ્રાવ્ય (મિડિયા)|ମାଧ୍ୟମ|ஊடகம்|మీడియా|ಮಾದ್ಯಮೊ|ಮೀಡಿಯ|മീഡിയ|මාධ්‍යය|สื่อ|ສື່|ສື່ອ|မီဒီယာ|"
    "မဳဒဳယာ|သိုဝ်ႇၶၢဝ်ႇ|მედია|ሜድያ|ፋይል|មីឌា|មេឌា|ᱢᱤᱰᱤᱭᱟ|ⵎⵉⴷⵢⴰ|メディア|媒体|媒体文件|媒体档案|媒體|媒體文件|"
    "媒體檔案|ꯃꯦꯗꯤꯌꯥ|미디어|";

const std::string_view kLanguageCodes =
    "aa|ab|ace|ady|af|ak|als|alt|am|ami|an|ang|anp|ar|arc|ary|arz|as|ast|atj|av|avk|awa|ay|az|azb|ba|ban|bar|"
    "bat-smg|bbc|bcl|be|be-tarask|be-x-old|bew|bg|bh|bi|bjn|blk|bm|bn|bo|bpy|br|bs|bug|bxr|ca|cbk-zam|cdo|ce|"
    "ceb|ch|cho|chr|chy|ckb|co|cr|crh|cs|csb|cu|cv|cy|cz|da|dag|de|dga|din|diq|dk|dsb|dtp|dty|dv|dz|ee|el|eml|"
    "en|eo|epo|es|et|eu|ext|fa|fat|ff|fi|fiu-vro|fj|fo|fon|fr|frp|frr|fur|fy|ga|gag|gan|gcr|gd|gl|glk|gn|gom|"
    "gor|got|gpe|gsw|gu|guc|gur|guw|gv|ha|hak|haw|he|hi|hif|ho|hr|hsb|ht|hu|hy|hyw|hz|ia|id|ie|ig|igl|ii|ik|ilo|"
    "inh|io|is|it|iu|ja|jam|jbo|jp|jv|ka|kaa|kab|kbd|kbp|kcg|kg|ki|kj|kk|kl|km|kn|ko|koi|kr|krc|ks|ksh|ku|kus|"
    "kv|kw|ky|la|lad|lb|lbe|lez|lfn|lg|li|lij|lld|lmo|ln|lo|lrc|lt|ltg|lv|lzh|mad|mai|map-bms|mdf|mg|mh|mhr|mi|"
    "min|mk|ml|mn|mni|mnw|mo|mr|mrj|ms|mt|mus|mwl|my|myv|mzn|na|nah|nan|nap|nb|nds|nds-nl|ne|new|ng|nia|nl|nn|"
    "no|nov|nqo|nrm|nso|nv|ny|oc|olo|om|or|os|pa|pag|pam|pap|pcd|pcm|pdc|pfl|pi|pih|pl|pms|pnb|pnt|ps|pt|pwn|qu|"
    "rm|rmy|rn|ro|roa-rup|roa-tara|ru|rue|rup|rw|sa|sah|sat|sc|scn|sco|sd|se|sg|sgs|sh|shi|shn|si|simple|sk|skr|"
    "sl|sm|smn|sn|so|sq|sr|srn|ss|st|stq|su|sv|sw|szl|szy|ta|tay|tcy|te|tet|tg|th|ti|tk|tl|tly|tn|to|tokipona|"
    "tpi|tr|trv|ts|tt|tum|tw|ty|tyv|udm|ug|uk|ur|uz|ve|vec|vep|vi|vls|vo|vro|wa|war|wo|wuu|xal|xh|xmf|yi|yo|yue|"
    "za|zea|zgh|zh|zh-classical|zh-min-nan|zh-yue|zu|";

// Source: the magic word "redirect" in MediaWiki's MessagesDe.php and so on.
const std::string_view kRedirectWords =
    "redirect|weiterleitung|redirection|redirección|redireccion|redirecionamento|rinvia|rinvio|rimando|doorverwijzing|"
    "omdirigering|ohjaus|uudelleenohjaus|patrz|przekieruj|tam|přesměruj|presmeruj|átirányítás|yönlendirme|yönlendir|"
    "redirecteaza|preusmjeri|preusmeri|preusmeritev|birzuzendu|suuna|alih|đổi|tilvísun|adkas|aanstuur|ridrejto|"
    "athsheoladh|перенаправление|перенапр|перенаправлення|виж|пренасочване|преусмери|перанакіраванне|айдау|ανακατευθυνση|"
    "վերահղում|გადამისამართება|הפניה|تحويل|تغییر مسیر|تغییرمسیر|رجوع مکرر|अनुप्रेषित|पुनर्प्रेषित|पुनर्निर्देशन|পুনর্নির্দেশ|"
    "வழிமாற்று|దారిమార్పు|തിരിച്ചുവിടുക|เปลี่ยนทาง|重定向|重新導向|転送|リダイレクト|넘겨주기|";
// clang-format on

}  // namespace bert
