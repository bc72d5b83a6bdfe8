/* The 47 texts that llama.cpp keeps with the ids of each family. */
#ifndef DS_TESTS_VECTORS_H
#define DS_TESTS_VECTORS_H

#include "t.h"

#include "base/fs.h"
#include "base/str.h"
#include "data/tokenizer.h"

/* Texts behind each other with a line between them; one line of ids for each. */
static inline void check_vectors(const struct tokenizer *t, const char *name)
{
    static const char mark[] = "\n__ggml_vocab_test__\n";
    char path[256];
    struct err err;
    struct str in = {0}, out = {0};
    int texts = 0;
    snprintf(path, sizeof path, "tokenizers/vectors/llama.cpp/ggml-vocab-%s.gguf.inp", name);
    t_ok(fs_read_file(&in, t_shared(path), 1 << 20, &err), &err);
    snprintf(path, sizeof path, "tokenizers/vectors/llama.cpp/ggml-vocab-%s.gguf.out", name);
    t_ok(fs_read_file(&out, t_shared(path), 1 << 20, &err), &err);
    char *want = out.p;
    for (char *text = in.p, *end; text; text = end ? end + sizeof mark - 1 : NULL, texts++) {
        struct ids ids = {0};
        end = strstr(text, mark);
        size_t n = end ? (size_t)(end - text) : strlen(text);
        t_ok(tokenizer_encode(t, text, n, 0, &ids, &err), &err);
        char *line_end = want + strcspn(want, "\n");
        for (size_t i = 0; i < ids.n; i++) {
            char *next;
            long id = strtol(want, &next, 10);
            t_truef(next != want && next <= line_end && id == ids.v[i],
                    "%s, text %d \"%.60s\", id %zu: got %d, want %ld", name, texts, text, i,
                    ids.v[i], id);
            want = next;
        }
        t_truef(strspn(want, " \r") == (size_t)(line_end - want), "%s, text %d: ids are missing",
                name, texts);
        want = line_end + (*line_end != '\0');
        ids_release(&ids);
    }
    printf("%s: %d texts alike\n", name, texts);
    t_true(texts > 20);
    str_release(&in);
    str_release(&out);
}

#endif
