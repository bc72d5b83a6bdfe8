/* Compares scripted screens of the Machine view with committed ones.
 *
 *   GENERATE=1 test_screens_machine    regenerates the screens; inspect the diff.
 */
#include "t.h"

#include "base/fs.h"
#include "io/system.h"
#include "screens/golden.h"
#include "screens/timelines.h"
#include "tui/app.h"

enum made { TWO, EIGHT, NONE, BARE, STRANGE, SILENT };

struct screen {
    const char *name, *size, *script, *glyphs, *color;
    enum made made;
};

/* clang-format off */
static const struct screen screens[] = {
    {"machine-80x24",   "80x24",  "shot\nkeys j =\nshot\nkeys Esc s", NULL,     NULL,    TWO},
    {"machine-200x50",  "200x50", "",                                 NULL,     NULL,    EIGHT},
    {"machine-eight",   "80x24",  "keys G\nshot\nclick 12 10",        NULL,     NULL,    EIGHT},
    {"machine-20x5",    "20x5",   "keys j",                           NULL,     NULL,    EIGHT},
    {"machine-mono",    "80x24",  "",                                 "ascii",  "never", TWO},
    {"machine-no-gpu",  "80x24",  "",                                 NULL,     NULL,    NONE},
    {"machine-bare",    "80x24",  "",                                 NULL,     NULL,    BARE},
    {"machine-strange", "80x24",  "keys j",                           NULL,     NULL,    STRANGE},
    {"machine-none",    "80x24",  "keys j G =",                       NULL,     NULL,    SILENT},
};
/* clang-format on */

static double noise(int a, int b)
{
    uint32_t x = (uint32_t)a * 2654435761u ^ (uint32_t)b * 40503u;
    x ^= x >> 13;
    x *= 2246822519u;
    return (double)(x >> 20) / 4096;
}

static struct machine_gpu gpu_of(int i, int step)
{
    struct machine_gpu g = {.source = "nvml",
                            .use = 0.7 + 0.3 * noise(i, step),
                            .memory_used = 60e9 + 5e9 * i,
                            .memory_total = 150754820096.0,
                            .power = 400 + floor(300 * noise(i + 9, step)),
                            .power_limit = 700,
                            .temperature = 50 + 5 * i,
                            .clock_sm = 1980 - 15 * i,
                            .clock_memory = 3201,
                            .has_throttle = 1,
                            .throttle = i % 3 == 1   ? 4
                                        : i % 3 == 2 ? 1
                                                     : 0,
                            .has_processes = 1,
                            .processes = 2};
    snprintf(g.name, sizeof g.name, "NVIDIA H200");
    g.process[0] = (struct machine_process){.pid = 4242 + i, .memory = 55e9, .name = "python3"};
    g.process[1] = (struct machine_process){.pid = 977, .memory = (double)NAN};
    return g;
}

static struct machine_sample sample_of(enum made made, int step)
{
    struct machine_sample s;
    machine_clear(&s);
    s.time = 1000 + step;
    if (made == BARE)
        return s;
    snprintf(s.host, sizeof s.host, "gpu-box");
    s.seconds = 5;
    s.cpus = 96;
    s.cpu = 0.2 + 0.1 * noise(1, step);
    s.process_cpu = 12.5;
    s.load[0] = 21.5;
    s.load[1] = 20.25;
    s.load[2] = 18;
    s.memory_used = 98.2e9 + 1e9 * step;
    s.memory_total = 540e9;
    s.disk_free = 120e9;
    s.disk_total = 3.8e12;
    s.net_in = 1.5e6 * noise(2, step);
    s.net_out = 4e6 * noise(3, step);
    s.gpus = made == EIGHT ? 8 : made == TWO ? 2 : made == STRANGE ? 3 : 0;
    for (int i = 0; i < s.gpus; i++)
        s.gpu[i] = gpu_of(i, step);
    if (made == EIGHT) { /* one that was lost, one of which little is known */
        s.gpu[5] = (struct machine_gpu){.is_lost = 1};
        s.gpu[6] = (struct machine_gpu){.use = 0.5};
        for (int i = 5; i < 7; i++) {
            struct machine_gpu *g = &s.gpu[i];
            snprintf(g->name, sizeof g->name, "NVIDIA H200");
            snprintf(g->source, sizeof g->source, "nvml");
            g->use = i == 6 ? 0.5 : (double)NAN;
            g->memory_used = g->memory_total = g->power = g->power_limit = g->temperature =
                g->clock_sm = g->clock_memory = (double)NAN;
        }
        s.gpus_more = 2;
    }
    if (made == STRANGE) {
        s.gpu[0].power = (double)NAN;
        s.gpu[0].temperature = 200;
        s.gpu[0].memory_used = 0x1p59;
        s.gpu[0].throttle = 0x1FF;
        s.gpu[1].clock_sm = 1e5;
        snprintf(s.gpu[1].name, sizeof s.gpu[1].name,
                 "\x1b[31mred\xff\xe2\x80\xae"
                 "name\tof a GPU");
        snprintf(s.gpu[1].process[0].name, sizeof s.gpu[1].process[0].name, "\x1b]0;title\x07");
        snprintf(s.host, sizeof s.host,
                 "\x1b[2Jhost\nname that is much longer than the place it has");
    }
    return s;
}

static void make(struct fixture *f, enum made made)
{
    const struct fixture_head head = {
        .run = "fixture-machine", .method = "edp", .seed = 1, .layers = 8, .steps = 60};
    fixture_head(f, 0, &head);
    for (int step = 1; step <= 60; step++) {
        record_begin(f->record, "metric", step, 1000 + step);
        record_num(f->record, "loss", 2);
        fixture_put(f);
        if (made == SILENT || step % 2)
            continue;
        struct machine_sample s = sample_of(made, step);
        system_record(f->record, step, &s);
        fixture_put(f);
    }
    record_begin(f->record, "end", 60, 1060);
    record_str(f->record, "status", "done");
    fixture_put(f);
}

static void play(const struct screen *s, const char *dir, const char *dump)
{
    char script[256], run[256];
    const char *paths[1] = {run};
    struct tui_options o = {.view = "machine",
                            .size = s->size,
                            .glyphs = s->glyphs,
                            .color = s->color,
                            .paths = paths,
                            .n = 1,
                            .script = script,
                            .dump = dump};
    struct fixture f;
    struct err e = {0};
    setenv("DEPTHSCOPE_RUNS", "/nonexistent/runs", 1);
    t_true(fixture_begin(&f));
    make(&f, s->made);
    struct str log = fixture_end(&f);
    t_true(log.len > 0);
    snprintf(run, sizeof run, "%s/run.mp", dir);
    snprintf(script, sizeof script, "%s/keys.txt", dir);
    t_ok(fs_write_file(run, log.p, log.len, &e), &e);
    t_ok(fs_write_file(script, s->script, strlen(s->script), &e), &e);
    t_ok(tui_run(&o, &e), &e);
    str_release(&log);
}

T_SECONDS(screens_of_the_machine_are_as_committed, 120)
{
    const char *only = getenv("SCREEN"), *dir = t_tmpdir();
    for (size_t i = 0; i < DS_LEN(screens); i++) {
        char dump[256], golden[256];
        struct str got = {0};
        struct err e = {0};
        if (only && strcmp(only, screens[i].name) != 0)
            continue;
        snprintf(dump, sizeof dump, "%s/out.screen", dir);
        snprintf(golden, sizeof golden, "tests/screens/%s.screen", screens[i].name);
        play(&screens[i], dir, dump);
        t_ok(fs_read_file(&got, dump, 16 << 20, &e), &e);
        golden_compare(golden, &got, 0);
        str_release(&got);
    }
}

/* Every key, at sizes from empty to large, with and without data. */
T_SECONDS(no_key_at_any_size_does_harm, 120)
{
    static const char *const sizes[] = {"1x1", "7x3", "33x8", "80x12", "250x70"};
    static const char keys[] =
        "keys j k G g g s = Esc y PgDn PgUp u C-r Home End\nshot\nsize 30x9\n"
        "keys j j\nclick 4 4\nsize 80x24\nkeys k\nclick 9 40\nwheel down 9 40";
    const char *dir = t_tmpdir();
    for (size_t i = 0; i < DS_LEN(sizes); i++)
        for (int made = TWO; made <= SILENT; made++) {
            const struct screen s = {
                .name = "keys", .size = sizes[i], .script = keys, .made = (enum made)made};
            play(&s, dir, "/dev/null");
        }
}
