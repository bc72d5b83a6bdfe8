/* Properties of known byte-level families that their files omit. */
#include "data/tokenizer/pieces.h"

#include "base/compiler.h"

#define SPLIT(numbers)                                                                             \
    "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\""      \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|" numbers                \
    "| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"},"     \
    "\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\","                         \
    "\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":false}]}"

static const char gpt2[] = "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
                           "\"trim_offsets\":true,\"use_regex\":true}";
static const char llama3[] = SPLIT("\\\\p{N}{1,3}"), qwen2[] = SPLIT("\\\\p{N}");
const char family_decoder[] = "{\"type\":\"ByteLevel\",\"add_prefix_space\":true,"
                              "\"trim_offsets\":true,\"use_regex\":true}";

/* Llama 3's named special tokens; the other ids are numbered reserved tokens. */
static const struct {
    int place;
    const char *name;
} llama3_tokens[] = {
    {0, "begin_of_text"},   {1, "end_of_text"},   {4, "finetune_right_pad_id"},
    {6, "start_header_id"}, {7, "end_header_id"}, {8, "eom_id"},
    {9, "eot_id"},          {10, "python_tag"},
};

static const char *llama3_name(int place)
{
    for (size_t i = 0; i < DS_LEN(llama3_tokens); i++)
        if (llama3_tokens[i].place == place)
            return llama3_tokens[i].name;
    return NULL;
}

static void add_token(struct str *out, int id, const char *name, int spare)
{
    str_addf(out, ",{\"id\":%d,\"content\":\"<|", id);
    if (name)
        str_add(out, name);
    else
        str_addf(out, "reserved_special_token_%d", spare);
    str_add(out, "|>\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
                 "\"normalized\":false,\"special\":true}");
}

void family_add_specials(struct str *out, const struct family *f, int first)
{
    if (!f->specials) {
        add_token(out, first, "endoftext", 0);
        return;
    }
    for (int place = 0, spare = 0; place < FAMILY_SPECIALS; place++) {
        const char *name = llama3_name(place);
        add_token(out, first + place, name, spare);
        spare += name == NULL;
    }
}

/* The first is the default for a vocab.json with merges.txt. */
const struct family families[] = {
    {.name = "GPT-2",
     .tokenizer_class = "GPT2Tokenizer",
     .vocab = 50257,
     .ranks = 50256,
     .pre_tokenizer = gpt2},
    {.name = "Llama 3",
     .vocab = 128000,
     .ranks = 128000,
     .ignore_merges = 1,
     .specials = 1,
     .pre_tokenizer = llama3,
     .bos = "<|begin_of_text|>"},
    {.name = "Qwen2",
     .tokenizer_class = "Qwen2Tokenizer",
     .vocab = 151643,
     .ranks = 151643,
     .normalizer = "{\"type\":\"NFC\"}",
     .pre_tokenizer = qwen2},
};
const size_t n_families = DS_LEN(families);
