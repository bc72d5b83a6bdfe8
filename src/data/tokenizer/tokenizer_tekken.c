/* Reads Mistral's tekken.json: special tokens, then tokens of bytes in the order of their ranks, and
 * the pattern that splits texts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base64.h"
#include "base/json.h"
#include "base/mem.h"
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/pieces.h"

/* The first special tokens of files that do not list theirs. */
static const char *const unlisted[] = {
    "<unk>",
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "[TOOL_CALLS]",
    "[IMG]",
    "<pad>",
    "[IMG_BREAK]",
    "[IMG_END]",
    "[PREFIX]",
    "[MIDDLE]",
    "[SUFFIX]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]",
};
enum { UNLISTED = sizeof unlisted / sizeof *unlisted, UNLISTED_VERSION = 7 };

struct tekken {
    struct token_part *piece;
    char *bytes; /* of all tokens, shorter than their base64 */
    size_t n, specials;
    struct str added, split;
    int bos, eos; /* ids, -1: none */
};

static int read_sizes(struct tekken *k, const struct json_node *root, struct err *e)
{
    const struct json_node *config = json_get(root, "config");
    int64_t all = json_int(json_get(config, "default_vocab_size"), -1),
            specials = json_int(json_get(config, "default_num_special_tokens"), -1);
    size_t len = json_len(json_get(root, "vocab"));
    if (all < 1 || all > BPE_IDS_MAX || specials < 0 || specials >= all ||
        (size_t)(all - specials) > len)
        return err_set(e, DS_ERANGE,
                       "config: default_vocab_size = %lld and default_num_special_tokens = %lld: "
                       "must leave 1 to %zu tokens, the length of vocab",
                       (long long)all, (long long)specials, len);
    k->n = (size_t)(all - specials);
    k->specials = (size_t)specials;
    return 0;
}

static int read_tokens(struct tekken *k, const struct json_node *vocab, struct err *e)
{
    size_t total = 0, used = 0;
    for (size_t i = 0, len = 0; i < k->n; i++) {
        const struct json_node *one = json_at(vocab, i);
        if (json_int(json_get(one, "rank"), -1) != (int64_t)i ||
            !json_str(json_get(one, "token_bytes"), &len))
            return err_set(e, DS_EFORMAT, "vocab[%zu]: expected rank %zu and token_bytes", i, i);
        total += len;
    }
    k->piece = mem_alloc(k->n, sizeof *k->piece);
    k->bytes = mem_alloc(total + 1, 1);
    if (!k->piece || !k->bytes)
        return err_set(e, DS_EMEM, "out of memory for %zu tokens", k->n);
    for (size_t i = 0, len = 0; i < k->n; i++) {
        const char *text = json_str(json_get(json_at(vocab, i), "token_bytes"), &len);
        int bytes = base64_bytes(k->bytes + used, text, len);
        if (bytes <= 0)
            return err_set(e, DS_EFORMAT, "vocab[%zu]: token_bytes must be base64", i);
        k->piece[i] = (struct token_part){
            .text = k->bytes + used, .n = (size_t)bytes, .score = -(float)i, .type = TOKEN_NORMAL};
        used += (size_t)bytes;
    }
    return 0;
}

static void add_special(struct tekken *k, size_t id, const char *text)
{
    str_addf(&k->added, ",{\"id\":%zu,\"content\":", id);
    str_add_json(&k->added, text, strlen(text));
    str_add(&k->added, ",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
                       "\"normalized\":false,\"apart\":true,\"special\":true}");
    if (strcmp(text, "<s>") == 0)
        k->bos = (int)id;
    if (strcmp(text, "</s>") == 0)
        k->eos = (int)id;
}

/* Those that a file lists, the first ones of old files; the other ids have numbered names. */
static int read_specials(struct tekken *k, const struct json_node *root, struct err *e)
{
    const struct json_node *list = json_get(root, "special_tokens");
    const char *version = json_str(json_get(json_get(root, "config"), "version"), NULL);
    int is_listed = json_kind_of(list) == JSON_KIND_ARRAY;
    size_t named = is_listed ? json_len(list) : UNLISTED;
    if (!is_listed && version && strtol(version + (*version == 'v'), NULL, 10) > UNLISTED_VERSION)
        return err_set(e, DS_EFORMAT, "missing special_tokens in a file of version %.16s", version);
    if (named > k->specials)
        return err_set(e, DS_ERANGE, "%zu special tokens: must be at most %zu", named, k->specials);
    for (size_t i = 0; i < k->specials; i++) {
        char spare[32];
        const struct json_node *one = json_at(list, i);
        const char *text = i >= named  ? spare
                           : is_listed ? json_str(json_get(one, "token_str"), NULL)
                                       : unlisted[i];
        snprintf(spare, sizeof spare, "<SPECIAL_%zu>", i);
        if (!text || (is_listed && i < named && json_int(json_get(one, "rank"), -1) != (int64_t)i))
            return err_set(e, DS_EFORMAT, "special_tokens[%zu]: expected rank %zu and token_str", i,
                           i);
        add_special(k, i, text);
    }
    return k->added.failed ? err_set(e, DS_EMEM, "out of memory for added tokens") : 0;
}

static int read_pattern(struct tekken *k, const struct json_node *root, struct err *e)
{
    size_t len = 0;
    const char *pattern = json_str(json_get(json_get(root, "config"), "pattern"), &len);
    if (!pattern || len == 0)
        return err_set(e, DS_EFORMAT, "config: missing pattern");
    str_add(&k->split, "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":"
                       "{\"Regex\":");
    str_add_json(&k->split, pattern, len);
    str_add(&k->split, "},\"behavior\":\"Removed\",\"invert\":true},{\"type\":\"ByteLevel\","
                       "\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":false}]}");
    return k->split.failed ? err_set(e, DS_EMEM, "out of memory for a pattern") : 0;
}

int tokenizer_parse_tekken(struct tokenizer **out, const char *p, size_t n, const char *what,
                           struct err *e)
{
    struct tekken k = {.bos = -1, .eos = -1};
    struct json *doc = NULL;
    int rc = json_parse_nul(&doc, p, n, what, e);
    if (rc < 0)
        return rc;
    const struct json_node *root = json_root(doc);
    rc = read_sizes(&k, root, e);
    if (rc >= 0)
        rc = read_tokens(&k, json_get(root, "vocab"), e);
    if (rc >= 0)
        rc = read_specials(&k, root, e);
    if (rc >= 0)
        rc = read_pattern(&k, root, e);
    if (rc < 0) {
        err_add(e, rc, "%s", what);
    } else {
        struct token_part eos = {.text = "</s>", .n = 4, .type = TOKEN_CONTROL};
        struct piece_style style = {.byte_level = 1,
                                    .ignore_merges = 1,
                                    .first_id = (int)k.specials,
                                    .pre_tokenizer = str_text(&k.split),
                                    .decoder = family_decoder,
                                    .bos = k.bos >= 0 ? "<s>" : NULL,
                                    .bos_id = k.bos,
                                    .eos = k.eos >= 0 ? &eos : NULL,
                                    .eos_id = k.eos,
                                    .added = str_text(&k.added)};
        rc = pieces_load(out, k.piece, k.n, &style, what, e);
    }
    mem_free(k.piece);
    mem_free(k.bytes);
    str_release(&k.added);
    str_release(&k.split);
    json_free(doc);
    return rc;
}

int tokenizer_load_tekken(struct tokenizer **out, const char *path, struct err *e)
{
    struct str text = {0};
    int rc = tokenizer_read_file(&text, path, e);
    if (rc >= 0)
        rc = tokenizer_parse_tekken(out, str_text(&text), text.len, path, e);
    str_release(&text);
    return rc;
}
