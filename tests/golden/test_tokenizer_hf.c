/* The same ids as others: Hugging Face `tokenizers` where it is installed, and published vectors.
 */
#include "t.h"

#include <sys/wait.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/str.h"
#include "base/utf8.h"
#include "data/tokenizer/bpe.h"
#include "data/corpus.h"
#include "data/tokenizer.h"

static struct err err;

static const char gpt2_pre[] =
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true}";
/* A Split by the family's pattern, then ByteLevel, as the families' own files have it. */
#define SPLIT_PRE(pattern)                                                                         \
    "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":"        \
    "\"" pattern "\"},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\",\"add_"  \
    "prefix_space\":false,"                                                                        \
    "\"trim_offsets\":true,\"use_regex\":false}]}"
static const char llama3_pre[] = SPLIT_PRE(
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}|"
    " ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+");
static const char qwen2_pre[] = SPLIT_PRE(
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}|"
    " ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+");

/* --- texts -------------------------------------------------------------------------------------
 */

static const char *const fixed_texts[] = {
    "",
    " ",
    "  ",
    "\n",
    "\r\n",
    "\t \n  x",
    "Hello, world!",
    "I'm he'll we've DON'T don't o'clock's",
    "a  b   c    ",
    "1 12 123 1234 12345 3.14159 1,000,000",
    "caf\xC3\xA9 na\xC3\xAFve \xC3\x85ngstr\xC3\xB6m e\xCC\x81",
    "\xD0\x9F\xD1\x80\xD0\xB8\xD0\xB2\xD0\xB5\xD1\x82 \xD0\xBC\xD0\xB8\xD1\x80",
    "\xE4\xBD\xA0\xE5\xA5\xBD\xEF\xBC\x8C\xE4\xB8\x96\xE7\x95\x8C",
    "\xF0\x9F\x98\x80\xF0\x9F\x91\xA8\xE2\x80\x8D\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7",
    "for (i = 0; i < n; i++) { x[i] *= 2; }\n\n\n",
    "\xC2\xA0nbsp\xE2\x80\x83"
    "emspace\xC2\x85nel\xE1\xA0\x8Emvs",
    "'\xC5\xBF 's 'S 'LL",
    "\xEF\xBB\xBF"
    "bom",
    "a\xCC\x8A\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB",
    "\xE2\x84\xA6 \xEF\xAC\x81 \xC2\xB2 \xC2\xBD \xE2\x85\xA7",
    "  Qx  you Qx said: QxQxy Qx\nthe Qxy  \n Qz Qzz\xC2\xA0Qx",
    "x\xE2\x80\xA8y\xE2\x80\xA9z",
    "==========================================================================================",
};

static void add_rune(struct str *s, uint32_t rune)
{
    char utf8[4];
    str_add_bytes(s, utf8, (size_t)utf8_encode(utf8, rune));
}

/* Letters of many scripts, digits, marks, spaces and signs in unlikely orders. */
static void random_text(struct str *s, struct rng *r)
{
    static const uint32_t from[] = {0x20,  0x61,  0x30,   0x20,   0xA0,    0x0A,   0x300, 0x400,
                                    0x5D0, 0x905, 0x4E00, 0xAC00, 0x1F600, 0x2000, 0x41,  0x2190};
    static const uint32_t many[] = {95, 26, 10,   1,    96, 4,  64, 96,
                                    26, 48, 4000, 3000, 60, 12, 26, 100};
    uint32_t n = rng_below(r, 120);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t block = rng_below(r, 16), repeat = 1 + rng_below(r, 4) * (rng_below(r, 4) == 0);
        for (uint32_t k = 0; k < repeat; k++)
            add_rune(s, from[block] + rng_below(r, many[block]));
    }
}

static void add_case(struct str *out, const struct tokenizer *t, const char *s, size_t n)
{
    struct ids ids = {0};
    t_ok(tokenizer_encode(t, s, n, 0, &ids, &err), &err);
    str_add(out, "{\"text\":");
    str_add_json(out, s, n);
    str_add(out, ",\"ids\":[");
    for (size_t i = 0; i < ids.n; i++)
        str_addf(out, "%s%d", i ? "," : "", ids.v[i]);
    str_add(out, "]}\n");
    ids_release(&ids);
}

/* Writes the cases and lets the package judge them. */
static void compare(const struct tokenizer *t, const char *dir, const char *json)
{
    char path[1024], cmd[4096];
    const char *python = getenv("PYTHON");
    struct str cases = {0};
    struct rng r;
    rng_init(&r, 17, RNG_TEST, 0, 0);
    for (size_t i = 0; i < sizeof fixed_texts / sizeof *fixed_texts; i++)
        add_case(&cases, t, fixed_texts[i], strlen(fixed_texts[i]));
    for (int i = 0; i < 400; i++) {
        struct str s = {0};
        random_text(&s, &r);
        add_case(&cases, t, str_text(&s), s.len);
        str_release(&s);
    }
    snprintf(path, sizeof path, "%s/cases.jsonl", dir);
    t_ok(fs_write_file(path, cases.p, cases.len, &err), &err);
    str_release(&cases);
    snprintf(cmd, sizeof cmd, "'%s' tests/golden/tokenizer_hf.py '%s' '%s'",
             python ? python : "python3", json, path);
    int status = system(cmd);
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if (code == 77 || code == 127 || code == 126)
        t_skip("the Python package tokenizers is not installed: ids are not compared with it");
    t_eq(code, 0);
}

T(our_tokenizer_encodes_alike_in_hugging_face)
{
    struct corpus *c = NULL;
    struct tokenizer *t = NULL, *bytes = NULL;
    struct corpus_options o = {.path = "synth", .max_docs = 100, .seed = 1};
    const char *dir = t_tmpdir(), *text[140];
    size_t len[140], n = 0;
    char path[512];
    t_ok(corpus_open(&c, &o, &err), &err);
    for (; n < 100; n++) {
        text[n] = corpus_at(c, n).text;
        len[n] = corpus_at(c, n).len;
    }
    for (size_t i = 0; i < sizeof fixed_texts / sizeof *fixed_texts; i++, n++) {
        text[n] = fixed_texts[i];
        len[n] = strlen(text[n]);
    }
    t_ok(tokenizer_train_bpe(&t, text, len, n, 1000, &err), &err);
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    t_ok(tokenizer_save(t, path, &err), &err);
    compare(t, dir, path);
    t_ok(tokenizer_new_bytes(&bytes, &err), &err);
    t_ok(tokenizer_save(bytes, path, &err), &err);
    compare(bytes, dir, path);
    tokenizer_free(t);
    tokenizer_free(bytes);
    corpus_close(c);
}

/* The same vocabulary under other pre-tokenizers and with added tokens in ordinary text. */
T(other_pre_tokenizers_encode_alike)
{
    static const char old_pre[] =
        "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
        "\"trim_offsets\": true, \"use_regex\": true}";
    static const char *const pre[] = {
        "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"trim_offsets\": true, "
        "\"add_prefix_space\": true}",
        "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"trim_offsets\": true, "
        "\"add_prefix_space\": true, \"use_regex\": false}",
        "\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Digits\", "
        "\"individual_digits\": true}, "
        "{\"type\": \"ByteLevel\", \"trim_offsets\": true, \"add_prefix_space\": false}]}",
        "\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", "
        "\"pattern\": {\"String\": \". \"}, "
        "\"behavior\": \"Isolated\", \"invert\": false}, {\"type\": \"ByteLevel\", "
        "\"trim_offsets\": true, \"add_prefix_space\": false}]}",
        "\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", "
        "\"pattern\": {\"Regex\": \"\\\\w+\"}, "
        "\"behavior\": \"Removed\", \"invert\": true}, {\"type\": \"ByteLevel\", \"trim_offsets\": "
        "true, \"add_prefix_space\": false}]}",
        "\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", "
        "\"pattern\": {\"Regex\": \"\\\\b|[^\\\\w ]\"}, "
        "\"behavior\": \"Isolated\", \"invert\": false}, {\"type\": \"ByteLevel\", "
        "\"trim_offsets\": true, \"add_prefix_space\": false}]}",
    };
    static const char added[] = ", {\"id\": 400, \"content\": \"Qx\", \"single_word\": false, "
                                "\"lstrip\": true, \"rstrip\": false, "
                                "\"normalized\": false, \"special\": false}, {\"id\": 401, "
                                "\"content\": \"Qxy\", \"single_word\": false, "
                                "\"lstrip\": false, \"rstrip\": true, \"normalized\": false, "
                                "\"special\": false}, {\"id\": 402, "
                                "\"content\": \"Qz\", \"single_word\": false, \"lstrip\": false, "
                                "\"rstrip\": false, \"normalized\": false, "
                                "\"special\": false}\n  ],\n  \"normalizer\"";
    struct corpus *c = NULL;
    struct tokenizer *t = NULL;
    struct corpus_options o = {.path = "synth", .max_docs = 3, .seed = 2};
    const char *text[3], *dir = t_tmpdir();
    char path[512];
    t_ok(corpus_open(&c, &o, &err), &err);
    size_t len[3];
    for (size_t i = 0; i < 3; i++) {
        text[i] = corpus_at(c, i).text;
        len[i] = corpus_at(c, i).len;
    }
    t_ok(tokenizer_train_bpe(&t, text, len, 3, 400, &err), &err);
    t_eq(tokenizer_vocab(t), 400);
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    for (size_t i = 0; i < sizeof pre / sizeof *pre; i++) {
        struct str saved = {0}, changed = {0};
        struct tokenizer *other = NULL;
        t_ok(tokenizer_save(t, path, &err), &err);
        t_ok(fs_read_file(&saved, path, 1 << 20, &err), &err);
        char *at = strstr(saved.p, old_pre), *list = strstr(saved.p, "\n  ],\n  \"normalizer\"");
        ck_assert(at && list && list < at);
        str_add_bytes(&changed, saved.p, (size_t)(list - saved.p));
        str_add(&changed, added);
        list += strlen("\n  ],\n  \"normalizer\"");
        str_add_bytes(&changed, list, (size_t)(at - list));
        str_add(&changed, pre[i]);
        str_add(&changed, at + strlen(old_pre));
        t_ok(fs_write_file(path, changed.p, changed.len, &err), &err);
        t_ok(tokenizer_load(&other, path, &err), &err);
        compare(other, dir, path);
        tokenizer_free(other);
        str_release(&saved);
        str_release(&changed);
    }
    tokenizer_free(t);
    corpus_close(c);
}

/* --- files of others
 * ------------------------------------------------------------------------------ */

/* A tokenizer.json from the two files that came before it. */
static void combine(struct str *out, const char *vocab, const char *merges, const char *pre,
                    const char *more)
{
    struct str v = {0}, m = {0};
    t_ok(fs_read_file(&v, vocab, 64 << 20, &err), &err);
    t_ok(fs_read_file(&m, merges, 64 << 20, &err), &err);
    str_addf(out, "{\"version\":\"1.0\",\"added_tokens\":[],\"pre_tokenizer\":%s,%s\"vocab\":", pre,
             more);
    str_add_bytes(out, v.p, v.len);
    str_add(out, ",\"merges\":[");
    int first = 1;
    for (char *line = m.p, *end; *line; line = end + (*end != '\0')) {
        end = line + strcspn(line, "\n");
        if (end == line || (first && strncmp(line, "#version", 8) == 0))
            continue;
        str_add(out, first ? "" : ",");
        str_add_json(out, line, (size_t)(end - line));
        first = 0;
    }
    str_add(out, "]}}");
    str_release(&v);
    str_release(&m);
}

static void check_family(const char *folder, const char *vocab, const char *merges, const char *pre,
                         const char *more)
{
    char a[1024], b[256], path[512];
    const char *dir = t_tmpdir();
    struct str json = {0};
    struct tokenizer *t = NULL;
    snprintf(b, sizeof b, "tokenizers/%s/%s", folder, vocab);
    snprintf(a, sizeof a, "%s", t_shared(b));
    snprintf(b, sizeof b, "tokenizers/%s/%s", folder, merges);
    combine(&json, a, t_shared(b), pre, more);
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    t_ok(fs_write_file(path, json.p, json.len, &err), &err);
    str_release(&json);
    t_ok(tokenizer_load(&t, path, &err), &err);
    compare(t, dir, path);
    tokenizer_free(t);
}

T(gpt2_equals_hugging_face)
{
    check_family("gpt2", "vocab.json", "merges.txt", gpt2_pre, "\"model\":{\"type\":\"BPE\",");
}

T(llama3_equals_hugging_face)
{
    check_family("llama3.2", "encoder.json", "vocab.bpe", llama3_pre,
                 "\"model\":{\"type\":\"BPE\",\"ignore_merges\":true,");
}

T(qwen2_equals_hugging_face)
{
    check_family("qwen2.5", "vocab.json", "merges.txt", qwen2_pre,
                 "\"normalizer\":{\"type\":\"NFC\"},\"model\":{\"type\":\"BPE\",");
}

T(gpt2_as_a_tokenizer_json)
{
    struct tokenizer *t = NULL;
    const char *path = t_shared("tokenizers/gpt2/tokenizer.json");
    t_ok(tokenizer_load(&t, path, &err), &err);
    t_eq(tokenizer_vocab(t), 50257);
    t_eq(tokenizer_eot(t), 50256);
    compare(t, t_tmpdir(), "../shared/data/tokenizers/gpt2/tokenizer.json");
    tokenizer_free(t);
}

/* Characters with byte fallback, merges across words, and added tokens that are normalised. */
T(tinystories_as_a_tokenizer_json)
{
    struct tokenizer *t = NULL;
    const char *path = t_shared("weights/TinyStories-656K-f32/tokenizer.json");
    t_ok(tokenizer_load(&t, path, &err), &err);
    compare(t, t_tmpdir(), path);
    tokenizer_free(t);
}

/* Formats without merges, rewritten as a tokenizer.json that Hugging Face reads alike. */
T(other_formats_are_saved_for_hugging_face)
{
    static const char *const files[] = {"tokenizers/llama2/tokenizer.model",
                                        "tokenizers/llama3/tokenizer.model",
                                        "weights/stories260K/tok512.bin"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct tokenizer *t = NULL;
        const char *dir = t_tmpdir();
        char path[512];
        t_ok(tokenizer_load(&t, t_shared(files[i]), &err), &err);
        snprintf(path, sizeof path, "%s/tokenizer.json", dir);
        t_ok(tokenizer_save(t, path, &err), &err);
        compare(t, dir, path);
        tokenizer_free(t);
    }
}
