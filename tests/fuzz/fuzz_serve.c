/* Arbitrary requests to a small model: every request is answered with whole records.  Requests that would write a file or
 * open another model are left out. */
#include "base/json.h"
#include "eval/serve.h"
#include "data/tokenizer.h"
#include "io/record.h"

#include "gguf_text.h"
#include "kit.h"

static int is_harmless(const char *line, size_t n)
{
    struct json *j = NULL;
    if (json_parse(&j, line, n, "request", NULL) < 0)
        return 1;
    const char *what = json_get_text(json_root(j), "do");
    int yes = strcmp(what, "save") != 0 && strcmp(what, "compare") != 0;
    json_free(j);
    return yes;
}

static void check_records(const struct str *got)
{
    for (size_t at = 0; at < got->len;) {
        uint64_t seq;
        struct value body;
        int64_t used = record_parse(got->p + at, got->len - at, &seq, &body, NULL);
        need(used > 0 && value_kind(value_get(body, "kind")) == VALUE_STR);
        at += (size_t)used;
    }
}

static const char description[] = "s general.architecture llama\n"
                                  "u llama.block_count 2\n"
                                  "u llama.embedding_length 32\n"
                                  "u llama.feed_forward_length 32\n"
                                  "u llama.attention.head_count 4\n"
                                  "u llama.attention.head_count_kv 2\n"
                                  "u llama.context_length 48\n"
                                  "f llama.attention.layer_norm_rms_epsilon 1e-05\n"
                                  "+ token_embd.weight 8 32 257\n"
                                  "+ output_norm.weight 0 32\n";
static const char block[] = "+ blk.%d.attn_norm.weight 0 32\n"
                            "+ blk.%d.attn_q.weight 8 32 32\n"
                            "+ blk.%d.attn_k.weight 8 32 16\n"
                            "+ blk.%d.attn_v.weight 8 32 16\n"
                            "+ blk.%d.attn_output.weight 8 32 32\n"
                            "+ blk.%d.ffn_norm.weight 0 32\n"
                            "+ blk.%d.ffn_gate.weight 8 32 32\n"
                            "+ blk.%d.ffn_up.weight 8 32 32\n"
                            "+ blk.%d.ffn_down.weight 8 32 32\n";

/* Two small layers over bytes. */
static const char *model(void)
{
    static char path[1024];
    struct tokenizer *t = NULL;
    struct str text = {0}, file = {0};
    struct err e = {0};
    if (path[0])
        return path;
    snprintf(path, sizeof path, "%s/model.gguf", fuzz_dir());
    str_add(&text, description);
    for (int l = 0; l < 2; l++)
        str_addf(&text, block, l, l, l, l, l, l, l, l, l);
    gguf_text_make(&file, (const uint8_t *)text.p, text.len);
    fuzz_put(path, file.p, file.len);
    need(tokenizer_new_bytes(&t, &e) == 0 &&
         tokenizer_save(t, fuzz_path("tokenizer.json"), &e) == 0);
    tokenizer_free(t);
    str_release(&text);
    str_release(&file);
    return path;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *p = (const char *)data, *asks = fuzz_path("asks"), *answers = fuzz_path("answers");
    struct str lines = {0}, got = {0};
    struct err e = {0};
    int in = -1, out = -1;
    log_to(fuzz_hush, NULL);
    for (int i = 0; size > 0 && i < 16; i++) {
        const char *end = memchr(p, '\n', size);
        size_t n = end ? (size_t)(end - p) : size;
        if (is_harmless(p, n)) {
            str_add_bytes(&lines, p, n);
            str_add(&lines, "\n");
        }
        p += n + (end != NULL);
        size -= n + (end != NULL);
    }
    fuzz_put(asks, str_text(&lines), lines.len);
    need(fs_open_read(&in, asks, &e) == 0 &&
         fs_open_write(&out, answers, O_CREAT | O_TRUNC, &e) == 0);
    need(serve_run(model(), in, out, "fuzz", &e) == 0);
    close(in);
    close(out);
    need(fs_read_file(&got, answers, 1 << 28, &e) == 0);
    check_records(&got);
    str_release(&lines);
    str_release(&got);
    return 0;
}
