/* Assigns a class to every token by its text. */
#include "data/token_class.h"

#include <ctype.h>
#include <string.h>

#include "base/mem.h"

static const char *const stop_words[] = {
    "a",     "about", "all",  "an",   "and",   "are",  "as",   "at",   "be",   "but",   "by",
    "can",   "could", "did",  "do",   "for",   "from", "had",  "has",  "have", "he",    "her",
    "him",   "his",   "i",    "if",   "in",    "is",   "it",   "its",  "me",   "my",    "no",
    "not",   "of",    "on",   "or",   "our",   "she",  "so",   "that", "the",  "their", "them",
    "then",  "there", "they", "this", "to",    "up",   "was",  "we",   "were", "what",  "when",
    "which", "who",   "will", "with", "would", "you",  "your",
};

static int is_stop_word(const char *s, size_t n)
{
    char word[8];
    if (n == 0 || n >= sizeof word)
        return 0;
    for (size_t i = 0; i < n; i++)
        word[i] = (char)tolower((unsigned char)s[i]);
    word[n] = '\0';
    for (size_t i = 0; i < DS_LEN(stop_words); i++)
        if (strcmp(word, stop_words[i]) == 0)
            return 1;
    return 0;
}

static int all_of(const char *s, size_t n, int (*is)(int))
{
    for (size_t i = 0; i < n; i++)
        if (!is((unsigned char)s[i]))
            return 0;
    return n > 0;
}

/* Non-ASCII bytes count as letters (or parts of them) of other scripts. */
static int is_letter(int c)
{
    return isalpha(c) || c >= 0x80 || c == '\'';
}

enum token_class token_class_of(const char *piece, size_t n)
{
    size_t skip = 0;
    while (skip < n && isspace((unsigned char)piece[skip]))
        skip++;
    const char *s = piece + skip;
    size_t len = n - skip;
    if (len == 0)
        return n > 0 ? CLASS_SPACE : CLASS_OTHER;
    if (all_of(s, len, isdigit))
        return CLASS_DIGIT;
    if (all_of(s, len, ispunct))
        return CLASS_PUNCTUATION;
    if (!all_of(s, len, is_letter))
        return CLASS_OTHER;
    int starts = skip > 0 || isupper((unsigned char)s[0]);
    if (starts && is_stop_word(s, len))
        return CLASS_STOP_WORD;
    return starts ? CLASS_WORD : CLASS_CONTINUATION;
}

int token_classes(const struct tokenizer *t, struct loader *train, int seq, float *out,
                  struct err *e)
{
    enum { WINDOWS = 1024, RARE = 20000 };
    size_t vocab = (size_t)tokenizer_vocab(t), n = (size_t)seq;
    uint64_t windows = loader_windows(train) < WINDOWS ? loader_windows(train) : WINDOWS;
    double *count = mem_alloc(vocab, sizeof *count);
    int32_t *id = mem_alloc(2 * n, sizeof *id);
    if (!count || !id) {
        mem_free(count);
        mem_free(id);
        return err_set(e, DS_EMEM, "out of memory for token classes");
    }
    struct loader_pos pos = {0};
    for (uint64_t w = 0; w < windows; w++) {
        loader_next(train, &pos, 1, id, id + n, NULL, NULL);
        for (size_t i = 0; i < n; i++)
            count[id[i]] += 1;
    }
    for (size_t v = 0; v < vocab; v++) {
        size_t len = 0;
        const char *piece = tokenizer_piece(t, (int32_t)v, &len);
        enum token_class c = piece ? token_class_of(piece, len) : CLASS_OTHER;
        int is_rare = count[v] * RARE < (double)(windows * n);
        out[v] = (float)(is_rare && (c == CLASS_WORD || c == CLASS_CONTINUATION) ? CLASS_RARE : c);
    }
    mem_free(count);
    mem_free(id);
    return 0;
}
