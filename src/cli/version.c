/* depthscope --version: which build this is, and what it can do on this machine.  The commit is
 * compiled in here only, and this file is not part of the library, so a commit rebuilds nothing
 * else. */
#include "cli/version.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/machine.h"
#include "base/mem.h"
#include "base/process.h"
#include "cli/cli.h"
#include "engine/gemm.h"
#include "figures/pen.h"
#include "io/host.h"
#include "io/record.h"

#if defined(__clang__)
#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
#define COMPILER                                                                                   \
    "clang " TEXT(__clang_major__) "." TEXT(__clang_minor__) "." TEXT(__clang_patchlevel__)
#else
#define COMPILER "gcc " __VERSION__
#endif

#if defined(__x86_64__)
#define MACHINE "x86_64"
#elif defined(__aarch64__)
#define MACHINE "aarch64"
#else
#define MACHINE "other"
#endif

static void add_bool(struct str *out, const char *key, int v)
{
    json_key(out, key);
    str_add(out, v ? "true" : "false");
}

static void add_build(struct str *out)
{
    char libc[64] = "";
#ifdef _CS_GNU_LIBC_VERSION
    if (confstr(_CS_GNU_LIBC_VERSION, libc, sizeof libc) == 0)
        libc[0] = '\0';
#endif
    json_add_str(out, "build", DEPTHSCOPE_BUILD);
    add_bool(out, "static", process_is_static());
    json_add_str(out, "machine", MACHINE);
    json_add_str(out, "instructions", DEPTHSCOPE_ARCH);
    json_add_str(out, "compiler", COMPILER);
    json_add_str(out, "libc", libc);
    json_add_str(out, "cairo", pen_cairo_version());
}

/* Kernels that were compiled in, whether this processor (or, for blas, this machine) has what they
 * need, and those that are the default here. */
static void add_kernels(struct str *out)
{
    const struct gemm_provider *const *all = gemm_providers();
    json_key(out, "kernels");
    str_add(out, "[");
    for (size_t i = 0; all[i]; i++) {
        json_key(out, NULL);
        str_add(out, "{");
        json_add_str(out, "name", gemm_name(all[i]));
        json_add_str(out, "format", gemm_format_name[gemm_format_of(all[i])]);
        add_bool(out, "available", gemm_available(all[i]));
        add_bool(out, "default", all[i] == gemm_provider(gemm_format_of(all[i])));
        str_add(out, "}");
    }
    str_add(out, "]");
}

static void add_gpus(struct str *out)
{
    struct machine_sample *s = mem_alloc(1, sizeof *s);
    struct machine *m = s ? machine_open(".") : NULL;
    json_key(out, "gpus");
    str_add(out, "[");
    if (m)
        machine_sample(m, s);
    for (int i = 0; m && i < s->gpus; i++) {
        json_key(out, NULL);
        str_add(out, "{");
        json_add_str(out, "name", s->gpu[i].name);
        json_add_num(out, "memory_total", s->gpu[i].memory_total);
        json_add_str(out, "source", s->gpu[i].source);
        str_add(out, "}");
    }
    str_add(out, "]");
    out->failed |= !s;
    machine_close(m);
    mem_free(s);
}

static void add_json(struct str *out)
{
    str_add(out, "{");
    json_add_str(out, "version", DEPTHSCOPE_VERSION);
    json_add_str(out, "commit", DEPTHSCOPE_COMMIT);
    add_build(out);
    add_kernels(out);
    add_gpus(out);
    json_key(out, "protocols");
    str_add(out, "{");
    json_add_int(out, "records", RECORD_FORMAT);
    json_add_int(out, "agent", HOST_PROTOCOL);
    str_add(out, "}}\n");
}

int version_command(int argc, char **argv)
{
    struct str out = {0};
    struct err e = {0};
    int is_json = argc > 2 && strcmp(argv[2], "--json") == 0;
    if (argc > 2 + is_json) {
        err_set(&e, DS_EUSAGE, "--version: unexpected argument %s", argv[2 + is_json]);
        return command_fail(&e);
    }
    if (is_json)
        add_json(&out);
    else
        str_add(&out, "depthscope " DEPTHSCOPE_VERSION "\n");
    return cli_print(&out);
}
