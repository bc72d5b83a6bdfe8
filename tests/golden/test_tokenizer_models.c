/* Models as their authors' packages have them, SentencePiece's .model and Mistral's tekken.json:
 * committed ids of the packages, and where they are installed the same for random texts. */
#include "t.h"

#include <sys/wait.h>

#include "base/json.h"
#include "data/tokenizer.h"

static struct err err;
static const char here[] = "tests/golden/tokenizers";

static void compare(const char *dir, const char *name, const char *suffix)
{
    char path[1200];
    struct tokenizer *t = NULL;
    struct json *doc = NULL;
    snprintf(path, sizeof path, "%s/%s.ids.json", dir, name);
    t_ok(json_read_file(&doc, path, 256 << 20, &err), &err);
    const struct json_node *texts = json_get(json_root(doc), "texts"),
                           *ids = json_get(json_root(doc), "ids");
    snprintf(path, sizeof path, "%s/%s%s", dir, name, suffix);
    t_ok(tokenizer_load(&t, path, &err), &err);
    t_true(json_len(ids) > 30 && json_len(ids) == json_len(texts));
    for (size_t i = 0; i < json_len(ids); i++) {
        size_t n = 0;
        const char *text = json_str(json_at(texts, i), &n);
        const struct json_node *want = json_at(ids, i);
        struct ids got = {0};
        t_ok(tokenizer_encode(t, text, n, 0, &got, &err), &err);
        for (size_t k = 0; k < got.n && k < json_len(want); k++)
            t_truef(got.v[k] == json_int(json_at(want, k), -1),
                    "%s: \"%.300s\": id %zu is %d, expected %lld", name, text, k, got.v[k],
                    (long long)json_int(json_at(want, k), -1));
        t_truef(got.n == json_len(want), "%s: \"%.300s\": %zu ids, expected %zu", name, text, got.n,
                json_len(want));
        ids_release(&got);
    }
    tokenizer_free(t);
    json_free(doc);
}

static const char *const models[] = {"spm_unigram", "spm_bytes",        "spm_defined",  "spm_bpe",
                                     "spm_table",   "spm_table_folded", "spm_table_bpe"};
enum { MODELS = sizeof models / sizeof *models, WITH_TABLE = 3 };

T(models_have_the_committed_ids)
{
    for (int i = 0; i < MODELS - WITH_TABLE; i++)
        compare(here, models[i], ".model");
    compare(here, "tekken", ".json");
}

/* 0: its package is not installed. */
static int run_script(const char *script, const char *dir)
{
    const char *python = getenv("PYTHON"), *count = getenv("TOKENIZER_TEXTS");
    char cmd[4096];
    snprintf(cmd, sizeof cmd, "'%s' tests/golden/%s '%s' %s 1", python ? python : "python3", script,
             dir, count ? count : "300");
    int status = system(cmd), code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if (code == 77 || code == 127 || code == 126)
        return 0;
    t_eq(code, 0);
    return 1;
}

T(random_texts_have_the_ids_of_sentencepiece)
{
    const char *dir = t_tmpdir();
    if (!run_script("tokenizer_spm.py", dir))
        t_skip("the Python package sentencepiece is not installed: ids are not compared with it");
    for (int i = 0; i < MODELS; i++)
        compare(dir, models[i], ".model");
}

T(random_texts_have_the_ids_of_tiktoken)
{
    const char *dir = t_tmpdir();
    if (!run_script("tokenizer_tekken.py", dir))
        t_skip("the Python package tiktoken is not installed: ids are not compared with it");
    compare(dir, "tekken", ".json");
}
