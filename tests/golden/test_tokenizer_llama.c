/* Vocabularies of GGUF files by every pre-tokenizer name: committed ids of llama.cpp, and where the
 * Python package llama_cpp is installed the same for random texts. */
#include "t.h"

#include <stdio.h>
#include <sys/wait.h>

#include "base/json.h"
#include "data/tokenizer.h"
#include "data/tokenizer_parts.h"
#include "unit/gguf_vocab.h"

static struct err err;
static const char golden[] = "tests/golden/tokenizers/llama.json";
static const char whole[] = "tests/golden/tokenizers/whole.json";

/* One name for each row of the table. */
static const char *const names[] = {
    "gpt-2",    "llama-bpe", "dbrx",       "glm4",       "qwen2",          "stablelm2",
    "qwen35",   "smollm",    "command-r",  "olmo",       "gpt-4o",         "tekken",
    "falcon",   "bloom",     "viking",     "jais-2",     "minicpm5",       "bailingmoe",
    "youtu",    "laguna",    "exaone-moe", "seed-coder", "deepseek-llm",   "deepseek-v3",
    "spark2_5", "ufakzeka",  "superbpe",   "kimi-k2",    "deepseek-coder",
};

/* Vocabularies with scores: where each one comes from, and how it treats spaces. */
static const struct scored {
    const char *name, *from;
    int prefix, remove_extra;
} scored[] = {
    {"t5", "unigram.json", 1, 1},        {"t5-plain", "unigram_whole.json", 0, 0},
    {"t5-prefix", "unigram.json", 1, 0}, {"t5-defined", "spm_defined.model", 0, 1},
    {"llama", "phi3.json", 1, 0},        {"gemma", "gemma3.json", 0, 0},
};

/* s: NULL: `name` is a pre-tokenizer. */
static void write_vocabulary(const char *dir, const char *name, const struct scored *s,
                             const struct tokenizer *t)
{
    struct tokenizer_parts p = {0};
    struct gguf_file f = {0};
    char path[1200];
    t_ok(tokenizer_parts(&p, t, &err), &err);
    p.pre = s ? "default" : name;
    if (s) {
        p.add_space_prefix = s->prefix;
        p.remove_extra_spaces = s->remove_extra;
    }
    gf_string(&f, "general.architecture", "llama");
    gv_keys(&f, &p);
    snprintf(path, sizeof path, "%s/%s.gguf", dir, name);
    ck_assert_int_eq(rename(gf_write(&f), path), 0);
    tokenizer_parts_release(&p);
}

static void compare(const char *dir, const char *name, const struct json_node *root)
{
    char path[1200];
    struct tokenizer *t = NULL;
    const struct json_node *texts = json_get(root, "texts"),
                           *ids = json_get(json_get(root, "ids"), name);
    snprintf(path, sizeof path, "%s/%s.gguf", dir, name);
    t_ok(tokenizer_load(&t, path, &err), &err);
    t_truef(json_len(texts) > 30 && json_len(ids) == json_len(texts), "%s: no ids", name);
    for (size_t i = 0; i < json_len(ids); i++) {
        size_t n = 0;
        const char *text = json_str(json_at(texts, i), &n);
        const struct json_node *want = json_at(ids, i);
        struct ids got = {0};
        t_ok(tokenizer_encode(t, text, n, 1, &got, &err), &err);
        for (size_t k = 0; k < got.n && k < json_len(want); k++)
            t_truef(got.v[k] == json_int(json_at(want, k), -1),
                    "%s: \"%.300s\": id %zu is %d, expected %lld", name, text, k, got.v[k],
                    (long long)json_int(json_at(want, k), -1));
        t_truef(got.n == json_len(want), "%s: \"%.300s\": %zu ids, expected %zu", name, text, got.n,
                json_len(want));
        ids_release(&got);
    }
    tokenizer_free(t);
}

static void write_all(const char *dir)
{
    struct tokenizer *t = NULL;
    t_ok(tokenizer_load(&t, whole, &err), &err);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        write_vocabulary(dir, names[i], NULL, t);
    tokenizer_free(t);
    for (size_t i = 0; i < sizeof scored / sizeof *scored; i++) {
        char path[512];
        struct tokenizer *other = NULL;
        snprintf(path, sizeof path, "tests/golden/tokenizers/%s", scored[i].from);
        t_ok(tokenizer_load(&other, path, &err), &err);
        write_vocabulary(dir, scored[i].name, &scored[i], other);
        tokenizer_free(other);
    }
}

static void compare_all(const char *dir, const char *path)
{
    struct json *doc = NULL;
    t_ok(json_read_file(&doc, path, 1 << 30, &err), &err);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        compare(dir, names[i], json_root(doc));
    for (size_t i = 0; i < sizeof scored / sizeof *scored; i++)
        compare(dir, scored[i].name, json_root(doc));
    json_free(doc);
}

/* 0 when the package is not installed. */
static int ask_llama(const char *dir, const char *out, const char *count)
{
    const char *python = getenv("PYTHON");
    char cmd[4096];
    snprintf(cmd, sizeof cmd, "'%s' tests/golden/tokenizer_llama.py '%s' '%s' %s",
             python ? python : "python3", dir, out, count);
    int status = system(cmd), code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if (code == 77 || code == 127 || code == 126)
        return 0;
    t_eq(code, 0);
    return 1;
}

T(pre_tokenizers_have_the_committed_ids)
{
    char dir[512];
    snprintf(dir, sizeof dir, "%s", t_tmpdir()); /* the next call reuses its text */
    write_all(dir);
    if (getenv("GENERATE"))
        t_true(ask_llama(dir, golden, ""));
    compare_all(dir, golden);
}

/* A model of tokenizer_spm.py with SentencePiece's table of replacements; 0: not installed.  It has
 * no user-defined pieces: llama.cpp keeps text from the table that shares only the first bytes with
 * one. */
static int write_tables(const char *dir, const char *name, int remove_extra)
{
    const struct scored s = {name, "", 1, remove_extra};
    const char *python = getenv("PYTHON");
    char cmd[4096], path[1200];
    struct tokenizer *t = NULL;
    snprintf(cmd, sizeof cmd, "'%s' tests/golden/tokenizer_spm.py '%s' 0 1",
             python ? python : "python3", dir);
    if (system(cmd) != 0)
        return 0;
    snprintf(path, sizeof path, "%s/spm_table_folded.model", dir);
    t_ok(tokenizer_load(&t, path, &err), &err);
    write_vocabulary(dir, name, &s, t);
    tokenizer_free(t);
    return 1;
}

T(random_texts_have_the_ids_of_llama_cpp)
{
    const char *count = getenv("TOKENIZER_TEXTS");
    char dir[512], out[1200], seed[64];
    snprintf(dir, sizeof dir, "%s", t_tmpdir());
    write_all(dir);
    int tables = write_tables(dir, "table", 1) && write_tables(dir, "table-spaces", 0);
    snprintf(out, sizeof out, "%s/ids.json", dir);
    snprintf(seed, sizeof seed, "%s 1", count ? count : "300");
    if (!ask_llama(dir, out, seed))
        t_skip("the Python package llama_cpp is not installed: ids are not compared with it");
    compare_all(dir, out);
    struct json *doc = NULL;
    t_ok(json_read_file(&doc, out, 1 << 30, &err), &err);
    for (int i = 0; tables && i < 2; i++)
        compare(dir, i ? "table-spaces" : "table", json_root(doc));
    json_free(doc);
}
