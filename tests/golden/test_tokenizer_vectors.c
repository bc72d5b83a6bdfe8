/* Published ids: 47 texts that llama.cpp keeps for each family, and the golden of TinyStories-656K. */
#include "golden/vectors.h"

#include "base/json.h"

static struct err err;

static void check_file(const char *path, const char *vectors)
{
    struct tokenizer *t = NULL, *again = NULL;
    char copy[512];
    t_ok(tokenizer_load(&t, t_shared(path), &err), &err);
    check_vectors(t, vectors);
    snprintf(copy, sizeof copy, "%s/tokenizer.json", t_tmpdir());
    t_ok(tokenizer_save(t, copy, &err), &err);
    t_ok(tokenizer_load(&again, copy, &err), &err);
    t_true(tokenizer_hash(t) == tokenizer_hash(again));
    check_vectors(again, vectors);
    tokenizer_free(t);
    tokenizer_free(again);
}

T(gpt2_json)
{
    check_file("tokenizers/gpt2/tokenizer.json", "gpt-2");
}

T(gpt2_vocab_and_merges)
{
    check_file("tokenizers/gpt2/vocab.json", "gpt-2");
}

T(qwen2_vocab_and_merges)
{
    check_file("tokenizers/qwen2.5", "qwen2");
}

T(llama2_sentencepiece)
{
    check_file("tokenizers/llama2/tokenizer.model", "llama-spm");
}

static void encode_shared(const char *path, const char *text, struct ids *out)
{
    struct tokenizer *t = NULL;
    t_ok(tokenizer_load(&t, t_shared(path), &err), &err);
    t_eq(tokenizer_bos(t), 128000);
    t_eq(tokenizer_eot(t), 128001);
    t_eq(tokenizer_vocab(t), 128256);
    t_ok(tokenizer_encode(t, text, strlen(text), 1, out, &err), &err);
    tokenizer_free(t);
}

/* Llama 3's two forms know nothing of each other: ranks of tiktoken, and a vocabulary with merges.
 * Their vectors do not lie here; the ids of the last text are published. */
T(llama3_in_both_forms)
{
    struct ids a = {0}, b = {0};
    struct str text = {0};
    t_ok(fs_read_file(&text, t_shared("tokenizers/vectors/llama.cpp/ggml-vocab-gpt-2.gguf.inp"),
                      1 << 20, &err),
         &err);
    str_add(&text, "<|begin_of_text|>Hello world<|eot_id|>\n");
    encode_shared("tokenizers/llama3/tokenizer.model", text.p, &a);
    encode_shared("tokenizers/llama3.2", text.p, &b);
    t_eq(a.n, b.n);
    t_true(memcmp(a.v, b.v, a.n * sizeof *a.v) == 0);
    static const int32_t want[] = {128000, 9906, 1917, 128009, 198};
    t_true(memcmp(a.v + a.n - 5, want, sizeof want) == 0);
    ids_release(&a);
    ids_release(&b);
    str_release(&text);
}

/* What the model said, as ids, is the published story. */
T(llama2c_tokenizer_tells_the_golden_story)
{
    struct tokenizer *t = NULL;
    struct json *doc = NULL;
    struct ids ids = {0}, again = {0};
    struct str text = {0}, want = {0};
    t_ok(tokenizer_load(&t, t_shared("weights/stories260K"), &err), &err);
    t_eq(tokenizer_vocab(t), 512);
    t_eq(tokenizer_bos(t), 1);
    t_ok(json_read_file(&doc, t_shared("derived/golden/stories260K.greedy.json"), 1 << 20, &err),
         &err);
    const struct json_node *steps = json_get(json_root(doc), "steps");
    for (size_t i = 0; i < json_len(steps); i++)
        t_ok(ids_add(&ids, (int32_t)json_int(json_get(json_at(steps, i), "next"), -1)), &err);
    tokenizer_decode(t, ids.v, ids.n, &text);
    t_ok(fs_read_file(&want, t_shared("derived/golden/stories260K.greedy.txt"), 1 << 20, &err),
         &err);
    while (want.len && want.p[want.len - 1] == '\n')
        want.p[--want.len] = '\0';
    t_str(str_text(&text), str_text(&want));
    t_ok(tokenizer_encode(t, text.p, text.len, 0, &again, &err), &err);
    t_eq(again.n, ids.n);
    t_true(memcmp(again.v, ids.v, ids.n * sizeof *ids.v) == 0);
    ids_release(&ids);
    ids_release(&again);
    str_release(&text);
    str_release(&want);
    json_free(doc);
    tokenizer_free(t);
}

T(tinyllama_json)
{
    check_file("tokenizers/tinyllama/tokenizer.json", "llama-spm");
}

static void read_ids(struct ids *out, const struct json_node *list)
{
    for (size_t i = 0; i < json_len(list); i++)
        t_ok(ids_add(out, (int32_t)json_int(json_at(list, i), -1)), &err);
}

/* Prompts and what the model said, as ids and as text. */
T(tinystories_656k_there_and_back)
{
    struct tokenizer *t = NULL;
    struct json *doc = NULL;
    t_ok(json_read_file(&doc, t_shared("derived/golden/TinyStories-656K.greedy.json"), 1 << 20,
                        &err),
         &err);
    t_ok(tokenizer_load(&t, t_shared("weights/TinyStories-656K-f32/tokenizer.json"), &err), &err);
    const struct json_node *list = json_get(json_root(doc), "f32");
    t_true(json_len(list) > 0);
    for (size_t i = 0; i < json_len(list); i++) {
        struct ids want = {0}, got = {0};
        struct str text = {0};
        const struct json_node *one = json_at(list, i);
        const char *prompt = json_str(json_get(one, "prompt"), NULL);
        read_ids(&want, json_get(one, "prompt_ids"));
        t_eq(want.v[0], tokenizer_bos(t));
        t_ok(tokenizer_encode(t, prompt, strlen(prompt), 0, &got, &err), &err);
        t_eq(got.n, want.n - 1);
        t_true(memcmp(got.v, want.v + 1, got.n * sizeof *got.v) == 0);
        tokenizer_decode(t, got.v, got.n, &text);
        t_str(str_text(&text), prompt);
        str_reset(&text);
        read_ids(&want, json_get(one, "greedy_ids"));
        tokenizer_decode(t, want.v, want.n, &text);
        t_str(str_text(&text), json_str(json_get(one, "text"), NULL));
        ids_release(&want);
        ids_release(&got);
        str_release(&text);
    }
    tokenizer_free(t);
    json_free(doc);
}
