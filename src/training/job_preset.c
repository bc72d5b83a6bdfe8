/* Presets as the workbench lists them, and this machine's measured peak. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "engine/peak.h"
#include "training/cost.h"
#include "training/job.h"
#include "training/options.h"
#include "training/preset.h"

enum { COMMENT_MAX = 1 << 16 };

/* The first sentence of the comment that a preset's file begins with. */
static void read_about(char *out, size_t size, const char *name)
{
    char path[1200];
    struct str text = {0};
    size_t n = 0;
    if (preset_path(path, sizeof path, name, NULL) < 0 ||
        fs_read_file(&text, path, COMMENT_MAX, NULL) < 0 || str_text(&text)[0] != '#') {
        str_release(&text);
        return;
    }
    for (const char *p = str_text(&text); *p == '#' && n + 1 < size; p += *p == '\n') {
        p += strspn(p, "# ");
        if (n > 0)
            out[n++] = ' ';
        for (; *p && *p != '\n' && n + 1 < size; p++) {
            if (*p == '.' && (p[1] == '\n' || p[1] == ' ')) {
                out[n] = '\0';
                str_release(&text);
                return;
            }
            out[n++] = *p;
        }
    }
    out[n] = '\0';
    str_release(&text);
}

int job_preset_read(struct job_preset *p, const char *name, struct err *e)
{
    struct train_config c;
    struct train_size s;
    *p = (struct job_preset){0};
    int rc = train_config_preview(&c, &name, 1, e);
    if (rc < 0)
        return rc;
    train_config_size(&s, &c);
    str_copy(p->method, sizeof p->method, c.model.method);
    p->params = s.params;
    p->bytes = s.bytes;
    p->work = s.work;
    train_config_release(&c);
    if (strcmp(name, "quick") == 0) /* its file is about what it changes in other presets */
        str_copy(p->about, sizeof p->about, "All defaults: elastic depth on the embedded corpus");
    else
        read_about(p->about, sizeof p->about, name);
    return 0;
}

static _Atomic double peak;

static void *measure(void *ctx)
{
    (void)ctx;
    atomic_store(&peak, peak_gflops(PEAK_FP32, 0.03));
    return NULL;
}

static void start_measuring(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, measure, NULL) == 0)
        pthread_detach(thread);
}

double job_peak(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, start_measuring);
    return atomic_load(&peak);
}
