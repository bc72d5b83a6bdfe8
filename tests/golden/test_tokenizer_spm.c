/* SentencePiece models: committed ids of the package, and where it is installed the same for random
 * texts, with its table of replacements. */
#include "t.h"

#include <sys/wait.h>

#include "base/json.h"
#include "data/tokenizer.h"

static struct err err;
static const char here[] = "tests/golden/tokenizers";

static void compare(const char *dir, const char *name)
{
    char path[1200];
    struct tokenizer *t = NULL;
    struct json *doc = NULL;
    snprintf(path, sizeof path, "%s/%s.ids.json", dir, name);
    t_ok(json_read_file(&doc, path, 256 << 20, &err), &err);
    const struct json_node *texts = json_get(json_root(doc), "texts"),
                           *ids = json_get(json_root(doc), "ids");
    snprintf(path, sizeof path, "%s/%s.model", dir, name);
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

T(models_have_the_committed_ids)
{
    static const char *const names[] = {"spm_unigram", "spm_bytes", "spm_defined", "spm_bpe"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        compare(here, names[i]);
}

T(random_texts_have_the_ids_of_sentencepiece)
{
    static const char *const names[] = {"spm_unigram",  "spm_bytes", "spm_defined",
                                        "spm_bpe",      "spm_table", "spm_table_folded",
                                        "spm_table_bpe"};
    const char *python = getenv("PYTHON"), *count = getenv("TOKENIZER_TEXTS"), *dir = t_tmpdir();
    char cmd[4096];
    snprintf(cmd, sizeof cmd, "'%s' tests/golden/tokenizer_spm.py '%s' %s 1",
             python ? python : "python3", dir, count ? count : "300");
    int status = system(cmd), code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if (code == 77 || code == 127 || code == 126)
        t_skip("the Python package sentencepiece is not installed: ids are not compared with it");
    t_eq(code, 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        compare(dir, names[i]);
}
