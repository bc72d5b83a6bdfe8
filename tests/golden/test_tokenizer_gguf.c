/* Vocabularies of GGUF files: real ones, and ones written here from real tokenizers. */
#include "golden/vectors.h"
#include "unit/gguf_vocab.h"

static struct err err;

T(real_gpt2_file)
{
    struct tokenizer *t = NULL, *other = NULL;
    t_ok(tokenizer_load(&t, t_shared("tokenizers/gguf-vocab/ggml-vocab-gpt-2.gguf"), &err), &err);
    t_ok(tokenizer_load(&other, t_shared("tokenizers/gpt2/tokenizer.json"), &err), &err);
    check_vectors(t, "gpt-2");
    t_eq(tokenizer_vocab(t), 50257);
    t_eq(tokenizer_eot(t), 50256);
    t_eq(tokenizer_bos(t), -1);
    t_true(tokenizer_hash(t) == tokenizer_hash(other));
    tokenizer_free(t);
    tokenizer_free(other);
}

T(real_llama_file)
{
    struct tokenizer *t = NULL, *other = NULL;
    t_ok(tokenizer_load(&t, t_shared("tokenizers/gguf-vocab/ggml-vocab-llama-spm.gguf"), &err),
         &err);
    t_ok(tokenizer_load(&other, t_shared("tokenizers/llama2/tokenizer.model"), &err), &err);
    check_vectors(t, "llama-spm");
    t_eq(tokenizer_vocab(t), 32000);
    t_eq(tokenizer_eot(t), 2);
    t_eq(tokenizer_bos(t), 1);
    t_true(tokenizer_hash(t) == tokenizer_hash(other));
    tokenizer_free(t);
    tokenizer_free(other);
}

static void same_ids(const struct tokenizer *a, const struct tokenizer *b, const char *s, size_t n)
{
    for (int special = 0; special < 2; special++) {
        struct ids x = {0}, y = {0};
        struct str one = {0}, two = {0};
        t_ok(tokenizer_encode(a, s, n, special, &x, &err), &err);
        t_ok(tokenizer_encode(b, s, n, special, &y, &err), &err);
        for (size_t i = 0; i < x.n && i < y.n; i++)
            t_truef(x.v[i] == y.v[i], "id %zu: %d and %d", i, x.v[i], y.v[i]);
        t_eq(x.n, y.n);
        tokenizer_decode(a, x.v, x.n, &one);
        tokenizer_decode(b, x.v, x.n, &two);
        t_str(str_text(&one), str_text(&two));
        ids_release(&x);
        ids_release(&y);
        str_release(&one);
        str_release(&two);
    }
}

static void same_text(const struct tokenizer *a, const struct tokenizer *b, const char *path,
                      size_t most)
{
    struct str text = {0};
    t_ok(fs_read_file(&text, t_shared(path), 4 << 20, &err), &err);
    same_ids(a, b, text.p, text.len < most ? text.len : most);
    str_release(&text);
}

/* ways: 1: the file names no pre-tokenizer, and the architecture tells. */
static void write_and_compare(const char *from, const char *vectors, int exact, int unnamed)
{
    struct tokenizer *t = NULL, *back = NULL;
    struct tokenizer_parts p = {0};
    struct gguf_file f = {0};
    t_ok(tokenizer_load(&t, t_shared(from), &err), &err);
    t_ok(tokenizer_parts(&p, t, &err), &err);
    t_eq(p.is_exact, exact);
    if (unnamed)
        p.pre = NULL;
    gf_string(&f, "general.architecture", strstr(from, "qwen") ? "qwen2" : "llama");
    gv_keys(&f, &p);
    tokenizer_parts_release(&p);
    t_ok(tokenizer_load(&back, gf_write(&f), &err), &err);
    t_eq(tokenizer_vocab(t), tokenizer_vocab(back));
    t_eq(tokenizer_bos(t), tokenizer_bos(back));
    t_eq(tokenizer_eot(t), tokenizer_eot(back));
    if (vectors)
        check_vectors(back, vectors);
    same_text(t, back, "derived/tinystories_val.txt", 20000);
    same_text(t, back, "corpora/enwik/enwik4", 10000);
    same_text(t, back, "tokenizers/vectors/llama.cpp/ggml-vocab-gpt-2.gguf.inp", 4000);
    static const char special[] = "<s>a</s> <|endoftext|>b<|im_start|> <|eot_id|>\n<tool_call>x";
    same_ids(t, back, special, sizeof special - 1);
    tokenizer_free(t);
    tokenizer_free(back);
}

T(gpt2_written_and_read)
{
    write_and_compare("tokenizers/gpt2/tokenizer.json", "gpt-2", 1, 0);
    write_and_compare("tokenizers/gpt2/tokenizer.json", "gpt-2", 1, 1);
}

T(qwen2_written_and_read)
{
    /* the keys do not say NFC, and llama.cpp applies none */
    write_and_compare("tokenizers/qwen2.5", "qwen2", 0, 0);
    write_and_compare("tokenizers/qwen2.5", "qwen2", 0, 1);
}

T(llama3_written_and_read)
{
    write_and_compare("tokenizers/llama3/tokenizer.model", NULL, 0, 0);
    write_and_compare("tokenizers/llama3.2", NULL, 1, 1);
}

T(llama2_written_and_read)
{
    write_and_compare("tokenizers/llama2/tokenizer.model", "llama-spm", 1, 0);
}

/* Its merges become scores. */
T(tinyllama_written_and_read)
{
    write_and_compare("tokenizers/tinyllama/tokenizer.json", "llama-spm", 0, 0);
}

T(llama2c_written_and_read)
{
    write_and_compare("weights/stories260K/tok512.bin", NULL, 0, 0);
}
