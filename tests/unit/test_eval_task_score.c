/* The model that tasks ask: scores of choices, of text and of whole texts, and what they cost. */
#include <ctype.h>

#include "../kit.h"
#include "base/mem.h"
#include "data/tokenizer/pieces.h"
#include "eval/task.h"
#include "eval/tasks/task_score.h"

enum { MAX_SEQ = 96, LONG_SEQ = 640, V = 257 };

static struct subject subject_of(const char *method, int max_seq)
{
    char keys[256];
    struct subject s = {0};
    struct err e = {0};
    snprintf(keys, sizeof keys,
             "model.layers=5 model.dim=16 model.heads=2 model.vocab=%d model.max_seq=%d "
             "model.init_std=0.3 model.method=%s",
             V, max_seq, method);
    s.model = kit_model(keys, 7, max_seq, 0, 0);
    kit_shake(s.model, 0.1, 3);
    t_ok(tokenizer_new_bytes(&s.tokenizer, &e), &e);
    str_copy(s.dir, sizeof s.dir, "a model");
    return s;
}

static struct subject subject(const char *method)
{
    return subject_of(method, MAX_SEQ);
}

static struct task_options options(const char *name, const char *path)
{
    return (struct task_options){
        .name = name, .path = path, .results = "", .shots = -1, .max_gen = 24, .capacity = -1};
}

/* Sum of log-probabilities of the last n bytes of text, by one whole pass; the cells its plans ran, and the depth where each
 * of these bytes was predicted. */
static double whole(struct subject *s, const char *text, size_t n, double *run, double *depth)
{
    struct model *m = s->model;
    int32_t id[LONG_SEQ + 1], T = (int32_t)strlen(text) - 1;
    double ll = 0;
    struct pass pass = {.kind = PASS_SPARSE};
    for (int32_t i = 0; i <= T; i++)
        id[i] = (unsigned char)text[i];
    struct batch b = {.B = 1, .T = T, .id = id, .target = id + 1};
    model_forward(m, &b, &pass);
    model_loss(m, 0, 0);
    *run = *depth = 0;
    for (int l = 0; l < m->config.layers; l++)
        for (int i = 0; i < model_plan(m, l)->n; i++)
            if (model_plan(m, l)->gate[i] != 0) {
                *run += 1;
                *depth += model_plan(m, l)->row[i] >= T - (int32_t)n;
            }
    for (int32_t i = T - (int32_t)n; i < T; i++)
        ll -= (double)m->nll[i];
    m->batch = NULL;
    return ll;
}

static struct task_doc doc_of(char *a, char *b)
{
    return (struct task_doc){.choice = {a, b}, .choices = b ? 2 : 1};
}

/* ---- scoring ---- */

static void check_method(const char *method)
{
    struct subject s = subject(method);
    struct scorer *c = NULL;
    struct err e = {0};
    struct task_options o = options("piqa", "");
    struct task_answer a, alone;
    struct task_cost cost = {0}, other = {0};
    char sheep[] = "sheep", wool[] = "wool and more";
    struct task_doc one = doc_of(sheep, NULL), two = doc_of(wool, sheep);
    double run, depth;
    if (scorer_open(&c, &s, &o, &e) < 0) { /* what has to be calibrated */
        subject_close(&s);
        return;
    }
    t_ok(scorer_choices(c, "A question: what eats grass?", &one, &alone, &cost, &e), &e);
    double want = whole(&s, "A question: what eats grass? sheep", 6, &run, &depth);
    t_near(alone.ll[0], want, 2e-3);
    t_truef(cost.run == run, "%s: %g cells were counted, the plans ran %g", method, cost.run, run);
    t_eq(cost.tokens, 33);
    t_eq(cost.cells, 33 * 5);
    t_eq(cost.scored, 6);
    t_eq(cost.scored_depth, depth);
    t_near(task_depth(&cost, 5), run / 33, 1e-12);
    t_ok(scorer_choices(c, "A question: what eats grass?", &two, &a, &other, &e), &e);
    t_near(a.ll[1], alone.ll[0], 1e-4); /* whatever was scored before it */
    t_eq(other.tokens, 33 + 13);
    scorer_close(c);
    subject_close(&s);
}

T(choices_are_scored_as_by_whole_passes_and_cost_what_their_plans_ran)
{
    int methods = 0;
    for (size_t i = 0; route_all()[i]; i++, methods++)
        check_method(route_all()[i]->name);
    t_true(methods > 5);
}

/* Its ids are fed in several chunks. */
T(a_choice_of_hundreds_of_tokens_is_scored_as_by_a_whole_pass)
{
    struct subject s = subject_of("edp", LONG_SEQ);
    struct scorer *c = NULL;
    struct err e = {0};
    struct task_options o = options("piqa", "");
    struct task_answer a;
    struct task_cost cost = {0};
    char choice[601], text[LONG_SEQ];
    struct task_doc d = doc_of(choice, NULL);
    double run, depth;
    for (int i = 0; i < 600; i++)
        choice[i] = (char)('a' + i * i % 23);
    choice[600] = '\0';
    snprintf(text, sizeof text, "What? %s", choice);
    t_ok(scorer_open(&c, &s, &o, &e), &e);
    t_ok(scorer_choices(c, "What?", &d, &a, &cost, &e), &e);
    double want = whole(&s, text, 601, &run, &depth);
    t_near(a.ll[0], want, 1e-5 * -want);
    t_eq(cost.scored_depth, depth);
    scorer_close(c);
    subject_close(&s);
}

T(a_routed_model_runs_less_than_a_dense_one_and_dense_routing_says_so)
{
    struct subject s = subject("random");
    struct scorer *c = NULL;
    struct err e = {0};
    struct task_options o = options("piqa", "");
    struct task_answer a;
    struct task_cost routed = {0}, dense = {0};
    char x[] = "x";
    struct task_doc d = doc_of(x, NULL);
    t_ok(scorer_open(&c, &s, &o, &e), &e);
    t_ok(scorer_choices(c, "Which letter?", &d, &a, &routed, &e), &e);
    scorer_close(c);
    o.is_dense = 1;
    t_ok(scorer_open(&c, &s, &o, &e), &e);
    t_ok(scorer_choices(c, "Which letter?", &d, &a, &dense, &e), &e);
    scorer_close(c);
    t_true(task_block_ratio(&routed) < 0.95 && task_flops_ratio(&routed) < 1);
    t_eq(task_block_ratio(&dense), 1);
    t_near(task_depth(&dense, 5), 5, 0);
    t_near(task_flops_ratio(&dense), 1, 1e-9);
    subject_close(&s);
}

T(what_is_too_long_is_truncated_from_the_left)
{
    struct subject s = subject("edp");
    struct scorer *c = NULL;
    struct err e = {0};
    struct task_options o = options("piqa", "");
    struct task_answer a;
    struct task_cost cost = {0};
    char prompt[200], yes[] = "yes", so[] = "quite so", longer[40];
    struct task_doc d = doc_of(yes, so), over = doc_of(longer, NULL);
    double run, depth;
    o.seq = 32;
    memset(prompt, '.', sizeof prompt);
    snprintf(prompt + 100, 100, "and the end of it is a question?");
    prompt[100 + 32] = '\0';
    t_ok(scorer_open(&c, &s, &o, &e), &e);
    t_ok(scorer_choices(c, prompt, &d, &a, &cost, &e), &e);
    char text[256]; /* 32 ids go in, and the last is predicted */
    snprintf(text, sizeof text, "%s yes", prompt + 132 - (33 - 4));
    t_near(a.ll[0], whole(&s, text, 4, &run, &depth), 2e-3);
    snprintf(text, sizeof text, "%s quite so", prompt + 132 - (33 - 9));
    t_near(a.ll[1], whole(&s, text, 9, &run, &depth), 2e-3);
    memset(longer, 'x', 39);
    longer[39] = '\0';
    t_fails(scorer_choices(c, "So?", &over, &a, &cost, &e), &e, DS_ERANGE,
            "40 tokens, must be at most 32");
    scorer_close(c);
    subject_close(&s);
}

T(an_empty_prompt_begins_with_the_end_of_text)
{
    struct subject s = subject("dense");
    struct scorer *c = NULL;
    struct err e = {0};
    struct task_options o = options("piqa", "");
    struct task_answer a, blank;
    struct task_cost cost = {0};
    char x[] = "ab";
    struct task_doc d = doc_of(x, NULL);
    t_ok(scorer_open(&c, &s, &o, &e), &e);
    t_ok(scorer_choices(c, "", &d, &a, &cost, &e), &e);
    t_eq(cost.scored, 3); /* " ab" */
    t_eq(cost.tokens, 3);
    t_true(a.ll[0] < 0);
    t_ok(scorer_choices(c, "Q: \n", &d, &a, &cost, &e), &e); /* its blanks are scored too */
    t_ok(scorer_choices(c, "Q:", &d, &blank, &cost, &e), &e);
    t_true(a.ll[0] < blank.ll[0] - 1);
    scorer_close(c);
    subject_close(&s);
}

T(the_greedy_flag_is_of_the_most_likely_tokens_alone)
{
    struct subject s = subject("dense");
    struct scorer *c = NULL;
    struct err e = {0};
    struct task_options o = options("piqa", "");
    struct task_answer a;
    struct task_cost cost = {0};
    char prompt[3] = "", none[] = "", more[] = "~!";
    struct task_doc d = doc_of(none, more);
    int32_t next = 0;
    for (int i = 33; i < 127 && next != ' '; i++)
        for (int k = 33; k < 127 && next != ' '; k++) {
            kit_generate(s.model, (int32_t[]){i, k}, 2, &next, 1);
            snprintf(prompt, sizeof prompt, "%c%c", i, k);
        }
    t_truef(next == ' ', "no prompt is followed by a blank");
    t_ok(scorer_open(&c, &s, &o, &e), &e);
    t_ok(scorer_choices(c, prompt, &d, &a, &cost, &e), &e);
    t_eq(a.greedy[0], 1); /* " " alone */
    t_eq(a.greedy[1], 0);
    t_ok(scorer_choices(c, "a", &d, &a, &cost, &e), &e);
    kit_generate(s.model, (int32_t[]){'a'}, 1, &next, 1);
    t_eq(a.greedy[0], next == ' ');
    scorer_close(c);
    subject_close(&s);
}

static void check_shared(const char *method)
{
    static const char begin[] = "Some words that every question here begins with. ";
    static const char *const ask[] = {"What eats grass?", "Who", "What eats grass?"};
    struct subject s = subject(method);
    struct scorer *c = NULL;
    struct err e = {0};
    struct task_options o = options("piqa", "");
    struct task_answer alone[3], shared[3];
    struct task_cost before[3] = {{0}}, after[3] = {{0}};
    char sheep[] = "sheep", wool[] = "wool and";
    struct task_doc d = doc_of(wool, sheep);
    char prompt[MAX_SEQ];
    double ll;
    if (scorer_open(&c, &s, &o, &e) < 0) { /* what has to be calibrated */
        subject_close(&s);
        return;
    }
    for (int on = 0; on < 2; on++) {
        t_ok(scorer_share(c, on ? begin : "", &e), &e);
        for (int i = 0; i < 3; i++) {
            snprintf(prompt, sizeof prompt, "%s%s", begin, ask[i]);
            t_ok(scorer_choices(c, prompt, &d, on ? &shared[i] : &alone[i],
                                on ? &after[i] : &before[i], &e),
                 &e);
            if (i == 1) /* another text in between, and another beginning */
                t_ok(scorer_rolling(c, "Hm.", &ll, &(struct task_cost){0}, &e), &e);
        }
        t_ok(scorer_choices(c, "So?", &d, &(struct task_answer){{0}, {0}, NULL},
                            &(struct task_cost){0}, &e),
             &e);
    }
    for (int i = 0; i < 3; i++) {
        t_near(shared[i].ll[0], alone[i].ll[0], 1e-4);
        t_near(shared[i].ll[1], alone[i].ll[1], 1e-4);
        t_truef(before[i].run == after[i].run && before[i].tokens == after[i].tokens &&
                    before[i].scored_depth == after[i].scored_depth,
                "%s: %g cells, and %g when shared", method, before[i].run, after[i].run);
    }
    t_true(memcmp(&after[0], &after[2], sizeof after[0]) == 0 &&
           shared[0].ll[1] == shared[2].ll[1]);
    scorer_close(c);
    subject_close(&s);
}

T(what_prompts_share_is_run_once_and_changes_no_score)
{
    for (size_t i = 0; route_all()[i]; i++)
        check_shared(route_all()[i]->name);
}

/* ---- text ---- */

/* The model's own ids count here as well as the tokenizer's, as in lm-evaluation-harness. */
T(text_ends_at_the_ids_of_the_model)
{
    static const char *const none[] = {NULL};
    struct subject s = subject("edp");
    struct scorer *c = NULL;
    struct err e = {0};
    struct task_options o = options("gsm8k", "");
    struct str all = {0}, cut = {0};
    struct task_cost cost = {0}, less = {0};
    size_t at = 0;
    t_ok(scorer_open(&c, &s, &o, &e), &e);
    t_ok(scorer_text(c, "A:", none, &all, &cost, &e), &e);
    unsigned char last = (unsigned char)all.p[all.len - 1];
    while ((unsigned char)all.p[at] != last)
        at++;
    t_eq(model_config_add_eos(&s.model->config, last), 0);
    t_ok(scorer_text(c, "A:", none, &cut, &less, &e), &e);
    t_eq(cut.len, at);
    t_true(memcmp(cut.p, all.p, cut.len) == 0 && less.scored < cost.scored);
    scorer_close(c);
    str_release(&all);
    str_release(&cut);
    subject_close(&s);
}

/* Gives the end-of-text token the text of two letters that the model writes after *prompt; returns
 * where they begin. */
static size_t spell_end(struct subject *s, struct scorer *c, char prompt[3])
{
    static const char *const none[] = {NULL};
    struct str all = {0};
    struct tokenizer_parts p = {0};
    struct task_cost cost = {0};
    struct err e = {0};
    size_t at = SIZE_MAX;
    for (; at == SIZE_MAX && prompt[0] <= 'Z'; prompt[0] += at == SIZE_MAX) {
        t_ok(scorer_text(c, prompt, none, &all, &cost, &e), &e);
        for (size_t i = 2; i + 1 < all.len && at == SIZE_MAX; i++)
            at = isgraph((unsigned char)all.p[i]) && isgraph((unsigned char)all.p[i + 1]) &&
                         strstr(all.p, (char[]){all.p[i], all.p[i + 1], 0}) == all.p + i
                     ? i
                     : SIZE_MAX;
    }
    t_true(at != SIZE_MAX);
    t_ok(tokenizer_parts(&p, s->tokenizer, &e), &e);
    tokenizer_free(s->tokenizer);
    p.token[V - 1].text = all.p + at;
    p.token[V - 1].n = 2;
    t_ok(tokenizer_from_parts(&s->tokenizer, &p, "parts", &e), &e);
    tokenizer_parts_release(&p);
    str_release(&all);
    return at;
}

/* As ordinary tokens; lm-evaluation-harness adds it to the stop strings. */
T(text_ends_where_the_model_spells_the_end_of_text)
{
    static const char *const none[] = {NULL};
    struct subject s = subject("edp");
    struct scorer *c = NULL;
    struct err e = {0};
    struct task_options o = options("gsm8k", "");
    struct str cut = {0};
    struct task_cost cost = {0};
    char prompt[3] = "A:";
    t_ok(scorer_open(&c, &s, &o, &e), &e);
    size_t at = spell_end(&s, c, prompt);
    t_ok(scorer_text(c, prompt, none, &cut, &cost, &e), &e);
    t_eq(cut.len, at);
    t_eq(cost.scored, at + 2);
    scorer_close(c);
    str_release(&cut);
    subject_close(&s);
}

T(text_ends_before_a_stop_string_and_is_greedy)
{
    static const char *const none[] = {NULL};
    struct subject s = subject("edp");
    struct scorer *c = NULL;
    struct err e = {0};
    struct task_options o = options("gsm8k", "");
    struct str all = {0}, cut = {0};
    struct task_cost cost = {0}, less = {0};
    const int32_t prompt[] = {'A', ':'};
    int32_t want[24];
    char stop[3];
    kit_generate(s.model, prompt, 2, want, 24);
    t_ok(scorer_open(&c, &s, &o, &e), &e);
    t_ok(scorer_text(c, "A:", none, &all, &cost, &e), &e);
    t_true(all.len > 4 && all.len <= 24);
    for (size_t i = 0; i < all.len; i++)
        t_eq((unsigned char)all.p[i], want[i]);
    t_eq(cost.scored, all.len);
    memcpy(stop, all.p + 3, 2);
    stop[2] = '\0';
    const char *const until[] = {"nothing like it", stop, NULL};
    t_ok(scorer_text(c, "A:", until, &cut, &less, &e), &e);
    t_eq(cut.len, strstr(all.p, stop) - all.p);
    t_true(memcmp(cut.p, all.p, cut.len) == 0 && less.scored < cost.scored);
    scorer_close(c);
    o.max_gen = MAX_SEQ;
    t_ok(scorer_open(&c, &s, &o, &e), &e);
    t_fails(scorer_text(c, "A:", none, &all, &cost, &e), &e, DS_ERANGE, "max_gen=96");
    scorer_close(c);
    str_release(&all);
    str_release(&cut);
    subject_close(&s);
}

/* Windows as the harness makes them, written out. */
T(a_whole_text_is_predicted_once_in_windows)
{
    struct subject s = subject("edp");
    struct scorer *c = NULL;
    struct err e = {0};
    struct task_options o = options("wikitext", "");
    struct task_cost cost = {0};
    const char *text = "Twenty bytes of text"; /* L = 8: 8 after the prefix, 8, 4 */
    const char *first = "Twenty b", *second = "bytes of ", *third = "es of text";
    double ll, run, depth, want;
    o.seq = 8;
    t_ok(scorer_open(&c, &s, &o, &e), &e);
    t_ok(scorer_rolling(c, text, &ll, &cost, &e), &e);
    t_eq(cost.scored, 20);
    t_eq(cost.tokens, 8 + 8 + 8);
    t_ok(scorer_rolling(c, first, &want, &(struct task_cost){0}, &e), &e);
    want += whole(&s, second, 8, &run, &depth);
    want += whole(&s, third + 1, 4, &run, &depth); /* what still fits is in front of the last */
    t_near(ll, want, 2e-3);
    scorer_close(c);
    subject_close(&s);
}
