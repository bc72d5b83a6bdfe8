/* gsm8k: grade-school math word problems answered in free text (Cobbe et al. 2021), and gsm8k_cot:
 * the same after eight fixed worked examples (Wei et al. 2022). */
#include <string.h>

#include "eval/task_impl.h"

static int add_row(struct task_doc *d, const struct json_node *row, const char *where,
                   struct err *e)
{
    const char *question, *answer;
    struct str query = {0};
    int rc = task_text(&question, row, "question", where, e);
    if (rc == 0)
        rc = task_text(&answer, row, "answer", where, e);
    if (rc < 0)
        return rc;
    str_addf(&query, "Question: %s\nAnswer:", question);
    rc = task_take(&d->query, &query, e);
    return rc == 0 ? task_set(&d->target, answer, e) : rc;
}

static int read_gsm8k(struct task_parts *out, const struct task *t, const struct task_env *env,
                      struct err *e)
{
    static const char *const asked[] = {"test.jsonl", NULL}, *const shots[] = {"train.jsonl", NULL};
    return task_read_splits(out, t, env, asked, shots, add_row, e);
}

static size_t span(const char *s, const char *of)
{
    return strspn(s, of);
}

/* ---- answers ---- */

/* First match of  #### (\-?[0-9\.\,]+) */
static void strict(struct str *out, const char *text)
{
    for (const char *p = text; (p = strstr(p, "#### ")) != NULL; p++) {
        const char *number = p + 5;
        size_t sign = *number == '-', n = span(number + sign, "0123456789.,");
        if (n > 0) {
            str_add_bytes(out, number, sign + n);
            return;
        }
    }
    str_add(out, "[invalid]");
}

/* First match of  The answer is (\-?[0-9\.\,]+).  : the final dot matches any character, even one
 * of the number's own. */
static void strict_cot(struct str *out, const char *text)
{
    static const char before[] = "The answer is ";
    for (const char *p = text; (p = strstr(p, before)) != NULL; p++) {
        const char *number = p + sizeof before - 1;
        size_t sign = *number == '-', n = span(number + sign, "0123456789.,");
        char next = number[sign + n];
        n -= n > 0 && (next == '\0' || next == '\n');
        if (n > 0) {
            str_add_bytes(out, number, sign + n);
            return;
        }
    }
    str_add(out, "[invalid]");
}

/* Last match of  (-?[$0-9.,]{2,})|(-?[0-9]+) */
static void flexible(struct str *out, const char *text)
{
    const char *found = NULL;
    size_t length = 0;
    for (const char *p = text; *p;) {
        size_t sign = *p == '-', wide = span(p + sign, "$0123456789.,"),
               digits = span(p + sign, "0123456789"), n = wide >= 2 ? wide : digits;
        if (n == 0) {
            p++;
            continue;
        }
        found = p;
        length = sign + n;
        p += length;
    }
    if (found)
        str_add_bytes(out, found, length);
    else
        str_add(out, "[invalid]");
}

/* Drops commas, dollar signs, everything up to the last "#### " and a final full stop, and
 * lower-cases the rest. */
static void normalise(struct str *s)
{
    struct str out = {0};
    const char *p = str_text(s), *hit;
    task_replace(s, ",", "");
    task_replace(s, "$", "");
    for (p = str_text(s); (hit = strstr(p, "#### ")) != NULL;)
        p = hit + 5;
    size_t n = strlen(p);
    size_t stop =
        n > 0 && p[n - 1] == '\n' ? n - 1 : n; /* Python's $ also matches before a final newline */
    for (size_t i = 0; i < n; i++)
        if (!(i + 1 == stop && p[i] == '.'))
            str_add_char(&out, (char)(p[i] >= 'A' && p[i] <= 'Z' ? p[i] + 32 : p[i]));
    out.failed |= s->failed;
    str_release(s);
    *s = out;
}

typedef void filter_fn(struct str *out, const char *text);

static int judge_by(filter_fn *first, const struct task_doc *d, const struct task_answer *a,
                    struct task_value out[TASK_METRICS_MAX])
{
    filter_fn *const filter[2] = {first, flexible};
    struct str want = {0};
    int failed = 0;
    str_add(&want, d->target);
    normalise(&want);
    for (int k = 0; k < 2; k++) {
        struct str got = {0};
        filter[k](&got, a->text);
        normalise(&got);
        out[k] = (struct task_value){strcmp(str_text(&got), str_text(&want)) == 0, 1};
        failed |= got.failed;
        str_release(&got);
    }
    failed |= want.failed;
    str_release(&want);
    return failed ? DS_EMEM : 0;
}

static int judge(const struct task_doc *d, const struct task_answer *a,
                 struct task_value out[TASK_METRICS_MAX])
{
    return judge_by(strict, d, a, out);
}

static int judge_cot(const struct task_doc *d, const struct task_answer *a,
                     struct task_value out[TASK_METRICS_MAX])
{
    return judge_by(strict_cot, d, a, out);
}

/* ---- worked examples ---- */

static const struct {
    const char *question, *answer;
} worked[] = {
    // clang-format off
    {"There are 15 trees in the grove. Grove workers will plant trees in the grove "
     "today. After they are done, there will be 21 trees. How many trees did the grove"
     " workers plant today?",
     "There are 15 trees originally. Then there were 21 trees after some more were "
     "planted. So there must have been 21 - 15 = 6. The answer is 6."},
    {"If there are 3 cars in the parking lot and 2 more cars arrive, how many cars are"
     " in the parking lot?",
     "There are originally 3 cars. 2 more cars arrive. 3 + 2 = 5. The answer is 5."},
    {"Leah had 32 chocolates and her sister had 42. If they ate 35, how many pieces do"
     " they have left in total?",
     "Originally, Leah had 32 chocolates. Her sister had 42. So in total they had 32 +"
     " 42 = 74. After eating 35, they had 74 - 35 = 39. The answer is 39."},
    {"Jason had 20 lollipops. He gave Denny some lollipops. Now Jason has 12 "
     "lollipops. How many lollipops did Jason give to Denny?",
     "Jason started with 20 lollipops. Then he had 12 after giving some to Denny. So "
     "he gave Denny 20 - 12 = 8. The answer is 8."},
    {"Shawn has five toys. For Christmas, he got two toys each from his mom and dad. "
     "How many toys does he have now?",
     "Shawn started with 5 toys. If he got 2 toys each from his mom and dad, then that"
     " is 4 more toys. 5 + 4 = 9. The answer is 9."},
    {"There were nine computers in the server room. Five more computers were installed"
     " each day, from monday to thursday. How many computers are now in the server "
     "room?",
     "There were originally 9 computers. For each of 4 days, 5 more computers were "
     "added. So 5 * 4 = 20 computers were added. 9 + 20 is 29. The answer is 29."},
    {"Michael had 58 golf balls. On tuesday, he lost 23 golf balls. On wednesday, he "
     "lost 2 more. How many golf balls did he have at the end of wednesday?",
     "Michael started with 58 golf balls. After losing 23 on tuesday, he had 58 - 23 ="
     " 35. After losing 2 more, he had 35 - 2 = 33 golf balls. The answer is 33."},
    {"Olivia has $23. She bought five bagels for $3 each. How much money does she have"
     " left?",
     "Olivia had 23 dollars. 5 bagels for 3 dollars each will be 5 x 3 = 15 dollars. "
     "So she has 23 - 15 dollars left. 23 - 15 is 8. The answer is 8."},
    // clang-format on
};

static int set_cot(struct task_doc *d, const char *question, const char *answer, struct err *e)
{
    struct str query = {0};
    str_addf(&query, "Q: %s\nA:", question);
    int rc = task_take(&d->query, &query, e);
    return rc == 0 ? task_set(&d->target, answer, e) : rc;
}

/* The target is the text after the last "####". */
static int add_row_cot(struct task_doc *d, const struct json_node *row, const char *where,
                       struct err *e)
{
    const char *question, *answer, *hit;
    struct str target = {0};
    int rc = task_text(&question, row, "question", where, e);
    if (rc == 0)
        rc = task_text(&answer, row, "answer", where, e);
    if (rc == 0)
        rc = set_cot(d, question, "", e);
    if (rc < 0)
        return rc;
    while ((hit = strstr(answer, "####")) != NULL)
        answer = hit + 4;
    size_t from = 0, to = strlen(answer);
    task_strip(answer, &from, &to);
    str_add_bytes(&target, answer + from, to - from);
    return task_take(&d->target, &target, e);
}

static int read_cot(struct task_parts *out, const struct task *t, const struct task_env *env,
                    struct err *e)
{
    static const char *const asked[] = {"test.jsonl", NULL};
    struct task_env test = *env;
    test.has_shots = 0;
    int rc = task_read_splits(out, t, &test, asked, NULL, add_row_cot, e);
    for (size_t i = 0; i < sizeof worked / sizeof *worked && rc == 0; i++) {
        struct task_doc *d = task_add_doc(&out->v[0].shots);
        rc = d ? set_cot(d, worked[i].question, worked[i].answer, e)
               : err_set(e, DS_EMEM, "out of memory for documents");
    }
    return rc;
}

static const char *const until_cot[] = {"Q:", "</s>", "<|im_end|>", NULL};
static const char *const until[] = {"Question:", "</s>", "<|im_end|>", NULL};
static const struct task_metric metrics[] = {{"exact_match", "strict-match", TASK_MEAN, 1},
                                             {"exact_match", "flexible-extract", TASK_MEAN, 1}};
const struct task task_gsm8k = {
    .name = "gsm8k",
    .summary = "grade-school math word problems, answered in free text",
    .source = "test.jsonl, and train.jsonl for shots, of openai/grade-school-math",
    .output_type = "generate_until",
    .kind = TASK_GENERATE,
    .shots = 5,
    .version = 3,
    .until = until,
    .metrics = metrics,
    .n_metrics = 2,
    .read = read_gsm8k,
    .judge = judge,
};
const struct task task_gsm8k_cot = {
    .name = "gsm8k_cot",
    .summary = "the same after eight worked examples",
    .source = "test.jsonl of openai/grade-school-math",
    .output_type = "generate_until",
    .kind = TASK_GENERATE,
    .shots = sizeof worked / sizeof *worked,
    .takes_first_shots = 1,
    .version = 3,
    .until = until_cot,
    .metrics = metrics,
    .n_metrics = 2,
    .read = read_cot,
    .judge = judge_cot,
};
