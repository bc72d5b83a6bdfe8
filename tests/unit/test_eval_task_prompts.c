/* Prompts equal those that the harness makes from the same files. */
#include "base/fs.h"
#include "base/json.h"
#include "base/mt19937.h"
#include "eval/task.h"
#include "t.h"

static void check_item(const struct json_node *x, const struct task_set *s)
{
    struct err e = {0};
    struct mt19937 random;
    struct str prompt = {0};
    const struct task_part *p = &s->parts.v[0];
    size_t doc = (size_t)json_int(json_get(x, "doc"), 0);
    mt19937_init(&random, TASK_SHOTS_SEED);
    for (size_t i = 0; i <= doc; i++)
        t_ok(task_prompt(&prompt, s, p, &p->asked.v[i], &random, &e), &e);
    t_str(str_text(&prompt), json_str(json_get(x, "context"), NULL));
    const struct json_node *c = json_get(x, "continuations");
    const struct task_doc *d = &p->asked.v[doc];
    if (c) {
        t_eq(d->choices, json_len(c));
        t_eq(d->gold, json_int(json_get(x, "gold"), -1));
        for (int k = 0; k < d->choices; k++)
            t_str(d->choice[k], json_str(json_at(c, (size_t)k), NULL) + 1);
    } else
        t_str(d->target, json_str(json_get(x, "gold"), NULL));
    str_release(&prompt);
}

T(prompts_equal_the_rendered_ones)
{
    struct err e = {0};
    struct json *j = NULL;
    char golden[1024], mmlu[1024], arc[1024], gsm8k[1024];
    snprintf(golden, sizeof golden, "%s", t_shared("derived/golden/lm_eval_contexts.json"));
    snprintf(arc, sizeof arc, "%s", t_shared("derived/arc_challenge"));
    snprintf(mmlu, sizeof mmlu, "%s", t_shared("eval/mmlu"));
    snprintf(gsm8k, sizeof gsm8k, "%s", t_shared("eval/gsm8k"));
    t_ok(json_read_file(&j, golden, 1 << 24, &e), &e);
    size_t n = json_len(json_root(j));
    t_true(n >= 12);
    for (size_t i = 0; i < n; i++) {
        const struct json_node *x = json_at(json_root(j), i);
        const char *task = json_str(json_get(x, "task"), NULL);
        struct task_options o = {.name = task,
                                 .path = task[0] == 'm'   ? mmlu
                                         : task[0] == 'a' ? arc
                                                          : gsm8k,
                                 .shots = json_int(json_get(x, "num_fewshot"), -1)};
        struct task_set s;
        t_ok(task_set_open(&s, &o, &e), &e);
        check_item(x, &s);
        task_set_close(&s);
    }
    json_free(j);
}

T(all_of_mmlu_is_read)
{
    struct err e = {0};
    struct task_set s;
    size_t asked = 0;
    struct task_options o = {.name = "mmlu", .path = t_shared("eval/mmlu"), .shots = -1};
    t_ok(task_set_open(&s, &o, &e), &e);
    t_eq(s.parts.n, 57);
    for (size_t i = 0; i < s.parts.n; i++) {
        asked += s.parts.v[i].asked.n;
        t_eq(s.parts.v[i].shots.n, 5);
    }
    t_eq(asked, 14042);
    task_set_close(&s);
}
