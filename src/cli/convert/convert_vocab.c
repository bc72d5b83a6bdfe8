/* Writes vocabularies (GGUF metadata, llama2.c's tokenizer.bin) and chat templates. */
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "cli/convert/convert.h"
#include "data/chat.h"
#include "data/tokenizer_parts.h"
#include "models/peft.h"

/* ---- chat templates ---- */

/* The base of adapters, which have no template themselves; NULL: none. */
static const char *base_of(const struct convert_from *f, char base[1024])
{
    return f->dir[0] && model_base(f->dir, base, 1024, NULL) == 1 ? base : NULL;
}

int convert_template(struct str *out, const struct convert_from *f, struct err *e)
{
    char base[1024];
    return f->dir[0] ? chat_template_of(out, f->dir, base_of(f, base), e) : 0;
}

/* A malformed template is reported with the conversion's notes, and left out. */
static int take_template(struct str *out, const struct convert_from *f, struct err *e)
{
    struct err why = {0};
    int rc = convert_template(out, f, &why);
    if (rc == DS_EIO || rc == DS_EMEM)
        return err_set(e, rc, "%s", why.text);
    return rc == 0 && out->len > 0;
}

static int put_template(struct gguf_out *w, const struct convert_from *f, struct err *e)
{
    struct str text = {0};
    int found = take_template(&text, f, e);
    if (found > 0)
        gguf_put_text(w, "tokenizer.chat_template", text.p, text.len);
    str_release(&text);
    return found < 0 ? found : 0;
}

int convert_write_template(const struct convert_from *f, const char *dir, struct err *e)
{
    char base[1024], path[1200];
    struct str text = {0}, there = {0};
    int found = take_template(&text, f, e), rc = found < 0 ? found : 0;
    int old = found > 0 ? chat_template_of(&there, dir, NULL, NULL) : 0;
    if (old == DS_EMEM)
        rc = err_set(e, old, "%s: out of memory", dir);
    else if (found > 0 && old == 0 && there.len == 0 && !f->other_tokenizer)
        rc = chat_copy(f->dir, base_of(f, base), dir, e);
    else if (found > 0 && old == 0 && there.len == 0) { /* without the names of other tokens */
        rc = fs_join(path, sizeof path, dir, "chat_template.jinja", e);
        rc = rc == 0 ? fs_write_text(path, &text, e) : rc;
    }
    str_release(&text);
    str_release(&there);
    return rc;
}

/* ---- GGUF ---- */

/* Embedding rows without a token are marked by their type, as other writers do. */
static void put_tokens(struct gguf_out *w, const struct tokenizer_parts *p, int64_t rows)
{
    char pad[32];
    gguf_put_array(w, "tokenizer.ggml.tokens", GGUF_STRING, (uint64_t)rows);
    for (int64_t i = 0; i < rows; i++) {
        snprintf(pad, sizeof pad, "[PAD%lld]", (long long)i);
        if (i < p->tokens)
            gguf_item_text(w, p->token[i].text, p->token[i].n);
        else
            gguf_item_text(w, pad, strlen(pad));
    }
    gguf_put_array(w, "tokenizer.ggml.token_type", GGUF_I32, (uint64_t)rows);
    for (int64_t i = 0; i < rows; i++)
        gguf_item_i32(w, i < p->tokens ? (int32_t)p->token[i].type : TOKEN_UNUSED);
}

static void put_order(struct gguf_out *w, const struct tokenizer_parts *p, int64_t rows)
{
    if (strcmp(p->model, "gpt2") != 0) {
        gguf_put_array(w, "tokenizer.ggml.scores", GGUF_F32, (uint64_t)rows);
        for (int64_t i = 0; i < rows; i++)
            gguf_item_f32(w, i < p->tokens ? p->token[i].score : -1e9F);
        return;
    }
    gguf_put_array(w, "tokenizer.ggml.merges", GGUF_STRING, p->merges);
    for (size_t i = 0; i < p->merges; i++)
        gguf_item_text(w, p->merge[i].text, p->merge[i].n);
}

static void put_id(struct gguf_out *w, const char *key, int32_t id)
{
    if (id >= 0)
        gguf_put_u32(w, key, (uint32_t)id);
}

static int is_of_message(const struct token_part *t)
{
    for (size_t i = 0; i + 3 <= t->n; i++)
        if (memcmp(t->text + i, "eom", 3) == 0)
            return 1;
    return 0;
}

/* GGUF has three keys for end ids: end of text, of turn and of message.  The tokenizer's own comes
 * first if it is among the model's end ids. */
static void put_ends(struct gguf_out *w, const struct tokenizer_parts *p,
                     const struct model_config *c)
{
    static const char *const names[] = {"tokenizer.ggml.eos_token_id",
                                        "tokenizer.ggml.eot_token_id",
                                        "tokenizer.ggml.eom_token_id"};
    int32_t end[MODEL_EOS_MAX + 1], key[3] = {-1, -1, -1};
    int n = model_config_eos_ids(c, end), at = 1;
    if (n == 0)
        end[n++] = p->eos;
    key[0] = end[0];
    for (int i = 0; i < n; i++)
        if (end[i] == p->eos)
            key[0] = p->eos;
    for (int i = 0; i < n; i++) {
        const struct token_part *t = end[i] >= 0 && end[i] < p->tokens ? &p->token[end[i]] : NULL;
        if (end[i] == key[0])
            continue;
        if (t && key[2] < 0 && is_of_message(t))
            key[2] = end[i];
        else if (at < 3 && key[at] < 0)
            key[at++] = end[i];
    }
    for (size_t i = 0; i < DS_LEN(names); i++)
        put_id(w, names[i], key[i]);
}

/* Of a unigram model. */
static void put_normalizer(struct gguf_out *w, const struct tokenizer_parts *p)
{
    gguf_put_bool(w, "tokenizer.ggml.remove_extra_whitespaces", p->remove_extra_spaces);
    if (p->charsmap_len == 0)
        return;
    gguf_put_array(w, "tokenizer.ggml.precompiled_charsmap", GGUF_U8, p->charsmap_len);
    for (size_t i = 0; i < p->charsmap_len; i++)
        gguf_item_u8(w, (unsigned char)p->charsmap[i]);
}

/* One line: the name that was written, and how programs that rely on it differ. */
static void explain_differences(struct str *out, const struct tokenizer_parts *p)
{
    const char *why = str_text(&p->differs);
    int is_scored = strcmp(p->model, "gpt2") != 0;
    if (!p->pre)
        str_addf(
            out,
            "no tokenizer.ggml.pre matches its pre-tokenizer, so none is written: other programs "
            "tokenise differently%s%s",
            *why ? "; " : "", why);
    else if (*why)
        str_addf(out, "other programs tokenise some texts differently (tokenizer.ggml.%s = %s): %s",
                 is_scored ? "model" : "pre", is_scored ? p->model : p->pre, why);
}

int convert_put_vocabulary(struct gguf_out *w, const struct convert_from *f, struct str *differs,
                           struct err *e)
{
    struct tokenizer_parts p;
    int64_t rows = f->m->config.vocab;
    int rc = put_template(w, f, e);
    if (rc < 0)
        return rc;
    if (!f->tokenizer) { /* llama.cpp opens no file without the key */
        gguf_put_text(w, "tokenizer.ggml.model", "none", 4);
        return 0;
    }
    rc = tokenizer_parts(&p, f->tokenizer, e);
    if (rc < 0)
        return rc;
    gguf_put_text(w, "tokenizer.ggml.model", p.model, strlen(p.model));
    if (p.pre)
        gguf_put_text(w, "tokenizer.ggml.pre", p.pre, strlen(p.pre));
    put_tokens(w, &p, rows);
    put_order(w, &p, rows);
    put_id(w, "tokenizer.ggml.bos_token_id", p.bos);
    put_ends(w, &p, &f->m->config);
    put_id(w, "tokenizer.ggml.unknown_token_id", p.unk);
    gguf_put_bool(w, "tokenizer.ggml.add_bos_token", p.add_bos);
    int is_unigram = strcmp(p.model, "t5") == 0;
    if (p.add_eos || is_unigram)
        gguf_put_bool(w, "tokenizer.ggml.add_eos_token", p.add_eos);
    if (strcmp(p.model, "gpt2") != 0)
        gguf_put_bool(w, "tokenizer.ggml.add_space_prefix", p.add_space_prefix);
    if (is_unigram)
        put_normalizer(w, &p);
    if (!p.is_exact)
        gguf_put_text(w, "tokenizer.huggingface.json", p.json, p.json_len);
    explain_differences(differs, &p);
    tokenizer_parts_release(&p);
    return 0;
}

/* ---- llama2.c ---- */

/* Ids that llama2.c assumes: unknown, begin, end, then the 256 bytes. */
enum { UNKNOWN, BEGIN, END, BYTES, TEXTS = BYTES + 256 };

static const char *tokenizer_bin_obstacle(const struct tokenizer_parts *p, int64_t rows)
{
    if (strcmp(p->model, "llama") != 0)
        return "byte-level BPE is unsupported by tokenizer.bin";
    if (p->tokens != rows)
        return "the tokenizer has fewer ids than the embedding has rows";
    if (p->tokens < TEXTS || p->bos != BEGIN || p->unk != UNKNOWN)
        return "ids 0, 1, 2 must be unknown, begin and end in tokenizer.bin";
    for (int i = BYTES; i < TEXTS; i++)
        if (p->token[i].type != TOKEN_BYTE)
            return "ids 3 to 258 must be the 256 bytes in tokenizer.bin";
    return p->add_space_prefix ? NULL
                               : "tokenizer.bin always adds a space prefix, the tokenizer does not";
}

/* A piece as llama2.c prints it, with spaces for the U+2581 marks. */
static void add_piece(struct str *out, const struct token_part *t, int id)
{
    static const char mark[] = "\xe2\x96\x81", *const ends[] = {"\n<s>\n", "\n</s>\n"};
    if (id == BEGIN || id == END) {
        str_add(out, ends[id - BEGIN]);
        return;
    }
    for (size_t i = 0; i < t->n; i++)
        if (t->n - i >= 3 && memcmp(t->text + i, mark, 3) == 0) {
            str_add_char(out, ' ');
            i += 2;
        } else {
            str_add_char(out, t->text[i]);
        }
}

static void add_32(struct str *out, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        str_add_char(out, (char)(v >> 8 * i & 255));
}

static void add_all(struct str *out, const struct tokenizer_parts *p)
{
    struct str piece = {0};
    size_t longest = 0, at = out->len;
    add_32(out, 0);
    for (int32_t i = 0; i < p->tokens; i++) {
        uint32_t bits;
        float score = i < TEXTS ? 0 : p->token[i].score;
        str_reset(&piece);
        add_piece(&piece, &p->token[i], i);
        memcpy(&bits, &score, sizeof bits);
        add_32(out, bits);
        add_32(out, (uint32_t)piece.len);
        str_add_str(out, &piece);
        longest = piece.len > longest ? piece.len : longest;
    }
    for (int i = 0; i < 4 && !out->failed; i++)
        out->p[at + (size_t)i] = (char)((uint32_t)longest >> 8 * i & 255);
    str_release(&piece);
}

int convert_write_tokenizer_bin(const struct convert_from *f, const char *path, const char **why,
                                struct err *e)
{
    struct tokenizer_parts p;
    struct str out = {0};
    *why = "tokenizer not found";
    if (!f->tokenizer)
        return 0;
    int rc = tokenizer_parts(&p, f->tokenizer, e);
    if (rc < 0)
        return rc;
    *why = tokenizer_bin_obstacle(&p, f->m->config.vocab);
    if (!*why) {
        add_all(&out, &p);
        rc = fs_write_text(path, &out, e);
        rc = rc < 0 ? rc : 1;
    }
    tokenizer_parts_release(&p);
    str_release(&out);
    return rc;
}
