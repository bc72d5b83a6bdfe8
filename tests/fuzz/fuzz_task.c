/* First byte: the task, or a results file; the rest: its data file.  Documents are evaluated and scored. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/mt19937.h"
#include "eval/tasks/task_log.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void put(const char *path, const uint8_t *data, size_t size)
{
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, size, f) != size || fclose(f) != 0)
        abort();
}

static void use(const struct task_set *s, const struct task_part *p, const struct task_doc *d)
{
    struct err e = {0};
    struct mt19937 random;
    struct str prompt = {0};
    struct task_value v[TASK_METRICS_MAX];
    struct task_answer a = {.text = d->query};
    mt19937_init(&random, TASK_SHOTS_SEED);
    if (task_prompt(&prompt, s, p, d, &random, &e) < 0 || d->choices > TASK_CHOICES_MAX)
        abort();
    if (s->task->kind == TASK_CHOICE && (d->gold < 0 || d->gold >= d->choices))
        abort();
    s->task->judge(d, &a, v);
    str_release(&prompt);
}

static void read_task(const char *name, const char *path)
{
    struct err e = {0};
    struct task_set s;
    struct task_options o = {.name = name, .path = path, .results = ""};
    if (task_set_open(&s, &o, &e) < 0) {
        BUG_IF(!e.text[0] || strchr(e.text, '\n'), "not one line");
        return;
    }
    for (size_t i = 0; i < s.parts.n; i++)
        for (size_t k = 0; k < s.parts.v[i].asked.n; k++)
            use(&s, &s.parts.v[i], &s.parts.v[i].asked.v[k]);
    task_set_close(&s);
}

static void read_results(const char *path)
{
    struct err e = {0};
    struct task_log *l = NULL;
    struct task_done x;
    if (task_log_open(&l, path, "piqa", &e) < 0)
        return;
    (void)!task_log_get(l, "piqa", 0, 1, &x, &e);
    task_log_close(l);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char dir[] = "/tmp/ds-fuzz-XXXXXX", test[64], path[128];
    size_t tasks = 0;
    if (size == 0 || !mkdtemp(dir))
        return 0;
    while (task_all()[tasks])
        tasks++;
    size_t which = data[0] % (tasks + 1), form = data[0] / (tasks + 1) % 2;
    int is_table = which < tasks && task_all()[which]->has_parts && form == 0;
    int is_parts = which < tasks && task_all()[which]->has_parts;
    int is_raw = which < tasks && task_all()[which]->kind == TASK_ROLLING;
    snprintf(test, sizeof test, "%s/test", dir);
    if (mkdir(test, 0700) != 0)
        abort();
    snprintf(path, sizeof path, "%s/%s", test,
             is_table    ? "anatomy_test.csv"
             : form == 0 ? "rows.jsonl"
             : is_raw    ? "rows.raw"
             : is_parts  ? "rows.json"
                         : "rows.csv");
    put(path, data + 1, size - 1);
    if (which == tasks)
        read_results(path);
    else
        read_task(task_all()[which]->name, is_table ? dir : path);
    unlink(path);
    rmdir(test);
    rmdir(dir);
    return 0;
}
