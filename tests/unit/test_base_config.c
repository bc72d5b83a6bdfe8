/* Options, YAML presets, overrides and unknown keys. */
#include "t.h"

#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/config.h"
#include "base/fs.h"
#include "base/mem.h"

struct values {
    int64_t steps;
    double lr;
    int resume;
    char *name;
    int method;
    double beta;
};

static const struct opt rows[] = {
    {"steps", OPT_INT, offsetof(struct values, steps), "100", 1, 1e9, NULL, "steps", NULL},
    {"lr", OPT_REAL, offsetof(struct values, lr), "0.1", 0, 10, NULL, "rate", "learning_rate eta"},
    {"resume", OPT_BOOL, offsetof(struct values, resume), "no", 0, 0, NULL, "go on", NULL},
    {"name", OPT_STRING, offsetof(struct values, name), "run", 0, 0, NULL, "name", NULL},
    {"method", OPT_ENUM, offsetof(struct values, method), "mod", 0, 0, "dense|mod|edp", "m",
     .former = "whole=dense elastic=edp"},
    {"adam.beta", OPT_REAL, offsetof(struct values, beta), NULL, 0, 0, NULL, "beta", NULL},
};
static const struct opt_group group = {"train.", "training", rows, sizeof rows / sizeof *rows};
static const struct opt_group *const groups[] = {&group};

T(opt_defaults_and_values_round_trip)
{
    static const struct {
        int row;
        const char *in, *out;
    } cases[] = {
        {0, "7", "7"},
        {0, "1e6", "1000000"},
        {1, "3e-4", "0.0003"},
        {1, "0.1", "0.1"},
        {2, "YES", "true"},
        {2, "off", "false"},
        {3, "", ""},
        {3, "a b", "a b"},
        {4, "edp", "edp"},
        {4, "dense", "dense"},
        {4, "elastic", "edp"},
        {4, "whole", "dense"},
        {5, "-1.5", "-1.5"},
        {1, "1", "1"},
        {5, "0.30000000000000004", "0.30000000000000004"},
    };
    struct values v = {0};
    struct err e = {0};
    char text[64];
    t_ok(opt_defaults(&group, &v, &e), &e);
    t_true(v.steps == 100 && v.lr == 0.1 && !v.resume && v.method == 1 && v.beta == 0);
    t_str(v.name, "run");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        t_ok(opt_set(&rows[cases[i].row], &v, cases[i].in, "argument 1", &e), &e);
        opt_print(&rows[cases[i].row], &v, text, sizeof text);
        t_str(text, cases[i].out);
    }
    t_true(opt_find(&group, "train.lr") == &rows[1] &&
           opt_find(&group, "learning_rate") == &rows[1]);
    t_true(!opt_find(&group, "lr") && !opt_find(&group, "train.") && !opt_find(&group, ""));
    opt_release(&group, &v);
    t_true(v.name == NULL);
}

T(opt_set_rejects_values_of_the_wrong_type)
{
    static const struct {
        int row, code;
        const char *in, *part;
    } cases[] = {
        {0, DS_EUSAGE, "", "must be an integer"},
        {0, DS_EUSAGE, "1.5", "must be an integer"},
        {0, DS_EUSAGE, "0x10", "must be an integer"},
        {0, DS_EUSAGE, " 5", "must be an integer"},
        {0, DS_ERANGE, "0", "must be 1 to"},
        {0, DS_ERANGE, "99999999999999999999", "must be"},
        {0, DS_ERANGE, "1e400", "must be"},
        {1, DS_ERANGE, "11", "must be 0 to 10"},
        {1, DS_EUSAGE, "nan", "must be a number"},
        {1, DS_EUSAGE, "inf", "must be a number"},
        {5, DS_ERANGE, "1e999", "too large"},
        {1, DS_EUSAGE, "1-2", "must be a number"},
        {2, DS_EUSAGE, "maybe", "true or false"},
        {4, DS_EUSAGE, "mo", "one of dense|mod|edp"},
        {4, DS_EUSAGE, "", "one of"},
    };
    struct values v = {.steps = 5, .lr = 0.5, .method = 2, .beta = 3};
    struct err e = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        t_fails(opt_set(&rows[cases[i].row], &v, cases[i].in, "f:3", &e), &e, cases[i].code,
                cases[i].part);
        t_true(strncmp(e.text, "f:3: ", 5) == 0);
    }
    t_true(v.steps == 5 && v.lr == 0.5 && v.method == 2 && v.beta == 3);
}

T(numbers_are_set_exactly_and_within_their_range)
{
    struct values v = {0};
    struct err e = {0};
    t_ok(opt_set_number(&rows[5], "train.", &v, 0.1 + 0.2, &e), &e);
    t_near(v.beta, 0.1 + 0.2, 0);
    t_ok(opt_set_number(&rows[0], "train.", &v, 7, &e), &e);
    t_eq(v.steps, 7);
    t_fails(opt_set_number(&rows[0], "train.", &v, 7.5, &e), &e, DS_EUSAGE, "train.steps: '7.5'");
    t_fails(opt_set_number(&rows[1], "train.", &v, 11, &e), &e, DS_ERANGE, "must be 0 to 10");
    t_true(v.steps == 7 && v.lr == 0);
}

static void yaml(struct config *c, const char *text)
{
    struct err e = {0};
    t_ok(config_read_yaml_text(c, text, strlen(text), "p.yaml", &e), &e);
}

static void yaml_fails(const char *text, const char *part)
{
    struct err e = {0};
    struct config c = {0};
    t_fails(config_read_yaml_text(&c, text, strlen(text), "p.yaml", &e), &e, DS_EFORMAT, part);
    t_eq(c.n, 0);
    config_release(&c);
}

T(a_list_of_yaml_is_read_as_its_items)
{
    struct lists {
        char *items, *text;
    } v = {0};
    static const struct opt row[] = {
        {"items", OPT_STRING, offsetof(struct lists, items), "", 0, 0, NULL, "", .is_list = 1},
        {"text", OPT_STRING, offsetof(struct lists, text), "", 0, 0, NULL, ""},
    };
    static const struct opt_group both = {"", "lists", row, DS_LEN(row)};
    static const char *const given[] = {"[7]", "[]", "q,k", "[", "[q", "q]", ""};
    static const char *const want[] = {"7", "", "q,k", "[", "[q", "q]", ""};
    struct config c = {0};
    struct err e = {0};
    yaml(&c, "items: [q, k]\ntext: [q, k]\n");
    t_ok(opt_defaults(&both, &v, &e), &e);
    t_ok(config_apply(&c, &both, &v, &e), &e);
    t_str(v.items, "q,k");
    t_str(v.text, "[q,k]");
    for (size_t i = 0; i < DS_LEN(given); i++) {
        t_ok(opt_set(&row[0], &v, given[i], "argument", &e), &e);
        t_str(v.items, want[i]);
    }
    opt_release(&both, &v);
    config_release(&c);
}

T(config_flattens_yaml_and_records_line_numbers)
{
    struct config c = {0};
    yaml(&c, "# preset\ntrain:\n  lr: 3e-4\n  adam: {beta: 0.9}\nlist: [1, b, \"c d\"]\n"
             "empty:\nnull_: ~\nquoted: \"null\"\nmulti: |\n  two\n  lines\na.b: dotted\n");
    t_str(config_get(&c, "train.lr"), "3e-4");
    t_str(config_get(&c, "train.adam.beta"), "0.9");
    t_str(config_get(&c, "list"), "[1,b,c d]");
    t_str(config_get(&c, "empty"), "");
    t_str(config_get(&c, "null_"), "");
    t_str(config_get(&c, "quoted"), "null");
    t_str(config_get(&c, "multi"), "two\nlines\n");
    t_str(config_get(&c, "a.b"), "dotted");
    t_true(config_get(&c, "train") == NULL);
    t_str(c.entry[0].where, "p.yaml:3");
    yaml(&c, "");
    yaml(&c, "# nothing\n");
    yaml(&c, "---\n");
    yaml(&c, "train: {}\n");
    t_eq(c.n, 8);
    yaml(&c, "train: {lr: 1}\n");
    t_str(config_get(&c, "train.lr"), "1");
    t_eq(c.n, 8);
    config_release(&c);
}

T(config_rejects_bad_yaml_with_line_and_column)
{
    yaml_fails("a: 1\na: 2\n", "p.yaml:2:4: duplicate key a");
    yaml_fails("a: {b: 1}\na.b: 2\n", "duplicate key a.b");
    yaml_fails("a: &x 1\nb: *x\n", "unsupported anchor");
    yaml_fails("b: *x\n", "p.yaml:1:4");
    yaml_fails("a: !!python/object:x {}\n", "tag");
    yaml_fails("&r {a: 1}\n", "unsupported anchor");
    yaml_fails("- a\n- b\n", "top level");
    yaml_fails("just text\n", "top level");
    yaml_fails("a: [1, [2]]\n", "must be plain values");
    yaml_fails("a: [1, {b: 2}]\nb: 1\nb: 1\n", "; p.yaml:3:4: duplicate key b");
    yaml_fails("a: 1\n---\nb: 2\n", "second document");
    yaml_fails("a: {b: 1\n", "p.yaml:2");
    yaml_fails("a: \"\xff\"\n", "p.yaml:");
    yaml_fails("a: \"\x1b\"\n", "control");
    yaml_fails("\"a b\": 1\n", "invalid key");
    yaml_fails("a..b: 1\n", "invalid key");
    yaml_fails("? [x]\n: 1\n", "key must be a scalar");
    yaml_fails("a: ${b}\nb: ${a}\n", "unsupported reference");
    yaml_fails("<<: {a: 1}\n", "invalid key");
    yaml_fails("a: \"x\\0y\"\n", "p.yaml:1:4: value contains a NUL byte");
    yaml_fails("\"\": 1\nb: 1\nb: 2\n", "; p.yaml:3:4: duplicate key b"); /* after a bad key */
    yaml_fails("\"\": [[1], {c: [2]}]\nb: 1\nb: 2\n", "; p.yaml:3:4: duplicate key b");
    yaml_fails("\"x\\0y\": {c: 1}\n", "p.yaml:1:1: key must not be empty or contain a NUL byte");
    yaml_fails("a: &x [1]\n", "p.yaml:1:4: unsupported anchor or tag");
}

T(config_yaml_is_bounded)
{
    struct config c = {0};
    struct err e = {0};
    struct str s = {0};
    double begin = clock_mono();
    for (int i = 0; i < 90000; i++)
        str_add_char(&s, '[');
    t_fails(config_read_yaml_text(&c, s.p, s.len, "p", &e), &e, DS_EFORMAT, "p:1:");
    str_reset(&s);
    str_add(&s, "a: ");
    for (int i = 0; i < 90000; i++)
        str_add_char(&s, '[');
    t_fails(config_read_yaml_text(&c, s.p, s.len, "p", &e), &e, DS_EFORMAT, "plain values");
    str_reset(&s);
    for (int i = 0; i < 90000; i++)
        str_add(&s, "{a: ");
    t_fails(config_read_yaml_text(&c, s.p, s.len, "p", &e), &e, DS_EFORMAT, "nesting depth");
    str_reset(&s);
    for (int i = 0; i < 1 << 20; i++)
        str_add_char(&s, 'x');
    str_add_char(&s, 'x');
    t_fails(config_read_yaml_text(&c, s.p, s.len, "p", &e), &e, DS_ERANGE,
            "must be at most 1048576");
    str_reset(&s);
    for (int i = 0; s.len < 500000; i++)
        str_addf(&s, "k%d: 1\n", i);
    t_ok(config_read_yaml_text(&c, s.p, s.len, "p", &e), &e);
    t_fails(config_check_unused(&c, groups, 1, &e), &e, DS_EUSAGE, "unknown key");
    t_true(clock_mono() - begin < 10);
    config_release(&c);
    str_release(&s);
}

T(config_overrides_follow_hydra_syntax)
{
    static const struct {
        const char *text, *part;
    } bad[] = {
        {"a", "key=value"},
        {"=1", "invalid key"},
        {"a..b=1", "invalid key"},
        {".a=1", "invalid key"},
        {"a.=1", "invalid key"},
        {"+x=1", "duplicate key"},
        {"~absent", "not set"},
        {"~x=2", "cannot remove"},
        {"a b=1", "invalid key"},
        {"--help", "key=value"},
        {"a=${x}", "unsupported reference"},
        {"", "key=value"},
        {"~", "invalid key"},
    };
    struct config c = {0};
    struct err e = {0};
    t_ok(config_override(&c, "x=1", "argument 1", &e), &e);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        t_fails(config_override(&c, bad[i].text, "argument 2", &e), &e, DS_EUSAGE, bad[i].part);
    t_eq(c.n, 1);
    t_ok(config_override(&c, "--a.b=2=3", "argument 1", &e), &e);
    t_str(config_get(&c, "a.b"), "2=3");
    t_ok(config_override(&c, "a.b=", "argument 1", &e), &e);
    t_str(config_get(&c, "a.b"), "");
    t_ok(config_override(&c, "+new=1", "argument 1", &e), &e);
    t_ok(config_override(&c, "++new=2", "argument 1", &e), &e);
    t_str(config_get(&c, "new"), "2");
    t_ok(config_override(&c, "a.c=4", "argument 1", &e), &e);
    t_ok(config_override(&c, "ab=5", "argument 1", &e), &e);
    t_ok(config_override(&c, "~a", "argument 1", &e), &e); /* and all below, but not "ab" */
    t_true(!config_get(&c, "a.b") && !config_get(&c, "a.c"));
    t_str(config_get(&c, "ab"), "5");
    t_ok(config_override(&c, "~x=1", "argument 1", &e), &e);
    t_ok(config_override(&c, "+x=9", "argument 1", &e), &e);
    t_str(config_get(&c, "x"), "9");
    t_str(config_get(&c, "new"), "2");
    t_eq(c.n, 3);
    config_release(&c);
}

T(every_spelling_of_an_override_is_parsed_alike)
{
    static const struct {
        const char *text, *key, *value;
        enum override_op op;
    } good[] = {
        {"a.b=v", "a.b", "v", OVERRIDE_SET},    {"--a.b=v", "a.b", "v", OVERRIDE_SET},
        {"++a=v=w", "a", "v=w", OVERRIDE_SET},  {"+a=", "a", "", OVERRIDE_ADD},
        {"~a.b", "a.b", NULL, OVERRIDE_REMOVE}, {"~a=v", "a", "v", OVERRIDE_REMOVE},
    };
    static const char *const bad[] = {"a:=v", "a.b+=v", "a?=v", "a!=v", "+a:=v",  "+++a=v", "~~a",
                                      "~+a",  "+a",     "++",   "~",    "a..b=v", ".a=v",   "=v"};
    struct override o;
    struct err e = {0};
    for (size_t i = 0; i < DS_LEN(good); i++) {
        t_ok(override_parse(&o, good[i].text, "here", &e), &e);
        t_str(o.key, good[i].key);
        t_eq(o.op, good[i].op);
        t_truef(good[i].value ? o.value && strcmp(o.value, good[i].value) == 0 : !o.value, "%s",
                good[i].text);
        t_truef(good[i].text[0] == '-' || override_is(good[i].text), "%s", good[i].text);
    }
    for (size_t i = 0; i < DS_LEN(bad); i++)
        t_fails(override_parse(&o, bad[i], "here", &e), &e, DS_EUSAGE, "here");
    t_fails(override_parse(&o, "a.b:=v", "here", &e), &e, DS_EUSAGE, "expected a.b=v");
    t_true(override_is("a:=v") && override_is("a+=v"));
    t_true(!override_is("~/runs/a") && !override_is("~user/a=b") && override_is("~a=b/c"));
    t_true(!override_is("dir/a=b") && !override_is("word") && !override_is("a:b") &&
           !override_is("=") && !override_is("http://host/?a=b"));
}

T(the_nearest_name_is_suggested_only_when_it_is_near)
{
    static const struct {
        const char *word, *name;
        int is_close;
    } row[] = {
        {"trian", "train", 1},
        {"tran", "train", 1},
        {"TRAIN", "train", 1},
        {"gsm", "gsm8k", 1},
        {"foo", "mod", 0},
        {"nosuch", "gsm8k", 0},
        {"Z", "o", 0},
        {"", "o", 0},
        {"steps", "train.steps", 1},
        {"stpes", "train.steps", 0},
        {"train.stpes", "train.steps", 1},
    };
    char hint[64];
    for (size_t i = 0; i < DS_LEN(row); i++) {
        struct nearest n = nearest_to(row[i].word);
        t_true(!nearest_is_close(&n));
        nearest_try(&n, row[i].name);
        t_truef(nearest_is_close(&n) == row[i].is_close, "%s %s %d", row[i].word, row[i].name,
                n.distance);
        t_truef((nearest_hint(&n, hint, sizeof hint)[0] != '\0') == row[i].is_close, "%s", hint);
    }
    struct nearest n = nearest_to("eror");
    nearest_try(&n, "error");
    nearest_try(&n, "mirror");
    t_str(nearest_hint(&n, hint, sizeof hint), ", did you mean error?");
}

T(config_apply_reports_all_errors_and_unknown_keys_get_a_hint)
{
    struct config c = {0};
    struct values v = {0};
    struct err e = {0};
    t_ok(opt_defaults(&group, &v, &e), &e);
    yaml(&c, "train:\n  steps: many\n  lr: 99\n  methd: mod\nname: x\nquite.other: 1\n");
    t_fails(config_apply(&c, &group, &v, &e), &e, DS_EUSAGE, "p.yaml:2: train.steps: 'many'");
    t_true(strstr(e.text, "; p.yaml:3: train.lr: 99: must be") != NULL);
    t_fails(config_check_unused(&c, groups, 1, &e), &e, DS_EUSAGE,
            "p.yaml:4: unknown key train.methd, did you mean train.method?");
    t_true(strstr(e.text, "unknown key name, did you mean train.name?") != NULL);
    t_str(strstr(e.text, "unknown key quite"), "unknown key quite.other"); /* nothing is near */
    config_release(&c);
    opt_release(&group, &v);
}

T(config_of_alias_and_key_the_later_wins)
{
    struct config c = {0};
    struct values v = {0};
    struct err e = {0};
    t_ok(opt_defaults(&group, &v, &e), &e);
    yaml(&c, "learning_rate: 1\ntrain.lr: 2\n");
    t_ok(config_apply(&c, &group, &v, &e), &e);
    t_true(v.lr == 2);
    t_ok(config_override(&c, "learning_rate=3", "argument 1", &e), &e);
    t_ok(config_apply(&c, &group, &v, &e), &e);
    t_true(v.lr == 3);
    t_ok(config_override(&c, "eta=4", "argument 2", &e),
         &e); /* an option may have several other names */
    t_ok(config_apply(&c, &group, &v, &e), &e);
    t_true(v.lr == 4);
    t_true(opt_find(&group, "eta") == opt_find(&group, "train.lr") &&
           !opt_find(&group, "learning_rate eta"));
    t_ok(config_check_unused(&c, groups, 1, &e), &e);
    config_release(&c);
    opt_release(&group, &v);
}

T(printed_config_parses_to_the_same_values)
{
    static const char *const names[] = {"run",
                                        "",
                                        "null",
                                        "~",
                                        "a b",
                                        " x ",
                                        "- x",
                                        "# no",
                                        "a: b",
                                        "\"q\"",
                                        "'",
                                        "line\nline\ttab",
                                        "\x01\x7f",
                                        "caf\xc3\xa9",
                                        "\xe2\x80\xa8\xef\xbb\xbf",
                                        "[1,2]",
                                        "{x}",
                                        "*a",
                                        "&a",
                                        "!t",
                                        "true",
                                        "123",
                                        "./runs/x",
                                        "-",
                                        "---",
                                        "${x}",
                                        "%",
                                        "@",
                                        "`",
                                        "\xf0\x9f\x98\x80",
                                        "\\",
                                        "\xc2\xa0\xc2\x85",
                                        "-.5",
                                        "..."};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct values v = {0}, w = {0};
        struct config c = {0};
        struct err e = {0};
        struct str s = {0};
        t_ok(opt_defaults(&group, &v, &e), &e);
        t_ok(opt_defaults(&group, &w, &e), &e);
        t_ok(opt_set(&rows[3], &v, names[i], "here", &e), &e);
        v.steps = 12345;
        v.lr = 1.0 / 3;
        v.resume = 1;
        v.beta = -2.5e-7;
        config_print_group(&s, &group, &v);
        yaml(&c, str_text(&s));
        t_ok(config_apply(&c, &group, &w, &e), &e);
        t_ok(config_check_unused(&c, groups, 1, &e), &e);
        t_str(w.name, v.name);
        t_true(w.steps == v.steps && w.lr == v.lr && w.resume && w.method == 1 && w.beta == v.beta);
        str_release(&s);
        config_release(&c);
        opt_release(&group, &v);
        opt_release(&group, &w);
    }
}

static void put(const char *dir, const char *name, const char *text)
{
    struct err e = {0};
    char path[600];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    t_ok(fs_write_file(path, text, strlen(text), &e), &e);
}

T(config_file_extends_a_file_of_the_same_directory)
{
    struct config c = {0};
    struct err e = {0};
    const char *dir = t_tmpdir();
    char path[600];
    put(dir, "base.yaml", "a: 1\nb: 1\n");
    put(dir, "mid.yaml", "extends: base\nb: 2\nc: 2\n");
    put(dir, "top.yaml", "c: 3\nextends: mid.yaml\n");
    snprintf(path, sizeof path, "%s/top.yaml", dir);
    t_ok(config_read_yaml(&c, path, &e), &e);
    t_str(config_get(&c, "a"), "1");
    t_str(config_get(&c, "b"), "2");
    t_str(config_get(&c, "c"), "3");
    t_eq(c.n, 3);
    t_str(c.entry[0].where, "base.yaml:1");
    put(dir, "base.yaml", "extends: top\n");
    t_fails(config_read_yaml(&c, path, &e), &e, DS_EFORMAT, "loop");
    put(dir, "base.yaml", "extends: ../x\n");
    t_fails(config_read_yaml(&c, path, &e), &e, DS_EFORMAT, "expected a file name");
    put(dir, "base.yaml", "extends: gone\n");
    t_fails(config_read_yaml(&c, path, &e), &e, DS_EIO, "gone.yaml");
    t_eq(c.n, 3);
    config_release(&c);
}

T(config_survives_every_failed_allocation)
{
    static const char text[] = "train:\n  lr: 1\n  name: x\nlist: [1, 2]\n";
    int rc = -1;
    for (uint64_t n = 1; rc < 0; n++) {
        struct config c = {0};
        struct values v = {0};
        struct err e = {0};
        uint64_t before = mem_calls();
        mem_fail_at(before + n, 0);
        rc = opt_defaults(&group, &v, &e);
        if (rc == 0)
            rc = config_read_yaml_text(&c, text, sizeof text - 1, "p.yaml", &e);
        if (rc == 0)
            rc = config_override(&c, "train.steps=7", "argument 1", &e);
        if (rc == 0)
            rc = config_override(&c, "~list", "argument 2", &e);
        if (rc == 0)
            rc = config_apply(&c, &group, &v, &e);
        mem_fail_at(0, 0);
        if (rc == 0)
            t_true(v.steps == 7 && v.lr == 1 && c.n == 3);
        else
            t_true(rc == DS_EMEM && e.text[0]);
        config_release(&c);
        opt_release(&group, &v);
        t_true(n < 10000);
    }
}
