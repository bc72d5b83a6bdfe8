/* Text functions that match Python's str methods, and the scoring of choices. */
#include <math.h>
#include <string.h>

#include "base/utf8.h"
#include "eval/task_impl.h"

static int is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
           c == 0x202f || c == 0x205f || c == 0x3000;
}

size_t task_space(const char *s, size_t n)
{
    uint32_t c;
    int k = utf8_decode(s, n, &c);
    return k > 0 && is_space(c) ? (size_t)k : 0;
}

void task_strip(const char *s, size_t *from, size_t *to)
{
    for (size_t k; *from < *to && (k = task_space(s + *from, *to - *from)) > 0;)
        *from += k;
    while (*to > *from) {
        size_t at = *to - 1;
        while (at > *from && ((unsigned char)s[at] & 0xc0) == 0x80)
            at--;
        if (task_space(s + at, *to - at) != *to - at)
            break;
        *to = at;
    }
}

void task_replace(struct str *s, const char *find, const char *put)
{
    struct str out = {0};
    size_t n = strlen(find);
    const char *p = str_text(s), *hit;
    for (; (hit = strstr(p, find)) != NULL; p = hit + n) {
        str_add_bytes(&out, p, (size_t)(hit - p));
        str_add(&out, put);
    }
    str_add(&out, p);
    out.failed |= s->failed;
    str_release(s);
    *s = out;
}

const struct task_metric task_choice_metrics[3] = {{"acc", "none", TASK_MEAN, 1},
                                                   {"acc_norm", "none", TASK_MEAN, 1},
                                                   {"acc_bytes", "none", TASK_MEAN, 1}};

static double characters(const char *s)
{
    double n = 0;
    for (; *s; s++)
        n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

/* Index of the first maximum. */
static int best(const double *x, int n)
{
    int b = 0;
    for (int i = 1; i < n; i++)
        b = x[i] > x[b] ? i : b;
    return b;
}

int task_judge_choices(const struct task_doc *d, const struct task_answer *a,
                       struct task_value out[TASK_METRICS_MAX])
{
    double by_characters[TASK_CHOICES_MAX], by_bytes[TASK_CHOICES_MAX];
    for (int k = 0; k < d->choices; k++) {
        int empty = d->choice[k][0] == '\0';
        by_characters[k] = empty ? (double)-INFINITY : a->ll[k] / characters(d->choice[k]);
        by_bytes[k] = empty ? (double)-INFINITY : a->ll[k] / (double)strlen(d->choice[k]);
    }
    out[0] = (struct task_value){best(a->ll, d->choices) == d->gold, 1};
    out[1] = (struct task_value){best(by_characters, d->choices) == d->gold, 1};
    out[2] = (struct task_value){best(by_bytes, d->choices) == d->gold, 1};
    return 0;
}
