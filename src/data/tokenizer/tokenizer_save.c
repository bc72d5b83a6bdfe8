/* Writes a Hugging Face tokenizer.json.  A loaded one is written back unchanged. */
#include "base/fs.h"
#include "base/utf8.h"
#include "data/tokenizer/bpe.h"

void tokenizer_add_printable(struct str *out, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char utf8[4];
        int len = utf8_encode(utf8, bpe_byte_rune((unsigned char)s[i]));
        str_add_bytes(out, utf8, (size_t)len);
    }
}

/* The text of an added token is written unchanged. */
static void add_piece(struct str *out, const struct tokenizer *t, int32_t id)
{
    size_t n;
    const char *s = tokenizer_piece(t, id, &n);
    if (tokenizer_is_special(t, id))
        str_add_bytes(out, s, n);
    else
        tokenizer_add_printable(out, s, n);
}

static void add_string(struct str *out, struct str *scratch)
{
    str_add_json(out, str_text(scratch), scratch->len);
    out->failed |= scratch->failed;
    str_reset(scratch);
}

static void add_added(struct str *out, const struct tokenizer *t)
{
    for (size_t i = 0; i < t->n_added; i++) {
        const struct added_token *a = &t->added[i];
        str_addf(out, "%s\n    {\"id\": %d, \"content\": ", i ? "," : "", a->id);
        str_add_json(out, a->text, a->len);
        str_addf(out,
                 ", \"single_word\": %s, \"lstrip\": %s, \"rstrip\": %s, \"normalized\": false, "
                 "\"special\": %s}",
                 a->single_word ? "true" : "false", a->lstrip ? "true" : "false",
                 a->rstrip ? "true" : "false", a->special ? "true" : "false");
    }
}

static void add_vocab(struct str *out, const struct tokenizer *t)
{
    struct str token = {0};
    for (int32_t id = 0, first = 1; id < t->vocab; id++) {
        if (!t->present[id])
            continue;
        add_piece(&token, t, id);
        str_add(out, first ? "\n      " : ",\n      ");
        add_string(out, &token);
        str_addf(out, ": %d", id);
        first = 0;
    }
    str_release(&token);
}

static void add_merges(struct str *out, const struct tokenizer *t)
{
    struct str merge = {0};
    for (size_t i = 0; t->bpe && i < t->bpe->merges; i++) {
        add_piece(&merge, t, t->bpe->merge[i].left);
        str_add_char(&merge, ' ');
        add_piece(&merge, t, t->bpe->merge[i].right);
        str_add(out, i ? ",\n      " : "\n      ");
        add_string(out, &merge);
    }
    str_release(&merge);
}

static void add_document(struct str *out, const struct tokenizer *t)
{
    str_add(out, "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n  "
                 "\"added_tokens\": [");
    add_added(out, t);
    str_addf(out,
             "\n  ],\n  \"normalizer\": null,\n"
             "  \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
             "\"trim_offsets\": true, "
             "\"use_regex\": %s},\n",
             t->bpe ? "true" : "false");
    str_add(out, "  \"post_processor\": null,\n"
                 "  \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
                 "\"trim_offsets\": true, "
                 "\"use_regex\": true},\n");
    str_add(
        out,
        "  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": null,\n"
        "    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n"
        "    \"fuse_unk\": false,\n    \"byte_fallback\": false,\n    \"ignore_merges\": false,\n"
        "    \"vocab\": {");
    add_vocab(out, t);
    str_add(out, "\n    },\n    \"merges\": [");
    add_merges(out, t);
    str_add(out, "\n    ]\n  }\n}\n");
}

void tokenizer_write(struct str *out, const struct tokenizer *t)
{
    if (t->source.len)
        str_add_bytes(out, t->source.p, t->source.len);
    else
        add_document(out, t);
}

int tokenizer_save(const struct tokenizer *t, const char *path, struct err *e)
{
    if (t->source.len)
        return fs_write_file(path, t->source.p, t->source.len, e);
    struct str out = {0};
    tokenizer_write(&out, t);
    int rc = out.failed ? err_set(e, DS_EMEM, "%s: out of memory for the tokenizer's text", path)
                        : fs_write_file(path, out.p, out.len, e);
    str_release(&out);
    return rc;
}
