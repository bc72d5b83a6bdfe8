/* Filters of runs: parsing with columns of errors, matching, completion. */
#include "base/fs.h"
#include "io/runquery.h"
#include "t.h"

static struct run_row row(void)
{
    static struct config config;
    struct err e = {0};
    struct run_row r = {
        .name = "tiny-edp-1", .method = "edp", .state = RUN_LIVE, .last_time = 1000};
    for (int i = 0; i < RUN_NUMBERS; i++)
        r.number[i] = (double)NAN;
    r.number[RUN_VAL_LOSS] = 3.125;
    r.number[RUN_STEP] = 50;
    r.number[RUN_STEPS] = 100;
    if (config.n == 0) {
        t_ok(config_set(&config, "train.lr", "0.001", "test", &e), &e);
        t_ok(config_set(&config, "data.path", "my texts/a.txt", "test", &e), &e);
    }
    r.config = &config;
    t_ok(run_notes_tag(&r.notes, "paper", &e), &e);
    t_ok(run_notes_tag(&r.notes, "v2", &e), &e);
    str_copy(r.notes.note, sizeof r.notes.note, "Best so far");
    return r;
}

/* 1, 0, or negative for an error. */
static int matches(const char *text)
{
    struct runquery q;
    struct err e = {0};
    struct run_row r = row();
    int rc = runquery_parse(&q, text, &e);
    return rc < 0 ? rc : runquery_match(&q, &r, 4600);
}

T(terms_hold_or_not)
{
    static const char *const holds[] = {
        "",
        "  ",
        "tiny",
        "EDP",
        "method=edp",
        "method=edp state=live tag=paper name~tiny",
        "val_loss<3.2",
        "val_loss<=3.125",
        "val_loss>=3.125",
        "val_loss=3.125",
        "val_loss!=3",
        "train.lr>1e-4",
        "train.lr=1e-3",
        "train.lr!=1e-4",
        "data.path=\"my texts/a.txt\"",
        "data.path~TEXTS",
        "tag=v2",
        "tag!=draft",
        "tag~pap",
        "tags=paper",
        "note~\"so far\"",
        "progress=0.5",
        "step>49",
        "age>59m",
        "age<2h",
        "loss!=3",
        "no.key!=x",
        "parent=",
        "\"tiny-edp\"",
    };
    static const char *const fails[] = {
        "tinny",
        "method=mod",
        "method=edp state=done",
        "val_loss<3",
        "train.lr>1e-2",
        "tag=draft",
        "tag!=paper",
        "loss<5",
        "loss>5",
        "loss=5",
        "no.key=x",
        "no.key>1",
        "data.path>1",
        "age>2h",
        "eta<1h",
        "name~tiny name~mod",
        "tag=",
    };
    for (size_t i = 0; i < DS_LEN(holds); i++)
        t_truef(matches(holds[i]) == 1, "%s", holds[i]);
    for (size_t i = 0; i < DS_LEN(fails); i++)
        t_truef(matches(fails[i]) == 0, "%s", fails[i]);
}

T(errors_name_the_column)
{
    static const struct {
        const char *text, *part;
    } bad[] = {
        {"=3", "column 1: expected a key before ="},
        {"method=edp <3", "column 12: expected a key"},
        {"val_loss<abc", "column 10: 'abc': expected a number"},
        {"val_loss=abc", "column 10: 'abc': expected a number"},
        {"name>", "column 6: missing value"},
        {"name~", "column 6: missing value"},
        {"state=alive", "column 7: unknown state 'alive', did you mean live?"},
        {"method=edp note~\"open", "column 17: missing closing \""},
        {"name=\"a\"b", "column 9: expected a blank"},
        {"train.lr>big", "column 10: 'big'"},
        {"age>3x", "column 5: '3x'"},
        {"note=\xc3\xa9\xc3\xa9 >3", "column 9: expected a key"},
    };
    struct runquery q;
    for (size_t i = 0; i < DS_LEN(bad); i++) {
        struct err e = {0};
        t_fails(runquery_parse(&q, bad[i].text, &e), &e, DS_EUSAGE, bad[i].part);
    }
    char many[200] = "";
    struct err e = {0};
    for (int i = 0; i < 33; i++)
        snprintf(many + strlen(many), sizeof many - strlen(many), "a ");
    t_fails(runquery_parse(&q, many, &e), &e, DS_EUSAGE, "column 65: more than 32 terms");
}

T(a_key_that_no_run_has_is_named_with_the_nearest)
{
    struct run_row r = row(), *rows[] = {&r};
    struct runindex x = {.row = rows, .n = 1};
    struct runquery q;
    struct err e = {0};
    t_ok(runquery_parse(&q, "method=edp train.lrr>1", &e), &e);
    t_fails(runquery_check(&q, &x, &e), &e, DS_EUSAGE,
            "column 12: unknown key train.lrr, did you mean train.lr?");
    t_ok(runquery_parse(&q, "train.lr>1 val_loss<2", &e), &e);
    t_ok(runquery_check(&q, &x, &e), &e);
}

static const char *complete(const char *text)
{
    static char out[2000];
    struct run_row r = row(), *rows[] = {&r};
    struct runindex x = {.row = rows, .n = 1};
    char **word;
    size_t n, from;
    struct err e = {0};
    t_ok(runquery_complete(&word, &n, &from, text, &x, 4600, &e), &e);
    snprintf(out, sizeof out, "%zu:", from);
    for (size_t i = 0; i < n; i++)
        snprintf(out + strlen(out), sizeof out - strlen(out), " %s", word[i]);
    fs_list_free(word, n);
    return out;
}

T(completion_offers_keys_then_values_seen)
{
    t_str(complete("metho"), "0: method=");
    t_str(complete("state=live train.l"), "11: train.lr=");
    t_str(complete("method="), "0: method=edp");
    t_str(complete("tag="), "0: tag=paper tag=v2");
    t_str(complete("x state!=s"), "2: state!=silent state!=stopped");
    t_str(complete("train.lr>0"), "0: train.lr>0.001");
    t_str(complete("data.path="), "0: data.path=\"my texts/a.txt\"");
    t_str(complete("note~\"Best so"), "0: note~\"Best so far\"");
    t_str(complete("nothing"), "0:");
}
