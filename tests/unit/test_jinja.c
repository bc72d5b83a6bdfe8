/* Chat templates: what expressions, filters, methods, tests and statements give is what Jinja 3.1 (with
 * trim_blocks and lstrip_blocks) writes for them. */
#include "t.h"

#include "base/compiler.h"
#include "base/mem.h"
#include "data/jinja/jinja.h"

/* 2026-01-01 11:45:03 UTC, a Thursday */
enum { NOW = 1767267903 };

static struct jinja_value text(struct jinja *j, const char *s)
{
    return jinja_text_of(j, s, strlen(s), 7);
}

/* s, t: texts; d: a mapping; l: a list of texts; m: a list of mappings. */
static struct jinja_value variables(struct jinja *j)
{
    static const char *const names[] = {"one", "two", "ten"}, *const letters[] = {"x", "y", "z"};
    struct jinja_value vars = jinja_dict_new(j), d = jinja_dict_new(j);
    struct jinja_value l = jinja_list_new(j), m = jinja_list_new(j);
    jinja_put(j, d, "a", text(j, "1"));
    jinja_put(j, d, "b", jinja_none());
    jinja_put(j, d, "c", jinja_bool(1));
    for (size_t i = 0; i < DS_LEN(names); i++) {
        struct jinja_value one = jinja_dict_new(j);
        jinja_put(j, one, "n", text(j, names[i]));
        jinja_put(j, one, "on", jinja_bool(i != 1));
        jinja_append(j, m, one);
        jinja_append(j, l, text(j, letters[i]));
    }
    jinja_put(j, vars, "s", text(j, "h\303\251llo"));
    jinja_put(j, vars, "t", text(j, " Some words\there "));
    jinja_put(j, vars, "d", d);
    jinja_put(j, vars, "l", l);
    jinja_put(j, vars, "m", m);
    return vars;
}

static int render(const char *template, struct str *out, struct str *from, struct err *e)
{
    struct jinja *j = NULL;
    int rc = jinja_open(&j, template, strlen(template), e);
    if (rc == 0)
        rc = jinja_render(j, variables(j), NOW, out, from, e);
    if (j)
        jinja_close(j);
    return rc;
}

static const struct {
    const char *template, *want;
} good[] = {
    // clang-format off
    {"{{ 'aB-c' | upper }} {{ 'aB-C' | lower }} {{ 'aB cD' | capitalize }} {{ 12 | upper }"
     "} {{ true | lower }}",
     "AB-C ab-c Ab cd 12 true"},
    {"{{ 'aB'.upper() }}{{ 'aB'.lower() }}{{ 'aB'.capitalize() }}{{ '' | upper }}",
     "ABabAb"},
    {"{{ \"tWO words-in (a) [list] <of> {it} x\" | title }}",
     "Two Words-In (A) [List] <Of> {It} X"},
    {"{{ d.get('a') }} {{ d.get('q') }} {{ d.get('q', 'other') }} {{ d.get('b', 'other') }"
     "}",
     "1 None other None"},
    {"{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
     "a=1;b=None;c=True;"},
    {"{% for k, v in d | items %}{{ k }}={{ v }};{% endfor %}",
     "a=1;b=None;c=True;"},
    {"{% for k in d.keys() %}{{ k }},{% endfor %}{% for v in d.values() %}{{ v }},{% endfo"
     "r %}{% for k in d %}{{ k }}{% endfor %}",
     "a,b,c,1,None,True,abc"},
    {"{{ s | length }} {{ l | length }} {{ d | count }} {{ '' | length }}",
     "5 3 3 0"},
    {"{{ l | first }}{{ l | last }}{{ s | first }}{{ s | last }}{{ [] | first is defined }"
     "}{{ [] | last is defined }}",
     "xzhoFalseFalse"},
    {"{{ l | reverse | join('-') }} {{ d | join('+') }} {{ s | join('.') }} {{ l | join }}"
     " {{ l | join(d='/') }} {{ [1, true, none] | join(',') }}",
     "z-y-x a+b+c h.\303\251.l.l.o xyz x/y/z 1,True,None"},
    {"{{ m | selectattr('on') | map(attribute='n') | join(',') }} {{ m | rejectattr('on') "
     "| map(attribute='n') | join }}",
     "one,ten two"},
    {"{{ m | selectattr('n', 'equalto', 'two') | list | length }} {{ m | rejectattr('n', '"
     "in', ['one', 'ten']) | map(attribute='n') | join }}",
     "1 two"},
    {"{{ l | map('upper') | join }} {{ [' a ', 'b '] | map('trim') | join('|') }}",
     "XYZ a|b"},
    {"{{ q | default('none given') }} {{ q | d }}. {{ '' | default('x', true) }} {{ '' | d"
     "efault('x') }}. {{ s | default('x') }} {{ q | default(default_value='y') }}",
     "none given . x . h\303\251llo y"},
    {"{{ 5 | string + 'a' }} {{ none | string }} {{ true | string }} {{ '<b>' | safe }}",
     "5a None True <b>"},
    {"{{ dict(a=1, b='x') | tojson }} {{ {'k': [1, none, true, 'q\"\\n']} | tojson }}",
     "{\"a\": 1, \"b\": \"x\"} {\"k\": [1, null, true, \"q\\\"\\n\"]}"},
    {"{{ range(3) | list | tojson }} {{ range(1, 4) | list | tojson }} {{ range(5, 0, -2) "
     "| list | tojson }} {{ range(0) | list | tojson }}",
     "[0, 1, 2] [1, 2, 3] [5, 3, 1] []"},
    {"{{ strftime_now('%a %A %b %B %d %e %H %I %j %m %M %p %S %Y %y %%') }}",
     "Thu Thursday Jan January 01  1 11 11 001 01 45 AM 03 2026 26 %"},
    {"{{ 4 is even }} {{ 4 is odd }} {{ 3 is odd }} {{ 9 is divisibleby(3) }} {{ 9 is divi"
     "sibleby 2 }}",
     "True False True True False"},
    {"{{ 'x' is in l }} {{ 'q' is in(l) }} {{ 3 is eq 3 }} {{ 3 is ne 3 }} {{ 3 is equalto"
     "(4) }} {{ 'a' is not in(l) }}",
     "True False True False False True"},
    {"{{ s is string }}{{ d is mapping }}{{ l is iterable }}{{ l is sequence }}{{ 1 is num"
     "ber }}{{ 1 is integer }}{{ true is integer }}{{ true is boolean }}{{ true is true }}"
     "{{ false is false }}{{ none is none }}{{ range is callable }}{{ s is callable }}{{ q"
     " is undefined }}",
     "TrueTrueTrueTrueTrueTrueFalseTrueTrueTrueTrueTrueFalseTrue"},
    {"{{ [1, ['a']] == [1, ['a']] }} {{ [1] == [2] }} {{ [1] == [1, 2] }} {{ {'a': 1} == {"
     "'a': 1} }} {{ {'a': 1} == {'b': 1} }} {{ {'a': 1} == {'a': 2} }} {{ {'a': 1} == {} }"
     "} {{ none == none }} {{ q == r }} {{ '1' == 1 }} {{ true == 1 }} {{ d == d }}",
     "True False False True False False False True True False True True"},
    {"{% macro f() %}{% endmacro %}{% macro g() %}{% endmacro %}{{ f == f }} {{ f == g }} "
     "{{ 'yes' if f else 'no' }}",
     "True False yes"},
    {"{{ 'yes' if {} else 'no' }} {{ 'yes' if {'a': 1} else 'no' }} {{ 'yes' if [] else 'n"
     "o' }} {{ 'yes' if namespace() else 'no' }} {{ 'yes' if 0 else 'no' }}",
     "no yes no yes no"},
    {"{{ 'a' in s }} {{ 'h' in s }} {{ '' in s }} {{ 'a' in d }} {{ 1 in d }} {{ 'z' in l "
     "}} {{ 'a' not in l }} {{ 1 in [2, 1] }} {{ 1 in q }}",
     "False True True True False True True True False"},
    {"{{ s[0] }} {{ s[1] }} {{ s[-1] }} {{ s[9] is defined }} {{ s[-9] is defined }} {{ l["
     "1] }} {{ l[-1] }} {{ l[3] is defined }} {{ l[true] }} {{ d['a'] }} {{ d[1] is define"
     "d }} {{ l.1 }} {{ none[0] is defined }}",
     "h \303\251 o False False y z False y 1 False y False"},
    {"{{ s[1:3] }} {{ s[:-1] }} {{ s[2:] }} {{ s[3:1] }}. {{ l[1:] | join }} {{ l[::-1] | "
     "join }} {{ l[::2] | join }} {{ l[-2:] | join }} {{ l[none:1] | join }} {{ l[5:] | jo"
     "in }}. {{ s[:] }} {{ l[2:0:-1] | join }}",
     "\303\251l h\303\251ll llo . yz zyx xz yz x . h\303\251llo zy"},
    {"{{ ([1] + [2, 3]) | tojson }} {{ 'a' + 'b' }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }}"
     " {{ -7 % 3 }} {{ 7 % -3 }} {{ 2 * 3 - 1 }} {{ 1 ~ 'a' ~ none ~ true ~ q }} {{ true +"
     " 1 }} {{ +3 }} {{ - 3 }} {{ 2 - -3 }}",
     "[1, 2, 3] ab 3 -4 1 2 -2 5 1aNoneTrue 2 3 -3 5"},
    {"{{ 1 < 2 }} {{ 'a' < 'b' }} {{ 'b' <= 'a' }} {{ 'ab' > 'a' }} {{ 2 >= 2 }} {{ 1 < 2 "
     "< 3 }} {{ 1 < 3 < 2 }} {{ 1 != 2 }} {{ not 1 > 2 }} {{ true and 0 }} {{ 0 or 'x' }} "
     "{{ 1 if true }} {{ 1 if false }}.",
     "True True False True True True False True True 0 x 1 ."},
    {"{% macro f(a, b='B', c=none) %}{{ a }}{{ b }}{{ c }};{% endmacro %}{{ f(1) }}{{ f(1,"
     " 2) }}{{ f(1, c=3) }}{{ f(b='x', a='y') }}{{ f() }}",
     "1BNone;12None;1B3;yxNone;BNone;"},
    {"{% for a, b in [[1, 2], [3, 4]] %}{{ a }}{{ b }} {{ loop.index }}{{ loop.index0 }}{{"
     " loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }"
     "};{% endfor %}",
     "12 1021TrueFalse2;34 2110FalseTrue2;"},
    {"{% for x in l if x != 'y' %}{{ x }}{{ loop.index }}{% endfor %} {% for x in [] %}a{%"
     " else %}none{% endfor %} {% for x in l if x == 'q' %}a{% else %}no{% endfor %}",
     "x1z2 none no"},
    {"{% for x in l %}{% if x == 'y' %}{% continue %}{% endif %}{{ x }}{% endfor %} {% for"
     " x in l %}{% if x == 'y' %}{% break %}{% endif %}{{ x }}{% endfor %}",
     "xz x"},
    {"{% for x in l %}{{ loop.previtem is defined }}{{ loop.nextitem }}{% endfor %} {% for"
     " (a, b) in [['p', 'q']] %}{{ b }}{{ a }}{% endfor %} {% for c in 'h\303\251' %}{{ c "
     "}}.{% endfor %}",
     "FalseyTruezTrue qp h.\303\251."},
    {"{% set x %}a{{ s }}b{% endset %}{{ x }} {{ x | length }} {% set n = namespace(a=1) %"
     "}{% for i in range(3) %}{% set n.a = n.a + i %}{% endfor %}{{ n.a }}",
     "ah\303\251llob 7 4"},
    {"{{ () | length }} {{ (1) }} {{ (1, 2) | length }} {{ (1,) | length }} {{ {} | length"
     " }} {{ [1, 2,] | length }}",
     "0 1 2 1 0 2"},
    {"{{ 'a\\n\\t\\x41\\u00e9\\U0001F600\\'\\\"\\\\\\q' }}{{ \"a\" 'b' }}",
     "a\n\tA\303\251\360\237\230\200'\"\\\\qab"},
    {"{{ 'a b  c'.split() | tojson }} {{ 'a,b,,c'.split(',') | tojson }} {{ 'a,b,c'.split("
     "',', 1) | tojson }} {{ t.split() | tojson }} {{ 'a-b'.split(sep='-') | tojson }} {{ "
     "''.split() | tojson }}",
     "[\"a\", \"b\", \"c\"] [\"a\", \"b\", \"\", \"c\"] [\"a\", \"b,c\"] [\"Some\", \"word"
     "s\", \"here\"] [\"a\", \"b\"] []"},
    {"{{ 'abab'.replace('b', 'X') }} {{ 'abab' | replace('b', '') }} {{ 'abab'.replace('b'"
     ", 'X', 1) }} {{ ', '.join(l) }} {{ 'abc'.startswith('ab') }} {{ 'abc'.endswith(('x',"
     " 'bc')) }} {{ 'abc'.startswith(('x', 'y')) }} {{ 'abc'.endswith('abcd') }} {{ 'h\303"
     "\251llo'.find('l') }} {{ 'a'.find('b') }}",
     "aXaX aa aXab x, y, z True True False False 2 -1"},
    {"{{ t | trim }}. {{ t.strip() }}. {{ t.lstrip() }}. {{ t.rstrip() }}. {{ 'xxaxx'.stri"
     "p('x') }} {{ 'xyaxy'.lstrip('xy') }} {{ '\303\251a\303\251'.strip('\303\251') }} {{ "
     "'[{}] {}'.format(1, 'a') }}",
     "Some words\there. Some words\there. Some words\there .  Some words\there. a axy a [1"
     "] a"},
    {"{{ '12' | int + 1 }} {{ ' -7 ' | int }} {{ 'x' | int }} {{ true | int }} {{ '+3' | i"
     "nt }}",
     "13 -7 0 1 3"},
    {"{# a comment #}a{#- b -#} b {%- if true -%} c {%- endif %} d",
     "abc d"},
    {"{{ 'a' }}\n  {% if true %}b{% endif %}",
     "a\nb"},
    {"{{ 1 is defined and q is not defined }} {{ f(1) if f is defined else 'no f' }} {{ l|"
     "length > 2 }} {{ {'a': {'b': 'c'}}.a.b }} {{ d.q is defined }} {{ s.q is defined }}",
     "True no f True c False False"},
    {"{{ 'a\\\nb' }}",
     "ab"},
    {"{{ none in [none] }} {{ [d] == [d] }} {{ 1 is in [true] }} {{ l == ['x', 'y', 'z'] }"
     "} {{ l is eq l }}",
     "True True True True True"},
    {"{% if false %}a{% elif false %}b{% elif true %}c{% else %}d{% endif %}",
     "c"},
    {"{% set x %}{% endset %}[{{ x }}]{% set x %}{% if false %}a{% endif %}{% endset %}{{ x"
     " | length }}",
     "[]0"},
    /* what filters give without making a list: a generator of Python */
    {"{% set g = m | selectattr('n', 'equalto', 'none') %}{{ 'yes' if g else 'no' }} {{ g =="
     " [] }} {{ g is sequence }} {{ g is iterable }} {{ g[0] is defined }} {{ g | list | leng"
     "th }}",
     "yes False False True False 0"},
    {"{% set g = m | map(attribute='n') %}{% for x in g %}{{ x }}{{ loop.length }};{% endfor "
     "%}{% for x in g %}{{ x }}{% else %}none{% endfor %}",
     "one3;two3;ten3;none"},
    {"{% set g = l | reverse %}{{ g | first }}{{ g | first }}{{ g | join }}{{ g | first is de"
     "fined }} {{ l | reverse | reverse | length }}",
     "zyxFalse 3"},
    {"{{ [{'a': {'b': 'x'}}] | map(attribute='a.b') | join }} {{ [['p', 'q']] | map(attribute"
     "='1') | join }} {{ [{'a': {'b': 1}}] | selectattr('a.b', 'eq', 1) | list | length }}",
     "x q 1"},
    {"{% for x in l %}{% if x == 'y' %}{% break %}{% endif %}{{ x }}{% else %}none{% endfor %"
     "} {% for x in l %}{% break %}{% else %}none{% endfor %} {% for x in l %}{% continue %}{"
     "% else %}none{% endfor %}",
     "x none none"},
    {"{% set x = 1 %}{% generation %}{% set x = 2 %}{{ x }}{% endgeneration %}{{ x }}",
     "21"},
    {"{% for x in [1] %}{{ loop.depth }}{{ loop.depth0 }}{% endfor %} {{ 'yes' if strftime_no"
     "w else 'no' }}",
     "10 yes"},
    // clang-format on
};

T(templates_write_what_jinja_writes)
{
    setenv("TZ", "UTC", 1);
    for (size_t i = 0; i < DS_LEN(good); i++) {
        struct str out = {0}, from = {0};
        struct err e = {0};
        int rc = render(good[i].template, &out, &from, &e);
        t_truef(rc == 0, "%s: %s", good[i].template, e.text);
        t_truef(strcmp(str_text(&out), good[i].want) == 0, "%s\n---- Jinja:\n%s\n---- here:\n%s",
                good[i].template, good[i].want, str_text(&out));
        t_eq(from.len, out.len);
        str_release(&out);
        str_release(&from);
    }
}

/* Which bytes come from the input (7) and which from the template (0). */
T(letters_keep_their_origin_through_every_filter)
{
    static const struct {
        const char *template, *want, *from;
    } row[] = {
        {"{{ l[0] | upper }}a", "Xa", "70"},
        {"{{ 'p' ~ l[1] | title }}", "pY", "07"},
        {"{{ l | join('-') }}", "x-y-z", "70707"},
        {"{{ l[0].replace('x', 'q') ~ l[2] }}", "qz", "07"},
        {"{{ l[0] | tojson }}", "\"x\"", "070"},
        {"{{ s[2:] }}!", "llo!", "7770"},
        {"{{ t | trim | first }}{{ d.a | int }}", "S1", "70"},
        {"{% set v %}[{{ l[0] }}]{% endset %}{{ v }}", "[x]", "070"},
        {"{{ '{}={}'.format(l[0], 5) }}", "x=5", "700"},
    };
    for (size_t i = 0; i < DS_LEN(row); i++) {
        struct str out = {0}, from = {0};
        struct err e = {0};
        t_ok(render(row[i].template, &out, &from, &e), &e);
        t_str(str_text(&out), row[i].want);
        t_eq(from.len, strlen(row[i].from));
        for (size_t k = 0; k < from.len; k++)
            t_truef(str_text(&from)[k] == row[i].from[k] - '0', "%s: byte %zu", row[i].template, k);
        str_release(&out);
        str_release(&from);
    }
}

static void refuses(const char *template, const char *part)
{
    struct str out = {0}, from = {0};
    struct err e = {0};
    int rc = render(template, &out, &from, &e);
    t_truef(rc == DS_EUSAGE, "%s: %d, %s", template, rc, str_text(&out));
    t_truef(strstr(e.text, part) != NULL, "%.200s: \"%s\" lacks \"%s\"", template, e.text, part);
    str_release(&out);
    str_release(&from);
}

T(what_templates_cannot_do_is_refused_with_line_and_name)
{
    static const struct {
        const char *template, *part;
    } bad[] = {
        /* texts */
        {"{{ s.strip(1) }}", "line 1: unsupported operand or argument of \"strip\""},
        {"{{ s.split('') }}", "argument of \"split\""},
        {"{{ s.split(none, 1) }}", "argument of \"split\""},
        {"{{ s.replace('', 'a') }}", "argument of \"replace\""},
        {"{{ s | replace('a') }}", "argument of \"replace\""},
        {"{{ l | join(3) }}", "argument of \"join\""},
        {"{{ ','.join([1]) }}", "argument of \"join\""},
        {"{{ ','.join('ab') }}", "argument of \"join\""},
        {"{{ 3 | join }}", "an integer is not a list"},
        {"{{ s.startswith(1) }}", "argument of \"startswith\""},
        {"{{ s.endswith() }}", "argument of \"endswith\""},
        {"{{ s.endswith(['x', 1]) }}", "argument of \"endswith\""},
        {"\n\n{{ s | upper }}", "line 3: unsupported: changing the case of letters beyond ASCII"},
        {"{{ s | title }}", "changing the case of letters beyond ASCII"},
        {"{{ s.find(1) }}", "argument of \"find\""},
        {"{{ '{0}'.format(1) }}", "argument of \"format\""},
        {"{{ '}{}'.format(1) }}", "argument of \"format\""},
        {"{{ '{}'.format(a=1) }}", "argument of \"format\""},
        {"{{ '1.5' | int }}", "argument of \"int\""},
        {"{{ '\303\251' | int }}", "argument of \"int\""},
        {"{{ l | int }}", "argument of \"int\""},
        {"{{ l.upper() }}", "argument of \"upper\""},
        {"{{ s.upper(1) }}", "argument of \"upper\""},
        {"{{ s.get('a') }}", "argument of \"get\""},
        {"{{ d.get(1) }}", "argument of \"get\""},
        {"{{ l | items }}", "argument of \"items\""},
        {"{{ l | upper }}", "a list as text"},
        {"{{ d }}", "a mapping as text"},
        {"{{ range | tojson }}{{ q | tojson }}", "argument of \"tojson\""},
        {"{{ namespace(a=1) | tojson }}", "argument of \"tojson\""},
        /* lists */
        {"{{ s | reverse }}", "argument of \"reverse\""},
        {"{{ l | selectattr(1) }}", "argument of \"selectattr\""},
        {"{{ m | selectattr('n', 1) }}", "argument of \"selectattr\""},
        {"{{ m | selectattr('n', 'prime') }}", "unsupported test \"prime\""},
        {"{{ l | map(1) }}", "argument of \"map\""},
        {"{{ l | reverse | length }}", "argument of \"length\""},
        {"{{ l | reverse | last }}", "argument of \"last\""},
        {"{{ l | reverse | tojson }}", "argument of \"tojson\""},
        {"{{ (l | reverse)[1:] }}", "unsupported slice"},
        {"{{ (l | reverse) + l }}", "unsupported operands of an operator"},
        {"{{ m | map(attribute='n.q.r') | list }}", "\"r\" of an undefined value"},
        {"{% set f = range %}{{ f(1) }}", "unsupported function \"f\""},
        {"{{ l | map('frob') }}", "unsupported filter \"frob\""},
        {"{{ none | length }}", "none is not a list"},
        {"{{ true | list }}", "a boolean is not a list"},
        {"{% macro f() %}{% endmacro %}{{ f | list }}", "a macro is not a list"},
        {"{% for a, b in [[1]] %}{% endfor %}", "an item of the loop does not have 2 parts"},
        {"{% for a, b in [[1, 2, 3]] %}{% endfor %}", "does not have 2 parts"},
        {"{% for a, b in ['xy'] %}{% endfor %}", "does not have 2 parts"},
        {"{% for a in 3 %}{% endfor %}", "an integer is not a list"},
        /* functions */
        {"{{ range() }}", "argument of \"range\""},
        {"{{ range(1, 2, 0) }}", "argument of \"range\""},
        {"{{ range('a') }}", "argument of \"range\""},
        {"{{ range(10001) }}", "range: more than 10000 items"},
        {"{{ namespace(1) }}", "argument of \"namespace\""},
        {"{{ dict(1) }}", "argument of \"dict\""},
        {"{{ strftime_now(1) }}", "argument of \"strftime_now\""},
        {"{{ strftime_now('%Q') }}", "argument of \"strftime_now\""},
        {"{{ strftime_now('%') }}", "argument of \"strftime_now\""},
        {"{{ strftime_now('%A' ~ '                                                            "
         "                                                                                      "
         "                                                                                      "
         "              ') }}",
         "argument of \"strftime_now\""},
        {"{{ raise_exception() }}", "refuses the conversation: no reason given"},
        {"{{ raise_exception('roles ' ~ 1) }}", "refuses the conversation: roles 1"},
        {"{{ frob(1) }}", "unsupported function \"frob\""},
        {"{{ s('a') }}{{ l() }}", "unsupported call"},
        {"{{ (1)(2) }}", "unsupported call"},
        {"{{ 'a' is odd }}", "argument of \"divisibleby\""},
        {"{{ 3 is divisibleby(0) }}", "argument of \"divisibleby\""},
        {"{{ 3 is sameas 3 }}", "unsupported test \"sameas\""},
        {"{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", "unexpected argument of macro \"f\""},
        {"{% macro f(a) %}{% endmacro %}{{ f(b=2) }}", "unexpected argument of macro \"f\""},
        {"{{ f(1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17) }}", "more than 16 arguments"},
        /* operators */
        {"{{ l[0:'a'] }}", "the bounds of a slice must be integers"},
        {"{{ l[::0] }}", "unsupported slice"},
        {"{{ l[::'a'] }}", "unsupported slice"},
        {"{{ d[1:] }}", "unsupported slice"},
        {"{{ s[::2] }}", "unsupported: a text by steps"},
        {"{{ q[0] }}", "an item of an undefined value"},
        {"{{ q.a }}", "\"a\" of an undefined value"},
        {"{{ 1 / 2 }}", "unsupported operator /"},
        {"{{ 2 ** 3 }}", "unsupported operator **"},
        {"{{ 1 // 0 }}", "division by zero"},
        {"{{ 1 % 0 }}", "division by zero"},
        {"{{ 2000000000 * 2 * 2 }}", "a number is too large"},
        {"{{ 99999999999 }}", "a number is too large"},
        {"{{ 1 < 'a' }}", "unsupported operands of a comparison"},
        {"{{ 1 in 2 }}", "operator \"in\": unsupported operands"},
        {"{{ 1 is in(3) }}", "operator \"in\": unsupported operands"},
        {"{{ l + s }}", "unsupported operands of an operator"},
        {"{{ {1: 2} }}", "unsupported key of a mapping: expected text"},
        {"{% set d.a = 1 %}", "attributes can only be set on a namespace"},
        /* what is not a template */
        {"{{ 'a\\101' }}", "unsupported octal escape in a string"},
        {"{{ '\\x4' }}", "corrupt escape in a string"},
        {"{{ '\\uD83G' }}", "corrupt escape in a string"},
        {"{{ '\\U00110000' }}", "corrupt escape in a string"},
        {"{{ 'a }}", "a string is not closed"},
        {"{{ 1.5 }}", "unsupported number: expected an integer"},
        {"{{ 1_0 }}", "unsupported number: expected an integer"},
        {"{{ a ? b }}", "unexpected character 0x3F"},
        {"{{ a ! b }}", "unexpected character 0x21"},
        {"{{ a", "a tag is not closed"},
        {"{# a", "a comment is not closed"},
        {"{{ (1 }}", "expected ','"},
        {"{{ [1 2] }}", "expected ']'"},
        {"{{ {'a' 1} }}", "expected ':'"},
        {"{{ l[] }}", "expected an index"},
        {"{{ l. }}", "expected a name"},
        {"{{ l | 3 }}", "expected a name"},
        {"{{ }}", "expected a value"},
        {"{{ 1 2 }}", "unexpected text in a tag"},
        {"{% if 1 2 %}{% endif %}", "unexpected text in a tag"},
        {"{% for x of l %}{% endfor %}", "expected \"in\""},
        {"{% for (a, b in l %}{% endfor %}", "expected ')'"},
        {"{% macro f(a %}{% endmacro %}", "expected ')'"},
        {"{% macro f() %}{% endmacro f %}", "unexpected text in a tag"},
        {"{% macro f() %}", "missing \"endmacro\""},
        {"{% set x %}", "missing \"endset\""},
        {"{% for x in l %}", "missing \"endfor\""},
        {"{% %}", "expected a statement"},
        {"{% 3 %}", "expected a statement"},
        {"{% endfor %}", "unsupported statement \"endfor\""},
    };
    for (size_t i = 0; i < DS_LEN(bad); i++)
        refuses(bad[i].template, bad[i].part);
}

static void repeat(struct str *s, const char *part, size_t n)
{
    for (size_t i = 0; i < n; i++)
        str_add(s, part);
}

T(depth_size_and_nodes_are_bounded)
{
    static const struct {
        const char *begin, *part, *end;
        size_t n;
        const char *error;
    } row[] = {
        {"{{ ", "(", "1", 200, "expressions are nested too deeply, must be at most 100"},
        {"{{ ", "- ", "1 }}", 200, "expressions are nested too deeply, must be at most 100"},
        {"{{ ", "not ", "1 }}", 200, "expressions are nested too deeply, must be at most 100"},
        {"", "{% generation %}", "", 200, "statements are nested too deeply, must be at most 100"},
        {"{% if 0 %}", "{% elif 0 %}", "{% endif %}", 200,
         "nested too deeply, must be at most 100"},
        {"{% set n = namespace(a=[]) %}", "{% set n.a = [n.a] %}", "{{ n.a | tojson }}", 110,
         "tojson: more than 100 levels"},
        {"{% set n = namespace(a=[], b=[]) %}", "{% set n.a = [n.a] %}{% set n.b = [n.b] %}",
         "{{ n.a == n.b }}", 500, "nested more than 400 deep"},
        {"{{ 'x' ", "~ 'x' ", "}}", 90, NULL},
    };
    for (size_t i = 0; i < DS_LEN(row); i++) {
        struct str s = {0}, out = {0}, from = {0};
        struct err e = {0};
        str_add(&s, row[i].begin);
        repeat(&s, row[i].part, row[i].n);
        str_add(&s, row[i].end);
        if (row[i].error)
            refuses(str_text(&s), row[i].error);
        else
            t_ok(render(str_text(&s), &out, &from, &e), &e);
        str_release(&s);
        str_release(&out);
        str_release(&from);
    }
    struct str many = {0}, out = {0}, from = {0};
    struct err e = {0};
    repeat(&many, "{{ a }}", 100001);
    t_fails(render(str_text(&many), &out, &from, &e), &e, DS_ERANGE, "the template is too large");
    str_release(&many);
}

T(line_ends_of_other_systems_become_new_lines)
{
    struct str out = {0}, from = {0};
    struct err e = {0};
    t_ok(render("a\r\nb\rc\r", &out, &from, &e), &e);
    t_str(str_text(&out), "a\nb\nc");
    str_release(&out);
    str_release(&from);
}

/* Every allocation fails once: one clear error each, and nothing is written half. */
T(running_out_of_memory_is_an_error_at_every_allocation)
{
    struct str all = {0};
    size_t failed = 0;
    setenv("TZ", "UTC", 1);
    str_add(&all, "{% set big = range(9999) | list %}{{ big | tojson | length }}");
    for (size_t i = 0; i < DS_LEN(good); i++)
        str_add(&all, good[i].template);
    for (uint64_t n = 1;; n++) {
        struct str out = {0}, from = {0};
        struct err e = {0};
        uint64_t last = mem_calls() + n;
        mem_fail_at(last, 0);
        int rc = render(str_text(&all), &out, &from, &e);
        int is_done = mem_calls() < last;
        mem_fail_at(0, 0);
        str_release(&out);
        str_release(&from);
        if (is_done) {
            t_ok(rc, &e);
            break;
        }
        t_fails(rc, &e, DS_EMEM, "out of memory");
        failed++;
    }
    t_true(failed > 20);
    str_release(&all);
}
