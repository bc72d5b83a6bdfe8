/* The pre-tokenizers that GGUF files name in tokenizer.ggml.pre.  The patterns are those of the
 * models' own files. */
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

static const struct vocab_pre known[] = {
    {.name = {"gpt-2", "phi-2", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de", "gigachat",
              "a.x-4.0", "mellum", "trillion", "jais", "modern-bert", "exaone4", "granite-docling"},
     .pattern = {pretok_gpt2}},
    {.name = {"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0",
              "lfm2", "jina-v5-nano"},
     .ignore_merges = 1,
     .add_bos = 1,
     .pattern = {CL100K("\\p{N}{1,3}")}},
    {.name = {"smaug-bpe", "dbrx", "chatglm-bpe", "glm4"}, .pattern = {CL100K("\\p{N}{1,3}")}},
    {.name = {"qwen2", "deepseek-r1-qwen"}, .nfc = 1, .pattern = {CL100K("\\p{N}")}},
    {.name = {"smollm", "starcoder", "refact", "codeshell", "exaone", "minerva-7b", "mellum2"},
     .pattern = {"\\p{N}", pretok_gpt2}},
    {.name = {"command-r"}, .nfc = 1, .pattern = {"\\p{N}", pretok_gpt2}},
    {.name = {"olmo", "mpt"}, .nfc = 1, .pattern = {pretok_gpt2}},
    {.name = {"gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"},
     .by_ascii_case = 1,
     .pattern = {BY_CASE(CONTRACTIONS "?", "\\p{N}{1,3}")}},
    {.name = {"tekken"},
     .ignore_merges = 1,
     .add_bos = 1,
     .by_ascii_case = 1,
     .pattern = {BY_CASE("", "\\p{N}")}},
    {.name = {"deepseek-coder"},
     .pattern = {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", HAN_TO_HANGUL, "\\p{N}"}},
    {.name = {"deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"},
     .pattern = {"\\p{N}{1,3}",
                 "[\xE4\xB8\x80-\xE9\xBE\xA5\xE3\x81\x80-\xE3\x82\x9F\xE3\x82\xA0-\xE3\x83\xBF]+",
                 "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"
                 "|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
                 "| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
};

const struct vocab_pre *vocab_pre_find(const char *name, size_t n)
{
    for (size_t i = 0; i < DS_LEN(known); i++)
        for (int k = 0; k < VOCAB_NAMES && known[i].name[k]; k++)
            if (strlen(known[i].name[k]) == n && memcmp(known[i].name[k], name, n) == 0)
                return &known[i];
    return NULL;
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
    for (int alike = 2; alike >= 0;
         alike--) /* other programs apply no NFC for any name, so it matters least */
        for (size_t i = 0; i < DS_LEN(known); i++)
            if (has_patterns(&t->bpe->pre, known[i].pattern) &&
                (alike < 1 || known[i].ignore_merges == t->bpe->ignore_merges) &&
                (alike < 2 || known[i].nfc == norm_has_nfc(&t->norm)))
                return &known[i];
    return NULL;
}

void vocab_pre_write(struct str *out, const struct vocab_pre *p)
{
    int regex = 0;
    str_add(out, "{\"type\":\"Sequence\",\"pretokenizers\":[");
    for (int i = 0; i < VOCAB_PATTERNS && p->pattern[i]; i++) {
        regex = p->pattern[i] == pretok_gpt2;
        if (regex)
            break;
        str_add(out, "{\"type\":\"Split\",\"pattern\":{\"Regex\":");
        str_add_json(out, p->pattern[i], strlen(p->pattern[i]));
        str_add(out, "},\"behavior\":\"Isolated\",\"invert\":false},");
    }
    str_addf(out,
             "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,"
             "\"use_regex\":%s}]}",
             regex ? "true" : "false");
}
