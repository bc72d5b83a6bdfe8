/* Finding the running executable. */
#include "t.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/process.h"

static char program[900];

/* An executable file of that name; its directory. */
static const char *make_program(const char *name)
{
    struct err e = {0};
    const char *dir = t_tmpdir();
    snprintf(program, sizeof program, "%s/%s", dir, name);
    t_ok(fs_write_file(program, "#!", 2, &e), &e);
    chmod(program, 0755);
    return dir;
}

T(the_executable_is_found_by_its_proc_link)
{
    char link[1000], out[1000];
    const char *dir = make_program("p");
    snprintf(link, sizeof link, "%s/exe", dir);
    t_eq(symlink(program, link), 0);
    t_eq(process_find(out, sizeof out, link, "other", "/bin", "/"), 1);
    t_str(out, program);
    t_eq(process_find(out, 3, link, NULL, NULL, NULL), 0); /* too long for the place */
}

T(a_replaced_executable_is_found_by_its_original_path)
{
    char link[1000], out[1000], old[1000];
    const char *dir = make_program("p");
    snprintf(link, sizeof link, "%s/exe", dir);
    snprintf(old, sizeof old, "%s (deleted)", program);
    t_eq(symlink(old, link), 0);
    t_eq(process_find(out, sizeof out, link, NULL, NULL, NULL), 1);
    t_str(out, program);
    unlink(program);
    t_eq(process_find(out, sizeof out, link, NULL, NULL, NULL), 0);
    t_str(out, "");
}

T(without_proc_the_executable_is_found_from_argv_and_path)
{
    char out[1000], path[1200];
    const char *none = "/nonexistent/exe", *dir = make_program("p");
    t_eq(process_find(out, sizeof out, none, program, "/bin", "/"), 1);
    t_str(out, program);
    t_eq(process_find(out, sizeof out, none, "./p", NULL, dir), 1);
    t_eq(access(out, X_OK), 0);
    t_true(out[0] == '/');
    snprintf(path, sizeof path, "/nonexistent::%s:/bin", dir);
    t_eq(process_find(out, sizeof out, none, "p", path, "/"), 1);
    t_str(out, program);
    t_eq(process_find(out, sizeof out, none, "p", "", dir),
         1); /* an empty entry is the directory */
    t_eq(process_find(out, sizeof out, none, "p", "/nonexistent", dir), 0);
    t_eq(process_find(out, sizeof out, none, "p", NULL, dir), 0);
    t_eq(process_find(out, sizeof out, none, NULL, "/bin", "/"), 0);
    t_eq(process_find(out, sizeof out, none, "", "/bin", "/"), 0);
    chmod(program, 0644); /* not a program */
    t_eq(process_find(out, sizeof out, none, program, "/bin", "/"), 0);
}
