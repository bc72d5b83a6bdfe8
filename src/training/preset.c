/* Finds and reads preset files. */
#include "training/preset.h"

#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/mem.h"
#include "base/nearest.h"
#include "base/str.h"

static char preset_dir[1024] = "data";

void train_config_preset_dir(const char *dir)
{
    str_copy(preset_dir, sizeof preset_dir, dir);
}

/* Length of the name without ".yaml"; 0 when it does not end so. */
static size_t stem_length(const char *file)
{
    size_t n = strlen(file);
    return n > 5 && strcmp(file + n - 5, ".yaml") == 0 ? n - 5 : 0;
}

int preset_names(char ***names, size_t *n, struct err *e)
{
    char **all = NULL;
    size_t count = 0, k = 0;
    int rc = fs_is_dir(preset_dir) ? fs_list(preset_dir, &all, &count, e) : 0;
    if (rc < 0)
        return rc;
    char **list = mem_alloc(count + 1, sizeof *list);
    if (list && (list[k] = mem_strdup("quick")) != NULL) /* built in */
        k++;
    for (size_t i = 0; list && i < count; i++) {
        size_t stem = stem_length(all[i]);
        if (stem == 0 || strcmp(all[i], "quick.yaml") == 0)
            continue;
        all[i][stem] = '\0';
        if ((list[k] = mem_strdup(all[i])) != NULL)
            k++;
    }
    fs_list_free(all, count);
    if (!list)
        return err_set(e, DS_EMEM, "out of memory for presets");
    *names = list;
    *n = k;
    return 0;
}

static int unknown(const char *preset, struct err *e)
{
    char **names = NULL, hint[NEAREST_MAX + 32];
    size_t n = 0;
    struct nearest best = nearest_to(preset);
    if (preset_names(&names, &n, NULL) == 0)
        for (size_t i = 0; i < n; i++)
            nearest_try(&best, names[i]);
    if (names)
        fs_list_free(names, n);
    return err_set(e, DS_EUSAGE, "unknown preset %s in %s%s; depthscope presets lists them", preset,
                   preset_dir, nearest_hint(&best, hint, sizeof hint));
}

int preset_path(char *path, size_t size, const char *preset, struct err *e)
{
    char file[96];
    int rc = 0;
    if (stem_length(preset) > 0) {
        if (str_copy(path, size, preset))
            rc = err_set(e, DS_ERANGE, "%s: path too long", preset);
    } else if (!fs_name_ok(preset)) {
        rc = err_set(e, DS_EUSAGE, "invalid preset '%s': expected a name in %s or a .yaml file; %s",
                     preset, preset_dir, "depthscope presets lists them");
    } else {
        snprintf(file, sizeof file, "%s.yaml", preset);
        rc = fs_join(path, size, preset_dir, file, e);
        if (rc == 0 && !fs_exists(path))
            rc = unknown(preset, e);
    }
    if (rc == 0 && fs_is_dir(path))
        rc = err_set(e, DS_EUSAGE, "preset %s: %s is a directory, expected a file", preset, path);
    return rc;
}

/* The base of a preset that no other precedes.  Presets of earlier versions name it `alone`. */
static const char *default_base(const struct config *c)
{
    const char *base = config_get(c, "default_base");
    return base ? base : config_get(c, "alone");
}

/* is_first: read the preset's `default_base` before it. */
static int read_one(struct config *c, const char *preset, int is_first, struct err *e)
{
    char path[1024];
    struct config own = {0};
    int rc = preset_path(path, sizeof path, preset, e);
    if (rc == 0)
        rc = config_read_yaml(&own, path, e);
    if (rc == 0 && own.n == 0)
        rc = err_set(e, DS_EUSAGE, "preset %s: %s has no keys", preset, path);
    const char *base = rc == 0 && is_first ? default_base(&own) : NULL;
    if (base) {
        rc = preset_path(path, sizeof path, base, e);
        if (rc == 0)
            rc = config_read_yaml(c, path, e);
        if (rc < 0)
            err_add(e, rc, "preset %s, default_base", preset);
        config_remove(c, "default_base");
        config_remove(c, "alone");
    }
    config_remove(&own, "default_base");
    config_remove(&own, "alone");
    if (rc == 0)
        rc = config_merge(c, &own, e);
    config_release(&own);
    return rc;
}

int presets_read(struct config *c, const char *const *preset, size_t n, struct err *e)
{
    if (n == 1 && strcmp(preset[0], "quick") == 0)
        return 0; /* the option tables' defaults, without a file */
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < i; k++)
            if (strcmp(preset[i], preset[k]) == 0)
                return err_set(e, DS_EUSAGE, "duplicate preset %s", preset[i]);
        int rc = read_one(c, preset[i], i == 0, e);
        if (rc < 0)
            return rc;
    }
    return 0;
}

void presets_label(char *out, size_t size, const char *const *preset, size_t n)
{
    size_t len = 0;
    str_copy(out, size, n ? "" : "quick");
    for (size_t i = 0; i < n && len < size; i++) {
        const char *slash = strrchr(preset[i], '/'), *name = slash ? slash + 1 : preset[i];
        size_t stem = stem_length(name);
        len += (size_t)snprintf(out + len, size - len, "%s%.*s", i ? "+" : "",
                                (int)(stem ? stem : strlen(name)), name);
    }
}

char *preset_base(const char *preset)
{
    char path[1024];
    struct config c = {0};
    struct str text = {0};
    char *base = NULL;
    if (preset_path(path, sizeof path, preset, NULL) == 0 &&
        fs_read_file(&text, path, 1 << 20, NULL) == 0 &&
        config_read_yaml_text(&c, str_text(&text), text.len, preset, NULL) == 0) {
        const char *extends = config_get(&c, "extends"), *first = default_base(&c);
        base = mem_strdup(extends ? extends : first ? first : "");
    }
    str_release(&text);
    config_release(&c);
    return base;
}
