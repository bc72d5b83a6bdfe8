/* Words of the command line. */
#include "t.h"

#include <stdarg.h>

#include "base/mem.h"
#include "cli/cli.h"

const struct command commands[] = {{.name = NULL}};

int command_fail(const struct err *e)
{
    return e->code == DS_EUSAGE ? 2 : 1;
}

static struct cli_option options[8];

static const char *command = "cmd";

/* The words behind the command, ended by NULL; they live until the next call. */
static int parse(struct cli_args *a, struct err *e, const char *first, ...)
{
    const struct cli_option fresh[] = {{.name = "text", .has_value = 1},
                                       {.name = "json"},
                                       {.name = "o", .has_value = 1},
                                       {.name = NULL}};
    static char word[16][64];
    char *argv[16];
    int argc = 0;
    va_list ap;
    memcpy(options, fresh, sizeof fresh);
    snprintf(word[0], sizeof word[0], "%s", command);
    va_start(ap, first);
    for (const char *w = first; w && argc < 15; w = va_arg(ap, const char *))
        snprintf(word[++argc], sizeof word[0], "%s", w);
    va_end(ap);
    for (int i = 0; i <= argc; i++)
        argv[i] = word[i];
    return cli_parse(a, options, argc + 1, argv, e);
}

T(options_overrides_and_positional_arguments_are_separated)
{
    struct cli_args a;
    struct err e = {0};
    t_ok(parse(&a, &e, "model", "a.b=v", "--text", "--json", "-o", "out", "+x.y=1", "~z", "--m.n=2",
               "dir/a=b", "-", (char *)NULL),
         &e);
    t_str(cli_value(&a, "text"), "--json");
    t_true(!cli_flag(&a, "json"));
    t_str(cli_value(&a, "o"), "out");
    t_eq(a.n_override, 4);
    t_str(a.override[3], "--m.n=2");
    t_eq(a.n_rest, 3);
    t_str(a.rest[1], "dir/a=b");
    cli_release(&a);
}

T(a_value_may_follow_an_equals_sign_and_may_be_empty)
{
    struct cli_args a;
    struct err e = {0};
    t_ok(parse(&a, &e, "--text=a=b", "--json", (char *)NULL), &e);
    t_str(cli_value(&a, "text"), "a=b");
    t_true(cli_flag(&a, "json"));
    cli_release(&a);
    t_ok(parse(&a, &e, "--text", "", (char *)NULL), &e);
    t_str(cli_value(&a, "text"), "");
    cli_release(&a);
}

T(everything_after_two_dashes_is_positional)
{
    struct cli_args a;
    struct err e = {0};
    t_ok(parse(&a, &e, "--", "--json", "a=b", "-x", (char *)NULL), &e);
    t_eq(a.n_rest, 3);
    t_true(!cli_flag(&a, "json"));
    cli_release(&a);
}

T(an_unknown_option_names_the_nearest)
{
    struct cli_args a;
    struct err e = {0};
    t_fails(parse(&a, &e, "--tex", "x", (char *)NULL), &e, DS_EUSAGE, "--text");
    t_fails(parse(&a, &e, "--jsn", (char *)NULL), &e, DS_EUSAGE, "--json");
    t_fails(parse(&a, &e, "-json", (char *)NULL), &e, DS_EUSAGE, "--json");
    t_fails(parse(&a, &e, "-\x1b[2J", (char *)NULL), &e, DS_EUSAGE, "unknown option");
    t_true(!strchr(e.text, 27));
}

T(a_key_of_the_command_may_be_written_as_an_option)
{
    struct cli_args a;
    struct err e = {0};
    command = "train";
    t_ok(parse(&a, &e, "--train.steps", "10", "--seed", "3", "--train.lr=1e-3", "--text", "x", "y",
               (char *)NULL),
         &e);
    t_eq(a.n_override, 3);
    t_str(a.override[0], "--train.steps=10");
    t_str(a.override[1], "--seed=3");
    t_eq(a.n_rest, 1);
    cli_release(&a);
    t_fails(parse(&a, &e, "--train.steps", (char *)NULL), &e, DS_EUSAGE, "missing value");
    t_fails(parse(&a, &e, "--train.stpes", "10", (char *)NULL), &e, DS_EUSAGE, "train.steps=");
    t_fails(parse(&a, &e, "--steps", "10", (char *)NULL), &e, DS_EUSAGE, "train.steps=");
    t_fails(parse(&a, &e, "-seed", "10", (char *)NULL), &e, DS_EUSAGE, "unknown option -seed");
    command = "cmd";
    t_fails(parse(&a, &e, "--seed", "3", (char *)NULL), &e, DS_EUSAGE, "unknown option --seed");
}

T(a_setting_is_found_in_every_spelling_and_by_every_name)
{
    static const struct opt rows[] = {
        {"capacity", OPT_REAL, 0, "1", 0, 0, NULL, "", "share papers.share"},
        {"other", OPT_REAL, 0, "1", 0, 0, NULL, "", NULL},
    };
    const struct opt_group g = {.prefix = "m.", .title = "m", .opts = rows, .n = 2};
    static const char *const sets[] = {"m.capacity=1",   "+m.capacity=1", "++m.capacity=1",
                                       "--m.capacity=1", "share=1",       "++papers.share=1"},
                             *const not [] = {"m.other=1", "~m.capacity", "capacity=1",
                                              "m.capacity:=1"};
    struct cli_args a;
    struct err e = {0};
    for (size_t i = 0; i < DS_LEN(sets); i++) {
        t_ok(parse(&a, &e, sets[i], (char *)NULL), &e);
        t_truef(cli_has_setting(&a, &g, "m.capacity"), "%s", sets[i]);
        cli_release(&a);
    }
    for (size_t i = 0; i < DS_LEN(not ); i++) {
        t_ok(parse(&a, &e, not [i], (char *)NULL), &e);
        t_truef(!cli_has_setting(&a, &g, "m.capacity"), "%s", not [i]);
        cli_release(&a);
    }
}

T(a_missing_or_unexpected_value_is_an_error)
{
    struct cli_args a;
    struct err e = {0};
    t_fails(parse(&a, &e, "--text", (char *)NULL), &e, DS_EUSAGE, "missing value");
    t_fails(parse(&a, &e, "--json=1", (char *)NULL), &e, DS_EUSAGE, "unexpected value");
}

T(seeds_are_distinct_non_negative_integers)
{
    int64_t *seed;
    size_t n;
    struct err e = {0};
    t_ok(cli_seeds(&seed, &n, "3,1,20", &e), &e);
    t_eq(n, 3);
    t_eq(seed[2], 20);
    mem_free(seed);
    t_fails(cli_seeds(&seed, &n, "", &e), &e, DS_EUSAGE, "non-negative integer");
    t_fails(cli_seeds(&seed, &n, "1,,2", &e), &e, DS_EUSAGE, "non-negative integer");
    t_fails(cli_seeds(&seed, &n, "1,2,", &e), &e, DS_EUSAGE, "non-negative integer");
    t_fails(cli_seeds(&seed, &n, "1,1", &e), &e, DS_EUSAGE, "duplicate");
    t_fails(cli_seeds(&seed, &n, "-1", &e), &e, DS_EUSAGE, "non-negative integer");
    t_fails(cli_seeds(&seed, &n, "99999999999999999999", &e), &e, DS_EUSAGE,
            "non-negative integer");
}

T(a_table_aligns_and_escapes)
{
    struct table t;
    struct str s = {0};
    table_init(&t, 2);
    table_add(&t, "name");
    table_add(&t, "1");
    table_add(&t, "\x1b]0;x\a");
    table_add(&t, "222");
    table_print(&t, &s);
    t_true(!strchr(str_text(&s), 27) && !strchr(str_text(&s), 7));
    t_true(strstr(str_text(&s), "  222\n") != NULL);
    char *nl = strchr(s.p, '\n');
    t_eq(nl - s.p, (long)(strlen(s.p) - (size_t)(nl - s.p) - 2));
    table_release(&t);
    str_release(&s);
}

T(json_pieces_have_commas_where_they_belong)
{
    struct str s = {0};
    const double v[] = {1, (double)NAN};
    str_add(&s, "{");
    json_add_int(&s, "a", 1);
    json_add_str(&s, "b", "x\"[");
    json_add_nums(&s, "c", v, 2);
    str_add(&s, "}");
    t_str(str_text(&s), "{\"a\":1,\"b\":\"x\\\"[\",\"c\":[1,null]}");
    str_release(&s);
}
