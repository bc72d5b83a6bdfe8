"""depthscope figure with data that a figure lacks, with options that it does not know, and with more than it can draw."""
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))
import t  # noqa: E402
from records import Log  # noqa: E402
from t import TINY, call, one_line, run, test  # noqa: E402

MIXTURE = os.path.join(HERE, "..", "screens", "mixture.mp")
DRAFT = dict(draft="exit:2", layers=6, speedup=1.5, marks=["ordinary", "accepted", "corrected"], same_text=False)
EVAL = dict(task="ppl", model="m", method="halt", routing="x", layers=6, exit=0, answer_loss=1.0, depth_mean=3.0, flops_ratio=0.5,
    time_ratio=0.6,
            accuracy_by_k=[0.5, 0.4], depth_by_k=[1.0, 2.0], options={"halt.rule": "regret", "halt.label": "depth", "halt.features": "a"})


def ruled(**options):
    return dict(EVAL, options={"halt." + k: v for k, v in options.items()})


def dense(**keys):
    return dict(EVAL, method="dense", options={}, **keys)


def bench(name, **keys):
    return dict(results=[dict(group="speculate", name=name, **keys)])


JSON = {
    "drafts": [DRAFT, dict(DRAFT, draft="exit:3", marks=["accepted"] * 3)], "no-speed": dict(DRAFT, speedup=None),
    "no-marks": dict(DRAFT, marks=[]),
    "many-drafts": [dict(DRAFT, draft="exit:%d" % i) for i in range(40)],
    "bench": bench("speculative 0.5, exit 4, 3 drafted", time_ratio=0.7),
    "bench-above": bench("speculative 1.5, exit 4", time_ratio=0.7), "bench-other": bench("other"),
    "evals": [EVAL, ruled(rule="regret", label="depth", features="b"), dict(ruled(rule="kl", min="2"), exit=4),
    dict(EVAL, method="mod", routing="topk", options={}),
              dict(dense(), exit=3), dict(dense(), layers=4, model="n")],
    "no-layers": dict(EVAL, layers=0), "twice": [EVAL, EVAL], "rules": [ruled(rule="r%d" % i) for i in range(40)],
    "long-rules": [ruled(rule="kl", **{"a" * 70: str(i)}) for i in range(17)],
    "no-loss": dict(EVAL, answer_loss=None, depth_mean=None),
    "depths": [dict(dense(), exit=i % 30, layers=30, model="m%d" % i) for i in range(60)],
    "needs": [dict(EVAL, depth_by_k=[1.0]), ruled(rule="kl")], "task": {"results": {"piqa": {"other": 0.6}}, "config": {}},
    "prefill": {"results": [dict(group="prefill", name="x")]},
}


def write(name, text):
    with open(name, "wb") as f:
        f.write(text if isinstance(text, bytes) else text.encode())


@test
def data_that_a_figure_lacks_is_named():
    for words, part in (
            ("training nan.csv", "run nan: metric 'loss' has no finite value"),
            ("training big.csv -x nonsense", "no record 'metric' has 'nonsense'"),
            ("training big.csv --range 40000..", "no point of 'loss' has step in 40000.."),
            ("training below.csv --metric loss --log y", "metric 'loss' has no finite value above 0"),
            ("training below.csv --log x --range ..0.5", "no point of 'loss' has step in ..0.5 on a logarithmic axis"),
            ("training big.csv -x flops", "no point of 'loss' has x = flops"),
            ("routing_map tiny --probe 99", "no record 'probe' of index 99"),
            ("loss_time tiny", "'time_ratio' is not a finite number"), ("exit_map tiny", "has no cell 'exited'"),
            ("exit_hist tiny", "no record 'layer' has 'exit_rate'"),
            ("depth_needed tiny", "has no column 'needed'"), ("gates_dtf tiny", "no record 'layer' has 's_ce'"),
            ("prior_loss tiny", "no record 'metric' has 'prior_loss'"),
            ("topk_causal tiny", "no record 'eval' has both 'topk_loss' and 'loss'"),
            ("isoflop tiny", "config has no train.flops_budget above 0"),
            ("ablation_bars tiny", "missing ablation: name runs with METHOD.ablation set"),
            ("expert_map tiny", "has no cell 'expert' of kind category"),
            ("expert_load tiny", "no record 'matrix' named expert_load"),
            ("exit_rules big.csv", "expected JSON files of depthscope eval --json"),
            ("speculation no-speed.json", "no number 'speedup'"),
            ("speculation no-marks.json", "no drafted token was accepted or rejected"),
            ("speculation bench-above.json", "no 'time_ratio', or an acceptance beyond 1"),
            ("speculation bench-other.json", "no result of a given acceptance"),
            ("exit_rules no-layers.json", "evaluation without a valid 'layers' and 'exit'"),
            ("exit_rules twice.json", "duplicate: the same model and settings as in twice"),
            ("exit_rules no-loss.json", "no number 'depth_mean'"),
            ("exit_rules evals.json -x time_ratio --metric loss", "no number 'loss'"),
            ("depth_by_need depths.json", "no evaluation of adaptive depth (all run at a fixed depth)"),
            ("hops_accuracy rules.json", "no evaluation at a fixed depth"),
            ("task_bars task.json", "no task has an accuracy"), ("bench_bars prefill.json", "no results of the groups prefill and decode")):
        status, out, err = call("figure", *words.split(), "-o", "never")
        assert status == 1 and part in err and not out, (words, status, err)
        one_line(words, err)
    assert not os.path.exists("never")


@test
def options_that_a_figure_does_not_know_are_named():
    for words, part in (
            ("training big.csv --metric " + ",".join("abcdefghijklmn"), "expected at most 8 names, A,B,..."),
            ("pareto tiny big.csv --metric a,b", "expected at most one name that ends in _ratio, and one other"),
            ("pareto tiny big.csv --metric a_ratio,b_ratio", "expected at most one name"),
            ("tradeoff tiny --metric nope", "metric = nope: expected loss or perplexity"),
            ("exit_rules evals.json --metric nope", "metric = nope: expected answer_loss"),
            ("exit_rules evals.json -x nope", "x = nope: expected depth_mean"),
            ("exit_rules rules.json", "too many exit rules, 40: expected at most 16"),
            ("exit_rules long-rules.json", "too many exit rules, 17: expected at most 16"),  # which differ beyond what is drawn
            ("depth_by_need rules.json", "too many exit rules and capacities: expected at most 15"),
            ("training big.csv --log z", "log = z: expected x, y or x,y"),
            ("training big.csv --range 5", "range = 5: expected A..B with A below B"),
            ("training big.csv --range 9..5", "expected A..B with A below B"),
            ("training big.csv --range 1..nan", "expected A..B with A below B"),
            ("routing_map tiny --step 1.5", "--step 1.5: must be an integer"),
            ("speculation many-drafts.json", "too many drafts: expected at most 15")):
        status, out, err = call("figure", *words.split(), "-o", "never")
        assert status == 2 and part in err and not out, (words, status, err)
        one_line(words, err)


@test
def curves_with_holes_many_points_and_another_axis_are_drawn():
    for words in ("training holes.csv --smooth 0.5", "training big.csv", "training big.csv -x lr", "training tiny -x flops",
            "training tiny -x seconds", "routing_map tiny --probe 1 --dpi 600"):
        made = run("figure", *words.split(), "-o", "drawn").split()
        assert len(made) == 3 and all(os.path.getsize(p) > 1000 for p in made), (words, made)
    assert "nan" not in open("drawn/training.svg").read()
    assert "unchanged" in run("figure", "--again", "drawn/routing_map.png")


@test
def axes_can_be_logarithmic_and_show_a_part():
    def hash_of(*words):
        made = json.loads(run("figure", "training", *words, "-o", "axes", "--json"))["figures"][0]
        svg = open("axes/training.svg").read()
        assert "nan" not in svg and "inf" not in svg, words
        assert "unchanged" in run("figure", "--again", "axes/training.png")
        return made["data"], made["caption"] if words[0] == "sparse.csv" else svg
    data, caption = hash_of("sparse.csv", "--metric", "val,loss", "--range", "..40")
    assert "val has no point in this range." in caption and data == hash_of("sparse.csv", "--metric", "loss", "--range", "..40")[0]
    whole, linear = hash_of("big.csv", "--metric", "loss,lr")
    same, log = hash_of("big.csv", "--metric", "loss,lr", "--log", "y")
    assert same == whole and log != linear
    # step 0 has no place on a logarithmic axis
    assert hash_of("big.csv", "--metric", "loss", "--log", "x,y")[0] == hash_of("big.csv", "--metric", "loss", "--range", "1..")[0]
    part, _ = hash_of("big.csv", "--metric", "loss", "--range", "100..200")
    assert part == hash_of("big.csv", "--metric", "loss", "--range", "99.5..2.005e2")[0] != whole
    hash_of("holes.csv", "--range", "5..", "--log", "x")
    hash_of("holes.csv", "below.csv", "--range", "..40", "--log", "y")


@test
def experts_rules_and_drafts_are_drawn_with_their_notes():
    for words, part in (("expert_map " + MIXTURE, "expert"), ("expert_load " + MIXTURE, "expert"),
            ("speculation drafts.json bench.json", "differ from ordinary decoding"),
                        ("exit_rules evals.json", "one seed each"), ("depth_by_need evals.json", ""), ("hops_accuracy evals.json", ""),
                        ("hops_accuracy depths.json", ""),
                        ("depth_by_need needs.json", ""), ("task_bars task.json --metric other", "")):
        made = json.loads(run("figure", *words.split(), "-o", "drawn", "--json"))["figures"][0]
        assert part in made["caption"].lower() and len(made["files"]) == 3, (words, made)


@test
def a_theme_with_mistakes_is_drawn_and_the_first_is_said():
    write("long.theme", b"text = #123456\n" + b"x" * 600 + b"\na\0b\nmap.sequential = nope\nkind = odd\npalette.a = red\n"
          + b"backgroun = #fff\nnothing\ngood = nocolour\n"
          + b"".join(b"palette.p%d = #123456\n" % i for i in range(300)))
    write("one.theme", "inherit = light\nbackgroun = #fff\n")
    write("none.theme", "# nothing\nhello = 1\n")
    write("itself.theme", "inherit = itself.theme\n")
    write("lost.theme", "inherit = nowhere\n")
    for name, status, part in (("long", 0, "long.theme:2: line too long (and "),
            ("one", 0, 'one.theme:2: unknown key "backgroun", did you mean background?'),
                               ("none", 1, "none.theme: not a theme: expected lines ROLE = COLOUR"),
                               ("lost", 1, "lost.theme:1: theme nowhere: not found"), ("itself", 1, "theme itself.theme")):
        got, _, err = call("figure", "training", "holes.csv", "-o", "themes", "--format", "png", "--theme", "./%s.theme" % name)
        assert got == status and part in err and err.count("\n") == 1, (name, got, err)


# ---- crafted logs ----

NAN = float("nan")
COLUMN = {"flops": [NAN, 60.0, 70.0, 80.0, 90.0, 100.0] * 9, "depth": [1.0, 1.0, 2.0, 2.0, 3.0, 3.0] * 9,
          "signal": [NAN, .1, .2, .3, .4, .5] * 9, "entropy": [NAN, .1, .2, .3, .4, .5] * 9, "class": [0.0, 1.0, 2.0] * 18}
FINAL = dict(task="final", loss=2.0, flops_ratio=.5, block_ratio=.5, map=[.1, .2, .3, .4, .5, .6], map_positions=2.0, capacity=[.5, .4, .6])
PROBE = dict(index=0, name="p", layers=3, ids=[1, 2, 3], text=["a", "b", "c"], run=[[1, 1, 1], [1, 0, 1], [1, 1, 1]])


def sample(**columns):
    return "sample", dict(name="val", n=54, column={**COLUMN, **columns})


def crafted(name, *records, **head):
    log = Log(name + ".mp")
    log.put("head", 0, **{**dict(format=1, run=name, method="edp", layers=3, steps=9, flops_dense=100.0), **head})
    for kind, keys in records:
        log.put(kind, 9, **keys)
    log.put("end", 9, status="done")
    log.file.close()
    return name + ".mp"


@test
def samples_without_finite_values_are_left_out_or_refused():
    some, none, equal = crafted("some", sample()), crafted("none", sample(**{k: [NAN] * 54 for k in COLUMN})), crafted("equal",
        sample(flops=[50.0] * 54))
    few = crafted("few", sample(flops=[NAN] * 52 + [1.0, 2.0]))
    for figure, note in (("flops_hist", "without a finite cost are omitted"), ("signal_depth", "without a finite value are omitted"),
                         ("entropy_depth", "without a finite value are omitted"), ("category_depth", "")):
        made = json.loads(run("figure", figure, some, "-o", "drawn", "--json"))["figures"][0]
        assert note in made["caption"], (figure, made["caption"])
        status, _, err = call("figure", figure, none, "-o", "never")
        assert status == 1 and "run none" in err, (figure, err)
        one_line([figure], err)
    t.refused("every token costs the same (0.500 of dense)", "figure", "flops_hist", equal, "-o", "never", code=1)
    t.refused("column 'flops' has fewer than 4 finite values", "figure", "flops_hist", few, "-o", "never", code=1)


@test
def layers_that_were_not_measured_are_no_part_of_a_mean():
    some = crafted("measured", ("eval", dict(FINAL, capacity=[NAN, .5, 1.0])))
    none = crafted("unmeasured", ("eval", dict(FINAL, capacity=[NAN] * 3)))
    for figure in ("layer_skip", "capacity_layer"):
        run("figure", figure, some, "-o", "drawn", "--format", "png")
        t.refused("run unmeasured: eval 'final': 'capacity' has no finite value", "figure", figure, none, "-o", "never", code=1)
    lossless = crafted("lossless", sample(nll=[NAN] * 54)), crafted("plain", sample())
    pictures = {run("figure", "category_depth", name, "--preview", "300", raw=True) for name in lossless}
    assert len(pictures) == 1  # no panel of losses that nobody recorded
    lost = crafted("lost-load", ("probe", dict(PROBE, cell={"expert": [[-1.0] * 3] * 3}, cell_kind={"expert": "category"})))
    t.refused("figure expert_load: run lost-load: no token of the probes has an expert", "figure", "expert_load", lost, "-o",
        "never", code=1)
    left = crafted("left", ("probe", dict(PROBE, cell={"gate": [[0.0] * 3] * 3, "exited": [[1.0] * 3] * 3})))
    t.refused("no cell of 'gate' was decided by the router", "figure", "router_hist", left, "-o", "never", code=1)


@test
def a_very_deep_model_has_cells_of_several_layers():
    for layers in (3, 128, 1000):
        name = crafted("deep%d" % layers, sample(depth=[1.0 + i * (layers - 1) / 53 for i in range(54)]), layers=layers)
        run("figure", "signal_depth", name, "-o", "drawn", "--format", "png")


@test
def evaluations_of_another_shape_are_refused():
    for name, keys, figure, part in (("short-map", dict(map=[.1, .2]), "layer_map",
            "'map' has 2 values, not layers x map_positions = 3 x 2"),
                                     ("short-topk", dict(capacity_topk=[.5, .5]), "capacity_layer",
                                     "'capacity_topk' has 2 values, expected 3"),
                                     ("one-skip", dict(capacity=[.5]), "layer_skip", "'capacity' has 1 value, expected 3"),
                                     ("one", dict(capacity=[.5]), "capacity_layer", "'capacity' has 1 value, expected 3"),
                                     ("nan-loss", dict(loss=NAN), "loss_flops", "'loss' is not a finite number")):
        t.refused(part, "figure", figure, crafted(name, ("eval", {**FINAL, **keys})), "-o", "never", code=1)
    made = json.loads(run("figure", "layer_map", crafted("holes", ("eval", {**FINAL, "map": [.1, NAN, .3, .4, .5, .6]})), "-o", "drawn",
        "--json"))["figures"][0]
    assert "1 cells were never measured and are left empty" in made["caption"], made["caption"]


@test
def more_experiments_than_panels_are_refused():
    many = [crafted("m%d" % i, sample(), ("eval", FINAL), ("metric", dict(loss=2.0)), ("probe", PROBE), method="m%d" % i,
        config={"model.method": "m%d" % i}) for i in range(30)]
    for figure in ("flops_hist", "signal_depth", "layer_map", "layer_skip", "training", "capacity_layer"):
        status, out, err = call("figure", figure, *many, "-o", "never")
        assert status == 2 and "expected at most" in err and not out, (figure, status, err)
        one_line([figure], err)
    made = json.loads(run("figure", "loss_flops", *many, "-o", "drawn", "--format", "png", "--json"))["figures"][0]
    assert "The legend names 16 of 30." in made["caption"], made["caption"]


@test
def probes_are_those_of_the_step_asked_for():
    log = Log("late.mp")
    log.put("head", 0, format=1, run="late", method="edp", layers=3, steps=40, flops_dense=100.0)
    for step, index, gates in ((8, 0, .25), (16, 0, .75), (16, 1, 1.0), (24, 1, .5)):
        log.put("layer", step, exit_rate=[step / 100, 0.0, 0.0])
        log.put("probe", step, **dict(PROBE, index=index, cell={"gate": [[gates] * 3] * 3}))
    log.file.close()
    for words, part in (("routing_map late.mp --step 7", "no record 'probe' up to step 7"),
                        ("routing_map late.mp --probe 1 --step 15", "no record 'probe' of index 1 up to step 15"),
                        ("router_hist late.mp --step 7", "no record 'probe'"),
                        ("exit_hist late.mp --step 7", "no record 'layer' with 'exit_rate' up to step 7")):
        t.refused(part, "figure", *words.split(), "-o", "never", code=1)
    for words, part in (("routing_map --step 15", "at step 8:"), ("routing_map --step 16 --probe 0", "at step 16:"),
                        ("routing_map", "at step 24:"), ("router_hist --step 9", "each text up to step 9, without"),
                        ("exit_hist --step 17", "training at step 16")):
        name, *rest = words.split()
        made = json.loads(run("figure", name, "late.mp", *rest, "-o", "late", "--json"))["figures"][0]
        assert part in made["caption"] and ("1 probe text" in made["caption"]) == (name == "router_hist"), made["caption"]
        assert "unchanged" in run("figure", "--again", "late/%s.png" % name)


@test
def probes_without_their_cell_or_always_on_are_refused_and_ratios_drawn():
    always = crafted("always", ("probe", dict(PROBE, cell={"gate": [[1.0] * 3] * 3})), always_on=[1, 1, 1])
    bare = crafted("bare", ("probe", PROBE))
    t.refused("has no cell 'gate'", "figure", "router_hist", bare, "-o", "never", code=1)
    t.refused("has no cell 'expert' of kind category", "figure", "expert_map", bare, "-o", "never", code=1)
    status, _, err = call("figure", "router_hist", always, "-o", "drawn")
    assert status == 0 or "always on" in err, err
    lost = crafted("lost", ("probe", dict(PROBE, cell={"expert": [[-1.0] * 3] * 3}, cell_kind={"expert": "category"})))
    t.refused("no token has an expert", "figure", "expert_map", lost, "-o", "never", code=1)
    far = crafted("far", ("probe", dict(PROBE, cell={"expert": [[0.0, 1.0, 2.0]] * 3}, cell_kind={"expert": "category"})))
    run("figure", "expert_map", far, "-o", "drawn")
    rates = crafted("rates", *[("eval", dict(task="capacity", capacity_target=c, loss=2 + c, flops_ratio=c, time_ratio=c)) for c in (.75,
        .25, .5)])
    for words in ([], ["--metric", "perplexity"], ["--metric", "loss"]):
        run("figure", "tradeoff", rates, "-o", "drawn", *words)


def setup():
    write("big.csv", "step,loss,lr\n" + "".join("%d,%g,%g\n" % (i, 2 + 3 / (i + 1), 1e-3) for i in range(30000)))
    write("nan.csv", "step,loss\n" + "".join("%d,nan\n" % i for i in range(30)))
    write("holes.csv", "step,loss\n" + "".join("%d,%s\n" % (i, "nan" if i % 7 == 3 else "%g" % (2 + 1 / (i + 1))) for i in range(60)))
    write("below.csv", "step,loss\n" + "".join("%d,%g\n" % (i, i * (i - 60)) for i in range(60)))
    write("sparse.csv", "step,loss,val\n" + "".join("%d,%g,%s\n" % (i, 9 - i / 50, "2" if i == 50 else "") for i in range(60)))
    for name in ("big", "nan", "holes", "below", "sparse"):
        os.utime(name + ".csv", (1700000000, 1700000000))  # nobody is writing it
    for name, value in JSON.items():
        write(name + ".json", json.dumps(value))
    run("train", "quick", *TINY, "train.time_rounds=0", "threads=1", "--run", "tiny", "--quiet")


t.main(setup)
