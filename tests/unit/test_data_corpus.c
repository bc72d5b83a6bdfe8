/* Corpora: what becomes a document, and what does not. */
#include "t.h"

#include "base/fs.h"
#include "base/mem.h"
#include "data/corpus.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct err err;

static const char *put(const char *dir, const char *name, const char *text, size_t n)
{
    static char path[1024];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    t_true(f && fwrite(text, 1, n, f) == n && fclose(f) == 0);
    return path;
}

static struct corpus *read_as(const char *name, const char *format, const char *text, size_t n)
{
    struct corpus *c = NULL;
    struct corpus_options o = {.path = put(t_tmpdir(), name, text, n), .format = format};
    t_ok(corpus_open(&c, &o, &err), &err);
    return c;
}

static void expect(const struct corpus *c, const char *const *want, size_t n)
{
    t_eq(corpus_count(c), n);
    uint64_t bytes = 0;
    for (size_t i = 0; i < n; i++) {
        struct document d = corpus_at(c, i);
        t_eq(d.len, strlen(want[i]));
        t_true(memcmp(d.text, want[i], d.len) == 0);
        bytes += d.len;
    }
    t_eq(corpus_bytes(c), bytes);
}

#define READ(name, format, text) read_as(name, format, text, sizeof(text) - 1)
#define EXPECT(c, ...)                                                                             \
    expect(c, (const char *const[]){__VA_ARGS__},                                                  \
           sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

T(blank_lines_separate_blocks)
{
    struct corpus *c = READ("a.txt", NULL, "\n\none\ntwo\n\n  \t\n three \n\n\n\nfour");
    EXPECT(c, "one\ntwo", "three", "four");
    corpus_close(c);
}

T(carriage_returns_and_a_byte_order_mark_vanish)
{
    struct corpus *c = READ("a.txt", "auto", "\xEF\xBB\xBFone\r\ntwo\r\n\r\nth\rree\r\n");
    EXPECT(c, "one\ntwo", "th\rree");
    corpus_close(c);
}

T(end_of_text_marks_win_over_blank_lines)
{
    struct corpus *c = READ(
        "a.txt", NULL, "one\n\ntwo\n<|endoftext|>\n\nthree<|endoftext|><|endoftext|>four <| five");
    EXPECT(c, "one\n\ntwo", "three", "four <| five");
    corpus_close(c);
    c = READ("a.txt", "eot",
             "one < two < three < four < five<|endoftext|>six <em>seven</em> eight");
    EXPECT(c, "one < two < three < four < five", "six <em>seven</em> eight");
    corpus_close(c);
}

T(a_file_a_line_and_a_key)
{
    struct corpus *c = READ("a.txt", "file", "one\n\ntwo\n");
    EXPECT(c, "one\n\ntwo");
    corpus_close(c);
    c = READ("a.txt", "lines", "one\n\n two\nthree");
    EXPECT(c, "one", "two", "three");
    corpus_close(c);
    c = READ("a.jsonl", NULL,
             "{\"text\":\"one\\ntwo\"}\n\n{\"id\":1,\"text\":\"\xC3\xA9\"}\r\n{\"text\":\" "
             "\"}\n{\"text\":\"last\"}");
    EXPECT(c, "one\ntwo", "\xC3\xA9", "last");
    corpus_close(c);
}

T(invalid_bytes_are_kept)
{
    struct corpus *c = READ("a.txt", NULL,
                            "a\xff\xfe"
                            "b\xed\xa0\x80");
    EXPECT(c, "a\xff\xfe"
              "b\xed\xa0\x80");
    corpus_close(c);
}

T(errors_name_the_file_and_the_line)
{
    struct corpus *c = NULL;
    const char *dir = t_tmpdir();
    struct corpus_options o = {.path = put(dir, "e.txt", " \n\n", 3)};
    t_fails(corpus_open(&c, &o, &err), &err, DS_EFORMAT, "e.txt");
    o.path = put(dir, "z.txt", "", 0);
    t_fails(corpus_open(&c, &o, &err), &err, DS_EFORMAT, "no documents");
    o.path = put(dir, "a.jsonl", "{\"text\":\"x\"}\n{\"body\":\"y\"}\n", 26);
    t_fails(corpus_open(&c, &o, &err), &err, DS_EFORMAT, "line 2");
    t_true(strstr(err.text, "body") != NULL);
    o.path = put(dir, "b.jsonl", "{\"text\":\"x\"\n", 12);
    t_fails(corpus_open(&c, &o, &err), &err, DS_EFORMAT, "line 1");
    o.path = put(dir, "c.jsonl", "[{\"text\":\"x\"}]\n", 15);
    t_fails(corpus_open(&c, &o, &err), &err, DS_EFORMAT,
            "JSON array, expected one object per line; convert it with");
    o.path = put(dir, "d.json", "\xEF\xBB\xBF\n [\n {\"text\":\"x\"}\n]\n", 24);
    t_fails(corpus_open(&c, &o, &err), &err, DS_EFORMAT, "JSON array");
    o.path = put(dir, "u.txt", "\xff\xfex\0\n\0\n\0y\0", 10);
    t_fails(corpus_open(&c, &o, &err), &err, DS_EFORMAT,
            "UTF-16 file, expected UTF-8 text; convert");
    o.path = put(dir, "a.gz", "\x1f\x8b\x08zzzz", 7);
    t_fails(corpus_open(&c, &o, &err), &err, DS_EFORMAT, "gzip file, expected UTF-8 text; unpack");
    o.path = put(dir, "array.txt", "[a, b]\n", 7);
    t_ok(corpus_open(&c, &o, &err), &err);
    corpus_close(c);
    c = NULL;
    o.path = "/nonexistent/file";
    t_fails(corpus_open(&c, &o, &err), &err, DS_EIO, "nonexistent");
    o.path = dir;
    o.format = "words";
    t_fails(corpus_open(&c, &o, &err), &err, DS_EUSAGE, "words");
    o.path = NULL;
    t_fails(corpus_open(&c, &o, &err), &err, DS_EUSAGE, "synth");
    t_true(c == NULL);
}

T(a_folder_is_walked_in_sorted_order)
{
    struct corpus *c = NULL;
    char sub[600];
    const char *dir = t_tmpdir();
    struct corpus_options o = {.path = dir};
    t_fails(corpus_open(&c, &o, &err), &err, DS_EFORMAT, dir);
    snprintf(sub, sizeof sub, "%s/b", dir);
    t_eq(mkdir(sub, 0755), 0);
    put(dir, "c.txt", "third", 5);
    put(dir, "a.txt", "first", 5);
    put(sub, "x.jsonl", "{\"text\":\"second\"}", 17);
    put(dir, ".hidden", "no", 2);
    put(dir, "d.bin", "\x00\x01\x02", 3);
    t_eq(mkfifo(put(sub, "pipe2", "", 0), 0600), -1);
    snprintf(sub, sizeof sub, "%s/b/pipe", dir);
    t_eq(mkfifo(sub, 0600), 0);
    t_ok(corpus_open(&c, &o, &err), &err);
    EXPECT(c, "first", "second", "third");
    corpus_close(c);
    snprintf(sub, sizeof sub, "%s/b/loop", dir);
    t_eq(symlink("..", sub), 0);
    t_fails(corpus_open(&c, &o, &err), &err, DS_ERANGE, "nested deeper");
}

T(a_line_without_end_is_cut_at_the_limit)
{
    struct corpus *c = NULL;
    char *text = mem_alloc(5 << 20, 1);
    for (size_t i = 0; i + 1 < 5 << 20; i += 2)
        memcpy(text + i, "\xC3\xA9", 2);
    struct corpus_options o = {.path = put(t_tmpdir(), "a.txt", text, 5 << 20),
                               .max_bytes = (3 << 20) + 1};
    t_ok(corpus_open(&c, &o, &err), &err);
    t_eq(corpus_count(c), 1);
    t_eq(corpus_bytes(c), 3 << 20); /* not half a character */
    corpus_close(c);
    mem_free(text);
}

/* The limit is at the border of two pieces of a file, or behind it, inside a character. */
T(a_character_across_the_border_of_a_chunk_is_not_halved_by_the_limit)
{
    size_t n = 3 << 20;
    char *text = mem_alloc(n, 1);
    memset(text, 'x', n);
    memcpy(text + (1 << 20) - 1, "\xE2\x82\xAC", 3);
    for (uint64_t limit = (1 << 20) - 1; limit < (1 << 20) + 4; limit++) {
        struct corpus *c = NULL;
        struct corpus_options o = {.path = put(t_tmpdir(), "a.txt", text, n), .max_bytes = limit};
        t_ok(corpus_open(&c, &o, &err), &err);
        t_eq(corpus_bytes(c), limit < (1 << 20) + 2 ? (1 << 20) - 1 : limit);
        corpus_close(c);
    }
    mem_free(text);
}

T(nothing_follows_where_text_was_cut)
{
    struct corpus *c = NULL;
    static const char text[] = "one \xE2\x82\xAC\na\nb\n";
    struct corpus_options o = {
        .path = put(t_tmpdir(), "a.txt", text, sizeof text - 1), .format = "lines", .max_bytes = 6};
    t_ok(corpus_open(&c, &o, &err), &err);
    EXPECT(c, "one");
    corpus_close(c);
}

T(endless_input_is_bounded)
{
    struct corpus *c = NULL;
    char path[40];
    int end[2];
    t_eq(pipe(end), 0);
    snprintf(path, sizeof path, "/dev/fd/%d", end[0]);
    struct corpus_options o = {.path = path, .format = "lines", .max_bytes = 1 << 20};
    pid_t writer = fork();
    if (writer == 0) {
        static const char zeros[4096];
        close(end[0]);
        while (write(end[1], zeros, sizeof zeros) > 0) { /* until the reader has gone */
        }
        _exit(0);
    }
    close(end[1]);
    t_ok(corpus_open(&c, &o, &err), &err);
    t_eq(corpus_bytes(c), 1 << 20);
    corpus_close(c);
    close(end[0]);
    t_eq(waitpid(writer, NULL, 0), writer);
}

/* Marks, CRs and lines that lie across the borders of chunks. */
T(chunk_borders_change_nothing)
{
    size_t n = (3 << 20) + 77, docs = 0;
    char *text = mem_alloc(n, 1);
    memset(text, 'x', n);
    for (size_t k = 1; k < 3; k++, docs++)
        memcpy(text + (k << 20) - 5, "<|endoftext|>\r\n", 15);
    struct corpus *c = read_as("a.txt", "eot", text, n);
    t_eq(corpus_count(c), docs + 1);
    t_eq(corpus_at(c, 0).len, (1 << 20) - 5);
    t_eq(corpus_bytes(c), n - docs * 15);
    corpus_close(c);
    memset(text, 'x', n);
    text[(1 << 20) - 1] = '\r';
    text[1 << 20] = '\n';
    text[(2 << 20) - 1] = '\r';
    c = read_as("a.txt", "lines", text, n);
    t_eq(corpus_count(c), 2);
    t_eq(corpus_at(c, 0).len, (1 << 20) - 1);
    t_eq(corpus_bytes(c), n - 2);
    corpus_close(c);
    mem_free(text);
}

T(the_split_follows_the_text)
{
    struct corpus *a = NULL, *b = NULL;
    struct corpus_options o = {.path = "synth", .max_docs = 2000, .seed = 4};
    t_ok(corpus_open(&a, &o, &err), &err);
    t_eq(corpus_count(a), 2000);
    size_t val = 0;
    for (size_t i = 0; i < 2000; i++) {
        val += (size_t)corpus_is_val(a, i, 0.1);
        t_true(!corpus_is_val(a, i, 0) && (!corpus_is_val(a, i, 0.1) || corpus_is_val(a, i, 0.2)));
    }
    t_near((double)val, 200, 70);
    o.max_docs = 100;
    t_ok(corpus_open(&b, &o, &err), &err);
    for (size_t i = 0; i < 100; i++)
        t_eq(corpus_is_val(a, i, 0.1), corpus_is_val(b, i, 0.1));
    t_true(corpus_hash(a) != corpus_hash(b));
    t_true(corpus_at(a, 5).bits != NULL);
    corpus_close(a);
    corpus_close(b);
}

T(tinystories_become_documents)
{
    struct corpus *c = NULL;
    struct corpus_options o = {.path = t_shared("corpora/tinystories/tinystories_10k_lines.txt")};
    t_ok(corpus_open(&c, &o, &err), &err);
    t_true(corpus_count(c) > 500);
    printf("%zu documents, %llu bytes\n", corpus_count(c), (unsigned long long)corpus_bytes(c));
    corpus_close(c);
}

T(every_failed_allocation_is_an_error)
{
    struct corpus_options file = {
        .path = put(t_tmpdir(), "a.jsonl", "{\"text\":\"one\"}\n{\"text\":\"two\"}\n", 30)};
    struct corpus_options synth = {.path = "synth", .max_docs = 1};
    int failed = 0, is_done = 0;
    for (uint64_t k = 1; !is_done && k < 3000; k++) {
        struct corpus *a = NULL, *b = NULL;
        uint64_t last = mem_calls() + k;
        err = (struct err){0};
        mem_fail_at(last, 0);
        int rc = corpus_open(&a, &file, &err);
        if (rc >= 0)
            rc = corpus_open(&b, &synth, &err);
        is_done = mem_calls() < last;
        mem_fail_at(0, 0);
        failed += rc < 0;
        t_truef(rc >= 0 || (rc == DS_EMEM && strstr(err.text, "memory")), "call %d: %d %s", (int)k,
                rc, err.text);
        if (rc >= 0)
            t_true(corpus_count(a) == 2 && corpus_count(b) == 1);
        corpus_close(a);
        corpus_close(b);
    }
    t_true(is_done && failed > 5);
}
