/* Arbitrary words of the environment, one a line: TERM, COLORTERM, NO_COLOR, STY, TMUX,
 * DEPTHSCOPE_FAIL, then a launcher's size and rank. Whatever they are, what is chosen is one of
 * what there is. */
#include "base/fault.h"
#include "base/ranks_launcher.h"
#include "tui/term.h"

#include "kit.h"

enum { WORDS = 8 };

static void check_terminal(const char *term, const char *colorterm, const char *none)
{
    static const char *const option[] = {NULL, "auto", "never", "16", "256", "truecolor"};
    for (size_t i = 0; i < DS_LEN(option); i++) {
        struct term_choice c;
        term_choose(&c, term, colorterm, option[i], none);
        need(c.entry != NULL && strlen(c.entry) < 4096 + strlen(term));
        need(c.colours == 0 || c.colours == 8 || c.colours == 16 || c.colours == 256 ||
             c.colours == 1 << 24);
    }
    (void)term_is_plain(term);
    need(term[0] || !term_can_draw(term));
}

static void check_faults(const char *text)
{
    static const char *const call[] = {"open", "write", "nan", "slow", "alloc"};
    struct fault_rule r;
    for (size_t i = 0; i < DS_LEN(call); i++)
        if (fault_find(text, call[i], &r)) {
            need(strstr(text, call[i]) != NULL);
            (void)fault_hits(&r, 3);
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1), *word[WORDS], *p = text;
    need(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    for (int i = 0; i < WORDS; i++) {
        word[i] = p;
        p += strcspn(p, "\n");
        if (*p)
            *p++ = '\0';
    }
    check_terminal(word[0], word[1], word[2]);
    (void)term_holds_escape(word[0], word[3], word[4]);
    check_faults(word[5]);
    setenv("PMI_SIZE", word[6], 1);
    setenv("PMI_RANK", word[7], 1);
    need(ranks_launched() >= 0 && ranks_launched() <= 1 << 24);
    need(ranks_launched_as() >= 0 && ranks_launched_as() <= 1 << 24);
    free(text);
    return 0;
}
