/* Data of tasks: the shapes it comes in, what is made of it, and what is refused. */
#include "base/fs.h"
#include "base/mem.h"
#include "base/mt19937.h"
#include "eval/task.h"
#include "t.h"

static struct task_options options(const char *name, const char *path)
{
    return (struct task_options){
        .name = name, .path = path, .results = "", .shots = -1, .max_gen = 24, .capacity = -1};
}

static const char *file(const char *dir, const char *name, const char *text)
{
    static char path[1024];
    struct err e = {0};
    snprintf(path, sizeof path, "%s/%s", dir, name);
    *strrchr(path, '/') = '\0';
    t_ok(fs_mkdirs(path, &e), &e);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    t_ok(fs_write_file(path, text, strlen(text), &e), &e);
    return path;
}

/* ---- documents ---- */

static struct task_set set_of(const char *name, const char *path)
{
    struct task_set s;
    struct err e = {0};
    struct task_options o = options(name, path);
    o.shots = 0;
    t_ok(task_set_open(&s, &o, &e), &e);
    return s;
}

T(hellaswag_is_cleaned)
{
    const char *d = t_tmpdir();
    file(d, "validation.jsonl",
         "{\"activity_label\": \"Roof  shingle\", \"ctx_a\": \"A man [substeps] is  there.\", "
         "\"ctx_b\": \"\xc3\x89T\xc3\x89 He GOES\", \"endings\": [\" up [title] down \", "
         "\"a [x] b\", \"c\", \"d\"], \"label\": \"2\"}\n");
    struct task_set s = set_of("hellaswag", d);
    const struct task_doc *x = &s.parts.v[0].asked.v[0];
    t_str(x->query, "Roof shingle: A man is there. \xc3\x89t\xc3\xa9 he goes");
    t_str(x->choice[0], "up. down");
    t_str(x->choice[1], "a b");
    t_eq(x->gold, 2);
    task_set_close(&s);
}

/* str.capitalize() of Python: sharp s, n with an apostrophe and dotted I are several letters. */
T(letters_that_expand_are_capitalised_as_by_the_harness)
{
    static const char *const row[][2] = {
        {"\xc3\x9f\xc3\x9fX", "Ss\xc3\x9fx"},
        {"\xc5\x89OT", "\xca\xbcNot"},
        {"I\xc4\xb0", "Ii\xcc\x87"},
        {"\xc4\xb0X", "\xc4\xb0x"},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        char text[400], want[64];
        const char *d = t_tmpdir();
        snprintf(text, sizeof text,
                 "{\"activity_label\": \"A\", \"ctx_a\": \"b\", \"ctx_b\": \"%s\", \"endings\": "
                 "[\"c\", \"d\"], \"label\": 0}\n",
                 row[i][0]);
        file(d, "validation.jsonl", text);
        struct task_set s = set_of("hellaswag", d);
        snprintf(want, sizeof want, "A: b %s", row[i][1]);
        t_str(s.parts.v[0].asked.v[0].query, want);
        task_set_close(&s);
    }
}

T(the_other_formats_are_read)
{
    const char *d = t_tmpdir();
    file(d, "p/valid.jsonl", "{\"goal\": \"G\", \"sol1\": \"a\", \"sol2\": \"b\", \"label\": 1}\n");
    file(d, "l/test.jsonl", "{\"text\": \"one two  three\"}\n");
    file(d, "a/test.jsonl",
         "{\"question\": \"Q\", \"choices\": {\"text\": [\"x\", \"y\", \"z\"], \"label\": "
         "[\"1\", \"2\", \"3\"]}, \"answerKey\": \"3\"}\n\n");
    char path[1024];
    snprintf(path, sizeof path, "%s/p", d);
    struct task_set s = set_of("piqa", path);
    t_str(s.parts.v[0].asked.v[0].query, "Question: G\nAnswer:");
    t_str(s.parts.v[0].asked.v[0].target, "b");
    task_set_close(&s);
    snprintf(path, sizeof path, "%s/l", d);
    s = set_of("lambada", path);
    t_str(s.parts.v[0].asked.v[0].query, "one two ");
    t_str(s.parts.v[0].asked.v[0].choice[0], "three");
    task_set_close(&s);
    snprintf(path, sizeof path, "%s/a", d);
    s = set_of("arc_easy", path);
    t_eq(s.parts.v[0].asked.v[0].gold, 2);
    task_set_close(&s);
}

T(gsm8k_cot_has_all_eight_worked_examples_in_their_order)
{
    const char *d = t_tmpdir();
    file(d, "test.jsonl", "{\"question\": \"Q\", \"answer\": \"A #### 1\"}\n");
    struct task_set s = set_of("gsm8k_cot", d);
    const struct task_docs *x = &s.parts.v[0].shots;
    t_eq(x->n, 8);
    t_true(strstr(x->v[0].query, "Q: There are 15 trees in the grove."));
    t_true(strstr(x->v[7].query, "Q: Olivia has $23."));
    task_set_close(&s);
}

static void check_shape(const char *task, const char *name, const char *text, const char *query,
                        const char *target)
{
    char path[1024];
    const char *d = t_tmpdir();
    file(d, name, text);
    for (int whole = 0; whole < 2; whole++) { /* the folder, and the file itself */
        snprintf(path, sizeof path, "%s%s%s", d, whole ? "" : "/", whole ? "" : name);
        struct task_set s = set_of(task, path);
        const struct task_docs *x = &s.parts.v[0].asked;
        t_eq(x->n, 2);
        t_str(x->v[1].query, query);
        t_str(x->v[1].target, target);
        task_set_close(&s);
    }
}

T(rows_are_read_in_the_shapes_that_people_have)
{
    const char *sum = "Question: Q\n2\nAnswer:";
    check_shape("gsm8k", "test.json",
                " [{\"question\": \"\", \"answer\": \"\"},\n {\"answer\": \"A\", "
                "\"question\": \"Q\\n2\"}]\n",
                sum, "A");
    check_shape("gsm8k", "test.csv",
                "\xef\xbb\xbfid,question,answer\r\n1,x,y\r\n2,\"Q\n2\",\"A, \"\"B\"\"\"\r\n", sum,
                "A, \"B\"");
    check_shape("piqa", "valid.csv", "goal,sol1,sol2,label\nx,1,2,0\nG,-5,[b,1\n",
                "Question: G\nAnswer:", "[b");
    check_shape("arc_challenge", "ARC-Challenge-Test.jsonl",
                "{\"question\": \"x\", \"choices\": [\"a\", \"b\"], \"gold\": 1}\n{\"question\": "
                "{\"stem\": \"S\", \"choices\": [{\"text\": \"a\", \"label\": \"1\"}, {\"label\": "
                "\"2\", \"text\": \"b\"}]}, \"answerKey\": \"2\"}",
                "Question: S\nAnswer:", "b");
    check_shape(
        "mmlu", "test.jsonl",
        "{\"question\": \"x\", \"subject\": \"virology\", \"choices\": [\"1\", \"2\", \"3\", "
        "\"4\"], \"answer\": 1}\n{\"question\": \" y \", \"subject\": \"virology\", "
        "\"choices\": [\"1\", \"2\", \"3\", \"4\"], \"answer\": \"C\"}",
        "y\nA. 1\nB. 2\nC. 3\nD. 4\nAnswer:", "C");
}

T(each_arc_task_reads_its_own_file_of_a_directory_with_both)
{
    const char *d = t_tmpdir();
    file(d, "ARC-Challenge-Test.jsonl",
         "{\"question\": \"hard\", \"choices\": [\"a\", \"b\"], \"gold\": 1}\n");
    file(d, "ARC-Easy-Test.jsonl",
         "{\"question\": \"easy\", \"choices\": [\"a\", \"b\"], \"gold\": 1}\n");
    struct task_set s = set_of("arc_easy", d);
    t_str(s.parts.v[0].asked.v[0].query, "Question: easy\nAnswer:");
    task_set_close(&s);
    s = set_of("arc_challenge", d);
    t_str(s.parts.v[0].asked.v[0].query, "Question: hard\nAnswer:");
    task_set_close(&s);
}

T(subjects_in_one_file_are_distinguished)
{
    const char *d = t_tmpdir();
    struct str text = {0};
    const char *const subject[] = {"virology", "anatomy", "virology"};
    for (int i = 0; i < 3; i++) {
        str_addf(&text, "{\"question\": \"q%d\", \"subject\": \"%s\", ", i, subject[i]);
        str_add(&text, "\"choices\": [\"1\", \"2\", \"3\", \"4\"], \"answer\": 0}\n");
    }
    file(d, "test.jsonl", str_text(&text));
    file(d, "dev.jsonl", str_text(&text));
    str_release(&text);
    struct task_options o = options("mmlu", d);
    struct task_set s;
    struct err e = {0};
    o.shots = 1;
    t_ok(task_set_open(&s, &o, &e), &e);
    t_eq(s.parts.n, 2);
    t_str(s.parts.v[0].name, "mmlu_anatomy");
    t_eq(s.parts.v[0].asked.n, 1);
    t_eq(s.parts.v[1].asked.n, 2);
    t_eq(s.parts.v[1].shots.n, 2);
    t_true(strncmp(s.parts.v[1].asked.v[1].query, "q2\n", 3) == 0);
    task_set_close(&s);
    o.name = "mmlu_virology";
    t_ok(task_set_open(&s, &o, &e), &e);
    t_eq(s.parts.n, 1);
    task_set_close(&s);
    o.name = "mmlu_astronomy";
    t_fails(task_set_open(&s, &o, &e), &e, DS_EFORMAT, "no rows of subject \"astronomy\"");
}

/* random.Random(1234).sample(range(12), 3), of which two are used: so the next question's are those after three. */
T(shots_that_may_hold_the_question_are_drawn_with_a_spare_one)
{
    const char *d = t_tmpdir();
    struct str text = {0}, prompt = {0};
    struct err e = {0};
    struct mt19937 random;
    for (int i = 0; i < 12; i++)
        str_addf(&text, "{\"goal\": \"g%d\", \"sol1\": \"a\", \"sol2\": \"b\", \"label\": 0}\n", i);
    file(d, "train.jsonl", str_text(&text));
    str_reset(&text);
    for (int i = 0; i < 3; i++)
        str_addf(&text, "{\"goal\": \"g%d\", \"sol1\": \"a\", \"sol2\": \"b\", \"label\": 0}\n",
                 i == 2 ? 1 : 20 + i);
    file(d, "valid.jsonl", str_text(&text));
    struct task_set s;
    struct task_options o = options("piqa", d);
    const int want[3][2] = {{7, 1}, {1, 9}, {10, 11}}; /* the third drew 10, 1, 11 and is g1 */
    o.shots = 2;
    t_ok(task_set_open(&s, &o, &e), &e);
    mt19937_init(&random, TASK_SHOTS_SEED);
    for (int i = 0; i < 3; i++) {
        char expected[128];
        snprintf(expected, sizeof expected,
                 "Question: g%d\nAnswer: a\n\nQuestion: g%d\nAnswer: a\n\nQuestion: ", want[i][0],
                 want[i][1]);
        t_ok(task_prompt(&prompt, &s, &s.parts.v[0], &s.parts.v[0].asked.v[i], &random, &e), &e);
        t_true(strncmp(str_text(&prompt), expected, strlen(expected)) == 0);
    }
    task_set_close(&s);
    o.shots = 12;
    t_fails(task_set_open(&s, &o, &e), &e, DS_ERANGE,
            "only 12 documents for shots and a spare one");
    str_release(&text);
    str_release(&prompt);
}

T(articles_are_split_and_detokenised)
{
    const char *d = t_tmpdir();
    file(d, "wiki.test.raw",
         " \n = Cats = \n \n The cat 's 4 @.@ 5 kg ( or so ) , he said : \" meow \" . \n"
         " = = Life = = \n N @-@ type [ 1 ] \n = Dogs = \n They bark . \n");
    struct task_set s = set_of("wikitext", d);
    const struct task_docs *x = &s.parts.v[0].asked;
    t_eq(x->n, 2);
    t_str(x->v[0].query, " = Cats =\n\nThe cat's 4.5 kg (or so), he said: \"meow\".\n== Life ==\nN"
                         "-type [1]\n");
    t_eq(x->v[0].words, 35); /* 33, and an empty one at either end */
    t_eq(x->v[1].bytes, strlen(" = Dogs = \n They bark . \n"));
    task_set_close(&s);
}

T(pages_are_read_from_rows_too_and_a_known_fault_is_kept)
{
    const char *d = t_tmpdir();
    file(d, "test.jsonl", "{\"page\": \"in /' 3/ and /' x/ or /' 12/\"}\n{\"page\": \"a b\"}\n");
    struct task_set s = set_of("wikitext", d);
    const struct task_docs *x = &s.parts.v[0].asked;
    t_eq(x->n, 2);
    t_str(x->v[0].query, "in /'[0-9]/ and /' x/ or /' 12/"); /* as the harness does */
    t_eq(x->v[1].words, 2);
    t_eq(x->v[1].bytes, 3);
    task_set_close(&s);
}

/* ---- what is refused ---- */

static const char *mmlu(void)
{
    const char *d = t_tmpdir();
    const char *rows = "question,choice0,choice1,choice2,choice3,answer\n"
                       "\" One, two\nor \"\"three\"\"? \",1,2,3,4,2\r\nTwo?,1,2,3,4,B\n"
                       "Three?,1,2,3,4,0\n";
    file(d, "test/anatomy_test.csv", rows);
    file(d, "dev/anatomy_dev.csv", "Dev?,a,b,c,d,D\n");
    file(d, "test/virology_test.csv", "Last?,1,2,3,4,2\nReally?,1,2,3,4,3\n");
    file(d, "dev/virology_dev.csv", "Dev?,a,b,c,d,0\n");
    return d;
}

static void refused(const char *name, const char *path, int shots, const char *part)
{
    struct task_set s;
    struct err e = {0};
    struct task_options o = options(name, path);
    o.shots = shots;
    int rc = task_set_open(&s, &o, &e);
    t_truef(rc < 0, "%s of %s was read", name, path);
    t_truef(strstr(e.text, part) != NULL, "\"%s\" lacks \"%s\"", e.text, part);
    t_true(strchr(e.text, '\n') == NULL);
}

T(damaged_data_is_one_line_with_its_place)
{
    static const struct {
        const char *task, *name, *text, *part;
    } row[] = {
        {"mmlu_anatomy", "test/anatomy_test.csv", "Q,1,2,3,C\n", ":1: 5 columns, expected 6"},
        {"mmlu_anatomy", "test/anatomy_test.csv", "Q,1,2,3,4,E\n", "answer \"E\", expected 0 to 3"},
        {"mmlu_anatomy", "test/anatomy_test.csv", "Q,1,2,3,4,1\n\"cut",
         ":2: truncated: a quote is never"},
        {"mmlu_anatomy", "test/anatomy_test.csv", "Q\xff,1,2,3,4,1\n", "not UTF-8"},
        {"mmlu_anatomy", "test/anatomy_test.csv", "", ": no documents"},
        {"mmlu_anatomy", "test/anatomy_test.csv", "PAR1....PAR1", "is parquet"},
        {"arc_easy", "test.jsonl", "{\"question\": \"Q\"}\n", ":1: 0 \"choices\""},
        {"arc_easy", "test.jsonl", "{\"choices\": [\"a\", \"b\"]}\n",
         "missing string \"question\""},
        {"arc_easy", "test.jsonl", "{\"question\": \"Q\", \"choices\": [\"a\", 2], \"gold\": 0}",
         "choice 1: must be a string"},
        {"arc_easy", "test.jsonl",
         "{\"question\": \"Q\", \"choices\": [\"a\", \"b\"], \"gold\": 2}", "missing \"gold\""},
        {"gsm8k", "test.jsonl", "{\"question\": \"Q\", \"answer\": \"#### 1\"}\n{\"questi", ":2"},
        {"gsm8k", "test.jsonl", "{\"question\": \"Q\"}\n", "missing string \"answer\""},
        {"gsm8k", "test.jsonl", "[1]\n", "not an object"},
        {"gsm8k", "test.jsonl", "\n", ": no documents"},
        {"gsm8k", "test-0001.parquet", "PAR1", "is parquet: unsupported; convert it to JSON Lines"},
        {"gsm8k", "test.jsonl.gz", "\x1f\x8b\x08", "gunzip it first"},
        {"gsm8k", "test.jsonl", "\x1f\x8b\x08", "gunzip it first"},
        {"gsm8k", "test.jsonl", "PAR1....PAR1", "pandas.read_parquet"},
        {"gsm8k", "test.jsonl", "[{\"question\": \"Q\", \"answer\": \"1\"}, 5]",
         "row 2: not an object"},
        {"gsm8k", "test.csv", "question,answer\na\n", ":2: 1 columns, expected 2"},
        {"gsm8k", "test.csv", "question,answer,question\na,b,c\n", ":2"},
        {"mmlu", "test.jsonl",
         "{\"question\": \"Q\", \"subject\": \"cooking\", \"choices\": [], \"answer\": 0}",
         ":1: unknown mmlu subject \"cooking\""},
        {"mmlu", "test.jsonl",
         "{\"question\": \"Q\", \"subject\": \"anatomy\", \"choices\": [\"a\"], \"answer\": 0}",
         "must be four strings"},
        {"hellaswag", "val.jsonl", "{\"activity_label\": \"\", \"ctx_a\": \"\", \"ctx_b\": \"\"}",
         "0 \"endings\""},
        {"piqa", "valid.jsonl", "{\"goal\": \"\", \"sol1\": \"\", \"sol2\": \"\"}",
         "\"label\": must be 0 or 1"},
        {"piqa", "valid.jsonl",
         "{\"goal\": \"\", \"sol1\": \"\", \"sol2\": \"\", \"label\": 4294967296}",
         "\"label\": must be 0 or 1"},
        {"lambada_openai", "test.jsonl", "{\"text\": \"\"}", "empty \"text\""},
        {"lambada_openai", "test.jsonl", "{\"txt\": \"\"}", "missing string \"text\""},
        {"mmlu", "test.jsonl",
         "{\"question\": \"Q\", \"subject\": \"anatomy\", \"choices\": [\"a\", \"b\", \"c\", "
         "\"d\"], \"answer\": 4}",
         "\"answer\": must be 0 to 3 or A to D"},
        {"mmlu", "test.jsonl",
         "{\"question\": \"Q\", \"subject\": \"anatomy\", \"choices\": [\"a\", \"b\", \"c\", "
         "\"d\"], \"answer\": \"AB\"}",
         "\"answer\": must be 0 to 3 or A to D"},
        {"hellaswag", "val.jsonl",
         "{\"activity_label\": \"\", \"ctx_a\": \"\", \"ctx_b\": \"\", \"endings\": [\"a\", 1], "
         "\"label\": 0}",
         "ending 1: must be a string"},
        {"hellaswag", "val.jsonl",
         "{\"activity_label\": \"\", \"ctx_a\": \"\", \"ctx_b\": \"\", \"endings\": [\"a\", "
         "\"b\"], \"label\": 2}",
         "missing \"label\" among 2 endings"},
        {"wikitext", "wiki.test.raw", " \n \n", ": no documents"},
        {"wikitext", "test.jsonl", "{\"text\": \"a\"}", "missing string \"page\""},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        char dir[600];
        snprintf(dir, sizeof dir, "%s/%zu", t_tmpdir(), i);
        file(dir, row[i].name, row[i].text);
        refused(row[i].task, dir, 0, row[i].part);
    }
}

/* Every allocation fails once: an error, or the same documents. */
static void short_of_memory(const char *name, const char *path, int shots)
{
    struct task_options o = options(name, path);
    struct task_set whole;
    struct err none = {0};
    uint64_t failed = 0, at, n = 1;
    o.shots = shots;
    t_ok(task_set_open(&whole, &o, &none), &none);
    const struct task_doc *want = &whole.parts.v[0].asked.v[0];
    do {
        struct task_set s;
        struct err e = {0};
        at = mem_calls() + n++;
        mem_fail_at(at, 0);
        int rc = task_set_open(&s, &o, &e);
        mem_fail_at(0, 0);
        failed += rc < 0;
        if (rc < 0) {
            t_truef(rc == DS_EMEM && strstr(e.text, "out of memory"), "%s: %d %s", name, rc,
                    e.text);
            continue;
        }
        const struct task_doc *got = &s.parts.v[0].asked.v[0];
        t_eq(s.parts.n, whole.parts.n);
        t_eq(got->choices, want->choices);
        t_str(got->query, want->query);
        t_str(got->target, want->target);
        for (int k = 0; k < want->choices; k++)
            t_str(got->choice[k], want->choice[k]);
        task_set_close(&s);
    } while (mem_calls() >= at);
    t_truef(failed > 5, "%s: %llu of %llu failed", name, (unsigned long long)failed,
            (unsigned long long)n);
    task_set_close(&whole);
}

T(want_of_memory_for_documents_is_said_at_every_place)
{
    static const struct {
        const char *task, *name, *text;
    } row[] = {
        {"gsm8k", "test.jsonl", "{\"question\": \"Q\", \"answer\": \"#### 1\"}\n"},
        {"gsm8k", "test.csv", "question,answer\nQ,#### 1\n"},
        {"piqa", "valid.jsonl",
         "{\"goal\": \"G\", \"sol1\": \"a\", \"sol2\": \"b\", \"label\": 1}\n"},
        {"arc_easy", "test.jsonl",
         "{\"question\": \"Q\", \"choices\": [\"a\", \"b\"], \"gold\": 1}\n"},
        {"hellaswag", "validation.jsonl",
         "{\"activity_label\": \"A\", \"ctx_a\": \"b [x]\", \"ctx_b\": \"C\", \"endings\": [\"c\", "
         "\"d [title] e\"], \"label\": 0}\n"},
        {"lambada", "test.jsonl", "{\"text\": \"one two three\"}\n"},
        {"wikitext", "wiki.test.raw",
         " = Cats = \n The cat 's 4 @.@ 5 kg . \n = B = \n b /' 3/ \n"},
        {"wikitext", "test.jsonl", "{\"page\": \"one two\"}\n"},
        {"mmlu", "test.jsonl",
         "{\"question\": \"Q\", \"subject\": \"anatomy\", \"choices\": [\"a\", \"b\", \"c\", "
         "\"d\"], \"answer\": 3}"},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        char dir[600];
        snprintf(dir, sizeof dir, "%s/%zu", t_tmpdir(), i);
        file(dir, row[i].name, row[i].text);
        short_of_memory(row[i].task, dir, 0);
    }
    short_of_memory("mmlu", mmlu(), 1);
}

T(what_is_not_there_is_named)
{
    const char *d = t_tmpdir();
    refused("nothing", d, 0, "unknown task=nothing; expected one of ppl, mmlu, arc_challenge");
    refused("mmul", d, 0, "did you mean mmlu?");
    refused("mmlu", "", 0, "needs data=DIRECTORY or FILE: test/SUBJECT_test.csv");
    refused("mmlu", d, 0, "not found: expected one of test/abstract_algebra_test.csv");
    refused("mmlu_cooking", mmlu(), 0, "unknown mmlu subject \"cooking\"");
    refused("mmlu", d, 2, "has only 1 documents for shots");
    refused("gsm8k", "no/such/folder", 0, "no/such/folder: not found");
    refused("gsm8k", "", 0, "needs data=DIRECTORY or FILE: test.jsonl, and train.jsonl");
    file(d, "test.jsonl", "{\"question\": \"Q\", \"answer\": \"#### 1\"}\n");
    refused("gsm8k", d, 5, "not found: expected one of train.jsonl");
    refused("gsm8k", file(d, "test.jsonl", "{\"question\": \"Q\", \"answer\": \"1\"}"), 5,
            "a single file");
    file(d, "train.jsonl", "{\"question\": \"Q\", \"answer\": \"#### 1\"}\n");
    refused("gsm8k", d, 5, "shots=5: gsm8k has only 1 documents");
    file(d, "test.jsonl", "{\"text\": \"a b\"}\n");
    refused("lambada", d, 1, "no few-shot split");
}
