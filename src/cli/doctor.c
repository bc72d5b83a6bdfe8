/* depthscope doctor: checks the machine and terminal; exit status 1 when something keeps the
 * program from working. */
#include <langinfo.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/fs.h"
#include "base/machine.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/utf8.h"
#include "cli/cli.h"
#include "cli/version.h"
#include "engine/gemm.h"
#include "figures/palette.h"
#include "training/job.h"

struct cli_option doctor_options[] = {
    {.name = "json", .help = "a JSON array of {name, ok, text}"},
    {.name = NULL},
};

/* ok: 1 fine, 0 warning, -1 error. */
struct finding {
    const char *name;
    int ok;
    struct str text;
};

static void add_env(struct str *out, const char *name)
{
    const char *v = getenv(name);
    str_addf(out, " %s=", name);
    str_add(out, v ? v : "(unset)");
}

static void check_cpu(struct finding *f)
{
    char text[512];
    cpu_describe(text, sizeof text);
    str_add(&f->text, text);
    f->ok = 1;
}

static void check_threads(struct finding *f)
{
    int quota = cpu_quota("/sys/fs/cgroup", "/proc/self/cgroup");
    str_addf(&f->text, "%d usable by this process", pool_cpus());
    if (quota > 0)
        str_addf(&f->text, " (quota %d)", quota);
    f->ok = 1;
}

static void check_gemm(struct finding *f)
{
    const struct gemm_provider *const *all = gemm_providers();
    for (int k = 0; k < 2; k++)
        str_addf(&f->text, "%s by %s, ", gemm_format_name[k],
                 gemm_name(gemm_provider((enum gemm_format)k)));
    str_add(&f->text, "supported:");
    for (size_t i = 0; all[i]; i++)
        str_addf(&f->text, " %s%s", gemm_name(all[i]),
                 gemm_available(all[i]) ? "" : " (not on this processor)");
    f->ok = strcmp(gemm_name(gemm_provider(GEMM_FP32)), "ref") != 0;
}

static void check_memory(struct finding *f)
{
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    char si[16];
    str_addf(&f->text, "%sB of memory",
             pages > 0 && size > 0 ? str_si(si, (double)pages * (double)size) : "unknown ");
    f->ok = 1;
}

/* One line a model: "2 x NVIDIA H100 80GB HBM3, 85.9 GB each (nvml)". */
static void check_gpus(struct finding *f)
{
    struct machine_sample *s = mem_alloc(1, sizeof *s);
    struct machine *m = s ? machine_open(".") : NULL;
    f->ok = 1;
    if (m)
        machine_sample(m, s);
    for (int i = 0, n; m && i < s->gpus; i += n) {
        const struct machine_gpu *g = &s->gpu[i];
        char si[16];
        for (n = 1; i + n < s->gpus && strcmp(g->name, s->gpu[i + n].name) == 0 &&
                    g->is_lost == s->gpu[i + n].is_lost;)
            n++;
        str_addf(&f->text, "%s%d x %s", i ? "; " : "", n, g->name[0] ? g->name : "unknown GPU");
        if (isfinite(g->memory_total))
            str_addf(&f->text, ", %sB each", str_si(si, g->memory_total));
        str_addf(&f->text, g->is_lost ? ": lost, no longer answers (%s)" : " (%s)", g->source);
        f->ok = g->is_lost ? 0 : f->ok;
    }
    if (f->text.len == 0)
        str_add(&f->text, "none found");
    f->text.failed |= !s;
    machine_close(m);
    mem_free(s);
}

static void check_terminal(struct finding *f)
{
    struct winsize w = {0};
    int tty = isatty(STDOUT_FILENO);
    if (tty && ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0)
        str_addf(&f->text, "%d x %d;", w.ws_col, w.ws_row);
    else
        str_add(&f->text, "standard output is not a terminal: plain text, no colours;");
    add_env(&f->text, "TERM");
    add_env(&f->text, "COLORTERM");
    if (getenv("NO_COLOR"))
        add_env(&f->text, "NO_COLOR");
    f->ok = !tty || (w.ws_col >= 80 && w.ws_row >= 24);
}

static void check_locale(struct finding *f)
{
    str_addf(&f->text, "%s", nl_langinfo(CODESET));
    f->ok = utf8_locale_is_utf8();
    if (!f->ok)
        str_add(&f->text, ": not UTF-8, frames are ASCII and text is escaped (try LC_ALL=C.UTF-8)");
}

static void check_runs(struct finding *f)
{
    char path[1100], si[16];
    struct err e = {0};
    const char *root = job_root();
    str_add(&f->text, root);
    f->ok = -1;
    if (!fs_exists(root)) {
        /* created by the first run with its parents, if the nearest directory is writable */
        str_copy(path, sizeof path, root);
        while (strcmp(path, ".") != 0 && !fs_exists(path)) {
            path[fs_trimmed(path)] = '\0';
            char *slash = strrchr(path, '/');
            if (slash)
                slash[slash == path] = '\0';
            else
                str_copy(path, sizeof path, ".");
        }
        f->ok = fs_is_dir(path) && access(path, W_OK) == 0 ? 1 : -1;
        str_add(&f->text,
                f->ok > 0 ? ": created by the first run" : ": missing, and cannot be created here");
        return;
    }
    snprintf(path, sizeof path, "%s/.doctor-%ld", root, (long)getpid());
    if (fs_write_file(path, "ok\n", 3, &e) < 0) {
        str_addf(&f->text, ": not writable (%s); set DEPTHSCOPE_RUNS", e.text);
        return;
    }
    if (fs_unlink(path) == 0)
        f->ok = 1;
    uint64_t left = fs_free_bytes(root);
    str_addf(&f->text, ": writable, %sB free", str_si(si, (double)left));
    if (left > 0 && left < (uint64_t)1 << 30)
        f->ok = 0;
}

static void check_data(struct finding *f)
{
    char dir[1024];
    struct err e = {0};
    f->ok = cli_data_dir(dir, sizeof dir, "data", &e) == 0;
    str_add(&f->text, f->ok ? dir : e.text);
}

static void check_themes(struct finding *f)
{
    char **names = NULL;
    size_t n = 0;
    struct err e = {0};
    if (theme_list(&names, &n, &e) < 0) {
        str_add(&f->text, e.text);
        return;
    }
    for (size_t i = 0; i < n; i++)
        str_addf(&f->text, "%s%s", i ? ", " : "", names[i]);
    str_add(&f->text, n ? "" : "none found: using the built-in dark theme");
    f->ok = n > 0;
    fs_list_free(names, n);
}

static const struct {
    const char *name;
    void (*check)(struct finding *f);
} checks[] = {
    {"processor", check_cpu}, {"threads", check_threads}, {"gemm", check_gemm},
    {"memory", check_memory}, {"gpus", check_gpus},       {"terminal", check_terminal},
    {"locale", check_locale}, {"runs", check_runs},       {"presets", check_data},
    {"themes", check_themes},
};

int doctor_command(int argc, char **argv)
{
    struct err e = {0};
    struct cli_args a;
    struct str out = {0};
    int worst = 1, rc = cli_parse(&a, doctor_options, argc, argv, &e);
    if (rc < 0)
        return command_fail(&e);
    int json = cli_flag(&a, "json");
    if (a.n_rest > 0 || a.n_override > 0)
        rc = err_set(&e, DS_EUSAGE, "doctor: unexpected argument %s",
                     a.n_rest > 0 ? a.rest[0] : a.override[0]);
    cli_release(&a);
    if (rc < 0)
        return command_fail(&e);
    if (json)
        str_add(&out, "[");
    else
        str_add(&out, "depthscope " DEPTHSCOPE_VERSION "\n");
    for (size_t i = 0; i < DS_LEN(checks); i++) {
        struct finding f = {.name = checks[i].name};
        checks[i].check(&f);
        worst = f.ok < worst ? f.ok : worst;
        if (json) {
            json_key(&out, NULL);
            str_add(&out, "{");
            json_add_str(&out, "name", f.name);
            json_key(&out, "ok");
            str_add(&out, f.ok > 0 ? "true" : "false");
            json_add_str(&out, "text", str_text(&f.text));
            str_add(&out, "}");
        } else {
            struct str safe = {0};
            char left[40];
            snprintf(left, sizeof left, "  %-5s %s",
                     f.ok > 0    ? "ok"
                     : f.ok == 0 ? "note"
                                 : "BAD",
                     f.name);
            cli_add_safe(&safe, str_text(&f.text), f.text.len, -1);
            cli_add_entry(&out, left, str_text(&safe), 19, cli_columns(0));
            str_release(&safe);
        }
        out.failed |= f.text.failed;
        str_release(&f.text);
    }
    if (json)
        str_add(&out, "]\n");
    rc = cli_print(&out);
    return rc != 0 ? rc : worst < 0 ? 1 : 0;
}
