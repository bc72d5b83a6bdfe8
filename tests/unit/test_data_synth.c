/* The story generator: its entropies against enumeration, and against its own luck. */
#include "t.h"

#include "base/mem.h"
#include "data/grammar.h"
#include "data/synth.h"

static struct err err;

/* Alternatives that begin alike, are prefixes of each other or equal, and a copy: by hand
 * {name=n}{verb}[ and {$name}]: every text and its probability is listed by nested loops below. */
static const struct grammar_alt top[] = {
    {3, "{name=n}{verb}."}, {1, "{name=n}{verb} {$name.1} {$name}"}, {2, "Annabel x"}};
static const struct grammar_alt n[] = {{2, "Ann|a"}, {1, "Anna|b"}, {1, "Bo|a"}, {1, "Ann|c"}};
static const struct grammar_alt verb[] = {{1, ""}, {2, " ran"}, {1, "a ran"}, {1, "bel x"}};
static const struct grammar_rule small[] = {{"top", top, 3}, {"n", n, 4}, {"verb", verb, 4}};

struct listed {
    char text[64];
    double p;
};

static int list_all(struct listed *out)
{
    static const char *const name[] = {"Ann", "Anna", "Bo", "Ann"},
                             *const field[] = {"a", "b", "a", "c"},
                             *const verbs[] = {"", " ran", "a ran", "bel x"};
    static const double pn[] = {0.4, 0.2, 0.2, 0.2}, pv[] = {0.2, 0.4, 0.2, 0.2};
    int k = 0;
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) {
            snprintf(out[k].text, 64, "%s%s.", name[i], verbs[j]);
            out[k++].p = 0.5 * pn[i] * pv[j];
            snprintf(out[k].text, 64, "%s%s %s %s", name[i], verbs[j], field[i], name[i]);
            out[k++].p = 1.0 / 6 * pn[i] * pv[j];
        }
    snprintf(out[k].text, 64, "Annabel x");
    out[k++].p = 2.0 / 6;
    return k;
}

/* Distribution of the symbol after `len` bytes of `text`: sums over every listed text that begins
 * so. */
static double listed_entropy(const struct listed *all, int count, const char *text, size_t len,
                             int symbol, double *p)
{
    double mass[257] = {0}, total = 0, h = 0;
    for (int i = 0; i < count; i++)
        if (strlen(all[i].text) >= len && memcmp(all[i].text, text, len) == 0) {
            mass[strlen(all[i].text) == len ? 256 : (unsigned char)all[i].text[len]] += all[i].p;
            total += all[i].p;
        }
    for (int s = 0; s < 257; s++)
        if (mass[s] > 0)
            h -= mass[s] / total * log(mass[s] / total);
    *p = mass[symbol] / total;
    return h;
}

T(entropies_equal_enumeration_of_all_texts)
{
    struct listed all[64];
    int count = list_all(all);
    struct grammar *g = NULL;
    t_ok(grammar_new(&g, small, 3, &err), &err);
    for (int i = 0; i < count; i++) {
        float h[65], s[65];
        size_t len = strlen(all[i].text);
        t_ok(grammar_measure(g, all[i].text, len, h, s, &err), &err);
        for (size_t k = 0; k <= len; k++) {
            double p, want = listed_entropy(all, count, all[i].text, k,
                                            k < len ? all[i].text[k] : 256, &p);
            t_near(h[k], want, 1e-6);
            t_near(s[k], -log(p), 1e-6);
        }
    }
    grammar_free(g);
}

T(samples_come_with_the_listed_probabilities)
{
    struct listed all[64];
    int count = list_all(all), hits[64] = {0}, draws = 20000;
    struct grammar *g = NULL;
    struct str text = {0};
    struct rng rng;
    rng_init(&rng, 3, RNG_TEST, 0, 0);
    t_ok(grammar_new(&g, small, 3, &err), &err);
    for (int d = 0; d < draws; d++) {
        str_reset(&text);
        t_ok(grammar_sample(g, &rng, &text, &err), &err);
        int i = 0;
        while (i < count && strcmp(all[i].text, text.p) != 0)
            i++;
        ck_assert(i < count);
        hits[i]++; /* of the first of equal texts */
    }
    for (int i = 0; i < count; i++) {
        double p = 0;
        for (int j = 0; j < count; j++)
            p += strcmp(all[i].text, all[j].text) == 0 ? all[j].p : 0;
        for (int j = 0; j < i; j++)
            if (strcmp(all[i].text, all[j].text) == 0)
                p = 0;
        t_near(hits[i], p * draws, 5 * sqrt(p * draws) + 1e-9);
    }
    str_release(&text);
    grammar_free(g);
}

T(a_text_from_elsewhere_is_refused_with_the_offset)
{
    struct grammar *g = NULL;
    float h[64], s[64];
    t_ok(grammar_new(&g, small, 3, &err), &err);
    t_fails(grammar_measure(g, "Anx", 3, h, s, &err), &err, DS_EFORMAT, "byte 2");
    t_fails(grammar_measure(g, "Annabel", 7, h, s, &err), &err, DS_EFORMAT, "byte 7");
    t_fails(grammar_measure(g, "Annabel x!", 10, h, s, &err), &err, DS_EFORMAT, "byte 9");
    grammar_free(g);
}

T(bad_grammars_are_refused)
{
    static const struct grammar_alt unknown[] = {{1, "a {b}"}}, open[] = {{1, "a {b"}},
                                    zero[] = {{0, "a"}}, unset[] = {{1, "{$x}"}},
                                    loop[] = {{1, "a{top}"}}, field[] = {{1, "{$x.9}"}};
    struct grammar *g = NULL;
    struct str text = {0};
    struct rng rng;
    rng_init(&rng, 3, RNG_TEST, 0, 0);
    t_fails(grammar_new(&g, &(struct grammar_rule){"top", unknown, 1}, 1, &err), &err, DS_EFORMAT,
            "{b}");
    t_fails(grammar_new(&g, &(struct grammar_rule){"top", open, 1}, 1, &err), &err, DS_EFORMAT,
            "top");
    t_fails(grammar_new(&g, &(struct grammar_rule){"top", zero, 1}, 1, &err), &err, DS_EFORMAT,
            "weights");
    t_fails(grammar_new(&g, &(struct grammar_rule){"top", field, 1}, 1, &err), &err, DS_EFORMAT,
            "top");
    struct grammar_rule r = {"top", unset, 1};
    t_ok(grammar_new(&g, &r, 1, &err), &err);
    t_fails(grammar_sample(g, &rng, &text, &err), &err, DS_EFORMAT, "unset variable");
    grammar_free(g);
    r.alt = loop;
    t_ok(grammar_new(&g, &r, 1, &err), &err);
    t_fails(grammar_sample(g, &rng, &text, &err), &err, DS_EFORMAT, "nests");
    grammar_free(g);
    str_release(&text);
}

T(stories_are_reproducible_and_differ)
{
    struct str a = {0}, b = {0}, c = {0};
    float *h = NULL;
    t_ok(synth_story(7, 3, &a, &h, NULL, &err), &err);
    t_ok(synth_story(7, 3, &b, NULL, NULL, &err), &err);
    t_ok(synth_story(8, 3, &c, NULL, NULL, &err), &err);
    t_str(a.p, b.p);
    t_true(strcmp(a.p, c.p) != 0);
    mem_free(h);
    str_release(&a);
    str_release(&b);
    str_release(&c);
}

/* An ideal reader pays on average exactly what it expects to pay. */
T(mean_surprisal_equals_mean_entropy)
{
    enum { STORIES = 1500 };
    struct grammar *g = NULL;
    double sum = 0, squares = 0, total_h = 0, bytes = 0;
    size_t longest = 0;
    t_ok(grammar_new(&g, synth_rules, synth_rules_n, &err), &err);
    for (int i = 0; i < STORIES; i++) {
        struct str text = {0};
        float *h = NULL, *s = NULL;
        double gap = 0;
        t_ok(synth_story_of(g, 11, (uint64_t)i, &text, &h, &s, &err), &err);
        for (size_t k = 0; k <= text.len; k++) {
            t_true(h[k] >= 0 && s[k] >= 0 && isfinite(s[k]));
            t_true(k == text.len || (text.p[k] > 0 && text.p[k] < 127));
            gap += (double)s[k] - (double)h[k];
            total_h += (double)h[k];
        }
        sum += gap;
        squares += gap * gap;
        bytes += (double)text.len;
        longest = text.len > longest ? text.len : longest;
        mem_free(h);
        mem_free(s);
        str_release(&text);
    }
    double mean = sum / STORIES, sd = sqrt(squares / STORIES - mean * mean);
    printf("%.1f nats a story, %.0f bytes, %.3f nats a byte; surprisal - entropy = %.3f +- %.3f\n",
           total_h / STORIES, bytes / STORIES, total_h / bytes, mean, sd / sqrt(STORIES));
    t_near(mean, 0, 4 * sd / sqrt(STORIES));
    t_true(longest <= SYNTH_STORY_MAX);
    t_true(total_h / STORIES > 40 && bytes / STORIES > 500 && bytes / STORIES < 1700);
    grammar_free(g);
}

T(what_was_said_before_costs_nothing_again)
{
    struct grammar *g = NULL;
    int seen = 0;
    t_ok(grammar_new(&g, synth_rules, synth_rules_n, &err), &err);
    for (uint64_t i = 0; i < 200; i++) {
        struct str text = {0};
        float *h = NULL;
        t_ok(synth_story_of(g, 2, i, &text, &h, NULL, &err), &err);
        char *back = strstr(text.p, "them backwards: ");
        for (size_t k = 0; back && back[k + 2] != '.'; k++, seen++)
            if (k >= 12)
                t_near(h[back - text.p + (ptrdiff_t)k], 0, 0);
        mem_free(h);
        str_release(&text);
    }
    t_true(seen > 0);
    grammar_free(g);
}
