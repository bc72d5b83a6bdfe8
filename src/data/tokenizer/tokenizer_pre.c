/* The pre-tokenizers that GGUF files name in tokenizer.ggml.pre: the patterns of the models' own
 * files, and llama.cpp's where they cut otherwise. */
#include "base/compiler.h"
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/pieces.h"

#include <string.h>

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SIGNS_AND_SPACES(ends)                                                                     \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n" ends "]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define CL100K(numbers) CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" numbers SIGNS_AND_SPACES("")
/* Words end before a capital letter. */
#define UPPER "\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}"
#define LOWER "\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}"
#define BY_CASE(suffix, numbers)                                                                   \
    "[^\\r\\n\\p{L}\\p{N}]?[" UPPER "]*[" LOWER "]+" suffix "|[^\\r\\n\\p{L}\\p{N}]?[" UPPER       \
    "]+[" LOWER "]*" suffix "|" numbers SIGNS_AND_SPACES("/")
#define HAN_TO_HANGUL                                                                              \
    "[\xE4\xB8\x80-\xE9\xBE\xA5\xE0\xA0\x80-\xE4\xB8\x80\xEA\xB0\x80-\xED\x9F\xBF]+"

/* Letters with case, as DeepSeek LLM lists them. */
#define CASED                                                                                      \
    "A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}\\x{1BC}-\\x{1BF}"                 \
    "\\x{1C4}-\\x{293}\\x{295}-\\x{2AF}\\x{370}-\\x{373}\\x{376}\\x{377}"                          \
    "\\x{37B}-\\x{37D}\\x{37F}\\x{386}\\x{388}-\\x{38A}\\x{38C}\\x{38E}-\\x{3A1}"                  \
    "\\x{3A3}-\\x{3F5}\\x{3F7}-\\x{481}\\x{48A}-\\x{52F}\\x{531}-\\x{556}"                         \
    "\\x{10A0}-\\x{10C5}\\x{13A0}-\\x{13F5}\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}"                 \
    "\\x{1CBD}-\\x{1CBF}\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}\\x{1D79}-\\x{1D9A}"                 \
    "\\x{1E00}-\\x{1F15}\\x{1F18}-\\x{1F1D}\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}"                 \
    "\\x{1F50}-\\x{1F57}\\x{1F59}\\x{1F5B}\\x{1F5D}\\x{1F5F}-\\x{1F7D}"                            \
    "\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}\\x{1FBE}\\x{1FC2}-\\x{1FC4}"                           \
    "\\x{1FC6}-\\x{1FCC}\\x{1FD0}-\\x{1FD3}\\x{1FD6}-\\x{1FDB}\\x{1FE0}-\\x{1FEC}"                 \
    "\\x{1FF2}-\\x{1FF4}\\x{1FF6}-\\x{1FFC}\\x{2102}\\x{2107}\\x{210A}-\\x{2113}"                  \
    "\\x{2115}\\x{2119}-\\x{211D}\\x{2124}\\x{2126}\\x{2128}\\x{212A}-\\x{212D}"                   \
    "\\x{212F}-\\x{2134}\\x{2139}\\x{213C}-\\x{213F}\\x{2145}-\\x{2149}\\x{214E}"                  \
    "\\x{2183}\\x{2184}\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}\\x{2CEB}-\\x{2CEE}"                  \
    "\\x{2CF2}\\x{2CF3}\\x{A640}-\\x{A66D}\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}"                  \
    "\\x{A771}-\\x{A787}\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}\\x{FB00}-\\x{FB06}"                 \
    "\\x{FB13}-\\x{FB17}\\x{FF21}-\\x{FF3A}\\x{FF41}-\\x{FF5A}"                                    \
    "\\x{10400}-\\x{1044F}\\x{104B0}-\\x{104D3}\\x{104D8}-\\x{104FB}"                              \
    "\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}\\x{118A0}-\\x{118DF}"                              \
    "\\x{1E900}-\\x{1E943}"
#define CJK_SIGNS                                                                                  \
    "\\x{FF01}\\x{2026}\\x{201C}\\x{201D}\\x{2018}\\x{2019}\\x{2014}\\x{FF1A}\\x{FF1B}\\x{FF0C}"
#define CHINESE_OR_KANA "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+"
#define HANGUL_OR_CJK                                                                              \
    "[\\x{AC00}-\\x{D7A3}\\x{3131}-\\x{318E}]+|[" CJK_SIGNS                                        \
    "\\x{3001}-\\x{303F}\\x{FE30}-\\x{FE4F}]+|[\\x{3105}-\\x{312F}]+|" CHINESE_OR_KANA
#define ASCII_SIGN_AND_LETTERS "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"
#define MARKED_WORDS "|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
/* llama.cpp's form of the patterns by case: it has case in ASCII only. */
#define NOT_LOWER "((?=[\\p{L}])([^a-z]))"
#define NOT_UPPER "((?=[\\p{L}])([^A-Z]))"
#define BY_ASCII_CASE(suffix, numbers)                                                             \
    "[^\\r\\n\\p{L}\\p{N}]?" NOT_LOWER "*" NOT_UPPER "+" suffix                                    \
    "|[^\\r\\n\\p{L}\\p{N}]?" NOT_LOWER "+" NOT_UPPER "*" suffix "|" numbers SIGNS_AND_SPACES("/")
/* The characters that llama.cpp takes for Han. */
#define HAN                                                                                        \
    "\\x{4E00}-\\x{9FFF}\\x{3400}-\\x{4DBF}\\x{20000}-\\x{2A6DF}\\x{2A700}-\\x{2B73F}\\x{2B740}-"  \
    "\\x{2B81F}"                                                                                   \
    "\\x{2B820}-\\x{2CEAF}\\x{2CEB0}-\\x{2EBEF}\\x{F900}-\\x{FAFF}\\x{2F800}-\\x{2FA1F}"
#define SENTENCE_SIGNS ".,!?\\x{2026}\\x{3002}\\x{FF0C}\\x{3001}\\x{964}\\x{6D4}\\x{60C}"

static const struct vocab_pre known[] = {
    {.name = {"gpt-2", "phi-2", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de", "gigachat",
              "a.x-4.0", "mellum", "trillion", "jais", "modern-bert", "exaone4", "granite-docling"},
     .pattern = {pretok_gpt2}},
    {.name = {"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0",
              "lfm2", "jina-v5-nano"},
     .ignore_merges = 1,
     .add_bos = 1,
     .pattern = {CL100K("\\p{N}{1,3}")}},
    {.name = {"smaug-bpe", "dbrx", "chatglm-bpe"}, .pattern = {CL100K("\\p{N}{1,3}")}},
    {.name = {"glm4", "glm5"}, .ignore_merges = 1, .pattern = {CL100K("\\p{N}{1,3}")}},
    {.name = {"qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez", "stablelm2", "hunyuan",
              "solar-open", "grok-2"},
     .nfc = 1,
     .pattern = {CL100K("\\p{N}")}},
    {.name = {"qwen35"},
     .nfc = 1,
     .pattern = {CONTRACTIONS
                 "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}"
                 "| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
    {.name = {"smollm", "starcoder", "refact", "codeshell", "exaone", "minerva-7b", "mellum2"},
     .pattern = {"\\p{N}", pretok_gpt2}},
    {.name = {"command-r"}, .nfc = 1, .pattern = {"\\p{N}", pretok_gpt2}},
    {.name = {"olmo", "mpt"}, .nfc = 1, .pattern = {pretok_gpt2}},
    {.name = {"gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"},
     .pattern = {BY_CASE(CONTRACTIONS "?", "\\p{N}{1,3}")},
     .llama = {BY_ASCII_CASE(CONTRACTIONS "?", "\\p{N}{1,3}")}},
    {.name = {"tekken"},
     .ignore_merges = 1,
     .add_bos = 1,
     .pattern = {BY_CASE("", "\\p{N}")},
     .llama = {BY_ASCII_CASE("", "\\p{N}")}},
    {.name = {"deepseek-coder"},
     .pattern = {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", HAN_TO_HANGUL, "\\p{N}"}},
    {.name = {"deepseek-llm"},
     .pattern =
         {"[\\r\\n]", "\\s?[" CASED "]+",
          "\\s?[!-/"
          ":-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}\\x{3000}-\\x{3002}]+",
          "\\s+$", HAN_TO_HANGUL, "\\p{N}+"}},
    {.name = {"deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"},
     .pattern = {"\\p{N}{1,3}",
                 "[\xE4\xB8\x80-\xE9\xBE\xA5\xE3\x81\x80-\xE3\x82\x9F\xE3\x82\xA0-\xE3\x83\xBF]+",
                 ASCII_SIGN_AND_LETTERS MARKED_WORDS
                 "| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
    {.name = {"spark2_5"},
     .pattern = {"\\p{N}{1,3}", CHINESE_OR_KANA,
                 ASCII_SIGN_AND_LETTERS MARKED_WORDS "| ?[\\p{P}\\p{S}]+|[\\r\\n]|\\s+(?!\\S)|\\s+",
                 "\\p{N}"}},
    {.name = {"youtu"},
     .ignore_merges = 1,
     .pattern = {HANGUL_OR_CJK, BY_CASE(CONTRACTIONS "?", "\\p{N}")},
     .llama = {HANGUL_OR_CJK, "[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+" CONTRACTIONS
                              "?|\\p{N}" SIGNS_AND_SPACES("/")}},
    {.name = {"falcon"}, .pattern = {"[\\p{P}\\$\\+<=>\\^~\\|`]+", pretok_gpt2, "[0-9][0-9][0-9]"}},
    {.name = {"bloom", "poro-chat", "gpt3-finnish"},
     .pattern = {" ?[^(\\s|[" SENTENCE_SIGNS "])]+"},
     .llama = {" ?[^(\\s|" SENTENCE_SIGNS ")]+"}},
    {.name = {"viking"}, .pattern = {" ?[^(\\s|" SENTENCE_SIGNS ")]+", "\\p{N}"}},
    {.name = {"jais-2"},
     .pattern = {CONTRACTIONS
                 "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}"
                 "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s{512}(?!\\S)"
                 "|\\s{256}(?!\\S)|\\s{128}(?!\\S)|\\s{64}(?!\\S)|\\s{32}(?!\\S)"
                 "|\\s{16}(?!\\S)|\\s{8}(?!\\S)|\\s{4}(?!\\S)|\\s{1,2}(?!\\S)|\\s{1}"}},
    {.name = {"minicpm5"}, .ignore_merges = 1, .pattern = {"\\p{N}{1,3}", CL100K("\\p{N}+")}},
    {.name = {"bailingmoe", "bailingmoe2", "llada-moe"},
     .pattern = {"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}"
                 "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"}},
    {.name = {"seed-coder"},
     .pattern = {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}"
                              "| ?[^\\s\\p{L}\\p{N}\\r\\n]+|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
    {.name = {"ufakzeka"},
     .pattern = {"[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" SIGNS_AND_SPACES("")}},
    {.name = {"laguna"}, .pattern = {"[^\\n]+|[\\n]+", CL100K("\\p{N}")}},
    {.name = {"exaone-moe"},
     .pattern = {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}"
                              "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"}},
    {.name = {"superbpe"}, .pattern = {"\\p{N}+", "(?=([0-9]{3})+(?![0-9]))"}},
    {.name = {"kimi-k2"},
     .pattern = {"[" HAN "]+|[^\\r\\n\\p{L}\\p{N}]?(?:(?![" HAN "])\\p{L})+" CONTRACTIONS
                 "?|\\p{N}{1,3}" SIGNS_AND_SPACES("")}},
};

const struct vocab_pre *vocab_pre_find(const char *name, size_t n)
{
    for (size_t i = 0; i < DS_LEN(known); i++)
        for (int k = 0; k < VOCAB_NAMES && known[i].name[k]; k++)
            if (strlen(known[i].name[k]) == n && memcmp(known[i].name[k], name, n) == 0)
                return &known[i];
    return NULL;
}

/* What llama.cpp splits by. */
static const char *const *patterns_of(const struct vocab_pre *p)
{
    return p->llama[0] ? p->llama : p->pattern;
}

static int has_patterns(const struct pretok *have, const char *const *pattern)
{
    int i = 0;
    for (; i < have->n && i < VOCAB_PATTERNS && pattern[i]; i++)
        if (have->stage[i].drop_gaps || have->stage[i].drop_matches || have->stage[i].join ||
            !pretok_same(have->stage[i].pattern, pattern[i]))
            return 0;
    return i == have->n && (i == VOCAB_PATTERNS || !pattern[i]);
}

const struct vocab_pre *vocab_pre_of(const struct tokenizer *t)
{
    if (!t->bpe || t->bpe->chars)
        return NULL;
    /* llama.cpp applies no NFC for any name, so it matters least */
    for (int alike = 2; alike >= 0; alike--)
        for (size_t i = 0; i < DS_LEN(known); i++)
            if ((has_patterns(&t->bpe->pre, known[i].pattern) ||
                 has_patterns(&t->bpe->pre, patterns_of(&known[i]))) &&
                (alike < 1 || known[i].ignore_merges == t->bpe->ignore_merges) &&
                (alike < 2 || known[i].nfc == norm_has_nfc(&t->norm)))
                return &known[i];
    return NULL;
}

int vocab_pre_splits_alike(const struct vocab_pre *p, const struct tokenizer *t)
{
    return has_patterns(&t->bpe->pre, patterns_of(p));
}

void vocab_pre_write(struct str *out, const struct vocab_pre *p)
{
    const char *const *pattern = patterns_of(p);
    int regex = 0;
    str_add(out, "{\"type\":\"Sequence\",\"pretokenizers\":[");
    for (int i = 0; i < VOCAB_PATTERNS && pattern[i]; i++) {
        regex = pattern[i] == pretok_gpt2 && (i + 1 == VOCAB_PATTERNS || !pattern[i + 1]);
        if (regex)
            break;
        str_add(out, "{\"type\":\"Split\",\"pattern\":{\"Regex\":");
        str_add_json(out, pattern[i], strlen(pattern[i]));
        str_add(out, "},\"behavior\":\"Isolated\",\"invert\":false},");
    }
    str_addf(out,
             "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,"
             "\"use_regex\":%s}]}",
             regex ? "true" : "false");
}
