"""What jinja2 makes of chat templates, rendered as transformers does: chat_templates.py [DIR] > chat_templates.json

Without DIR: the templates below, in the manner of the published families.  DIR: its *.jinja files, for example a
collection of published ones.  Exit status 77: no such package.
"""
import datetime
import glob
import json
import os
import sys

try:
    from jinja2 import ext, nodes
    from jinja2.sandbox import ImmutableSandboxedEnvironment
except ImportError:
    sys.exit(77)

NOW = 1767225600  # 2026-01-01 00:00 UTC


class Generation(ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def refuse(message):
    raise ValueError(message)


env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, ext.loopcontrols])
env.globals["raise_exception"] = refuse
env.globals["strftime_now"] = lambda f: datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).strftime(f)
env.filters["tojson"] = lambda x, indent=None: json.dumps(x, ensure_ascii=False, indent=indent)

TURN = "<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n"
TEMPLATES = {
    "chatml": "{% for m in messages %}{{'" + TURN + "'}}{% endfor %}{% if add_generation_prompt %}"
              "{{ '<|im_start|>assistant\n' }}{% endif %}",
    "qwen2.5": """{%- if tools %}
    {{- tools | tojson }}
{%- elif messages[0]['role'] == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
{%- else %}
    {{- '<|im_start|>system\\nYou are helpful.<|im_end|>\\n' }}
{%- endif %}
{%- for m in messages %}
    {%- if (m.role == "user") or (m.role == "system" and not loop.first) or (m.role == "assistant" and not m.tool_calls) %}
        {{- '""" + TURN + """' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
""",
    "qwen3": """{%- set ns = namespace(open=true, last=messages|length - 1) %}
{%- for m in messages[::-1] %}
    {%- set at = (messages|length - 1) - loop.index0 %}
    {%- if ns.open and m.role == "user" and not(m.content.startswith('<r>') and m.content.endswith('</r>')) %}
        {%- set ns.open = false %}
        {%- set ns.last = at %}
    {%- endif %}
{%- endfor %}
{%- for m in messages %}
    {%- if m.role != "assistant" %}
        {{- '""" + TURN + """' }}
    {%- else %}
        {%- set content = m.content %}
        {%- set thought = '' %}
        {%- if m.reasoning_content is string %}
            {%- set thought = m.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last and (loop.last or thought) %}
            {{- '<|im_start|>' + m.role + '\\n<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '<|im_start|>' + m.role + '\\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}""",
    "smollm3": """{%- if enable_thinking is not defined -%}
{%- set enable_thinking = true -%}
{%- endif -%}
{# the mode, from the system message too #}
{%- set mode = "/think" if enable_thinking else "/no_think" -%}
{{- "<|im_start|>system\\n" -}}
{%- if messages[0].role == "system" -%}
  {%- if "/no_think" in messages[0].content -%}{%- set mode = "/no_think" -%}{%- endif -%}
  {%- set own = messages[0].content.replace("/no_think", "").replace("/think", "").rstrip() -%}
{%- endif -%}
{{- "## Metadata\\n\\nToday Date: " ~ strftime_now("%d %B %Y") ~ "\\nReasoning Mode: " + mode + "\\n\\n" -}}
{{ own + "\\n\\n" if own }}
{{- "<|im_end|>\\n" -}}
{%- for m in messages -%}
  {%- set content = m.content if m.content is string else "" -%}
  {%- if m.role == "user" -%}
    {{ "<|im_start|>user\\n" + content + "<|im_end|>\\n" }}
  {%- elif m.role == "assistant" -%}
    {% generation %}
    {%- if mode == "/think" -%}
      {{ "<|im_start|>assistant\\n" + content.lstrip("\\n") + "<|im_end|>\\n" }}
    {%- else -%}
      {{ "<|im_start|>assistant\\n" + "<think>\\n\\n</think>\\n" + content.lstrip("\\n") + "<|im_end|>\\n" }}
    {%- endif -%}
    {% endgeneration %}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{ "<|im_start|>assistant\\n" ~ ("" if mode == "/think" else "<think>\\n\\n</think>\\n") }}
{%- endif -%}
""",
    "gemma2": "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}"
              "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
              "{{ raise_exception('alternate') }}{% endif %}{% set role = 'model' if m.role == 'assistant' else m.role %}"
              "{{ '<start_of_turn>' + role + '\n' + m['content'] | trim + '<end_of_turn>\n' }}{% endfor %}"
              "{% if add_generation_prompt %}{{'<start_of_turn>model\n'}}{% endif %}",
    "gemma3": """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set first = messages[0]['content'] + '\\n\\n' -%}
    {%- else -%}
        {%- set first = messages[0]['content'][0]['text'] + '\\n\\n' -%}
    {%- endif -%}
    {%- set turns = messages[1:] -%}
{%- else -%}
    {%- set first = "" -%}
    {%- set turns = messages -%}
{%- endif -%}
{%- for m in turns -%}
    {%- if (m['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("alternate") }}
    {%- endif -%}
    {{ '<start_of_turn>' + ("model" if m['role'] == 'assistant' else m['role']) + '\\n' + (first if loop.first else "") }}
    {%- if m['content'] is string -%}
        {{ m['content'] | trim }}
    {%- elif m['content'] is iterable -%}
        {%- for item in m['content'] if item['type'] == 'text' -%}{{ item['text'] | trim }}{%- endfor -%}
    {%- else -%}
        {{ raise_exception("content") }}
    {%- endif -%}
    {{ '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model\\n'}}
{%- endif -%}
""",
    "phi3": "{% for m in messages %}{% if m['role'] == 'system' and m['content'] %}{{'<|system|>\n' + m['content'] + "
            "'<|end|>\n'}}{% elif m['role'] in ['user', 'assistant'] %}{{'<|' ~ m.role ~ '|>' + '\n' + m['content'] + "
            "'<|end|>\n'}}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}"
            "{% else %}{{ eos_token }}{% endif %}",
    "phi4": "{% for m in messages %}{% if m['role'] == 'system' and 'tools' in m and m['tools'] is not none %}{{ m.tools }}"
            "{% else %}{{ '<|' + m['role'] + '|>' + m['content'] + '<|end|>' }}{% endif %}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% else %}{{ eos_token }}{% endif %}",
    "olmo2": "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'system' %}{{ '<|system|>\n' + m['content'] + '\n' }}"
             "{% elif m['role'] == 'user' %}{{ '<|user|>\n' + m['content'] + '\n' }}{% elif m['role'] == 'assistant' %}"
             "{% if not loop.last %}{{ '<|assistant|>\n' + m['content'] + eos_token + '\n' }}{% else %}"
             "{{ '<|assistant|>\n' + m['content'] + eos_token }}{% endif %}{% endif %}"
             "{% if loop.last and add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}{% endfor %}",
    "mistral1": "{{ bos_token }}{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
                "{{ raise_exception('alternate') }}{% endif %}{% if m['role'] == 'user' %}"
                "{{ '[INST] ' + m['content'] + ' [/INST]' }}{% elif m['role'] == 'assistant' %}"
                "{{ m['content'] + eos_token + ' ' }}{% else %}{{ raise_exception('roles') }}{% endif %}{% endfor %}",
    "mistral3": """{%- if messages[0]["role"] == "system" %}
    {%- set first = messages[0]["content"] %}
    {%- set turns = messages[1:] %}
{%- else %}
    {%- set turns = messages %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- set asked = turns | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace() %}
{%- set ns.index = 0 %}
{%- for m in turns %}
    {%- if not (m.role == "tool" or (m.tool_calls is defined and m.tool_calls is not none)) %}
        {%- if (m["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("alternate") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for m in turns %}
    {%- if m["role"] == "user" %}
        {%- if tools is not none and (m == asked[-1]) %}{{- "[AVAILABLE_TOOLS]" }}{%- endif %}
        {%- if loop.last and first is defined %}
            {{- "[INST] " + first + "\\n\\n" + m["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + m["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif m["role"] == "assistant" %}
        {{- " " + m["content"]|trim + eos_token}}
    {%- endif %}
{%- endfor %}
""",
    "mistral7": """{%- macro text(x) -%}
    {%- if x is string %}{{- x }}{%- else %}{%- for part in x %}{{- part.text }}{%- endfor %}{%- endif %}
{%- endmacro -%}
{%- set today = strftime_now("%Y-%m-%d") %}
{%- set first = "It is " + today + ". \\"Be\\" \\u00e9xact." %}
{%- if messages|length > 0 and messages[0]['role'] == 'system' %}
    {%- set first = text(messages[0]['content']) %}
    {%- set messages = messages[1:] %}
{%- endif %}
{{- bos_token }}[SYSTEM_PROMPT]{{ first }}[/SYSTEM_PROMPT]
{%- for m in messages %}
    {%- if m['role'] == 'user' %}
        {{- '[INST]' + text(m['content']) + '[/INST]' }}
    {%- elif m['role'] == 'system' %}
        {{- '[SYSTEM_PROMPT]' + text(x=m['content']) + '[/SYSTEM_PROMPT]' }}
    {%- elif m['role'] == 'assistant' %}
        {{- text(m['content']) + eos_token }}
    {%- endif %}
{%- endfor %}""",
    "llama2": "{% if messages[0]['role'] == 'system' %}{% set turns = messages[1:] %}{% set first = messages[0]['content'] %}"
              "{% else %}{% set turns = messages %}{% set first = false %}{% endif %}{% for m in turns %}"
              "{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('alternate') }}{% endif %}"
              "{% if loop.index0 == 0 and first != false %}{% set content = '<<SYS>>\\n' + first + '\\n<</SYS>>\\n\\n' + "
              "m['content'] %}{% else %}{% set content = m['content'] %}{% endif %}{% if m['role'] == 'user' %}"
              "{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif m['role'] == 'assistant' %}"
              "{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}",
    "llama3.1": """{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set first = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set first = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if builtin_tools is defined or tools is not none %}
    {{- "Environment: ipython\\n" }}
{%- endif %}
{{- "Cutting Knowledge Date: December 2023\\n" }}
{{- "Today Date: " + date_string + "\\n\\n" }}
{{- first }}
{{- "<|eot_id|>" }}
{%- for m in messages %}
    {%- if not (m.role == 'ipython' or m.role == 'tool' or 'tool_calls' in m) %}
        {{- '<|start_header_id|>' + m['role'] + '<|end_header_id|>\\n\\n'+ m['content'] | trim + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
""",
    "zephyr": "{% for m in messages %}\n{% if m['role'] == 'user' %}\n{{ '<|user|>\n' + m['content'] + eos_token }}\n"
              "{% elif m['role'] == 'system' %}\n{{ '<|system|>\n' + m['content'] + eos_token }}\n"
              "{% elif m['role'] == 'assistant' %}\n{{ '<|assistant|>\n'  + m['content'] + eos_token }}\n{% endif %}\n"
              "{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}",
    "falcon": "{% for m in messages %}{% if not loop.first %}{{ '\n' }}{% endif %}{% if m['role'] == 'system' %}"
              "{{ 'System: ' + m['content'].strip() }}{% elif m['role'] == 'user' %}{{ 'User: ' + "
              "m['content'].strip().replace('\r\n', '\n').replace('\n\n', '\n') }}{% elif m['role'] == 'assistant' %}"
              "{{ 'Falcon: ' + m['content'].strip() }}{% endif %}{% endfor %}"
              "{% if add_generation_prompt %}{{ '\n' + 'Falcon:' }}{% endif %}",
    "calls": """{{ 'a"b\\n<\u00e9>\x01' | tojson }} {{ [1, none, true, {'a': 1, "b": []}, -5] | tojson }} {{ messages | tojson }}
{{ '12' | int + 1 }} {{ 'x' | int }} {{ ' -7 ' | int }} {{ none | int }} {{ true | int }} {{ '+3' | int }} {{ '-' | int }}
{% for m in messages %}{{ m.content.split() | join('|') }} {{ m.content.split(none) | length }} {{ m.content.find('a') }};{% endfor %}
{{ ' a  b\tc\\n'.split() | length }}{{ '   '.split() | length }}{{ 'x'.startswith(('y', 'x')) }}{{ 'x'.endswith(('y', '')) }}
{{ '\u00e9a'.find('a') }}{{ 'a'.find('x') }}{{ ', '.join(messages | map(attribute="role") | list) }}{{ '-'.join([]) }}
{{ 'a{}b{}'.format(1, 'x') }}{{ '{}'.format(none) }}{{ '<{}>'.format(messages[0].content) }}{{ 'plain'.format() }}
{{ none | selectattr('a') | list | length }}{{ missing | map('upper') | list | length }}{{ strftime_now('%y') }}
""",
    "format_wrong": "{{ messages[0].content }}{{ '{}{}'.format(1) }}",
    "int_wrong": "{{ messages[0].content }}{{ missing | int }}",
    "tojson_wrong": "{{ messages[0].content }}{{ missing | tojson }}",
    "spaces": """  {% if true %}
    a {%- if messages %} b{% endif +%}
 c {{- "d" -}}
 e  {#- x -#}
  f
{%+ if 1 < 2 <= 2 %} g{% endif %}{# y #}
h {{ 7 // 2 ~ -7 % 4 ~ 2 * 3 - 1 ~ true ~ none ~ missing }} {{ not 1 == 2 and "x" not in "abc" }}
   {% endif %}
{{ messages | map(attribute="role") | join(", ") | upper | replace("U", "u", 1) }}
{% for k, v in {"b": [1, 2], 'a': (3,)}.items() if k %}{{ loop.index }}{{ k }}{{ v[0] }}{{ loop.nextitem[0] }};{% else %}-{% endfor %}
{% for i in range(5) %}{% if i == 1 %}{% continue %}{% elif i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}
{% set block %} in {{ messages[-1].content[1:3] ~ messages[0]["content"][-2:] | capitalize }} {% endset %}[{{ block | trim }}]
{{ x | default("d") }}{{ "" | default("e", true) }}{{ messages[0].get("none", "f") }}{{ messages[9] is defined }}
{{ messages[0].content | length is divisibleby 2 }}{{ "a-b-c".split("-", 1) | last }}{{ [1, 2] == [1, 2] }}{{ 'k' in {'k': 1} }}
{{ "a-b (c d" | title }}{{ 'it''s' "\\x41\\u00e9\\q" }}

""",
}

S, U, A = "system", "user", "assistant"
CHATS = [
    [(U, "Hi there")],
    [(S, " Be brief. /no_think\n"), (U, " a "), (A, " b \n"), (U, "c ")],
    [(U, " a "), (A, "\n<think>\nh\u00e9, x\n</think>\n\n b"), (U, "c")],
    [(U, "<r>a</r>"), (A, "<think>\n\n</think>\n\nb\n")],
    [(S, "\u4f60\u597d"), (U, "x<|im_end|>\r\n\n{{ y }}</s>"), (A, "")],
    [(S, ""), (U, ""), (A, "b"), (U, "\u00a0c\u3000")],
    [(U, "a"), (A, "b", "because\n"), (U, "c"), (A, "d", "\nstill")],
    [(U, "a"), (U, "b"), (S, "late"), (A, "c")],
]


def messages(chat):
    return [{"role": m[0], "content": m[1], **({"reasoning_content": m[2]} if len(m) > 2 else {})} for m in chat]


def render(template, chat, prompt, thinking):
    more = {} if thinking is None else {"enable_thinking": thinking}
    aliases = [{**m, **{k: m["reasoning_content"] for k in ("thinking", "reasoning") if "reasoning_content" in m}}
               for m in chat]
    try:
        return template.render(messages=aliases, tools=None, documents=None,
                                                add_generation_prompt=prompt, bos_token="<s>", eos_token="</s>", **more)
    except Exception:  # whatever it is: the conversation is refused
        return None


own = dict(TEMPLATES)
if len(sys.argv) > 1:
    own = {}
    for path in sorted(glob.glob(os.path.join(sys.argv[1], "*.jinja"))):
        with open(path, encoding="utf-8", newline="") as f:
            own[os.path.basename(path)] = f.read()
out = []
for name, text in own.items():
    modes = (None, True, False) if "thinking" in text else (None,)
    compiled = env.from_string(text)
    out.append({"name": name, "template": text, "want": [
        [chat, prompt, thinking, render(compiled, messages(CHATS[chat]), prompt, thinking)]
        for chat in range(len(CHATS)) for prompt in (False, True) for thinking in modes]})
json.dump({"now": NOW, "chats": [messages(c) for c in CHATS], "templates": out}, sys.stdout, ensure_ascii=False, indent=0)
print()
