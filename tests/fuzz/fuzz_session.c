/* What a served model sends to the workbench. First byte: bit 0 whether the rest is the stream
 * itself or bodies of records, which get frames; bit 1 whether a trace is being saved, after up
 * to three other answers; the second byte: the size of the pieces. Records come whole and in
 * order; a trace that is saved is one that can be read. */
#include "eval/session.c"

#include "records.h"

/* -1: the stream is damaged. */
static int take(struct session *s)
{
    struct value body;
    struct err e = {0};
    int rc;
    while ((rc = session_next(s, &body, &e)) > 0)
        need(value_kind(body) == VALUE_MAP && s->used <= s->got.len && s->busy >= 0);
    need_line(rc, &e);
    return rc;
}

static void check_saved(const char *path)
{
    struct runview *v = NULL;
    struct err e = {0};
    if (fs_exists(path))
        need(runview_read(&v, path, &e) == 0);
    runview_free(v);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str stream = {0};
    int rc = 0;
    if (size < 2)
        return 0;
    log_to(fuzz_hush, NULL);
    struct session *s = mem_alloc(1, sizeof *s);
    need(s != NULL);
    int peer = fuzz_child(&s->child);
    s->busy = 1 + (data[0] >> 2 & 3);
    if (data[0] & 2) {
        str_copy(s->save.file, sizeof s->save.file, fuzz_path("trace.mp"));
        s->save.before = s->busy - 1;
    }
    if (data[0] & 1)
        str_add_bytes(&stream, data + 2, size - 2);
    else
        fuzz_frames(&stream, data + 2, size - 2, 1);
    size_t piece = data[1] ? data[1] : 4096;
    for (size_t at = 0; rc == 0 && at < stream.len; at += piece) {
        size_t n = at + piece < stream.len ? piece : stream.len - at;
        need(write(peer, stream.p + at, n) == (ssize_t)n);
        rc = take(s);
    }
    close(peer);
    session_close(s);
    check_saved(fuzz_path("trace.mp"));
    unlink(fuzz_path("trace.mp"));
    str_release(&stream);
    return 0;
}
