/* Writes a conversion's output: a file, or a directory that is renamed into place when complete. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "cli/batch/batch_child.h"
#include "cli/convert/convert_job.h"
#include "models/peft.h"

static void note(struct convert_job *j, const char *fmt, ...) DS_PRINTF(2, 3);
static void note(struct convert_job *j, const char *fmt, ...)
{
    va_list ap;
    BUG_IF(j->notes == CONVERT_NOTES, "convert: too many notes");
    va_start(ap, fmt);
    vsnprintf(j->note[j->notes++], sizeof j->note[0], fmt, ap);
    va_end(ap);
}

/* A progress line on a terminal, ten times a second. */
static int on_progress(void *ctx, double done, double all)
{
    struct convert_job *j = ctx;
    double now = clock_mono();
    char a[16], b[16];
    int is_end = done >= all;
    if (isatty(STDERR_FILENO) && (is_end || now - j->shown_at > 0.1)) {
        fprintf(stderr, is_end ? "\r\033[K" : "\r%s of %s weights\033[K", str_si(a, done),
                str_si(b, all));
        j->shown_at = now;
    }
    return batch_signal != 0;
}

static int put_vocabulary(struct gguf_out *w, void *ctx, struct err *e)
{
    struct convert_job *j = ctx;
    struct str differs = {0};
    int rc = convert_put_vocabulary(w, &j->from, &differs, e);
    if (rc == 0 && differs.failed)
        rc = err_set(e, DS_EMEM, "out of memory for the vocabulary");
    else if (rc == 0 && differs.len > 0)
        note(j, "%s", str_text(&differs));
    str_release(&differs);
    return rc;
}

static struct export_options export_options_of(struct convert_job *j)
{
    return (struct export_options){.type = j->type,
                                   .keep = strcmp(j->o.weights, "auto") == 0,
                                   .name = j->from.name,
                                   .shard_bytes = (uint64_t)j->o.shard_size,
                                   .vocabulary = put_vocabulary,
                                   .progress = on_progress,
                                   .ctx = j};
}

/* Outside GGUF quantised blocks are dequantised: the file grows, and a note says why. */
static void note_quantized(struct convert_job *j)
{
    char types[120];
    int blocks;
    if (strcmp(j->o.weights, "auto") != 0 ||
        export_stored_types(&j->from.s, &blocks, types, sizeof types) == 0 || blocks == 0)
        return;
    note(j, "matrices of the source (%s) are written as %s%s", types,
         j->type == GGUF_T_F16    ? "f16"
         : j->type == GGUF_T_BF16 ? "bf16"
                                  : "f32",
         j->o.to == CONVERT_HF ? "; weights=f16 or bf16 halves the size" : "");
}

/* ---- files ---- */

static int write_gguf(struct convert_job *j, struct err *e)
{
    struct export_options o = export_options_of(j);
    char types[120];
    int rc = export_gguf(&j->from.s, &o, j->out, &j->r, e);
    if (rc == 0)
        j->type = j->r.type;
    if (rc == 0 && o.keep &&
        export_stored_types(&j->from.s, NULL, types, sizeof types) > !j->from.s.is_merged)
        note(j, "%s its original type: %s",
             j->from.s.is_merged ? "each matrix without adapters keeps" : "each matrix keeps",
             types);
    if (rc == 0 && j->r.fallback_n)
        note(j, "%d matri%s rows that are not a multiple of the block size: written as %s",
             j->r.fallback_n, j->r.fallback_n == 1 ? "x has" : "ces have", j->r.fallback);
    int32_t end[MODEL_EOS_MAX];
    int ends = model_config_eos_ids(&j->from.m->config, end);
    if (rc == 0 && j->from.tokenizer && ends > 3)
        note(j, "%d end-of-text ids; GGUF has keys for 3 of them", ends);
    j->has_vocabulary = j->from.tokenizer != NULL;
    return rc;
}

static int check_tokenizer_bin(const struct convert_job *j, const char *path, struct err *e)
{
    struct stat st;
    if (fs_stat(path, &st) < 0)
        return 0;
    if (convert_is_source(j, path))
        return err_set(e, DS_EUSAGE,
                       "%s: belongs to the source and would be overwritten; use another "
                       "directory with -o",
                       path);
    if (!S_ISREG(st.st_mode))
        return err_set(e, DS_EEXIST, "%s: not a regular file; use another directory with -o", path);
    return j->force ? 0 : err_set(e, DS_EEXIST, "%s exists; use --force to replace it", path);
}

static int write_llama2c(struct convert_job *j, struct err *e)
{
    struct export_options o = export_options_of(j);
    char path[1200];
    const char *why = NULL, *slash = strrchr(j->out, '/');
    snprintf(path, sizeof path, "%.*stokenizer.bin", slash ? (int)(slash - j->out) + 1 : 0, j->out);
    int stays = convert_has_tokenizer_at(j, path);
    int rc = j->from.tokenizer && !stays ? check_tokenizer_bin(j, path, e) : 0;
    if (rc == 0)
        rc = export_llama2c(&j->from.s, &o, j->out, &j->r, e);
    if (rc == 0)
        rc = stays ? 1 : convert_write_tokenizer_bin(&j->from, path, &why, e);
    if (rc < 0)
        return rc;
    j->has_vocabulary = rc;
    if (stays)
        note(j, "tokenizer.bin next to the output belongs to the source: left unchanged");
    note_quantized(j);
    if (rc == 0 && j->from.tokenizer)
        note(j, "no tokenizer.bin: %s", why);
    return 0;
}

/* ---- directories ---- */

/* Files that other programs keep next to the model and that this one does not read; what is there
 * already stays. */
static int copy_companion(const char *from, const char *to, struct err *e)
{
    static const char *const names[] = {"tokenizer_config.json", "special_tokens_map.json",
                                        "generation_config.json", "chat_template.jinja"};
    enum { FILE_MAX = 16 << 20 };
    int rc = 0;
    for (size_t i = 0; i < DS_LEN(names) && rc == 0 && fs_is_dir(from); i++) {
        char source[1200], target[1200];
        struct str text = {0};
        struct err why = {0};
        rc = fs_join(source, sizeof source, from, names[i], e);
        if (rc == 0)
            rc = fs_join(target, sizeof target, to, names[i], e);
        int is_new = rc == 0 && fs_exists(source) && !fs_exists(target);
        int got = is_new ? fs_read_file(&text, source, FILE_MAX, &why) : DS_ENOTFOUND;
        if (fs_is_unreadable(source, got))
            rc = err_set(e, got, "%s", why.text);
        else if (got == 0)
            rc = fs_write_file(target, str_text(&text), text.len, e);
        str_release(&text);
    }
    return rc;
}

/* Of adapters without a tokenizer those of their base as well, whose tokenizer is written. */
static int copy_companions(const struct convert_from *f, const char *to, struct err *e)
{
    char own[1200], base[1024];
    int rc = copy_companion(f->dir, to, e);
    if (rc == 0 && f->dir[0] && tokenizer_find(own, sizeof own, f->dir, NULL) == DS_ENOTFOUND &&
        model_base(f->dir, base, sizeof base, NULL) == 1)
        rc = copy_companion(base, to, e);
    return rc;
}

static int fill_directory(struct convert_job *j, const char *dir, struct err *e)
{
    struct export_options o = export_options_of(j);
    char path[1200];
    int rc = export_hf(&j->from.s, &o, dir, &j->r, e);
    if (rc == 0)
        note_quantized(j);
    if (rc == 0 && j->from.tokenizer) {
        rc = fs_join(path, sizeof path, dir, "tokenizer.json", e);
        if (rc == 0)
            rc = tokenizer_save(j->from.tokenizer, path, e);
        j->has_vocabulary = rc == 0;
    }
    if (rc == 0 && !j->from.other_tokenizer)
        rc = copy_companions(&j->from, dir, e);
    if (rc == 0)
        rc = convert_write_template(&j->from, dir, e);
    return rc < 0 ? rc : fs_sync_dir(dir, e);
}

/* Adapters in PEFT format, with a reference to their base model. */
static int fill_adapter(struct convert_job *j, const char *dir, struct err *e)
{
    const struct model *m = j->from.m;
    char base[1024] = "", path[1200];
    struct base_ref at = {0}; /* valid from any working directory */
    int rc = model_base(j->from.dir, base, sizeof base, e);
    if (rc == 1)
        rc = base_ref_make(&at, j->from.dir, e);
    if (rc == 0)
        rc = peft_save(m, dir, at.path, e);
    if (rc == 0 && !at.path[0])
        note(j, "the model includes its base: base_model_name_or_path is empty");
    j->type = GGUF_T_F32;
    j->r = (struct export_result){.files = 1, .head_type = GGUF_T_F32};
    for (int i = 0; i < m->params.n; i++)
        if (adapters_of(m, i) || adapters_saves(m, i)) {
            j->r.tensors++;
            j->r.bytes += 4 * m->params.p[i].n;
        }
    j->parameters = (int64_t)j->r.bytes / 4;
    if (rc == 0 && j->from.tokenizer) {
        rc = fs_join(path, sizeof path, dir, "tokenizer.json", e);
        if (rc == 0)
            rc = tokenizer_save(j->from.tokenizer, path, e);
        j->has_vocabulary = rc == 0;
    }
    if (rc == 0)
        rc = convert_write_template(&j->from, dir, e);
    return rc < 0 ? rc : fs_sync_dir(dir, e);
}

static int write_directory(struct convert_job *j, struct err *e)
{
    char part[1200], parent[1024];
    const char *slash = strrchr(j->out, '/');
    snprintf(parent, sizeof parent, "%.*s", slash ? (int)(slash - j->out) + (slash == j->out) : 1,
             slash ? j->out : ".");
    int lock, rc = fs_new_dir(&lock, part, sizeof part, j->out, e);
    if (rc < 0)
        return rc;
    rc = (j->o.adapter ? fill_adapter : fill_directory)(j, part, e);
    if (rc == 0 && fs_rename(part, j->out) < 0)
        rc = err_errno(e, "rename %s", j->out);
    if (rc < 0) {
        err_rename(e, part, j->out);
        (void)!fs_remove_tree(part, NULL);
    }
    if (lock >= 0)
        fs_close(lock);
    return rc < 0 ? rc : fs_sync_dir(parent, e);
}

/* ---- common to all formats ---- */

static int note_template(struct convert_job *j, struct err *e)
{
    struct err why = {0};
    struct str text = {0};
    int rc = convert_template(&text, &j->from, &why);
    if (rc == DS_EMEM)
        rc = err_set(e, rc, "%s", why.text);
    else if (rc < 0)
        note(j, "without the chat template: %s", why.text);
    else if (text.len > 0 && j->o.to == CONVERT_LLAMA2C)
        note(j, "without the chat template: unsupported by llama2.c files");
    str_release(&text);
    return rc == DS_EMEM ? rc : 0;
}

/* What transformers cannot open of a directory; a model with routers or adapters has no family
 * there, and needs no note. */
static void note_family(struct convert_job *j)
{
    static const char *const even[] = {"llama", "gemma2", "gemma3_text"};
    char dense[] = "dense";
    struct model_config c = j->from.m->config; /* strings stay the model's */
    if (j->from.s.base_only) {
        c.method = dense;
        c.lora_r = 0;
    }
    const char *family = model_config_family(&c);
    if (!family && strcmp(c.method, "dense") == 0 && c.lora_r == 0)
        note(j,
             "model_type is depthscope: no family of transformers computes the same, so only this "
             "program opens it");
    for (size_t i = 0; family && c.dim % c.heads != 0 && i < DS_LEN(even); i++)
        if (strcmp(family, even[i]) == 0)
            note(j,
                 "transformers 5 refuses model_type %s with hidden_size=%lld: not a multiple of "
                 "num_attention_heads=%lld",
                 family, (long long)c.dim, (long long)c.heads);
}

static int note_contents(struct convert_job *j, struct err *e)
{
    const struct model *m = j->from.m;
    int64_t base = model_config_params(&m->config), left = params_count(&m->params) - base;
    j->parameters = j->from.s.base_only ? base : base + left;
    if (j->from.s.is_merged)
        note(j, "adapters of rank %lld merged into the matrices", (long long)m->config.lora_r);
    else if (j->from.s.base_only && (left > 0 || strcmp(m->config.method, "dense") != 0))
        note(j, "base model only: %s routing, %lld router and adapter parameters left out",
             m->config.method, (long long)left);
    if (j->o.to == CONVERT_HF && !j->o.adapter)
        note_family(j);
    if (!j->from.tokenizer)
        note(j, "without a tokenizer: none found with the model (use tokenizer=PATH)");
    return note_template(j, e);
}

/* Checks options that concern adapters. */
static int check_adapters(const struct convert_job *j, struct err *e)
{
    const struct model *m = j->from.m;
    const char *method = m->config.method;
    for (int i = 0; i < m->n_base && j->o.method && !j->o.merge; i++)
        if (adapters_saves(m, i))
            return err_set(e, DS_EUSAGE,
                           "method=dense: %s was trained with the adapters and is not the base's; "
                           "add merge=yes",
                           m->params.p[i].name);
    if (!j->o.merge && !j->o.adapter)
        return 0;
    if (m->adapters == 0)
        return err_set(e, DS_EUSAGE, "%s: the model has no adapters (model.lora_r=0)",
                       j->o.merge ? "merge=yes" : "adapter=only");
    if (j->o.merge && j->o.adapter)
        return err_set(e, DS_EUSAGE, "merge=yes and adapter=only exclude each other");
    if (j->o.adapter && j->o.to != CONVERT_HF)
        return err_set(e, DS_EUSAGE,
                       "adapter=only writes a directory: -o must not end in .gguf or .bin");
    if (j->o.merge && adapters_check_merge(m, e) < 0)
        return DS_EUSAGE;
    if (j->o.merge && strcmp(method, "dense") != 0 && !j->o.method)
        return err_set(e, DS_EUSAGE,
                       "merge=yes writes a dense model, without %s routing; add method=dense",
                       method);
    return 0;
}

int convert_write(struct convert_job *j, struct err *e)
{
    int rc = check_adapters(j, e);
    if (rc < 0)
        return rc;
    j->from.s.base_only = j->o.method || j->o.merge;
    j->from.s.is_merged = j->o.merge;
    rc = note_contents(j, e);
    if (rc < 0)
        return rc;
    switch (j->o.to) {
    case CONVERT_GGUF: return write_gguf(j, e);
    case CONVERT_LLAMA2C: return write_llama2c(j, e);
    default: return write_directory(j, e);
    }
}
